"""Simulates cases: each distinct program once, in worker processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

from starc.diagnostics import Diagnostic, InputError, Location, UsageError
from starc.validation.context import Context
from starc.validation.registry import GENERAL, effort_of, key_of, known_file, machine_of, module_of
from starc.validation.rows import Case

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
    for done, (key, found) in enumerate(_run_all(order, context, jobs), 1):
        if isinstance(found, str):
            case = distinct[key]
            place = Location(case.file, case.line, 1)
            problems.append(Diagnostic(f"the row cannot be simulated: {found}", place))
        else:
            values[key] = found
        progress(done, len(order))
    if problems:
        raise InputError(sorted(problems, key=lambda item: str(item.location)))
    return [values[key_of(case)] for case in cases]


def _run_all(
    order: Sequence[tuple[Hashable, Case]], context: Context, jobs: int
) -> Iterator[tuple[Hashable, float | str]]:
    workers = min(jobs, len(order), MOST_JOBS)
    if workers <= 1:
        for key, case in order:
            yield key, simulate_case(case, context)
        return
    method = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=method) as pool:
        try:
            futures = {pool.submit(simulate_case, case, context): key for key, case in order}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except (BrokenProcessPool, KeyboardInterrupt, GeneratorExit):
            pool.shutdown(wait=False, cancel_futures=True)
            raise


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
