"""Plans of reductions: every part is merged once, in the rounds and by the messages that count."""

from __future__ import annotations

import doctest
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.collectives import reduction_trees
from starc.core.collectives.head_owners import HeadScatter, default_root, head_owners
from starc.core.collectives.rectangles import Rectangle, cube_shape, element_shape
from starc.core.collectives.reduction_trees import (
    CUBE_TREES,
    ELEMENT_TREES,
    Tree,
    cube_tree,
    element_tree,
    fan_out,
    flat_tree,
    mesh_tree,
    pair_tree,
    ring_tree,
    two_levels,
)

SIZES = st.sampled_from((1, 2, 3, 4, 5, 6, 7, 8, 11, 16))
MAKERS = st.sampled_from(
    [
        *((cube_tree, name) for name in CUBE_TREES),
        *((element_tree, name) for name in ELEMENT_TREES),
    ]
)


def test_examples() -> None:
    assert doctest.testmod(reduction_trees).failed == 0


@given(MAKERS, SIZES, st.integers(0, 15))
def test_everything_reaches_any_root_once(
    maker: tuple[Callable[[str, int, int], Tree], str], size: int, root: int
) -> None:
    tree = maker[0](maker[1], size, root % size)
    tree.check()
    assert tree.root == root % size
    assert len(tree.messages) == size - 1
    assert all(tree.children[tree.parents[m.source]] for m in tree.messages)
    for message in tree.messages:
        later = [m.round for m in tree.messages if m.source == message.target]
        assert all(message.round < each for each in later)
        together = [m for m in tree.messages if m.target == message.target]
        assert len({m.round for m in together}) == len(together)


@given(
    st.sampled_from(CUBE_TREES),
    st.sampled_from(ELEMENT_TREES),
    st.sampled_from((1, 2, 3, 4, 8)),
    st.sampled_from((1, 2, 3, 4, 8)),
)
def test_two_levels_are_one_tree(cubes: str, elements: str, c: int, p: int) -> None:
    outer, inner = cube_tree(cubes, c), element_tree(elements, p)
    both = two_levels(outer, inner)
    both.check()
    assert both.size == c * p
    assert len(both.messages) == c * p - 1
    assert both.rounds <= outer.rounds + inner.rounds
    crossing = [m for m in both.messages if m.source // p != m.target // p]
    assert len(crossing) == c - 1
    assert all(m.source % p == m.target % p == inner.root for m in crossing)


def test_eight_cubes_of_eight_elements() -> None:
    both = two_levels(mesh_tree(2, 4), pair_tree(2, 4))
    assert (len(both.messages), both.rounds, both.root) == (63, 6, default_root(8, 8))
    assert {message.hops for message in both.messages} == {1}
    assert len(fan_out(64)) == 4032
    assert max(message.round for message in fan_out(64)) == 63


def test_pairs_on_two_by_four_are_neighbours() -> None:
    tree = pair_tree(2, 4)
    by_round = [
        sorted((m.source, m.target) for m in tree.messages if m.round == number)
        for number in (1, 2, 3)
    ]
    assert by_round == [[(0, 1), (3, 2), (4, 5), (7, 6)], [(5, 1), (6, 2)], [(2, 1)]]
    # An 8-ring cannot hold a tree of three rounds of neighbours: nobody is within three links of
    # all others.
    ring = Rectangle(2, 4).ring()
    assert max(min(i, 8 - i) for i in range(len(ring))) == 4


@pytest.mark.parametrize(
    ("rows", "columns", "rounds", "corner"),
    [(2, 4, 3, 4), (4, 4, 4, 6), (1, 8, 4, 7), (2, 2, 2, 2)],
)
def test_a_root_at_the_center_shortens_the_way(
    rows: int, columns: int, rounds: int, corner: int
) -> None:
    assert mesh_tree(rows, columns).rounds == rounds
    assert mesh_tree(rows, columns, root=0).rounds == corner


def test_rings_go_between_neighbours() -> None:
    for rows, columns in ((2, 2), (2, 4), (4, 4)):
        ring = Rectangle(rows, columns).ring()
        assert sorted(ring) == list(range(rows * columns))
        tree = ring_tree(rows, columns)
        assert {message.hops for message in tree.messages} == {1}
        assert tree.rounds == rows * columns - 1
    assert flat_tree(2, 4).rounds == 7


def test_a_broken_tree_is_found() -> None:
    lost = Tree(0, (0, 0, 2), ((1,), (), ()))
    with pytest.raises(ValueError, match="rank 2 gets"):
        lost.check()


@given(
    st.integers(1, 16),
    st.sampled_from((1, 2, 4, 8)),
    st.sampled_from((1, 2, 4, 8)),
    st.sampled_from(CUBE_TREES),
    st.sampled_from(ELEMENT_TREES),
)
def test_heads_reach_their_owners_once(
    heads: int, cubes: int, elements: int, across: str, inside: str
) -> None:
    owners = head_owners(heads, cubes, elements)
    assert list(owners) == sorted(owners)
    assert len(owners) == heads
    assert 0 <= owners[0]
    assert owners[-1] < cubes * elements
    HeadScatter(owners, cubes, elements, across, inside).check()


def test_a_scatter_to_one_owner_is_the_tree() -> None:
    scatter = HeadScatter((default_root(8, 8),), 8, 8)
    both = two_levels(mesh_tree(2, 4), pair_tree(2, 4))
    assert len(scatter.messages) == 63
    assert scatter.rounds == 6
    assert {(m.source, m.target) for m in scatter.messages} == {
        (m.source, m.target) for m in both.messages
    }
    assert cube_shape(8) == element_shape(8) == (2, 4)
