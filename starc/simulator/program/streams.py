"""Templates that have a stream for each engine, as the event core reads them: where streams begin
and end, who raises and acquires semaphores, and which of the acquired ones are commands.

The CPU issues a command by raising a semaphore that the engine, or the scheduler, acquires right
before it. So the last semaphore of the CPU that is acquired before an instruction counts a command
of the instruction's class, and each that the scheduler acquires counts a composite.
"""

from __future__ import annotations

from typing import Any, Final

from starc.backend.program import Engine, Opcode, Program, TemplateInfo
from starc.simulator.errors import DecodeError
from starc.simulator.state.arrays import Array
from starc.simulator.state.engine_counts import COMMAND_NAMES, COMMANDS

_CLASSES: Final[dict[int, str]] = {
    Opcode.LOAD: "load",
    Opcode.GET: "load",
    Opcode.STORE: "store",
    Opcode.PUT: "send",
    Opcode.SIGNAL: "signal",
    Opcode.WAIT: "receive",
    Opcode.MATRIX: "matrix",
    Opcode.VECTOR: "math",
}


def decode_streams(
    program: Program, operations: Array, templates: Array
) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Fills in what ``templates`` and ``operations`` say about streams. Returns engine, first and
    last operation of all streams, and what semaphores begin with."""
    streams: list[tuple[int, int, int]] = []
    semaphores: list[int] = []
    for t, template in enumerate(program.templates):
        templates[t]["first_stream"] = len(streams)
        templates[t]["streams"] = len(template.streams)
        templates[t]["first_semaphore"] = len(semaphores)
        templates[t]["semaphores"] = len(template.semaphores)
        semaphores.extend(template.semaphores)
        for stream in template.streams:
            first = template.first_record + stream.first_record
            streams.append((int(stream.engine), first, first + stream.records))
        raisers = semaphore_streams(program, template, Opcode.RELEASE)
        semaphore_streams(program, template, Opcode.ACQUIRE)
        for engine, first, end in streams[int(templates[t]["first_stream"]) :]:
            _count_commands(engine, operations[first:end], raisers)
    return streams, semaphores


def semaphore_streams(
    program: Program, template: TemplateInfo, opcode: Opcode
) -> dict[int, Engine]:
    """The engine whose stream raises (or acquires) each semaphore of a template. Raises
    ``DecodeError`` where there are several."""
    found: dict[int, Engine] = {}
    for stream in template.streams:
        first = template.first_record + stream.first_record
        for row in program.records[first : first + stream.records]:
            if row["op"] != opcode:
                continue
            number = int(row["buffer"])
            if found.setdefault(number, stream.engine) != stream.engine:
                what = "raised" if opcode == Opcode.RELEASE else "acquired"
                raise DecodeError(
                    f"semaphore {number} of @{template.name} is {what} by two streams, "
                    f"{found[number].name.lower()} and {stream.engine.name.lower()}"
                )
    return found


def _count_commands(engine: int, rows: Any, raisers: dict[int, Engine]) -> None:
    """Has acquired semaphores count commands: ``work`` is the count, or -1."""
    if engine == Engine.CPU:
        return
    last = -1
    for k, row in enumerate(rows):
        op = int(row["op"])
        if op == Opcode.ACQUIRE:
            if raisers.get(int(row["buffer"])) != Engine.CPU:
                continue
            if engine == Engine.SCHEDULER:
                row["work"] = COMMANDS + COMMAND_NAMES.index("composite")
            else:
                last = k
            continue
        if op == Opcode.RELEASE:  # of the queue's room
            continue
        if last >= 0 and op in _CLASSES:
            rows[last]["work"] = COMMANDS + COMMAND_NAMES.index(_CLASSES[op])
        last = -1
