"""Simulates cases: each distinct program once, in worker processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from starc.diagnostics import Diagnostic, InputError, Location, UsageError
from starc.validation.context import Context
from starc.validation.registry import GENERAL, effort_of, key_of, known_file, machine_of, module_of
from starc.validation.rows import Case
from starc.validation.workers import in_workers

MOST_JOBS = 64

Progress = Callable[[int, int], None]


def default_jobs() -> int:
    """Processors that this process may use."""
    return min(MOST_JOBS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


def simulate_cases(
    cases: Sequence[Case],
    context: Context,
    *,
    jobs: int = 1,
    progress: Progress = lambda done, total: None,
) -> list[float]:
    """The simulated values of cases, in their order. Raises ``InputError`` with every case that the
    machine cannot run. ``progress`` gets the number of programs done and of all."""
    distinct: dict[Hashable, Case] = {}
    for case in cases:
        distinct.setdefault(key_of(case), case)
    order = sorted(distinct.items(), key=lambda item: -effort_of(item[1]))
    values: dict[Hashable, float] = {}
    problems: list[Diagnostic] = []
    progress(0, len(order))
    workers = min(jobs, len(order), MOST_JOBS)
    chosen = [case for _, case in order]
    with closing(in_workers(partial(simulate_case, context=context), chosen, workers)) as results:
        for done, (index, found) in enumerate(results, 1):
            key, case = order[index]
            if isinstance(found, str):
                place = Location(case.file, case.line, 1)
                problems.append(Diagnostic(f"the row cannot be simulated: {found}", place))
            else:
                values[key] = found
            progress(done, len(order))
    if problems:
        raise InputError(sorted(problems, key=lambda item: str(item.location)))
    return [values[key_of(case)] for case in cases]


def simulate_case(case: Case, context: Context) -> float | str:
    """The simulated value of a case, or in words why the machine cannot run it."""
    file = known_file(case.file)
    if file.folder in GENERAL and (file.like or context.target is not None):
        name = machine_of(case.file, context.target)
        context = replace(context, target=name)
        if file.folder == GENERAL[0] and (own := context.machine(name)).devices > 1:
            return f"it is of one device, and a GPU of {name} has {own.devices}: take another mode"
    try:
        return module_of(case.file).simulate(case, context)
    except InputError as error:
        # Places in the text of the operation that the row was made to mean nothing to its reader.
        return "; ".join(dict.fromkeys(_reason(item) for item in error.diagnostics))
    except UsageError as error:
        return str(error)


def _reason(problem: Diagnostic) -> str:
    message = problem.message if problem.key is None else f"{problem.key}: {problem.message}"
    return message + (f" ({problem.hint})" if problem.hint else "")
