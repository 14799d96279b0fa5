"""The machine that a program is compiled for, as resolved numbers.

``load_target("mi300x-cpx")`` reads the product's TOML file, applies a partition mode and a number
of GPUs, and returns a ``Target``: rates and sizes of one device, of the links between devices and
of everything the simulator models. A target travels as a module's ``dlti.target_system_spec``, so
that passes find it in plain ``xdsl-opt``, and as a dictionary in program files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any, Final, cast

from starc.diagnostics import Diagnostic, InputError
from starc.targets.graph import NETWORKS

DEFAULT_TARGET = "mi300x-cpx"

_PS_PER_SECOND = 1_000_000_000_000


@dataclass(frozen=True)
class Transport:
    """How a collective moves data.

    ``start_ps`` passes before the first put and ``step_ps`` in every step; ``workgroups`` share
    the data, each with ``window_bytes`` in flight; a byte of payload costs ``payload_factor``
    bytes on the wire. A chunk of more than ``workgroups`` times ``share_bytes`` is shared by as
    many more workgroups. ``reserves`` 1: each has a compute unit for itself, and none of it is left
    to the kernels beside. ``copy_engines`` 1: they are streams of the device's copy engines, which
    move data and compute nothing.
    """

    start_ps: int
    step_ps: int
    workgroups: int
    window_bytes: int
    payload_factor: float = 1.0
    share_bytes: int = 32768
    reserves: int = 0
    copy_engines: int = 0

    def shared_by(self, chunk_bytes: int, units: int) -> int:
        """Workgroups for a chunk of so many bytes on a device of ``units`` compute units."""
        return max(1, min(units, max(self.workgroups, chunk_bytes // self.share_bytes)))


@dataclass(frozen=True)
class Target:
    """A node of GPUs in one partition mode. Sizes are bytes, rates bytes per second, times
    picoseconds; "per device" means a GPU, or a partition of one.

    ``mesh`` has rows (axis, size, level, link class), outer to inner. A carrier is the die that
    carries compute dies and memory stacks (an IOD). ``peak`` rates are the vendor's, the others are
    what is sustained. A machine of cubes (``grid``) has routers without dies behind the carriers of
    its PEs, and no L2.
    """

    name: str
    product: str
    mode: str
    gpus: int
    devices_per_gpu: int
    mesh: tuple[tuple[str, int, str, str], ...]
    # One GPU
    dies_per_gpu: int
    dies_per_device: int
    dies_per_carrier: int
    stacks_per_carrier: int
    carriers: int
    routers: int  # of the carriers, the last ones, which have neither dies nor stacks
    grid: tuple[int, ...]  # rows and columns of cubes, and of PEs of a cube; empty: no cubes
    ports: int
    ports_per_carrier: int
    port_carriers: tuple[int, ...]  # of each port; empty: ``ports_per_carrier`` on each in order
    memory_domains: int  # of a GPU: memory is interleaved over the stacks of a domain's carriers
    interleave_granule: int
    interleave_hashed: bool  # groups of granules, one a stack, go to the stacks in hashed orders
    # One compute unit
    cus_per_die: int
    core_clock_mhz: int
    matrix_flops_per_clock: Mapping[str, int]
    matrix_sustained: float
    matrix_sustained_by_type: Mapping[str, float]
    matrix_rows: int  # m, n and k of a matrix operation are padded to multiples of this
    matrix_tile: tuple[int, ...]  # or, unless empty, to multiples of these (m, n, k)
    matrix_latency_ps: int  # from the end of a matrix operation to a use of its result
    vector_latency_ps: int  # the same of a vector operation on a tile
    vector_ops_per_clock: int
    special_lanes: float  # exponentials, reciprocals, roots and logarithms a clock
    special_apart: int  # 1: they have a unit of their own, beside the other vector operations
    scratch_bytes_per_clock: int  # 0: accesses of scratch memory are not modelled
    scratch_sustained: float
    matrix_direct_rows: int  # rows whose products read the other operand from scratch memory
    # themselves; 0: operands pass the registers of waves
    scratch_bytes_per_cu: int
    registers_bytes_per_cu: int
    register_bytes_per_lane: int
    working_bytes_per_lane: int  # of its registers, beside the tiles that a kernel names
    async_copies: int  # 1: loads go to scratch memory without passing registers
    multicast_workgroups: int  # that can share the loads of an operand, 1 for none
    wave_size: int
    max_waves_per_cu: int
    max_workgroups_per_cu: int
    # Engines that run side by side, each a stream of a kernel's instructions; none: one stream
    engines: tuple[str, ...]
    issue_ps: Mapping[str, int]  # of a command, by class
    stateful_composites: bool  # composites may reduce rows, and carry accumulators to the next
    queue_bytes: int  # of scratch memory, for slots of queues between devices
    queue_depth: int  # slots of a queue
    queue_commands: int  # of a queue, issued and not begun; 0: any number
    scratch_port_bytes_per_clock: int  # of scratch memory, for what other devices put there
    scratch_latency_ps: int  # of such an access
    copy_engines: int  # of a device; they move data from memory to memory
    copy_engine_rate: int  # bytes per second that one moves, sustained
    copy_engine_start_ps: int  # of a descriptor
    copy_engine_window_bytes: int  # in flight, of one
    window_bytes_per_cu: int
    window_bytes_per_wave: int  # in flight through registers
    cu_port_bytes_per_clock: int
    # Memory
    device_memory_bytes: int  # a device's share
    visible_memory_bytes: int  # more than its share where devices share the memory of a GPU
    has_l2: bool
    l2_bytes_per_die: int
    l2_ways: int
    l2_line: int
    l2_bytes_per_clock: int
    l2_write_bytes_per_clock: int
    die_port_bytes_per_clock: int
    mall_bytes: int  # a device's share
    mall_bytes_per_stack: int
    mall_ways: int
    mall_stack_rate: int
    mall_stack_peak: int
    hbm_rate: int  # per device, sustained
    hbm_peak: int  # per device
    hbm_stack_rate: int
    hbm_stack_peak: int
    hbm_access_bytes: int
    channels: int  # of a stack, of which an access takes its bytes from all that it touches
    channel_granule: int  # 0: a stack is one server
    hbm_read_share: float  # of the sustained rate that a stream of reads reaches, at most 1
    hbm_write_share: float  # the same of writes
    hbm_turnaround_ps: int  # of a stack, from reads to writes and back
    hbm_write_batch_bytes: int  # that a stack writes between two turns
    coherent: bool  # one L2 per device: private data needs no write-back between kernels
    # Networks: links of carriers in pairs (none: a ring); "direct" links GPUs in pairs, "switch"
    # has one link a GPU, "links" those pairs that ``gpu_links`` has
    network: str
    carrier_links: tuple[tuple[int, int], ...]
    gpu_links: tuple[tuple[int, int], ...]
    # Links between devices, by class
    link_rate: Mapping[str, int]
    link_peak: Mapping[str, int]
    link_latency_ps: Mapping[str, int]
    # Latencies from load to use, nothing else running; of a device's own nearest stack
    l2_latency_ps: int
    mall_latency_ps: int
    memory_latency_ps: int  # mean over the stacks that the device's memory is interleaved over
    hop_latency_ps: int  # added by each carrier-to-carrier link, both ways together
    noc_hop_latency_ps: int  # the same of a link between two routers; 0: there are none
    hbm_extra_ps: int  # of the memory stack, on top of the cache in front of it
    request_up_ps: int
    port_to_cu_ps: int
    store_latency_ps: int
    l2_retains: bool  # several L2s of a device keep clean lines from one kernel to the next
    write_back_queue_ps: int  # that write-backs of an L2 may lie behind; 0: no bound
    # Kernels
    kernel_gap_ps: int
    kernel_issue_ps: int  # between two launches that the host makes one by one (eager)
    prologue_ps: Mapping[str, int]
    dispatch_clocks: int
    dispatch_clocks_per_wave: float
    start_skew_ps: int
    power: Mapping[str, float]  # of the governor; empty: none
    # Bytes that may wait at a link before its senders are held up; 0: no bound
    usr_queue_bytes: int
    die_port_queue_bytes: int
    xgmi_queue_bytes: int
    # Pages that a die knows, and what one that it does not know costs
    tlb_entries: int
    tlb_page_bytes: int
    page_walk_ps: int
    transports: Mapping[str, Transport]
    kernels: Mapping[str, Mapping[str, float]]  # constants of implementations that were measured
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def devices(self) -> int:
        """Devices of the node."""
        return self.gpus * self.devices_per_gpu

    @property
    def stacks(self) -> int:
        """Memory stacks of a GPU."""
        return (self.carriers - self.routers) * self.stacks_per_carrier

    @property
    def gpu_link(self) -> str:
        """The class of the links between GPUs."""
        return "ucie" if self.grid else "xgmi"

    @property
    def carrier_links_by_class(self) -> tuple[str, ...]:
        """The classes of the links between carriers, the nearest first."""
        return ("pe_mesh", "noc") if self.grid else ("usr",)

    @property
    def cycle_ps(self) -> Fraction:
        """Picoseconds of one core clock."""
        return Fraction(1_000_000, self.core_clock_mhz)

    def cycles(self, ps: int) -> int:
        """Core clocks of a time, rounded up."""
        return -(-ps * self.core_clock_mhz // 1_000_000)

    def matrix_rate(self, dtype: str, *, sustained: bool = True) -> float:
        """FLOP per second of one compute unit's matrix engine; an element type without an entry
        runs at the rate of f32."""
        per_clock = self.matrix_flops_per_clock.get(dtype, self.matrix_flops_per_clock["f32"])
        fraction = self.matrix_sustained_by_type.get(dtype, self.matrix_sustained)
        return per_clock * self.core_clock_mhz * 1e6 * (fraction if sustained else 1.0)

    def service(self, rate: int) -> tuple[int, int]:
        """Service time of a rate as (picoseconds, bytes), reduced."""
        time = Fraction(_PS_PER_SECOND, rate)
        return time.numerator, time.denominator

    def per_clock(self, bytes_per_clock: int) -> int:
        """Bytes per second of so many bytes a core clock."""
        return bytes_per_clock * self.core_clock_mhz * 1_000_000

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able values; ``from_dict`` is the inverse."""
        values = dataclasses.asdict(self)
        values["mesh"] = [list(row) for row in self.mesh]
        values["warnings"] = list(self.warnings)
        for name in _LISTS:
            values[name] = list(values[name])
        for name in ("carrier_links", "gpu_links"):
            values[name] = [list(pair) for pair in values[name]]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Target:
        """The target of a program file or an attribute. Raises ``InputError`` for a field that is
        missing or unknown. ``base`` names a target whose numbers hold where none are given."""
        given = dict(values)
        base = given.pop("base", None)
        wrong = [
            Diagnostic(f"the target's '{key}' must be {kind}, got {_shown(given[key])}")
            for key, kind in _kinds().items()
            if key in given and not _is_of_kind(given[key], kind)
        ]
        if wrong:
            raise InputError(wrong)
        if base is not None:
            from starc.targets.loader import load_target

            # A mesh says itself how many GPUs there are.
            count = None if "mesh" in given else given.get("gpus")
            node = load_target(str(base), gpus=count)
            given = node.to_dict() | given
            given["devices_per_gpu"] = int(given["devices_per_gpu"])
            if "mesh" in values:
                sizes = [int(row[1]) for row in given["mesh"]]
                given["gpus"] = values.get("gpus", sizes[0])
                inner = 1
                for size in sizes[1:]:
                    inner *= size
                given["devices_per_gpu"] = values.get("devices_per_gpu", inner)
        names = {item.name for item in dataclasses.fields(cls)}
        problems = [
            Diagnostic(f"a target has no field '{key}'") for key in sorted(given.keys() - names)
        ]
        problems += [
            Diagnostic(f"the target lacks '{key}'")
            for key in sorted(names - given.keys() - {"warnings"})
        ]
        if problems:
            raise InputError(problems)
        given["mesh"] = tuple(
            (str(row[0]), int(row[1]), str(row[2]), str(row[3])) for row in given["mesh"]
        )
        for name in ("carrier_links", "gpu_links"):
            given[name] = tuple((int(a), int(b)) for a, b in given[name])
        if given["network"] not in NETWORKS:
            hint = f"legal: {', '.join(NETWORKS)}"
            raise InputError(Diagnostic(f"the target's network is '{given['network']}'", hint=hint))
        _check_devices(given)
        for name in _LISTS:
            given[name] = tuple(given[name])
        try:
            given["transports"] = {
                name: value if isinstance(value, Transport) else Transport(**value)
                for name, value in given["transports"].items()
            }
        except TypeError as error:
            raise InputError(Diagnostic(f"the target's transports: {error}")) from error
        given["warnings"] = tuple(given.get("warnings", ()))
        return cls(**given)


