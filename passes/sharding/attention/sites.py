"""The attentions of a module that read caches, as decisions see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import BFloat16Type, Float32Type, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from starc.analysis.attention_choice import AttentionSite
from starc.analysis.attention_cost import Widths
from starc.analysis.reencoding import encoding, layer_counts, layers_of, shape_of
from starc.core.sharding.attention_sharding import AttentionShape
from starc.core.sharding.mesh import Mesh
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.nn import AppendOp, AttentionOp, StateOp
from starc.dialects.sharding import AnyTensor, is_local
from starc.targets.target import Target


@dataclass(frozen=True)
class Caches:
    """The states of a module, the operations that append to them, and how many layers have one."""

    states: dict[str, StateOp]
    appends: dict[str, list[AppendOp]]
    layers: dict[FuncOp, int]

    @classmethod
    def of(cls, module: ModuleOp) -> Caches:
        found = cls({}, {}, {})
        counts = layer_counts(module)
        for op in module.walk():
            if isinstance(op, StateOp):
                found.states[op.sym_name.data] = op
            elif isinstance(op, AppendOp):
                found.appends.setdefault(op.state.string_value(), []).append(op)
        for layer in layers_of(module):
            found.layers[layer] = counts.get(layer.sym_name.data, 1)
        return found

    def appends_of(self, op: AttentionOp, mesh: Mesh) -> tuple[AppendOp, ...] | str:
        """The operations that make the keys and the values of an attention, or why they cannot be
        split."""
        found: list[AppendOp] = []
        for what, value in (("keys", op.key), ("values", op.value)):
            append = value.owner
            if not isinstance(append, AppendOp) or is_local(value.type):
                return f"its {what} are not what the layer appends to a cache"
            name = append.state.string_value()
            users = {use.operation for use in value.uses}
            if len(self.appends[name]) > 1 or users != {op}:
                return f"@{name} has other users"
            found.append(append)
        if encoding(op.key, mesh) != encoding(op.value, mesh):
            return "keys and values are split in different ways"
        return tuple(found)


def partial_type(op: AttentionOp, wanted: str, target: Target) -> Attribute:
    """The element type of the parts' values: ``wanted`` is ``bf16``, ``f32`` or ``auto``."""
    element = cast(AnyTensor, op.result.type).element_type
    is_narrow = isinstance(element, BFloat16Type) and not target.engines
    if wanted == "bf16" or (wanted == "auto" and is_narrow):
        return BFloat16Type()
    return Float32Type()


def site_of(op: AttentionOp, mesh: Mesh, caches: Caches, partial: Attribute) -> AttentionSite:
    """An attention whose parts' values are of type ``partial``."""
    layer = op.parent_op()
    assert isinstance(layer, FuncOp)
    query, key = cast(AnyTensor, op.query.type), cast(AnyTensor, op.key.type)
    widths = Widths(
        element_bytes(query),
        element_bytes(key),
        2 if isinstance(partial, BFloat16Type) else 4,
    )
    return AttentionSite(
        _shape(op),
        encoding(op.query, mesh),
        encoding(op.key, mesh),
        encoding(op.result, mesh),
        widths,
        str(query.element_type),
        caches.layers[layer],
    )


def _shape(op: AttentionOp) -> AttentionShape:
    batch, query, features = shape_of(op.query)
    _, kv_heads, positions, head_dim = shape_of(op.key)
    return AttentionShape(
        batch,
        query,
        features // head_dim,
        kv_heads,
        head_dim,
        op.start.value.data,
        positions,
        op.causal is not None,
        op.window.value.data if op.window is not None else None,
        op.keep.value.data if op.keep is not None else 0,
    )
