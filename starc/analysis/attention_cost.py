"""Estimated time of one decode step of an attention over a cache that is whole or split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from starc.analysis.cost import attention_cost
from starc.core.collectives.cost import choices
from starc.core.kernel_schedules.attention_problem import AttentionProblem
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.sharding.attention_sharding import STATISTIC_BYTES, AttentionShape, SequencePlan
from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.encoding import Encoding, Mesh
from starc.core.sharding.mesh import AxisRef
from starc.core.sharding.reshard_plan import ReshardStep, plan_reshard
from starc.targets.target import Target


@dataclass(frozen=True)
class Widths:
    """Bytes of an element of activations, of the cache and of the parts' values."""

    activation: int
    cache: int
    partial: int


def link_seconds(sent: dict[str, int], rates: DeviceRates) -> float:
    """Seconds that bytes take on the links of a device, one class after the other."""
    total = 0.0
    for name, count in sent.items():
        if name in rates.links:
            link = rates.links[name]
            total += count / (link.bytes_per_s * link.per_device)
    return total


def exchange_seconds(
    steps: Sequence[ReshardStep],
    sources: Sequence[tuple[Encoding, tuple[int, ...], int]],
    target: Target,
) -> float:
    """Seconds of the collectives of a reshard, each by the fastest algorithm and transport, over
    all its axes at once or level by level. ``sources`` are the encoding, the shape and the bytes of
    an element of every value that goes through the steps together."""
    total = 0.0
    held = [source for source, _, _ in sources]
    mesh = held[0].mesh
    for step in steps:
        if not step.kind.moves_data:
            continue
        gathers = step.kind.payload_is_result
        payload = 0
        for index, (_, shape, width) in enumerate(sources):
            after = _same_axes(held[index], step)
            payload += math.prod((after if gathers else held[index]).local_shape(shape)) * width
            held[index] = after
        kernel = target.kernel_gap_ps * 1e-12
        total += kernel + _fastest(step.kind, payload, mesh, step.axes, target, len(sources))
    return total


def _same_axes(source: Encoding, step: ReshardStep) -> Encoding:
    """The encoding of a component of a value after a step that was planned for another one."""
    for dim, sharding in enumerate(step.result.dims):
        if source.dims[dim].axes != sharding.axes:
            source = source.with_dim(dim, sharding.axes)
    return source.with_partial_of(step.result)


def _fastest(
    kind: CollectiveKind,
    payload: int,
    mesh: Mesh,
    axes: Sequence[AxisRef],
    target: Target,
    operands: int,
) -> float:
    """Seconds of a collective, in one or in a phase for every axis, the inner ones first."""
    flat = choices(kind, payload, mesh, axes, target, operands=operands)
    phases, left = 0.0, payload
    for ref in reversed(axes):
        phase = choices(kind, left, mesh, (ref,), target, operands=operands)
        phases += phase[0].time.seconds
        left //= mesh.ref_size(ref) if kind is not CollectiveKind.ALL_TO_ALL else 1
    return min(flat[0].time.seconds, phases) if len(axes) > 1 else flat[0].time.seconds


def step_seconds(
    plan: SequencePlan | None,
    shape: AttentionShape,
    queries: Encoding,
    cache: Encoding,
    widths: Widths,
    dtype: str,
    target: Target,
) -> float:
    """The estimate of one decode step of an attention: over the cache as it is (``plan`` is
    ``None``), or with its positions split, the gather of queries and the merge included."""
    shape = replace(shape, query=1, start=shape.positions - 1)
    heads = queries if plan is None else plan.queries
    local_heads = heads.local_shape(shape.columns)[2] // shape.head_dim
    batch, kv_heads, _, _ = cache.local_shape(shape.cache)
    problem = AttentionProblem(
        batch,
        1,
        kv_heads,
        max(1, local_heads // kv_heads),
        shape.head_dim,
        shape.start,
        shape.positions,
        shape.causal,
        dtype,
        widths.activation,
        widths.cache,
        shape.window,
        shape.keep,
        1 if plan is None else plan.ranks,
        1,
        None if plan is None else widths.partial,
    )
    rates = DeviceRates.of(target)
    seconds = attention_cost(problem, rates).seconds
    if plan is None:
        return seconds
    gather = plan_reshard(plan.given, plan.queries, shape.columns)
    seconds += exchange_seconds(gather, [(plan.given, shape.columns, widths.activation)], target)
    merge = plan_reshard(plan.parts, plan.owners, shape.columns)
    rows = (plan.part_rows, shape.rows, STATISTIC_BYTES)
    seconds += exchange_seconds(
        merge, [rows, rows, (plan.parts, shape.columns, widths.partial)], target
    )
    return seconds + rates.gap_s + rates.prologue("elementwise")
