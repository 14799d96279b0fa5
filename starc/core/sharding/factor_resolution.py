"""The encodings under which an operation can run on its shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.encoding import DimSharding, Encoding, is_refinement
from starc.core.sharding.factor_rules import (
    DimFactor,
    FactorRule,
    FactorSharding,
    Shape,
    ShardedValue,
    carried_partial,
    covering_sharding,
    factor_sharding,
    units_of,
    window_sharding,
)
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.core.sharding.shard_map import CONTIGUOUS


@dataclass(frozen=True)
class Resolution:
    """Encodings under which an operation can run: what its operands must have, what it gives."""

    operands: tuple[Encoding, ...]
    results: tuple[Encoding, ...]


def resolve(
    rule: FactorRule,
    operands: Sequence[ShardedValue],
    result_shapes: Sequence[Shape],
    fixed: Sequence[bool],
) -> Resolution:
    """The encodings for an operation whose operands have the given ones.

    ``fixed`` operands (parameters, states) keep theirs. Where the others disagree on a factor, it
    is split over the axes that they have in common. Partial states that the operation cannot carry
    are dropped from the operands wanted: the caller combines them first.
    """
    mesh = operands[0].encoding.mesh
    shardings = _choose_factors(rule, operands, fixed, mesh)
    axes_in_use = [ref for sharding in shardings.values() for ref in sharding.axes]
    carried, problem = carried_partial(rule, operands)
    kind = carried.partial if carried is not None else None
    if problem is not None or (
        kind
        and (
            any(mesh.overlap(a, b) for a in kind.axes for b in axes_in_use)
            or _split_kinds(rule, shardings) - {kind.kind}
        )
    ):
        carried = kind = None
    wanted = tuple(
        _encoding(mesh, dims, value.shape, shardings).with_partial(
            value.encoding.partial.kind if kind and value.encoding.partial else None,
            value.encoding.partial.axes if kind and value.encoding.partial else (),
        )
        for value, dims in zip(operands, rule.operands, strict=True)
    )
    summed = [ref for name in rule.summed() for ref in shardings[name].axes]
    left = kind.kind if kind else next(iter(_split_kinds(rule, shardings)), None)
    results = tuple(
        _encoding(mesh, dims, shape, shardings).with_partial(
            left, (*(kind.axes if kind else ()), *summed)
        )
        for dims, shape in zip(rule.results, result_shapes, strict=True)
    )
    return Resolution(wanted, results)


def _split_kinds(rule: FactorRule, shardings: dict[str, FactorSharding]) -> set[ReductionKind]:
    """The kinds of the summed factors that are split."""
    return {rule.kind_of(name) for name in rule.summed() if shardings[name].axes}


def _choose_factors(
    rule: FactorRule, operands: Sequence[ShardedValue], fixed: Sequence[bool], mesh: Mesh
) -> dict[str, FactorSharding]:
    names = [factor.name for dims in (*rule.operands, *rule.results) for factor in dims]
    chosen = {name: FactorSharding() for name in names}
    decided: set[str] = set()
    for pass_over_fixed in (True, False):
        for value, dims, is_fixed in zip(operands, rule.operands, fixed, strict=True):
            if is_fixed != pass_over_fixed:
                continue
            for dim, factor in enumerate(dims):
                found = factor_sharding(value, dims, dim) or FactorSharding()
                if factor.name in rule.whole:
                    found = FactorSharding()
                if factor.name not in decided:
                    chosen[factor.name] = found
                elif not pass_over_fixed and factor.name in decided - _fixed_names(rule, fixed):
                    chosen[factor.name] = _agreement(mesh, chosen[factor.name], found)
                decided.add(factor.name)
    if rule.nested is not None:
        inner, outer = rule.nested
        covering = covering_sharding(rule, operands, mesh, chosen[outer])
        fine = DimSharding(chosen[inner].axes, chosen[inner].map)
        units = units_of(rule, operands, inner)
        if not is_refinement(mesh, DimSharding(covering.axes, covering.map), fine, units):
            chosen[inner] = covering
    if rule.window is not None:
        inner, outer, start = rule.window
        length, extent = (units_of(rule, operands, name) for name in (inner, outer))
        expected = window_sharding(mesh, chosen[outer], start, length, extent)
        if chosen[inner] != expected:
            chosen[inner] = FactorSharding()
    return _without_overlap(rule, chosen, mesh)


def _fixed_names(rule: FactorRule, fixed: Sequence[bool]) -> set[str]:
    return {
        factor.name
        for dims, is_fixed in zip(rule.operands, fixed, strict=True)
        if is_fixed
        for factor in dims
    }


def _agreement(mesh: Mesh, left: FactorSharding, right: FactorSharding) -> FactorSharding:
    if left == right:
        return left
    if left.map == right.map == CONTIGUOUS:
        return FactorSharding(mesh.common_prefix(left.axes, right.axes)[0])
    return FactorSharding()


def _without_overlap(
    rule: FactorRule, chosen: dict[str, FactorSharding], mesh: Mesh
) -> dict[str, FactorSharding]:
    """Two loops of one nest cannot run over the same axis; the later one gives way."""
    kept: dict[str, FactorSharding] = {}
    used: list[AxisRef] = []
    for name, sharding in chosen.items():
        free = not any(mesh.overlap(ref, other) for ref in sharding.axes for other in used)
        if rule.nested is not None and name in rule.nested:
            kept[name] = sharding
            used += sharding.axes if name == rule.nested[0] else ()
            continue
        if rule.window is not None and name == rule.window[0]:
            # It runs along with the positions, over the same axes.
            kept[name] = sharding
            continue
        kept[name] = sharding if free else FactorSharding()
        used += kept[name].axes
    return kept


def _encoding(
    mesh: Mesh, dims: Sequence[DimFactor], shape: Shape, shardings: dict[str, FactorSharding]
) -> Encoding:
    encoding = Encoding.replicated(mesh, len(dims))
    names = [factor.name for factor in dims]
    for dim, factor in enumerate(dims):
        sharding = shardings[factor.name]
        # A map that the rows of another factor turn says nothing about a value without them.
        if sharding.axes and (sharding.by is None or sharding.by in names):
            ranks = mesh.refs_size(sharding.axes)
            shard_map = sharding.map.of_blocks(factor.block, ranks, shape[dim] // factor.block)
            if sharding.by is not None:
                shard_map = shard_map.with_rows(names.index(sharding.by))
            encoding = encoding.with_dim(dim, sharding.axes, shard_map)
    return encoding