_LISTS: Final = ("grid", "port_carriers", "matrix_tile", "engines")
_COUNT: Final = "a whole number, at least 0"
_SIZE: Final = "a whole number, at least 1"
_REAL: Final = "a number, at least 0"
_PAIRS: Final = "pairs of whole numbers, at least 0"
_NUMBERS: Final = "whole numbers, at least 0"
_NAMES: Final = "names"
_ROWS: Final = "rows of axis, size, level and link class"
# Times and latencies may be zero, sizes and rates may not.
_MAY_BE_ZERO: Final = (
    "_ps",
    "_clocks",
    "_clock",
    "_apart",
    "_direct_rows",
    "_copies",
    "_per_lane",
    "_entries",
    "_bytes",
    "copy_engines",
    "copy_engine_rate",
    "mall_bytes_per_stack",
    "l2_bytes_per_die",
    "routers",
    "channel_granule",
    "queue_depth",
    "queue_commands",
)


@lru_cache(maxsize=1)
def _kinds() -> Mapping[str, str]:
    """What the fields of a target hold, in words."""
    kinds: dict[str, str] = {"mesh": _ROWS}
    for item in dataclasses.fields(Target):
        match item.type:
            case "int":
                kinds[item.name] = _COUNT if item.name.endswith(_MAY_BE_ZERO) else _SIZE
            case "float":
                kinds[item.name] = _REAL
            case "bool":
                kinds[item.name] = "true or false"
            case "str":
                kinds[item.name] = "a string"
            case "Mapping[str, int]" | "Mapping[str, float]":
                kinds[item.name] = "names with numbers, at least 0"
            case "tuple[tuple[int, int], ...]":
                kinds[item.name] = _PAIRS
            case "tuple[int, ...]":
                kinds[item.name] = _NUMBERS
            case "tuple[str, ...]" if item.name != "warnings":
                kinds[item.name] = _NAMES
            case "Mapping[str, Transport]":
                kinds[item.name] = "names with transports"
            case _:
                pass
    return kinds


