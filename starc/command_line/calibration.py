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
from starc.report.formats import OutputFormat

if TYPE_CHECKING:
    from starc.validation.calibration import Constant, Fit
    from starc.validation.datasets import Dataset
    from starc.validation.rows import Case


def calibrate_command(options: argparse.Namespace) -> int:
    """Fits, writes the machine file and prints constants and errors."""
    from starc.output_files import write_file
    from starc.targets.names import machine_file_of
    from starc.validation.datasets import load_folder
    from starc.validation.fit_report import FIT_FORMATS
    from starc.validation.fitted_machine import fitted_text

    output = _checked_output(options)
    dataset = load_folder(
        Path(options.data), options.only, target=options.target, warn=warn, note=note
    )
    target = _target(dataset, options)
    fit = _fit(dataset, target, _constants(dataset, target, options), options)
    command = "starc " + shlex.join(sys.argv[1:])
    text = fitted_text(machine_file_of(target), fit, str(options.data), command)
    write_file(output, text.encode())
    for warning in fit.warnings:
        warn(warning)
    emit(FIT_FORMATS[OutputFormat(options.format)](fit, target, str(output)))
    return 0


def _checked_output(options: argparse.Namespace) -> Path:
    """The machine file to write, which is not the one to start from."""
    from starc.diagnostics import UsageError
    from starc.output_files import check_distinct, output_path

    output = output_path("-o", options.output)
    assert output is not None  # the option is required
    if output.suffix != ".toml":
        raise UsageError(f"-o: a machine file's name ends with .toml, not {output.name}")
    if options.target is not None:
        check_distinct({"--target": options.target}, {"-o": output})
        _check_machine(options.target)
    return output


def _check_machine(target: str) -> None:
    """Raises ``UsageError`` for a machine that there is not."""
    from starc.diagnostics import InputError, UsageError, render_error
    from starc.targets.names import machine_file_of

    try:
        machine_file_of(target)
    except InputError as error:
        raise UsageError(render_error(error, severity=False)) from error


def _target(dataset: Dataset, options: argparse.Namespace) -> str:
    """The machine to start from: the one that is given, or the one that all files are of."""
    from starc.diagnostics import UsageError
    from starc.validation.registry import target_of

    targets = dict.fromkeys(target_of(case.file) for case in dataset.cases)
    if options.target is None and len(targets) > 1:
        raise UsageError(
            f"the files are of {' and '.join(targets)}: choose with --only, or give --target"
        )
    target = options.target or next(iter(targets))
    _check_machine(target)
    return target


def _constants(dataset: Dataset, target: str, options: argparse.Namespace) -> Sequence[Constant]:
    """The numbers to fit."""
    from starc.targets.names import numbers
    from starc.validation.fitted_machine import Chosen, chosen_constants
    from starc.validation.registry import constants_of

    related = [key for case in dataset.cases for key in constants_of(case.file)]
    named = [Chosen(*item) for item in options.constant]
    return chosen_constants(numbers(target), named, related)


def _fit(
    dataset: Dataset, target: str, constants: Sequence[Constant], options: argparse.Namespace
) -> Fit:
    """The values of the constants that hold best against the rows."""
    from starc.validation.calibration import calibrate
    from starc.validation.context import Context
    from starc.validation.runner import default_jobs, simulate_cases

    jobs = options.jobs or default_jobs()

    def simulate(cases: Sequence[Case], values: Mapping[str, float]) -> Sequence[float]:
        return simulate_cases(cases, Context(target, values), jobs=jobs)

    with Bar("fitting") as bar:
        return calibrate(
            dataset.cases,
            constants,
            simulate,
            budget=options.budget,
            most=options.rows,
            progress=bar.update,
        )
