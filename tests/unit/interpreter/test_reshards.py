"""Reshards of any encoding: by their definition, and by the collectives that localisation makes.

Encodings are drawn over every kind of map, rotated ones too, over sub-axes and partial states;
empty slots hold poison, which nothing may use.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from starc.core.sharding.encoding import Axis, AxisRef, Encoding, Mesh
from starc.core.sharding.reshard_plan import plan_reshard
from starc.core.sharding.shard_map import Contiguous, Cyclic, Offsets, ShardMap, Zigzag
from starc.dialects.collective import CollectiveOp
from starc.dialects.sharding import AnyTensor, MeshOp, ReshardOp, encoding_of, global_type
from starc.interpreter.element_types import Array
from starc.interpreter.spmd import SpmdInterpreter
from starc.interpreter.values import (
    Distributed,
    assemble,
    check_replicas,
    distribute,
    placement_of,
    poisoned,
    reshard,
)
from starc.passes.base import RemarkSink
from starc.passes.collective.localize import LocalizePass
from starc.targets.loader import load_target

MESH = Mesh("node", (Axis("gpu", 3), Axis("xcd", 4)))
GPU, XCD = AxisRef("gpu"), AxisRef("xcd")
MAJOR, MINOR = AxisRef("xcd", 1, 2), AxisRef("xcd", 2, 2)
TARGET = load_target("mi300x-cpx")


@st.composite
def maps(draw: st.DrawFn, dim: int, shape: Sequence[int], ranks: int, turned: bool) -> ShardMap:
    """Any map of one dimension; where ``turned``, one that another dimension may turn."""
    kind = draw(st.sampled_from(["contiguous", "cyclic", "zigzag", "offsets"]))
    if kind == "contiguous":
        return Contiguous()
    if kind == "zigzag":
        return Zigzag()
    if kind == "offsets":
        inner = draw(st.lists(st.integers(0, shape[dim]), min_size=ranks - 1, max_size=ranks - 1))
        return Offsets((0, *sorted(inner), shape[dim]))
    block = draw(st.integers(1, 3))
    others = [other for other in range(len(shape)) if other != dim]
    by = draw(st.sampled_from([None, *others])) if turned else None
    return Cyclic(block, draw(st.integers(0, block * ranks - 1)), by)


@st.composite
def encodings(draw: st.DrawFn, shape: tuple[int, ...], kind: str | None = None) -> Encoding:
    """An encoding over any order of some of the axes, at most one dimension of it rotated."""
    refs = list(draw(st.permutations([GPU, MAJOR, MINOR])))[: draw(st.integers(0, 3))]
    encoding = Encoding.replicated(MESH, len(shape))
    axes: dict[int, list[AxisRef]] = {}
    summed: list[AxisRef] = []
    for ref in refs:
        dim = draw(st.integers(-1 if kind else 0, len(shape) - 1))
        (summed if dim < 0 else axes.setdefault(dim, [])).append(ref)
    turned = True
    for dim, found in axes.items():
        ranks = MESH.refs_size(MESH.canonical(found))
        shard_map = draw(maps(dim, shape, ranks, turned))
        turned = turned and shard_map.rotated_by is None
        encoding = encoding.with_dim(dim, found, shard_map)
    return encoding.with_partial(kind, summed)


@st.composite
def cases(draw: st.DrawFn, kind: str | None = None) -> tuple[tuple[int, ...], Encoding, Encoding]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    before = draw(encodings(shape, kind))
    after = draw(encodings(shape))
    assert not before.problems(shape)
    assert not after.problems(shape)
    return shape, before, after


def spread(shape: tuple[int, ...], encoding: Encoding, seed: int = 0) -> Distributed:
    """Numbers on the devices, replicas alike, poison in empty slots."""
    generator = np.random.default_rng(seed)
    place = placement_of(encoding, shape)
    contributions = [
        distribute(generator.normal(size=shape), placement_of(encoding.with_partial(None), shape))
        for _ in range(max(place.contributions) + 1)
    ]
    parts = tuple(
        contributions[contribution].parts[device]
        for device, contribution in enumerate(place.contributions)
    )
    return Distributed(parts, place)


@given(cases())
@settings(deadline=None)
def test_cut_and_assembled_is_the_tensor(
    case: tuple[tuple[int, ...], Encoding, Encoding],
) -> None:
    shape, encoding, _ = case
    values = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    cut = distribute(values, placement_of(encoding, shape))
    check_replicas(cut)
    assert np.array_equal(assemble(cut), values)


@given(cases())
@settings(deadline=None)
def test_garbage_in_empty_slots_does_not_matter(
    case: tuple[tuple[int, ...], Encoding, Encoding],
) -> None:
    shape, encoding, after = case
    cut = spread(shape, encoding)
    parts: list[Array] = []
    for device, part in enumerate(cut.parts):
        absent = cut.placement.absent(device)
        parts.append(part if absent is None else np.where(absent, float(device), part))
    dirty = Distributed(tuple(parts), cut.placement)
    check_replicas(dirty)
    target = placement_of(after, shape)
    for left, right in zip(
        reshard((cut,), (target,))[0].parts, reshard((dirty,), (target,))[0].parts, strict=True
    ):
        assert np.array_equal(left, right, equal_nan=True)


def localized(
    sources: Sequence[Encoding], targets: Sequence[Encoding], shapes: Sequence[tuple[int, ...]]
) -> tuple[ModuleOp, list[CollectiveOp]]:
    """A layer that reshards its arguments together, after localisation."""
    wholes: list[AnyTensor] = [TensorType(f32, shape) for shape in shapes]
    before = [global_type(whole, source) for whole, source in zip(wholes, sources, strict=True)]
    after = [global_type(whole, target) for whole, target in zip(wholes, targets, strict=True)]
    block = Block(arg_types=before)
    op = ReshardOp(list(block.args), after)
    block.add_ops([op, ReturnOp(*op.results)])
    layer = FuncOp("f", FunctionType.from_lists(before, after), Region(block))
    module = ModuleOp([MeshOp(MESH), layer])
    LocalizePass().run(module, TARGET, RemarkSink())
    module.verify()
    found = [op for op in block.ops if isinstance(op, CollectiveOp)]
    return module, found


def executed(module: ModuleOp, values: Sequence[Distributed]) -> list[Distributed]:
    """What the collectives of a layer leave of these values on the devices."""
    interpreter = SpmdInterpreter(module, "exact")
    layer = next(op for op in module.body.ops if isinstance(op, FuncOp))
    return interpreter.run_block_on(layer.body.block, values)


def check_collectives(
    values: Sequence[Distributed], sources: Sequence[Encoding], targets: Sequence[Encoding]
) -> None:
    """The collectives of a reshard leave what its definition says."""
    shapes = [value.placement.extents for value in values]
    module, _ = localized(sources, targets, shapes)
    places = [placement_of(to, shape) for to, shape in zip(targets, shapes, strict=True)]
    for found, expected in zip(executed(module, values), reshard(values, places), strict=True):
        check_replicas(found)
        assert found.placement == expected.placement
        for left, right in zip(poisoned(found).parts, poisoned(expected).parts, strict=True):
            assert np.allclose(left, right, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("kind", [None, "sum", "max"])
def test_collectives_do_what_a_reshard_says(kind: str | None) -> None:
    @given(cases(kind))
    @settings(deadline=None, max_examples=150)
    def check(case: tuple[tuple[int, ...], Encoding, Encoding]) -> None:
        shape, before, after = case
        check_collectives([spread(shape, before)], [before], [after])

    check()


HEADS, HEAD_DIM = 6, 2


@st.composite
def softmax_encodings(draw: st.DrawFn, shape: tuple[int, ...], partial: bool) -> Encoding:
    """The encoding of m and l; dimension 1 may be turned by dimension 0."""
    encoding = draw(encodings(shape, "lse" if partial else None))
    for dim, sharding in enumerate(encoding.dims):
        if sharding.map.rotated_by == 2 or (dim == 2 and isinstance(sharding.map, Contiguous)):
            encoding = encoding.with_dim(dim, sharding.axes, Cyclic(1))
        if dim == 2 and isinstance(sharding.map, Zigzag):
            encoding = encoding.with_dim(dim, sharding.axes, Cyclic(1))
    return encoding


def of_columns(encoding: Encoding) -> Encoding:
    """The encoding of o where that of m and l is given: blocks of a head's columns."""
    sharding = encoding.dims[2]
    found = sharding.map.of_blocks(HEAD_DIM, encoding.ranks(2), HEADS)
    return encoding.with_dim(2, sharding.axes, found)


