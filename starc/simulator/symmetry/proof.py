"""Whether one GPU can stand for all: the rotation of GPUs as a symmetry of program and machine.

Every device runs the same launches, so a program says which GPU it runs on only in expressions.
``_Check`` reads all of them as forms and shows that each GPU does what its predecessor does, with
peers, counters and addresses one step further: peers by a fixed distance, the same conditions and
loops, addresses by a fixed number of bytes around the buffer, which keeps the stack of every byte
and where pieces are cut. A buffer with such addresses is *turning*: what accesses find of it in
the caches depends on hashes, which a rotation does not keep. So accesses that turn must leave the
L2 as it is, and each instruction on a turning buffer is watched while one GPU is run: what it
finds in the memory-side cache, and what one whose address turns finds in the L2, must be the same
for all of its pieces. Sets of the memory-side cache that hold turning buffers are watched too: no
hit or miss in them may hang on when those were used. Where that fails, the whole node is run.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from starc.backend.program import FLAG_ACQUIRE, FLAG_CACHED, BufferInfo, LayoutKind, Opcode, Program
from starc.backend.rows import engine_templates
from starc.core.memory.planning import rotation_unit
from starc.simulator.machine.address_map import BLOCK
from starc.simulator.machine.networks import network_tables
from starc.simulator.program.exchanges import exchanges
from starc.simulator.symmetry.forms import Form, Forms
from starc.targets.target import Target

MEMORY = (Opcode.LOAD, Opcode.STORE, Opcode.PUT, Opcode.GET)


@dataclass(frozen=True)
class Symmetry:
    """What the check found: the first reason why GPUs differ, or none and the turning buffers."""

    reason: str
    turning: frozenset[int] = frozenset()
    records: frozenset[int] = frozenset()  # whose addresses turn


class _Differs(Exception):
    """GPUs differ; the message says in what."""


def find_symmetry(program: Program, target: Target) -> Symmetry:
    """Whether one GPU of a target can stand for all of them in a program."""
    try:
        _check_machine(target)
        check = _Check(program, target)
        check.templates()
        return Symmetry("", check.turning(), frozenset(check.turned))
    except _Differs as found:
        return Symmetry(str(found))


def _check_machine(target: Target) -> None:
    if target.gpus < 2:
        raise _Differs("there is one GPU")
    # Ways from each GPU to the ones 1, 2, ... further.
    count = target.gpus
    gpus, distances = np.divmod(np.arange(count * (count - 1)), count - 1)
    distances += 1
    peers = (gpus + distances) % count
    tables = network_tables(target)
    for name, table in tables.items():
        values = table.reshape(count, count)[gpus, peers].astype(np.int64)
        if name == "next_gpus":
            values = (values - gpus) % count
        values = values.reshape(count, count - 1)
        for gpu, d in np.argwhere(values != values[:1]).tolist():
            raise _Differs(
                f"the network of the machine differs from GPU to GPU: the way from GPU {gpu} to "
                f"GPU {(gpu + d + 1) % count} is not the one from GPU 0 to GPU {d + 1}"
            )


@dataclass
class _Check:
    program: Program
    target: Target
    steps: dict[int, dict[int, str]] = field(init=False)  # per buffer: bytes a GPU, and where
    counter_steps: dict[int, dict[int, str]] = field(init=False)

    def __post_init__(self) -> None:
        self.steps = defaultdict(dict)
        self.counter_steps = defaultdict(dict)
        self.turned: list[int] = []
        self.forms = Forms(
            self.program.expressions.tolist(),
            self.program.tables.tolist(),
            self.target.devices_per_gpu,
            self.target.gpus,
            tuple(size for _, size in self.program.mesh),
        )
        self.exchanges = exchanges(self.program) | engine_templates(self.program)
        self.streams = False
        self.none = self.forms.variable((0, 0))
        self.unit = address_unit(self.target)

    def turning(self) -> frozenset[int]:
        """The buffers that are addressed by the GPU."""
        return frozenset(
            buffer for buffer, steps in self.steps.items() if any(step for step in steps)
        )

    def templates(self) -> None:
        """Checks every kernel body, then what their addresses have in common."""
        most: dict[int, int] = defaultdict(int)
        for row in self.program.parts:
            template = int(row["template"])
            most[template] = max(most[template], int(row["workgroups"]))
        for template, workgroups in sorted(most.items()):
            self._template(template, workgroups)
        for buffer, steps in self.steps.items():
            if len([step for step in steps if step]) > 1:
                self._contradiction(f"@{self.program.buffers[buffer].name}", steps)
        for counter, steps in self.counter_steps.items():
            if len(steps) > 1:
                self._contradiction(f"@{self.program.counters[counter].name}", steps)

    def _contradiction(self, name: str, steps: dict[int, str]) -> None:
        found = "; ".join(f"by {step} in {where}" for step, where in sorted(steps.items()))
        raise _Differs(f"{name} turns with the GPU in more than one way: {found}")

    def _template(self, number: int, workgroups: int) -> None:
        info = self.program.templates[number]
        self.streams = number in self.exchanges
        variables = [self.forms.variable((0, workgroups - 1))]
        records = self.program.records[info.first_record : info.first_record + info.records]
        for number, row in enumerate(records, info.first_record):
            op = int(row["op"])
            where = self._where(info.name, row)
            named = tuple(variables) + (self.none,) * (5 - len(variables))
            if op == Opcode.LOOP:
                self._same(row, ("e0", "e1"), named, f"the range of a loop of {where}")
                low = self.forms.span(self.forms.expression(int(row["e0"]), named))[0]
                high = self.forms.span(self.forms.expression(int(row["e1"]), named))[1]
                variables.append(self.forms.variable((low, max(low, high - 1))))
            elif op == Opcode.END_LOOP:
                variables.pop()
            elif op == Opcode.IF:
                self._same(row, ("e0",), named, f"a condition of {where}")
            elif op in MEMORY:
                self._peer(row, named, where)
                if self._address(row, named, where):
                    self.turned.append(number)
            elif op in (Opcode.SIGNAL, Opcode.WAIT):
                self._peer(row, named, where)
                self._same(row, ("e1",), named, f"the value of a counter of {where}")
                self._counter(row, named, where)

    def _where(self, template: str, row: Any) -> str:
        locations = self.program.locations
        place = int(row["location"])
        if not 0 <= place < len(locations):
            return f"@{template}"
        file, line, column = locations[place]
        return f"@{template} ({file}:{line}:{column})"

    def _same(self, row: Any, names: tuple[str, ...], named: tuple[int, ...], what: str) -> None:
        for name in names:
            node = int(row[name])
            if self.forms.names_device(node):
                if self.forms.turns(self.forms.expression(node, named)):
                    raise _Differs(f"{what} depends on the GPU")

    def _peer(self, row: Any, named: tuple[int, ...], where: str) -> None:
        node = int(row["peer"])
        if node < 0:
            return
        peer = self.forms.expression(node, named)
        step = self.forms.step([(peer, 1)], self.target.devices)
        low, high = self.forms.exact_span(peer)
        if step != self.target.devices_per_gpu or low < 0 or high >= self.target.devices:
            raise _Differs(f"a peer in {where} is no rotation of the GPUs")

    def _counter(self, row: Any, named: tuple[int, ...], where: str) -> None:
        counter = int(row["buffer"])
        info = self.program.counters[counter]
        node = int(row["e0"])
        step = 0
        if self.forms.names_device(node):
            element = self.forms.expression(node, named)
            found = self.forms.step([(element, 1)], info.count)
            one_block = (info.address + 64 * info.count - 1) // BLOCK == info.address // BLOCK
            if found is None or (found and not one_block):
                raise _Differs(f"@{info.name} in {where} does not turn with the GPU")
            step = found
        self.counter_steps[counter].setdefault(step, where)

    def _address(self, row: Any, named: tuple[int, ...], where: str) -> bool:
        """Whether an address turns with the GPU."""
        buffer = int(row["buffer"])
        info = self.program.buffers[buffer]
        if info.extents is not None:
            self._extents(info)
        dims = int(row["dims"])
        nodes = [int(row[f"e{i}"]) for i in range(dims)]
        starts = [self.forms.expression(node, named) for node in nodes]
        if not any(self.forms.turns(start) for start in starts):
            self.steps[buffer].setdefault(0, where)
            return False
        for i, start in enumerate(starts):
            if not self.forms.turns(start):
                continue
            low, high = self.forms.exact_span(start)
            end = high + int(row[f"n{i}"])
            if low < 0 or end > info.shape[i]:
                raise _Differs(f"a tile of @{info.name} in {where} may reach over its end")
        op, flags = int(row["op"]), int(row["flags"])
        past = op in (Opcode.PUT, Opcode.GET) and not flags & FLAG_CACHED
        past |= bool(op == Opcode.LOAD and flags & FLAG_ACQUIRE) or self.streams
        past |= not self.target.has_l2
        if not past:
            raise _Differs(f"@{info.name} turns with the GPU through the L2 in {where}")
        parts, size = self._offset(info, starts, where)
        step = self.forms.step(parts, size)
        if step is None:
            raise _Differs(f"the address of @{info.name} in {where} does not turn with the GPU")
        if step % self.unit:
            raise _Differs(
                f"GPUs are {step} bytes apart in @{info.name} in {where}: no multiple of "
                f"{self.unit}, so they use other memory stacks"
            )
        if step and self.target.interleave_hashed:
            raise _Differs(f"@{info.name} in {where} turns with the GPU, and stacks are hashed")
        if step and not self.streams:
            # Such GPUs were found some ten picoseconds apart, without anything found differently
            # in a cache: that they stay alike is not shown.
            raise _Differs(f"{where} exchanges @{info.name} between GPUs while it computes")
        self.steps[buffer].setdefault(step, where)
        return step != 0

    def _extents(self, info: BufferInfo) -> None:
        extents = info.extents
        assert extents is not None
        devices = self.target.devices_per_gpu
        for device, shape in enumerate(extents.shapes):
            first = device % devices
            same = shape == extents.shapes[first]
            if extents.rotation is not None:
                same &= extents.rotation.counts(device) == extents.rotation.counts(first)
            if not same:
                raise _Differs(f"GPUs hold different parts of @{info.name}")

    def _offset(
        self, info: BufferInfo, starts: list[Form], where: str
    ) -> tuple[list[tuple[Form, int]], int]:
        """The offset of a tile in its buffer, in bytes, as forms and factors, and the buffer's
        size."""
        missing = 4 - len(info.shape)
        shape = (1,) * missing + info.shape
        start = [Form(0)] * missing + starts
        size = info.dtype.bytes
        if info.layout is LayoutKind.ROW_MAJOR:
            parts: list[tuple[Form, int]] = []
            for i in reversed(range(4)):
                parts.append((start[i], size))
                size *= shape[i]
            return parts, size
        block = (1,) * (4 - len(info.block)) + info.block
        outer, rows, row, length = start[0] * shape[1] + start[1], block[2], start[2], shape[2]
        outers = shape[0] * shape[1]
        if block[1] > 1:
            # Two dimensions are the rows of one matrix.
            outer, rows = start[0], block[1] * block[2]
            row, length = start[1] * shape[2] + start[2], shape[1] * shape[2]
            outers = shape[0]
        columns, down, across = block[3], -(-length // rows), -(-shape[3] // block[3])
        band, strip = self.forms.divide(row, rows), self.forms.divide(start[3], columns)
        inside = [row - band * rows, start[3] - strip * columns]
        if any(self.forms.turns(form) for form in inside):
            raise _Differs(f"GPUs differ by parts of a block of @{info.name} in {where}")
        whole = rows * columns * size
        parts = [
            (inside[1], size),
            (inside[0], columns * size),
            (strip, whole),
            (band, across * whole),
            (outer, down * across * whole),
        ]
        return parts, outers * down * across * whole


def address_unit(target: Target) -> int:
    """Bytes by which an address can move and stay on its stack, in its place in a block, and on
    its way around the ring."""
    stacks = target.stacks // target.memory_domains
    # Between carriers in a mesh there is one way.
    carriers = 1 if target.grid else target.carriers
    return rotation_unit(target.interleave_granule, stacks, carriers)
