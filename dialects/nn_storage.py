"""What a model keeps: its weights, its KV caches and its stack of layers as symbols of the module,
and the operations that read and write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    FlatSymbolRefAttr,
    IntegerAttr,
    ModuleOp,
    NoneAttr,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    TensorType,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import (
    HasParent,
    MemoryReadEffect,
    MemoryWriteEffect,
    Pure,
    SymbolOpInterface,
    SymbolUserOpInterface,
)
from xdsl.utils.exceptions import VerifyException

from starc.dialects.nn_requirements import (
    FLOAT_TENSOR,
    I64,
    FloatTensor,
    are_whole,
    require_positive,
    require_rank,
    require_same,
    tensor,
)
from starc.dialects.symbols import named


@irdl_op_definition
class ParameterOp(IRDLOperation):
    """A weight of one layer kind, read by ``nn.read``; its name is ``layer.weight``.

    Every layer of the kind has its own copy. numpy: an array that no operation writes.

    ``nn.parameter @decoder.q : tensor<8192x8192xbf16>``
    """

    name = "nn.parameter"

    sym_name = prop_def(SymbolNameConstraint())
    type = prop_def(FLOAT_TENSOR)

    traits = traits_def(SymbolOpInterface(), HasParent(ModuleOp))

    assembly_format = "$sym_name `:` $type attr-dict"

    def __init__(self, sym_name: str, type: FloatTensor) -> None:
        super().__init__(properties={"sym_name": StringAttr(sym_name), "type": type})


@irdl_op_definition
class StateOp(IRDLOperation):
    """A KV cache of one layer kind, ``[batch, kv_head, position, head_dim]``; every layer of the
    kind has its own. Before the step it holds the positions below the first new one.

    ``nn.state @decoder.k_cache : tensor<16x8x16384x128xbf16>``
    """

    name = "nn.state"

    sym_name = prop_def(SymbolNameConstraint())
    type = prop_def(FLOAT_TENSOR)

    traits = traits_def(SymbolOpInterface(), HasParent(ModuleOp))

    assembly_format = "$sym_name `:` $type attr-dict"

    def __init__(self, sym_name: str, type: FloatTensor) -> None:
        super().__init__(properties={"sym_name": StringAttr(sym_name), "type": type})

    def verify_(self) -> None:
        require_rank("a state", self.type, 4, "[batch, kv_head, position, head_dim]")


class _StackNamesLayers(SymbolUserOpInterface):
    def verify(self, op: Operation) -> None:
        assert isinstance(op, StackOp)
        for layer in op.layers:
            found = named(op, layer)
            if not isinstance(found, FuncOp):
                raise VerifyException(f"no layer @{layer.string_value()} in the module")


@irdl_op_definition
class StackOp(IRDLOperation):
    """The layers of the model, in order: kinds (functions of the module) and how often each runs
    before the next.

    ``nn.stack [@embedding * 1, @decoder * 80, @head * 1]``
    """

    name = "nn.stack"

    layers = prop_def(ArrayAttr[SymbolRefAttr])
    counts = prop_def(ArrayAttr[IntegerAttr])

    traits = traits_def(_StackNamesLayers(), HasParent(ModuleOp))

    def __init__(self, entries: Sequence[tuple[str, int]]) -> None:
        super().__init__(
            properties={
                "layers": ArrayAttr([SymbolRefAttr(layer) for layer, _ in entries]),
                "counts": ArrayAttr([IntegerAttr(count, 64) for _, count in entries]),
            }
        )

    @property
    def entries(self) -> tuple[tuple[str, int], ...]:
        """Layer kinds and counts, in order."""
        return tuple(
            (layer.string_value(), count.value.data)
            for layer, count in zip(self.layers, self.counts, strict=True)
        )

    def verify_(self) -> None:
        if not self.layers.data:
            raise VerifyException("a stack must have at least one layer")
        if len(self.layers) != len(self.counts):
            raise VerifyException("a stack must have a count for every layer")
        for layer, count in self.entries:
            if count < 1:
                raise VerifyException(f"the count of @{layer} must be at least 1, got {count}")

    @classmethod
    def parse(cls, parser: Parser) -> StackOp:
        def entry() -> tuple[str, int]:
            layer = parser.parse_symbol_name().data
            parser.parse_punctuation("*")
            return layer, parser.parse_integer(allow_boolean=False, allow_negative=False)

        entries = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, entry)
        op = cls(entries)
        op.attributes.update(parser.parse_optional_attr_dict())
        return op

    def print(self, printer: Printer) -> None:
        def entry(entry: tuple[str, int]) -> None:
            printer.print_symbol_name(entry[0])
            printer.print_string(f" * {entry[1]}")

        printer.print_string(" ")
        with printer.in_square_brackets():
            printer.print_list(self.entries, entry)
        if self.attributes:
            printer.print_attr_dict(self.attributes)


def _require_storage(
    op: Operation, symbol: FlatSymbolRefAttr, kind: str, type: TensorType[Attribute]
) -> None:
    """``symbol`` names a parameter or state (a buffer, once memory is planned) of ``type``."""
    name = symbol.string_value()
    found = named(op, symbol)
    if found is None:
        raise VerifyException(f"no {kind} @{name} in the module")
    declared = found.properties.get("type")
    mistaken = isinstance(found, ParameterOp | StateOp) and found.name != f"nn.{kind}"
    if mistaken or not isinstance(declared, TensorType):
        raise VerifyException(f"@{name} is not a {kind} but {found.name}")
    stored = cast(TensorType[Attribute], declared)
    require_same(f"the {kind} @{name}", stored, "its value", type)
    encodings = (stored.encoding, type.encoding)
    if NoneAttr() not in encodings and encodings[0] != encodings[1]:
        raise VerifyException(f"the {kind} @{name} and its value have different encodings")


class _ReadsParameter(SymbolUserOpInterface):
    def verify(self, op: Operation) -> None:
        assert isinstance(op, ReadOp)
        _require_storage(op, op.parameter, "parameter", tensor(op.result))


@irdl_op_definition
class ReadOp(IRDLOperation):
    """The value of a parameter.

    ``%w = nn.read @decoder.q : tensor<8192x8192xbf16>``
    """

    name = "nn.read"

    parameter = prop_def(FlatSymbolRefAttr)
    result = result_def(FLOAT_TENSOR)

    traits = traits_def(Pure(), _ReadsParameter())

    assembly_format = "$parameter attr-dict `:` type($result)"

    def __init__(self, parameter: str, type: FloatTensor) -> None:
        super().__init__(properties={"parameter": SymbolRefAttr(parameter)}, result_types=[type])


class _AppendsToState(SymbolUserOpInterface):
    def verify(self, op: Operation) -> None:
        assert isinstance(op, AppendOp)
        _require_storage(op, op.state, "state", tensor(op.result))


@irdl_op_definition
class AppendOp(IRDLOperation):
    """Writes the keys or values of the new tokens into a cache at positions ``start ..`` and
    returns the whole cache as it then is.

    numpy, for ``x[batch, query, kv_head * head_dim]``::

        heads = x.reshape(batch, query, kv_heads, head_dim).transpose(0, 2, 1, 3)
        state[:, :, start : start + query, :] = heads

    ``%c = nn.append @decoder.k_cache, %k {start = 31 : i64}
    : tensor<2x1x32xbf16> -> tensor<2x2x32x16xbf16>``
    """

    name = "nn.append"

    state = prop_def(FlatSymbolRefAttr)
    start = prop_def(I64)
    input = operand_def(FLOAT_TENSOR)
    result = result_def(FLOAT_TENSOR)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect(), _AppendsToState())

    assembly_format = "$state `,` $input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, state: str, input: SSAValue, start: int, type: FloatTensor) -> None:
        super().__init__(
            operands=[input],
            properties={"state": SymbolRefAttr(state), "start": IntegerAttr(start, 64)},
            result_types=[type],
        )

    def verify_(self) -> None:
        new, cache = tensor(self.input), tensor(self.result)
        require_rank("the new keys or values", new, 3, "[batch, query, kv_head * head_dim]")
        require_rank("the cache", cache, 4, "[batch, kv_head, position, head_dim]")
        require_positive("start", self.start, 0)
        batch, query, features = new.get_shape()
        cache_batch, kv_heads, positions, head_dim = cache.get_shape()
        if batch != cache_batch:
            raise VerifyException(f"batch {batch} is appended to a cache of batch {cache_batch}")
        if features != kv_heads * head_dim:
            raise VerifyException(f"{features} features do not fill {kv_heads} heads of {head_dim}")
        end = self.start.value.data + query
        if are_whole(new, cache) and end > positions:
            raise VerifyException(f"position {end - 1} is beyond the cache's {positions}")
