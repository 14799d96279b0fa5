"""What the simulator counts of decode attention on memory cubes: messages, loads, rounds, times."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from starc.backend.program import Opcode
from starc.core.collectives.reduction_trees import cube_tree, element_tree, fan_out, two_levels
from starc.core.vector_functions.table import BY_NAME
from starc.passes.program.pack import pack
from starc.simulator.options import SimulationOptions
from starc.simulator.results.result import SimulationResult
from starc.simulator.run import simulate
from starc.simulator.state import engine_counts as counts
from tests.executable.cube_decode import CubeCase, compiled

LOADS, PUTS, SIGNALS = (counts.MOVE_NAMES.index(name) for name in ("loads", "puts", "signals"))


@lru_cache(maxsize=32)
def simulated(case: CubeCase) -> SimulationResult:
    return simulate(pack(compiled(case, "verify-schedule"), case.target))


def moves(case: CubeCase, name: int) -> list[int]:
    """A count of the DMA engines in the attention launch, by device."""
    result = simulated(case)
    (number,) = [i for i, launch in enumerate(result.launches) if launch.kind == "attention"]
    return result.engine_counts[number, :, counts.MOVES + name].tolist()


def by_class(case: CubeCase) -> list[int]:
    """Messages inside cubes and between them."""
    result = simulated(case)
    (number,) = [i for i, launch in enumerate(result.launches) if launch.kind == "attention"]
    first = counts.MESSAGES
    return result.engine_counts[number, :, first : first + 2].sum(0).tolist()


def duration(case: CubeCase) -> int:
    (launch,) = [each for each in simulated(case).launches if each.kind == "attention"]
    return launch.end_ps - launch.start_ps


LARGE = CubeCase(8, 8, context=64 * 8)


def test_sixty_three_messages_in_six_rounds() -> None:
    """One record from every rank but the root, 56 over the meshes of cubes and 7 between cubes;
    a fan-out of 64 ranks has 4,032 messages in 63 rounds."""
    puts = moves(LARGE, PUTS)
    tree = two_levels(cube_tree("mesh", 8), element_tree("tree", 8))
    assert sum(puts) == sum(moves(LARGE, SIGNALS)) == len(tree.messages) == 63
    assert [rank for rank, count in enumerate(puts) if count == 0] == [tree.root]
    assert by_class(LARGE) == [56, 7]
    assert tree.rounds == 6
    assert len(fan_out(64)) == 4032


def test_messages_go_when_their_parts_are_there() -> None:
    """In the log every rank sends once, behind all ranks that send to it; the longest chain has the
    six rounds of the plan. Two runs have the same log."""
    program = pack(compiled(LARGE, "verify-schedule"), LARGE.target)
    options = SimulationOptions(log=True)
    log, again = (simulate(program, options).log for _ in range(2))
    assert log is not None
    assert again is not None
    assert np.array_equal(log, again)
    (number,) = [i for i, each in enumerate(simulated(LARGE).launches) if each.kind == "attention"]
    is_put = program.records["op"][log["record"]] == Opcode.PUT
    puts = log[is_put & (log["launch"] == number)]
    sent = dict(zip(puts["device"].tolist(), puts["start_ps"].tolist(), strict=True))
    tree = two_levels(cube_tree("mesh", 8), element_tree("tree", 8))
    assert sorted(sent) == [rank for rank in range(64) if rank != tree.root]

    def depth(rank: int) -> int:
        for child in tree.children[rank]:
            assert rank == tree.root or sent[child] < sent[rank]
        return max((1 + depth(child) for child in tree.children[rank]), default=0)

    assert depth(tree.root) == tree.rounds == 6


@pytest.mark.parametrize(
    "case",
    [
        CubeCase(2, 4, output="root"),
        CubeCase(4, 2, output="root", across="ring", inside="ring"),
        CubeCase(2, 4, output="root", across="flat", inside="flat"),
        CubeCase(8, 1, output="root", across="tree"),
    ],
    ids=str,
)
def test_every_way_to_one_root_has_a_message_a_rank(case: CubeCase) -> None:
    assert sum(moves(case, PUTS)) == case.cubes * case.elements - 1
    assert by_class(case) == [case.cubes * (case.elements - 1), case.cubes - 1]


def level_times(case: CubeCase, skew: int) -> tuple[int, int]:
    """When the root has merged the records of all cubes, by the log of operations, and when it
    would have at the earliest with a barrier between the levels: what every cube takes from being
    ready, a message and its merge, counts from where the last cube is."""
    program = pack(compiled(case, "verify-schedule"), case.target)
    target = replace(case.target, start_skew_ps=skew)
    result = simulate(program, SimulationOptions(log=True, target=target))
    (number,) = [i for i, each in enumerate(result.launches) if each.kind == "attention"]
    log = result.log
    assert log is not None
    records = program.records[log["record"]]
    is_merge = (records["op"] == Opcode.VECTOR) & (records["fn"] == BY_NAME["lse_merge"].id)
    merges = log[is_merge & (log["launch"] == number)]
    inside, across = np.unique(merges["record"])
    tree, root = cube_tree("mesh", case.cubes), element_tree("tree", case.elements).root

    def ends(cube: int, record: int) -> list[int]:
        own = merges[merges["device"] == cube * case.elements + root]
        return sorted(own["end_ps"][own["record"] == record].tolist())

    ready = [ends(cube, inside)[-1] for cube in range(case.cubes)]
    done = [ends(cube, across) for cube in range(case.cubes)]

    def finished(cube: int, begin: list[int]) -> int:
        """When a cube has merged its children, where cubes are ready at ``begin``."""
        state, real = begin[cube], ready[cube]
        for child, end in zip(tree.children[cube], done[cube], strict=True):
            sent = (done[child] or [ready[child]])[-1]
            state = max(state, finished(child, begin)) + end - max(real, sent)
            real = end
        return state

    actual = finished(tree.root, ready)
    assert actual == done[tree.root][-1]
    return actual, finished(tree.root, [max(ready)] * case.cubes)


@pytest.mark.parametrize(
    "case",
    [
        CubeCase(8, 8, context=512),
        CubeCase(8, 2, context=512),
        # Elements and cubes with fewer keys than others, the last one with none.
        CubeCase(8, 2, context=300, positions="contiguous"),
        CubeCase(8, 2, context=65, positions="contiguous"),
    ],
    ids=str,
)
def test_no_barrier_between_levels_is_earlier(case: CubeCase) -> None:
    """Cubes do not wait for each other: with PEs that start by chance, or have other numbers of
    keys, the root is never later than behind a barrier that costs nothing, and mostly earlier."""
    times = [level_times(case, skew) for skew in (0, 16_000, 64_000, 256_000)]
    assert all(actual <= barrier for actual, barrier in times)
    assert sum(actual < barrier for actual, barrier in times) >= 3


def test_scattered_heads() -> None:
    """Heads to elements of their own number, then each from cube to cube: eight times as many
    messages of an eighth of the bytes."""
    case = CubeCase(8, 8, context=64 * 8, output="scatter")
    assert sum(moves(case, PUTS)) == 8 * (8 * 7 + 7) == 504


def test_credits_are_messages_only_where_slots_are_used_again() -> None:
    once = CubeCase(2, 2, batch=4, context=9)
    again = CubeCase(2, 2, batch=6, context=9)
    assert sum(moves(once, SIGNALS)) == 4 * 3
    assert sum(moves(again, SIGNALS)) == 6 * 3 + 2 * 3


def test_loads_do_not_depend_on_the_heads() -> None:
    loads = [moves(CubeCase(2, 2, heads=heads, context=64), LOADS) for heads in (1, 2, 8)]
    assert loads[0] == loads[1] == loads[2]
    # A tile of queries, four tiles of keys and of values, and the records of children.
    tree = two_levels(cube_tree("mesh", 2), element_tree("tree", 2))
    assert loads[0] == [1 + 2 * 4 + len(tree.children[rank]) for rank in range(4)]


def test_results_are_deterministic() -> None:
    case = CubeCase(2, 2, context=40)
    again = simulate(pack(compiled(case, "verify-schedule"), case.target))
    assert again.key() == simulated(case).key()
    assert np.array_equal(again.engine_counts, simulated(case).engine_counts)


def test_a_ring_of_eight_takes_longer_than_a_tree() -> None:
    tree = duration(CubeCase(1, 8, context=64))
    assert tree < duration(CubeCase(1, 8, context=64, inside="ring"))
    assert tree < duration(CubeCase(1, 8, context=64, inside="flat"))


def test_the_next_scores_are_computed_during_the_softmax() -> None:
    case = CubeCase(1, 2, context=512, keys=32, head_dim=64)
    blocking = duration(CubeCase(1, 2, context=512, keys=32, head_dim=64, schedule="blocking"))
    assert duration(case) < blocking
