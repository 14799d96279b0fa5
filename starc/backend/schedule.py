"""The schedule checks of ``verify-schedule`` on the packed form: the same questions, asked of the
rows that will run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starc.backend.program import LayerInfo, Opcode, Program, Rows, TemplateInfo
from starc.backend.rows import COUNTER_NAMES, ProgramReader
from starc.core.streams.happens_before import check
from starc.core.streams.residency import resident_workgroups
from starc.core.streams.skeleton import Skeleton, SkeletonLaunch
from starc.core.streams.stream_events import TooLarge
from starc.core.streams.stream_template import (
    Acquire,
    Branch,
    Loop,
    Node,
    Release,
    Semaphore,
    Signal,
    Wait,
)
from starc.diagnostics import Diagnostic, Location


def skeleton(reader: ProgramReader, template: TemplateInfo) -> Skeleton:
    """The signals and waits of a packed template."""
    records = reader.records(template)
    if not template.streams:
        return Skeleton(template.name, _body(reader, records, 0)[0])
    streams = tuple(
        (
            part.engine.name.lower(),
            _body(reader, records[: part.first_record + part.records], part.first_record)[0],
        )
        for part in template.streams
    )
    semaphores = tuple(Semaphore(f"s{i}", n) for i, n in enumerate(template.semaphores))
    return Skeleton(template.name, (), streams, semaphores)


def _body(reader: ProgramReader, records: Rows, first: int) -> tuple[tuple[Node, ...], int]:
    """The nodes from a record to the end of its block, and the record after that."""
    nodes: list[Node] = []
    index = first
    while index < len(records):
        record = records[index]
        stage = int(record["stage"])
        counters = reader.program.counters
        index += 1
        match int(record["op"]):
            case Opcode.END_LOOP | Opcode.END_IF:
                break
            case Opcode.LOOP:
                inner, index = _body(reader, records, index)
                lower, upper = (reader.expression(record, field) for field in ("e0", "e1"))
                variable = COUNTER_NAMES[int(record["depth"])]
                nodes.append(Loop(variable, lower, upper, inner, stage))
            case Opcode.IF:
                inner, index = _body(reader, records, index)
                nodes.append(Branch(reader.expression(record, "e0"), inner, stage))
            case Opcode.SIGNAL:
                peer = None if record["peer"] < 0 else reader.expression(record, "peer")
                element, value = (reader.expression(record, field) for field in ("e0", "e1"))
                name = counters[int(record["buffer"])].name
                nodes.append(Signal(name, element, value, peer, stage))
            case Opcode.WAIT:
                element, value = (reader.expression(record, field) for field in ("e0", "e1"))
                nodes.append(Wait(counters[int(record["buffer"])].name, element, value, stage))
            case Opcode.ACQUIRE:
                nodes.append(Acquire(int(record["buffer"]), stage=stage))
            case Opcode.RELEASE:
                nodes.append(Release(int(record["buffer"]), stage=stage))
            case _:
                pass
    return tuple(nodes), index


def _layer_launches(
    program: Program, skeletons: Mapping[int, Skeleton], reader: ProgramReader, layer: LayerInfo
) -> list[SkeletonLaunch]:
    launches: list[SkeletonLaunch] = []
    for index in range(layer.first_launch, layer.first_launch + layer.launches):
        row = program.launches[index]
        parts = tuple((skeletons[template], grid) for template, grid in reader.parts(index))
        depends = int(row["depends"]) - layer.first_launch
        launches.append(
            SkeletonLaunch(
                program.launch_names[index],
                parts,
                int(row["queue"]),
                depends if row["depends"] >= layer.first_launch else None,
            )
        )
    return launches


def schedule_problems(program: Program) -> list[Diagnostic]:
    """Deadlocks, and waiting kernels that are not resident as a whole; empty if there are none."""
    reader = ProgramReader(program)
    skeletons = {
        index: skeleton(reader, template) for index, template in enumerate(program.templates)
    }
    counters = {counter.name: counter.count for counter in program.counters}
    found: list[Diagnostic] = []
    for layer in program.layers:
        try:
            launches = _layer_launches(program, skeletons, reader, layer)
            for problem in check(launches, counters, program.mesh):
                place = _place(program, layer.first_launch + problem.launch)
                found.append(Diagnostic(problem.message, place, hint=problem.hint))
        except TooLarge as error:
            found.append(Diagnostic(str(error), severity="warning"))
    found += _residency(program, reader)
    return found


def _place(program: Program, launch: int) -> Location | None:
    index = int(program.launches[launch]["location"])
    return None if index < 0 else Location(*program.locations[index])


def _residency(program: Program, reader: ProgramReader) -> list[Diagnostic]:
    target: dict[str, Any] = program.target
    if "cus_per_die" not in target:
        return []
    found: list[Diagnostic] = []
    for index, row in enumerate(program.launches):
        if not row["waits"]:
            continue
        parts = reader.parts(index)
        grid = int(row["workgroups"])
        if row["engines"]:
            engines = int(target.get("copy_engines", 0))
            if grid > engines:
                text = no_engines(program.launch_names[index], grid, engines)
                found.append(Diagnostic(text, _place(program, index)))
            continue
        fits = min(
            resident_workgroups(
                compute_units=int(target["cus_per_die"]) * int(target["dies_per_device"]),
                max_waves=int(target["max_waves_per_cu"]),
                scratch_bytes=int(target["scratch_bytes_per_cu"]),
                register_bytes=int(target["registers_bytes_per_cu"]),
                kernel_waves=program.templates[template].waves,
                kernel_scratch_bytes=program.templates[template].scratch_bytes,
                kernel_register_bytes=program.templates[template].register_bytes,
            )
            for template, _ in parts
        )
        if grid > fits:
            found.append(
                Diagnostic(
                    not_resident(program.launch_names[index], grid, fits), _place(program, index)
                )
            )
    return found


def no_engines(launch: str, grid: int, engines: int) -> str:
    """The problem of a launch on copy engines that needs more of them than a device has."""
    return (
        f"the streams of {launch} wait for signals, so all {grid} must have a copy engine; "
        f"a device has {engines}"
    )


def not_resident(launch: str, grid: int, fits: int) -> str:
    """What to say of a launch whose workgroups wait for each other but do not all fit."""
    return (
        f"the workgroups of {launch} wait for signals, so all {grid} must be resident; "
        f"a device holds {fits}"
    )
