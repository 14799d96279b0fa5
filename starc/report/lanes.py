"""Lanes of a timeline: every instruction of the engines of some devices.

An engine has one lane; where instructions overlap, as loads in flight do, as many as are needed.
What the CPU and the scheduler wait for other engines is a slice as well. The others wait while they
still work: a lane is empty where they have nothing to do.
"""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import Any

from starc.backend.program import Engine, Opcode, Program
from starc.report.operation_log import Operations
from starc.simulator.results.operation_log import Log


def shown_devices(program: Program) -> tuple[int, ...]:
    """The devices that a timeline shows where none are named: the first one of each group, which
    are the devices with the same coordinates on all axes but the innermost two."""
    devices = prod(size for _, size in program.mesh)
    return tuple(range(0, devices, prod(size for _, size in program.mesh[-2:])))


def lanes(program: Program, log: Log, first_thread: int) -> list[dict[str, Any]]:
    """Events of the instructions of a log, in lanes that are threads from ``first_thread`` on."""
    known = Operations(program)
    per_gpu = prod(size for _, size in program.mesh[1:])
    ends: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    threads: dict[tuple[int, int, int], int] = {}
    slices: list[tuple[int, int, int, Any]] = []
    for row in log.tolist():
        device, _, _, engine, record, _, start, end = row
        if engine > Engine.SCHEDULER and program.records[record]["op"] == Opcode.ACQUIRE:
            continue
        busy = ends[device, engine]
        lane = next((k for k, until in enumerate(busy) if until <= start), len(busy))
        busy[lane : lane + 1] = [end]
        slices.append((device, engine, lane, row))
    events: list[dict[str, Any]] = []
    for device, engine in sorted(ends):
        for lane in range(len(ends[device, engine])):
            threads[device, engine, lane] = thread = first_thread + len(threads)
            name = f"device {device} ({known.coordinates(device)}), {Engine(engine).name.lower()}"
            name += f" {lane + 1}" if lane else ""
            events.append(_metadata("thread_name", device // per_gpu, thread, {"name": name}))
            order = {"sort_index": thread}
            events.append(_metadata("thread_sort_index", device // per_gpu, thread, order))
    for device, engine, lane, row in slices:
        _, launch, workgroup, _, record, iteration, start, end = row
        text = known.text(record)
        opcode = Opcode(int(program.records[record]["op"]))
        events.append(
            {
                "name": "wait for engine" if opcode == Opcode.ACQUIRE else text.split()[0],
                "cat": Engine(engine).name.lower(),
                "ph": "X",
                "ts": start / 1e6,
                "dur": (end - start) / 1e6,
                "pid": device // per_gpu,
                "tid": threads[device, engine, lane],
                "args": {
                    "operation": text,
                    "launch": program.launch_names[launch],
                    "workgroup": workgroup,
                    "iteration": iteration,
                    "location": known.location(record),
                },
            }
        )
    return events


def _metadata(kind: str, process: int, thread: int, values: dict[str, Any]) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": values}
