"""Accesses of the slots of tiles, and what is wrong with one that does not come in its turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from starc.core.streams.stream_balance import Problem
from starc.core.streams.stream_template import (
    Acquire,
    Instruction,
    Integers,
    Release,
    StreamTemplate,
    Use,
    Wait,
)


class Step(NamedTuple):
    """An instruction in one trip of its loops: the values of their counters, and how many trips
    each has behind it."""

    node: Instruction
    iteration: tuple[int, ...]
    turns: tuple[int, ...]


@dataclass
class Access:
    """An access that is complete when the clock's ``component`` has reached ``time``."""

    component: int
    time: int
    stream: int
    step: Step


@dataclass
class Slot:
    """A slot of a tile: who wrote it last, who has read that, and who took its bytes since."""

    write: Access | None = None
    reads: dict[int, Access] = field(default_factory=dict[int, Access])
    taken: tuple[int, Access] | None = None


class Findings:
    """The problems of a template, each once, and what their messages call its instructions."""

    def __init__(self, template: StreamTemplate) -> None:
        self.template = template
        self.problems: list[Problem] = []
        self._known: set[tuple[object, ...]] = set()

    def report(self, kind: str, message: str, step: Step, about: object) -> None:
        key = (kind, id(step.node), about)
        if key not in self._known:
            self._known.add(key)
            self.problems.append(
                Problem(kind, f"{self.template.name}: {message}", step.node.origin)
            )

    def text(self, index: int, step: Step) -> str:
        node = step.node
        match node:
            case Use():
                text = node.text
            case Wait():
                text = f"wait for @{node.counter}"
            case Acquire():
                text = f"acquire of %{self.template.semaphores[node.semaphore].name}"
            case Release():
                text = f"release of %{self.template.semaphores[node.semaphore].name}"
        engine = self.template.streams[index][0]
        iteration = f" of iteration {list(step.iteration)}" if step.iteration else ""
        place = f" ({node.place})" if node.place else ""
        return f"{engine}'s {text}{iteration}{place}"