def _is_of_kind(value: Any, kind: str) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind in (_COUNT, _SIZE):
        return is_number and isinstance(value, int) and value >= (kind == _SIZE)
    if kind == _REAL:
        return is_number and value >= 0
    if kind == _ROWS:
        return isinstance(value, list | tuple) and all(
            map(_is_row, cast("Sequence[object]", value))
        )
    if kind in (_NUMBERS, _NAMES):
        single = "a string" if kind == _NAMES else _COUNT
        return isinstance(value, list | tuple) and all(
            _is_of_kind(item, single) for item in cast("Sequence[object]", value)
        )
    if kind == _PAIRS:
        return isinstance(value, list | tuple) and all(
            map(_is_pair, cast("Sequence[object]", value))
        )
    if isinstance(value, Mapping):
        items = list(cast("Mapping[Any, Any]", value).values())
        if kind == "names with transports":
            return all(isinstance(item, Mapping | Transport) for item in items)
        return kind.startswith("names") and all(_is_of_kind(item, _REAL) for item in items)
    if kind == "a string":
        return isinstance(value, str)
    return kind == "true or false" and isinstance(value, bool)


def _is_pair(pair: object) -> bool:
    match pair:
        case [int() as a, int() as b]:
            return min(a, b) >= 0 and a != b
        case _:
            return False


def _is_row(row: object) -> bool:
    match row:
        case [str(), int() as size, str(), str()]:
            return size >= 1
        case _:
            return False


def _shown(value: Any) -> str:
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _check_devices(given: Mapping[str, Any]) -> None:
    """Raises ``InputError`` where the mesh has more or fewer devices than the node."""
    devices = prod(row[1] for row in given["mesh"])
    expected = given["gpus"] * given["devices_per_gpu"]
    if devices != expected:
        raise InputError(
            Diagnostic(
                f"the target's mesh has {devices} devices, but {given['gpus']} GPUs of "
                f"{given['devices_per_gpu']} devices have {expected}"
            )
        )


def load_target(
    name: str,
    gpus: int | None = None,
    mesh: Mapping[str, int] | None = None,
    overrides: Mapping[str, float] | None = None,
) -> Target:
    """See ``starc.targets.loader.load_target``."""
    from starc.targets import loader

    return loader.load_target(name, gpus=gpus, mesh=mesh, overrides=overrides)
