"""Sharding rules as loops: which loop of an operation each dimension of its values runs over.

An operation is a nest of loops, *factors*. A matrix product ``y[b, t, n] = x[b, t, k] w[k, n]`` has
the factors b, t, n and k. Its values may be sharded however every factor is sharded the same way in
all values that mention it; a factor that only operands mention is summed over, and where it is
split the result is a partial sum. That is all a rule states; ``problems_of`` checks encodings by
it, ``resolve`` finds the encodings under which an operation can run on its shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from starc.core.sharding.encoding import DimSharding, Encoding, is_refinement
from starc.core.sharding.mesh import AxisRef, Mesh, axes_text
from starc.core.sharding.shard_map import CONTIGUOUS, ShardMap

Shape = tuple[int, ...]


@dataclass(frozen=True)
class DimFactor:
    """The factor a dimension runs over, in blocks of ``block`` positions: the columns of 64 heads
    of 128 are ``DimFactor("head", 128)``."""

    name: str
    block: int = 1


@dataclass(frozen=True)
class FactorRule:
    """How an operation's values may be sharded.

    ``operands`` and ``results`` give a factor for every dimension. A factor in ``whole`` may not
    be split. Factors that no result mentions are summed over.

    Partial sums: the operation is linear in each of ``linear`` while the others are whole;
    ``additive`` operations take operands that are all partial in the same way. ``transparent``
    ones move values only and take any kind. Others take no partial operand.

    ``kinds`` gives the combiner of a summed factor where it is not a sum: a partial softmax over
    some of the positions is ``{"position": "lse"}``, and all results together are the components.

    ``nested`` is a pair (inner, outer): every shard of the factor ``inner`` (query heads) needs one
    shard of ``outer`` (KV heads) that covers it, so the axes of ``outer`` come first in ``inner``.

    ``window`` is (inner, outer, start): index i of the factor ``inner`` (new tokens) is position
    ``start + i`` of ``outer`` (a cache). Either ``inner`` is whole, so that a device may take what
    it holds of ``outer``, or each of its indices lies on the devices that hold its position.
    """

    operands: tuple[tuple[DimFactor, ...], ...]
    results: tuple[tuple[DimFactor, ...], ...]
    whole: frozenset[str] = frozenset()
    linear: frozenset[int] = frozenset()
    additive: bool = False
    transparent: bool = False
    nested: tuple[str, str] | None = None
    window: tuple[str, str, int] | None = None
    kinds: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    def kind_of(self, factor: str) -> str:
        """The combiner of what a summed factor leaves where it is split."""
        return self.kinds.get(factor, "sum")

    def summed(self) -> tuple[str, ...]:
        """The factors that are summed over, in the order in which operands mention them."""
        kept = {factor.name for dims in self.results for factor in dims}
        kept |= set(self.nested or ()) | set(self.window[:1] if self.window else ())
        found = [factor.name for dims in self.operands for factor in dims]
        return tuple(dict.fromkeys(name for name in found if name not in kept | self.whole))


def factors(text: str, **blocks: int) -> tuple[DimFactor, ...]:
    """``factors("b t head", head=128)``: one factor a dimension."""
    return tuple(DimFactor(name, blocks.get(name, 1)) for name in text.split())


@dataclass(frozen=True)
class FactorSharding:
    """The axes that split a factor and the map of its positions to ranks. ``by`` is the factor
    that turns a rotated map; its own ``by``, which counts dimensions, is 0 then."""

    axes: tuple[AxisRef, ...] = ()
    map: ShardMap = CONTIGUOUS
    by: str | None = None

    def __str__(self) -> str:
        turned = f" by {self.by}" if self.by else ""
        return f"{{{axes_text(self.axes)}}}{self.map.with_rows(None).suffix()}{turned}"


@dataclass(frozen=True)
class ShardedValue:
    """A value as a rule sees it. ``what`` names it in messages: ``operand 0``."""

    what: str
    encoding: Encoding
    shape: Shape


# ---------------------------------------------------------------------------------------------
# Checking
# ---------------------------------------------------------------------------------------------


def _factor_sharding(
    value: ShardedValue, dims: Sequence[DimFactor], dim: int
) -> FactorSharding | None:
    """The sharding of a dimension as one of its factor; ``None`` where a shard cuts a block."""
    sharding, block = value.encoding.dims[dim], dims[dim].block
    axes = value.encoding.mesh.canonical(sharding.axes)
    if not axes:
        return FactorSharding()
    ranks = value.encoding.mesh.refs_size(axes)
    found = sharding.map.in_blocks(block, ranks, value.shape[dim])
    if found is None or found.rotated_by is None:
        return None if found is None else FactorSharding(axes, found)
    rows = dims[found.rotated_by]
    return FactorSharding(axes, found.with_rows(0), rows.name) if rows.block == 1 else None


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
            sharding = _factor_sharding(value, dims, dim)
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
    length, extent = (_units(rule, operands, name) for name in (inner, outer))
    expected = _window_sharding(mesh, positions, start, length, extent)
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


def _window_sharding(
    mesh: Mesh, positions: FactorSharding, start: int, length: int, extent: int
) -> FactorSharding | None:
    """How tokens ``start .. start + length - 1`` are split where each is with its position."""
    ranks = mesh.refs_size(positions.axes)
    found = positions.map.window(start, length, ranks, extent)
    return None if found is None else replace(positions, map=found)


def _nesting_problems(
    rule: FactorRule, operands: Sequence[ShardedValue], seen: dict[str, tuple[str, FactorSharding]]
) -> list[str]:
    if rule.nested is None or not operands:
        return []
    mesh = operands[0].encoding.mesh
    (inner_place, inner), (outer_place, outer) = (seen[name] for name in rule.nested)
    covering = _covering(rule, operands, mesh, outer)
    if is_refinement(
        mesh,
        DimSharding(covering.axes, covering.map),
        DimSharding(inner.axes, inner.map),
        _units(rule, operands, rule.nested[0]),
    ):
        return []
    return [
        f"{inner_place} is split over {inner}, {outer_place} over {outer}: the axes of the second "
        "must come first in the first, and its shards cover those of the first"
    ]


def _covering(
    rule: FactorRule, operands: Sequence[ShardedValue], mesh: Mesh, outer: FactorSharding
) -> FactorSharding:
    """The sharding of the inner factor of a nested pair that the outer one's shards cover: the
    query heads of the KV heads of a device."""
    assert rule.nested is not None
    units, groups = (_units(rule, operands, name) for name in rule.nested)
    ranks = mesh.refs_size(outer.axes)
    return replace(outer, map=outer.map.of_blocks(units // groups, ranks, groups))


def _units(rule: FactorRule, operands: Sequence[ShardedValue], name: str) -> int:
    """The extent of a factor."""
    return next(
        value.shape[dim] // factor.block
        for value, dims in zip(operands, rule.operands, strict=True)
        for dim, factor in enumerate(dims)
        if factor.name == name
    )


def _partial_problems(
    rule: FactorRule,
    operands: Sequence[ShardedValue],
    results: Sequence[ShardedValue],
    summed: Sequence[tuple[AxisRef, str]],
) -> list[str]:
    carried, problem = _carried_partial(rule, operands)
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


def _carried_partial(
    rule: FactorRule, operands: Sequence[ShardedValue]
) -> tuple[Encoding | None, str | None]:
    """The encoding whose partial state the results inherit, and what is wrong with the operands'
    partial states."""
    partial = [index for index, value in enumerate(operands) if value.encoding.partial]
    if not partial:
        return None, None
    first = operands[partial[0]]
    kind = first.encoding.partial
    assert kind is not None
    if rule.additive:
        for value in operands:
            if value.encoding.partial != kind:
                other = value.encoding.partial
                return None, (
                    f"{first.what} is partial {kind}, {value.what} is "
                    f"{f'partial {other}' if other else 'not'}: an all-reduce was lost"
                )
        if kind.kind == "sum":
            return first.encoding, None
    elif rule.transparent:
        return first.encoding, None
    elif len(partial) == 1 and partial[0] in rule.linear and kind.kind == "sum":
        return first.encoding, None
    return (
        None,
        f"{first.what} is partial {kind}, the operation needs its value: an all-reduce was lost",
    )


# ---------------------------------------------------------------------------------------------
# Resolution
# ---------------------------------------------------------------------------------------------


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
    carried, problem = _carried_partial(rule, operands)
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


def _split_kinds(rule: FactorRule, shardings: dict[str, FactorSharding]) -> set[str]:
    """The combiners of the summed factors that are split."""
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
                found = _factor_sharding(value, dims, dim) or FactorSharding()
                if factor.name in rule.whole:
                    found = FactorSharding()
                if factor.name not in decided:
                    chosen[factor.name] = found
                elif not pass_over_fixed and factor.name in decided - _fixed_names(rule, fixed):
                    chosen[factor.name] = _agreement(mesh, chosen[factor.name], found)
                decided.add(factor.name)
    if rule.nested is not None:
        inner, outer = rule.nested
        covering = _covering(rule, operands, mesh, chosen[outer])
        fine = DimSharding(chosen[inner].axes, chosen[inner].map)
        units = _units(rule, operands, inner)
        if not is_refinement(mesh, DimSharding(covering.axes, covering.map), fine, units):
            chosen[inner] = covering
    if rule.window is not None:
        inner, outer, start = rule.window
        length, extent = (_units(rule, operands, name) for name in (inner, outer))
        expected = _window_sharding(mesh, chosen[outer], start, length, extent)
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
