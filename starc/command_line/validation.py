"""``starc validate``: simulated against measured."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from starc.command_line.console import emit, note, warn
from starc.report.formats import OutputFormat

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from starc.validation.datasets import Dataset
    from starc.validation.summary import Validation


def validate_command(options: argparse.Namespace) -> int:
    """Prints rows, errors and baselines; 3 with ``--strict`` where a stated margin is broken."""
    from starc.command_line.commands import EXIT_CHECK_FAILED

    if options.sensitivity:
        from starc.command_line.sensitivity import sensitivity_command

        return sensitivity_command(options)
    if options.number or options.model:
        from starc.diagnostics import UsageError

        raise UsageError("--number and --model belong to --sensitivity")
    from starc.validation.report import VALIDATION_FORMATS

    found = validate(options)
    for warning in found.warnings:
        warn(warning)
    emit(VALIDATION_FORMATS[OutputFormat(options.format)](found))
    return EXIT_CHECK_FAILED if options.strict and not found.holds else 0


def validate(options: argparse.Namespace) -> Validation:
    """Runs the validation that the options ask for."""
    from starc.validation.context import Context
    from starc.validation.registry import machine_of
    from starc.validation.runner import default_jobs, simulate_cases
    from starc.validation.summary import (
        constants_by_kind,
        fit_baselines,
        make_rows,
        summarise,
    )

    dataset = measured_rows(options, left_out=warn)
    context = Context(options.target)
    targets = {case.file: machine_of(case.file, options.target) for case in dataset.cases}
    with Bar("simulating") as bar:
        simulated = simulate_cases(
            dataset.cases, context, jobs=options.jobs or default_jobs(), progress=bar.update
        )
    fitted = fit_baselines(dataset.reference)
    rows = make_rows(dataset.cases, simulated, fitted, shipped=dataset.shipped)
    return summarise(rows, fitted, constants_by_kind(dataset.cases, targets), targets)


def measured_rows(
    options: argparse.Namespace, *, left_out: Callable[[str], None] = lambda _: None
) -> Dataset:
    """The rows of ``--data``, or those that are shipped for the target; what is not simulated of
    the latter is told to ``left_out``. Raises ``UsageError`` for a target that there is not."""
    from starc.diagnostics import InputError, UsageError, render_error
    from starc.targets.loader import load_target
    from starc.validation.datasets import load_folder, load_shipped

    product = None
    if options.target is not None:
        try:
            product = load_target(options.target).product
        except InputError as error:
            raise UsageError(render_error(error, severity=False)) from error
    if options.data is not None:
        return load_folder(
            Path(options.data), options.only, target=options.target, warn=warn, note=note
        )
    return load_shipped(product, options.only, warn=left_out)


class Bar:
    """A progress bar on standard error, where that is a terminal."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> Bar:
        return self

    def update(self, done: int, total: int) -> None:
        """So many of all programs are done."""
        if not self._terminal:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._title, total=total)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, completed=done, total=total)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
