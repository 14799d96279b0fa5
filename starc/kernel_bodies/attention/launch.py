"""Attention launches: the form that a launch takes, and its facts."""

from __future__ import annotations

from starc.dialects.kernel_problems import attention_of, tensor
from starc.kernel_bodies.attention.cube_attention import lower_cube_attention, sweeps
from starc.kernel_bodies.attention.extents import extents_of
from starc.kernel_bodies.attention.key_shares import KeyShares
from starc.kernel_bodies.attention.ring import lower_ring, ring_facts
from starc.kernel_bodies.body import Template
from starc.kernel_bodies.context import LaunchContext


def lower_attention(context: LaunchContext) -> list[list[Template]]:
    """The templates of the launch and, where a second launch merges shares, of that."""
    if sweeps(context):
        return lower_cube_attention(context)
    if context.launch.ring is not None:
        return lower_ring(context)
    return KeyShares(context).lower()


def attention_facts(context: LaunchContext) -> dict[str, int]:
    """The extents that decide the time; FLOP are those of the visible pairs."""
    if context.launch.ring is not None:
        return ring_facts(context)
    op = attention_of(context.launch)
    shape = extents_of(context, op)
    facts = {"tasks": shape.tasks, "keys": shape.key_limit, "head_dim": shape.head_dim}
    if context.target.engines:
        batch, kv_heads = tensor(op.key).get_shape()[:2]
        facts["passes"] = batch * kv_heads
    return facts
