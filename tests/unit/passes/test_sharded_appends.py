"""New keys and values go to the devices that hold their positions; merged parts are finished."""

from __future__ import annotations

import numpy as np
import pytest

from starc.core.sharding.shard_map import CONTIGUOUS, Cyclic, ShardMap
from tests.unit.passes.launches import Launch, check
from tests.unit.passes.sharded_values import Array, held, split, type_text
from tests.unit.passes.test_lower_to_isa import attributes, random, rope

BATCH, HEADS, D = 3, 2, 8


def append(
    mesh: tuple[int, int],
    axes: tuple[str, ...],
    shard_map: ShardMap,
    query: int,
    context: int,
    *,
    spare: int = 0,
    rows: int = 2,
    tile_heads: int = 1,
    scattered: bool,
    turned: bool = False,
) -> None:
    """Appends ``query`` rows to a cache of ``context`` positions before its last ``spare``."""
    start = context - spare - query
    cache_shape = (BATCH, HEADS, context, D)
    cache = split(mesh, 4, 2, axes, shard_map)
    whole = (BATCH, query, HEADS * D)
    new_map = shard_map.window(start, query, cache.ranks(2), context)
    assert new_map is not None
    new = split(mesh, 3, 1, axes if scattered else (), new_map if scattered else CONTIGUOUS)
    new_type, cache_type = type_text(new, whole), type_text(cache, cache_shape)
    local = new.local_shape(whole)[1]
    positions = min(local, rows)
    sequences = max(1, min(BATCH, rows // positions)) if positions == local else 1
    tiles = -(-BATCH // sequences) * -(-local // positions) * -(-HEADS // tile_heads)
    body = f"""%0 = nn.rope %x {{theta = 1.0e+04 : f64, head_dim = {D} : i64,
        start = {start} : i64}} : tensor<{new_type}> -> tensor<{new_type}>"""
    text = f"""
    kernel.launch @append append reads (%x = @x : tensor<{new_type}>) writes (@c)
        {attributes(tile=[rows, tile_heads * D], grid=[tiles])} {{
      {body if turned else ""}
      %1 = nn.append @c, {"%0" if turned else "%x"} {{start = {start} : i64}}
        : tensor<{new_type}> -> tensor<{cache_type}>
      kernel.yield %1 : tensor<{cache_type}>
    }}"""
    launch = Launch(text, {"x": new_type, "c": cache_type}, mesh)
    x, old = random(*whole), random(*cache_shape)
    heads = (rope(x, D, 1e4, start) if turned else x).reshape(BATCH, query, HEADS, D)
    after = old.copy()
    after[:, :, start : start + query] = heads.transpose(0, 2, 1, 3)
    given = {"x": held(x, new, 1), "c": held(old, cache, 2)}
    kept: list[Array] = held(after, cache, 2)
    for seed in (None, 0, 1, 2, 3):
        found = launch.run(given, seed)
        for device, buffers in enumerate(found):
            exists = ~np.isnan(kept[device])
            np.testing.assert_allclose(
                buffers["c"][exists],
                kept[device][exists],
                rtol=1e-9,
                err_msg=f"device {device}, seed {seed}",
            )


MAPS = [Cyclic(1, by=0), Cyclic(1), Cyclic(4, by=0), CONTIGUOUS]


@pytest.mark.parametrize("shard_map", MAPS, ids=str)
@pytest.mark.parametrize("scattered", [True, False])
@pytest.mark.parametrize(("query", "context"), [(1, 12), (1, 1), (5, 29), (13, 13)])
def test_new_rows_are_stored_by_their_owners(
    shard_map: ShardMap, scattered: bool, query: int, context: int
):
    append((2, 2), ("xcd",), shard_map, query, context, scattered=scattered)
    append((3, 2), ("gpu", "xcd"), shard_map, query, context, scattered=scattered, rows=4)


@pytest.mark.parametrize("scattered", [True, False])
def test_a_cache_with_room_for_later_rows(scattered: bool):
    """Rows that a device does not have must not be stored where later ones will be."""
    for query in (1, 5, 6):
        for tile_heads in (1, 2):
            append(
                (1, 4), ("xcd",), Cyclic(1, by=0), query, 40, spare=9,
                scattered=scattered, rows=4, tile_heads=tile_heads,
            )  # fmt: skip


def test_whole_rows_are_turned_before_they_are_stored():
    append((1, 4), ("xcd",), Cyclic(1, by=0), 6, 21, scattered=False, turned=True)


def test_rows_that_are_dealt_out_are_not_turned():
    with pytest.raises(ValueError, match="must not be sharded"):
        append((1, 4), ("xcd",), Cyclic(1, by=0), 6, 21, scattered=True, turned=True)


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize(("rows", "heads"), [(1, 5), (4, 2), (6, 3)])
def test_merged_parts_are_finished(rows: int, heads: int, sink: bool, element: str):
    """A row that has seen nothing is zero."""
    query = 4
    m_type, o_type = f"{BATCH}x{query}x5xf32", f"{BATCH}x{query}x{5 * D}x{element}"
    y_type = f"{BATCH}x{query}x{5 * D}xbf16"
    buffers = {"m": m_type, "l": m_type, "o": o_type, "s": "5xbf16", "y": y_type}
    positions = min(query, rows)
    sequences = max(1, min(BATCH, rows // positions)) if positions == query else 1
    grid = -(-BATCH // sequences) * -(-query // positions) * -(-5 // heads)
    reads = ", ".join(f"%{name} = @{name} : tensor<{buffers[name]}>" for name in "mlos")
    text = f"""
    kernel.launch @finish elementwise reads ({reads}) writes (@y)
        {attributes(tile=[rows, heads * D], grid=[grid])} {{
      %y = nn.lse_finish %m, %l, %o {"sink %s : tensor<5xbf16>" if sink else ""}
        {{head_dim = {D} : i64}} : tensor<{m_type}>, tensor<{m_type}>, tensor<{o_type}>
        -> tensor<{y_type}>
      kernel.yield %y : tensor<{y_type}>
    }}"""
    m = random(BATCH, query, 5)
    l, o = np.abs(random(BATCH, query, 5, seed=1)) + 1, random(BATCH, query, 5, D, seed=2)  # noqa: E741
    m[1, 2], l[1, 2], o[1, 2] = -np.inf, 0, 0
    logits = random(5, seed=3)
    total = l + np.where(np.isneginf(m), 0, np.exp(logits - m)) if sink else l
    expected = o / np.where(total > 0, total, 1)[..., None]
    wide = (BATCH, query, 5 * D)
    given = {"m": m, "l": l, "o": o.reshape(wide), "s": logits}
    check(Launch(text, buffers), given, {"y": expected.reshape(wide)}, seeds=(None, 0, 1, 2))
