"""Encodings: the shards of all devices are exactly the tensor."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from starc.core.sharding.encoding import DimSharding, Encoding, is_refinement
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.core.sharding.shard_map import CONTIGUOUS, Contiguous, Cyclic, ShardMap, Zigzag

NODE = Mesh("node", (Axis("gpu", 4, "outer", "xgmi"), Axis("xcd", 4, "inner", "usr")))
GPU, XCD = AxisRef("gpu"), AxisRef("xcd")
MAJOR, MINOR = AxisRef("xcd", 1, 2), AxisRef("xcd", 2, 2)


@st.composite
def encodings(draw: st.DrawFn) -> tuple[Encoding, tuple[int, ...]]:
    """An encoding over any order of some of the axes, with any maps, and a shape."""
    refs = draw(st.permutations([GPU, MAJOR, MINOR]))[: draw(st.integers(0, 3))]
    shape = tuple(draw(st.lists(st.integers(1, 20), min_size=1, max_size=3)))
    encoding = Encoding.replicated(NODE, len(shape))
    axes: dict[int, list[AxisRef]] = {}
    for ref in refs:
        axes.setdefault(draw(st.integers(0, len(shape) - 1)), []).append(ref)
    maps: list[ShardMap] = [Contiguous(), Cyclic(1), Cyclic(3), Zigzag()]
    for dim, found in axes.items():
        encoding = encoding.with_dim(dim, found, draw(st.sampled_from(maps)))
    return encoding, shape


@given(encodings())
def test_shards_partition_the_index_space(case: tuple[Encoding, tuple[int, ...]]) -> None:
    encoding, shape = case
    count: Counter[tuple[int, ...]] = Counter()
    for coords in NODE.devices():
        indices = [encoding.global_indices(dim, n, coords) for dim, n in enumerate(shape)]
        assert tuple(len(index) for index in indices) == encoding.device_shape(shape, coords)
        held = np.stack(np.meshgrid(*indices, indexing="ij"), axis=-1).reshape(-1, len(shape))
        count.update(tuple(index) for index in held.tolist())
    assert set(count.values()) == {encoding.replication}
    assert len(count) == np.prod(shape)


@given(encodings())
def test_the_local_shape_is_the_largest_of_any_device(
    case: tuple[Encoding, tuple[int, ...]],
) -> None:
    encoding, shape = case
    shapes = [encoding.device_shape(shape, coords) for coords in NODE.devices()]
    assert encoding.local_shape(shape) == tuple(
        max(extents) for extents in zip(*shapes, strict=True)
    )
    assert encoding.problems(shape) == []


@given(
    st.integers(1, 3), st.integers(0, 11), st.integers(1, 9), st.integers(0, 20), st.integers(0, 1)
)
def test_a_rotated_dimension_has_a_line_for_every_row(
    block: int, offset: int, rows: int, extent: int, by: int
) -> None:
    dim = 1 - by
    held_rows: tuple[AxisRef, ...] = (GPU,)
    shard_map = Cyclic(block, offset % (4 * block), by=by)
    encoding = Encoding.replicated(NODE, 2).with_dim(dim, (XCD,), shard_map)
    encoding = encoding.with_dim(by, held_rows, Cyclic(1))
    shape = (extent, rows) if by else (rows, extent)
    assert encoding.problems(shape) == []
    capacity = encoding.local_shape(shape)[dim]
    seen: Counter[tuple[int, int]] = Counter()
    for coords in NODE.devices():
        lines = encoding.global_indices(by, rows, coords)
        indices = encoding.indices(dim, shape, coords)
        assert indices.shape == (len(lines), capacity)
        assert encoding.device_shape(shape, coords)[dim] == capacity
        for row, line in zip(lines.tolist(), indices.tolist(), strict=True):
            present = [position for position in line if position >= 0]
            assert line == present + [-1] * (capacity - len(present))
            assert present == sorted(present)
            for position in present:
                turned = (position + shard_map.offset) // block + row
                assert turned % 4 == coords["xcd"]
                seen[row, position] += 1
    assert seen == Counter({(row, at): 1 for row in range(rows) for at in range(extent)})


def test_kv_heads_over_leading_sub_axes_land_on_neighbouring_devices() -> None:
    encoding = Encoding.replicated(NODE, 1).with_dim(0, (GPU, MAJOR))
    held = [encoding.global_indices(0, 8, coords).tolist() for coords in NODE.devices()]
    assert held == [[device // 2] for device in range(16)]
    assert encoding.replicated_axes() == (MINOR,)
    assert encoding.replication == 2


def test_uneven_and_empty_shards() -> None:
    encoding = Encoding.replicated(NODE, 1).with_dim(0, (GPU,))
    counts = [encoding.local_extent(0, 5, {"gpu": gpu, "xcd": 0}) for gpu in range(4)]
    assert counts == [2, 2, 1, 0]
    assert encoding.local_shape((5,)) == (2,)


def test_partial_axes_are_kept_in_the_order_of_the_mesh() -> None:
    encoding = Encoding.replicated(NODE, 1).with_partial("sum", (XCD, GPU))
    assert str(encoding) == '[{}], partial = sum{"gpu", "xcd"}'
    assert encoding.replication == 1
    assert encoding.with_partial(None) == Encoding.replicated(NODE, 1)


def test_refinement_holds_for_maps_that_gather_to_coarser_ones() -> None:
    fine = DimSharding((GPU, XCD), Cyclic(2))
    assert is_refinement(NODE, DimSharding((GPU,), Cyclic(8)), fine, 64)
    assert not is_refinement(NODE, DimSharding((GPU,), Cyclic(2)), fine, 64)
    assert is_refinement(NODE, DimSharding(), fine, 50)
    assert not is_refinement(NODE, DimSharding((XCD,), CONTIGUOUS), fine, 64)
    assert not is_refinement(NODE, DimSharding((GPU,)), DimSharding((GPU, XCD)), 18)
