"""What the streams of a template do to their semaphores, counted without executing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starc.core.streams.stream_template import (
    Acquire,
    Branch,
    Loop,
    Node,
    Release,
    StreamTemplate,
    nodes,
)


@dataclass(frozen=True)
class Problem:
    """``kind`` is ``read-before-arrival``, ``overwrite`` (before all have read), ``use-after-
    recycle`` (the bytes have become another tile's), ``unordered-writes``, ``producers``,
    ``consumers``, ``unbalanced`` or ``hang``; ``origin`` that of the instruction at fault."""

    kind: str
    message: str
    origin: object = field(default=None, compare=False)
    hint: str | None = None


def joined_wrongly(template: StreamTemplate) -> list[Problem]:
    """Semaphores that several streams release, or several acquire."""
    releasing: dict[int, dict[str, Release]] = {}
    acquiring: dict[int, dict[str, Acquire]] = {}
    for engine, body in template.streams:
        for node in nodes(body):
            if isinstance(node, Release):
                releasing.setdefault(node.semaphore, {})[engine] = node
            elif isinstance(node, Acquire):
                acquiring.setdefault(node.semaphore, {})[engine] = node
    found: list[Problem] = []
    for index, semaphore in enumerate(template.semaphores):
        for kind, verb, by_semaphore in (
            ("producers", "release", releasing),
            ("consumers", "acquire", acquiring),
        ):
            users = by_semaphore.get(index, {})
            if len(users) > 1:
                *some, last = users
                found.append(
                    Problem(
                        kind,
                        f"{template.name}: the streams {', '.join(some)} and {last} {verb} "
                        f"%{semaphore.name}: one stream {verb}s a semaphore",
                        users[last].origin,
                    )
                )
    return found


def unbalanced(template: StreamTemplate, coordinates: Mapping[str, int]) -> list[Problem]:
    """Semaphores that do not end with what they start with."""
    balance = [0] * len(template.semaphores)
    origin: dict[int, object] = {}

    def count(body: Sequence[Node], environment: Mapping[str, int], times: int) -> None:
        for node in body:
            match node:
                case Acquire() | Release():
                    balance[node.semaphore] += times if isinstance(node, Release) else -times
                    origin[node.semaphore] = node.origin
                case Branch():
                    if node.condition.evaluate(environment) >= 0:
                        count(node.body, environment, times)
                case Loop():
                    lower = node.lower.evaluate(environment)
                    trips = max(node.upper.evaluate(environment) - lower, 0)
                    if not node.varies:
                        if trips:
                            count(node.body, {**environment, node.variable: lower}, times * trips)
                        continue
                    for trip in range(trips):
                        count(node.body, {**environment, node.variable: lower + trip}, times)
                case _:
                    pass

    for _, body in template.streams:
        count(body, coordinates, 1)
    return [
        Problem(
            "unbalanced",
            f"{template.name}: %{semaphore.name} is released {_times(abs(balance[index]))} "
            f"{'more' if balance[index] > 0 else 'less'} often than it is acquired",
            origin.get(index),
            f"it starts at {semaphore.initial} and must end there",
        )
        for index, semaphore in enumerate(template.semaphores)
        if balance[index]
    ]


def _times(count: int) -> str:
    return "1 time" if count == 1 else f"{count} times"