def where_seen(value: Distributed, seen: Sequence[bool], identity: float) -> Distributed:
    """The value with the identity on other devices; their empty slots hold poison all the same."""
    parts = (
        part if there else np.where(np.isnan(part), part, identity)
        for part, there in zip(value.parts, seen, strict=True)
    )
    return Distributed(tuple(parts), value.placement)


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_partial_softmaxes_are_merged_together(data: st.DataObject) -> None:
    rows = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 4)))
    shape, columns = (*rows, HEADS), (*rows, HEADS * HEAD_DIM)
    before = data.draw(softmax_encodings(shape, True))
    after = data.draw(softmax_encodings(shape, False))
    sources = [before, before, of_columns(before)]
    targets = [after, after, of_columns(after)]
    m, total = spread(shape, before, 1), spread(shape, before, 2)
    # Some devices have seen no key: the identity, which must not change anything.
    seen = [before.partial is None or rank % 5 != 1 for rank in m.placement.contributions]
    m = where_seen(m, seen, -np.inf)
    total = Distributed(tuple(np.abs(part) for part in total.parts), total.placement)
    total = where_seen(total, seen, 0.0)
    output = where_seen(spread(columns, sources[2], 3), seen, 0.0)
    check_collectives([m, total, output], sources, targets)


def operations(source: Encoding, target: Encoding, shape: tuple[int, ...]) -> list[str]:
    return [op.name for op in localized([source], [target], [shape])[1]]


