"""What a run that does not end waits for."""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.backend.program import Opcode, Program, TemplateInfo
from starc.simulator.core.launches.controllers import DONE
from starc.simulator.core.waits import ON_COUNTER, ON_SEMAPHORE
from starc.simulator.errors import DeadlockError
from starc.simulator.program.streams import semaphore_streams
from starc.simulator.state.arrays import State
from starc.simulator.state.numbers import COUNTERS, GPUS, QUEUES
from starc.targets.target import Target

_SHOWN = 8


def find_deadlock(program: Program, target: Target, state: State) -> None:
    """Raises ``DeadlockError`` where a launch has not ended although no event is left."""
    gpus = int(state.cfg[GPUS])
    controls = state.controls.reshape(gpus, -1)
    launch_controls = controls[:, : target.devices_per_gpu * QUEUES]
    if bool(np.all(launch_controls["state"] == DONE)):
        return
    groups = state.groups.reshape(gpus, -1)
    chain: list[str] = []
    seen: set[tuple[int, int, int]] = set()
    names = _counter_names(program)
    # A semaphore that nobody raises is mostly one behind a counter.
    for reason in (ON_COUNTER, ON_SEMAPHORE):
        for g, w in np.argwhere(groups["blocked"] == reason).tolist():
            group = groups[g, w]
            number = int(group["waiting"])
            if reason == ON_COUNTER:
                number %= max(1, int(state.cfg[COUNTERS]))
            key = (reason, int(group["launch"]), number)
            if key in seen:
                continue
            seen.add(key)
            device = g * target.devices_per_gpu + int(group["device"])
            who = (
                f"{program.launch_names[int(group['launch'])]} on device {device}, workgroup "
                f"{int(group['workgroup'])},{_stream(program, group, w)}"
            )
            if reason == ON_COUNTER:
                chain.append(
                    f"{who} waits for {names[number]} >= {int(group['value'])}, "
                    f"which is {int(state.counters[int(group['waiting'])])}"
                    f"{_raisers(program, number)}"
                )
            else:
                chain.append(f"{who} waits for {_semaphore(program, group)}")
    more = len(chain) - _SHOWN
    del chain[_SHOWN:]
    if more > 0:
        chain.append(f"and {more} more kinds of waits")
    stuck = launch_controls[launch_controls["state"] != DONE]
    for launch in sorted({int(row["launch"]) for row in stuck}):
        unplaced = (controls["launch"] == launch) & (controls["position"] < controls["total"])
        rest = unplaced[:, target.devices_per_gpu * QUEUES :]
        note = ", with workgroups that found no room" if bool(rest.any()) else ""
        chain.append(f"{program.launch_names[launch]} does not end{note}")
    raise DeadlockError(tuple(chain))


def _stream(program: Program, group: Any, w: int) -> str:
    """Which stream of a workgroup one is, where it has several."""
    streams = program.templates[int(group["template"])].streams
    place = w - int(group["lead"])
    return f" stream {streams[place].engine.name.lower()}," if streams else ""


def _semaphore(program: Program, group: Any) -> str:
    """The semaphore that a stream waits for: who raises it, and where it is acquired."""
    template = program.templates[int(group["template"])]
    number = int(group["waiting"])
    raisers = semaphore_streams(program, template, Opcode.RELEASE)
    by = f"stream {raisers[number].name.lower()}" if number in raisers else "no stream"
    return (
        f"semaphore {number} of @{template.name} (raised by {by})"
        f"{_place(program, template, int(group['pc']))}"
    )


def _place(program: Program, template: TemplateInfo, record: int) -> str:
    """Where the next instruction behind a record stands in the model, or nothing."""
    end = template.first_record + template.records
    for row in program.records[record:end]:
        place = int(row["location"])
        if 0 <= place < len(program.locations):
            file, line, column = program.locations[place]
            return f" at {file}:{line}:{column}"
    return ""


def _counter_names(program: Program) -> list[str]:
    return [
        f"{counter.name}[{element}]"
        for counter in program.counters
        for element in range(counter.count)
    ]


def _raisers(program: Program, element: int) -> str:
    """The kernels that signal the counter array of an element."""
    array = 0
    while element >= program.counters[array].count:
        element -= program.counters[array].count
        array += 1
    kernels = [
        template.name
        for template in program.templates
        if any(
            row["op"] == Opcode.SIGNAL and row["buffer"] == array
            for row in program.records[
                template.first_record : template.first_record + template.records
            ]
        )
    ]
    return f" (raised by {', '.join(kernels)})" if kernels else " (raised by no kernel)"
