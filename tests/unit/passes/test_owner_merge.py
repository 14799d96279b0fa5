"""Attention over a sharded sequence whose results are merged by the owners of the heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from starc.core.sharding.shard_map import CONTIGUOUS, Cyclic, ShardMap
from starc.passes.base import RemarkSink
from starc.passes.isa.verify_schedule import VerifySchedule
from tests.unit.passes.launches import Launch, check
from tests.unit.passes.lost_instructions import assert_losses_are_caught
from tests.unit.passes.sharded_values import held, type_text
from tests.unit.passes.test_lower_to_isa import attributes
from tests.unit.passes.test_sharded_attention import Case

XCD = '"xcd"'


def typed(
    local: Sequence[int], element: str, whole: Sequence[int], dim: str = "", partial: bool = False
) -> str:
    """A value [batch, query, features] whose features are split or partial over the inner axis."""
    extents = "x".join(map(str, local))
    suffix = f", partial = lse{{{XCD}}}" if partial else ""
    cut = f"[{{}}, {{}}, {{{dim}}}]" if len(whole) == 3 else f"[{{{dim}}}]"
    return f"{extents}x{element}, #sharding.of<@node, {cut}{suffix}, global = {list(whole)}>"


def merged(case: Case, owners: int | None = 2, element: str = "f32") -> Launch:
    """The launch of a case whose cache is split over the inner axis. ``owners`` workgroups merge;
    without them, a launch of its own does."""
    ranks, d = case.mesh[1], case.d
    rows = (case.batch, case.query)
    heads, own = (*rows, case.heads), (*rows, case.heads // ranks)
    wide, own_wide = (*rows, case.heads * d), (*rows, case.heads * d // ranks)
    q, y = typed(wide, "bf16", wide), typed(own_wide, "bf16", wide, XCD)
    m, o = typed(heads, "f32", heads, partial=True), typed(wide, element, wide, partial=True)
    own_m, own_o = typed(own, "f32", heads, XCD), typed(own_wide, element, wide, XCD)
    cache = type_text(case.encoding, case.cache_shape)
    _, workspace = case.schedule()
    text = "x".join
    narrow, broad = text(map(str, heads)), text(map(str, wide))
    sent = {"sm": f"{narrow}xf32", "sl": f"{narrow}xf32", "so": f"{broad}x{element}"}
    slot, broad_slot = text(map(str, (ranks, *own))), text(map(str, (ranks, *own_wide)))
    staged = {"gm": f"{slot}xf32", "gl": f"{slot}xf32", "go": f"{broad_slot}x{element}"}
    tile_rows = case.rows or case.query * case.group
    tasks = case.batch * case.heads // (1 if case.rows else case.group)
    grid = tasks * (-(-case.query // case.rows) if case.rows else 1) * case.split
    schedule = attributes(
        tile=[tile_rows, case.keys, d],
        group=1 if case.rows else case.group,
        split=case.split if case.split > 1 else None,
        combine=case.combine,
        combine_rows=case.combine_rows,
        stages=case.stages,
        grid=[grid] if owners is None else [grid, owners],
        waits=True,
        workspace=[*workspace, *sent],
        staging=list(staged),
    )
    buffers = {"q": q, "k": cache, "v": cache, "y": y, **workspace, **sent, **staged}
    reads = f"%q = @q : tensor<{q}>, %k = @k : tensor<{cache}>, %v = @v : tensor<{cache}>"
    sink = ""
    if case.sink:
        buffers["s"] = typed((case.heads // ranks,), "bf16", (case.heads,), XCD)
        reads += f", %s = @s : tensor<{buffers['s']}>"
        sink = f"sink %s : tensor<{buffers['s']}> "
    partial = f"tensor<{m}>, tensor<{m}>, tensor<{o}>"
    mine = f"tensor<{own_m}>, tensor<{own_m}>, tensor<{own_o}>"
    launch = f"""
    kernel.launch @attention attention reads ({reads}) writes (@y) {schedule} {{
      %m, %l, %o = nn.partial_attention %q, %k, %v {case.properties}
        : tensor<{q}>, tensor<{cache}>, tensor<{cache}> -> {partial}
      %m2, %l2, %o2 = collective.reduce_scatter %m, %l, %o on @node axes = [{XCD}]
        reduction = lse dim = 2 : {partial} -> {mine}
      %y = nn.lse_finish %m2, %l2, %o2 {sink}{{head_dim = {d} : i64}} : {mine} -> tensor<{y}>
      kernel.yield %y : tensor<{y}>
    }}"""
    return Launch(launch, buffers, case.mesh, tuple(staged))


def check_merged(case: Case, owners: int | None = 2) -> None:
    given, ranks = case.inputs(), case.mesh[1]
    devices = case.mesh[0] * ranks
    inputs = {"q": given["q"], **{name: held(given[name], case.encoding, 2) for name in "kv"}}
    if case.sink:
        inputs["s"] = [np.split(given["s"], ranks)[device % ranks] for device in range(devices)]
    parts = np.split(case.result(), ranks, axis=2)
    expected = {"y": [parts[device % ranks] for device in range(devices)]}
    check(merged(case, owners), inputs, expected, seeds=(None, 0, 1))


BASE = Case(
    batch=3, kv_heads=2, group=4, context=29, mesh=(2, 2), axes=("xcd",), map=Cyclic(1, by=0)
)


@pytest.mark.parametrize("owners", [1, 5, 40, None])
@pytest.mark.parametrize("sink", [False, True])
def test_owners_merge_what_all_devices_have(sink: bool, owners: int | None):
    check_merged(replace(BASE, sink=sink), owners)


@pytest.mark.parametrize(
    ("mesh", "shard_map"), [((1, 8), Cyclic(1, by=0)), ((1, 4), CONTIGUOUS), ((4, 2), Cyclic(1))]
)
def test_on_any_mesh(mesh: tuple[int, int], shard_map: ShardMap):
    check_merged(replace(BASE, mesh=mesh, map=shard_map, query=3, window=9, keep=2))


def test_fewer_tokens_than_ranks():
    """Devices without a key send the identity of the merge."""
    check_merged(replace(BASE, mesh=(1, 8), context=2, sink=True))


@pytest.mark.parametrize("combine", ["owner", "kernel"])
def test_shares_of_the_keys_are_merged_before_they_are_sent(combine: str):
    case = replace(BASE, query=2, context=101, combine=combine, split=3)
    for owners in (3, None):
        check_merged(replace(case, combine_rows=2 if combine == "kernel" else None), owners)


def test_query_tiles():
    check_merged(replace(BASE, batch=2, query=19, rows=8, context=43, stages=3))


def test_lost_signals_and_waits_are_caught():
    launch = merged(BASE)
    module = launch.lowered()
    VerifySchedule().run(module, launch.target, RemarkSink())
    given = BASE.inputs()
    caches = {name: held(given[name], BASE.encoding, 2) for name in "kv"}
    buffers = {(d, "q"): given["q"] for d in range(4)}
    buffers |= {(d, name): own[d] for name, own in caches.items() for d in range(4)}
    assert assert_losses_are_caught(module, launch.target, buffers) == 2
