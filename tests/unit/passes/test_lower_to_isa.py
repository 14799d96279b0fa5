"""Kernel bodies compute what their operations mean: ragged extents, shares, every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from starc.core.sharding.mesh import Axis, Mesh
from tests.unit.passes.launches import Launch, check

Array = npt.NDArray[Any]


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape)


Attribute = int | str | list[int] | list[str] | None


def attributes(**values: Attribute) -> str:
    """Launch attributes: integers, lists, strings, and True for a flag."""
    parts: list[str] = []
    for name, value in values.items():
        if value is None:
            continue
        if value is True:
            parts.append(name)
        elif isinstance(value, list):
            items = ", ".join(f"@{v}" if isinstance(v, str) else str(v) for v in value)
            is_symbols = items.startswith("@")
            parts.append(f"{name} = [{items}]" if is_symbols else f"{name} = array<i64: {items}>")
        elif isinstance(value, int):
            parts.append(f"{name} = {value} : i64")
        else:
            parts.append(f'{name} = "{value}"')
    return f"attributes {{{', '.join(parts)}}}"


# Matrix products


def gemm(
    batch: int,
    query: int,
    k: int,
    columns: list[int],
    tile: list[int],
    *,
    split: int = 1,
    combine: str | None = None,
    combine_rows: int | None = None,
    stages: int = 2,
    swizzle: list[int] | None = None,
) -> Launch:
    """A launch of linears of one input, scheduled by hand."""
    m, n, _ = tile
    positions = min(query, m)
    sequences = max(1, min(batch, m // positions)) if positions == query else 1
    row_tiles = -(-batch // sequences) * -(-query // positions)
    grid = [row_tiles * -(-width // n) * split for width in columns]
    x = f"{batch}x{query}x{k}xbf16"
    buffers = {"x": x}
    reads = [f"%x = @x : tensor<{x}>"]
    writes: list[str] = []
    body: list[str] = []
    results: list[str] = []
    types: list[str] = []
    for i, width in enumerate(columns):
        buffers[f"w{i}"] = f"{k}x{width}xbf16"
        buffers[f"y{i}"] = f"{batch}x{query}x{width}xbf16"
        reads.append(f"%w{i} = @w{i} : tensor<{buffers[f'w{i}']}>")
        writes.append(f"@y{i}")
        y = f"tensor<{buffers[f'y{i}']}>"
        body.append(f"%y{i} = nn.linear %x, %w{i} : tensor<{x}>, tensor<{k}x{width}xbf16> -> {y}")
        results.append(f"%y{i}")
        types.append(y)
    if split > 1:
        shares = split - (combine == "owner")
        buffers["partial"] = f"{shares}x{sum(grid) // split}x{m}x{n}xf32"
    schedule = attributes(
        tile=tile,
        split=split if split > 1 else None,
        combine=combine,
        combine_rows=combine_rows,
        stages=stages,
        grid=grid,
        swizzle=swizzle,
        waits=True if combine == "owner" else None,
        workspace=["partial"] if split > 1 else None,
    )
    text = (
        f"kernel.launch @gemm gemm reads ({', '.join(reads)}) writes ({', '.join(writes)}) "
        f"{schedule} {{\n" + "\n".join(body) + f"\nkernel.yield {', '.join(results)} : "
        f"{', '.join(types)}\n}}"
    )
    return Launch(text, buffers)


def check_gemm(launch: Launch, columns: list[int]):
    shape = [int(e) for e in launch.buffers["x"].split("x")[:-1]]
    x = random(*shape)
    weights = {f"w{i}": random(shape[2], n, seed=i + 1) for i, n in enumerate(columns)}
    expected = {f"y{i}": x @ weights[f"w{i}"] for i in range(len(columns))}
    check(launch, {"x": x, **weights}, expected)


@pytest.mark.parametrize(
    ("batch", "query", "k", "n", "tile"),
    [
        (1, 1, 32, 16, [16, 16, 32]),
        (3, 1, 100, 50, [16, 32, 32]),  # edges in every dimension
        (2, 5, 64, 48, [16, 16, 64]),  # whole sequences in a tile
        (2, 21, 40, 33, [16, 32, 16]),  # row tiles do not straddle sequences
        (5, 3, 33, 20, [8, 16, 16]),  # two sequences a tile, the last tile has one
    ],
)
def test_gemm_of_ragged_extents(batch: int, query: int, k: int, n: int, tile: list[int]):
    check_gemm(gemm(batch, query, k, [n], tile), [n])


def test_linears_of_one_input_are_parts_of_one_launch():
    columns = [40, 16, 16]
    launch = gemm(3, 1, 64, columns, [16, 16, 32], stages=3)
    names = [op.name for op in launch.lowered().ops]
    assert names.count("isa.kernel") == 3
    check_gemm(launch, columns)


@pytest.mark.parametrize("swizzle", [[1, 1], [2, 1], [4, 2], [1, 4]])
def test_swizzle_is_a_permutation_of_tiles(swizzle: list[int]):
    check_gemm(gemm(1, 64, 32, [64], [16, 16, 16], swizzle=swizzle), [64])


@pytest.mark.parametrize("split", [2, 3, 5])  # 5 shares of 7 steps: the last is empty
def test_shares_of_k_added_by_the_owner(split: int):
    columns = [40, 16]
    launch = gemm(2, 3, 7 * 16 - 3, columns, [16, 16, 16], split=split, combine="owner")
    check_gemm(launch, columns)


@pytest.mark.parametrize(("batch", "query", "rows"), [(2, 3, 2), (1, 8, 4), (4, 2, 16), (3, 1, 1)])
def test_shares_of_k_added_by_a_second_launch(batch: int, query: int, rows: int):
    columns = [40, 16]
    launch = gemm(
        batch, query, 100, columns, [8, 16, 16], split=3, combine="kernel", combine_rows=rows
    )
    check_gemm(launch, columns)


# Attention


def attention(
    batch: int,
    query: int,
    kv_heads: int,
    group: int,
    d: int,
    context: int,
    *,
    tile: list[int],
    packed: bool,
    split: int = 1,
    combine: str | None = None,
    combine_rows: int | None = None,
    stages: int = 2,
    causal: bool = True,
) -> Launch:
    """A launch of attention whose last query is at the end of the context."""
    heads = kv_heads * group
    task_heads = group if packed else 1
    row_tiles = 1 if packed else -(-query // tile[0])
    tasks = batch * heads // task_heads
    q = f"{batch}x{query}x{heads * d}xbf16"
    cache = f"{batch}x{kv_heads}x{context}x{d}xbf16"
    buffers = {"q": q, "k": cache, "v": cache, "y": q}
    if split > 1:
        shares = split - (combine == "owner")
        lead = f"{shares}x{tasks}x{tile[0]}"
        buffers |= {"pm": f"{lead}xf32", "pl": f"{lead}xf32", "po": f"{lead}x{d}xf32"}
    schedule = attributes(
        tile=tile,
        group=task_heads,
        split=split if split > 1 else None,
        combine=combine,
        combine_rows=combine_rows,
        stages=stages,
        grid=[tasks * row_tiles * split],
        waits=True if combine == "owner" else None,
        workspace=["pm", "pl", "po"] if split > 1 else None,
    )
    text = f"""
    kernel.launch @attention attention reads (%q = @q : tensor<{q}>, %k = @k : tensor<{cache}>,
        %v = @v : tensor<{cache}>) writes (@y) {schedule} {{
      %y = nn.attention %q, %k, %v {{head_dim = {d} : i64, start = {context - query} : i64,
        scale = {d**-0.5} : f64{", causal" if causal else ""}}}
        : tensor<{q}>, tensor<{cache}>, tensor<{cache}> -> tensor<{q}>
      kernel.yield %y : tensor<{q}>
    }}"""
    return Launch(text, buffers)


def reference_attention(q: Array, k: Array, v: Array) -> Array:
    """Causal softmax attention; the last query is at the last position of the cache."""
    batch, query, _ = q.shape
    _, kv_heads, context, d = k.shape
    q = q.reshape(batch, query, -1, d)
    heads = q.shape[2]
    k, v = (np.repeat(x, heads // kv_heads, axis=1) for x in (k, v))
    scores = np.einsum("bthd,bhpd->bhtp", q, k) / np.sqrt(d)
    positions: Array = np.arange(context - query, context, dtype=np.int64)
    hidden: Array = np.arange(context, dtype=np.int64)[None, :] > positions[:, None]
    weights = np.exp(
        scores - np.max(scores, axis=-1, keepdims=True, where=~hidden, initial=-np.inf)
    )
    weights = np.where(hidden, 0, weights)
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("bhtp,bhpd->bthd", weights, v).reshape(batch, query, -1)


def check_attention(launch: Launch):
    shapes = {name: [int(e) for e in t.split("x")[:-1]] for name, t in launch.buffers.items()}
    q, k, v = random(*shapes["q"]), random(*shapes["k"], seed=1), random(*shapes["v"], seed=2)
    check(launch, {"q": q, "k": k, "v": v}, {"y": reference_attention(q, k, v)})


@pytest.mark.parametrize(
    ("batch", "query", "kv_heads", "group", "context"),
    [
        (1, 1, 1, 1, 1),
        (2, 1, 2, 4, 70),  # grouped queries, a partial key tile
        (2, 3, 1, 2, 33),  # several query tokens: rows see different keys
        (1, 5, 2, 3, 5),  # nothing before the queries
    ],
)
def test_attention_of_packed_heads(batch: int, query: int, kv_heads: int, group: int, context: int):
    tile = [query * group, 32, 8]
    check_attention(attention(batch, query, kv_heads, group, 8, context, tile=tile, packed=True))


@pytest.mark.parametrize("combine", ["owner", "kernel"])
@pytest.mark.parametrize(("split", "context"), [(2, 70), (4, 97), (5, 160)])
def test_shares_of_the_keys_are_merged(combine: str, split: int, context: int):
    for rows in (6, 2, 1):
        check_attention(
            attention(
                2,
                2,
                1,
                3,
                8,
                context,
                tile=[6, 16, 8],
                packed=True,
                split=split,
                combine=combine,
                combine_rows=rows if combine == "kernel" else None,
            )
        )
        if combine == "owner":
            break


@pytest.mark.parametrize(("query", "context"), [(40, 40), (37, 37), (20, 61)])
def test_attention_of_query_tiles(query: int, context: int):
    check_attention(attention(2, query, 2, 2, 8, context, tile=[16, 32, 8], packed=False, stages=3))


def test_attention_without_a_mask_sees_every_key():
    launch = attention(1, 20, 1, 2, 8, 41, tile=[8, 16, 8], packed=False, causal=False)
    q, k, v = random(1, 20, 16), random(1, 1, 41, 8, seed=1), random(1, 1, 41, 8, seed=2)
    alone = [reference_attention(q[:, t : t + 1], k, v) for t in range(20)]
    check(launch, {"q": q, "k": k, "v": v}, {"y": np.concatenate(alone, axis=1)})


# Rows


def rowwise(
    kind: str,
    shape: str,
    body: str,
    tile: list[int],
    grid: list[int],
    parts: int = 1,
    args: int = 2,
) -> Launch:
    """A launch over arguments a, b, ... and results y0, y1, ... of one shape."""
    names = "abcd"[:args]
    buffers = {name: shape for name in names} | {f"y{i}": shape for i in range(parts)}
    reads = ", ".join(f"%{name} = @{name} : tensor<{shape}>" for name in names)
    writes = ", ".join(f"@y{i}" for i in range(parts))
    body = body.replace("T", f"tensor<{shape}>")
    schedule = attributes(tile=tile, grid=grid)
    text = f"kernel.launch @rows {kind} reads ({reads}) writes ({writes}) {schedule} {{{body}}}"
    return Launch(text, buffers)


def test_a_gated_product_is_one_instruction():
    body = """
      %0 = nn.silu %a : T -> T
      %1 = nn.mul %0, %b : T, T -> T
      kernel.yield %1 : T
    """
    launch = rowwise("elementwise", "2x5x50xbf16", body, [4, 16], [2 * 2 * 4])
    kernel = next(op for op in launch.lowered().ops if op.name == "isa.kernel")
    vectors = [op for op in kernel.walk() if op.name == "isa.vector"]
    assert len(vectors) == 1
    a, b = random(2, 5, 50), random(2, 5, 50, seed=1)
    check(launch, {"a": a, "b": b}, {"y0": a / (1 + np.exp(-a)) * b})


def test_a_chain_of_elementwise_operations_with_two_results():
    body = """
      %0 = nn.add %a, %b : T, T -> T
      %1 = nn.mul %0, %0 : T, T -> T
      kernel.yield %0, %1 : T, T
    """
    launch = rowwise("elementwise", "3x1x40xbf16", body, [2, 32], [4, 4], parts=2)
    a, b = random(3, 1, 40), random(3, 1, 40, seed=1)
    check(launch, {"a": a, "b": b}, {"y0": a + b, "y1": (a + b) ** 2})


def norm(x: Array, weight: Array) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * weight


@pytest.mark.parametrize(("rows", "columns"), [(1, 48), (4, 48), (2, 16), (4, 20), (2, 5)])
def test_norm_of_whole_rows_and_of_blocks_of_columns(rows: int, columns: int):
    x_type, shape = "tensor<3x2x48xbf16>", "3x2x48xbf16"
    tiles = {1: 6, 2: 3, 4: 2}[rows]
    text = f"""
    kernel.launch @norm norm reads (%x = @x : {x_type}, %w = @w : tensor<48xbf16>) writes (@y)
        {attributes(tile=[rows, columns], grid=[tiles])} {{
      %y = nn.rms_norm %x, %w {{eps = 1.0e-05 : f64}} : {x_type}, tensor<48xbf16> -> {x_type}
      kernel.yield %y : {x_type}
    }}"""
    launch = Launch(text, {"x": shape, "w": "48xbf16", "y": shape})
    x, w = random(3, 2, 48), random(48)
    check(launch, {"x": x, "w": w}, {"y": norm(x, w)})


@pytest.mark.parametrize(("rows", "columns"), [(1, 48), (4, 48), (2, 16), (4, 20), (2, 5)])
def test_sums_of_squares_with_what_is_computed_beside_them(rows: int, columns: int):
    t, shape, row = "tensor<3x2x48xbf16>", "3x2x48xbf16", "tensor<3x2x1xf32>"
    tiles = {1: 6, 2: 3, 4: 2}[rows]
    text = f"""
    kernel.launch @sums norm reads (%a = @a : {t}, %b = @b : {t}, %w = @w : tensor<48xbf16>)
        writes (@x, @s, @y, @r) {attributes(tile=[rows, columns], grid=[tiles])} {{
      %x = nn.add %a, %b : {t}, {t} -> {t}
      %s = nn.sum_squares %x : {t} -> {row}
      %y = nn.scale_columns %x, %w : {t}, tensor<48xbf16> -> {t}
      %r = nn.norm_scale %s {{eps = 1.0e-05 : f64, count = 48 : i64}} : {row} -> {row}
      kernel.yield %x, %s, %y, %r : {t}, {row}, {t}, {row}
    }}"""
    buffers = {"a": shape, "b": shape, "w": "48xbf16", "x": shape, "s": "3x2x1xf32", "y": shape}
    launch = Launch(text, {**buffers, "r": "3x2x1xf32"})
    a, b, w = random(3, 2, 48), random(3, 2, 48, seed=1), random(48)
    x = a + b
    s = np.sum(x * x, axis=-1, keepdims=True)
    r = 1 / np.sqrt(s / 48 + 1e-5)
    check(launch, {"a": a, "b": b, "w": w}, {"x": x, "s": s, "y": x * w, "r": r})


def test_rows_times_the_scale_of_a_norm():
    t, row = "tensor<3x1x40xbf16>", "tensor<3x1x1xf32>"
    text = f"""
    kernel.launch @scale elementwise reads (%x = @x : {t}, %s = @s : {row}) writes (@r, @y)
        {attributes(tile=[2, 32], grid=[2, 4])} {{
      %r = nn.norm_scale %s {{eps = 1.0e-05 : f64, count = 40 : i64}} : {row} -> {row}
      %y = nn.scale_rows %x, %r : {t}, {row} -> {t}
      kernel.yield %r, %y : {row}, {t}
    }}"""
    buffers = {"x": "3x1x40xbf16", "s": "3x1x1xf32", "r": "3x1x1xf32", "y": "3x1x40xbf16"}
    x, s = random(3, 1, 40), random(3, 1, 1) ** 2
    r = 1 / np.sqrt(s / 40 + 1e-5)
    check(Launch(text, buffers), {"x": x, "s": s}, {"r": r, "y": x * r})


def rope(x: Array, d: int, theta: float, start: int) -> Array:
    """Half rotation of every head."""
    batch, query, features = x.shape
    heads = x.reshape(batch, query, features // d, d)
    frequency: Array = np.float64(theta) ** (-2 * np.arange(d // 2, dtype=np.float64) / d)
    positions: Array = np.arange(start, start + query, dtype=np.float64)
    angle: Array = positions[:, None] * frequency
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    low, high = heads[..., : d // 2], heads[..., d // 2 :]
    turned = np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
    return turned.reshape(x.shape)


@pytest.mark.parametrize(("query", "rows"), [(1, 2), (5, 2), (5, 16)])
def test_rope_and_append_write_only_the_new_rows(query: int, rows: int):
    batch, heads, d, context = 2, 3, 8, 11
    start = context - query
    new, cache = f"{batch}x{query}x{heads * d}xbf16", f"{batch}x{heads}x{context}x{d}xbf16"
    sequences = max(1, min(batch, rows // min(query, rows))) if query <= rows else 1
    tiles = -(-batch // sequences) * -(-query // min(query, rows)) * heads
    text = f"""
    kernel.launch @append append reads (%k = @k : tensor<{new}>, %v = @v : tensor<{new}>)
        writes (@turned, @k_cache, @v_cache)
        {attributes(tile=[rows, d], grid=[tiles, tiles, tiles])} {{
      %0 = nn.rope %k {{theta = 1.0e+04 : f64, head_dim = {d} : i64, start = {start} : i64}}
        : tensor<{new}> -> tensor<{new}>
      %1 = nn.append @k_cache, %0 {{start = {start} : i64}} : tensor<{new}> -> tensor<{cache}>
      %2 = nn.append @v_cache, %v {{start = {start} : i64}} : tensor<{new}> -> tensor<{cache}>
      kernel.yield %0, %1, %2 : tensor<{new}>, tensor<{cache}>, tensor<{cache}>
    }}"""
    launch = Launch(text, {"k": new, "v": new, "turned": new, "k_cache": cache, "v_cache": cache})
    k, v = random(batch, query, heads * d), random(batch, query, heads * d, seed=1)
    old = random(batch, heads, context, d)
    turned = rope(k, d, 1e4, start)

    def appended(values: Array) -> Array:
        result = old.copy()
        result[:, :, start:] = values.reshape(batch, query, heads, d).transpose(0, 2, 1, 3)
        return result

    check(
        launch,
        {"k": k, "v": v, "k_cache": old, "v_cache": old},
        {"turned": turned, "k_cache": appended(turned), "v_cache": appended(v)},
    )


def test_last_token_takes_the_last_row_of_every_sequence():
    text = f"""
    kernel.launch @last embedding reads (%x = @x : tensor<3x4x24xbf16>) writes (@y)
        {attributes(tile=[2, 16], grid=[4])} {{
      %y = nn.last_token %x : tensor<3x4x24xbf16> -> tensor<3x1x24xbf16>
      kernel.yield %y : tensor<3x1x24xbf16>
    }}"""
    x = random(3, 4, 24)
    launch = Launch(text, {"x": "3x4x24xbf16", "y": "3x1x24xbf16"})
    check(launch, {"x": x}, {"y": x[:, -1:]})


@pytest.mark.parametrize("rows", ['"gpu", "xcd"', '"xcd"', '"gpu"', ""])
def test_embedding_is_zero_where_another_device_holds_the_row(rows: str):
    mesh, vocab = Mesh("node", (Axis("gpu", 2), Axis("xcd", 2))), 16
    size = {'"gpu", "xcd"': 4, "": 1}.get(rows, 2)
    local = vocab // size
    ids_t, table_t = "2x3xi32", f"{local}x20xbf16"
    encoding = f"#sharding.of<@node, [{{{rows}}}, {{}}], global = [{vocab}, 20]>"
    partial = f", partial = sum{{{rows}}}" if rows else ""
    y_encoding = f"#sharding.of<@node, [{{}}, {{}}, {{}}]{partial}, global = [2, 3, 20]>"
    i_encoding = "#sharding.of<@node, [{}, {}], global = [2, 3]>"
    types = [f"{ids_t}, {i_encoding}", f"{table_t}, {encoding}", f"2x3x20xbf16, {y_encoding}"]
    text = f"""
    kernel.launch @look embedding reads (%i = @i : tensor<{types[0]}>, %t = @t : tensor<{types[1]}>)
        writes (@y) {attributes(tile=[2, 16], grid=[8])} {{
      %y = nn.embedding %i, %t : tensor<{types[0]}>, tensor<{types[1]}> -> tensor<{types[2]}>
      kernel.yield %y : tensor<{types[2]}>
    }}"""
    launch = Launch(text, dict(zip("ity", types, strict=True)), mesh=(2, 2))
    ids = np.array([[0, 15, 7], [8, 3, 12]])
    table = random(vocab, 20)
    ranks = [
        {'"gpu", "xcd"': d, '"xcd"': c["xcd"], '"gpu"': c["gpu"], "": 0}[rows]
        for d, c in enumerate(mesh.devices())
    ]
    expected = [np.where((ids // local == rank)[..., None], table[ids], 0) for rank in ranks]
    tables = [table[rank * local : (rank + 1) * local] for rank in ranks]
    check(launch, {"i": ids, "t": tables}, {"y": expected})
