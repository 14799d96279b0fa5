"""How an attention shares the positions of its cache, decided without a module."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.analysis.attention_choice import (
    AttentionChooser,
    AttentionSite,
    Choice,
    HeadOwners,
    SplitPositions,
    Travels,
    Wanted,
)
from starc.analysis.attention_cost import Widths
from starc.core.sharding.attention_sharding import AttentionShape
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.targets.loader import load_target

MESH = Mesh("node", (Axis("gpu", 8, "outer", "xgmi"), Axis("xcd", 8, "inner", "usr")))
GPU, XCD = AxisRef("gpu"), AxisRef("xcd")
HEADS = Encoding.replicated(MESH, 3).with_dim(2, MESH.all_axes())
CACHE = Encoding.replicated(MESH, 4).with_dim(1, (GPU,))
DECODE = AttentionShape(1, 1, 128, 8, 128, 131071, 131072)
SITE = AttentionSite(DECODE, HEADS, CACHE, HEADS, Widths(2, 2, 2), "bf16", 126)
WANTED = Wanted(Travels.AUTO, HeadOwners.AUTO, "cyclic", "auto", None)


def choose(site: AttentionSite, wanted: Wanted = WANTED) -> tuple[Choice, list[str]]:
    chooser = AttentionChooser(site, wanted, load_target("mi300x-cpx"))
    return chooser.choose(), [refusal.reason for refusal in chooser.refusals]


def split(site: AttentionSite, wanted: Wanted = WANTED) -> SplitPositions:
    choice, _ = choose(site, wanted)
    assert isinstance(choice, SplitPositions)
    return choice


def test_a_long_decode_splits_positions_over_all_that_share_heads_and_gathers_queries() -> None:
    choice = split(SITE)
    assert choice.plan.axes == (XCD,)
    assert choice.gathers_queries
    assert choice.step_us[8] < choice.step_us[1]


def test_a_prompt_gathers_keys() -> None:
    prompt = replace(SITE, shape=replace(DECODE, query=131072, start=0))
    assert not split(prompt).gathers_queries


def test_what_is_asked_for_is_done_on_all_devices_without_estimates() -> None:
    for travels in (Travels.QUERIES, Travels.KEYS):
        choice = split(SITE, replace(WANTED, travels=travels))
        assert choice.gathers_queries == (travels is Travels.QUERIES)
        assert choice.plan.ranks == 8
        assert not choice.step_us


def test_a_short_cache_is_split_over_no_more_devices_than_pay() -> None:
    short = replace(SITE, shape=replace(DECODE, start=63, positions=64), layers=1)
    choice, refusals = choose(short)
    assert choice is None or (isinstance(choice, SplitPositions) and choice.plan.ranks < 8)
    assert "the exchange of queries and parts costs more" in refusals[-1]


@pytest.mark.parametrize(
    ("site", "reason"),
    [
        (replace(SITE, cache=CACHE.with_dim(1, MESH.all_axes())), "no two devices keep"),
        (
            replace(SITE, queries=Encoding.replicated(MESH, 3).with_dim(1, (XCD,))),
            "its queries are split over the devices that keep the same keys",
        ),
    ],
)
def test_nothing_is_split_where_nothing_is_shared(site: AttentionSite, reason: str) -> None:
    choice, refusals = choose(site)
    assert choice is None
    assert reason in refusals[0]


@pytest.mark.parametrize("context", [256, 1024, 4096, 65536])
@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 4), (32, 8), (64, 8), (16, 16)])
def test_no_device_has_fewer_query_heads_than_kv_heads(
    context: int, heads: int, kv_heads: int
) -> None:
    mesh = Mesh(
        "sip",
        (
            Axis("group", 2, "outer", "noc"),
            Axis("cube", 8, "inner", "noc"),
            Axis("pe", 8, "inner", "pe_mesh"),
        ),
    )
    queries = Encoding.replicated(mesh, 3).with_dim(
        2, mesh.leading_factors(mesh.all_axes(), heads)[0]
    )
    cache = Encoding.replicated(mesh, 4).with_dim(1, (AxisRef("group"),))
    shape = AttentionShape(2, 1, heads, kv_heads, 16, context - 1, context)
    site = AttentionSite(shape, queries, cache, queries, Widths(2, 2, 2), "bf16", 2)
    chooser = AttentionChooser(site, WANTED, load_target("ahbm"))
    choice = chooser.choose()
    assert isinstance(choice, SplitPositions)
    assert choice.plan.query_heads >= choice.plan.kv_heads
