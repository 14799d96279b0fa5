"""Attention over split caches: encodings, what is exchanged, and the figures that follow."""

from __future__ import annotations

import doctest
from fractions import Fraction
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.analysis.attention_traffic import AttentionTraffic, attentions, traffic_of
from starc.core.sharding import attention_sharding
from starc.core.sharding.attention_sharding import (
    AttentionShape,
    shard_sequence,
    shared_axes,
    without,
)
from starc.core.sharding.encoding import Axis, Encoding, Mesh
from starc.core.sharding.mesh import AxisRef, axes_text
from starc.core.sharding.shard_map import Cyclic, Offsets
from starc.dialects.target import set_target
from starc.frontend import load_model
from starc.passes.base import Remark, RemarkSink
from starc.passes.manager import instantiate
from starc.passes.selection import plan_passes
from starc.passes.sharding.shard_attention_sequence import ShardAttentionSequencePass
from starc.targets.loader import load_target

EXAMPLES = Path(__file__).parents[3] / "examples"
NODE = Mesh("node", (Axis("gpu", 8, "outer", "xgmi"), Axis("xcd", 8, "inner", "usr")))
GPU, XCD = AxisRef("gpu"), AxisRef("xcd")


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(attention_sharding).failed == 0


# -- encodings -----------------------------------------------------------------------------------


def plan(
    heads: int, kv_heads: int, kv_axes: tuple[AxisRef, ...], **how: str | int
) -> attention_sharding.SequencePlan:
    """An attention on 8 x 8 devices over 40 positions, of which the last 3 are new."""
    shape = AttentionShape(2, 3, heads, kv_heads, 4, 37, 40)
    cache = Encoding.replicated(NODE, 4).with_dim(1, kv_axes)
    queries = Encoding.replicated(NODE, 3).with_dim(2, NODE.all_axes())
    shared = shared_axes(cache)
    map_name, block = str(how.get("map", "cyclic")), int(how.get("block", 1))
    return shard_sequence(shape, queries, cache, queries, shared, map_name, block)


def test_fewer_kv_heads_than_outer_devices_split_positions_over_both_levels() -> None:
    found = plan(64, 4, (AxisRef("gpu", 1, 4),))
    assert str(found.cache) == '[{}, {"gpu":(1)4}, {"gpu":(4)2, "xcd"} cyclic(1, by = 0), {}]'
    assert str(found.parts) == '[{}, {}, {"gpu":(1)4}], partial = lse{"gpu":(4)2, "xcd"}'
    assert found.owners.dims[2].axes == (GPU, XCD)
    assert found.ranks == 16
    # Both levels carry their own part: the inner one first.
    assert found.merge_bytes(4) == {"usr": 2 * 3 * 14 * 24, "xgmi": 2 * 3 * 1 * 24}


def test_one_kv_head_is_split_over_all_devices() -> None:
    found = plan(64, 1, ())
    assert str(found.cache) == '[{}, {}, {"gpu", "xcd"} cyclic(1, by = 0), {}]'
    assert str(found.new) == '[{}, {"gpu", "xcd"} cyclic(1, offset = 37, by = 0), {}]'
    assert found.queries.used_axes() == ()


def test_new_tokens_travel_by_the_map_of_their_positions() -> None:
    dealt = plan(64, 8, (GPU,), block=3)
    assert dealt.new.dims[1].map == Cyclic(3, 37 % 24, 0)
    stretches = plan(64, 8, (GPU,), map="contiguous")
    # 40 positions in stretches of 5: 37, 38 and 39 are all the last device's.
    assert stretches.new.dims[1].map == Offsets((0, 0, 0, 0, 0, 0, 0, 0, 3))


def test_axes_are_taken_out_of_lists_by_parts() -> None:
    assert axes_text(without(NODE, (GPU, XCD), (AxisRef("xcd", 2, 4),))) == '"gpu", "xcd":(1)2'
    assert axes_text(without(NODE, (XCD, GPU), (AxisRef("xcd", 2, 2),))) == (
        '"xcd":(1)2, "xcd":(4)2, "gpu"'
    )
    assert without(NODE, (XCD,), NODE.all_axes()) == ()


