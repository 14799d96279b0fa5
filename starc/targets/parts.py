"""The parts of a machine, a class each: what a ``Target`` is made of.

Sizes are bytes, rates bytes per second, times picoseconds; "per device" means a GPU, or a partition
of one. ``peak`` rates are the vendor's, the others are what is sustained. Names are unique among
all parts: a ``Target`` has their fields as its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

Count: TypeAlias = int
"""At least 0. Times and latencies may be zero."""
Size: TypeAlias = int
"""At least 1: sizes and rates that others are divided by."""


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
class Node:
    """A node of GPUs, and its mesh: rows (axis, size, level, link class), outer to inner."""

    name: str
    product: str
    mode: str
    gpus: Size
    devices_per_gpu: Size
    mesh: tuple[tuple[str, int, str, str], ...]

    @property
    def devices(self) -> int:
        """Devices of the node."""
        return self.gpus * self.devices_per_gpu


@dataclass(frozen=True)
class Gpu:
    """What a GPU is made of. A carrier is the die that carries compute dies and memory stacks (an
    IOD); a machine of cubes (``grid``) has routers without dies behind the carriers of its PEs."""

    dies_per_gpu: Size
    dies_per_device: Size
    dies_per_carrier: Size
    stacks_per_carrier: Size
    carriers: Size
    routers: Count  # of the carriers, the last ones, which have neither dies nor stacks
    grid: tuple[int, ...]  # rows and columns of cubes, and of PEs of a cube; empty: no cubes
    ports: Size
    ports_per_carrier: Size
    port_carriers: tuple[int, ...]  # of each port; empty: ``ports_per_carrier`` on each in order
    memory_domains: Size  # of a GPU: memory is interleaved over the stacks of a domain's carriers
    interleave_granule: Size
    interleave_hashed: bool  # groups of granules, one a stack, go to the stacks in hashed orders

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


@dataclass(frozen=True)
class ComputeUnit:
    """One compute unit: its clock, what it computes in a clock, and what it holds."""

    cus_per_die: Size
    core_clock_mhz: Size
    matrix_flops_per_clock: Mapping[str, int]
    matrix_sustained: float
    matrix_sustained_by_type: Mapping[str, float]
    matrix_rows: Size  # m, n and k of a matrix operation are padded to multiples of this
    matrix_tile: tuple[int, ...]  # or, unless empty, to multiples of these (m, n, k)
    matrix_latency_ps: Count  # from the end of a matrix operation to a use of its result
    vector_latency_ps: Count  # the same of a vector operation on a tile
    vector_ops_per_clock: Count
    special_lanes: float  # exponentials, reciprocals, roots and logarithms a clock
    special_apart: Count  # 1: they have a unit of their own, beside the other vector operations
    scratch_bytes_per_clock: Count  # 0: accesses of scratch memory are not modelled
    scratch_sustained: float
    matrix_direct_rows: Count  # rows whose products read the other operand from scratch memory
    # themselves; 0: operands pass the registers of waves
    scratch_bytes_per_cu: Size
    registers_bytes_per_cu: Size
    register_bytes_per_lane: Count
    working_bytes_per_lane: Count  # of its registers, beside the tiles that a kernel names
    async_copies: Count  # 1: loads go to scratch memory without passing registers
    multicast_workgroups: Size  # that can share the loads of an operand, 1 for none
    wave_size: Size
    max_waves_per_cu: Size
    max_workgroups_per_cu: Size

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

    def per_clock(self, bytes_per_clock: int) -> int:
        """Bytes per second of so many bytes a core clock."""
        return bytes_per_clock * self.core_clock_mhz * 1_000_000


@dataclass(frozen=True)
class Engines:
    """Engines that run side by side, each a stream of a kernel's instructions; without them a
    workgroup is one stream."""

    engines: tuple[str, ...]
    issue_ps: Mapping[str, int]  # of a command, by class
    stateful_composites: bool  # composites may reduce rows, and carry accumulators to the next
    queue_bytes: Count  # of scratch memory, for slots of queues between devices
    queue_depth: Count  # slots of a queue
    queue_commands: Count  # of a queue, issued and not begun; 0: any number
    scratch_port_bytes_per_clock: Count  # of scratch memory, for what other devices put there
    scratch_latency_ps: Count  # of such an access


@dataclass(frozen=True)
class CopyEngines:
    """Engines of a device that move data from memory to memory, without compute units."""

    copy_engines: Count  # of a device
    copy_engine_rate: Count  # bytes per second that one moves, sustained
    copy_engine_start_ps: Count  # of a descriptor
    copy_engine_window_bytes: Count  # in flight, of one


@dataclass(frozen=True)
class Loads:
    """What a compute unit has in flight."""

    window_bytes_per_cu: Size
    window_bytes_per_wave: Size  # in flight through registers
    cu_port_bytes_per_clock: Count


@dataclass(frozen=True)
class DeviceMemory:
    """How much memory a device has."""

    device_memory_bytes: Count  # a device's share
    visible_memory_bytes: Count  # more than its share where devices share the memory of a GPU


@dataclass(frozen=True)
class Caches:
    """The L2 of a die, the ports of the die, and the cache in front of each memory stack."""

    has_l2: bool
    l2_bytes_per_die: Count
    l2_ways: Size
    l2_line: Size
    l2_bytes_per_clock: Count
    l2_write_bytes_per_clock: Count
    die_port_bytes_per_clock: Count
    mall_bytes: Count  # a device's share
    mall_bytes_per_stack: Count
    mall_ways: Size
    mall_stack_rate: Size
    mall_stack_peak: Size


@dataclass(frozen=True)
class Stacks:
    """The memory stacks: what is sustained (``rate``), what the vendor states (``peak``), and what
    their reads and writes do to each other."""

    hbm_rate: Size  # per device, sustained
    hbm_peak: Size  # per device
    hbm_stack_rate: Size
    hbm_stack_peak: Size
    hbm_access_bytes: Count
    channels: Size  # of a stack, of which an access takes its bytes from all that it touches
    channel_granule: Count  # 0: a stack is one server
    hbm_read_share: float  # of the sustained rate that a stream of reads reaches, at most 1
    hbm_write_share: float  # the same of writes
    hbm_turnaround_ps: Count  # of a stack, from reads to writes and back
    hbm_write_batch_bytes: Count  # that a stack writes between two turns
    coherent: bool  # one L2 per device: private data needs no write-back between kernels


@dataclass(frozen=True)
class Networks:
    """Links of carriers in pairs (none: a ring), of GPUs (``direct`` links them in pairs,
    ``switch`` has one link a GPU, ``links`` those pairs that ``gpu_links`` has), and of devices by
    class."""

    network: str
    carrier_links: tuple[tuple[int, int], ...]
    gpu_links: tuple[tuple[int, int], ...]
    link_rate: Mapping[str, int]
    link_peak: Mapping[str, int]
    link_latency_ps: Mapping[str, int]


@dataclass(frozen=True)
class Latencies:
    """Times from load to use, nothing else running; of a device's own nearest stack."""

    l2_latency_ps: Count
    mall_latency_ps: Count
    memory_latency_ps: Count  # mean over the stacks that the device's memory is interleaved over
    hop_latency_ps: Count  # added by each carrier-to-carrier link, both ways together
    noc_hop_latency_ps: Count  # the same of a link between two routers; 0: there are none
    hbm_extra_ps: Count  # of the memory stack, on top of the cache in front of it
    request_up_ps: Count
    port_to_cu_ps: Count
    store_latency_ps: Count
    l2_retains: bool  # several L2s of a device keep clean lines from one kernel to the next
    write_back_queue_ps: Count  # that write-backs of an L2 may lie behind; 0: no bound


@dataclass(frozen=True)
class Launches:
    """What it costs to start kernels and workgroups."""

    kernel_gap_ps: Count
    kernel_issue_ps: Count  # between two launches that the host makes one by one (eager)
    prologue_ps: Mapping[str, int]
    dispatch_clocks: Count
    dispatch_clocks_per_wave: float
    start_skew_ps: Count


@dataclass(frozen=True)
class Pressure:
    """What acts under load: the governor's power, bytes that may wait at a link before its senders
    are held up (0: no bound), pages that a die knows."""

    power: Mapping[str, float]  # of the governor; empty: none
    usr_queue_bytes: Count
    die_port_queue_bytes: Count
    xgmi_queue_bytes: Count
    tlb_entries: Count
    tlb_page_bytes: Count
    page_walk_ps: Count


@dataclass(frozen=True)
class Implementations:
    """Software: how collectives move data, and constants of kernels that were measured."""

    transports: Mapping[str, Transport]
    kernels: Mapping[str, Mapping[str, float]]  # constants of implementations that were measured
