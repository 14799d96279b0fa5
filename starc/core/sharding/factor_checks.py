"""Whether the encodings of an operation keep its rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.encoding import DimSharding, is_refinement
from starc.core.sharding.factor_rules import (
    FactorRule,
    FactorSharding,
    ShardedValue,
    carried_partial,
    covering_sharding,
    factor_sharding,
    units_of,
    window_sharding,
)
from starc.core.sharding.mesh import AxisRef


def problems_of(
    rule: FactorRule, operands: Sequence[ShardedValue], results: Sequence[ShardedValue]
) -> list[str]:
    """Every way in which the encodings break the rule; empty if the operation may run on its
    shards and gives the results as declared."""
    problems: list[str] = []
    seen: dict[str, tuple[str, FactorSharding]] = {}
    sides = [
        *zip(operands, rule.operands, strict=True),
        *zip(results, rule.results, strict=True),
    ]
    for value, dims in sides:
        for dim, factor in enumerate(dims):
            place = f"dim {dim} of {value.what}"
            sharding = factor_sharding(value, dims, dim)
            if sharding is None:
                problems.append(
                    f"{place} of size {value.shape[dim]} is split over {value.encoding.dims[dim]} "
                    f"inside a block of {factor.block}"
                )
                continue
            if factor.name in rule.whole and sharding.axes:
                problems.append(f"{place} is split over {sharding}, but must be whole")
            first, expected = seen.setdefault(factor.name, (place, sharding))
            if sharding != expected:
                problems.append(
                    f"{place} is split over {sharding}, {first} over {expected}: they must agree"
                )
    if problems:
        return problems
    problems += _nesting_problems(rule, operands, seen)
    problems += _window_problems(rule, operands, seen)
    summed = [
        (ref, rule.kind_of(name))
        for name in rule.summed()
        if name in seen
        for ref in seen[name][1].axes
    ]
    problems += _partial_problems(rule, operands, results, summed)
    return problems


def _window_problems(
    rule: FactorRule, operands: Sequence[ShardedValue], seen: dict[str, tuple[str, FactorSharding]]
) -> list[str]:
    if rule.window is None:
        return []
    inner, outer, start = rule.window
    (inner_place, found), (outer_place, positions) = seen[inner], seen[outer]
    if not found.axes:
        return []
    mesh = operands[0].encoding.mesh
    length, extent = (units_of(rule, operands, name) for name in (inner, outer))
    expected = window_sharding(mesh, positions, start, length, extent)
    same = expected is not None and found.axes == expected.axes and found.by == expected.by
    if same and expected is not None:
        ranks = mesh.refs_size(found.axes)
        if found.map == expected.map or np.array_equal(
            found.map.owners(ranks, length), expected.map.owners(ranks, length)
        ):
            return []
    wanted = f"or split over {expected}" if expected is not None else "no map gives its positions"
    return [
        f"{inner_place} is split over {found}, {outer_place} over {positions}: tokens "
        f"{start}..{start + length - 1} must be whole, {wanted}"
    ]


def _nesting_problems(
    rule: FactorRule, operands: Sequence[ShardedValue], seen: dict[str, tuple[str, FactorSharding]]
) -> list[str]:
    if rule.nested is None or not operands:
        return []
    mesh = operands[0].encoding.mesh
    (inner_place, inner), (outer_place, outer) = (seen[name] for name in rule.nested)
    covering = covering_sharding(rule, operands, mesh, outer)
    if is_refinement(
        mesh,
        DimSharding(covering.axes, covering.map),
        DimSharding(inner.axes, inner.map),
        units_of(rule, operands, rule.nested[0]),
    ):
        return []
    return [
        f"{inner_place} is split over {inner}, {outer_place} over {outer}: the axes of the second "
        "must come first in the first, and its shards cover those of the first"
    ]


def _partial_problems(
    rule: FactorRule,
    operands: Sequence[ShardedValue],
    results: Sequence[ShardedValue],
    summed: Sequence[tuple[AxisRef, ReductionKind]],
) -> list[str]:
    carried, problem = carried_partial(rule, operands)
    if problem is not None:
        return [problem]
    left = [*summed]
    if carried is not None and carried.partial is not None:
        left += [(ref, carried.partial.kind) for ref in carried.partial.axes]
    kinds = tuple(dict.fromkeys(kind for _, kind in left))
    if len(kinds) > 1:
        return [f"the result would be partial {kinds[0]} and {kinds[1]} at once"]
    problems: list[str] = []
    for result in results:
        expected = result.encoding.with_partial(
            kinds[0] if kinds else None, [ref for ref, _ in left]
        ).partial
        found = result.encoding.partial
        normal = result.encoding.with_partial(
            found.kind if found else None, found.axes if found else ()
        )
        if normal.partial != expected:
            problems.append(
                f"{result.what} is partial {found}, expected partial {expected}"
                if found is not None and expected is not None
                else f"{result.what} is not partial, but the operation leaves partial {expected}"
                if expected is not None
                else f"{result.what} is partial {found}, but nothing makes it so"
            )
    return problems
