"""From the numbers of a machine file to the parts of a target: which key each field comes from, and
what it is where a file does not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starc.diagnostics import Diagnostic
from starc.targets.machine_numbers import MachineNumbers
from starc.targets.memory_building import caches, stacks
from starc.targets.names import NamedMachine
from starc.targets.partitions import PartitionMode
from starc.targets.parts import (
    ComputeUnit,
    CopyEngines,
    DeviceMemory,
    Engines,
    Gpu,
    Implementations,
    Latencies,
    Launches,
    Loads,
    Networks,
    Node,
    Pressure,
    Transport,
)
from starc.targets.shape import Shape
from starc.targets.target import Target

GPU_AXES: Final = ("gpu", "xcd")
"""Axes of a node's mesh, outer to inner: its GPUs, the devices of a GPU."""

_NO_ENGINES: Final = Engines((), {}, False, 0, 0, 0, 0, 0)


def build(
    numbers: MachineNumbers,
    shape: Shape,
    machine: NamedMachine,
    name: str,
    warnings: tuple[str, ...],
) -> Target:
    """The target of a mode of a machine file, which reports call ``name``. What the file lacks is
    among the problems of ``numbers``."""
    rows = (
        (GPU_AXES[0], shape.gpus, "outer", "xgmi"),
        (GPU_AXES[1], shape.devices_per_gpu, "inner", shape.inner_link),
    )
    engines = _copy_engines(numbers, shape)
    return Target.of_parts(
        Node(name, machine.file.name, machine.mode, shape.gpus, shape.devices_per_gpu, rows),
        _gpu(numbers, shape),
        _compute_unit(numbers, is_cubes=shape.grid is not None),
        _NO_ENGINES,
        engines,
        Loads(
            window_bytes_per_cu=numbers.count("dispatch.window_bytes_per_cu"),
            window_bytes_per_wave=numbers.count("dispatch.window_bytes_per_wave"),
            cu_port_bytes_per_clock=numbers.count("caches.cu_port"),
        ),
        _device_memory(numbers, shape, is_shared=bool(machine.entry.get("shared_memory"))),
        caches(numbers, shape),
        stacks(numbers, shape, PartitionMode.of(machine.mode).memory),
        _networks(numbers, shape),
        _latencies(numbers, shape),
        _launches(numbers, shape),
        _pressure(numbers),
        _implementations(numbers, shape, engines.copy_engines),
        warnings=warnings,
    )


def _gpu(numbers: MachineNumbers, shape: Shape) -> Gpu:
    return Gpu(
        dies_per_gpu=shape.dies,
        dies_per_device=shape.dies_per_device,
        dies_per_carrier=shape.dies_per_carrier,
        stacks_per_carrier=shape.stacks_per_carrier,
        carriers=shape.carriers,
        routers=0,
        grid=(),
        ports=numbers.count("structure.ports"),
        ports_per_carrier=numbers.count("structure.ports_per_carrier"),
        port_carriers=(),
        memory_domains=shape.memory_domains,
        interleave_granule=numbers.count("memory.interleave_granule"),
        interleave_hashed=bool(numbers.real("memory.hash", default=0)),
    )


