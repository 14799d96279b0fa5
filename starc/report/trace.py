"""A timeline for Perfetto: one track a device and queue, one slice a launch, and for every kind of
server one counter a GPU: the share of its time that it works. Devices whose instructions are logged
may have lanes of their engines as well."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from starc.backend.program import Program
from starc.report.lanes import lanes
from starc.simulator.results.result import SimulationResult, utilization
from starc.targets.target import Target

_QUEUES = ("compute", "communication")


def trace_text(program: Program, result: SimulationResult, shown: Sequence[int] = ()) -> str:
    """The trace as JSON in Chrome's format: processes are GPUs, threads are queues of a device and,
    of the devices ``shown`` that were logged, lanes of engines; times are microseconds."""
    events = _events(program, result)
    if result.log is not None:
        rows = result.log[np.isin(result.log["device"], shown)]
        events += lanes(program, rows, _track(prod(size for _, size in program.mesh), 0))
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}) + "\n"


def _events(program: Program, result: SimulationResult) -> list[dict[str, Any]]:
    gpus = program.mesh[0][1] if program.mesh else 1
    devices = prod(size for _, size in program.mesh)
    per_gpu = devices // gpus
    used = sorted({int(queue) for queue in program.launches["queue"]})
    package = program.mesh[0][0].upper() if program.mesh else "GPU"
    events: list[dict[str, Any]] = []
    for gpu in range(gpus):
        events.append(_name("process_name", gpu, None, f"{package} {gpu}"))
        for inner in range(per_gpu):
            for queue in used:
                name = f"device {gpu * per_gpu + inner}, {_QUEUES[queue]}"
                events.append(_name("thread_name", gpu, _track(inner, queue), name))
    for launch, name in enumerate(program.launch_names):
        queue = int(program.launches[launch]["queue"])
        arguments = {
            "layer": program.layers[int(program.launches[launch]["layer"])].name,
            "workgroups": int(program.launches[launch]["workgroups"]),
            **program.launch_attributes[launch],
        }
        for device in range(devices):
            start, end = int(result.starts[launch, device]), int(result.ends[launch, device])
            events.append(
                {
                    "name": name,
                    "cat": program.launch_kinds[launch],
                    "ph": "X",
                    "ts": start / 1e6,
                    "dur": (end - start) / 1e6,
                    "pid": device // per_gpu,
                    "tid": _track(device % per_gpu, queue),
                    "args": arguments,
                }
            )
    return events + _counters(program, result)


def _counters(program: Program, result: SimulationResult) -> list[dict[str, Any]]:
    """Counter tracks of the kinds of servers that work at all, in percent."""
    events: list[dict[str, Any]] = []
    for name, shares in utilization(Target.from_dict(program.target), result).items():
        if not shares.any():
            continue
        for gpu, row in enumerate(shares):
            # A last value of 0 ends the track.
            for k, share in enumerate([*row.tolist(), 0.0]):
                events.append(
                    {
                        "name": f"{name} busy",
                        "ph": "C",
                        "ts": k * result.bin_ps / 1e6,
                        "pid": gpu,
                        "args": {"%": round(100.0 * share, 1)},
                    }
                )
    return events


def _track(inner: int, queue: int) -> int:
    return inner * len(_QUEUES) + queue


def _name(kind: str, process: int, thread: int | None, name: str) -> dict[str, Any]:
    event: dict[str, Any] = {"name": kind, "ph": "M", "pid": process, "args": {"name": name}}
    if thread is not None:
        event["tid"] = thread
    return event
