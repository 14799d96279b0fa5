"""The ``sharding`` dialect: the mesh of devices and how tensors lie on it.

The sharding of a value is the **encoding of its tensor type**, so that an operation which loses or
invents one is a type error::

    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    tensor<64x1x8192xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>

Per dimension the encoding lists axes, major to minor, and the shard map (``cyclic(b)``, ``zigzag``
or ``offsets [..]``; contiguous blocks by default). ``partial`` names the combiner and the axes over
which the devices' values must still be combined. An axis may be a sub-axis: ``"xcd":(1)2`` is the
first factor 2 of ``xcd``.

Types are global until localisation. A local type has the physical shape of a shard, the largest of
any device, and its encoding keeps the whole: ``global = [64, 1, 8192]``.

``starc.core.encoding`` has the meaning; ``encoding_of`` gives the pure value of a type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from xdsl.dialects.builtin import (
    ModuleOp,
    NoneAttr,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    TensorType,
)
from xdsl.ir import Attribute, Data, Dialect, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, Pure, SymbolOpInterface, SymbolTable, SymbolUserOpInterface
from xdsl.utils.exceptions import VerifyException

from starc.core.combiners import COMBINERS
from starc.core.encoding import DimSharding, Encoding, Partial
from starc.core.mesh import Axis, AxisRef, LinkPart, Mesh, axes_text
from starc.core.shard_map import CONTIGUOUS, Cyclic, Offsets, ShardMap, Zigzag

AnyTensor = TensorType[Attribute]
Scope = Mesh | Operation
"""Where an axis name gets its size: a mesh, or any operation of the module that has one."""

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
        parser.parse_punctuation(")")
        if block < 1:
            parser.raise_error("block of a cyclic map must be at least 1", start, parser.pos)
        return Cyclic(block)
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
        kind = parser.parse_identifier("a reduction")
        if kind not in COMBINERS:
            known = ", ".join(COMBINERS)
            parser.raise_error(
                f'unknown reduction "{kind}", expected one of: {known}', start, parser.pos
            )
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


# ---------------------------------------------------------------------------------------------
# Operations
# ---------------------------------------------------------------------------------------------


@irdl_op_definition
class MeshOp(IRDLOperation):
    """The mesh that encodings and collectives of the module refer to.

    ``sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]``
    """

    name = "sharding.mesh"

    sym_name = prop_def(SymbolNameConstraint())
    axes = prop_def(MeshAxesAttr)

    traits = traits_def(SymbolOpInterface(), HasParent(ModuleOp))

    def __init__(self, mesh: Mesh) -> None:
        super().__init__(
            properties={"sym_name": StringAttr(mesh.name), "axes": MeshAxesAttr(mesh.axes)}
        )

    @property
    def mesh(self) -> Mesh:
        """The mesh as a pure value."""
        return Mesh(self.sym_name.data, self.axes.data)

    @classmethod
    def parse(cls, parser: Parser) -> MeshOp:
        name = parser.parse_symbol_name().data
        parser.parse_punctuation("=")
        op = cls(Mesh(name, MeshAxesAttr.parse_axes(parser)))
        op.attributes.update(parser.parse_optional_attr_dict())
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(f" = {self.axes.text()}")
        printer.print_op_attributes(self.attributes)


class MeshUser(SymbolUserOpInterface):
    """An operation whose property ``mesh``, or the encodings of whose types, name a mesh."""

    def verify(self, op: Operation) -> None:
        symbol = op.properties.get("mesh")
        names = {symbol.string_value()} if isinstance(symbol, SymbolRefAttr) else set[str]()
        for value in (*op.operands, *op.results):
            spec = spec_of(value.type)
            if spec is not None:
                names.add(spec.mesh)
        for name in sorted(names):
            if not isinstance(SymbolTable.lookup_symbol(op, name), MeshOp):
                raise VerifyException(f"unknown mesh: @{name}")
        if len(names) > 1:
            raise VerifyException(
                "result mesh does not match operand mesh: "
                + ", ".join(f"@{name}" for name in sorted(names))
            )


@irdl_op_definition
class ReshardOp(IRDLOperation):
    """Gives the same values under other encodings; localisation turns it into collectives.

    The results have the shapes and element types of the operands. A reshard may drop a partial
    state (it combines it) but not introduce one. The components of an ``lse`` partial are resharded
    together.

    ``%y = sharding.reshard %x : tensor<2x8xbf16, #sharding.of<@node, [{}, {}], partial =
    sum{"gpu"}>> -> tensor<2x8xbf16, #sharding.of<@node, [{}, {"gpu"}]>>``
    """

    name = "sharding.reshard"

    inputs = var_operand_def(TensorType.constr())
    outputs = var_result_def(TensorType.constr())

    traits = traits_def(Pure(), MeshUser())

    assembly_format = "$inputs attr-dict `:` type($inputs) `->` type($outputs)"

    def __init__(self, inputs: Sequence[SSAValue], types: Sequence[AnyTensor]) -> None:
        super().__init__(operands=[inputs], result_types=[types])

    def verify_(self) -> None:
        if not self.inputs or len(self.inputs) != len(self.outputs):
            raise VerifyException(
                f"a reshard of {len(self.inputs)} values has {len(self.outputs)} results"
            )
        for source, target in zip(self.inputs, self.outputs, strict=True):
            before, after = cast(AnyTensor, source.type), target.type
            if before.get_shape() != after.get_shape():
                raise VerifyException(
                    f"a reshard keeps the global shape: {before.get_shape()} != {after.get_shape()}"
                )
            if before.element_type != after.element_type:
                raise VerifyException(
                    f"a reshard keeps the element type: {before.element_type} != "
                    f"{after.element_type}"
                )
            old, new = spec_of(before), spec_of(after)
            if old is None or new is None:
                raise VerifyException("a reshard needs an encoding on both sides")
            if old.global_shape is not None or new.global_shape is not None:
                raise VerifyException("a reshard is between global types, this one is local")
            if new.partial is not None and not _is_part_of(new.partial, old.partial):
                raise VerifyException(f"a reshard cannot introduce partial {new.partial}")


def _is_part_of(new: Partial, old: Partial | None) -> bool:
    return old is not None and new.kind == old.kind and set(new.axes) <= set(old.axes)


# ---------------------------------------------------------------------------------------------
# Types and encodings
# ---------------------------------------------------------------------------------------------


def spec_of(type: Attribute) -> ShardingSpec | None:
    """The sharding that a type holds, its mesh by name; ``None`` for any other type."""
    if isinstance(type, TensorType):
        encoding = type.encoding
        if isinstance(encoding, ShardingAttr):
            return encoding.data
    return None


def mesh_op(op: Operation) -> MeshOp | None:
    """The first mesh of the module that holds ``op``."""
    module: Operation = op
    while (parent := module.parent_op()) is not None:
        module = parent
    if isinstance(module, ModuleOp):
        for candidate in module.body.ops:
            if isinstance(candidate, MeshOp):
                return candidate
    return None


def mesh_of(scope: Scope) -> Mesh:
    """The mesh of the module that holds an operation. Raises ``ValueError`` if it has none."""
    if isinstance(scope, Mesh):
        return scope
    found = mesh_op(scope)
    if found is None:
        raise ValueError("the module has no sharding.mesh")
    return found.mesh


def encoding_of(type: Attribute, scope: Scope) -> Encoding | None:
    """The encoding of a tensor type as a pure value; ``None`` if it has none. ``scope`` is the
    mesh, or any operation of the module (which costs a look-up)."""
    spec = spec_of(type)
    if spec is None:
        return None
    return Encoding(mesh_of(scope), spec.dims, spec.partial)


def global_shape(type: AnyTensor) -> tuple[int, ...]:
    """The shape of the whole tensor, for a global, a local and an unsharded type."""
    spec = spec_of(type)
    if spec is None or spec.global_shape is None:
        return type.get_shape()
    return spec.global_shape


def local_shape(type: AnyTensor, scope: Scope) -> tuple[int, ...]:
    """The physical shape on a device, the largest of any, for a global and a local type."""
    spec = spec_of(type)
    if spec is None or spec.global_shape is not None:
        return type.get_shape()
    return Encoding(mesh_of(scope), spec.dims, spec.partial).local_shape(type.get_shape())


def is_local(type: Attribute) -> bool:
    """Whether a type is one device's, with the global shape in its encoding."""
    spec = spec_of(type)
    return spec is not None and spec.global_shape is not None


