"""What the operations of the ``collective`` dialect share: their text, and the parts of which their
verifiers consist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self, cast

from xdsl.dialects.builtin import (
    DenseArrayBase,
    FlatSymbolRefAttr,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    i64,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.combiners import COMBINERS, Combiner, ReductionKind
from starc.core.sharding.encoding import DimSharding, Encoding, is_refinement
from starc.core.sharding.hierarchy import divides
from starc.core.sharding.mesh import AxisRef, Mesh, axes_text
from starc.dialects.sharding import (
    AnyTensor,
    AxesAttr,
    MeshUser,
    encoding_of,
    global_shape,
    is_local,
    mesh_op,
    parse_axes,
)


class CollectiveOp(IRDLOperation, ABC):
    """What all collectives share: values of local types in, values of local types out.

    ``algorithm``, ``transport`` and ``rings`` (the strides of the rings that the data is divided
    over) are written by ``select-collective-algorithm``.
    """

    inputs = var_operand_def(TensorType.constr())
    outputs = var_result_def(TensorType.constr())
    mesh = prop_def(FlatSymbolRefAttr)
    axes = prop_def(AxesAttr)
    algorithm = opt_prop_def(StringAttr)
    transport = opt_prop_def(StringAttr)
    rings = opt_prop_def(DenseArrayBase.constr(i64))

    traits = traits_def(Pure(), MeshUser())

    CLAUSES: ClassVar[tuple[str, ...]] = ()
    """The operation's own properties, in the order in which they print: ``reduction`` or
    integers that name dimensions."""

    KIND: ClassVar[CollectiveKind]
    """What it does, for schedules and costs."""

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        types: Sequence[AnyTensor],
        mesh: str,
        axes: Sequence[AxisRef],
        **clauses: str | int,
    ) -> None:
        properties: dict[str, Attribute | None] = {
            "mesh": SymbolRefAttr(mesh),
            "axes": AxesAttr(tuple(axes)),
        }
        for name, value in clauses.items():
            properties[name] = (
                StringAttr(str(value)) if isinstance(value, str) else IntegerAttr(value, i64)
            )
        super().__init__(operands=[inputs], result_types=[types], properties=properties)

    def number(self, clause: str) -> int:
        """The value of an integer clause."""
        return cast(IntegerAttr, self.properties[clause]).value.data

    @property
    def reduction_kind(self) -> ReductionKind | None:
        """The kind of the combiner, for the operations that reduce."""
        found = self.properties.get("reduction")
        return ReductionKind(found.data) if isinstance(found, StringAttr) else None

    # Text

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operands = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, parser.parse_unresolved_operand
        )
        parser.parse_keyword("on")
        mesh = parser.parse_symbol_name().data
        parser.parse_keyword("axes")
        parser.parse_punctuation("=")
        axes = parse_axes(parser, parser.Delimiter.SQUARE)
        clauses: dict[str, str | int] = {}
        for name in cls.CLAUSES:
            parser.parse_keyword(name)
            parser.parse_punctuation("=")
            if name == "reduction":
                clauses[name] = parser.parse_identifier("a reduction")
            else:
                clauses[name] = parser.parse_integer(allow_boolean=False, allow_negative=False)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        start = parser.pos
        before = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        parser.parse_punctuation("->")
        after = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        inputs = parser.resolve_operands(operands, before, start)
        op = cls(inputs, cast(Sequence[AnyTensor], after), mesh, axes, **clauses)
        for name, attribute in attributes.items():
            known = name in ("algorithm", "transport", "rings")
            (op.properties if known else op.attributes)[name] = attribute
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.inputs, printer.print_ssa_value)
        printer.print_string(" on ")
        printer.print_symbol_name(self.mesh.string_value())
        printer.print_string(f" axes = [{axes_text(self.axes.data)}]")
        for name in self.CLAUSES:
            clause = self.properties[name]
            shown = clause.data if isinstance(clause, StringAttr) else self.number(name)
            printer.print_string(f" {name} = {shown}")
        chosen = {
            name: self.properties[name]
            for name in ("algorithm", "transport", "rings")
            if name in self.properties
        }
        printer.print_op_attributes({**chosen, **self.attributes})
        printer.print_string(" : ")
        printer.print_list(self.inputs.types, printer.print_attribute)
        printer.print_string(" -> ")
        printer.print_list(self.outputs.types, printer.print_attribute)

    # Verification

    def verify_(self) -> None:
        if not self.inputs or len(self.inputs) != len(self.outputs):
            raise VerifyException(
                f"{len(self.inputs)} operands and {len(self.outputs)} results, expected as many"
            )
        combiner = self._verify_reduction()
        found = mesh_op(self)
        if found is None:
            return
        mesh = found.mesh
        for axis in self.axes.data:
            problem = mesh.problem(axis)
            if problem:
                raise VerifyException(problem)
        shapes: list[tuple[int, ...]] = []
        encodings: list[tuple[Encoding, Encoding]] = []
        for index, (source, target) in enumerate(zip(self.inputs, self.outputs, strict=True)):
            before, after = cast(AnyTensor, source.type), target.type
            if not is_local(before) or not is_local(after):
                raise VerifyException(
                    "a collective is between local types, whose encoding has a global shape"
                )
            if before.element_type != after.element_type:
                raise VerifyException(
                    f"result element type {after.element_type} differs from operand element type "
                    f"{before.element_type}"
                )
            encodings.append(self._verify_pair(mesh, index, before, after))
            shapes.append(global_shape(before))
        self._verify_together(shapes)
        if combiner is not None and combiner.is_joint:
            _verify_components(combiner, shapes, encodings)

    def _verify_reduction(self) -> Combiner | None:
        try:
            kind = self.reduction_kind
        except ValueError as error:
            raise VerifyException(str(error)) from error
        if kind is None:
            return None
        combiner = COMBINERS[kind]
        if combiner.is_joint and len(combiner.components) != len(self.inputs):
            names = ", ".join(combiner.components)
            raise VerifyException(
                f"reduction {kind} combines {names} together, got {len(self.inputs)} operands"
            )
        return combiner

    def _verify_pair(
        self, mesh: Mesh, index: int, before: AnyTensor, after: AnyTensor
    ) -> tuple[Encoding, Encoding]:
        whole = global_shape(before)
        old, new = encoding_of(before, mesh), encoding_of(after, mesh)
        assert old is not None
        assert new is not None
        if global_shape(after) != whole:
            raise VerifyException(
                f"result {index} has another global shape: {list(global_shape(after))}, expected "
                f"{list(whole)}"
            )
        for side, type, encoding in (("operand", before, old), ("result", after, new)):
            problems = encoding.problems(whole)
            if problems:
                raise VerifyException(problems[0])
            if type.get_shape() != encoding.local_shape(whole):
                raise VerifyException(
                    f"{side} {index} is local {list(type.get_shape())}, its encoding gives "
                    f"{list(encoding.local_shape(whole))}"
                )
        self.verify_effect(old, new, whole)
        return old, new

    def _verify_together(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """What must hold for the operands of one operation; ``shapes`` are global."""

    @abstractmethod
    def verify_effect(self, old: Encoding, new: Encoding, shape: tuple[int, ...]) -> None:
        """Raises ``VerifyException`` unless the operation turns ``old`` into ``new``."""

    # Parts of the effects

    def _dim(self, clause: str, encoding: Encoding) -> int:
        dim = self.number(clause)
        if dim >= len(encoding.dims):
            raise VerifyException(f"{clause} {dim} is out of range, rank is {len(encoding.dims)}")
        return dim

    def _require_dims_kept(self, old: Encoding, new: Encoding, *changed: int) -> None:
        for dim, (before, after) in enumerate(zip(old.dims, new.dims, strict=True)):
            if dim not in changed and before != after:
                raise VerifyException(
                    f"dim {dim} changes from {before} to {after}, which {self.name} does not do"
                )

    def _require_partial(self, found: Encoding, expected: Encoding) -> None:
        if found.partial != expected.partial:
            raise VerifyException(
                f"result is partial {found.partial}, expected {expected.partial}"
                if found.partial
                else f"result is not partial, expected partial {expected.partial}"
            )

    def _without_partial(self, old: Encoding) -> Encoding:
        """``old`` without ``axes`` in its partial state; an error unless they are all in it."""
        kind, axes = self.reduction_kind, self.axes.data
        if old.partial is None:
            raise VerifyException(
                f"operand is not partial, cannot reduce it over {{{axes_text(axes)}}}"
            )
        if old.partial.kind != kind:
            raise VerifyException(f"operand is partial {old.partial}, reduction is {kind}")
        rest = old.mesh.complement((*old.mesh.complement(old.partial.axes), *axes))
        if old.mesh.refs_size(rest) * old.mesh.refs_size(axes) != old.mesh.refs_size(
            old.partial.axes
        ) or old.mesh_order((*rest, *axes)) != old.mesh_order(old.partial.axes):
            raise VerifyException(
                f"reduction axes {{{axes_text(axes)}}} are not among those of partial {old.partial}"
            )
        return old.with_partial(kind, rest)

    def _require_split(self, dim: int, coarse: Encoding, fine: Encoding, extent: int) -> None:
        """``fine`` has the axes of ``coarse`` on ``dim`` and those of the operation, after them or
        wherever the pieces of every group are what the group holds in ``coarse``."""
        mesh, axes = coarse.mesh, self.axes.data
        outer, inner = coarse.dims[dim], fine.dims[dim]
        if mesh.canonical((*outer.axes, *axes)) != mesh.canonical(inner.axes):
            # The axes may stand before others if the pieces are those of the group all the same.
            same = coarse.mesh_order((*outer.axes, *axes)) == coarse.mesh_order(inner.axes)
            if same and divides(coarse, fine, dim, axes, extent):
                return
            raise VerifyException(
                f"dim {dim} is split over {{{axes_text(inner.axes)}}}, expected "
                f"{{{axes_text(mesh.canonical((*outer.axes, *axes)))}}}"
            )
        if not is_refinement(mesh, outer, DimSharding(inner.axes, inner.map), extent):
            raise VerifyException(
                f"dim {dim} of size {extent}: shards of {inner} are not parts of those of {outer}"
            )


def _verify_components(
    combiner: Combiner,
    shapes: Sequence[tuple[int, ...]],
    encodings: Sequence[tuple[Encoding, Encoding]],
) -> None:
    """The components that a device combines together are of the same rows and heads."""
    shared = combiner.shared_dims(shapes)
    for side, pair in enumerate(zip(*encodings, strict=True)):
        first = pair[0]
        for index, encoding in enumerate(pair[1:], 1):
            what = "result" if side else "operand"
            names = f"{combiner.components[0]} and {combiner.components[index]}"
            if encoding.partial != first.partial:
                raise VerifyException(
                    f"{what}s {names} are partial {first.partial} and {encoding.partial}"
                )
            for dim in range(len(first.dims)):
                coarse, fine = shapes[0][dim], shapes[index][dim]
                if fine == coarse or dim in shared:
                    ranks = encoding.ranks(dim)
                    found = encoding.dims[dim]
                    blocks = found.map.in_blocks(fine // max(coarse, 1), ranks, fine)
                    if blocks is not None and DimSharding(found.axes, blocks) == first.dims[dim]:
                        continue
                    raise VerifyException(
                        f"dim {dim} of {what}s {names} is split over {first.dims[dim]} and "
                        f"{found}: these are not the same shards"
                    )
