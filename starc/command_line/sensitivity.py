"""``starc validate --sensitivity``: what the results hang on."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from starc.command_line.console import emit
from starc.command_line.validation import Bar, measured_rows
from starc.report.formats import OutputFormat

if TYPE_CHECKING:
    from starc.validation.rows import Case
    from starc.validation.sensitivity import Report, Watched


def sensitivity_command(options: argparse.Namespace) -> int:
    """Moves every assumed number and prints what changes, for every machine of the rows."""
    from starc.validation.sensitivity_report import SENSITIVITY_FORMATS

    reports = sensitivities(options)
    emit(SENSITIVITY_FORMATS[OutputFormat(options.format)](reports))
    return 0


def sensitivities(options: argparse.Namespace) -> list[Report]:
    """A report for the target, or for each of those that the rows were measured on."""
    from starc.validation.registry import target_of

    model = _checked_model(options)
    dataset = measured_rows(options)
    own = dict.fromkeys(target_of(case.file) for case in dataset.cases)
    targets = [options.target] if options.target is not None else list(own)
    targets = _moved_on(targets, options.number)
    return [
        _report(
            target,
            [
                case
                for case in dataset.cases
                if options.target is not None or target_of(case.file) == target
            ],
            model,
            options,
        )
        for target in targets
    ]


def _checked_model(options: argparse.Namespace) -> str:
    """The model of the layer, which is looked at before anything is simulated."""
    from starc.api import CompileOptions, load
    from starc.validation.watching import MODEL

    if options.model is not None:
        load(CompileOptions(options.model, options.target or "h200", gpus=1))
    return str(options.model or MODEL)


def _moved_on(targets: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The targets that have one of the numbers to move; all where none is named. Raises
    ``UsageError`` for keys that no target has, with what is near on each of them."""
    from starc.diagnostics import UsageError, did_you_mean
    from starc.targets.names import numbers
    from starc.validation.sensitivity import swept_numbers

    there = {target: numbers(target) for target in targets}
    swept = {target: [item.key for item in swept_numbers(there[target])] for target in targets}
    problems: list[str] = []
    for key in keys:
        if any(key in found for found in swept.values()):
            continue
        for target in targets:
            own = next((item for item in there[target] if item.key == key), None)
            if own is not None:
                problems.append(
                    f"--number '{key}' of {target} is {own.kind} and has no range: give it low and "
                    "high in a machine file"
                )
                continue
            hint = did_you_mean(key, swept[target])
            problems.append(
                f"--number '{key}' is no number of {target} that is assumed or has a range"
                + (f" ({hint})" if hint else "")
            )
    if problems:
        raise UsageError("\n  ".join(problems))
    return [each for each in targets if not keys or any(key in swept[each] for key in keys)]


def _report(target: str, cases: Sequence[Case], model: str, options: argparse.Namespace) -> Report:
    from starc.diagnostics import UsageError
    from starc.targets.names import numbers
    from starc.validation.registry import role_of
    from starc.validation.runner import default_jobs
    from starc.validation.sensitivity import representative, sensitivity, swept_numbers
    from starc.validation.watching import Job, modes_to_compare, watch_all

    chosen = representative(
        [case for case in cases if role_of(case, shipped=True) not in ("input", "shown")]
    )
    swept = swept_numbers(numbers(target))
    if not chosen:
        raise UsageError(
            f"no row of {target} is there to be watched: those given are inputs or shown only; "
            "choose other files or classes with --only, or give some with --data"
        )
    if options.number:
        swept = tuple(number for number in swept if number.key in options.number)
    modes = modes_to_compare(target)
    names = list(modes)

    def watch(changes: Sequence[Mapping[str, float]]) -> Iterable[Watched | str]:
        jobs = [Job(target, chosen, modes, model, change) for change in changes]
        return watch_all(jobs, options.jobs or default_jobs())

    conclusions = [(names[0], names[1])] if len(names) > 1 else []
    with Bar(f"sensitivity of {target}") as bar:
        return sensitivity(target, swept, chosen, watch, conclusions, progress=bar.update)
