"""What fused kernels save, simulated: communication hides behind products, launches disappear."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from xdsl.dialects.builtin import IntegerAttr

from starc.dialects import isa
from starc.passes.pipeline import OptionValue
from tests.unit.passes.fused_models import (
    compiled,
    gather_product,
    launch_us,
    product_scatter,
    product_sum,
    simulated,
)

Text = Callable[[int, int, int], str]


def test_a_long_gather_hides_behind_its_product():
    shape = (1536, 8192, 4096)
    communication = launch_us(simulated(gather_product(*shape, "exchange")), "f.gather")
    compute = launch_us(simulated(gather_product(*shape, "product")), "f.product")
    assert min(communication, compute) > 50
    fused = launch_us(simulated(gather_product(*shape), {}), "f.product")
    assert max(communication, compute) / fused >= 0.9


@pytest.mark.parametrize("m", [8, 32, 64])
def test_decode_is_faster_than_two_launches(m: int):
    for text in (gather_product, product_scatter):
        separate = simulated(text(m, 4096, 4096))
        fused = simulated(text(m, 4096, 4096), {})
        assert fused.time_ps < 0.9 * separate.time_ps, text.__name__


TAXES = ("hbm", "sync", "launch")


@pytest.mark.parametrize(
    ("text", "shape"),
    [(gather_product, (64, 8192, 8192)), (product_scatter, (64, 8192, 8192))],
    ids=["pull", "push"],
)
def test_single_gains_add_up_to_the_total(text: Text, shape: tuple[int, int, int]):
    def taxed(*taxes: str) -> float:
        return simulated(text(*shape), {"unfuse": taxes}).time_ps * 1e-6

    plain, everything = taxed(), taxed(*TAXES)
    gains = [everything - taxed(*(t for t in TAXES if t != tax)) for tax in TAXES]
    assert all(gain >= -0.01 for gain in gains)
    assert sum(gains) == pytest.approx(everything - plain, rel=0.15)
    separate = simulated(text(*shape)).time_ps * 1e-6
    assert plain < everything < separate


def test_the_ways_to_read_differ_in_what_crosses_the_links():
    shape = (64, 4096, 4096)
    results = {
        way: simulated(gather_product(*shape), {"pull": way})
        for way in ("uncached", "cached", "staged")
    }
    slices = 64 * 4096 * 2 * 7 // 8 * 8  # each device reads those of seven others
    tiles = {way: result.traffic.logical for way, result in results.items()}
    crossing = {way: logical["usr"] + logical["die"] for way, logical in tiles.items()}
    assert crossing["staged"] == slices
    assert crossing["uncached"] > 2 * slices
    # Through the L2, a device fetches a slice about once, whatever its workgroups ask for.
    uncached, cached = results["uncached"].traffic, results["cached"].traffic
    assert uncached.hbm_remote_bytes > 2 * cached.hbm_remote_bytes
    assert cached.l2_hit_bytes > uncached.l2_hit_bytes


@pytest.mark.parametrize("text", [gather_product, product_scatter])
def test_a_fused_launch_counts_what_it_sends(text: Text):
    def sent(options: dict[str, OptionValue] | None) -> int:
        launches = [op for op in compiled(text(8, 4096, 4096), options)[0].walk()]
        infos = [op.info.data for op in launches if isinstance(op, isa.LaunchOp) and op.info]
        found = [info["link.usr"] for info in infos if "link.usr" in info]
        return sum(cast(IntegerAttr, value).value.data for value in found)

    assert sent({}) == sent(None) > 0


@pytest.mark.parametrize("m", [8, 64, 256])
@pytest.mark.parametrize("text", [gather_product, product_scatter, product_sum])
def test_the_estimate_is_close_to_the_simulated_time(text: Text, m: int):
    _, remarks = compiled(text(m, 4096, 4096), {})
    (remark,) = [remark for remark in remarks if remark.id == "fused"]
    found = launch_us(simulated(text(m, 4096, 4096), {}), "f.product")
    assert float(remark.numbers["fused_us"]) == pytest.approx(found, rel=0.35)


@pytest.mark.parametrize("owned", [4 * 167, 2 * 331, 401])
def test_weights_come_in_long_requests_whatever_an_owner_holds(owned: int):
    """Tiles begin where the columns of an owner do; blocks of the weights end there."""
    text = product_scatter(8, 2048, 8 * owned)
    separate, fused = simulated(text), simulated(text, {})
    assert len(fused.launches) < len(separate.launches)
    assert fused.requests < 1.5 * separate.requests
