"""What a run that does not end waits for."""

from __future__ import annotations

import numpy as np

from starc.backend.program import Opcode, Program
from starc.simulator import state as st
from starc.simulator.arrivals import ON_COUNTER
from starc.simulator.launches import DONE
from starc.simulator.state import State
from starc.targets.target import Target

_SHOWN = 8


class DeadlockError(RuntimeError):
    """Workgroups wait for counters that nobody will raise. ``chain`` names the waits."""

    def __init__(self, chain: tuple[str, ...]) -> None:
        super().__init__("the program deadlocks:\n  " + "\n  ".join(chain))
        self.chain = chain


def find_deadlock(program: Program, target: Target, state: State) -> None:
    """Raises ``DeadlockError`` where a launch has not ended although no event is left."""
    gpus = int(state.cfg[st.GPUS])
    controls = state.controls.reshape(gpus, -1)
    launch_controls = controls[:, : target.devices_per_gpu * st.QUEUES]
    if bool(np.all(launch_controls["state"] == DONE)):
        return
    groups = state.groups.reshape(gpus, -1)
    chain: list[str] = []
    seen: set[tuple[int, int]] = set()
    names = _counter_names(program)
    waiting = np.argwhere(groups["blocked"] == ON_COUNTER)
    for g, w in waiting.tolist():
        group = groups[g, w]
        element = int(group["waiting"]) % max(1, int(state.cfg[st.COUNTERS]))
        key = (int(group["launch"]), element)
        if key in seen:
            continue
        seen.add(key)
        device = g * target.devices_per_gpu + int(group["device"])
        chain.append(
            f"{program.launch_names[int(group['launch'])]} on device {device}, workgroup "
            f"{int(group['workgroup'])}, waits for {names[element]} >= {int(group['value'])}, "
            f"which is {int(state.counters[int(group['waiting'])])}"
            f"{_raisers(program, element)}"
        )
    more = len(chain) - _SHOWN
    del chain[_SHOWN:]
    if more > 0:
        chain.append(f"and {more} more kinds of waits")
    stuck = launch_controls[launch_controls["state"] != DONE]
    for launch in sorted({int(row["launch"]) for row in stuck}):
        unplaced = (controls["launch"] == launch) & (controls["position"] < controls["total"])
        rest = unplaced[:, target.devices_per_gpu * st.QUEUES :]
        note = ", with workgroups that found no room" if bool(rest.any()) else ""
        chain.append(f"{program.launch_names[launch]} does not end{note}")
    raise DeadlockError(tuple(chain))


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
