"""Fused kernels of whole models compute what separate ones do, with every cost put back, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import cast

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.checking.harness import check_module, check_program
from starc.diagnostics import InputError
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_fusion import is_fused, merging_of, pulled
from starc.interpreter.program_runs import run_stack
from starc.passes.base import Remark, RemarkSink
from starc.passes.kernel.fuse_compute_collectives import FuseComputeCollectives
from starc.passes.manager import instantiate
from starc.passes.pipeline import OptionValue
from starc.passes.program.pack import pack
from starc.passes.selection import PassSpec, plan_passes
from tests.executable.cases import Case, decode, load, prefill

FUSION = "fuse-compute-collectives"
PLANS: Mapping[str, Mapping[str, OptionValue]] = {"shard-attention-sequence": {"mode": "queries"}}


@lru_cache(maxsize=8)
def formed(case: Case) -> ModuleOp:
    """A case with the plan of two levels, as launches."""
    loaded = load(case)
    module = loaded.module.clone()
    # In small models the interchange of exchanges and products leaves nothing to pull, nor do
    # gathers that are merged.
    without = ("interchange-collectives", "merge-collectives")
    plans = dict(PLANS)
    if case.uneven:
        for name in ("verify-model", "assign-tensor-parallel", "orthogonalize-gemms"):
            plans[name] = {"uneven": True}
    for spec in plan_passes("starscream", options=plans, disable=without):
        if spec.name == FUSION:
            break
        instantiate(spec).run(module, loaded.target, RemarkSink())
    return module


def fused(case: Case, **options: OptionValue) -> tuple[ModuleOp, list[Remark]]:
    """The case with fused launches, and the remarks about them."""
    loaded = load(case)
    module, sink = formed(case).clone(), RemarkSink()
    instantiate(PassSpec(FUSION, options)).run(module, loaded.target, sink)
    return module, [remark for _, remark in sink.remarks]


def lowered(case: Case, module: ModuleOp) -> ModuleOp:
    names = [spec.name for spec in plan_passes("starscream")]
    for spec in plan_passes("starscream")[names.index(FUSION) + 1 :]:
        instantiate(spec).run(module, load(case).target, RemarkSink())
    return module


CASES = [
    decode("gqa", (2, 2), batch=1, context=65),
    decode("gqa", (4, 2), batch=3),
    decode("mha", (2, 4), batch=2),
    decode("triple", (3, 2), batch=3),
    prefill("gqa", (2, 2), prompt=21),
    prefill("parallel", (4, 2), prompt=19),
    prefill("gqa", (4, 2), batch=2, prompt=9, context=43),
    replace(decode("gqa", (3, 2), batch=5, context=23), uneven=True),
    replace(decode("windows", (2, 3), batch=2, context=22), uneven=True),
    replace(prefill("gqa", (2, 3), prompt=7), uneven=True),  # too long for one kernel
]


def check_everywhere(case: Case, module: ModuleOp, seeds: range) -> None:
    loaded = load(case)
    lockstep = check_module("fused", module, loaded.data, loaded.reference)
    assert lockstep.ok, (lockstep.error, lockstep.message)
    lowered(case, module)
    for seed in seeds:
        streams = check_module("fused", module, loaded.data, loaded.reference, interleaving=seed)
        assert streams.ok, (seed, streams.error, streams.message)
    reference = run_stack(loaded.module, loaded.data, "exact")
    program = check_program(pack(module, loaded.target), loaded.data, reference)
    assert program.ok, (program.error, program.message)


@pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
def test_fused_launches_compute_what_separate_ones_do(case: Case):
    module, _ = fused(case)
    launches = [op for op in module.walk() if isinstance(op, LaunchOp) and is_fused(op)]
    assert any(pulled(op) is not None for op in launches)
    check_everywhere(case, module, range(4))


def test_everything_between_attention_and_products_is_behind_their_sums():
    """A layer of a residual stream is two products with sums, three more, and its attention."""
    module, _ = fused(CASES[1])
    decoder = [
        (op.sym_name.data.split(".")[1], op.kind.data, [inner.name for inner in op.block.ops])
        for op in module.walk()
        if isinstance(op, LaunchOp) and op.sym_name.data.startswith("decoder.")
    ]
    assert [name for name, _, _ in decoder] == [
        "attn_norm",
        "attn_norm_all_reduce",
        "q_k_v",
        "partial_attention",
        "o",
        "gate_up",
        "down",
    ]
    held = {name: set(names) for name, _, names in decoder}
    assert {"nn.rope", "collective.reduce_scatter", "nn.append"} <= held["q_k_v"]
    assert {"collective.all_reduce", "nn.add", "nn.sum_squares"} <= held["o"]
    assert {"nn.silu", "nn.mul", "collective.reduce_scatter"} <= held["gate_up"]
    assert {"collective.all_gather", "collective.all_reduce", "nn.add"} <= held["down"]


@pytest.mark.parametrize(
    "case",
    [prefill("gqa", (4, 2), batch=2, prompt=9, context=43), prefill("windows", (4, 2), prompt=12)],
    ids=str,
)
def test_an_attention_reads_the_caches_of_peers(case: Case, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(
        cast(dict[str, object], PLANS), "shard-attention-sequence", {"mode": "keys"}
    )
    formed.cache_clear()
    module, _ = fused(case)
    formed.cache_clear()
    launches = [op for op in module.walk() if isinstance(op, LaunchOp)]
    attentions = [op for op in launches if op.kind.data == "attention"]
    assert attentions
    for op in attentions:
        assert [inner.name for inner in op.block.ops][:2] == ["collective.all_gather"] * 2
    check_everywhere(case, module, range(2))


@pytest.mark.parametrize("unfuse", [(), ("launch",)], ids=["merged", "launch"])
@pytest.mark.parametrize(
    "case",
    [decode("windows", (4, 2), batch=2, context=22), decode("gqa", (4, 2), batch=3)],
    ids=str,
)
def test_owners_of_heads_merge_in_the_attention(case: Case, unfuse: tuple[str, ...]):
    module, _ = fused(case, unfuse=unfuse)
    launches = [op for op in module.walk() if isinstance(op, LaunchOp)]
    assert any(merging_of(op) is not None for op in launches)
    assert not any(op.kind.data == "elementwise" and "lse_finish" in str(op) for op in launches)
    check_everywhere(case, module, range(3))


OPTIONS: list[Mapping[str, OptionValue]] = [
    {"pull": "uncached"},
    {"pull": "cached"},
    {"pull": "staged"},
    {"unfuse": ("hbm",)},
    {"unfuse": ("sync",)},
    {"unfuse": ("launch",)},
    {"unfuse": ("hbm", "sync", "launch"), "pull": "cached"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[4]], ids=str)
def test_every_way_to_read_and_every_cost(case: Case, options: Mapping[str, OptionValue]):
    module, _ = fused(case, **options)
    pulls = {
        op.pull.data for op in module.walk() if isinstance(op, LaunchOp) and op.pull is not None
    }
    expected = "staged" if "hbm" in str(options) else options.get("pull")
    if expected is not None:
        assert pulls == {expected}
    check_everywhere(case, module, range(2))


def test_what_is_fused_does_not_depend_on_the_costs_that_are_put_back():
    case = CASES[0]
    _, plain = fused(case)
    _, taxed = fused(case, unfuse=("hbm", "sync", "launch"))
    assert [remark.message for remark in plain] == [remark.message for remark in taxed]


def test_remarks_have_the_numbers_that_decide():
    module, remarks = fused(CASES[0])
    launches = {op.sym_name.data for op in module.walk() if isinstance(op, LaunchOp)}
    pulls = [remark for remark in remarks if "cached_us" in remark.numbers]
    assert pulls
    for remark in pulls:
        numbers = remark.numbers
        assert remark.id == "fused"
        assert remark.launch in launches
        ways = [numbers[f"{way}_us"] for way in ("uncached", "cached", "staged")]
        assert numbers["fused_us"] == min(ways)
        assert float(numbers["fused_us"]) < float(numbers["separate_us"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pull": "cache"}, "option 'pull' has no value 'cache', one of auto"),
        ({"unfuse": ("hmb",)}, "option 'unfuse' has no value 'hmb'"),
    ],
)
def test_unknown_values_are_refused(options: Mapping[str, OptionValue], message: str):
    instance = instantiate(PassSpec(FUSION, options))
    assert isinstance(instance, FuseComputeCollectives)
    with pytest.raises(InputError, match=message):
        instance.run(formed(CASES[0]).clone(), load(CASES[0]).target, RemarkSink())
