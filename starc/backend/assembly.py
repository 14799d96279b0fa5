"""Builds programs: what ``pack`` and hand-written programs share. Templates are built by
``starc.backend.template``; the assembler collects them with buffers, counters and launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from starc.backend.expressions import ExpressionPool, FormatError, variable_ids
from starc.backend.program import (
    EXPR,
    LAUNCH,
    PART,
    RECORD,
    TILE,
    BufferInfo,
    BufferMemory,
    CounterInfo,
    LayerInfo,
    LayoutKind,
    Opcode,
    Program,
    Role,
    Rows,
    Space,
    TemplateInfo,
)
from starc.backend.template import TemplateAssembler
from starc.core.element_types import ElementType
from starc.core.extents import LogicalExtents
from starc.core.vector_functions.function import OPERAND_FIELDS

PAGE_BYTES: Final = 4096  # every buffer starts at a multiple of the interleave granule

_ABSENT: Final = {
    key: -1
    for key in (*OPERAND_FIELDS, "buffer", "peer", *(f"e{i}" for i in range(8)), "end", "location")
}


def _rows(dtype: np.dtype[Any], rows: Sequence[Mapping[str, int]]) -> Rows:
    array = np.zeros(len(rows), dtype)
    names = dtype.names or ()
    for key in names:
        array[key] = [row.get(key, _ABSENT.get(key, 0)) for row in rows]
    return array


@dataclass
class ProgramAssembler:
    """Collects buffers, templates and launches; ``finish`` returns the program."""

    name: str
    target: dict[str, Any]
    mesh: tuple[tuple[str, int], ...]
    kernel_classes: tuple[str, ...] = (
        "gemm",
        "attention",
        "norm",
        "elementwise",
        "append",
        "embedding",
        "collective",
    )

    def __post_init__(self) -> None:
        self.pool = ExpressionPool(variable_ids(self.mesh))
        self.buffers: list[BufferInfo] = []
        self._types: list[ElementType] = []
        self.counters: list[CounterInfo] = []
        self.templates: list[TemplateInfo] = []
        self.records: list[dict[str, int]] = []
        self.tiles: list[tuple[int, ...]] = []
        self.launches: list[dict[str, int]] = []
        self.launch_names: list[str] = []
        self.launch_kinds: list[str] = []
        self.launch_attributes: list[dict[str, Any]] = []
        self.parts: list[tuple[int, int, int]] = []
        self.layers: list[LayerInfo] = []
        self.locations: dict[tuple[str, int, int], int] = {}
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self._next_address = PAGE_BYTES

    def location(self, place: tuple[str, int, int] | None) -> int:
        if place is None:
            return -1
        return self.locations.setdefault(place, len(self.locations))

    def _allocate(self, size: int) -> int:
        address = self._next_address
        self._next_address += -(-size // PAGE_BYTES) * PAGE_BYTES
        return address

    def buffer(
        self,
        name: str,
        shape: Sequence[int],
        dtype: ElementType,
        *,
        block: Sequence[int] = (),
        space: Space = Space.PRIVATE,
        role: Role = Role.ACTIVATION,
        address: int | None = None,
        size: int | None = None,
        type_text: str = "",
        extents: LogicalExtents | None = None,
        memory: BufferMemory = BufferMemory.HBM,
    ) -> int:
        """A buffer; without ``address`` after the ones before it, page aligned. A ``block`` makes
        it blocked, ``extents`` uneven. One in scratch ``memory`` has the ``address`` that it is
        given there, 0 by default. Inputs and outputs are those of the roles of that name."""
        padded = [-(-n // b) * b for n, b in zip(shape, block or (1,) * len(shape), strict=True)]
        bytes_ = int(np.prod(padded)) * dtype.bytes if size is None else size
        kind = LayoutKind.BLOCKED if block else LayoutKind.ROW_MAJOR
        if address is None:
            address = self._allocate(bytes_) if memory is BufferMemory.HBM else 0
        self.buffers.append(
            BufferInfo(
                name,
                dtype,
                tuple(shape),
                kind,
                tuple(block),
                address,
                bytes_,
                space,
                role,
                type_text,
                extents,
                memory,
            )
        )
        self._types.append(dtype)
        if role is Role.INPUT:
            self.inputs.append(name)
        elif role is Role.OUTPUT:
            self.outputs.append(name)
        return len(self.buffers) - 1

    def counter(self, name: str, count: int, *, address: int | None = None) -> int:
        """An array of counters, 64 bytes apart (a signal is a put of 64 bytes)."""
        start = self._allocate(64 * count) if address is None else address
        self.counters.append(CounterInfo(name, count, start))
        return len(self.counters) - 1

    def template(self, name: str) -> TemplateAssembler:
        """A new template; pass it to ``add`` when it is complete."""
        return TemplateAssembler(name, self.pool, self._types)

    def add(
        self,
        template: TemplateAssembler,
        *,
        waves: int = 4,
        window_bytes: int = 16384,
        piece_bytes: int = 4096,
        scratch_bytes: int | None = None,
        register_bytes: int | None = None,
    ) -> int:
        """Adds a complete template and returns its index."""
        if template.open:
            raise FormatError(f"kernel {template.name} ends inside a loop or if")
        self.templates.append(
            TemplateInfo(
                template.name,
                len(self.records),
                len(template.records),
                len(self.tiles),
                len(template.tiles),
                waves,
                template.scratch_bytes if scratch_bytes is None else scratch_bytes,
                template.register_bytes if register_bytes is None else register_bytes,
                window_bytes,
                piece_bytes,
                tuple(template.streams),
                tuple(template.semaphores),
            )
        )
        self.records.extend(template.records)
        self.tiles.extend(template.tiles)
        return len(self.templates) - 1

    def launch(
        self,
        name: str,
        parts: Sequence[tuple[int, int]],
        *,
        kind: str = "elementwise",
        kernel_class: str | None = None,
        queue: int = 0,
        gap_ps: int = 0,
        prologue_ps: int = 0,
        depends: int = -1,
        bands: int = 1,
        engines: bool = False,
        location: int = -1,
        attributes: Mapping[str, Any] | None = None,
    ) -> int:
        """A launch of parts (template, workgroups) on every device, in the layer opened last.
        ``kernel_class`` (by default the ``kind``) is the class of its launch costs; the parts
        take turns in ``bands`` bands, whose number divides the workgroups of each. With ``engines``
        the workgroups are streams of the device's copy engines."""
        first_part, first = len(self.parts), 0
        for template, workgroups in parts:
            self.parts.append((template, first, workgroups))
            first += workgroups
        self.launches.append(
            {
                "layer": len(self.layers) - 1,
                "queue": queue,
                "first_part": first_part,
                "parts": len(parts),
                "workgroups": first,
                "bands": bands,
                "kernel_class": self.kernel_classes.index(kernel_class or kind),
                "depends": depends,
                "waits": int(any(self._waits(template) for template, _ in parts)),
                "engines": int(engines),
                "gap_ps": gap_ps,
                "prologue_ps": prologue_ps,
                "location": location,
            }
        )
        self.launch_names.append(name)
        self.launch_kinds.append(kind)
        self.launch_attributes.append(dict(attributes or {}))
        return len(self.launches) - 1

    def layer(self, name: str, count: int = 1) -> None:
        """Opens a layer: the launches that follow are its."""
        self._close_layer()
        self.layers.append(LayerInfo(name, count, len(self.launches), 0))

    def _close_layer(self) -> None:
        if self.layers:
            last = self.layers[-1]
            launches = len(self.launches) - last.first_launch
            self.layers[-1] = LayerInfo(last.name, last.count, last.first_launch, launches)

    def _waits(self, template: int) -> bool:
        info = self.templates[template]
        body = self.records[info.first_record : info.first_record + info.records]
        return any(record["op"] == Opcode.WAIT for record in body)

    def finish(self) -> Program:
        self._close_layer()
        nodes = np.zeros(len(self.pool.nodes), EXPR)
        for key, column in zip(
            ("op", "l", "r", "imm"), zip(*self.pool.nodes, strict=True), strict=False
        ):
            nodes[key] = column
        tiles = np.array(self.tiles, TILE) if self.tiles else np.zeros(0, TILE)
        return Program(
            name=self.name,
            target=self.target,
            mesh=self.mesh,
            buffers=tuple(self.buffers),
            counters=tuple(self.counters),
            templates=tuple(self.templates),
            layers=tuple(self.layers),
            launch_names=tuple(self.launch_names),
            launch_kinds=tuple(self.launch_kinds),
            launch_attributes=tuple(self.launch_attributes),
            kernel_classes=self.kernel_classes,
            locations=tuple(self.locations),
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            records=_rows(RECORD, self.records),
            expressions=nodes,
            tiles=tiles,
            launches=_rows(LAUNCH, self.launches),
            parts=np.array(self.parts, PART) if self.parts else np.zeros(0, PART),
            tables=np.array(self.pool.tables, np.int64),
        )