def global_type(type: AnyTensor, encoding: Encoding) -> AnyTensor:
    """The global type of a tensor under an encoding; ``type`` may be local or have another."""
    return TensorType(type.element_type, global_shape(type), ShardingAttr.of(encoding))


def local_type(type: AnyTensor, encoding: Encoding) -> AnyTensor:
    """The local type of a tensor under an encoding."""
    whole = global_shape(type)
    attribute = ShardingAttr.of(encoding, whole)
    return TensorType(type.element_type, encoding.local_shape(whole), attribute)


def without_encoding(type: AnyTensor) -> AnyTensor:
    """The unsharded type of the whole tensor."""
    return TensorType(type.element_type, global_shape(type), NoneAttr())


def localized(type: AnyTensor, mesh: Mesh) -> AnyTensor:
    """The local type of a global one; a type without encoding or already local is kept."""
    spec = spec_of(type)
    if spec is None or spec.global_shape is not None:
        return type
    encoding = Encoding(mesh, spec.dims, spec.partial)
    attribute = ShardingAttr(replace(spec, global_shape=type.get_shape()))
    return TensorType(type.element_type, encoding.local_shape(type.get_shape()), attribute)


Sharding = Dialect("sharding", [MeshOp, ReshardOp], [ShardingAttr, AxesAttr, MeshAxesAttr])
