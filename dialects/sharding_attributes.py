"""The attributes of the ``sharding`` dialect: the encoding of a tensor, axis lists, the axes of a
mesh. Each wraps a pure value of ``starc.core`` with its text; mistakes have a place in the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer

from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.encoding import DimSharding, Encoding, Partial
from starc.core.sharding.mesh import Axis, AxisRef, LinkPart, Mesh, axes_text
from starc.core.sharding.shard_map import CONTIGUOUS, Cyclic, Offsets, ShardMap, Zigzag

# ---------------------------------------------------------------------------------------------
# Parsing of axis lists
# ---------------------------------------------------------------------------------------------


def parse_axis_ref(parser: AttrParser) -> AxisRef:
    """``"xcd"`` or ``"xcd":(1)2``."""
    name = parser.parse_str_literal("an axis name")
    if parser.parse_optional_punctuation(":") is None:
        return AxisRef(name)
    start = parser.pos
    parser.parse_punctuation("(")
    pre_size = parser.parse_integer(allow_boolean=False, allow_negative=False)
    parser.parse_punctuation(")")
    size = parser.parse_integer(allow_boolean=False, allow_negative=False)
    if pre_size < 1 or size < 1:
        parser.raise_error("sub-axis sizes must be at least 1", start, parser.pos)
    return AxisRef(name, pre_size, size)


def parse_axes(parser: AttrParser, delimiter: Parser.Delimiter) -> tuple[AxisRef, ...]:
    """An axis list; refuses a reference that stands twice and parts that should be one."""
    start = parser.pos
    axes = tuple(parser.parse_comma_separated_list(delimiter, lambda: parse_axis_ref(parser)))
    for index, axis in enumerate(axes):
        if axis in axes[:index]:
            parser.raise_error(f"duplicate axis ref: {axis}", start, parser.pos)
        last = axes[index - 1] if index else None
        if (
            last is not None
            and last.name == axis.name
            and last.size is not None
            and last.pre_size * last.size == axis.pre_size
        ):
            parser.raise_error(
                f"two consecutive sub-axes can be merged: {last}, {axis}", start, parser.pos
            )
    return axes


def _parse_map(parser: AttrParser) -> ShardMap:
    start = parser.pos
    if parser.parse_optional_keyword("cyclic"):
        parser.parse_punctuation("(")
        block = parser.parse_integer(allow_boolean=False, allow_negative=False)
        values: dict[str, int] = {}
        while parser.parse_optional_punctuation(",") is not None:
            name = parser.parse_keyword_in(("offset", "by"))
            parser.parse_punctuation("=")
            values[name] = parser.parse_integer(allow_boolean=False, allow_negative=False)
        parser.parse_punctuation(")")
        try:
            return Cyclic(block, values.get("offset", 0), values.get("by"))
        except ValueError as error:
            parser.raise_error(str(error), start, parser.pos)
    if parser.parse_optional_keyword("zigzag"):
        return Zigzag()
    if parser.parse_optional_keyword("offsets"):
        offsets = _parse_shape(parser)
        try:
            return Offsets(offsets)
        except ValueError as error:
            parser.raise_error(str(error), start, parser.pos)
    return CONTIGUOUS


def _parse_shape(parser: AttrParser) -> tuple[int, ...]:
    return tuple(
        parser.parse_comma_separated_list(
            parser.Delimiter.SQUARE,
            lambda: parser.parse_integer(allow_boolean=False, allow_negative=False),
        )
    )


# ---------------------------------------------------------------------------------------------
# Attributes
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShardingSpec:
    """An encoding with its mesh by name, as a type holds it. A local type has ``global_shape``."""

    mesh: str
    dims: tuple[DimSharding, ...]
    partial: Partial | None = None
    global_shape: tuple[int, ...] | None = None


@irdl_attr_definition
class ShardingAttr(Data[ShardingSpec]):
    """The sharding of a tensor, as its type's encoding.

    ``#sharding.of<@node, [{}, {"gpu", "xcd":(1)2} cyclic(1)], partial = lse{"xcd":(2)4},
    global = [16, 4096]>``
    """

    name = "sharding.of"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> ShardingSpec:
        with parser.in_angle_brackets():
            mesh = parser.parse_symbol_name().data
            parser.parse_punctuation(",")
            start = parser.pos
            dims = tuple(
                parser.parse_comma_separated_list(
                    parser.Delimiter.SQUARE,
                    lambda: DimSharding(
                        parse_axes(parser, parser.Delimiter.BRACES), _parse_map(parser)
                    ),
                )
            )
            partial = None
            global_shape = None
            while parser.parse_optional_punctuation(",") is not None:
                keyword = parser.parse_keyword_in(("partial", "global"))
                parser.parse_punctuation("=")
                if keyword == "partial":
                    partial = cls._parse_partial(parser)
                else:
                    global_shape = _parse_shape(parser)
            used = [axis for dim in dims for axis in dim.axes]
            used += partial.axes if partial else ()
            for index, axis in enumerate(used):
                if axis in used[:index]:
                    parser.raise_error(f"duplicate axis ref: {axis}", start, parser.pos)
            if global_shape is not None and len(global_shape) != len(dims):
                parser.raise_error(
                    f"global shape doesn't match sharding rank: {len(global_shape)} != {len(dims)}",
                    start,
                    parser.pos,
                )
        return ShardingSpec(mesh, dims, partial, global_shape)

    @staticmethod
    def _parse_partial(parser: AttrParser) -> Partial:
        start = parser.pos
        name = parser.parse_identifier("a reduction")
        try:
            kind = ReductionKind(name)
        except ValueError as error:
            parser.raise_error(str(error), start, parser.pos)
        axes = parse_axes(parser, parser.Delimiter.BRACES)
        if not axes:
            parser.raise_error("a partial needs at least one axis", start, parser.pos)
        return Partial(kind, axes)

    def print_parameter(self, printer: Printer) -> None:
        spec = self.data
        dims = ", ".join(str(dim) for dim in spec.dims)
        text = f"@{spec.mesh}, [{dims}]"
        if spec.partial is not None:
            text += f", partial = {spec.partial}"
        if spec.global_shape is not None:
            text += f", global = [{', '.join(str(extent) for extent in spec.global_shape)}]"
        with printer.in_angle_brackets():
            printer.print_string(text)

    @classmethod
    def of(cls, encoding: Encoding, global_shape: Sequence[int] | None = None) -> ShardingAttr:
        """The attribute of an encoding; with ``global_shape`` that of a local type."""
        shape = None if global_shape is None else tuple(global_shape)
        return cls(ShardingSpec(encoding.mesh.name, encoding.dims, encoding.partial, shape))

    def encoding(self, mesh: Mesh) -> Encoding:
        """The encoding as a pure value on a mesh."""
        return Encoding(mesh, self.data.dims, self.data.partial)


@irdl_attr_definition
class AxesAttr(Data[tuple[AxisRef, ...]]):
    """A list of axis references, ``#sharding.axes<["gpu", "xcd":(1)2]>``; operations print the
    list alone."""

    name = "sharding.axes"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[AxisRef, ...]:
        with parser.in_angle_brackets():
            return parse_axes(parser, parser.Delimiter.SQUARE)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"[{axes_text(self.data)}]")


@irdl_attr_definition
class MeshAxesAttr(Data[tuple[Axis, ...]]):
    """The axes of a mesh, outer to inner: name, size, level, link class.

    ``["gpu"=8 : outer xgmi, "xcd"=8 : inner (iod=4 : usr, slot=2 : die)]``
    """

    name = "sharding.mesh_axes"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Axis, ...]:
        with parser.in_angle_brackets():
            return cls.parse_axes(parser)

    @classmethod
    def parse_axes(cls, parser: AttrParser) -> tuple[Axis, ...]:
        start = parser.pos
        axes = tuple(
            parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE, lambda: cls._parse_axis(parser)
            )
        )
        names = [axis.name for axis in axes]
        for name in names:
            if names.count(name) > 1:
                parser.raise_error(f'duplicate axis name: "{name}"', start, parser.pos)
        return axes

    @classmethod
    def _parse_axis(cls, parser: AttrParser) -> Axis:
        start = parser.pos
        name = parser.parse_str_literal("an axis name")
        parser.parse_punctuation("=")
        size = parser.parse_integer(allow_boolean=False, allow_negative=False)
        parser.parse_punctuation(":")
        level = parser.parse_identifier("a level")
        parts: tuple[LinkPart, ...] = ()
        if parser.parse_optional_punctuation("(") is not None:
            found = [cls._parse_part(parser)]
            while parser.parse_optional_punctuation(",") is not None:
                found.append(cls._parse_part(parser))
            parser.parse_punctuation(")")
            parts = tuple(found)
            link_class = parts[0].link_class
        else:
            link_class = parser.parse_identifier("a link class")
        try:
            return Axis(name, size, level, link_class, parts)
        except ValueError as error:
            parser.raise_error(str(error), start, parser.pos)

    @staticmethod
    def _parse_part(parser: AttrParser) -> LinkPart:
        name = parser.parse_identifier("a part of an axis")
        parser.parse_punctuation("=")
        size = parser.parse_integer(allow_boolean=False, allow_negative=False)
        parser.parse_punctuation(":")
        return LinkPart(name, size, parser.parse_identifier("a link class"))

    def text(self) -> str:
        shown: list[str] = []
        for axis in self.data:
            links = axis.link_class
            if axis.parts:
                parts = (f"{part.name}={part.size} : {part.link_class}" for part in axis.parts)
                links = f"({', '.join(parts)})"
            shown.append(f'"{axis.name}"={axis.size} : {axis.level} {links}')
        return f"[{', '.join(shown)}]"

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.text())
