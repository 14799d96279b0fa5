"""``starc calibrate``: constants of a machine fitted to measurements."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from starc.command_line.console import emit, note, warn
from starc.command_line.validation import Bar

if TYPE_CHECKING:
    from starc.validation.rows import Case


def calibrate_command(options: argparse.Namespace) -> int:
    """Fits, writes the machine file and prints constants and errors."""
    from starc.diagnostics import InputError, UsageError, render_error
    from starc.output_files import check_distinct, output_path, write_file
    from starc.targets.names import machine_file_of, numbers
    from starc.validation.calibration import calibrate
    from starc.validation.context import Context
    from starc.validation.datasets import load_folder
    from starc.validation.fit_report import fit_json, fit_text
    from starc.validation.fitted_machine import Chosen, chosen_constants, fitted_text
    from starc.validation.registry import constants_of, target_of
    from starc.validation.runner import default_jobs, simulate_cases

    output = output_path("-o", options.output)
    assert output is not None  # the option is required
    if output.suffix != ".toml":
        raise UsageError(f"-o: a machine file's name ends with .toml, not {output.name}")
    if options.target is not None:
        check_distinct({"--target": options.target}, {"-o": output})
        try:
            machine_file_of(options.target)
        except InputError as error:
            raise UsageError(render_error(error).removeprefix("error: ")) from error
    dataset = load_folder(
        Path(options.data), options.only, target=options.target, warn=warn, note=note
    )
    targets = dict.fromkeys(target_of(case.file) for case in dataset.cases)
    if options.target is None and len(targets) > 1:
        raise UsageError(
            f"the files are of {' and '.join(targets)}: choose with --only, or give --target"
        )
    target = options.target or next(iter(targets))
    try:
        known, machine = numbers(target), machine_file_of(target)
    except InputError as error:
        raise UsageError(render_error(error).removeprefix("error: ")) from error
    related = [key for case in dataset.cases for key in constants_of(case.file)]
    named = [Chosen(*item) for item in options.constant]
    constants = chosen_constants(known, named, related)
    jobs = options.jobs or default_jobs()

    def simulate(cases: Sequence[Case], values: Mapping[str, float]) -> Sequence[float]:
        return simulate_cases(cases, Context(target, values), jobs=jobs)

    with Bar("fitting") as bar:
        fit = calibrate(
            dataset.cases,
            constants,
            simulate,
            budget=options.budget,
            most=options.rows,
            progress=bar.update,
        )
    command = "starc " + shlex.join(sys.argv[1:])
    write_file(output, fitted_text(machine, fit, str(options.data), command).encode())
    for warning in fit.warnings:
        warn(warning)
    shown = str(output)
    report = fit_json(fit, target, shown) if options.format == "json" else None
    emit(report or fit_text(fit, target, shown))
    return 0
