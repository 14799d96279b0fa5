"""Attention kernels whose keys go around a ring of cubes: results, messages, and what is skipped.

The outer axis stands for the cubes of a group, the inner one for the PEs of a cube.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from starc.core.encoding import AxisRef, DimSharding, Encoding
from starc.core.ring_prefill import ring_order
from starc.core.shard_map import CONTIGUOUS, Cyclic, ShardMap, Zigzag
from starc.dialects import isa
from tests.unit.passes.launches import Launch, check
from tests.unit.passes.sharded_values import held, node, type_text
from tests.unit.passes.test_lower_to_isa import attributes, random

Array = npt.NDArray[Any]
RECTANGLES = {1: (1, 1), 2: (1, 2), 4: (2, 2), 8: (2, 4)}


@dataclass(frozen=True)
class Ring:
    """A prompt, or a chunk of one, whose last query is the last of the written positions."""

    cubes: int
    pes: int
    query: int
    context: int
    keys: ShardMap = CONTIGUOUS
    rows: ShardMap = CONTIGUOUS
    row_tile: int = 4
    key_tile: int = 4
    batch: int = 1
    kv_heads: int = 1
    group: int = 1  # query heads of a cube that share a KV head
    capacity: int = 0  # positions of the cache; 0: as many as there are
    slots: int = 3
    d: int = 8
    window: int | None = None
    causal: bool = True
    sink: bool = False

    @property
    def mesh(self) -> tuple[int, int]:
        return self.cubes, self.pes

    @property
    def positions(self) -> int:
        return max(self.capacity, self.context)

    @property
    def heads(self) -> int:
        """Of all cubes, those of a KV head side by side on a cube."""
        return self.cubes * self.kv_heads * self.group

    @property
    def start(self) -> int:
        return self.context - self.query

    def encoding(self, rank: int, **dims: DimSharding) -> Encoding:
        found = list(Encoding.replicated(node(self.mesh), rank).dims)
        for name, sharding in dims.items():
            found[int(name[1:])] = sharding
        return Encoding(node(self.mesh), tuple(found))

    @property
    def queries(self) -> Encoding:
        heads = DimSharding((AxisRef("gpu"),), CONTIGUOUS)
        return self.encoding(3, _1=DimSharding((AxisRef("xcd"),), self.rows), _2=heads)

    @property
    def cache(self) -> Encoding:
        axes = (AxisRef("gpu"), AxisRef("xcd"))
        return self.encoding(4, _2=DimSharding(axes, self.keys))

    @property
    def query_shape(self) -> tuple[int, int, int]:
        return self.batch, self.query, self.heads * self.d

    @property
    def cache_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.kv_heads, self.positions, self.d

    @property
    def row_tiles(self) -> int:
        rows = self.queries.local_shape(self.query_shape)[1]
        return -(-rows // min(rows, self.row_tile))

    def launch(self) -> Launch:
        q = type_text(self.queries, self.query_shape)
        cache = type_text(self.cache, self.cache_shape)
        whole = type_text(Encoding.replicated(node(self.mesh), 4), self.cache_shape)
        tile = min(self.queries.local_shape(self.query_shape)[1], self.row_tile) * self.group
        share = self.cache.local_shape(self.cache_shape)[2]
        buffers = {"q": q, "k": cache, "v": cache, "y": q}
        workspace: dict[str, str] = {}
        if self.row_tiles > 1:
            lead = f"{self.row_tiles}x{tile}"
            workspace = {"pm": f"{lead}xf32", "pl": f"{lead}xf32", "po": f"{lead}x{self.d}xf32"}
        staging = {f"slots{x}": f"{self.slots}x{share}x{self.d}xbf16" for x in "kv"}
        schedule = attributes(
            tile=[tile, self.key_tile, self.d],
            group=self.group,
            stages=2,
            grid=[1],
            waits=True,
            ring=list(ring_order(*RECTANGLES[self.cubes])),
            workspace=list(workspace) or None,
            staging=list(staging),
        )
        properties = f"head_dim = {self.d} : i64, start = {self.start} : i64"
        properties += f", scale = {self.d**-0.5} : f64"
        properties += ", causal" if self.causal else ""
        properties += f", window = {self.window} : i64" if self.window is not None else ""
        reads, sink = f"%q = @q : tensor<{q}>, %k = @k : tensor<{cache}>", ""
        reads += f", %v = @v : tensor<{cache}>"
        if self.sink:
            heads = DimSharding((AxisRef("gpu"),), CONTIGUOUS)
            buffers["s"] = type_text(self.encoding(1, _0=heads), (self.heads,))
            reads += f", %s = @s : tensor<{buffers['s']}>"
            sink = f"sink %s : tensor<{buffers['s']}>"
        gather = f'on @node axes = ["gpu", "xcd"] dim = 2 : tensor<{cache}> -> tensor<{whole}>'
        text = f"""
        kernel.launch @attention attention reads ({reads}) writes (@y) {schedule} {{
          %0 = collective.all_gather %k {gather}
          %1 = collective.all_gather %v {gather}
          %y = nn.attention %q, %0, %1 {sink} {{{properties}}}
            : tensor<{q}>, tensor<{whole}>, tensor<{whole}> -> tensor<{q}>
          kernel.yield %y : tensor<{q}>
        }}"""
        buffers |= {**workspace, **staging}
        return Launch(text, buffers, self.mesh, symmetric=tuple(staging))

    # Values: no two of them are alike

    def values(self) -> dict[str, Array]:
        cache = {name: random(*self.cache_shape, seed=i) for i, name in enumerate("kv", 1)}
        for values in cache.values():
            values[:, :, self.context :] = np.nan
        return {"q": random(*self.query_shape), **cache, "s": random(self.heads, seed=3)}

    def result(self) -> Array:
        values = self.values()
        q = values["q"].reshape(self.batch, self.query, self.heads, self.d)
        result = np.zeros_like(q)
        at, seen_at = np.arange(self.start, self.context), np.arange(self.context)
        for b in range(self.batch):
            for h in range(self.heads):
                kv = h // self.group % self.kv_heads
                k, v = (values[name][b, kv, : self.context] for name in "kv")
                s = q[b, :, h] @ k.T * self.d**-0.5
                distance = at[:, None] - seen_at[None, :]
                if self.causal:
                    s[distance < 0] = -np.inf
                if self.window is not None:
                    s[distance >= self.window] = -np.inf
                if self.sink:
                    s = np.concatenate([s, np.full((self.query, 1), values["s"][h])], axis=1)
                    v = np.concatenate([v, np.zeros((1, self.d))])
                p = np.exp(s - s.max(axis=1, keepdims=True))
                result[b, :, h] = (p / p.sum(axis=1, keepdims=True)) @ v
        return result.reshape(self.query_shape)

    def split(self, values: Array, encoding: Encoding) -> list[Array]:
        """What each device has of queries or results; other slots are NaN."""
        parts: list[Array] = []
        for coords in encoding.mesh.devices():
            part = np.full(encoding.local_shape(values.shape), np.nan)
            rows = encoding.global_indices(1, values.shape[1], coords)
            columns = encoding.global_indices(2, values.shape[2], coords)
            part[:, : len(rows), : len(columns)] = values[:, rows][:, :, columns]
            parts.append(part)
        return parts

    def check(self, seeds: Sequence[int | None] = (0, 1, 2, 4)) -> None:
        values = self.values()
        inputs: dict[str, list[Array]] = {
            "q": self.split(values["q"], self.queries),
            **{name: held(values[name], self.cache, 2) for name in "kv"},
        }
        if self.sink:
            own = self.heads // self.cubes
            inputs["s"] = [
                values["s"][cube * own : (cube + 1) * own]
                for cube in range(self.cubes)
                for _ in range(self.pes)
            ]
        expected = {"y": self.split(self.result(), self.queries)}
        check(self.launch(), inputs, expected, seeds)


SHAPES = [(1, 1), (1, 4), (2, 1), (2, 2), (4, 2), (8, 1)]


@pytest.mark.parametrize("keys", [CONTIGUOUS, Cyclic(4), Cyclic(1), Zigzag()], ids=str)
@pytest.mark.parametrize(("cubes", "pes"), SHAPES)
def test_a_prompt_gives_the_reference(cubes: int, pes: int, keys: ShardMap) -> None:
    Ring(cubes, pes, 16 * pes, 16 * pes, keys, row_tile=16).check((0, 1))
