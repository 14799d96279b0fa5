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

``starc.core.sharding.encoding`` has the meaning; ``encoding_of`` gives the pure value of a type.
The attributes stand in ``starc.dialects.sharding_attributes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from xdsl.dialects.builtin import (
    ModuleOp,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    TensorType,
)
from xdsl.ir import Attribute, Dialect, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, Pure, SymbolOpInterface, SymbolUserOpInterface
from xdsl.utils.exceptions import VerifyException

from starc.core.sharding.combiners import COMBINERS
from starc.core.sharding.encoding import Encoding, Partial
from starc.core.sharding.mesh import Mesh
from starc.diagnostics import counted
from starc.dialects.sharding_attributes import AxesAttr as AxesAttr
from starc.dialects.sharding_attributes import MeshAxesAttr, ShardingAttr, ShardingSpec
from starc.dialects.sharding_attributes import parse_axes as parse_axes
from starc.dialects.symbols import named

AnyTensor = TensorType[Attribute]
Scope = Mesh | Operation
"""Where an axis name gets its size: a mesh, or any operation of the module that has one."""

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
            if not isinstance(named(op, name), MeshOp):
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
            _require_components(old.partial, new.partial, len(self.inputs))


def _require_components(old: Partial | None, new: Partial | None, count: int) -> None:
    """The components of one partial are combined together."""
    if old is None or new == old:
        return
    components = COMBINERS[old.kind].components
    if len(components) not in (1, count):
        raise VerifyException(
            f"partial {old} is {', '.join(components)} together, got {counted(count, 'value')}"
        )


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


def localized(type: AnyTensor, mesh: Mesh) -> AnyTensor:
    """The local type of a global one; a type without encoding or already local is kept."""
    spec = spec_of(type)
    if spec is None or spec.global_shape is not None:
        return type
    encoding = Encoding(mesh, spec.dims, spec.partial)
    attribute = ShardingAttr(replace(spec, global_shape=type.get_shape()))
    return TensorType(type.element_type, encoding.local_shape(type.get_shape()), attribute)


Sharding = Dialect("sharding", [MeshOp, ReshardOp], [ShardingAttr, AxesAttr, MeshAxesAttr])