class Accesses:
    """The slots of a template's tiles, with the accesses that matter for the next ones."""

    def __init__(self, template: StreamTemplate, findings: Findings) -> None:
        self.template = template
        self.text, self.report = findings.text, findings.report
        self.first = [0]  # of each tile, its first slot among all slots
        for tile in template.tiles:
            self.first.append(self.first[-1] + tile.slots)
        self.slots = [Slot() for _ in range(self.first[-1])]
        self.beside = self._beside()

    def _beside(self) -> list[list[tuple[int, int]]]:
        """For each slot the (tile, slot) of others that lie on some of its bytes."""
        spans = [
            (tile, self.first[tile] + slot, *info.span(slot))
            for tile, info in enumerate(self.template.tiles)
            if info.offset is not None
            for slot in range(info.slots)
        ]
        found: list[list[tuple[int, int]]] = [[] for _ in self.slots]
        for _, slot, first, end in spans:
            found[slot] += [
                (other, other_slot)
                for other, other_slot, other_first, other_end in spans
                if slot != other_slot and first < other_end and other_first < end
            ]
        return found

    def slot_of(self, tile: int, step: Step) -> int:
        info = self.template.tiles[tile]
        turn = step.turns[info.turns - 1] % info.slots if info.turns else 0
        return self.first[tile] + turn

    def read(self, slot: int, access: Access) -> None:
        """Notes a read of a slot."""
        self.slots[slot].reads[access.component] = access

    def write(self, tile: int, slot: int, access: Access) -> None:
        """Notes a write of a tile's slot, whose bytes other tiles lose."""
        self.slots[slot] = Slot(access)
        for _, other in self.beside[slot]:
            self.slots[other].taken = (tile, access)

    def check_read(self, index: int, clock: Integers, step: Step, tile: int, slot: int) -> None:
        info, state = self.template.tiles[tile], self.slots[slot]
        for other, beside in self.beside[slot]:
            access = self.slots[beside].write
            if access is not None and not _is_before(access, clock):
                self._recycled(index, step, tile, other, access, "is still to write")
        if state.write is None:
            text = f"{self.text(index, step)} reads %{info.name} before anything has written it"
            self.report("read-before-arrival", text, step, tile)
            return
        held = state.write.step.iteration[: info.turns]
        in_turn = _is_before(state.write, clock) and held == step.iteration[: info.turns]
        if in_turn and state.taken is None:
            return
        if not in_turn:
            self._out_of_turn(index, step, tile, state.write)
        elif state.taken is not None:
            other, access = state.taken
            text = (
                f"{self.text(index, step)} reads %{info.name}, whose bytes have become those of "
                f"%{self.template.tiles[other].name}, which "
                f"{self.text(access.stream, access.step)} has written"
            )
            self.report("use-after-recycle", text, step, (tile, other))

    def _out_of_turn(self, index: int, step: Step, tile: int, write: Access) -> None:
        """A read that is not ordered behind the write of its own iteration."""
        info, written = self.template.tiles[tile], write.step.iteration
        held, wanted = written[: info.turns], step.iteration[: info.turns]
        reader, writer = (
            self.text(index, step),
            self.text(write.stream, write.step),
        )
        common = min(len(written), len(step.iteration))
        if written[:common] > step.iteration[:common]:
            text = f"{writer} overwrites %{info.name} before {reader} has read it"
            self.report("overwrite", text, write.step, tile)
        elif held == wanted:
            text = f"{reader} reads %{info.name} before {writer} has written it"
            self.report("read-before-arrival", text, step, tile)
        else:
            text = (
                f"{reader} reads %{info.name}, whose slot still holds iteration {list(held)}, "
                f"which {writer} has written"
            )
            self.report("read-before-arrival", text, step, tile)

    def check_write(self, index: int, clock: Integers, step: Step, tile: int, slot: int) -> None:
        info, state = self.template.tiles[tile], self.slots[slot]
        if state.write is not None and not _is_before(state.write, clock):
            other = self.text(state.write.stream, state.write.step)
            text = f"{self.text(index, step)} and {other} write %{info.name} in any order"
            self.report("unordered-writes", text, step, tile)
        for access in state.reads.values():
            if _is_before(access, clock):
                continue
            reader, writer = (
                self.text(access.stream, access.step),
                self.text(index, step),
            )
            if self._is_meant(access, step, state):
                text = f"{reader} reads %{info.name} before {writer} has written it"
                self.report("read-before-arrival", text, access.step, tile)
            else:
                text = f"{writer} overwrites %{info.name} before {reader} has read it"
                self.report("overwrite", text, step, tile)
        for other, beside in self.beside[slot]:
            there = self.slots[beside]
            for access in there.reads.values():
                if not _is_before(access, clock):
                    self._recycled(index, step, tile, other, access, "is still to read")
            if there.write is not None and not _is_before(there.write, clock):
                self._recycled(index, step, tile, other, there.write, "is still to write")

    def _is_meant(self, read: Access, writing: Step, state: Slot) -> bool:
        """Whether a read that is not ordered with a write should have seen what it writes: both
        are of one iteration, or the write of an earlier one, and the slot held nothing that its
        iteration had written before."""
        common = min(len(read.step.iteration), len(writing.iteration))
        mine, its = read.step.iteration[:common], writing.iteration[:common]
        if mine != its:
            return mine > its
        held = state.write
        return held is None or held.step.iteration[:common] < mine

    def _recycled(
        self, index: int, step: Step, tile: int, other: int, access: Access, what: str
    ) -> None:
        mine, its = self.template.tiles[tile], self.template.tiles[other]
        verb = "writes" if tile in _written(step.node) else "reads"
        text = (
            f"{self.text(index, step)} {verb} %{mine.name}, while "
            f"{self.text(access.stream, access.step)} {what} %{its.name}, which lies on the "
            "same bytes"
        )
        self.report("use-after-recycle", text, step, (tile, other))


def _is_before(access: Access, clock: Integers) -> bool:
    """Whether an access is complete before the next instruction of a stream with this clock."""
    return bool(clock[access.component] >= access.time)


def _written(node: Instruction) -> tuple[int, ...]:
    return node.writes if isinstance(node, Use) else ()
