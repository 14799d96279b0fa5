"""Layers of two levels compute what the model does: products, norms and exchanges after each pass
that rewrites them, on the grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.analysis.communication import communicated_bytes
from starc.analysis.orthogonality import violations
from starc.checking.harness import check_module, run_module
from starc.core.sharding.link_bytes import is_no_more
from starc.dialects.locations import location_of
from starc.dialects.target import set_target
from starc.frontend.loading import load_model
from starc.interpreter.seeded_data import seeded_data
from starc.passes.base import RemarkSink
from starc.passes.manager import instantiate
from starc.passes.pipeline import OptionValue
from starc.passes.selection import PassSpec, plan_passes
from starc.passes.verification import verify
from starc.targets.loader import load_target
from tests.executable.cases import LARGE, SMALL, UNEVEN, Case, decode, load, prefill
from tests.executable.models import decoder

TWO_LEVELS: Final = (
    PassSpec("orthogonalize-gemms"),
    PassSpec("compose-reshards"),
    PassSpec("sink-norm-scale"),
    PassSpec("compose-reshards"),
    PassSpec("interchange-collectives"),
    PassSpec("compose-reshards"),
    PassSpec("localize"),
)
QUERIES: Final = (PassSpec("shard-attention-sequence", {"mode": "queries"}),)
KEYS: Final = (PassSpec("shard-attention-sequence", {"mode": "keys"}),)


def naive(case: Case) -> tuple[PassSpec, ...]:
    options: dict[str, OptionValue] = {"uneven": True} if case.uneven else {}
    if case.tensor_parallel is not None:
        options["tensor-parallel-size"] = case.tensor_parallel
    return (PassSpec("assign-tensor-parallel", options), PassSpec("propagate-shardings"))


def require_explained(module: ModuleOp, sink: RemarkSink) -> None:
    """Every product with a loop that two levels split has a remark that says why."""
    explained = {remark.location for _, remark in sink.remarks if remark.id == "not-orthogonal"}
    for violation in violations(module):
        assert location_of(violation.op) in explained, str(violation)


def run(case: Case, specs: Sequence[PassSpec]) -> RemarkSink:
    """Runs a case through passes, and the module after each against the reference."""
    loaded = load(case)
    module, sink = loaded.module.clone(), RemarkSink()
    for spec in (*naive(case), *specs):
        sink.pass_name = spec.name
        before = communicated_bytes(module) if spec.name == "compose-reshards" else {}
        instantiate(spec).run(module, loaded.target, sink)
        verify(module)
        if spec.name == "compose-reshards":
            assert is_no_more(communicated_bytes(module), before)
        two_levels = any(name == "orthogonalize-gemms" for name, _ in sink.remarks)
        if two_levels and spec.name in (
            "orthogonalize-gemms",
            "interchange-collectives",
            "localize",
        ):
            require_explained(module, sink)
        check = check_module(spec.name, module, loaded.data, loaded.reference)
        assert check.ok, (spec.name, check.error, check.message)
    rounded = check_module("typed", module, loaded.data, loaded.reference, "typed")
    assert rounded.ok, (rounded.error, rounded.message)
    return sink


REPLICAS: Final = (
    decode("gqa", (4, 2), batch=4, tp=4),
    prefill("gqa", (4, 4), batch=2, prompt=5, context=9, tp=8),
)
"""Outer levels that divide both the batch and the model."""


@pytest.mark.parametrize("case", SMALL + LARGE + REPLICAS, ids=str)
def test_layers_compute_what_they_did(case: Case) -> None:
    run(case, TWO_LEVELS)


@pytest.mark.parametrize("case", UNEVEN, ids=str)
def test_shards_that_differ_in_size(case: Case) -> None:
    uneven = (PassSpec("orthogonalize-gemms", {"uneven": True}), *TWO_LEVELS[1:])
    sink = run(case, uneven)
    declined = [name for name, remark in sink.remarks if remark.id == "not-orthogonal"]
    assert "orthogonalize-gemms" not in declined


@pytest.mark.parametrize(
    ("case", "sequence"),
    [
        (decode("gqa", (4, 2), batch=3), QUERIES),
        (decode("mqa", (2, 2), batch=2), QUERIES),
        (decode("triple", (3, 2), batch=3), QUERIES),
        (decode("parallel", (4, 2), batch=2, context=70), QUERIES),
        (decode("wide", (8, 8), batch=2, context=19), QUERIES),
        (prefill("gqa", (4, 2), batch=3, prompt=3, context=40), KEYS),
        (prefill("wide", (8, 8), batch=1, prompt=3, context=11), KEYS),
    ],
    ids=str,
)
def test_with_caches_split_along_the_sequence(case: Case, sequence: Sequence[PassSpec]) -> None:
    run(case, (*sequence, PassSpec("compose-reshards"), *TWO_LEVELS))


@pytest.mark.parametrize(
    "name",
    [
        "shard-attention-sequence",
        "orthogonalize-gemms",
        "compose-reshards",
        "sink-norm-scale",
        "interchange-collectives",
    ],
)
def test_every_pass_can_be_left_out(name: str) -> None:
    specs = plan_passes(
        "starscream",
        disable=[name],
        compile_to="collective",
        options={"shard-attention-sequence": {"mode": "queries"}},
    )
    through = [spec for spec in specs if spec.name != "verify-model"][2:]
    localized = next(i for i, spec in enumerate(through) if spec.name == "localize")
    run(decode("gqa", (4, 2), batch=3), through[: localized + 1])


def test_one_level_has_nothing_to_move() -> None:
    for case in (decode("gqa", (1, 1), batch=3), decode("gqa", (2, 2), batch=4, tp=2)):
        sink = run(case, TWO_LEVELS)
        ids = [remark.id for name, remark in sink.remarks if name == "orthogonalize-gemms"]
        assert ids == ["orthogonal-gemms"]


ODD: Final = decoder("odd", heads=8, kv_heads=4, head_dim=16, hidden=90, ffn=160, vocab=208)
"""A hidden size that 4 devices do not divide."""


@pytest.mark.parametrize("uneven", [False, True])
def test_sizes_that_do_not_divide(uneven: bool) -> None:
    module = load_model(ODD, file="odd.sa", phase="decode", batch=2, context=37).module
    target = load_target("mi300x-cpx", mesh={"gpu": 2, "xcd": 4})
    set_target(module, target)
    data = seeded_data(module)
    reference = run_module(module, data)
    sink = RemarkSink()
    specs = (
        PassSpec("assign-tensor-parallel"),
        PassSpec("propagate-shardings"),
        PassSpec("orthogonalize-gemms", {"uneven": uneven}),
        *TWO_LEVELS[1:],
    )
    for spec in specs:
        sink.pass_name = spec.name
        instantiate(spec).run(module, target, sink)
        verify(module)
        if spec.name not in ("assign-tensor-parallel", "propagate-shardings"):
            require_explained(module, sink)
        check = check_module(spec.name, module, data, reference)
        assert check.ok, (spec.name, check.error, check.message)
    messages = [remark.message for _, remark in sink.remarks if remark.id == "not-orthogonal"]
    declined = [message for message in messages if "90 does not divide over the 4" in message]
    assert bool(declined) != uneven