def _compute_unit(numbers: MachineNumbers, *, is_cubes: bool) -> ComputeUnit:
    count, lanes = numbers.count, numbers.real("compute.vector_lanes")
    waves = count("structure.max_waves_per_cu")
    return ComputeUnit(
        cus_per_die=count("structure.cus_per_die"),
        core_clock_mhz=count("clock.core_mhz"),
        matrix_flops_per_clock=_whole(numbers.under("compute.matrix_", "FLOP/clk/CU")),
        matrix_sustained=float(numbers.real("compute.matrix_sustained")),
        matrix_sustained_by_type=_real(numbers.under("compute.matrix_sustained_")),
        matrix_rows=count("compute.matrix_rows", default=16 if is_cubes else None),
        matrix_tile=(),
        matrix_latency_ps=count("compute.matrix_latency", default=0),
        vector_latency_ps=count("compute.vector_latency", default=0),
        vector_ops_per_clock=int(lanes),
        special_lanes=float(numbers.real("compute.special_lanes", default=lanes / 4)),
        special_apart=count("compute.special_apart", default=0),
        scratch_bytes_per_clock=count("compute.scratch_rate", default=0),
        scratch_sustained=float(numbers.real("compute.scratch_sustained", default=1.0)),
        matrix_direct_rows=count("compute.matrix_direct_rows", default=0),
        scratch_bytes_per_cu=count("structure.scratch_bytes_per_cu"),
        registers_bytes_per_cu=count("structure.register_bytes_per_cu"),
        register_bytes_per_lane=count("structure.register_bytes_per_lane"),
        working_bytes_per_lane=count("structure.working_bytes_per_lane", default=0),
        async_copies=count("structure.async_copies", default=0),
        multicast_workgroups=count("structure.multicast", default=1),
        wave_size=count("structure.wave_size"),
        max_waves_per_cu=waves,
        max_workgroups_per_cu=count("structure.max_workgroups_per_cu", default=waves),
    )


def _copy_engines(numbers: MachineNumbers, shape: Shape) -> CopyEngines:
    """A device has its share of the engines of a whole GPU."""
    engines = CopyEngines(
        copy_engines=shape.of_device(numbers.count("copy_engines.count", default=0)),
        copy_engine_rate=numbers.count("copy_engines.rate", default=0),
        copy_engine_start_ps=numbers.count("copy_engines.start", default=0),
        copy_engine_window_bytes=numbers.count("copy_engines.window", default=0),
    )
    if engines.copy_engines:
        problem = "must be at least 1 where a device has copy engines"
        numbers.problems += [
            Diagnostic(problem, key=f"copy_engines.{key}")
            for key, value in (
                ("rate", engines.copy_engine_rate),
                ("window", engines.copy_engine_window_bytes),
            )
            if value < 1
        ]
    return engines


def _device_memory(numbers: MachineNumbers, shape: Shape, *, is_shared: bool) -> DeviceMemory:
    whole = numbers.count("memory.device_bytes")
    share = shape.of_device(whole)
    return DeviceMemory(share, visible_memory_bytes=whole if is_shared else share)


def _networks(numbers: MachineNumbers, shape: Shape) -> Networks:
    clock = numbers.count("clock.core_mhz")
    # Without an L2 the ports of a die are those of its compute unit.
    beyond = None if numbers.count("caches.l2_bytes") else numbers.count("caches.cu_port")
    port = numbers.count("caches.die_port", default=beyond) * clock * 1_000_000
    usr = numbers.count("fabric.usr_rate", default=port)
    is_cubes = shape.grid is not None
    xgmi = 1 if is_cubes else numbers.count("fabric.xgmi_rate")
    sustained = 1.0 if is_cubes else numbers.real("fabric.xgmi_sustained")
    side, hop = _memory_side(numbers, shape), numbers.count("latency.hop")
    return Networks(
        network=numbers.word("fabric", "network", "direct"),
        carrier_links=shape.carrier_links,
        gpu_links=shape.gpu_links,
        link_rate={"xgmi": round(xgmi * sustained), "usr": usr, "die": port},
        link_peak={"xgmi": xgmi, "usr": usr, "die": port},
        link_latency_ps={
            "xgmi": 0 if is_cubes else numbers.count("latency.xgmi"),
            "usr": side + hop // 2,
            "die": side,
        },
    )


def _memory_side(numbers: MachineNumbers, shape: Shape) -> int:
    """Latency to the memory side of a die's own carrier. The published latencies are means over the
    stacks of a whole GPU, as its dies see them: on a ring of four carriers they are one hop away on
    average."""
    mean = numbers.count("latency.memory_side", "latency.mall_nps1")
    return mean - round(shape.whole_hops * numbers.count("latency.hop"))


