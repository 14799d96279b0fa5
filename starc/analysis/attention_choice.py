"""How an attention shares the positions of its cache: over how many devices, and what travels.

A decision has no IR: it is made of the shapes and encodings of an attention (``AttentionSite``) and
of what is asked for (``Wanted``), by estimated seconds and bytes. What was considered and not done
is part of it, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from starc.analysis.attention_cost import Widths, link_seconds, step_seconds
from starc.core.collectives.head_owners import default_root, head_owners
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.sharding.attention_sharding import (
    AttentionShape,
    SequencePlan,
    cache_bytes,
    shard_sequence,
    shared_axes,
    with_owners,
)
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.core.sharding.ring_sharding import RingPlan, ring_sharding
from starc.core.sharding.shard_map import Contiguous
from starc.diagnostics import counted
from starc.targets.cubes import PE_MESH
from starc.targets.target import Target

NEGLIGIBLE_MEMORY: Final = 1 / 32
"""Of a device's memory: where caches of all layers that are kept more often than needed take no
more, time alone decides over how many devices positions are split."""


class Travels(StrEnum):
    """What goes from device to device: queries to keys, or keys (and values) to queries, put
    together in front of the attention or passed around a ring by its kernel."""

    AUTO = "auto"
    QUERIES = "queries"
    KEYS = "keys"
    RING = "ring"


class HeadOwners(StrEnum):
    """Who finishes which heads."""

    AUTO = "auto"
    RESULT = "result"
    ROOT = "root"
    SCATTER = "scatter"


@dataclass(frozen=True)
class Wanted:
    """What is asked for: ``block`` positions lie together, by default one, in a ring a tile of
    keys; ``map_name`` and ``rows`` say how positions and query rows are dealt out."""

    travels: Travels
    owners: HeadOwners
    map_name: str
    rows: str
    block: int | None


@dataclass(frozen=True)
class AttentionSite:
    """An attention: the encodings of its queries, its keys (and values) and its result, of elements
    of ``dtype``, in a layer that the model has ``layers`` times."""

    shape: AttentionShape
    queries: Encoding
    cache: Encoding
    result: Encoding
    widths: Widths
    dtype: str
    layers: int

    @property
    def mesh(self) -> Mesh:
        return self.cache.mesh


@dataclass(frozen=True)
class Refusal:
    """Something that is not done, why, and the numbers of that."""

    reason: str
    numbers: Mapping[str, int | float] = field(default_factory=dict[str, int | float])


@dataclass(frozen=True)
class SplitPositions:
    """Positions are split; queries are gathered, or else keys and values. ``step_us`` are the
    estimates of a decode step by the devices that share positions, where they decided;
    ``for_memory`` where they would have decided otherwise, but the copies take too much memory."""

    plan: SequencePlan
    gathers_queries: bool
    step_us: Mapping[int, float]
    for_memory: bool


Choice: TypeAlias = SplitPositions | RingPlan | None


class AttentionChooser:
    """The decision for one attention. ``refusals`` are what it has not done so far, in order."""

    def __init__(self, site: AttentionSite, wanted: Wanted, target: Target) -> None:
        self.site = site
        self.wanted = wanted
        self.target = target
        self.rates = DeviceRates.of(target)
        self.mesh = site.mesh
        self.refusals: list[Refusal] = []

    def choose(self) -> Choice:
        """What is done; ``None`` where the cache stays as it is."""
        site = self.site
        axes = shared_axes(site.cache)
        if not axes:
            return self._refuse("no two devices keep the same keys", replication=1)
        if self._rows_are_split(axes):
            return self._refuse("its queries are split over the devices that keep the same keys")
        travels = self.wanted.travels
        if self._rotates_keys():
            ring = self._ring()
            if not isinstance(ring, str):
                return ring
            self._refuse(f"keys do not go around: {ring}")
            if travels is Travels.RING:
                return None
            travels = Travels.QUERIES
        is_fixed = self.wanted.travels is not Travels.AUTO
        cache = self._with_whole_groups(travels)
        plans = self._candidates(cache)
        if is_fixed:
            return SplitPositions(plans[-1], self._gathers_queries(plans[-1], travels), {}, False)
        return self._fastest(plans, travels)

    def _refuse(self, reason: str, **numbers: int | float) -> None:
        self.refusals.append(Refusal(reason, numbers))

    def _rows_are_split(self, axes: Sequence[AxisRef]) -> bool:
        """Whether sequences or new tokens are split over some of the axes."""
        used = [
            ref
            for found in (self.site.queries, self.site.result)
            for sharding in found.dims[:2]
            for ref in sharding.axes
        ]
        return any(self.mesh.overlap(ref, other) for ref in used for other in axes)

    # What travels

    def _rotates_keys(self) -> bool:
        """Whether keys travel, and the kernel passes them on: on machines of cubes, of many
        queries."""
        if self.wanted.travels is not Travels.AUTO:
            return self.wanted.travels is Travels.RING
        is_prompt = self.site.shape.query > 1 and bool(self.target.engines)
        if not is_prompt:
            return False
        largest = self._candidates(self.site.cache)[-1]
        return not self._gathers_queries(largest, Travels.AUTO)

    def _ring(self) -> RingPlan | str:
        site, wanted = self.site, self.wanted
        return ring_sharding(
            site.shape,
            site.queries,
            site.cache,
            site.result,
            wanted.map_name,
            wanted.block or 0,
            wanted.rows,
        )

    def _gathers_queries(self, plan: SequencePlan, travels: Travels) -> bool:
        """Whether queries travel: as it is said, or as is faster on the links."""
        if travels is not Travels.AUTO:
            return travels is Travels.QUERIES
        widths = self.site.widths
        queries = plan.query_bytes(widths.activation, widths.partial)
        keys = plan.key_bytes(widths.cache)
        return link_seconds(queries, self.rates) <= link_seconds(keys, self.rates)

    # Over how many devices

    def _with_whole_groups(self, travels: Travels) -> Encoding:
        """The cache with its KV heads over outer levels alone, where the innermost level has
        several axes and the queries go to the keys: a group then has several KV heads together,
        which its devices attend to in turn, and shares the positions of each."""
        mesh, cache = self.mesh, self.site.cache
        heads = cache.dims[1]
        inner = mesh.level_axes(mesh.levels()[-1])
        outer = tuple(ref for ref in heads.axes if AxisRef(ref.name) not in inner)
        if not mesh.is_nested or outer == heads.axes or not isinstance(heads.map, Contiguous):
            return cache
        grouped = cache.with_dim(1, outer)
        largest = self._candidates(grouped)[-1]
        return grouped if self._gathers_queries(largest, travels) else cache

    def _candidates(self, cache: Encoding) -> list[SequencePlan]:
        """Plans for every number of devices that the shared axes offer, the largest last; inner
        axes are taken first."""
        site, wanted = self.site, self.wanted
        shared = shared_axes(cache)
        size = self.mesh.refs_size(shared)
        plans: list[SequencePlan] = []
        for count in range(2, size + 1):
            axes = self.mesh.trailing_factors(shared, count)[0]
            if size % count or self.mesh.refs_size(axes) != count:
                continue
            plan = shard_sequence(
                site.shape,
                site.queries,
                cache,
                site.result,
                axes,
                wanted.map_name,
                wanted.block or 1,
            )
            # A device with fewer query heads than KV heads would read caches for nobody.
            if count == size or plan.query_heads >= plan.kv_heads:
                plans.append(self._with_owners(plan))
        return plans

    def _with_owners(self, plan: SequencePlan) -> SequencePlan:
        """The plan with the owners of heads that are asked for."""
        owners = self.wanted.owners
        if owners is HeadOwners.AUTO:
            owners = HeadOwners.SCATTER if self.target.engines else HeadOwners.RESULT
        if owners is HeadOwners.RESULT:
            return plan
        heads = plan.shape.heads // self.mesh.refs_size(plan.parts.dims[2].axes)
        elements = 1
        for ref in plan.axes:
            if self.mesh.axis(ref.name).link_class == PE_MESH:
                elements *= self.mesh.ref_size(ref)
        cubes = plan.ranks // elements
        ranks = head_owners(heads, cubes, elements)
        if owners is HeadOwners.ROOT:
            ranks = (default_root(cubes, elements),) * heads
        found = with_owners(plan, ranks)
        if found is None:
            self._refuse("its heads are not split evenly: they end where the result has them")
            return plan
        return found

    def _fastest(self, plans: Sequence[SequencePlan], travels: Travels) -> Choice:
        """The plan over as many devices as pays; all of them where copies take much memory."""
        site, largest = self.site, plans[-1]
        seconds: dict[int, float] = {
            plan.ranks if plan is not None else 1: step_seconds(
                plan, site.shape, site.queries, site.cache, site.widths, site.dtype, self.target
            )
            for plan in (None, *plans)
        }
        copies = cache_bytes(site.shape, site.cache, site.widths.cache)
        step_us = {ranks: round(found * 1e6, 2) for ranks, found in seconds.items()}
        fastest = min(seconds, key=lambda ranks: (seconds[ranks], -ranks))
        plan, for_memory = largest, False
        if copies * site.layers > self.target.device_memory_bytes * NEGLIGIBLE_MEMORY:
            for_memory = seconds[largest.ranks] > seconds[1]
        elif fastest != largest.ranks:
            self._refuse(
                f"a decode step is estimated at {step_us[fastest]} us with positions on "
                f"{counted(fastest, 'device')} and at {step_us[largest.ranks]} us on "
                f"{largest.ranks}: the exchange of queries and parts costs more than the shorter "
                "read saves",
                ranks=fastest,
                step_us=step_us[fastest],
                all_ranks=largest.ranks,
                all_ranks_step_us=step_us[largest.ranks],
                kv_bytes=copies,
            )
            found = next((plan for plan in plans if plan.ranks == fastest), None)
            if found is None:
                return None
            plan = found
        return SplitPositions(plan, self._gathers_queries(plan, travels), step_us, for_memory)
