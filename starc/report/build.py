"""Puts a report together from a program and what its simulation found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

from starc.backend.program import LayerInfo, Program
from starc.passes.base import Remark
from starc.report.bounds import Work, largest, launch_work, launches, layer_work
from starc.report.engines import engine_reports
from starc.report.memory import memory_plan, memory_report, parameters_report
from starc.report.metadata import Metadata
from starc.report.model import (
    CollectiveReport,
    EngineReport,
    KernelReport,
    KindReport,
    LayerReport,
    RemarkReport,
    Report,
    TrafficReport,
    UtilizationReport,
    WholeModelReport,
)
from starc.simulator.machine.services import server_kinds
from starc.simulator.results.governor import at_clock, power_of
from starc.simulator.results.result import LayerTime, SimulationResult, busiest, utilization
from starc.simulator.results.traffic import Traffic
from starc.targets.target import Target

_PS_PER_US: Final = 1_000_000
_SHAPE_KEYS: Final = ("m", "n", "k", "tasks", "keys", "head_dim", "split", "passes")


def build_report(
    program: Program,
    result: SimulationResult | None,
    *,
    compile_s: float = 0.0,
    remarks: Sequence[tuple[str, Remark]] = (),
    warnings: Sequence[str] = (),
    checks: Sequence[str] = (),
) -> Report:
    """The report of a program; without a ``result`` its times are None."""
    about = Metadata.of(program)
    target = Target.from_dict(program.target)
    devices = prod(size for _, size in program.mesh)
    kind = most_frequent(program)
    kernels = [_kernel(program, result, kind, launch) for launch in launches(kind)]
    times = {layer.name: layer for layer in result.layers} if result is not None else {}
    return Report(
        model=about.model,
        target=target.name,
        strategy=about.strategy,
        phase=about.phase,
        batch=about.batch,
        context=about.context,
        query=about.query,
        devices=devices,
        mesh=dict(program.mesh),
        tensor_parallel=about.tensor_parallel,
        data_parallel=about.data_parallel(devices),
        dtype=about.dtype,
        kv_cache_dtype=about.kv_cache_dtype,
        gpu_memory_utilization=about.gpu_memory_utilization,
        defaults=list(about.defaults),
        layer=_layer(program, kind, result, kernels, target),
        whole_model=_whole_model(program, about, times),
        memory=memory_report(memory_plan(program)),
        traffic=_traffic(times[kind.name].traffic) if kind.name in times else None,
        kernels=kernels,
        collectives=_collectives(program, kind, kernels),
        parameters=parameters_report(program, kind.name),
        kinds=[_kind(layer, times.get(layer.name)) for layer in program.layers],
        engine=_engine(result, compile_s),
        remarks=remark_reports(remarks),
        warnings=[*warnings, *(result.warnings if result is not None else ())],
        checks=list(checks),
        changes=list(about.changes),
        utilization=_utilization(target, result),
        engines=engine_reports(program, target, result, kind),
    )


def most_frequent(program: Program) -> LayerInfo:
    """The layer kind that occurs most often; of several with about as many kernels, none half the
    most, the one with most work, which no plan changes."""
    often = max(layer.count for layer in program.layers)
    kinds = [layer for layer in program.layers if layer.count == often]
    most = max(layer.launches for layer in kinds)
    large = [layer for layer in kinds if 2 * layer.launches >= most]
    return max(large, key=lambda layer: sum(layer_work(program, layer).flops.values()))


def _us(ps: int) -> float:
    return ps / _PS_PER_US


def _bound_us(work: Work, target: Target, *, peak: bool = False) -> float:
    return largest(work.times(target, peak=peak))[1] * 1e6


def _layer(
    program: Program,
    kind: LayerInfo,
    result: SimulationResult | None,
    kernels: Sequence[KernelReport],
    target: Target,
) -> LayerReport:
    time = _layer_time(result, kind)
    work = layer_work(program, kind)
    if result is not None and result.caches == "warm":
        caches = target.l2_bytes_per_die * target.dies_per_device + target.mall_bytes
        work.memory_bytes = max(0, work.memory_bytes - caches)
    bounds = LayerReport(
        kind=kind.name,
        time_us=None,
        cycles=None,
        clock_mhz=target.core_clock_mhz,
        spread_us=None,
        lower_bound_us=None,
        algorithm_bound_us=_bound_us(work, target),
        peak_bound_us=_bound_us(work, target, peak=True),
        bound_by=None,
        busiest=None,
        caches="cold" if result is None else result.caches,
        kernels_us=None,
        power_w=None,
        power_cap_w=target.power.get("cap"),
    )
    if time is None or result is None:
        return bounds
    machine = at_clock(target, result.clock_mhz)
    work_of_servers = result.work[kind.first_launch : kind.first_launch + kind.launches]
    return replace(
        bounds,
        time_us=_us(time.time_ps),
        cycles=machine.cycles(time.time_ps),
        clock_mhz=result.clock_mhz,
        spread_us=_us(time.spread_ps),
        lower_bound_us=_us(time.lower_bound_ps),
        bound_by=time.bound_by,
        busiest=busiest(work_of_servers.sum(axis=0), server_kinds(target)).kind,
        kernels_us=sum(kernel.time_us or 0.0 for kernel in kernels),
        power_w=power_of(program, machine, result),
    )


def _whole_model(
    program: Program, about: Metadata, times: dict[str, LayerTime]
) -> WholeModelReport:
    if not times:
        return WholeModelReport(about.layers, None, None, None, None)
    total = _us(sum(times[layer.name].time_ps * layer.count for layer in program.layers
                    if layer.name in times))  # fmt: skip
    new_tokens = about.batch * about.query
    decode = about.phase == "decode"
    return WholeModelReport(
        layers=about.layers,
        time_us=total,
        tokens_per_s=new_tokens / (total * 1e-6) if total else None,
        tpot_ms=total / 1e3 if decode else None,
        ttft_ms=None if decode else total / 1e3,
    )


def _layer_time(result: SimulationResult | None, kind: LayerInfo) -> LayerTime | None:
    layers = result.layers if result is not None else ()
    return next((layer for layer in layers if layer.name == kind.name), None)


def _kernel(
    program: Program, result: SimulationResult | None, kind: LayerInfo, launch: int
) -> KernelReport:
    """A launch on the device that ends the layer last."""
    attributes = program.launch_attributes[launch]
    work = launch_work(program, launch)
    flops = sum(work.flops.values())
    group = program.launch_kinds[launch]
    fused = str(attributes.get("fused", ""))
    report = KernelReport(
        name=program.launch_names[launch],
        kind="fused" if fused else group,
        start_us=None,
        time_us=None,
        flops=flops,
        bytes=work.memory_bytes,
        intensity=flops / work.memory_bytes if work.memory_bytes else 0.0,
        bound_by=None,
        exposed_comm_us=None,
        shape={key: attributes[key] for key in _SHAPE_KEYS if key in attributes},
        workgroups=int(program.launches[launch]["workgroups"]),
        group=group,
        operations=fused.split(",") if fused else [],
        launch_us=_us(
            int(program.launches[launch]["gap_ps"] + program.launches[launch]["prologue_ps"])
        ),
    )
    layer = _layer_time(result, kind)
    if result is None or layer is None:
        return report
    start, end = (int(times[launch, layer.device]) for times in (result.starts, result.ends))
    collective = report.kind == "collective"
    return replace(
        report,
        start_us=_us(start - layer.start_ps),
        time_us=_us(end - start),
        bound_by=result.launches[launch].bound_by,
        exposed_comm_us=_us(_exposed(result, launch, layer.device)) if collective else 0.0,
    )


def _exposed(result: SimulationResult, launch: int, device: int) -> int:
    """Time of a collective on a device during which no other launch runs there."""
    at, last = int(result.starts[launch, device]), int(result.ends[launch, device])
    others = sorted(
        (int(result.starts[other, device]), int(result.ends[other, device]))
        for other, row in enumerate(result.launches)
        if row.kind != "collective"
    )
    exposed = 0
    for start, end in others:
        if end > at and start < last:
            exposed += max(0, start - at)
            at = max(at, end)
    return exposed + max(0, last - at)


def _traffic(traffic: Traffic) -> TrafficReport:
    return TrafficReport(
        hbm_read_bytes=traffic.hbm_read_bytes,
        hbm_write_bytes=traffic.hbm_write_bytes,
        hbm_remote_bytes=traffic.hbm_remote_bytes,
        usr_bytes=traffic.usr_bytes,
        xgmi_bytes=traffic.xgmi_bytes,
        links=dict(traffic.links),
        logical_bytes=dict(traffic.logical),
    )


def _collectives(
    program: Program, kind: LayerInfo, kernels: Sequence[KernelReport]
) -> list[CollectiveReport]:
    reports: list[CollectiveReport] = []
    for launch, kernel in zip(launches(kind), kernels, strict=True):
        about: dict[str, Any] = program.launch_attributes[launch]
        if kernel.kind != "collective" or "ranks" not in about:
            continue
        ranks, size = int(about["ranks"]), int(about["size_bytes"])
        operation = str(about["operation"])
        if operation == "all_slice":  # each device keeps a part of what it has
            continue
        # Bytes a microsecond are 10^-3 GB/s.
        algbw = size / kernel.time_us / 1e3 if kernel.time_us else None
        factor = 2 * (ranks - 1) / ranks if operation == "all_reduce" else (ranks - 1) / ranks
        reports.append(
            CollectiveReport(
                name=kernel.name,
                op=operation,
                axes=str(about["axes"]).split(","),
                ranks=ranks,
                size_bytes=size,
                time_us=kernel.time_us,
                algbw_gbps=algbw,
                busbw_gbps=algbw * factor if algbw is not None else None,
                algorithm=str(about["algorithm"]),
                transport=str(about["transport"]),
            )
        )
    return reports


def _kind(layer: LayerInfo, time: LayerTime | None) -> KindReport:
    return KindReport(
        name=layer.name,
        count=layer.count,
        time_us=_us(time.time_ps) if time is not None else None,
        lower_bound_us=_us(time.lower_bound_ps) if time is not None else None,
        kernels=layer.launches,
    )


def _engine(result: SimulationResult | None, compile_s: float) -> EngineReport:
    if result is None:
        return EngineReport(0, 0, 0, 0.0, compile_s, 0, "")
    return EngineReport(
        result.instructions,
        result.requests,
        result.events,
        result.wall_s,
        compile_s,
        result.simulated_gpus,
        result.whole_node,
    )


def _utilization(target: Target, result: SimulationResult | None) -> UtilizationReport | None:
    if result is None or not result.bins_asked:
        return None
    shares = utilization(target, result)
    return UtilizationReport(
        _us(result.bin_ps),
        {name: [round(float(share), 4) for share in values.mean(axis=0)]
         for name, values in shares.items()},
    )  # fmt: skip


def remark_reports(remarks: Sequence[tuple[str, Remark]]) -> list[RemarkReport]:
    """Remarks as the report lists them."""
    return [_remark(name, remark) for name, remark in remarks]


def _remark(pass_name: str, remark: Remark) -> RemarkReport:
    return RemarkReport(
        pass_name=pass_name,
        id=remark.id,
        message=remark.message,
        location=str(remark.location) if remark.location is not None else None,
        declined=remark.declined,
        numbers=dict(remark.numbers),
    )
