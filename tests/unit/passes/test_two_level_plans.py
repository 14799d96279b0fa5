"""What the plans of two levels are on the big models: tiles, bytes between dies, and why."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from starc.analysis.communication import collectives_in, communicated_bytes
from starc.analysis.orthogonality import Gemm, gemms, violations
from starc.analysis.reencoding import layers_of
from starc.analysis.sharding_rules import module_mesh
from starc.dialects.locations import location_of
from starc.dialects.target import set_target
from starc.frontend.loading import load_model
from starc.passes.base import RemarkSink
from starc.passes.manager import instantiate
from starc.passes.pipeline import OptionValue
from starc.passes.selection import PassSpec, plan_passes
from starc.targets.loader import load_target

EXAMPLES = Path(__file__).parents[3] / "examples"

NAIVE = (PassSpec("assign-tensor-parallel"), PassSpec("propagate-shardings"))
TWO_LEVELS = (
    PassSpec("compose-reshards"),
    PassSpec("orthogonalize-gemms"),
    PassSpec("compose-reshards"),
    PassSpec("sink-norm-scale"),
    PassSpec("compose-reshards"),
)
LOCAL = (PassSpec("localize"),)


@lru_cache(maxsize=8)
def read(model: str, phase: str, context: int | None, gpus: int) -> ModuleOp:
    path = EXAMPLES / f"{model}.sa"
    batch = 1 if phase == "decode" and context is not None else None
    module = load_model(
        path.read_text(), file=path.name, phase=phase, batch=batch, context=context
    ).module
    set_target(module, load_target("mi300x-cpx", gpus))
    return module


def compiled(
    model: str,
    phase: str,
    passes: tuple[PassSpec, ...],
    context: int | None = None,
    gpus: int = 8,
) -> tuple[ModuleOp, RemarkSink]:
    module, sink = read(model, phase, context, gpus).clone(), RemarkSink()
    for spec in passes:
        sink.pass_name = spec.name
        instantiate(spec).run(module, load_target("mi300x-cpx", gpus), sink)
    return module, sink


def layer(module: ModuleOp, name: str = "decoder") -> FuncOp:
    return next(op for op in layers_of(module) if op.sym_name.data == name)


def product(module: ModuleOp, name: str) -> Gemm:
    return next(
        gemm
        for gemm in gemms(layer(module), module_mesh(module))
        if gemm.op.operands[1].owner.properties["parameter"].string_value() == f"decoder.{name}"  # type: ignore[union-attr]
    )


def sequence(mode: str) -> tuple[PassSpec, ...]:
    options: dict[str, OptionValue] = {"mode": mode, "partial": "bf16"}
    return (PassSpec("shard-attention-sequence", options),)


@pytest.mark.parametrize(
    ("model", "phase", "most"),
    [
        ("llama3-405b", "prefill", 0.38),
        ("llama3-70b", "prefill", 0.41),
        ("llama3-405b", "decode", 0.44),
        ("llama3-70b", "decode", 0.47),
    ],
)
def test_bytes_between_dies_against_hierarchical_all_reduces(
    model: str, phase: str, most: float
) -> None:
    """Bytes that a die sends to others of its GPU in a layer, over those of one-dimensional
    sharding whose all-reduces reduce-scatter and all-gather inside the GPU. Prefill gathers keys
    and values, decode gathers queries and merges parts of the attention."""
    context = 131072 if phase == "decode" else None
    attention = sequence("queries" if phase == "decode" else "keys")
    one, _ = compiled(model, phase, (*NAIVE, *LOCAL), context)
    two, _ = compiled(model, phase, (*NAIVE, *attention, *TWO_LEVELS, *LOCAL), context)
    before, after = communicated_bytes(layer(one)), communicated_bytes(layer(two))
    assert after["usr"] / before["usr"] <= most
    assert after["usr"] / before["usr"] > most - 0.01
    assert after["xgmi"] == before["xgmi"]


def test_tiles_of_fc2_of_405b() -> None:
    """K / 64 x N becomes K / 8 x N / 8: 8 times the FLOP an output element."""
    one, _ = compiled("llama3-405b", "decode", NAIVE)
    two, sink = compiled("llama3-405b", "decode", (*NAIVE, *TWO_LEVELS))
    mesh = module_mesh(one)
    before, after = product(one, "down"), product(two, "down")
    assert (before.local_extent("K", mesh), before.local_extent("N", mesh)) == (53248 // 64, 16384)
    assert (after.local_extent("K", mesh), after.local_extent("N", mesh)) == (53248 // 8, 2048)
    remark = next(
        remark
        for _, remark in sink.remarks
        if remark.id == "orthogonal-gemm" and "@decoder.down" in remark.message
    )
    assert remark.numbers["flops_an_output_ratio"] == 8
    assert "K = 6656, N = 2048 in place of K = 832, N = 16384" in remark.message


@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize(
    ("model", "gpus"),
    [("tiny", 1), *((f"llama3-{size}", gpus) for size in ("70b", "405b") for gpus in (2, 4, 8))],
)
def test_every_product_of_the_examples_is_orthogonal_or_explained(
    model: str, gpus: int, phase: str
) -> None:
    passes = plan_passes("starscream", compile_to="sharding")[1:]
    module, sink = compiled(model, phase, passes, gpus=gpus)
    explained = {remark.location for _, remark in sink.remarks if remark.id == "not-orthogonal"}
    assert all(location_of(violation.op) in explained for violation in violations(module))
    if gpus > 1:
        one, _ = compiled(model, phase, NAIVE, gpus=gpus)
        assert len(violations(one)) > len(violations(module))


def test_nothing_moves_on_one_gpu() -> None:
    one, _ = compiled("llama3-8b", "decode", NAIVE, gpus=1)
    two, sink = compiled("llama3-8b", "decode", (*NAIVE, PassSpec("orthogonalize-gemms")), gpus=1)
    assert one.is_structurally_equivalent(two)
    (remark,) = [remark for name, remark in sink.remarks if name == "orthogonalize-gemms"]
    assert remark.declined


def test_a_layer_in_few_exchanges() -> None:
    """The query's all-reduce, keys, values and the parts of the attention, gate and up, the two
    sums of squares and the gathers of two products inside a GPU; two all-reduces between GPUs."""
    module, _ = compiled(
        "llama3-405b", "decode", (*NAIVE, *sequence("queries"), *TWO_LEVELS), 131072
    )
    decoder = layer(module)
    assert collectives_in(decoder) == 1 + 2 + 1 + 2 + 2 + 2 + 2
    assert "rms_norm" not in str(decoder)
    # The residual stream is split over the dies of a GPU, between layers too.
    types = {*decoder.function_type.inputs.data, *decoder.function_type.outputs.data}
    assert [str(type) for type in types] == [
        'tensor<1x1x16384xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>'
    ]


def test_bytes_are_those_of_the_reshards() -> None:
    """The count before localisation is that after it."""
    passes = (*NAIVE, *TWO_LEVELS)
    before, _ = compiled("llama3-70b", "prefill", passes)
    after, _ = compiled("llama3-70b", "prefill", (*passes, *LOCAL))
    assert communicated_bytes(before) == communicated_bytes(after)
    assert collectives_in(before) == collectives_in(after)
