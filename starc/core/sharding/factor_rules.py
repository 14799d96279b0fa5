"""Sharding rules as loops: which loop of an operation each dimension of its values runs over.

An operation is a nest of loops, *factors*. A matrix product ``y[b, t, n] = x[b, t, k] w[k, n]`` has
the factors b, t, n and k. Its values may be sharded however every factor is sharded the same way in
all values that mention it; a factor that only operands mention is summed over, and where it is
split the result is a partial sum. That is all a rule states; ``problems_of`` checks encodings by
it (``factor_checks``), ``resolve`` finds the encodings under which an operation can run on its
shards (``factor_resolution``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from starc.core.sharding.combiners import COMBINERS, ReductionKind
from starc.core.sharding.encoding import Encoding
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
    some of the positions is ``{"position": ReductionKind.LSE}``, and all results together are the
    components.

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
    kinds: Mapping[str, ReductionKind] = field(default_factory=dict[str, ReductionKind], hash=False)

    def kind_of(self, factor: str) -> ReductionKind:
        """The combiner of what a summed factor leaves where it is split."""
        return self.kinds.get(factor, ReductionKind.SUM)

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
# What checks and resolution share
# ---------------------------------------------------------------------------------------------


def factor_sharding(
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


def covering_sharding(
    rule: FactorRule, operands: Sequence[ShardedValue], mesh: Mesh, outer: FactorSharding
) -> FactorSharding:
    """The sharding of the inner factor of a nested pair that the outer one's shards cover: the
    query heads of the KV heads of a device."""
    assert rule.nested is not None
    units, groups = (units_of(rule, operands, name) for name in rule.nested)
    ranks = mesh.refs_size(outer.axes)
    return replace(outer, map=outer.map.of_blocks(units // groups, ranks, groups))


def units_of(rule: FactorRule, operands: Sequence[ShardedValue], name: str) -> int:
    """The extent of a factor."""
    return next(
        value.shape[dim] // factor.block
        for value, dims in zip(operands, rule.operands, strict=True)
        for dim, factor in enumerate(dims)
        if factor.name == name
    )


def window_sharding(
    mesh: Mesh, positions: FactorSharding, start: int, length: int, extent: int
) -> FactorSharding | None:
    """How tokens ``start .. start + length - 1`` are split where each is with its position."""
    ranks = mesh.refs_size(positions.axes)
    found = positions.map.window(start, length, ranks, extent)
    return None if found is None else replace(positions, map=found)


def carried_partial(
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
        if COMBINERS[kind.kind].linear:
            return first.encoding, None
    elif rule.transparent:
        return first.encoding, None
    elif len(partial) == 1 and partial[0] in rule.linear and COMBINERS[kind.kind].linear:
        return first.encoding, None
    return (
        None,
        f"{first.what} is partial {kind}, the operation needs its value: an all-reduce was lost",
    )
