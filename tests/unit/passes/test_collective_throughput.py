"""How near an exchange over both levels of a node comes to its bounds, simulated."""

from __future__ import annotations

from starc.simulator.run import simulate
from tests.unit.passes.exchanges import Exchange
from tests.unit.passes.test_collective_algorithms import hierarchical


def two_levels(rows: int, columns: int, chunks: int) -> Exchange:
    return hierarchical((8, 8), (1, rows, columns), ("direct", "two_shot", "direct"), chunks)


def test_a_hierarchical_all_reduce_of_256_mib_keeps_both_levels_busy() -> None:
    """At least 0.9 of what its own work needs, and 0.85 of what any algorithm needs: a quarter of
    the payload over each of seven links of a GPU."""
    payload = 256 << 20
    exchange = two_levels(8192, payload // 2 // 8192, 32)
    result = simulate(exchange.program)
    (launch,), (layer,) = result.launches, result.layers
    assert result.traffic.logical["xgmi"] == 8 * 7 * payload // 4
    assert layer.lower_bound_ps / launch.time_ps >= 0.9
    bound = payload / 4 / exchange.target.link_rate["xgmi"] * 1e12
    assert bound / launch.time_ps >= 0.85


def test_phases_side_by_side_are_faster_than_one_behind_the_other() -> None:
    one, several = (simulate(two_levels(512, 8192, chunks).program) for chunks in (1, 4))
    assert several.launches[0].time_ps < 0.9 * one.launches[0].time_ps
