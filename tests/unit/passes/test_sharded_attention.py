"""Attention kernels: windows, kept positions, sinks, and keys that are dealt out to devices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from starc.core.sharding.encoding import Encoding
from starc.core.sharding.shard_map import CONTIGUOUS, Cyclic, ShardMap, Zigzag
from starc.dialects import isa
from tests.unit.passes.launches import Launch, check
from tests.unit.passes.sharded_values import held, split, type_text
from tests.unit.passes.test_lower_to_isa import attributes, random

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """An attention whose last query is at the end of the context."""

    batch: int = 1
    query: int = 1
    kv_heads: int = 1
    group: int = 2
    context: int = 37
    d: int = 8
    causal: bool = True
    window: int | None = None
    keep: int = 0
    sink: bool = False
    mesh: tuple[int, int] = (1, 1)
    axes: tuple[str, ...] = ()
    map: ShardMap = CONTIGUOUS
    rows: int = 0  # 0: the heads of a group and all queries in one tile
    keys: int = 4
    split: int = 1
    combine: str | None = None
    combine_rows: int | None = None
    stages: int = 2

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group

    @property
    def start(self) -> int:
        return self.context - self.query

    @property
    def encoding(self) -> Encoding:
        return split(self.mesh, 4, 2, self.axes, self.map)

    @property
    def cache_shape(self) -> tuple[int, ...]:
        return (self.batch, self.kv_heads, self.context, self.d)

    @property
    def visible(self) -> Array:
        """[query, position]"""
        q, k = np.arange(self.start, self.context)[:, None], np.arange(self.context)[None, :]
        if not self.causal:
            return np.ones((self.query, self.context), bool)
        seen = k <= q
        if self.window is not None:
            seen &= (q - k < self.window) | (k < self.keep)
        return seen

    # The launch

    @property
    def properties(self) -> str:
        parts = [
            f"head_dim = {self.d} : i64, start = {self.start} : i64",
            f"scale = {self.d**-0.5} : f64",
        ]
        parts += ["causal"] if self.causal else []
        parts += [f"window = {self.window} : i64"] if self.window is not None else []
        parts += [f"keep = {self.keep} : i64"] if self.keep else []
        return "{" + ", ".join(parts) + "}"

    def schedule(self, *, waits: bool = False) -> tuple[str, dict[str, str]]:
        """The attributes of the launch and the buffers of its workspace."""
        rows = self.rows or self.query * self.group
        group = 1 if self.rows else self.group
        tasks = self.batch * self.heads // group
        grid = tasks * (-(-self.query // self.rows) if self.rows else 1) * self.split
        workspace: dict[str, str] = {}
        if self.split > 1:
            keeps = self.combine == "owner" and self.combine_rows is None
            lead = f"{self.split - keeps}x{tasks}x{rows}"
            workspace = {"pm": f"{lead}xf32", "pl": f"{lead}xf32", "po": f"{lead}x{self.d}xf32"}
        text = attributes(
            tile=[rows, self.keys, self.d],
            group=group,
            split=self.split if self.split > 1 else None,
            combine=self.combine,
            combine_rows=self.combine_rows,
            stages=self.stages,
            grid=[grid],
            waits=True if waits or self.combine == "owner" else None,
            workspace=list(workspace) or None,
        )
        return text, workspace

    def whole(self) -> Launch:
        q = f"{self.batch}x{self.query}x{self.heads * self.d}xbf16"
        cache = "x".join(map(str, self.cache_shape)) + "xbf16"
        schedule, workspace = self.schedule()
        reads = f"%q = @q : tensor<{q}>, %k = @k : tensor<{cache}>, %v = @v : tensor<{cache}>"
        buffers = {"q": q, "k": cache, "v": cache, "y": q, **workspace}
        sink = ""
        if self.sink:
            buffers["s"] = f"{self.heads}xbf16"
            reads += f", %s = @s : tensor<{buffers['s']}>"
            sink = f"sink %s : tensor<{buffers['s']}>"
        text = f"""
        kernel.launch @attention attention reads ({reads}) writes (@y) {schedule} {{
          %y = nn.attention %q, %k, %v {sink} {self.properties}
            : tensor<{q}>, tensor<{cache}>, tensor<{cache}> -> tensor<{q}>
          kernel.yield %y : tensor<{q}>
        }}"""
        return Launch(text, buffers, self.mesh)

    def partial(self, element: str = "f32") -> Launch:
        q = f"{self.batch}x{self.query}x{self.heads * self.d}"
        m = f"{self.batch}x{self.query}x{self.heads}xf32"
        cache = type_text(self.encoding, self.cache_shape)
        schedule, workspace = self.schedule()
        buffers = {"q": f"{q}xbf16", "k": cache, "v": cache, **workspace}
        buffers |= {"m": m, "l": m, "o": f"{q}x{element}"}
        types = f"tensor<{m}>, tensor<{m}>, tensor<{q}x{element}>"
        text = f"""
        kernel.launch @attention attention reads (%q = @q : tensor<{q}xbf16>,
            %k = @k : tensor<{cache}>, %v = @v : tensor<{cache}>) writes (@m, @l, @o) {schedule} {{
          %m, %l, %o = nn.partial_attention %q, %k, %v {self.properties}
            : tensor<{q}xbf16>, tensor<{cache}>, tensor<{cache}> -> {types}
          kernel.yield %m, %l, %o : {types}
        }}"""
        return Launch(text, buffers, self.mesh)

    # Values

    def inputs(self) -> dict[str, Array]:
        values = {
            "q": random(self.batch, self.query, self.heads * self.d),
            "k": random(*self.cache_shape, seed=1),
            "v": random(*self.cache_shape, seed=2),
        }
        return {**values, "s": random(self.heads, seed=3)} if self.sink else values

    def parts(
        self, positions: list[Array], queries: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """m, l and o of the positions of each sequence."""
        given = self.inputs() if queries is None else {**self.inputs(), "q": queries}
        q = given["q"].reshape(self.batch, self.query, self.heads, self.d)
        m = np.full((self.batch, self.query, self.heads), -np.inf)
        l, o = np.zeros_like(m), np.zeros_like(q)  # noqa: E741
        for b, own in enumerate(positions):
            for h in range(self.heads):
                k, v = (given[name][b, h // self.group][own] for name in "kv")
                for t in range(self.query):
                    seen = self.visible[t][own]
                    if seen.any():
                        s = k[seen] @ q[b, t, h] * self.d**-0.5
                        m[b, t, h] = s.max()
                        e = np.exp(s - s.max())
                        l[b, t, h], o[b, t, h] = e.sum(), e @ v[seen]
        return m, l, o.reshape(self.batch, self.query, -1)

    def result(self) -> Array:
        return self.result_of(self.inputs()["q"])

    def result_of(self, queries: Array) -> Array:
        m, l, o = self.parts([np.arange(self.context)] * self.batch, queries)  # noqa: E741
        if self.sink:
            logits = self.inputs()["s"]
            with np.errstate(over="ignore"):
                l = l + np.where(np.isneginf(m), 0, np.exp(logits - m))  # noqa: E741
        l = np.where(l > 0, l, 1)[..., None]  # noqa: E741
        return (o.reshape(*m.shape, self.d) / l).reshape(o.shape)

    def check_whole(self) -> None:
        check(self.whole(), self.inputs(), {"y": self.result()})

    def check_partial(self) -> None:
        given, encoding = self.inputs(), self.encoding
        expected: dict[str, list[Array]] = {"m": [], "l": [], "o": []}
        for coords in encoding.mesh.devices():
            indices = encoding.indices(2, self.cache_shape, coords)
            rows = [indices[b] if indices.ndim == 2 else indices for b in range(self.batch)]
            parts = self.parts([own[own >= 0] for own in rows])
            for name, value in zip("mlo", parts, strict=True):
                expected[name].append(value)
        caches = {name: held(given[name], encoding, 2) for name in "kv"}
        check(self.partial(), {"q": given["q"], **caches}, expected, seeds=(None, 0, 1, 2))


# Whole caches


@pytest.mark.parametrize("keep", [0, 1, 6])
@pytest.mark.parametrize("window", [1, 5, 16, 100])
def test_windows_of_packed_heads(window: int, keep: int):
    Case(batch=2, query=3, kv_heads=2, window=window, keep=keep).check_whole()


@pytest.mark.parametrize(("window", "keep"), [(3, 0), (9, 2), (9, 7), (40, 3)])
@pytest.mark.parametrize(("query", "context"), [(40, 40), (21, 61)])
def test_windows_of_query_tiles(query: int, context: int, window: int, keep: int):
    Case(
        query=query, context=context, window=window, keep=keep, rows=8, stages=3, kv_heads=2
    ).check_whole()


@pytest.mark.parametrize("combine", ["owner", "kernel"])
@pytest.mark.parametrize(("window", "keep"), [(None, 0), (20, 0), (20, 6)])
def test_shares_with_windows_and_sinks(combine: str, window: int | None, keep: int):
    case = Case(batch=2, query=2, group=3, context=70, window=window, keep=keep, sink=True)
    for shares in (2, 5):
        replace(
            case, split=shares, combine=combine, combine_rows=2 if combine == "kernel" else None
        ).check_whole()


@pytest.mark.parametrize(("shares", "rows"), [(2, 3), (7, 2), (6, 1)])
def test_several_owners_merge_a_part_of_the_rows_each(shares: int, rows: int):
    case = Case(
        batch=2, query=2, group=3, context=70, sink=True, split=shares, combine="owner",
        combine_rows=rows,
    )  # fmt: skip
    case.check_whole()
    replace(
        case, sink=False, mesh=(1, 2), axes=("xcd",), map=Cyclic(1, by=0), context=101
    ).check_partial()
    with pytest.raises(ValueError, match="do not own 6 parts"):
        replace(case, combine_rows=1, split=5).whole().lowered()


@pytest.mark.parametrize("rows", [0, 8])
def test_a_sink_counts_once(rows: int):
    Case(batch=2, query=9, kv_heads=2, sink=True, rows=rows).check_whole()


def test_tiles_outside_of_a_window_are_not_visited():
    def loads(case: Case) -> int:
        """Key tiles that the only workgroup goes through."""
        kernel = next(
            op for op in case.whole().lowered(pipelined=False).ops if op.name == "isa.kernel"
        )
        loop = next(op for op in kernel.walk() if isinstance(op, isa.LoopOp))
        return loop.upper.data.evaluate({}) - loop.lower.data.evaluate({})

    case = Case(context=400, keys=16)
    assert loads(case) == 25
    assert loads(replace(case, window=40)) == 3
    assert loads(replace(case, window=40, keep=17)) == 5


# Shards of the cache

MESHES = [((1, 1), ("xcd",)), ((1, 2), ("xcd",)), ((2, 2), ("xcd",)), ((3, 2), ("gpu", "xcd"))]
MAPS = [CONTIGUOUS, Cyclic(1), Cyclic(4), Zigzag(), Cyclic(1, by=0), Cyclic(4, by=0)]


@pytest.mark.parametrize("shard_map", MAPS, ids=lambda m: m.suffix() or "contiguous")
@pytest.mark.parametrize(("mesh", "axes"), MESHES, ids=str)
def test_partial_attention_of_every_shard(
    mesh: tuple[int, int], axes: tuple[str, ...], shard_map: ShardMap
):
    case = Case(batch=3, query=2, kv_heads=2, context=29, mesh=mesh, axes=axes, map=shard_map)
    case.check_partial()
    replace(case, window=9, keep=3).check_partial()


@pytest.mark.parametrize("context", [1, 2, 5])
def test_fewer_tokens_than_ranks(context: int):
    """Devices without a key give the identity of the merge, and never a NaN."""
    case = Case(batch=2, context=context, mesh=(2, 4), axes=("gpu", "xcd"), map=Cyclic(1, by=0))
    case.check_partial()
    replace(case, window=1).check_partial()


@pytest.mark.parametrize("combine", ["owner", "kernel"])
@pytest.mark.parametrize(("window", "keep"), [(None, 0), (33, 6)])
def test_shares_of_a_shard_make_one_partial(combine: str, window: int | None, keep: int):
    case = Case(
        batch=3, query=2, group=3, context=101, mesh=(1, 2), axes=("xcd",), map=Cyclic(1, by=0),
        window=window, keep=keep, combine=combine,
    )  # fmt: skip
    for shares in (2, 5):
        rows = 2 if combine == "kernel" else None
        replace(case, split=shares, combine_rows=rows).check_partial()


@pytest.mark.parametrize("shard_map", [Cyclic(1, by=0), CONTIGUOUS, Zigzag()], ids=str)
@pytest.mark.parametrize(("window", "keep"), [(None, 0), (7, 0), (7, 5)])
def test_chunks_of_queries_over_a_shard(shard_map: ShardMap, window: int | None, keep: int):
    Case(
        batch=2, query=19, context=43, rows=8, mesh=(2, 2), axes=("xcd",), map=shard_map,
        window=window, keep=keep, stages=3,
    ).check_partial()  # fmt: skip


def test_partials_without_a_mask():
    for shard_map in (Cyclic(1, by=0), CONTIGUOUS):
        Case(
            batch=2, query=3, context=11, causal=False, mesh=(1, 4), axes=("xcd",), map=shard_map
        ).check_partial()


def test_windows_over_small_blocks_are_refused():
    case = Case(window=9, mesh=(1, 2), axes=("xcd",), map=Cyclic(2))
    with pytest.raises(ValueError, match="dealt out in blocks of a multiple"):
        case.partial().lowered()


def test_a_sharded_cache_leaves_a_partial():
    case = Case(mesh=(1, 2), axes=("xcd",), map=Cyclic(1))
    cache = type_text(case.encoding, case.cache_shape)
    launch = case.whole()
    whole = "x".join(map(str, case.cache_shape)) + "xbf16"
    launch = replace(
        launch,
        text=launch.text.replace(whole, cache),
        buffers={name: cache if t == whole else t for name, t in launch.buffers.items()},
    )
    with pytest.raises(ValueError, match="gather them or leave a partial"):
        launch.lowered()


# Caches of peers


def pulled(case: Case, *, waits: bool) -> Launch:
    """Attention whose body gathers the cache, every device with its own queries."""
    q = f"{case.batch}x{case.query}x{case.heads * case.d}xbf16"
    cache = type_text(case.encoding, case.cache_shape)
    dims = ", ".join("{}" for _ in range(4))
    shape = ", ".join(map(str, case.cache_shape))
    local = "x".join(map(str, case.cache_shape))
    whole = f"{local}xbf16, #sharding.of<@node, [{dims}], global = [{shape}]>"
    axes = ", ".join(f'"{axis}"' for axis in case.axes)
    schedule, workspace = case.schedule(waits=waits)
    gather = f"on @node axes = [{axes}] dim = 2 : tensor<{cache}> -> tensor<{whole}>"
    text = f"""
    kernel.launch @attention attention reads (%q = @q : tensor<{q}>, %k = @k : tensor<{cache}>,
        %v = @v : tensor<{cache}>) writes (@y) {schedule} {{
      %0 = collective.all_gather %k {gather}
      %1 = collective.all_gather %v {gather}
      %y = nn.attention %q, %0, %1 {case.properties}
        : tensor<{q}>, tensor<{whole}>, tensor<{whole}> -> tensor<{q}>
      kernel.yield %y : tensor<{q}>
    }}"""
    buffers = {"q": q, "k": cache, "v": cache, "y": q, **workspace}
    return Launch(text, buffers, case.mesh, symmetric=("k", "v"))


@pytest.mark.parametrize("shard_map", [Cyclic(1, by=0), Cyclic(4), CONTIGUOUS, Zigzag()], ids=str)
@pytest.mark.parametrize(("query", "rows"), [(1, 0), (19, 8)])
@pytest.mark.parametrize(("window", "keep"), [(None, 0), (9, 5)])
def test_caches_of_peers_are_read_tile_by_tile(
    shard_map: ShardMap, query: int, rows: int, window: int | None, keep: int
):
    case = Case(
        batch=2, query=query, context=41, rows=rows, mesh=(1, 2), axes=("xcd",), map=shard_map,
        window=window, keep=keep,
    )  # fmt: skip
    check_pulled(case, waits=rows > 0)


@pytest.mark.parametrize("waits", [True, False])
def test_caches_of_two_levels_of_peers(waits: bool):
    case = Case(query=5, context=41, mesh=(3, 2), axes=("gpu", "xcd"), map=Cyclic(1, by=0), keys=2)
    check_pulled(replace(case, window=9), waits=waits)


@pytest.mark.parametrize("shard_map", [Cyclic(1, by=0), CONTIGUOUS], ids=str)
@pytest.mark.parametrize("combine", ["owner", "kernel"])
def test_shares_of_the_keys_of_peers(shard_map: ShardMap, combine: str):
    case = Case(
        batch=2, query=2, context=61, mesh=(1, 2), axes=("xcd",), map=shard_map, split=3,
        combine=combine, window=40, keep=3,
    )  # fmt: skip
    check_pulled(case, waits=combine == "owner")


def check_pulled(case: Case, *, waits: bool) -> None:
    given = case.inputs()
    caches = {name: held(given[name], case.encoding, 2) for name in "kv"}
    queries = [given["q"] * (1 + device) for device in range(case.mesh[0] * case.mesh[1])]
    expected = [case.result_of(q) for q in queries]
    launch = pulled(case, waits=waits)
    check(launch, {"q": queries, **caches}, {"y": expected}, seeds=(None, 0, 1))


@pytest.mark.parametrize("waits", [True, False])
def test_peers_are_read_when_they_have_appended(waits: bool):
    """The new rows are in a cache that was poison before; no interleaving reads it too early."""
    case = Case(batch=2, query=5, context=13, mesh=(1, 4), axes=("xcd",), map=Cyclic(1, by=0))
    launch = pulled(case, waits=waits)
    shape = (case.batch, case.query, case.kv_heads * case.d)
    new = split(case.mesh, 3, 1, case.axes, Cyclic(1, offset=case.start % 4, by=0))
    rows, cache = type_text(new, shape), launch.buffers["k"]
    local = new.local_shape(shape)[1]
    text = f"""
    kernel.launch @append append reads (%x = @x : tensor<{rows}>, %z = @z : tensor<{rows}>)
        writes (@k, @v) {attributes(tile=[local, case.d], grid=[case.batch, case.batch])} {{
      %0 = nn.append @k, %x {{start = {case.start} : i64}} : tensor<{rows}> -> tensor<{cache}>
      %1 = nn.append @v, %z {{start = {case.start} : i64}} : tensor<{rows}> -> tensor<{cache}>
      kernel.yield %0, %1 : tensor<{cache}>, tensor<{cache}>
    }}"""
    launch = replace(
        launch, text=text + launch.text, buffers={**launch.buffers, "x": rows, "z": rows}
    )
    given = case.inputs()
    inputs: dict[str, Array | list[Array]] = {"q": given["q"]}
    for name, added in (("k", "x"), ("v", "z")):
        tokens = given[name].transpose(0, 2, 1, 3).reshape(case.batch, case.context, -1)
        inputs[added] = held(tokens[:, case.start :], new, 1)
        old = given[name].copy()
        old[:, :, case.start :] = np.nan
        inputs[name] = held(old, case.encoding, 2)
    check(launch, inputs, {"y": case.result()}, seeds=(None, 0, 1, 2, 3))
