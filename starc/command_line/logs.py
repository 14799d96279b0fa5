"""What a command logs of a simulation, and the files that it writes: ``--log`` and ``--trace``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from starc.diagnostics import UsageError
from starc.output_files import output_path, write_file

if TYPE_CHECKING:
    from starc.backend.program import Program
    from starc.simulator.options import SimulationOptions
    from starc.simulator.results.result import SimulationResult


def log_path(options: argparse.Namespace) -> Path | None:
    """The file of ``--log``. Raises ``UsageError`` where ``--log-devices`` has nothing to show."""
    if options.log_devices is not None and not options.log and not options.trace:
        raise UsageError("--log-devices shows in --log FILE and in --trace FILE: give one of them")
    return output_path("--log", options.log)


def logged(
    program: Program, options: argparse.Namespace, simulation: SimulationOptions
) -> SimulationOptions:
    """The options of a simulation with the log that its files need: ``--log`` has all devices
    unless some are named, ``--trace`` the first one of each group where engines have streams."""
    devices: Sequence[int] | None = options.log_devices
    count = prod(size for _, size in program.mesh)
    if devices is not None and devices[-1] >= count:
        raise UsageError(
            f"--log-devices: there is no device {devices[-1]}; the program has {count}, from 0 on"
        )
    if options.log:
        return replace(simulation, log=True, log_devices=devices)
    if options.trace and (devices is not None or _streams(program)):
        return replace(simulation, log=True, log_devices=_shown(program, options))
    return simulation


def write_files(
    program: Program,
    result: SimulationResult,
    options: argparse.Namespace,
    log: Path | None,
    trace: Path | None,
) -> None:
    """Writes the log and the timeline that were asked for."""
    if log is not None and result.log is not None:
        from starc.report.operation_log import csv_text, json_lines_text

        text = csv_text if log.suffix == ".csv" else json_lines_text
        write_file(log, text(program, result.log).encode())
    if trace is not None:
        from starc.report.trace import trace_text

        shown = _shown(program, options)
        write_file(trace, trace_text(program, result, shown).encode())


def _streams(program: Program) -> bool:
    return any(template.streams for template in program.templates)


def _shown(program: Program, options: argparse.Namespace) -> tuple[int, ...]:
    """The devices whose instructions a timeline shows."""
    from starc.report.lanes import shown_devices

    if options.log_devices is not None:
        return tuple(options.log_devices)
    return shown_devices(program) if _streams(program) else ()