WHOLE = Encoding.replicated(MESH, 2)


def test_new_rows_go_to_the_owners_by_a_reduce_scatter() -> None:
    source = WHOLE.with_partial("sum", (XCD,))
    target = WHOLE.with_dim(1, (XCD,), Cyclic(1, 3, by=0))
    assert operations(source, target, (4, 1)) == ["collective.reduce_scatter"]


def test_a_turned_map_moves_by_a_permutation() -> None:
    source = WHOLE.with_dim(1, (XCD,), Cyclic(1, 1, by=0))
    target = WHOLE.with_dim(1, (XCD,), Cyclic(1, 2, by=0))
    assert operations(source, target, (4, 16)) == ["collective.permute"]


def test_a_map_changes_by_way_of_another_dimension() -> None:
    source = WHOLE.with_dim(1, (XCD,), Cyclic(1))
    target = WHOLE.with_dim(1, (XCD,))
    assert operations(source, target, (4, 16)) == ["collective.all_to_all"] * 2
    assert operations(source, target, (3, 16)) == ["collective.all_gather", "collective.all_slice"]


def test_a_partial_softmax_of_two_levels_goes_to_the_owners_of_heads_at_once() -> None:
    # KV heads over half of the inner axis, positions over the rest of the mesh.
    heads = Encoding.replicated(MESH, 3).with_dim(2, (MAJOR,))
    source = heads.with_partial("lse", (GPU, MINOR))
    steps = plan_reshard(source, heads.with_dim(2, (XCD, GPU)), (2, 1, 24))
    assert [(step.kind, step.axes) for step in steps] == [("reduce_scatter", (MINOR, GPU))]
    steps = plan_reshard(source, heads.with_dim(2, (XCD,)), (2, 1, 24))
    assert [(step.kind, step.axes) for step in steps] == [
        ("reduce_scatter", (MINOR,)),
        ("all_reduce", (GPU,)),
    ]


def test_what_only_some_components_need_is_done_for_them_alone() -> None:
    # Columns of one head of m and l cannot be split further; those of o can.
    shapes = [(2, 1, 1), (2, 1, 1), (2, 1, 8)]
    before = [Encoding.replicated(MESH, 3).with_partial("lse", (GPU,))] * 3
    whole = Encoding.replicated(MESH, 3)
    after = [whole, whole, whole.with_dim(2, (XCD,))]
    _, found = localized(before, after, shapes)
    assert [(op.name, len(op.inputs)) for op in found] == [
        ("collective.all_reduce", 3),
        ("collective.all_slice", 1),
    ]


def test_types_stay_what_the_collectives_leave() -> None:
    module, _ = localized(
        [WHOLE.with_partial("sum", (XCD,))], [WHOLE.with_dim(0, (XCD,))], [(5, 2)]
    )
    layer = next(op for op in module.body.ops if isinstance(op, FuncOp))
    encoding = encoding_of(layer.function_type.outputs.data[0], MESH)
    assert encoding == WHOLE.with_dim(0, (XCD,))
