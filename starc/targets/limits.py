"""Between what every number of a machine may lie, and which numbers are whole.

A number has the limits of its key, of the last part of its key, or of its unit, whichever comes
first. What several numbers have to do with each other is in ``machine_file`` and ``cubes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

WHOLE: Final = ("count", "B", "ps", "MHz", "lanes", "rows", "flag")
"""Units whose numbers are written without a point."""
_COUNTED: Final = (
    *WHOLE,
    "clk",
    "B/clk",
    "FLOP/clk/CU",
    "lane-op/clk/CU",
    "clk/workgroup/XCD",
)
"""Units that are counted one by one; the rest, and the keys below, take parts."""
_TAKE_PARTS: Final = ("compute.special_lanes",)
# Constants of measured implementations: factors of a model, not parts of a machine.
_CONSTANTS: Final = "kernels."
_FLAGS: Final = (
    "compute.special_apart",
    "structure.async_copies",
    "transports.*.reserves",
)

_LARGEST: Final = 10**18
_OF_UNIT: Final[Mapping[str, tuple[float, float]]] = {
    "count": (0, 10**6),
    "ps": (0, 10**12),
    "B": (0, 10**15),
    "B/s": (10**6, _LARGEST),
    "MHz": (1, 10**5),
    "flag": (0, 1),
    "clk": (0, 10**9),
    "B/clk": (1, 10**9),
    "FLOP/clk/CU": (1, 10**9),
    "lane-op/clk/CU": (1, 10**9),
    "clk/workgroup/XCD": (0, 10**6),
    "clk/wave/XCD": (0, 10**6),
    "rows": (1, 10**6),
    "lanes": (1, 1024),
    "B/B": (1, 1000),
    "W": (0, 10**6),
    "pJ/B": (0, 10**6),
    "pJ/FLOP": (0, 10**6),
    "V/V": (0, 1000),
    "fraction": (0.001, 1),
}
_MEMORY: Final = (1 << 20, 10**15)
_SCRATCH: Final = (1, 10**15)
_LINE: Final = (128, 10**15)
_SMALL: Final = (1, 255)
_UNITS: Final = (1, 1024)
_TAGS: Final = (0, 1 << 36)
_RATE: Final = (10**9, _LARGEST)  # shared out among channels, of which a fraction is sustained

# The simulator does not hold larger machines, and divides by what is at least one.
_OF_KEY: Final[Mapping[str, tuple[float, float]]] = {
    "structure.dies": _SMALL,
    "structure.dies_per_carrier": _SMALL,
    "structure.carriers": _SMALL,
    "structure.stacks_per_carrier": _SMALL,
    "structure.cus_per_die": _UNITS,
    "structure.ports": _SMALL,
    "structure.ports_per_carrier": _SMALL,
    "structure.wave_size": _UNITS,
    "structure.max_waves_per_cu": _UNITS,
    "structure.max_workgroups_per_cu": _UNITS,
    "structure.multicast": _UNITS,
    "structure.scratch_bytes_per_cu": _SCRATCH,
    "structure.register_bytes_per_cu": _SCRATCH,
    "structure.register_bytes_per_lane": _SCRATCH,
    "structure.cube_rows": _SMALL,
    "structure.cube_columns": _SMALL,
    "structure.pe_rows": _SMALL,
    "structure.pe_columns": _SMALL,
    "structure.queue_bytes": _SCRATCH,
    "structure.queue_depth": _UNITS,
    "compute.tile_cycles": (1, 10**9),
    "compute.tile_cycles_f32": (1, 10**9),
    "compute.scratch_rate": (0, 10**9),  # 0: accesses of scratch memory are not modelled
    "compute.matrix_direct_rows": (0, 10**6),  # 0: operands pass registers
    "memory.stack_rate": _RATE,
    "memory.channels": _SMALL,
    "memory.pseudo_channels": _SMALL,
    "memory.channel_granule": _LINE,
    "memory.device_bytes": _MEMORY,
    "memory.nominal_bytes": _MEMORY,
    "memory.access_bytes": _SCRATCH,
    "memory.write_batch": (64, 10**15),
    "caches.l2_bytes": _TAGS,
    "caches.mall_bytes_per_stack": _TAGS,
    "caches.mall_rate_per_stack": _RATE,
    "caches.tlb_entries": (0, 1 << 24),
    "caches.tlb_page": (4096, 10**15),
    "dispatch.window_bytes_per_cu": _LINE,
    "dispatch.window_bytes_per_wave": _LINE,
    "copy_engines.count": (0, 255),
    "copy_engines.rate": (0, _LARGEST),  # 0 where there are none
    "power.reference_mhz": (1, 10**5),
    "transports.*.workgroups": _UNITS,
    "transports.*.workgroups_cpx": _UNITS,
    "transports.*.window": _LINE,
    "transports.*.share": _SCRATCH,
}


def _general(path: str) -> str:
    """A key path with a star for the name of a transport."""
    section, _, rest = path.partition(".")
    return f"{section}.*.{rest.rpartition('.')[2]}" if section == "transports" else path


def limits(path: str, unit: str) -> tuple[float, float]:
    """The least and the largest value of a number, both of them legal."""
    if path.startswith(_CONSTANTS):
        return 0, _OF_UNIT[unit][1] if unit in _OF_UNIT else _LARGEST
    key = _general(path)
    if key in _FLAGS:
        return 0, 1
    return _OF_KEY.get(key, _OF_UNIT.get(unit, (0, _LARGEST)))


def is_flag(path: str, unit: str) -> bool:
    """Whether a number says yes or no."""
    return unit == "flag" or _general(path) in _FLAGS


def is_counted(path: str, unit: str) -> bool:
    """Whether a number is a whole one."""
    if path.startswith(_CONSTANTS):
        return unit in WHOLE
    return unit in _COUNTED and path not in _TAKE_PARTS
