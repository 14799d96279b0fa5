"""The ``phase`` blocks: how much work one step of the model is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from starc.diagnostics import Location, UsageError, closest, suggestion
from starc.frontend.evaluation import Evaluator, Value, as_size
from starc.frontend.model_parameters import ModelParameters
from starc.frontend.problems import Problems
from starc.frontend.syntax import Phase, SourceFile

MOST_NEW_TOKENS: Final = 2**22
"""New tokens of a step, of all sequences together, that are compiled: far above what any machine
holds, far below what the compiler cannot."""

PhaseName = Literal["decode", "prefill"]

ENTRIES: Final[dict[str, tuple[str, ...]]] = {
    "decode": ("batch", "context"),
    "prefill": ("batch", "prompt", "context"),
}
"""Phases and what each may say."""


@dataclass(frozen=True)
class Workload:
    """One step: ``batch`` sequences of ``query`` new tokens, each of which attends to at most
    ``context`` tokens, the new ones included."""

    phase: str
    batch: int
    query: int
    context: int

    @property
    def start(self) -> int:
        """Position of the first new token."""
        return self.context - self.query


@dataclass(frozen=True)
class Request:
    """What the caller asked for instead of what the file says; None leaves it to the file."""

    phase: str | None = None
    batch: int | None = None
    context: int | None = None
    prompt: int | None = None


def evaluate_workload(
    source: SourceFile, model: ModelParameters, request: Request, problems: Problems
) -> Workload | None:
    """The step to compile: the requested phase, or the file's first, with the request's numbers in
    place of the file's. All phases of the file are checked. None, reported, if it is wrong.

    Raises ``UsageError`` for a phase that does not exist.
    """
    if request.phase is not None and request.phase not in ENTRIES:
        close = suggestion(request.phase, list(ENTRIES))
        raise UsageError(
            f"no phase '{request.phase}'"
            + (f" ({close})" if close else "")
            + f": there are {' and '.join(ENTRIES)}"
        )
    phases: dict[str, tuple[Phase, dict[str, int]]] = {}
    for phase in source.phases:
        name = phase.name
        if name.text not in ENTRIES:
            problems.unknown_name("phase", name.text, list(ENTRIES), name.location)
        elif name.text in phases:
            first = phases[name.text][0].name.location.line
            problems.report(
                f"the phase '{name.text}' is given twice; first in line {first}", name.location
            )
        else:
            phases[name.text] = (phase, _entries(phase, model, problems))
    chosen = request.phase or next(iter(phases), None)
    if chosen is None:
        if not source.phases:
            problems.report(
                "the file has no phase",
                Location(source.file, max(1, _last_line(source)), 1),
                hint="a phase is: phase decode { batch = 16, context = 16k }",
            )
        return None
    steps: dict[str, Workload | None] = {}
    for name, (phase, entries) in phases.items():
        asked = request if name == chosen else Request()
        steps[name] = _step(name, phase, entries, asked, problems)
    if chosen not in steps:
        steps[chosen] = _step(chosen, None, {}, request, problems)
    return steps[chosen]


def _last_line(source: SourceFile) -> int:
    lines = [layer.name.location.line for layer in source.layers]
    return max(lines + [stack.location.line for stack in source.stacks], default=1)


def _entries(phase: Phase, model: ModelParameters, problems: Problems) -> dict[str, int]:
    """The numbers of a phase block; a wrong one is left out, as -1, and so is one that a misspelt
    name most likely stands for."""
    legal = ENTRIES[phase.name.text]
    numbers: dict[str, int] = {}
    misspelt: list[str] = []
    for entry in phase.entries:
        name, location = entry.name.text, entry.name.location
        if name not in legal:
            meant = closest(name, legal)
            if meant is not None:
                misspelt.append(meant)
            problems.report(
                f"the phase '{phase.name.text}' has no '{name}'",
                location,
                hint=suggestion(name, legal) or f"it has {', '.join(legal)}",
            )
        elif name in numbers:
            problems.report(f"'{name}' is given twice", location)
        else:
            value: Value = Evaluator(model.values, problems).evaluate(entry.value)
            size = as_size(value, name, problems, entry.value.location)
            numbers[name] = -1 if size is None else size
    for name in misspelt:
        numbers.setdefault(name, -1)
    return numbers


def _step(
    name: str, phase: Phase | None, entries: dict[str, int], request: Request, problems: Problems
) -> Workload | None:
    numbers = dict(entries)
    requested = {"batch": request.batch, "context": request.context, "prompt": request.prompt}
    for entry, value in requested.items():
        if value is None:
            continue
        if entry not in ENTRIES[name]:
            problems.report(f"the phase '{name}' has no '{entry}'", key=f"--{entry}")
            return None
        size = as_size(value, entry, problems, None, f"--{entry}")
        numbers[entry] = -1 if size is None else size
    location = phase.name.location if phase is not None else None
    if name == "prefill":
        # A prompt is the whole context unless it is a later chunk of a longer one.
        numbers.setdefault("context", numbers.get("prompt", -1))
    missing = [entry for entry in ENTRIES[name] if entry not in numbers]
    for entry in missing:
        problems.report(f"the phase '{name}' needs '{entry}'", location, hint=_hint(name, phase))
    if missing or -1 in numbers.values():
        return None
    query = numbers["prompt"] if name == "prefill" else 1
    context = numbers["context"]
    if context < query:
        asked = [f"--{entry}" for entry in ("context", "prompt") if requested[entry] is not None]
        problems.report(
            f"the context of {context} tokens is smaller than the prompt of {query}: it counts "
            "the prompt's tokens too",
            None if asked else location,
            key=" ".join(asked) or None,
        )
        return None
    batch = numbers["batch"]
    if batch * query > MOST_NEW_TOKENS:
        asked = [f"--{entry}" for entry in ("batch", "prompt") if requested[entry] is not None]
        problems.report(
            f"{batch:,} sequences of {query:,} new tokens are {batch * query:,} tokens a step, at "
            f"most {MOST_NEW_TOKENS:,} are compiled",
            None if asked else location,
            key=" ".join(asked) or None,
        )
        return None
    return Workload(name, batch, query, context)


def _hint(name: str, phase: Phase | None) -> str | None:
    if phase is not None:
        return None
    options = " and ".join(f"--{entry}" for entry in ENTRIES[name] if entry != "context")
    if name == "decode":
        options = "--batch and --context"
    return f"the file has no phase '{name}': give {options}"
