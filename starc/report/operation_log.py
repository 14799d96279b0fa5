"""The log of operations as a file: a line for every instruction that a device executed.

Columns are the device and its coordinates, the launch, workgroup and engine, the record of the
kernel, how often the workgroup had executed it before, its begin and end in picoseconds, what it
does in the words of the disassembler, and where that stands in the source.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any, Final

from starc.backend.disassembler import instruction
from starc.backend.program import Engine, Program
from starc.backend.rows import ProgramReader
from starc.simulator.results.operation_log import Log

COLUMNS: Final = (
    "device",
    "coordinates",
    "launch",
    "workgroup",
    "engine",
    "record",
    "iteration",
    "start_ps",
    "end_ps",
    "operation",
    "location",
)


class Operations:
    """What the records of a program do, as text: each is written once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.reader = ProgramReader(program)
        self._texts: dict[int, str] = {}
        self._coordinates: dict[int, str] = {}
        self._first: dict[int, int] = {}
        for template in program.templates:
            for record in range(template.first_record, template.first_record + template.records):
                self._first[record] = template.first_record

    def text(self, record: int) -> str:
        """A record of the program as the disassembler writes it."""
        if record not in self._texts:
            self._texts[record] = instruction(self.reader, self.program.records[record])
        return self._texts[record]

    def place(self, record: int) -> int:
        """The number of a record within its kernel."""
        return record - self._first[record]

    def location(self, record: int) -> str:
        """Where a record stands in the source, or nothing."""
        place = int(self.program.records[record]["location"])
        if not 0 <= place < len(self.program.locations):
            return ""
        return ":".join(map(str, self.program.locations[place]))

    def coordinates(self, device: int) -> str:
        """A device by its coordinates: ``sip=0 group=1 cube=2 pe=3``."""
        if device not in self._coordinates:
            values = self.reader.coordinates(device)
            self._coordinates[device] = " ".join(
                f"{axis}={values[axis]}" for axis, _ in self.program.mesh
            )
        return self._coordinates[device]


def log_lines(program: Program, log: Log) -> Iterator[tuple[Any, ...]]:
    """The rows of a log in the order of ``COLUMNS``."""
    known = Operations(program)
    for row in log.tolist():
        device, launch, workgroup, engine, record, iteration, start, end = row
        yield (
            device,
            known.coordinates(device),
            program.launch_names[launch],
            workgroup,
            Engine(engine).name.lower(),
            known.place(record),
            iteration,
            start,
            end,
            known.text(record),
            known.location(record),
        )


def csv_text(program: Program, log: Log) -> str:
    """The log as comma-separated values under a line of names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(log_lines(program, log))
    return text.getvalue()


def json_lines_text(program: Program, log: Log) -> str:
    """The log as one JSON object a line."""
    rows = log_lines(program, log)
    return "".join(f"{json.dumps(dict(zip(COLUMNS, row, strict=True)))}\n" for row in rows)
