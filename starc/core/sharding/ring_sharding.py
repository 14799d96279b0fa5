"""Encodings of an attention whose keys go around a ring of cubes.

The devices that would all keep the same keys are those of a group. Those over which query heads are
split are its *cubes*, each with heads of its own; the others are the *PEs* of a cube, over which
query rows are split. Positions of the cache are split over all of them.

    >>> mesh = Mesh("node", (Axis("group", 2, "outer", "noc"), Axis("cube", 8, "inner", "noc"),
    ...                      Axis("pe", 8, "inner", "pe_mesh")))
    >>> heads = Encoding.replicated(mesh, 3).with_dim(2, (AxisRef("group"), AxisRef("cube")))
    >>> cache = Encoding.replicated(mesh, 4).with_dim(1, (AxisRef("group"),))
    >>> shape = AttentionShape(1, 8192, 16, 2, 128, 0, 8192)
    >>> plan = ring_sharding(shape, heads, cache, heads, "cyclic", 0, "auto")
    >>> print(plan.sequence.cache)
    [{}, {"group"}, {"cube", "pe"} cyclic(128), {}]
    >>> print(plan.queries)
    [{}, {"pe"} cyclic(64), {"group", "cube"}]

**Query rows.** A tile of them is consecutive positions, so that what it sees ends with one tile of
keys. The PEs of a cube work on a block together: what counts is the busiest one of each step
(``RingProblem.step_imbalance``; of a prompt of 8192 on 8 x 8 PEs). In stretches that is 1.86 times
the mean. Two chunks, one from the front and one from the back, are the same work for all PEs over
all steps, but not in one step: 1.43. Dealt out by tiles of 64 rows it is 1.05. So ``auto`` is
``cyclic``, with tiles of as many rows as leave every PE 16 of them.

**Keys.** ``cyclic`` deals them out by tiles: every block of the ring then costs the same, and cubes
wait for no other. In stretches early blocks are seen by nearly all rows and late ones by few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starc.core.sharding.attention_sharding import (
    AttentionShape,
    Axis,
    AxisRef,
    Mesh,
    SequencePlan,
    shard_sequence,
    shared_axes,
    without,
)
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.shard_map import CONTIGUOUS, Contiguous, Cyclic, Offsets, ShardMap, Zigzag
from starc.core.tiling import ceil_div, largest_divisor

__all__ = ["Axis", "AxisRef", "Mesh", "RingPlan", "ring_sharding"]

ROWS: Final = ("auto", "cyclic", "contiguous", "zigzag")
MOST_KEYS: Final = 128
"""Positions of a block that is dealt out, at most: a tile of keys."""
MOST_ROWS: Final = 128
"""Query rows of a tile at most: scores, state and products are a third of a PE's scratch memory."""
LEAST_ROWS: Final = 32
"""Rows of a tile below which the matrix engine would work on padding."""
ROUNDS: Final = 16
"""Tiles of query rows of a PE that make its share of a step like that of the others."""


@dataclass(frozen=True)
class RingPlan:
    """``sequence`` has the cache's encodings. ``cubes`` are the axes of the ring, ``pes`` those of
    a cube; ``queries`` is the encoding of the queries, and ``result`` that of the result."""

    sequence: SequencePlan
    cubes: tuple[AxisRef, ...]
    pes: tuple[AxisRef, ...]
    queries: Encoding
    result: Encoding

    @property
    def rotations(self) -> int:
        return self.sequence.cache.mesh.refs_size(self.cubes) - 1

    def sent_bytes(self, width: int) -> int:
        """Bytes of keys and values that a device sends on, of elements of ``width``."""
        shape = self.sequence.shape
        _, heads, positions, head_dim = self.sequence.cache.local_shape(shape.cache)
        return 2 * self.rotations * shape.batch * heads * positions * head_dim * width


def ring_sharding(
    shape: AttentionShape,
    queries: Encoding,
    cache: Encoding,
    result: Encoding,
    map_name: str,
    block: int,
    rows: str,
) -> RingPlan | str:
    """The encodings, or why keys cannot go around. ``queries``, ``cache`` and ``result`` are the
    encodings that the attention has; ``block`` 0 is a tile of keys."""
    mesh = cache.mesh
    shared = shared_axes(cache)
    heads = queries.dims[2].axes
    if result.dims[2] != queries.dims[2]:
        return "queries and results have other heads"
    pes = without(mesh, shared, heads)
    cubes = without(mesh, shared, pes)
    if mesh.canonical((*cubes, *pes)) != mesh.canonical(shared):
        return "its heads are not split over the outer ones of the devices that keep the same keys"
    ranks, group = mesh.refs_size(cubes), shape.heads // shape.kv_heads
    if group % ranks or queries.dims[2].map != CONTIGUOUS or shape.heads % mesh.refs_size(heads):
        return (
            f"{group} query heads of a KV head are not split evenly over {ranks} devices: each of "
            "the ring needs whole heads"
        )
    size = mesh.refs_size(shared)
    if not block:
        share = ceil_div(shape.positions, size)
        block = max(1, min(MOST_KEYS, 1 << (share.bit_length() - 1)))
    # Of a prompt every device gets positions: sequences need not begin on others.
    plan = shard_sequence(shape, queries, cache, result, shared, map_name, block, rotated=False)
    if pes:
        by = row_map(rows, shape.query, mesh.refs_size(pes))
        queries, result = (value.with_dim(1, pes, by) for value in (queries, result))
    return RingPlan(plan, cubes, pes, queries, result)


def row_map(rows: str, query: int, pes: int) -> ShardMap:
    """How query rows are dealt out to PEs.

    >>> [row_map("auto", query, 8).suffix() for query in (131072, 8192, 1000, 40)]
    [' cyclic(128)', ' cyclic(64)', ' cyclic(32)', ' cyclic(5)']
    """
    match rows:
        case "zigzag":
            return Zigzag()
        case "contiguous":
            return CONTIGUOUS
        case _:
            share = ceil_div(query, pes)
            for block in (MOST_ROWS, MOST_ROWS // 2):
                if share >= ROUNDS * block:
                    return Cyclic(block)
            return Cyclic(min(LEAST_ROWS, share))


def row_tile(by: ShardMap, query: int, pes: int, group: int) -> int:
    """Query positions of a tile of ``group`` heads: as many as follow each other on a PE, up to
    ``MOST_ROWS`` rows.

    >>> row_tile(Zigzag(), 8192, 8, 1), row_tile(Cyclic(64), 8192, 8, 2)
    (128, 64)
    """
    most = max(1, MOST_ROWS // group)
    match by:
        case Contiguous() | Offsets():
            return min(most, by.capacity(pes, query))
        case Zigzag():
            return largest_divisor(ceil_div(query, 2 * pes), most)
        case Cyclic():
            return largest_divisor(by.block, most)
        case _:
            raise ValueError(f"query rows are not dealt out{by.suffix()}")
