"""What one device offers to a kernel, in the units that schedules are chosen by.

All numbers come from the target; times are seconds, rates bytes or FLOP per second. The same rates
serve the simulator's servers, so that a choice made here and a simulated time speak of one machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starc.core.streams.engine_times import scratch_bytes
from starc.core.tiling import pad
from starc.targets.graph import gpu_neighbours

if TYPE_CHECKING:
    from starc.targets.target import Target


@dataclass(frozen=True)
class LinkRates:
    """A link class in one direction: bytes per second sustained of one link, seconds of latency,
    and how many links of the class there are for each device."""

    bytes_per_s: float
    latency_s: float
    per_device: float = 1.0


@dataclass(frozen=True)
class TransportRates:
    """How a collective moves data: fixed seconds before the first step and per step, workgroups,
    bytes in flight of each, and bytes on the wire per byte of payload."""

    start_s: float
    step_s: float
    workgroups: int
    window_bytes: int
    payload_factor: float


@dataclass(frozen=True)
class DeviceRates:
    """Rates and limits of one device (a GPU or a partition of one)."""

    compute_units: int
    dies: int
    clock_hz: float
    matrix_flops: Mapping[str, float]  # sustained FLOP per second of one compute unit, by type
    matrix_rows: int  # extents of a matrix operation are padded to multiples of this
    vector_lanes: float  # lane-operations per second of one compute unit
    special_lanes: float  # of them exponentials, reciprocals and roots
    special_apart: bool  # beside the others, in a unit of their own
    matrix_latency_s: float  # from the end of a matrix operation to a use of its result
    vector_latency_s: float
    scratch_bytes: int  # of a compute unit
    scratch_rate: float  # bytes per second, sustained; 0: not modelled
    register_bytes: int
    max_waves: int
    max_workgroups: int  # of a compute unit
    window_bytes: int  # in flight, of a compute unit
    wave_window_bytes: int  # in flight, of a wave, through its registers
    async_copies: bool  # loads to scratch memory do not pass registers
    multicast: int  # workgroups that can share loads of an operand
    wave_registers: int  # bytes of registers that a wave can have
    working_registers: int  # bytes of them beside the tiles that a kernel names
    latency_s: float  # of a load that reaches device memory
    l2_latency_s: float  # of a load that hits the L2
    cu_port: float  # bytes per second of a compute unit's port
    l2_rate: float  # bytes per second of all L2 caches of the device
    l2_bytes: int  # of one die
    mall_rate: float  # bytes per second of the memory-side cache in front of a device's memory
    mall_bytes: int
    hbm_rate: float  # bytes per second, sustained
    gap_s: float  # between dependent kernels
    prologue_s: Mapping[str, float]  # by kernel class
    dispatch_s: float  # between workgroups of a die (of at most 7 waves)
    links: Mapping[str, LinkRates]
    transports: Mapping[str, TransportRates]
    machine: Target  # for what is not one device's alone: the ways between devices

    def padded(self, m: int, n: int, k: int) -> int:
        """Multiplications of a product of these extents as a matrix engine does them: of whole
        tiles, or of whole rows and columns."""
        tile = self.machine.matrix_tile
        rows, columns, steps = tile if tile else (self.matrix_rows, self.matrix_rows, 1)
        return pad(m, rows) * pad(n, columns) * pad(k, steps)

    def matrix_rate(self, dtype: str) -> float:
        """Sustained FLOP per second of one compute unit; f32 inputs count as the slowest type."""
        return self.matrix_flops.get(dtype, min(self.matrix_flops.values()))

    def stream_rate(
        self, workgroup_window: float, workgroups: int, miss_share: float = 1.0
    ) -> float:
        """Bytes per second that a compute unit draws with ``workgroups`` resident: bytes in flight
        over latency (Little's law), within its port. ``miss_share`` of them miss the L2."""
        window = min(self.window_bytes, workgroup_window * workgroups)
        latency = self.l2_latency_s + miss_share * (self.latency_s - self.l2_latency_s)
        return min(self.cu_port, window / latency)

    def window(self, waves: int, tile_bytes: float, stages: int, *, registers: bool = False) -> int:
        """Bytes that a workgroup has in flight: of a loop with ``stages`` slots for tiles of
        ``tile_bytes`` what is loaded ahead of the slot in use, of one slot the tile itself; within
        what its waves hold where loads pass ``registers``; and no more than a compute unit's."""
        ahead = max(1, stages - 1) * tile_bytes
        if registers or not self.async_copies:
            ahead = min(ahead, waves * self.wave_window_bytes)
        return max(1, int(min(self.window_bytes, ahead)))

    def scratch_seconds(
        self, waves: int, extents: tuple[int, int, int], operands: tuple[int, int]
    ) -> float:
        """Seconds of a compute unit's scratch memory for a matrix operation."""
        if self.scratch_rate == 0.0:
            return 0.0
        direct = self.machine.matrix_direct_rows
        moved = scratch_bytes(self.matrix_rows, direct, waves, extents, operands)
        return moved / self.scratch_rate

    def vector_seconds(self, lane_operations: float, special: float = 0.0) -> float:
        """Seconds of a compute unit's vector units for so many lane operations and ``special``
        ones."""
        plain, slow = lane_operations / self.vector_lanes, special / self.special_lanes
        return max(plain, slow) if self.special_apart else plain + slow

    def prologue(self, kernel_class: str) -> float:
        """Seconds from a workgroup's start to its first instruction."""
        return self.prologue_s.get(kernel_class, 0.0)

    @classmethod
    def of(cls, target: Target) -> DeviceRates:
        """The rates of a target's devices."""
        clock = target.core_clock_mhz * 1e6
        compute_units = target.dies_per_device * target.cus_per_die
        return cls(
            compute_units=compute_units,
            dies=target.dies_per_device,
            clock_hz=clock,
            matrix_flops={
                dtype: target.matrix_rate(dtype) for dtype in target.matrix_flops_per_clock
            },
            matrix_rows=target.matrix_rows,
            vector_lanes=target.vector_ops_per_clock * clock,
            special_lanes=target.special_lanes * clock,
            special_apart=bool(target.special_apart),
            matrix_latency_s=target.matrix_latency_ps * 1e-12,
            vector_latency_s=target.vector_latency_ps * 1e-12,
            scratch_bytes=target.scratch_bytes_per_cu,
            scratch_rate=target.scratch_bytes_per_clock * target.scratch_sustained * clock,
            register_bytes=target.registers_bytes_per_cu,
            max_waves=target.max_waves_per_cu,
            max_workgroups=target.max_workgroups_per_cu,
            window_bytes=target.window_bytes_per_cu,
            wave_window_bytes=target.window_bytes_per_wave,
            async_copies=bool(target.async_copies),
            multicast=target.multicast_workgroups,
            working_registers=target.working_bytes_per_lane * target.wave_size,
            wave_registers=target.register_bytes_per_lane * target.wave_size,
            latency_s=target.memory_latency_ps * 1e-12,
            l2_latency_s=target.l2_latency_ps * 1e-12,
            cu_port=float(target.per_clock(target.cu_port_bytes_per_clock)),
            l2_rate=float(target.per_clock(target.l2_bytes_per_clock) * target.dies_per_device),
            l2_bytes=target.l2_bytes_per_die,
            mall_rate=target.mall_stack_rate * target.stacks / target.devices_per_gpu,
            mall_bytes=target.mall_bytes,
            hbm_rate=target.hbm_rate,
            gap_s=target.kernel_gap_ps * 1e-12,
            prologue_s={name: ps * 1e-12 for name, ps in target.prologue_ps.items()},
            dispatch_s=target.dispatch_clocks / clock,
            links=_links(target),
            transports=_transports(target),
            machine=target,
        )


def _links(target: Target) -> Mapping[str, LinkRates]:
    """By link class."""
    return {
        name: LinkRates(
            rate,
            target.link_latency_ps.get(name, 0) * 1e-12,
            links_per_device(target, name),
        )
        for name, rate in target.link_rate.items()
    }


def _transports(target: Target) -> Mapping[str, TransportRates]:
    """By name."""
    return {
        name: TransportRates(
            transport.start_ps * 1e-12,
            transport.step_ps * 1e-12,
            transport.workgroups,
            transport.window_bytes,
            transport.payload_factor,
        )
        for name, transport in target.transports.items()
    }


def links_per_device(target: Target, link_class: str) -> float:
    """The devices of a GPU share its links to other GPUs: one to each, one to a switch, or as many
    as the GPU with fewest has; of other classes a device has one link."""
    outermost = target.mesh[0]
    if link_class != outermost[3] or outermost[1] < 2:
        return 1.0
    if target.network == "direct" and target.ports < outermost[1] - 1:
        return 1.0
    if target.network == "switch":
        return 1 / target.devices_per_gpu
    fewest = min(len(gpu_neighbours(target, gpu)) for gpu in range(target.gpus))
    return fewest / target.devices_per_gpu


@dataclass(frozen=True)
class RatesKey:
    """Rates as a cache key: by identity, for their mappings do not hash."""

    rates: DeviceRates

    def __hash__(self) -> int:
        return hash((self.rates.compute_units, self.rates.hbm_rate, self.rates.clock_hz))
