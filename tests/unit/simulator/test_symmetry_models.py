"""One GPU stands for all in compiled models, to the picosecond, or the report says why not."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from starc.api import CompileOptions, compile_model
from starc.simulator.core.compiled import interpreted
from starc.simulator.core.memory.tags import EMPTY, TAG_SHIFT, WAYS
from starc.simulator.core.memory.turning import watch_set
from starc.simulator.options import SimulationOptions
from starc.simulator.run import simulate
from starc.simulator.state import counts, numbers, watches

MODEL = "examples/llama3-70b.sa"


@pytest.mark.parametrize(
    ("target", "strategy"),
    [("mi300x-cpx", "naive"), ("mi300x-spx", "naive"), ("mi300x-cpx", "hierarchical")],
)
def test_models_whose_gpus_are_alike(target: str, strategy: str) -> None:
    options = CompileOptions(model=MODEL, target=target, strategy=strategy, batch=8, context=1024)
    program = compile_model(options).packed
    one = simulate(program)
    node = simulate(program, SimulationOptions(full_node=True))
    assert node.simulated_gpus == 8
    assert (one.simulated_gpus == 1) == (one.whole_node == "")
    assert one.key() == node.key()


def watched(uses: list[tuple[int, bool]], turning: tuple[int, ...]) -> bool:
    """Whether uses of blocks of one set, each with whether it turns with the GPU, are unsure."""
    count = len(turning)
    s = SimpleNamespace(
        cfg={numbers.MALL_WAYS: WAYS},
        stats=np.zeros(counts.STATS, np.int64),
        turning=np.array([count], np.uint8),
        turners=np.array([*turning, *[-1] * (watches.VICTIMS - count)], np.int32),
        turned=np.zeros(watches.VICTIMS, np.uint8),
        victims=np.full(watches.VICTIMS, -1, np.int32),
        mall=np.full(WAYS, EMPTY << TAG_SHIFT, np.uint32),
    )
    look = interpreted(watch_set)
    order: list[int] = []
    for block, turns in uses:
        s.stats[counts.STAT_TURNS] = int(turns)
        look(s, 0, block)
        order = [block, *(other for other in order if other != block)][:WAYS]
        s.mall[: len(order)] = np.array(order) << TAG_SHIFT
    return bool(s.stats[counts.STAT_UNSURE])


def fresh(first: int, count: int) -> list[tuple[int, bool]]:
    return [(block, False) for block in range(first, first + count)]


TURNING = (900,)
TURN = [(900, True)]
USED = [(1, False)]


@pytest.mark.parametrize(
    ("uses", "unsure"),
    [
        (USED + TURN + fresh(10, 5) + USED, False),  # a hit far from the end of the set
        (USED + TURN + fresh(10, 14) + USED, True),  # the last that would hit
        (USED + TURN + fresh(10, 15) + USED, True),  # the first that misses
        (USED + TURN + fresh(10, 16) + USED, False),  # a miss whatever turns
        (TURN + USED + fresh(10, 15) + USED, False),  # nothing has turned since
        ([*USED, (900, False), *fresh(10, 14), *USED], False),  # used, but not turning
        (TURN + fresh(10, 15) + TURN, True),  # what turns itself
        (TURN + fresh(10, 3) + TURN, False),
    ],
)
def test_what_hangs_on_when_something_turned(uses: list[tuple[int, bool]], unsure: bool) -> None:
    assert watched(uses, TURNING) == unsure