def _latencies(numbers: MachineNumbers, shape: Shape) -> Latencies:
    hop, side = numbers.count("latency.hop"), _memory_side(numbers, shape)
    hbm = numbers.count("latency.hbm", "latency.hbm_nps1")
    extra = hbm - numbers.count("latency.memory_side", "latency.mall_nps1")
    return Latencies(
        # PEs have memory of their own, which all of their loads reach.
        l2_latency_ps=numbers.count("latency.l2", default=None if shape.grid is None else hbm),
        mall_latency_ps=side,
        memory_latency_ps=round(side + extra + shape.mean_hops * hop),
        hop_latency_ps=hop,
        noc_hop_latency_ps=0,
        hbm_extra_ps=extra,
        request_up_ps=numbers.count("latency.request_up"),
        port_to_cu_ps=numbers.count("latency.port_to_cu"),
        store_latency_ps=numbers.count("latency.store"),
        l2_retains=bool(numbers.real("caches.l2_retains", default=0)),
        write_back_queue_ps=numbers.count("latency.write_back_queue"),
    )


def _launches(numbers: MachineNumbers, shape: Shape) -> Launches:
    """Devices of one die may have times of launches of their own."""
    size = "cpx" if shape.dies_per_device == 1 else "spx"
    return Launches(
        kernel_gap_ps=numbers.count("kernel.gap", f"kernel.gap_{size}"),
        kernel_issue_ps=numbers.count("kernel.issue", f"kernel.issue_{size}"),
        prologue_ps=_whole(numbers.under("kernel.prologue_")),
        dispatch_clocks=numbers.count("dispatch.clocks"),
        dispatch_clocks_per_wave=float(numbers.real("dispatch.clocks_per_wave")),
        start_skew_ps=numbers.count("dispatch.skew"),
    )


def _pressure(numbers: MachineNumbers) -> Pressure:
    return Pressure(
        power=_real(numbers.under("power.")),
        usr_queue_bytes=numbers.count("fabric.usr_queue", default=0),
        die_port_queue_bytes=numbers.count("caches.die_port_queue", default=0),
        xgmi_queue_bytes=numbers.count("fabric.xgmi_queue", default=0),
        tlb_entries=numbers.count("caches.tlb_entries", default=1024),
        tlb_page_bytes=numbers.count("caches.tlb_page", default=65536),
        page_walk_ps=numbers.count("latency.page_walk", default=0),
    )


def _implementations(numbers: MachineNumbers, shape: Shape, engines: int) -> Implementations:
    return Implementations(
        transports={
            name: _transport(numbers, f"transports.{name}", shape.dies_per_device, engines)
            for name in numbers.groups("transports")
        },
        kernels={name: _real(values) for name, values in numbers.groups("kernels").items()},
    )


def _transport(
    numbers: MachineNumbers, section: str, dies_per_device: int, engines: int
) -> Transport:
    """A transport. Devices of one die may have a number of workgroups of their own; streams of copy
    engines are no more than a device has engines."""
    own = (f"{section}.workgroups_cpx",) if dies_per_device == 1 else ()
    workgroups = numbers.count(*own, f"{section}.workgroups")
    uses_engines = numbers.count(f"{section}.copy_engines", default=0)
    if uses_engines and engines < 1:
        problem = "leaves a device without copy engines, which a transport needs"
        numbers.problems.append(Diagnostic(problem, key="copy_engines.count"))
    return Transport(
        start_ps=numbers.count(f"{section}.start"),
        step_ps=numbers.count(f"{section}.step"),
        workgroups=min(workgroups, engines) if uses_engines else workgroups,
        window_bytes=numbers.count(f"{section}.window"),
        payload_factor=float(numbers.real(f"{section}.payload_factor")),
        share_bytes=numbers.count(f"{section}.share"),
        reserves=numbers.count(f"{section}.reserves", default=0),
        copy_engines=uses_engines,
    )


def _whole(values: Mapping[str, float]) -> dict[str, int]:
    return {key: int(value) for key, value in values.items()}


def _real(values: Mapping[str, float]) -> dict[str, float]:
    return {key: float(value) for key, value in values.items()}
