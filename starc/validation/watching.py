"""What a sensitivity watches: cases, and a layer on several modes of a machine, simulated once for
each set of replaced numbers, in worker processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starc.diagnostics import InputError, UsageError
from starc.targets.names import is_path, machine_file_of
from starc.validation.context import Context
from starc.validation.rows import Case
from starc.validation.runner import simulate_case
from starc.validation.sensitivity import Watched
from starc.validation.workers import in_workers

MODEL: Final = Path(__file__).parent / "data" / "layer.sa"


@dataclass(frozen=True)
class Job:
    """Everything that one simulation needs: ``modes`` are targets by the names of their modes."""

    target: str
    cases: tuple[Case, ...]
    modes: Mapping[str, str]
    model: str
    overrides: Mapping[str, float]


def modes_to_compare(target: str) -> dict[str, str]:
    """The targets of a machine's largest and smallest devices, by mode; one where it has one mode.
    Of several memory modes the validated one is taken, or else the first."""
    file = machine_file_of(target)
    path = target if target.endswith(".toml") else target.rpartition(":")[0]
    prefix = f"{path}:" if is_path(target) else f"{file.name}-"
    ordered = sorted(
        file.modes.items(),
        key=lambda item: (-int(item[1]["dies_per_device"]), item[1]["status"] != "validated"),
    )
    least = ordered[-1][1]["dies_per_device"]
    smallest = next(mode for mode, entry in ordered if entry["dies_per_device"] == least)
    return {mode: f"{prefix}{mode}" for mode in (ordered[0][0], smallest)}


def watch_one(job: Job) -> Watched | str:
    """The simulated values of a job, or in words why the machine cannot run it."""
    context = Context(job.target, job.overrides)
    values: list[float] = []
    for case in job.cases:
        found = simulate_case(case, context)
        if isinstance(found, str):
            return found
        values.append(found)
    layers: dict[str, float] = {}
    try:
        for mode, target in job.modes.items():
            layers[mode] = layer_seconds(job.model, target, job.overrides)
    except (InputError, UsageError) as error:
        return str(error).splitlines()[0]
    return Watched(tuple(values), layers)


def layer_seconds(model: str, target: str, overrides: Mapping[str, float]) -> float:
    """The time of a layer on one GPU of a target, which may fill it whatever else it holds."""
    from starc.api import CompileOptions, compile_and_simulate
    from starc.targets.loader import load_target

    machine = load_target(target, gpus=1, overrides=overrides)
    report = compile_and_simulate(CompileOptions(model, machine), ignore_capacity=True)
    assert report.layer.time_us is not None  # it was simulated
    return report.layer.time_us * 1e-6


def watch_all(jobs: Sequence[Job], processes: int) -> Iterator[Watched | str]:
    """The results of jobs in their order."""
    there: dict[int, Watched | str] = {}
    following = 0
    with closing(in_workers(watch_one, jobs, min(processes, len(jobs)))) as results:
        for index, found in results:
            there[index] = found
            while following in there:
                yield there.pop(following)
                following += 1
