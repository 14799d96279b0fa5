"""Buffers of the kernel level and the layouts of their elements."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from xdsl.dialects.builtin import (
    ArrayAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    TensorType,
    i64,
)
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    traits_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from starc.core.element_types import BY_NAME
from starc.core.extents import LogicalExtents, of_encoding
from starc.core.memory.buffer_kinds import BufferMemory, BufferRole, BufferSpace
from starc.core.memory.layout import GRANULE, Layout
from starc.core.sharding.mesh import Mesh
from starc.dialects.sharding import encoding_of, global_shape, is_local

SCRATCH_ALIGNMENT: Final = 16


@irdl_attr_definition
class LayoutAttr(ParametrizedAttribute):
    """How the elements of a buffer lie in memory: ``#kernel.layout<row_major>`` or
    ``#kernel.layout<blocked [1, 32, 64]>`` with one block extent per dimension.

    ``layout(shape)`` gives the ``starc.core.memory.layout.Layout`` of a buffer of that shape.
    """

    name = "kernel.layout"

    kind: StringAttr
    block: ArrayAttr[IntegerAttr[IntegerType]]

    @classmethod
    def of(cls, layout: Layout) -> LayoutAttr:
        """The attribute of a layout (its shape is the buffer type's)."""
        block = [IntegerAttr(extent, i64) for extent in layout.block]
        return cls(StringAttr(layout.kind), ArrayAttr(block))

    @property
    def extents(self) -> tuple[int, ...]:
        """The block, empty when row-major."""
        return tuple(extent.value.data for extent in self.block)

    def layout(self, shape: Sequence[int]) -> Layout:
        """The layout of a buffer of ``shape``. Raises ``ValueError`` where it does not fit."""
        kind = "blocked" if self.kind.data == "blocked" else "row_major"
        return Layout(kind, tuple(shape), self.extents)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            if parser.parse_optional_keyword("row_major"):
                return (StringAttr("row_major"), ArrayAttr[IntegerAttr[IntegerType]]([]))
            parser.parse_keyword("blocked")
            block = parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE, lambda: parser.parse_integer(allow_negative=False)
            )
            return (
                StringAttr("blocked"),
                ArrayAttr([IntegerAttr(extent, i64) for extent in block]),
            )

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.kind.data)
            if self.block.data:
                printer.print_string(" ")
                with printer.in_square_brackets():
                    printer.print_list(self.extents, printer.print_int)

    def verify(self) -> None:
        if self.kind.data not in ("row_major", "blocked"):
            raise VerifyException(f"unknown layout '{self.kind.data}'")
        if (self.kind.data == "blocked") != bool(self.block.data):
            raise VerifyException("a blocked layout has a block, a row-major one has none")
        if any(extent < 1 for extent in self.extents):
            raise VerifyException("the extents of a block are positive")


@irdl_op_definition
class BufferOp(IRDLOperation):
    """A buffer of every device, at the same device-local address on each.

    ``address`` (bytes, 4 KiB aligned), ``bytes`` (padding of blocked layouts included), ``layout``,
    ``space`` (``private``: only its device reads it; ``symmetric``: peers write or read it),
    ``role`` (``weight``, ``state``, ``activation``, ``communication``, ``input``, ``output``: how
    the memory of a whole model counts it), ``memory`` (``hbm`` where absent; ``scratch``: queues
    that peers write, ``address`` being that in the scratch of every device).

    The type is the local tensor type with its encoding, by which global tensors are cut and
    reassembled. Parameters and states become buffers of their own names.
    """

    name = "kernel.buffer"

    sym_name = prop_def(StringAttr)
    type = prop_def(TensorType)
    address = prop_def(IntegerAttr)
    bytes = prop_def(IntegerAttr)
    layout = prop_def(LayoutAttr)
    space = prop_def(StringAttr)
    role = prop_def(StringAttr)
    memory = opt_prop_def(StringAttr)

    traits = traits_def(SymbolOpInterface())

    def __init__(
        self,
        name: str,
        type: TensorType[Attribute],
        *,
        address: int,
        layout: Layout,
        space: BufferSpace,
        role: BufferRole,
        element_bytes: int,
        memory: BufferMemory = BufferMemory.HBM,
    ) -> None:
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "type": type,
                "address": IntegerAttr(address, i64),
                "bytes": IntegerAttr(layout.bytes(element_bytes), i64),
                "layout": LayoutAttr.of(layout),
                "space": StringAttr(space.value),
                "role": StringAttr(role.value),
                "memory": None if memory is BufferMemory.HBM else StringAttr(memory.value),
            }
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The physical local shape."""
        return self.type.get_shape()

    def verify_(self) -> None:
        _require_one_of(BufferSpace, self.space, "space")
        _require_one_of(BufferRole, self.role, "role")
        if self.memory is not None:
            _require_one_of(BufferMemory, self.memory, "memory")
        self._verify_address(self.address.value.data)
        try:
            layout = self.layout.layout(self.shape)
        except ValueError as error:
            raise VerifyException(str(error)) from error
        width = element_bytes(self.type)
        if self.bytes.value.data != layout.bytes(width):
            raise VerifyException(
                f"a buffer of {self.type} in this layout has {layout.bytes(width)} bytes, "
                f"not {self.bytes.value.data}"
            )

    def _verify_address(self, address: int) -> None:
        if self.memory is not None and self.memory.data == BufferMemory.SCRATCH:
            if self.space.data != BufferSpace.SYMMETRIC:
                raise VerifyException("a buffer in scratch is symmetric: peers write it")
            if address < 0 or address % SCRATCH_ALIGNMENT:
                raise VerifyException(
                    f"scratch address {address} is not aligned to {SCRATCH_ALIGNMENT} bytes"
                )
        elif address < 0 or address % GRANULE:
            raise VerifyException(f"address {address} is not 4 KiB aligned")

    @classmethod
    def parse(cls, parser: Parser) -> BufferOp:
        name = parser.parse_symbol_name()
        parser.parse_punctuation(":")
        type = parser.parse_type()
        properties = parser.parse_optional_attr_dict()
        return cls.create(properties={"sym_name": name, "type": type, **properties})

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" : ")
        printer.print_attribute(self.type)
        names = ("address", "bytes", "layout", "space", "role", "memory")
        shown = [name for name in names if name in self.properties]
        printer.print_op_attributes({key: self.properties[key] for key in shown})


def _require_one_of(names: type[StrEnum], given: StringAttr, what: str) -> None:
    known = [name.value for name in names]
    if given.data not in known:
        raise VerifyException(f"unknown {what} '{given.data}', one of {known}")


def element_bytes(type: TensorType[Attribute]) -> int:
    """Bytes of one element of a tensor type."""
    found = BY_NAME.get(str(type.element_type))
    if found is None:
        raise VerifyException(f"elements of {type} have no size")
    return found.bytes


def logical_extents(type: TensorType[Attribute], mesh: Mesh) -> LogicalExtents | None:
    """What of a buffer of a local type each device holds; ``None`` where that is all of its shape
    on every device. Communication and scratch buffers, whose types have no encoding, are whole."""
    encoding = encoding_of(type, mesh)
    if encoding is None or not is_local(type):
        return None
    return of_encoding(encoding, global_shape(type))
