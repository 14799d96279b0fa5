"""How many workgroups of a product a compute unit has room for, and how large they are."""

from __future__ import annotations

from typing import Final

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.gemm_problem import Tile
from starc.core.tiling import ceil_div, covering_power_of_two

STAGES: Final = (2, 3, 4)
WAVES: Final = 4
MAX_RESIDENT: Final = 4
ACCUMULATOR_BYTES: Final = 4
ACCUMULATOR_SHARE: Final = (5, 8)  # accumulators take at most so much of the registers of a unit


def gemm_resident(
    tile: Tile,
    stages: int,
    element_bytes: int,
    rates: DeviceRates,
    waves: int = WAVES,
) -> int:
    """Workgroups that fit a compute unit: A and B slots in scratch memory, the accumulator in
    registers, of which it leaves three eighths for the rest."""
    m, n, k = tile
    accumulator = m * n * ACCUMULATOR_BYTES
    part, whole = ACCUMULATOR_SHARE
    if accumulator * whole > rates.register_bytes * part:
        return 0
    return min(
        rates.scratch_bytes // (stages * (m + n) * k * element_bytes),
        rates.register_bytes // (accumulator + waves * rates.working_registers),
        rates.max_waves // waves,
        rates.max_workgroups,
        MAX_RESIDENT,
    )


def gemm_waves(tile: Tile, rates: DeviceRates) -> int:
    """Waves of a workgroup: at least four, and so many that the accumulator takes half of the
    registers that a wave can have."""
    accumulator = tile[0] * tile[1] * ACCUMULATOR_BYTES
    return max(WAVES, covering_power_of_two(ceil_div(2 * accumulator, rates.wave_registers)))