def test_uneven_heads_are_gathered_by_whole_groups() -> None:
    shape = AttentionShape(1, 1, 7, 1, 4, 15, 16)
    mesh = Mesh("m", (Axis("x", 2), Axis("y", 2)))
    offsets = Offsets(tuple(4 * head for head in (0, 2, 4, 6, 7)))
    queries = Encoding.replicated(mesh, 3).with_dim(2, mesh.all_axes(), offsets)
    cache = Encoding.replicated(mesh, 4).with_dim(0, (), Cyclic(1))
    found = shard_sequence(shape, queries, cache, queries, (AxisRef("y"),), "cyclic", 1)
    assert found.queries.dims[2].map == Offsets((0, 16, 28))
    assert found.part_rows.dims[2].map == Offsets((0, 4, 7))
    assert found.owner_rows.dims[2].map == Offsets((0, 2, 4, 6, 7))


def test_heads_behind_a_gathered_axis_are_gathered_too_where_they_do_not_divide() -> None:
    """120 heads by offsets on 6 x 8 devices: no map says what is left of {gpu, xcd} without half of
    gpu, so the heads of all dies come along."""
    mesh = Mesh("m", (Axis("gpu", 6), Axis("xcd", 8)))
    shape = AttentionShape(1, 1, 120, 8, 4, 99, 100)
    offsets = Offsets(tuple(4 * min(3 * rank, 120) for rank in range(49)))
    queries = Encoding.replicated(mesh, 3).with_dim(2, mesh.all_axes(), offsets)
    cache = Encoding.replicated(mesh, 4).with_dim(1, (AxisRef("gpu", 1, 2), XCD))
    found = shard_sequence(shape, queries, cache, queries, (AxisRef("gpu", 2, 3),), "cyclic", 1)
    assert found.queries.dims[2].axes == (AxisRef("gpu", 1, 2),)
    assert found.queries.dims[2].map == Offsets((0, 288, 480))
    assert found.queries.problems(shape.columns) == []


# -- figures -------------------------------------------------------------------------------------


def sharded(
    model: str, options: dict[str, str], *, localized: bool = True, **work: int | str
) -> tuple[ModuleOp, list[Remark]]:
    """An example on 64 devices with its caches split, and the remarks of the pass."""
    module = load_model(EXAMPLES / f"{model}.sa", **work).module  # pyright: ignore[reportArgumentType]
    target = load_target("mi300x-cpx")
    set_target(module, target)
    sink = RemarkSink()
    for spec in plan_passes("naive", compile_to="sharding"):
        instantiate(spec).run(module, target, RemarkSink(pass_name=spec.name))
    instance = ShardAttentionSequencePass(**options)  # pyright: ignore[reportArgumentType]
    instance.run(module, target, sink)
    if localized:
        localize = next(spec for spec in plan_passes("naive") if spec.name == "localize")
        instantiate(localize).run(module, target, RemarkSink())
    return module, [remark for _, remark in sink.remarks]


def traffic(model: str, options: dict[str, str], **work: int | str) -> AttentionTraffic:
    """The traffic of the attention of an example: the same in reshards as in collectives."""
    counts = [
        traffic_of(attentions(sharded(model, options, localized=localized, **work)[0])[0])
        for localized in (False, True)
    ]
    assert counts[0] == counts[1]
    return counts[0]


CONTEXT = 128 * 1024
CARRIERS = load_target("mi300x-cpx").carriers


@pytest.mark.parametrize(
    ("partial", "received", "percent"), [("bf16", 3584 + 3696, 0.0868), ("f32", 10864, 0.1295)]
)
def test_decode_receives_a_thousandth_of_what_it_reads(
    partial: str, received: int, percent: float
) -> None:
    """405B at 128k: 14 heads of 128 queries, and 14 merged heads, over 8 MiB of keys and values."""
    found = traffic("llama3-405b", {"partial": partial}, phase="decode", batch=1, context=CONTEXT)
    assert found.cache_bytes == 8 * 2**20
    assert found.received_bytes == received
    assert 100 * float(found.received_share) == pytest.approx(percent, abs=5e-5)


