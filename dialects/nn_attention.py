"""Attention: whole, of some positions of a cache, and the merge of such parts."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float32Type,
    FloatAttr,
    IntegerAttr,
    UnitAttr,
)
from xdsl.ir import Attribute, SSAValue
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
from xdsl.traits import (
    Pure,
)
from xdsl.utils.exceptions import VerifyException

from starc.dialects.nn_requirements import (
    F64,
    FLOAT_TENSOR,
    I64,
    FloatTensor,
    are_whole,
    require_multiple,
    require_positive,
    require_rank,
    require_same,
    shape_text,
    tensor,
)


def _verify_attention(op: AttentionOp | PartialAttentionOp) -> None:
    """What attention and its partial form require of their operands and properties."""
    q, k, v = tensor(op.query), tensor(op.key), tensor(op.value)
    require_rank("the queries", q, 3, "[batch, query, head * head_dim]")
    require_rank("the keys", k, 4, "[batch, kv_head, position, head_dim]")
    require_positive("head_dim", op.head_dim)
    require_positive("start", op.start, 0)
    require_same("the values", v, "the keys", k)
    if op.window is not None:
        require_positive("window", op.window)
        if op.causal is None:
            raise VerifyException("a window needs causal: it looks back from the query's position")
    if op.keep is not None:
        require_positive("keep", op.keep)
        if op.window is None:
            raise VerifyException("keep needs a window: without one every position is kept")
    batch, query, features = q.get_shape()
    cache_batch, kv_heads, positions, cache_head_dim = k.get_shape()
    head_dim = op.head_dim.value.data
    require_multiple("the queries' last dimension", features, head_dim)
    if cache_head_dim != head_dim:
        raise VerifyException(f"the cache has head_dim {cache_head_dim}, not {head_dim}")
    if batch != cache_batch:
        raise VerifyException(f"queries of batch {batch}, keys of batch {cache_batch}")
    if not are_whole(q, k, v):
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
    type = tensor(sink)
    require_rank("the sink", type, 1, "[head]")
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

    query = operand_def(FLOAT_TENSOR)
    key = operand_def(FLOAT_TENSOR)
    value = operand_def(FLOAT_TENSOR)
    sink = opt_operand_def(FLOAT_TENSOR)
    head_dim = prop_def(I64)
    start = prop_def(I64)
    scale = prop_def(F64)
    causal = opt_prop_def(UnitAttr)
    window = opt_prop_def(I64)
    keep = opt_prop_def(I64)
    result = result_def(FLOAT_TENSOR)

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
        q = tensor(self.query)
        require_same("the result", tensor(self.result), "the queries", q)
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

    query = operand_def(FLOAT_TENSOR)
    key = operand_def(FLOAT_TENSOR)
    value = operand_def(FLOAT_TENSOR)
    head_dim = prop_def(I64)
    start = prop_def(I64)
    scale = prop_def(F64)
    causal = opt_prop_def(UnitAttr)
    window = opt_prop_def(I64)
    keep = opt_prop_def(I64)
    m = result_def(FLOAT_TENSOR)
    l = result_def(FLOAT_TENSOR)  # noqa: E741 - the name that the literature gives it
    o = result_def(FLOAT_TENSOR)

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
        q = tensor(self.query)
        _require_lse_parts(self, self.head_dim.value.data, "result")
        if tensor(self.o).get_shape() != q.get_shape():
            raise VerifyException(
                f"result o must have the shape of the queries, {shape_text(q)}, "
                f"got {shape_text(tensor(self.o))}"
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

    m = operand_def(FLOAT_TENSOR)
    l = operand_def(FLOAT_TENSOR)  # noqa: E741 - the name that the literature gives it
    o = operand_def(FLOAT_TENSOR)
    sink = opt_operand_def(FLOAT_TENSOR)
    head_dim = prop_def(I64)
    result = result_def(FLOAT_TENSOR)

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
        require_positive("head_dim", self.head_dim)
        _require_lse_parts(self, self.head_dim.value.data, "operand")
        o, result = tensor(self.o), tensor(self.result)
        if result.get_shape() != o.get_shape():
            raise VerifyException(
                f"the result must have the shape of o, {shape_text(o)}, got {shape_text(result)}"
            )
        _require_sink(self.sink, o.get_shape()[2] // self.head_dim.value.data)


def _require_lse_parts(op: PartialAttentionOp | LseFinishOp, head_dim: int, what: str) -> None:
    m, l, o = tensor(op.m), tensor(op.l), tensor(op.o)  # noqa: E741
    require_rank(f"{what} m", m, 3, "[batch, query, head]")
    require_rank(f"{what} o", o, 3, "[batch, query, head * head_dim]")
    require_same(f"{what} l", l, f"{what} m", m)
    if not isinstance(m.element_type, Float32Type):
        raise VerifyException(f"{what}s m and l must be f32, got {m.element_type}")
    if not isinstance(o.element_type, Float32Type | BFloat16Type):
        raise VerifyException(f"{what} o must be f32 or bf16, got {o.element_type}")
    batch, query, heads = m.get_shape()
    if o.get_shape() != (batch, query, heads * head_dim):
        raise VerifyException(
            f"{what} o must be [{batch}, {query}, {heads * head_dim}] for m {shape_text(m)} and "
            f"head_dim {head_dim}, got {shape_text(o)}"
        )
