"""The ``nn`` dialect: a transformer model as layers over whole tensors.

A module holds **parameters** (weights) and **states** (KV caches) as symbols, one ``func.func`` a
kind of layer, and a **stack** that says which kinds run, in order, and how often. Activations are
``[batch, query, feature]``, caches ``[batch, kv_head, position, head_dim]``, weights of linear
operations ``[in, out]``. Operations of a layer are values; ``nn.append`` alone changes a state, and
the order of the block is the order of effects.

The same operations stand on global types, on types with a sharding encoding and, after
localisation, on the local types of one device. A verifier therefore states the relations between
its operands that hold in all three cases, and those of whole tensors only where no type has an
encoding; what an encoding allows is a sharding rule, not a verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.dialects.builtin import (
    AnyFloat,
    AnyFloatConstr,
    ArrayAttr,
    BFloat16Type,
    FlatSymbolRefAttr,
    Float32Type,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    NoneAttr,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    TensorType,
    UnitAttr,
    i32,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Dialect, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
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
    SymbolTable,
    SymbolUserOpInterface,
)
from xdsl.utils.exceptions import VerifyException

FloatTensor = TensorType[AnyFloat]
I32Tensor = TensorType[IntegerType]

_FLOAT_TENSOR = TensorType.constr(AnyFloatConstr)
_I32_TENSOR = TensorType.constr(i32)
_I64 = IntegerAttr.constr(type=IntegerType(64))
_F64 = FloatAttr.constr(type=Float64Type())


# ---------------------------------------------------------------------------------------------
# What the verifiers share
# ---------------------------------------------------------------------------------------------


def _shape_text(type: TensorType[Attribute]) -> str:
    return "[" + ", ".join(str(extent) for extent in type.get_shape()) + "]"


def _tensor(value: SSAValue) -> TensorType[Attribute]:
    return cast(TensorType[Attribute], value.type)


def _require_rank(what: str, type: TensorType[Attribute], rank: int, dimensions: str) -> None:
    if type.get_num_dims() != rank:
        raise VerifyException(f"{what} must be {dimensions}, got shape {_shape_text(type)}")


def _require_same(
    what: str, type: TensorType[Attribute], other_what: str, other: TensorType[Attribute]
) -> None:
    """The same shape and element type; encodings may differ (sharding rules judge them)."""
    if type.get_shape() != other.get_shape() or type.element_type != other.element_type:
        raise VerifyException(
            f"{what} must have the shape and element type of {other_what}: "
            f"{_shape_text(type)} of {type.element_type} and "
            f"{_shape_text(other)} of {other.element_type}"
        )


def _are_whole(*types: TensorType[Attribute]) -> bool:
    """Whether no type has an encoding, so that every shape is that of a whole tensor."""
    return all(isinstance(type.encoding, NoneAttr) for type in types)


def _require_multiple(what: str, extent: int, head_dim: int) -> None:
    if extent % head_dim:
        raise VerifyException(f"{what} is {extent}, not a multiple of head_dim = {head_dim}")


def _require_positive(what: str, attribute: IntegerAttr, least: int = 1) -> None:
    if attribute.value.data < least:
        raise VerifyException(f"{what} must be at least {least}, got {attribute.value.data}")


def _require_storage(
    op: Operation, symbol: FlatSymbolRefAttr, kind: str, type: TensorType[Attribute]
) -> None:
    """``symbol`` names a parameter or state (a buffer, once memory is planned) of ``type``."""
    name = symbol.string_value()
    found = SymbolTable.lookup_symbol(op, symbol)
    if found is None:
        raise VerifyException(f"no {kind} @{name} in the module")
    declared = found.properties.get("type")
    mistaken = isinstance(found, ParameterOp | StateOp) and found.name != f"nn.{kind}"
    if mistaken or not isinstance(declared, TensorType):
        raise VerifyException(f"@{name} is not a {kind} but {found.name}")
    stored = cast(TensorType[Attribute], declared)
    _require_same(f"the {kind} @{name}", stored, "its value", type)
    encodings = (stored.encoding, type.encoding)
    if NoneAttr() not in encodings and encodings[0] != encodings[1]:
        raise VerifyException(f"the {kind} @{name} and its value have different encodings")


# ---------------------------------------------------------------------------------------------
# Symbols of a module
# ---------------------------------------------------------------------------------------------


@irdl_op_definition
class ParameterOp(IRDLOperation):
    """A weight of one layer kind, read by ``nn.read``; its name is ``layer.weight``.

    Every layer of the kind has its own copy. numpy: an array that no operation writes.

    ``nn.parameter @decoder.q : tensor<8192x8192xbf16>``
    """

    name = "nn.parameter"

    sym_name = prop_def(SymbolNameConstraint())
    type = prop_def(_FLOAT_TENSOR)

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
    type = prop_def(_FLOAT_TENSOR)

    traits = traits_def(SymbolOpInterface(), HasParent(ModuleOp))

    assembly_format = "$sym_name `:` $type attr-dict"

    def __init__(self, sym_name: str, type: FloatTensor) -> None:
        super().__init__(properties={"sym_name": StringAttr(sym_name), "type": type})

    def verify_(self) -> None:
        _require_rank("a state", self.type, 4, "[batch, kv_head, position, head_dim]")


class _StackNamesLayers(SymbolUserOpInterface):
    def verify(self, op: Operation) -> None:
        assert isinstance(op, StackOp)
        for layer in op.layers:
            found = SymbolTable.lookup_symbol(op, layer)
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


# ---------------------------------------------------------------------------------------------
# Storage
# ---------------------------------------------------------------------------------------------


class _ReadsParameter(SymbolUserOpInterface):
    def verify(self, op: Operation) -> None:
        assert isinstance(op, ReadOp)
        _require_storage(op, op.parameter, "parameter", _tensor(op.result))


@irdl_op_definition
class ReadOp(IRDLOperation):
    """The value of a parameter.

    ``%w = nn.read @decoder.q : tensor<8192x8192xbf16>``
    """

    name = "nn.read"

    parameter = prop_def(FlatSymbolRefAttr)
    result = result_def(_FLOAT_TENSOR)

    traits = traits_def(Pure(), _ReadsParameter())

    assembly_format = "$parameter attr-dict `:` type($result)"

    def __init__(self, parameter: str, type: FloatTensor) -> None:
        super().__init__(properties={"parameter": SymbolRefAttr(parameter)}, result_types=[type])


class _AppendsToState(SymbolUserOpInterface):
    def verify(self, op: Operation) -> None:
        assert isinstance(op, AppendOp)
        _require_storage(op, op.state, "state", _tensor(op.result))


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
    start = prop_def(_I64)
    input = operand_def(_FLOAT_TENSOR)
    result = result_def(_FLOAT_TENSOR)

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
        new, cache = _tensor(self.input), _tensor(self.result)
        _require_rank("the new keys or values", new, 3, "[batch, query, kv_head * head_dim]")
        _require_rank("the cache", cache, 4, "[batch, kv_head, position, head_dim]")
        _require_positive("start", self.start, 0)
        batch, query, features = new.get_shape()
        cache_batch, kv_heads, positions, head_dim = cache.get_shape()
        if batch != cache_batch:
            raise VerifyException(f"batch {batch} is appended to a cache of batch {cache_batch}")
        if features != kv_heads * head_dim:
            raise VerifyException(f"{features} features do not fill {kv_heads} heads of {head_dim}")
        end = self.start.value.data + query
        if _are_whole(new, cache) and end > positions:
            raise VerifyException(f"position {end - 1} is beyond the cache's {positions}")


# ---------------------------------------------------------------------------------------------
# Linear algebra and attention
# ---------------------------------------------------------------------------------------------


@irdl_op_definition
class LinearOp(IRDLOperation):
    """A matrix product with a weight, without bias.

    numpy: ``x @ w`` for ``x[batch, query, k]``, ``w[k, n]``; products accumulate in f32.

    ``%y = nn.linear %x, %w : tensor<2x1x64xbf16>, tensor<64x32xbf16> -> tensor<2x1x32xbf16>``
    """

    name = "nn.linear"

    input = operand_def(_FLOAT_TENSOR)
    weight = operand_def(_FLOAT_TENSOR)
    result = result_def(_FLOAT_TENSOR)

    traits = traits_def(Pure())

    assembly_format = (
        "$input `,` $weight attr-dict `:` type($input) `,` type($weight) `->` type($result)"
    )

    def __init__(self, input: SSAValue, weight: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[input, weight], result_types=[type])

    def verify_(self) -> None:
        x, w, y = _tensor(self.input), _tensor(self.weight), _tensor(self.result)
        _require_rank("the input", x, 3, "[batch, query, k]")
        _require_rank("the weight", w, 2, "[k, n]")
        _require_rank("the result", y, 3, "[batch, query, n]")
        batch, query, k = x.get_shape()
        weight_k, n = w.get_shape()
        if k != weight_k:
            raise VerifyException(f"the input has {k} features, the weight {weight_k} rows")
        if y.get_shape() != (batch, query, n):
            raise VerifyException(
                f"the result must be [{batch}, {query}, {n}], got {_shape_text(y)}"
            )


def _verify_attention(op: AttentionOp | PartialAttentionOp) -> None:
    """What attention and its partial form require of their operands and properties."""
    q, k, v = _tensor(op.query), _tensor(op.key), _tensor(op.value)
    _require_rank("the queries", q, 3, "[batch, query, head * head_dim]")
    _require_rank("the keys", k, 4, "[batch, kv_head, position, head_dim]")
    _require_positive("head_dim", op.head_dim)
    _require_positive("start", op.start, 0)
    _require_same("the values", v, "the keys", k)
    if op.window is not None:
        _require_positive("window", op.window)
        if op.causal is None:
            raise VerifyException("a window needs causal: it looks back from the query's position")
    if op.keep is not None:
        _require_positive("keep", op.keep)
        if op.window is None:
            raise VerifyException("keep needs a window: without one every position is kept")
    batch, query, features = q.get_shape()
    cache_batch, kv_heads, positions, cache_head_dim = k.get_shape()
    head_dim = op.head_dim.value.data
    _require_multiple("the queries' last dimension", features, head_dim)
    if cache_head_dim != head_dim:
        raise VerifyException(f"the cache has head_dim {cache_head_dim}, not {head_dim}")
    if batch != cache_batch:
        raise VerifyException(f"queries of batch {batch}, keys of batch {cache_batch}")
    if not _are_whole(q, k, v):
        return
    if (features // head_dim) % kv_heads:
        raise VerifyException(
            f"{features // head_dim} heads are not a multiple of {kv_heads} KV heads"
        )
    if op.start.value.data + query > positions:
        raise VerifyException(
            f"query position {op.start.value.data + query - 1} is beyond the cache's {positions}"
        )


def _require_sink(sink: SSAValue | None, heads: int) -> None:
    if sink is None:
        return
    type = _tensor(sink)
    _require_rank("the sink", type, 1, "[head]")
    if type.get_shape()[0] != heads:
        raise VerifyException(f"the sink has {type.get_shape()[0]} logits for {heads} heads")


def _attention_properties(
    head_dim: int, start: int, scale: float, causal: bool, window: int | None, keep: int | None
) -> dict[str, Attribute | None]:
    """What a whole attention and a part of one say alike."""
    return {
        "head_dim": IntegerAttr(head_dim, 64),
        "start": IntegerAttr(start, 64),
        "scale": FloatAttr(scale, 64),
        "causal": UnitAttr() if causal else None,
        "window": None if window is None else IntegerAttr(window, 64),
        "keep": None if keep is None else IntegerAttr(keep, 64),
    }


@irdl_op_definition
class AttentionOp(IRDLOperation):
    """Grouped-query attention of new tokens over a cache.

    numpy, for ``q[batch, query, head * head_dim]`` and ``k, v[batch, kv_head, position,
    head_dim]``, with query head ``h`` reading KV head ``h // (heads / kv_heads)``::

        s = einsum("bhtd,bhpd->bhtp", q, k) * scale
        visible = p <= start + t                       # if causal, else all
        visible &= (start + t - p < window) | (p < keep)   # if window; keep is 0 by default
        s = where(visible, s, -inf)
        e = exp(s - max(s, axis=-1))                   # sink[h] takes part in the maximum
        o = einsum("bhtp,bhpd->bhtd", e, v) / (sum(e, axis=-1) + exp(sink[h] - max))

    ``start`` is the position of the first query token. ``sink[head]``, an optional operand, is a
    learned logit per query head: it counts once in the denominator and has no value. A query that
    sees no key gets zeros.

    ``%o = nn.attention %q, %k, %v sink %s : tensor<4xbf16> {head_dim = 16 : i64, start = 31 : i64,
    scale = 0.25 : f64, causal, window = 8 : i64, keep = 2 : i64} : tensor<2x1x64xbf16>,
    tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x1x64xbf16>``
    """

    name = "nn.attention"

    query = operand_def(_FLOAT_TENSOR)
    key = operand_def(_FLOAT_TENSOR)
    value = operand_def(_FLOAT_TENSOR)
    sink = opt_operand_def(_FLOAT_TENSOR)
    head_dim = prop_def(_I64)
    start = prop_def(_I64)
    scale = prop_def(_F64)
    causal = opt_prop_def(UnitAttr)
    window = opt_prop_def(_I64)
    keep = opt_prop_def(_I64)
    result = result_def(_FLOAT_TENSOR)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())

    assembly_format = (
        "$query `,` $key `,` $value (`sink` $sink^ `:` type($sink))? attr-dict "
        "`:` type($query) `,` type($key) `,` type($value) `->` type($result)"
    )

    def __init__(
        self,
        query: SSAValue,
        key: SSAValue,
        value: SSAValue,
        *,
        head_dim: int,
        start: int,
        scale: float,
        causal: bool,
        type: FloatTensor,
        window: int | None = None,
        keep: int | None = None,
        sink: SSAValue | None = None,
    ) -> None:
        super().__init__(
            operands=[query, key, value, sink],
            properties=_attention_properties(head_dim, start, scale, causal, window, keep),
            result_types=[type],
        )

    def verify_(self) -> None:
        _verify_attention(self)
        q = _tensor(self.query)
        _require_same("the result", _tensor(self.result), "the queries", q)
        _require_sink(self.sink, q.get_shape()[2] // self.head_dim.value.data)


@irdl_op_definition
class PartialAttentionOp(IRDLOperation):
    """The part of an attention that some positions of the cache contribute, not yet normalised:
    the largest score ``m``, the sum ``l`` of the weights and the weighted values ``o``.

    numpy, with ``s`` as in ``nn.attention``, of the positions that a device holds::

        m = max(s, axis=-1)                            # -inf where no key is visible
        e = exp(s - where(m == -inf, 0, m))
        l = sum(e, axis=-1)
        o = einsum("bhtp,bhpd->bhtd", e, v)

    ``m`` and ``l`` are f32 ``[batch, query, head]``, ``o`` is f32 or bf16 ``[batch, query, head *
    head_dim]``. Rows that see nothing give ``(-inf, 0, 0)``, the identity of the combiner ``lse``,
    which merges the parts of a sequence; ``nn.lse_finish`` makes the attention of them. A sink is
    no part of it: it belongs to the end, once.
    """

    name = "nn.partial_attention"

    query = operand_def(_FLOAT_TENSOR)
    key = operand_def(_FLOAT_TENSOR)
    value = operand_def(_FLOAT_TENSOR)
    head_dim = prop_def(_I64)
    start = prop_def(_I64)
    scale = prop_def(_F64)
    causal = opt_prop_def(UnitAttr)
    window = opt_prop_def(_I64)
    keep = opt_prop_def(_I64)
    m = result_def(_FLOAT_TENSOR)
    l = result_def(_FLOAT_TENSOR)  # noqa: E741 - the name that the literature gives it
    o = result_def(_FLOAT_TENSOR)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())

    assembly_format = (
        "$query `,` $key `,` $value attr-dict `:` type($query) `,` type($key) `,` type($value) "
        "`->` type($m) `,` type($l) `,` type($o)"
    )

    def __init__(
        self,
        query: SSAValue,
        key: SSAValue,
        value: SSAValue,
        *,
        head_dim: int,
        start: int,
        scale: float,
        causal: bool,
        types: Sequence[FloatTensor],
        window: int | None = None,
        keep: int | None = None,
    ) -> None:
        super().__init__(
            operands=[query, key, value],
            properties=_attention_properties(head_dim, start, scale, causal, window, keep),
            result_types=list(types),
        )

    def verify_(self) -> None:
        _verify_attention(self)
        q = _tensor(self.query)
        _require_lse_parts(self, self.head_dim.value.data, "result")
        if _tensor(self.o).get_shape() != q.get_shape():
            raise VerifyException(
                f"result o must have the shape of the queries, {_shape_text(q)}, "
                f"got {_shape_text(_tensor(self.o))}"
            )


@irdl_op_definition
class LseFinishOp(IRDLOperation):
    """The attention whose merged parts ``m``, ``l``, ``o`` are given.

    numpy, for ``m, l[batch, query, head]``, ``o[batch, query, head * head_dim]`` and, optionally,
    ``sink[head]``, all heads as columns of ``o``::

        m, l, o = lse((m, l, o), (sink, 1, 0))         # if there is a sink
        result = where(l > 0, o / l, 0)

    The sink is counted here and nowhere else, by the device that owns the head.

    ``%y = nn.lse_finish %m, %l, %o sink %s : tensor<4xbf16> {head_dim = 16 : i64} :
    tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x64xf32> -> tensor<2x1x64xbf16>``
    """

    name = "nn.lse_finish"

    m = operand_def(_FLOAT_TENSOR)
    l = operand_def(_FLOAT_TENSOR)  # noqa: E741 - the name that the literature gives it
    o = operand_def(_FLOAT_TENSOR)
    sink = opt_operand_def(_FLOAT_TENSOR)
    head_dim = prop_def(_I64)
    result = result_def(_FLOAT_TENSOR)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())

    assembly_format = (
        "$m `,` $l `,` $o (`sink` $sink^ `:` type($sink))? attr-dict "
        "`:` type($m) `,` type($l) `,` type($o) `->` type($result)"
    )

    def __init__(
        self,
        m: SSAValue,
        l: SSAValue,  # noqa: E741
        o: SSAValue,
        *,
        head_dim: int,
        type: FloatTensor,
        sink: SSAValue | None = None,
    ) -> None:
        super().__init__(
            operands=[m, l, o, sink],
            properties={"head_dim": IntegerAttr(head_dim, 64)},
            result_types=[type],
        )

    def verify_(self) -> None:
        _require_positive("head_dim", self.head_dim)
        _require_lse_parts(self, self.head_dim.value.data, "operand")
        o, result = _tensor(self.o), _tensor(self.result)
        if result.get_shape() != o.get_shape():
            raise VerifyException(
                f"the result must have the shape of o, {_shape_text(o)}, got {_shape_text(result)}"
            )
        _require_sink(self.sink, o.get_shape()[2] // self.head_dim.value.data)


def _require_lse_parts(op: PartialAttentionOp | LseFinishOp, head_dim: int, what: str) -> None:
    m, l, o = _tensor(op.m), _tensor(op.l), _tensor(op.o)  # noqa: E741
    _require_rank(f"{what} m", m, 3, "[batch, query, head]")
    _require_rank(f"{what} o", o, 3, "[batch, query, head * head_dim]")
    _require_same(f"{what} l", l, f"{what} m", m)
    if not isinstance(m.element_type, Float32Type):
        raise VerifyException(f"{what}s m and l must be f32, got {m.element_type}")
    if not isinstance(o.element_type, Float32Type | BFloat16Type):
        raise VerifyException(f"{what} o must be f32 or bf16, got {o.element_type}")
    batch, query, heads = m.get_shape()
    if o.get_shape() != (batch, query, heads * head_dim):
        raise VerifyException(
            f"{what} o must be [{batch}, {query}, {heads * head_dim}] for m {_shape_text(m)} and "
            f"head_dim {head_dim}, got {_shape_text(o)}"
        )


# ---------------------------------------------------------------------------------------------
# Row-wise and element-wise operations
# ---------------------------------------------------------------------------------------------


@irdl_op_definition
class RmsNormOp(IRDLOperation):
    """Root-mean-square normalisation of rows.

    numpy: ``x / sqrt(mean(x * x, axis=-1, keepdims=True) + eps) * w``, computed in f32.

    ``%h = nn.rms_norm %x, %w {eps = 1.0e-05 : f64}
    : tensor<2x1x64xbf16>, tensor<64xbf16> -> tensor<2x1x64xbf16>``
    """

    name = "nn.rms_norm"

    input = operand_def(_FLOAT_TENSOR)
    weight = operand_def(_FLOAT_TENSOR)
    eps = prop_def(_F64)
    result = result_def(_FLOAT_TENSOR)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())

    assembly_format = (
        "$input `,` $weight attr-dict `:` type($input) `,` type($weight) `->` type($result)"
    )

    def __init__(self, input: SSAValue, weight: SSAValue, eps: float, type: FloatTensor) -> None:
        super().__init__(
            operands=[input, weight],
            properties={"eps": FloatAttr(eps, 64)},
            result_types=[type],
        )

    def verify_(self) -> None:
        x, w = _tensor(self.input), _tensor(self.weight)
        _require_rank("the input", x, 3, "[batch, query, feature]")
        _require_rank("the weight", w, 1, "[feature]")
        _require_same("the result", _tensor(self.result), "the input", x)
        if x.get_shape()[-1] != w.get_shape()[0]:
            raise VerifyException(
                f"the input has {x.get_shape()[-1]} features, the weight {w.get_shape()[0]}"
            )
        if self.eps.value.data < 0:
            raise VerifyException(f"eps must not be negative, got {self.eps.value.data}")


def _require_row_values(what: str, type: TensorType[Attribute], rows: tuple[int, ...]) -> None:
    if type.get_shape() != (*rows, 1) or not isinstance(type.element_type, Float32Type):
        raise VerifyException(
            f"{what} must be {[*rows, 1]} of f32, got {_shape_text(type)} of {type.element_type}"
        )


@irdl_op_definition
class SumSquaresOp(IRDLOperation):
    """The sum of the squares of every row.

    numpy: ``sum(x * x, axis=-1, keepdims=True)``, computed and kept in f32. Where the features are
    split over devices it is a partial sum.

    ``%s = nn.sum_squares %x : tensor<2x1x64xbf16> -> tensor<2x1x1xf32>``
    """

    name = "nn.sum_squares"

    input = operand_def(_FLOAT_TENSOR)
    result = result_def(_FLOAT_TENSOR)

    traits = traits_def(Pure())

    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[input], result_types=[type])

    def verify_(self) -> None:
        x = _tensor(self.input)
        _require_rank("the input", x, 3, "[batch, query, feature]")
        _require_row_values("the result", _tensor(self.result), x.get_shape()[:2])


@irdl_op_definition
class NormScaleOp(IRDLOperation):
    """The factor by which a root-mean-square norm multiplies a row, from its sum of squares over
    ``count`` features.

    numpy: ``1 / sqrt(s / count + eps)`` in f32. Not linear: it takes no partial sum.

    ``%r = nn.norm_scale %s {eps = 1.0e-05 : f64, count = 64 : i64}
    : tensor<2x1x1xf32> -> tensor<2x1x1xf32>``
    """

    name = "nn.norm_scale"

    input = operand_def(_FLOAT_TENSOR)
    eps = prop_def(_F64)
    count = prop_def(_I64)
    result = result_def(_FLOAT_TENSOR)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())

    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, *, eps: float, count: int, type: FloatTensor) -> None:
        super().__init__(
            operands=[input],
            properties={"eps": FloatAttr(eps, 64), "count": IntegerAttr(count, 64)},
            result_types=[type],
        )

    def verify_(self) -> None:
        s = _tensor(self.input)
        _require_rank("the input", s, 3, "[batch, query, 1]")
        _require_row_values("the input", s, s.get_shape()[:2])
        _require_same("the result", _tensor(self.result), "the input", s)
        _require_positive("count", self.count)
        if self.eps.value.data < 0:
            raise VerifyException(f"eps must not be negative, got {self.eps.value.data}")


@irdl_op_definition
class ScaleColumnsOp(IRDLOperation):
    """Every feature times its weight.

    numpy: ``x * w`` for ``x[batch, query, feature]``, ``w[feature]``, computed in f32. Linear in
    ``x``.

    ``%y = nn.scale_columns %x, %w : tensor<2x1x64xbf16>, tensor<64xbf16> -> tensor<2x1x64xbf16>``
    """

    name = "nn.scale_columns"

    input = operand_def(_FLOAT_TENSOR)
    weight = operand_def(_FLOAT_TENSOR)
    result = result_def(_FLOAT_TENSOR)

    traits = traits_def(Pure())

    assembly_format = (
        "$input `,` $weight attr-dict `:` type($input) `,` type($weight) `->` type($result)"
    )

    def __init__(self, input: SSAValue, weight: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[input, weight], result_types=[type])

    def verify_(self) -> None:
        x, w = _tensor(self.input), _tensor(self.weight)
        _require_rank("the input", x, 3, "[batch, query, feature]")
        _require_rank("the weight", w, 1, "[feature]")
        _require_same("the result", _tensor(self.result), "the input", x)
        if x.get_shape()[-1] != w.get_shape()[0]:
            raise VerifyException(
                f"the input has {x.get_shape()[-1]} features, the weight {w.get_shape()[0]}"
            )


@irdl_op_definition
class ScaleRowsOp(IRDLOperation):
    """Every row times its factor.

    numpy: ``x * s`` for ``x[batch, query, feature]``, ``s[batch, query, 1]`` of f32, computed in
    f32. Linear in ``x``: a partial sum passes through.

    ``%y = nn.scale_rows %x, %s : tensor<2x1x64xbf16>, tensor<2x1x1xf32> -> tensor<2x1x64xbf16>``
    """

    name = "nn.scale_rows"

    input = operand_def(_FLOAT_TENSOR)
    scale = operand_def(_FLOAT_TENSOR)
    result = result_def(_FLOAT_TENSOR)

    traits = traits_def(Pure())

    assembly_format = (
        "$input `,` $scale attr-dict `:` type($input) `,` type($scale) `->` type($result)"
    )

    def __init__(self, input: SSAValue, scale: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[input, scale], result_types=[type])

    def verify_(self) -> None:
        x = _tensor(self.input)
        _require_rank("the input", x, 3, "[batch, query, feature]")
        _require_row_values("the scale", _tensor(self.scale), x.get_shape()[:2])
        _require_same("the result", _tensor(self.result), "the input", x)


@irdl_op_definition
class RopeOp(IRDLOperation):
    """Rotary position embedding, GPT-NeoX style: in every head dimension ``i`` is rotated with
    dimension ``i + head_dim / 2``.

    numpy, for query token ``t`` and ``i < head_dim / 2``::

        angle = (start + t) * theta ** (-2 * i / head_dim)
        y[i]                = x[i] * cos(angle) - x[i + head_dim / 2] * sin(angle)
        y[i + head_dim / 2] = x[i + head_dim / 2] * cos(angle) + x[i] * sin(angle)
    """

    name = "nn.rope"

    input = operand_def(_FLOAT_TENSOR)
    theta = prop_def(_F64)
    head_dim = prop_def(_I64)
    start = prop_def(_I64)
    result = result_def(_FLOAT_TENSOR)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())

    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(
        self, input: SSAValue, *, theta: float, head_dim: int, start: int, type: FloatTensor
    ) -> None:
        super().__init__(
            operands=[input],
            properties={
                "theta": FloatAttr(theta, 64),
                "head_dim": IntegerAttr(head_dim, 64),
                "start": IntegerAttr(start, 64),
            },
            result_types=[type],
        )

    def verify_(self) -> None:
        x = _tensor(self.input)
        _require_rank("the input", x, 3, "[batch, query, head * head_dim]")
        _require_same("the result", _tensor(self.result), "the input", x)
        _require_positive("head_dim", self.head_dim)
        _require_positive("start", self.start, 0)
        head_dim = self.head_dim.value.data
        if head_dim % 2:
            raise VerifyException(f"head_dim must be even, got {head_dim}")
        _require_multiple("the last dimension", x.get_shape()[-1], head_dim)
        if self.theta.value.data <= 0:
            raise VerifyException(f"theta must be positive, got {self.theta.value.data}")


class _UnaryOp(IRDLOperation):
    """An operation on every element by itself."""

    input = operand_def(_FLOAT_TENSOR)
    result = result_def(_FLOAT_TENSOR)

    assembly_format: ClassVar[str | None] = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[input], result_types=[type])

    def verify_(self) -> None:
        _require_same("the result", _tensor(self.result), "the input", _tensor(self.input))


@irdl_op_definition
class SiluOp(_UnaryOp):
    """numpy: ``x / (1 + exp(-x))``, computed in f32."""

    name = "nn.silu"
    traits = traits_def(Pure())


@irdl_op_definition
class GeluOp(_UnaryOp):
    """numpy: ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``, computed in f32: the
    tanh form of the Gaussian error linear unit that language models use."""

    name = "nn.gelu"
    traits = traits_def(Pure())


class _BinaryOp(IRDLOperation):
    """An operation on pairs of elements of two tensors of one shape."""

    lhs = operand_def(_FLOAT_TENSOR)
    rhs = operand_def(_FLOAT_TENSOR)
    result = result_def(_FLOAT_TENSOR)

    assembly_format: ClassVar[str | None] = (
        "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"
    )

    def __init__(self, lhs: SSAValue, rhs: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[lhs, rhs], result_types=[type])

    def verify_(self) -> None:
        lhs = _tensor(self.lhs)
        _require_same("the second operand", _tensor(self.rhs), "the first", lhs)
        _require_same("the result", _tensor(self.result), "the operands", lhs)


@irdl_op_definition
class AddOp(_BinaryOp):
    """numpy: ``x + y``, computed in f32."""

    name = "nn.add"
    traits = traits_def(Pure())


@irdl_op_definition
class MulOp(_BinaryOp):
    """numpy: ``x * y``, computed in f32."""

    name = "nn.mul"
    traits = traits_def(Pure())


# ---------------------------------------------------------------------------------------------
# The ends of a model
# ---------------------------------------------------------------------------------------------


@irdl_op_definition
class EmbeddingOp(IRDLOperation):
    """The rows of a table that the token ids name.

    numpy: ``table[ids]`` for ``ids[batch, query]`` and ``table[vocab, hidden]``. On a device that
    holds some rows of the table, rows that it does not hold are zero, so that the sum over devices
    is the lookup.
    """

    name = "nn.embedding"

    ids = operand_def(_I32_TENSOR)
    table = operand_def(_FLOAT_TENSOR)
    result = result_def(_FLOAT_TENSOR)

    traits = traits_def(Pure())

    assembly_format = "$ids `,` $table attr-dict `:` type($ids) `,` type($table) `->` type($result)"

    def __init__(self, ids: SSAValue, table: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[ids, table], result_types=[type])

    def verify_(self) -> None:
        ids, table, result = _tensor(self.ids), _tensor(self.table), _tensor(self.result)
        _require_rank("the ids", ids, 2, "[batch, query]")
        _require_rank("the table", table, 2, "[vocab, hidden]")
        expected = (*ids.get_shape(), table.get_shape()[1])
        if result.get_shape() != expected or result.element_type != table.element_type:
            raise VerifyException(
                f"the result must be {list(expected)} of {table.element_type}, "
                f"got {_shape_text(result)} of {result.element_type}"
            )


@irdl_op_definition
class LastTokenOp(IRDLOperation):
    """The last query token of every sequence, whose logits alone a step needs.

    numpy: ``x[:, -1:, :]``
    """

    name = "nn.last_token"

    input = operand_def(_FLOAT_TENSOR)
    result = result_def(_FLOAT_TENSOR)

    traits = traits_def(Pure())

    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[input], result_types=[type])

    def verify_(self) -> None:
        x, y = _tensor(self.input), _tensor(self.result)
        _require_rank("the input", x, 3, "[batch, query, feature]")
        batch, _, features = x.get_shape()
        if y.get_shape() != (batch, 1, features) or y.element_type != x.element_type:
            raise VerifyException(
                f"the result must be [{batch}, 1, {features}] of {x.element_type}, "
                f"got {_shape_text(y)} of {y.element_type}"
            )


# ---------------------------------------------------------------------------------------------
# Facts of a module
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelFacts:
    """What a module's ``nn.*`` attributes say: the model's name, the phase (``decode`` or
    ``prefill``), sequences in the batch, new tokens a sequence (``query``) and tokens a sequence
    attends to, the new ones included (``context``)."""

    model: str
    phase: str
    batch: int
    query: int
    context: int

    @property
    def start(self) -> int:
        """Position of the first new token."""
        return self.context - self.query

    @classmethod
    def of(cls, module: ModuleOp) -> ModelFacts:
        """Reads the attributes. Raises ``ValueError`` where one is missing."""

        def attribute(name: str) -> Attribute:
            found = module.attributes.get(f"nn.{name}")
            if found is None:
                raise ValueError(f"the module has no attribute nn.{name}")
            return found

        def text(name: str) -> str:
            return cast(StringAttr, attribute(name)).data

        def number(name: str) -> int:
            return cast(IntegerAttr, attribute(name)).value.data

        return cls(
            text("model"), text("phase"), number("batch"), number("query"), number("context")
        )

    def write_to(self, module: ModuleOp) -> None:
        """Sets the attributes."""
        module.attributes["nn.model"] = StringAttr(self.model)
        module.attributes["nn.phase"] = StringAttr(self.phase)
        for name in ("batch", "query", "context"):
            module.attributes[f"nn.{name}"] = IntegerAttr(getattr(self, name), 64)


Nn = Dialect(
    "nn",
    [
        ParameterOp,
        StateOp,
        StackOp,
        ReadOp,
        AppendOp,
        LinearOp,
        AttentionOp,
        PartialAttentionOp,
        LseFinishOp,
        RmsNormOp,
        SumSquaresOp,
        NormScaleOp,
        ScaleColumnsOp,
        ScaleRowsOp,
        RopeOp,
        SiluOp,
        GeluOp,
        AddOp,
        MulOp,
        EmbeddingOp,
        LastTokenOp,
    ],
    [],
)
