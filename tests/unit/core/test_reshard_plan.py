"""Reshards as collectives: every step is a legal collective and the last leaves the target."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.core.sharding.reshard_plan import plan_reshard
from starc.core.sharding.shard_map import Contiguous, Cyclic, ShardMap
from starc.dialects.collective import CollectiveOp
from starc.dialects.sharding import AnyTensor, MeshOp, ReshardOp, global_type, spec_of
from starc.passes.base import RemarkSink
from starc.passes.collective.localize import LocalizePass
from starc.targets.loader import load_target

NODE = Mesh("node", (Axis("gpu", 2, "outer", "xgmi"), Axis("xcd", 4, "inner", "usr")))
GPU, XCD = AxisRef("gpu"), AxisRef("xcd")
MAJOR, MINOR = AxisRef("xcd", 1, 2), AxisRef("xcd", 2, 2)
TARGET = load_target("mi300x-cpx")


def names(source: Encoding, target: Encoding, shape: tuple[int, ...] = (16, 16)) -> list[str]:
    return [
        f"{step.kind} {[str(axis) for axis in step.axes]}"
        for step in plan_reshard(source, target, shape)
    ]


WHOLE = Encoding.replicated(NODE, 2)


def test_a_partial_sum_becomes_whole_by_an_all_reduce() -> None:
    source = WHOLE.with_partial("sum", (GPU, XCD))
    assert names(source, WHOLE) == ["all_reduce ['\"gpu\"', '\"xcd\"']"]


def test_a_partial_sum_becomes_split_by_a_reduce_scatter() -> None:
    source = WHOLE.with_partial("sum", (GPU, XCD))
    assert names(source, WHOLE.with_dim(1, (XCD,))) == [
        "reduce_scatter ['\"xcd\"']",
        "all_reduce ['\"gpu\"']",
    ]


def test_part_of_an_axis_is_gathered() -> None:
    source = WHOLE.with_dim(1, (GPU, XCD))
    assert names(source, WHOLE.with_dim(1, (GPU, MAJOR))) == ["all_gather ['\"xcd\":(2)2']"]


def test_axes_move_between_dimensions_by_an_all_to_all() -> None:
    assert names(WHOLE.with_dim(0, (XCD,)), WHOLE.with_dim(1, (XCD,))) == ["all_to_all ['\"xcd\"']"]


def test_slices_come_before_gathers_that_they_shrink() -> None:
    assert names(WHOLE.with_dim(0, (GPU,)), WHOLE.with_dim(1, (XCD,))) == [
        "all_slice ['\"xcd\"']",
        "all_gather ['\"gpu\"']",
    ]


def test_uneven_shards_that_do_not_nest_are_gathered_whole() -> None:
    source = WHOLE.with_dim(0, (GPU, XCD))
    assert names(source, WHOLE.with_dim(0, (GPU,)), (18, 4)) == [
        "all_gather ['\"gpu\"', '\"xcd\"']",
        "all_slice ['\"gpu\"']",
    ]


def test_nothing_to_do_is_no_step() -> None:
    encoding = WHOLE.with_dim(0, (GPU,))
    assert names(encoding, encoding) == []


@st.composite
def encodings(draw: st.DrawFn, rank: int, partial: bool) -> Encoding:
    refs = list(draw(st.permutations([GPU, MAJOR, MINOR])))[: draw(st.integers(0, 3))]
    encoding = Encoding.replicated(NODE, rank)
    axes: dict[int, list[AxisRef]] = {}
    summed: list[AxisRef] = []
    for ref in refs:
        dim = draw(st.integers(-1 if partial else 0, rank - 1))
        (summed if dim < 0 else axes.setdefault(dim, [])).append(ref)
    maps: list[ShardMap] = [Contiguous(), Contiguous(), Cyclic(1), Cyclic(2)]
    for dim, found in axes.items():
        encoding = encoding.with_dim(dim, found, draw(st.sampled_from(maps)))
    return encoding.with_partial("sum", summed)


@given(encodings(2, True), encodings(2, False), st.sampled_from([(16, 16), (5, 8), (3, 1)]))
@settings(deadline=None, max_examples=200)
def test_every_reshard_becomes_legal_collectives(
    source: Encoding, target: Encoding, shape: tuple[int, ...]
) -> None:
    whole: AnyTensor = TensorType(f32, shape)
    before, after = global_type(whole, source), global_type(whole, target)
    block = Block(arg_types=[before])
    reshard = ReshardOp([block.args[0]], [after])
    block.add_ops([reshard, ReturnOp(reshard.results[0])])
    layer = FuncOp("f", FunctionType.from_lists([before], [after]), Region(block))
    module = ModuleOp([MeshOp(NODE), layer])
    LocalizePass().run(module, TARGET, RemarkSink())
    module.verify()
    returned = block.last_op
    assert returned is not None
    last = spec_of(returned.operands[0].type)
    assert last is not None
    assert (last.dims, last.partial) == (target.dims, None)
    assert all(isinstance(op, CollectiveOp | ReturnOp) for op in block.ops)
