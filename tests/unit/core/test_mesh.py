"""Meshes: groups, sub-axes, links."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.sharding import encoding, mesh, shard_map
from starc.core.sharding.mesh import Axis, AxisRef, LinkPart, Mesh, MeshError, axes_text

NODE = Mesh(
    "node",
    (
        Axis("gpu", 4, "outer", "xgmi"),
        Axis("xcd", 8, "inner", "usr", (LinkPart("iod", 4, "usr"), LinkPart("slot", 2, "die"))),
    ),
)
GPU, XCD = AxisRef("gpu"), AxisRef("xcd")


@pytest.mark.parametrize("module", [mesh, shard_map, encoding])
def test_examples_in_docstrings(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # pyright: ignore[reportArgumentType]


def test_device_ids_count_the_last_axis_fastest() -> None:
    assert [NODE.device_id(coords) for coords in NODE.devices()] == list(range(32))
    assert NODE.coordinates(13) == {"gpu": 1, "xcd": 5}


def test_levels_are_named_by_the_axes() -> None:
    assert NODE.levels() == ("outer", "inner")
    assert NODE.level_axes("inner") == (XCD,)


def test_groups_are_in_the_order_of_the_axis_list() -> None:
    small = Mesh("m", (Axis("a", 2), Axis("b", 3)))
    a, b = AxisRef("a"), AxisRef("b")
    assert small.groups((b,)) == [(0, 1, 2), (3, 4, 5)]
    assert small.groups((a,)) == [(0, 3), (1, 4), (2, 5)]
    assert small.groups((b, a)) == [(0, 3, 1, 4, 2, 5)]
    assert small.groups(()) == [(device,) for device in range(6)]


def test_sub_axis_groups_of_the_major_and_minor_factor() -> None:
    one = Mesh("m", (Axis("x", 8),))
    assert one.groups((AxisRef("x", 1, 2),)) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert one.groups((AxisRef("x", 2, 4),)) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert one.groups((AxisRef("x", 2, 2),)) == [(0, 2), (1, 3), (4, 6), (5, 7)]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.data(),
)
def test_groups_partition_the_devices(sizes: list[int], data: st.DataObject) -> None:
    grid = Mesh("m", tuple(Axis(f"a{i}", size) for i, size in enumerate(sizes)))
    names = data.draw(st.lists(st.sampled_from([a.name for a in grid.axes]), unique=True))
    groups = grid.groups(tuple(AxisRef(name) for name in names))
    assert sorted(device for group in groups for device in group) == list(range(grid.size))
    assert {len(group) for group in groups} == {grid.refs_size([AxisRef(name) for name in names])}


def test_canonical_merges_parts_and_names_whole_axes() -> None:
    parts = (AxisRef("xcd", 1, 2), AxisRef("xcd", 2, 4))
    assert NODE.canonical(parts) == (XCD,)
    assert NODE.canonical((AxisRef("xcd", 1, 2), AxisRef("xcd", 2, 2))) == (AxisRef("xcd", 1, 4),)
    assert NODE.canonical(reversed(parts)) == tuple(reversed(parts))


def test_complement_is_what_is_not_covered() -> None:
    assert NODE.complement((GPU,)) == (XCD,)
    assert NODE.complement((AxisRef("xcd", 2, 2),)) == (
        GPU,
        AxisRef("xcd", 1, 2),
        AxisRef("xcd", 4, 2),
    )
    assert NODE.complement((GPU, XCD)) == ()


def test_leading_factors_split_outer_axes_first() -> None:
    used, rest = NODE.leading_factors((GPU, XCD), 8)
    assert axes_text(used) == '"gpu", "xcd":(1)2'
    assert axes_text(rest) == '"xcd":(2)4'


@given(st.lists(st.integers(1, 12), min_size=1, max_size=3), st.integers(1, 64))
def test_factors_of_a_divisor_have_its_size(sizes: list[int], count: int) -> None:
    grid = Mesh("m", tuple(Axis(f"a{i}", size) for i, size in enumerate(sizes)))
    for split in (grid.leading_factors, grid.trailing_factors):
        used, rest = split(grid.all_axes(), count)
        assert grid.refs_size(used) * grid.refs_size(rest) == grid.size
        assert count % grid.refs_size(used) == 0
        if grid.size % count == 0:
            assert grid.refs_size(used) == count
        assert sorted(grid.complement(used), key=str) == sorted(grid.canonical(rest), key=str)


def test_trailing_factors_leave_the_major_part() -> None:
    used, rest = NODE.trailing_factors((GPU, XCD), 16)
    assert axes_text(used) == '"gpu":(2)2, "xcd"'
    assert axes_text(rest) == '"gpu":(1)2'


def test_link_class_is_that_of_the_outermost_level_crossed() -> None:
    assert NODE.link_class((GPU, XCD)) == "xgmi"
    assert NODE.link_class((XCD,)) == "usr"
    assert NODE.link_class((AxisRef("xcd", 4, 2),)) == "die"
    assert NODE.link_class((AxisRef("xcd", 1, 4),)) == "usr"
    assert NODE.link_classes((GPU, XCD)) == ("xgmi", "usr", "die")
    assert NODE.link_class(()) is None


def test_pair_link_class() -> None:
    assert NODE.pair_link_class(0, 0) is None
    assert NODE.pair_link_class(0, 1) == "die"
    assert NODE.pair_link_class(0, 2) == "usr"
    assert NODE.pair_link_class(0, 8) == "xgmi"


def test_unknown_axes_and_bad_factors_are_named() -> None:
    with pytest.raises(MeshError, match='unknown axis name: "z"'):
        NODE.ref_size(AxisRef("z"))
    with pytest.raises(MeshError, match='sub-axis "xcd":\\(1\\)3 does not divide axis "xcd"'):
        NODE.ref_size(AxisRef("xcd", 1, 3))
    with pytest.raises(ValueError, match='duplicate axis name: "x"'):
        Mesh("m", (Axis("x", 2), Axis("x", 2)))
