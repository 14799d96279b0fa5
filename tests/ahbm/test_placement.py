"""Where keys lie: what the kernbench design record ADR-0060 says of it contradicts itself."""

from __future__ import annotations

import itertools

import pytest

from starc.core.collectives.rectangles import Rectangle
from starc.core.collectives.reduction_trees import element_tree
from starc.core.sharding.shard_map import Contiguous, Cyclic

C = P = 8
R = C * P


def section_0(token: int, start_cube: int = 0, start_pe: int = 0) -> int:
    """Round-robin over cubes, then over the PEs of a cube."""
    return (start_cube + token) % C * P + (token // C + start_pe) % P


def section_2(token: int) -> int:
    """``global = local * C * P + cube * P + pe``."""
    return token % R


def test_the_two_formulas_of_the_record_differ() -> None:
    """They name the same rank for 32 of 256 tokens."""
    assert sum(section_0(token) == section_2(token) for token in range(256)) == 32


def test_the_rotation_of_the_record_is_applied_twice() -> None:
    """A rank that has been turned back by its start compares itself with a start again: for any
    start but 0 the token goes to a rank that does not hold its slot."""
    for start, token in itertools.product(range(R), range(2 * R)):
        slots = {(rank - start) % R: rank for rank in range(R)}  # as section 2.1 numbers ranks
        holder = slots[token % R]
        (writer,) = [rank for turned, rank in slots.items() if (start + token) % R == turned]
        assert (writer == holder) is (start == 0)


@pytest.mark.parametrize("tokens", [1, 63, 64, 1000])
@pytest.mark.parametrize("offset", [0, 5, 63])
def test_built_is_one_rule(tokens: int, offset: int) -> None:
    """Rank = (token + start) mod R: every token has one place, local slots have no gaps, ranks
    differ by one token at most, and a rank's position is a closed form of its slot."""
    keys = Cyclic(1, offset)
    held: list[list[int]] = [keys.positions(rank, R, tokens).tolist() for rank in range(R)]
    assert sorted(itertools.chain(*held)) == list(range(tokens))
    assert max(map(len, held)) - min(map(len, held)) <= 1
    for rank, positions in enumerate(held):
        assert len(positions) == keys.count(rank, R, tokens)
        for slot, token in enumerate(positions):
            assert keys.owner(token, R, tokens) == (rank, slot)
            assert token == keys.position(rank, slot, R, tokens)
            assert rank == (token + offset) % R


def test_stretches_leave_ranks_idle_where_the_context_is_short() -> None:
    """A quarter of the context that buffers are made for is on a quarter of the ranks."""
    keys = Contiguous()
    busy = [rank for rank in range(R) if (keys.positions(rank, R, 4096) < 1024).any()]
    assert len(busy) == R // 4
    assert all(Cyclic().count(rank, R, 1024) == 1024 // R for rank in range(R))


def test_no_tree_of_depth_three_has_neighbours_of_a_ring_of_eight() -> None:
    """A rank of a ring of eight is four links from the one across; on the mesh of 2 x 4 the center
    is three from all, and three rounds of neighbours are enough."""
    mesh, ranks = Rectangle(2, 4), range(8)
    assert min(max(min((a - b) % 8, (b - a) % 8) for b in ranks) for a in ranks) == 4
    assert min(max(mesh.hops(a, b) for b in ranks) for a in ranks) == 3
    tree = element_tree("tree", 8)
    assert tree.rounds == 3
    assert {message.hops for message in tree.messages} == {1}
