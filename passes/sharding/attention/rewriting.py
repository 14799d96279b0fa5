"""An attention over a cache whose positions are split, written down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import Float32Type, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from starc.analysis.reencoding import encoding, reshard_before, set_encoding
from starc.core.sharding.attention_sharding import SequencePlan
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.ring_sharding import RingPlan
from starc.dialects.nn import (
    AppendOp,
    AttentionOp,
    FloatTensor,
    LseFinishOp,
    PartialAttentionOp,
)
from starc.dialects.sharding import AnyTensor, ReshardOp, global_type
from starc.passes.base import with_location
from starc.passes.sharding.attention.sites import Caches


def store_split(plan: SequencePlan, appends: Sequence[AppendOp], caches: Caches) -> None:
    """Splits the caches, and sends new keys and values to their owners."""
    for append in appends:
        state = caches.states[append.state.string_value()]
        state.properties["type"] = global_type(cast(AnyTensor, state.type), plan.cache)
        append.operands[0] = _to_owners(append, plan.new)
        set_encoding(append.result, plan.cache)


def _to_owners(append: AppendOp, wanted: Encoding) -> SSAValue:
    """The new keys or values under their owners' encoding. A reshard that only they need is left
    out, so that a partial sum goes to the owners at once."""
    value = append.input
    source = value.owner
    if (
        isinstance(source, ReshardOp)
        and len(source.inputs) == 1
        and all(use.operation is append for use in value.uses)
    ):
        value = source.inputs[0]
    result = reshard_before(append, value, wanted)
    if isinstance(source, ReshardOp) and value is not append.input:
        append.operands[0] = result
        source.detach()
        source.erase()
    return result


def gather_keys(op: AttentionOp, plan: SequencePlan) -> None:
    """Puts the cache together in front of the attention."""
    for index, value in ((1, op.key), (2, op.value)):
        op.operands[index] = reshard_before(op, value, plan.gathered)


def rotate_keys(op: AttentionOp, ring: RingPlan) -> None:
    """Splits query rows; the cache is put together in front of the attention, whose kernel passes
    it on."""
    op.operands[0] = reshard_before(op, op.query, ring.queries)
    gather_keys(op, ring.sequence)
    wanted = cast(AnyTensor, op.result.type)
    if ring.result == encoding(op.result, ring.result.mesh):
        return
    users = [(use.operation, use.index) for use in op.result.uses]
    set_encoding(op.result, ring.result)
    back = with_location(ReshardOp([op.result], [wanted]), op)
    Rewriter.insert_op(back, InsertPoint.after(op))
    back.outputs[0].name_hint = op.result.name_hint
    for user, index in users:
        user.operands[index] = back.outputs[0]


def split_attention(op: AttentionOp, plan: SequencePlan, partial: Attribute) -> None:
    """Attention over a device's own positions, with values of type ``partial``, and the merge of
    the parts by the owners of heads."""
    rows: AnyTensor = TensorType(Float32Type(), plan.shape.rows)
    columns: AnyTensor = TensorType(partial, plan.shape.columns)
    result = cast(AnyTensor, op.result.type)
    parts = _parts(op, plan, rows, columns)
    merged = ReshardOp(
        list(parts.results),
        [
            global_type(rows, plan.owner_rows),
            global_type(rows, plan.owner_rows),
            global_type(columns, plan.owners),
        ],
    )
    finish = LseFinishOp(
        *merged.outputs,
        head_dim=plan.shape.head_dim,
        type=cast(FloatTensor, global_type(result, plan.owners)),
        sink=_owned_sink(op, plan),
    )
    for name, part, whole in zip("mlo", parts.results, merged.outputs, strict=True):
        part.name_hint = whole.name_hint = name
    finish.result.name_hint = op.result.name_hint
    new: list[Operation] = [parts, merged, finish]
    for inserted in new:
        with_location(inserted, op)
        Rewriter.insert_op(inserted, InsertPoint.before(op))
    final = finish.result
    if plan.owners != encoding(op.result, plan.owners.mesh):
        back = ReshardOp([final], [result])
        with_location(back, op)
        Rewriter.insert_op(back, InsertPoint.before(op))
        final = back.outputs[0]
        final.name_hint = op.result.name_hint
    op.result.replace_all_uses_with(final)
    op.detach()
    op.erase()


def _parts(
    op: AttentionOp, plan: SequencePlan, rows: AnyTensor, columns: AnyTensor
) -> PartialAttentionOp:
    return PartialAttentionOp(
        reshard_before(op, op.query, plan.queries),
        op.key,
        op.value,
        head_dim=plan.shape.head_dim,
        start=plan.shape.start,
        scale=op.scale.value.data,
        causal=plan.shape.causal,
        types=[
            cast(FloatTensor, global_type(rows, plan.part_rows)),
            cast(FloatTensor, global_type(rows, plan.part_rows)),
            cast(FloatTensor, global_type(columns, plan.parts)),
        ],
        window=plan.shape.window,
        keep=plan.shape.keep or None,
    )


def _owned_sink(op: AttentionOp, plan: SequencePlan) -> SSAValue | None:
    """The sink's logits of the heads that a device owns."""
    if op.sink is None:
        return None
    heads = plan.owner_rows.dims[2]
    wanted = Encoding.replicated(plan.owner_rows.mesh, 1).with_dim(0, heads.axes, heads.map)
    return reshard_before(op, op.sink, wanted)