def test_the_share_does_not_depend_on_the_batch_and_falls_with_the_context() -> None:
    one, ten = (
        traffic("llama3-405b", {}, phase="decode", batch=batch, context=CONTEXT)
        for batch in (1, 10)
    )
    assert one.received_share == ten.received_share
    short = traffic(
        "llama3-405b", {"mode": "queries"}, phase="decode", batch=1, context=CONTEXT // 8
    )
    assert short.received_share == 8 * one.received_share


def test_prefill_moves_keys_between_carriers_and_sixteen_times_less_than_queries() -> None:
    work: dict[str, int | str] = {"phase": "prefill", "batch": 1, "prompt": CONTEXT}
    keys = traffic("llama3-405b", {"mode": "auto"}, **work)
    queries = traffic("llama3-405b", {"mode": "queries"}, **work)
    assert keys.unique_bytes == queries.unique_bytes
    assert keys.between_carriers(CARRIERS) == Fraction(3, 4) * Fraction(8, 136)
    assert float(keys.between_carriers(CARRIERS)) == pytest.approx(0.0441, abs=1e-4)
    assert float(queries.between_carriers(CARRIERS)) == pytest.approx(0.706, abs=1e-3)
    assert queries.moved_bytes == 16 * keys.moved_bytes


def test_a_chunk_at_a_long_context_gathers_queries() -> None:
    """Keys win where the new tokens are more than about 1 / (heads / kv_heads) of the context."""
    for prompt, moved in ((2048, "queries"), (16 * 1024, "keys"), (CONTEXT, "keys")):
        _, (remark,) = sharded(
            "llama3-405b", {}, phase="prefill", batch=1, prompt=prompt, context=CONTEXT
        )
        assert remark.numbers["moved"] == moved
        assert remark.numbers["query_bytes"] == 14909440 * prompt // 2048
        assert remark.numbers["key_bytes"] == 58720256


def test_a_remark_has_the_replication_and_the_bytes() -> None:
    _, (remark,) = sharded("llama3-405b", {}, phase="decode", batch=1, context=CONTEXT)
    numbers = remark.numbers
    assert (numbers["replication_before"], numbers["replication_after"]) == (8, 1)
    assert (numbers["kv_bytes_before"], numbers["kv_bytes"]) == (64 * 2**20, 8 * 2**20)
    assert 'over {"xcd"}' in remark.message


def test_a_short_context_is_not_split_and_the_remark_says_why() -> None:
    module, (remark,) = sharded("llama3-405b", {}, phase="decode", batch=1, context=256)
    assert remark.declined
    assert "costs more than the shorter read saves" in remark.message
    alone, split = remark.numbers["step_us"], remark.numbers["all_ranks_step_us"]
    assert isinstance(alone, float)
    assert isinstance(split, float)
    assert alone < split
    assert "partial = lse" not in str(module)
    forced, _ = sharded("llama3-405b", {"mode": "queries"}, phase="decode", batch=1, context=256)
    assert "partial = lse" in str(forced)


def test_windows_are_split_for_their_memory() -> None:
    """A step that sees 128 positions gains nothing by a split; eight copies of its cache cost."""
    _, remarks = sharded("gpt-oss-120b", {}, phase="decode", batch=16, context=32 * 1024)
    assert [remark.numbers["replication_after"] for remark in remarks] == [1, 1]
    local, everything = (remark.message for remark in remarks)
    assert "which is the price of the memory that copies would take" in local
    assert "price" not in everything
    _, remarks = sharded("gpt-oss-120b", {}, phase="decode", batch=1, context=1024)
    assert all(remark.declined for remark in remarks)
