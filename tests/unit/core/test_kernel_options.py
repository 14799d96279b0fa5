"""Schedules of which a caller fixes something, stream-K, shared loads, and heads dealt out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.core.kernel_schedules.attention_orders import deals_heads
from starc.core.kernel_schedules.attention_problem import AttentionOptions, AttentionProblem
from starc.core.kernel_schedules.attention_schedules import choose_attention
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.gemm_problem import GemmOptions, GemmProblem
from starc.core.kernel_schedules.residency import gemm_resident, gemm_waves
from starc.core.kernel_schedules.row_schedules import RowOptions, RowProblem, choose_rows
from starc.core.kernel_schedules.share_merging import Combine
from starc.core.kernel_schedules.tile_estimates import share_streams, stream_rounds
from starc.core.kernel_schedules.tile_schedules import choose_gemm
from starc.targets.loader import load_target
from tests.unit.core.rates import GPU, PARTITION

H200 = DeviceRates.of(load_target("h200"))
SQUARE = GemmProblem(1, 4096, (4096,), 4096)


def test_what_is_fixed_stays_and_the_rest_is_chosen():
    options = GemmOptions(tile=(128, 128, 32), split=2, combine=Combine.KERNEL, stages=3)
    (best, *_) = choose_gemm(SQUARE, GPU, options=options)
    assert (best.tile, best.split, best.combine, best.stages) == (
        (128, 128, 32),
        2,
        Combine.KERNEL,
        3,
    )
    only_split = choose_gemm(SQUARE, GPU, options=GemmOptions(split=3))[0]
    assert only_split.split == 3
    assert only_split.seconds >= choose_gemm(SQUARE, GPU)[0].seconds


def test_nothing_that_is_asked_for_may_fit():
    with pytest.raises(ValueError, match="no tile as asked for"):
        choose_gemm(SQUARE, PARTITION, options=GemmOptions(tile=(512, 512, 64)))
    with pytest.raises(ValueError, match="no tile as asked for"):
        choose_gemm(SQUARE, PARTITION, options=GemmOptions(streams=10_000))
    decode = AttentionProblem(1, 1, 1, 8, 128, 1023, 1024)
    with pytest.raises(ValueError, match="no attention tile as asked for"):
        choose_attention(decode, PARTITION, options=AttentionOptions(keys=4096, stages=4))
    prefill = AttentionProblem(1, 1024, 1, 8, 128, 0, 1024)
    with pytest.raises(ValueError, match="shared out only where"):
        choose_attention(prefill, PARTITION, options=AttentionOptions(split=4))


def test_attention_and_rows_take_options():
    problem = AttentionProblem(1, 1, 1, 16, 128, 32767, 32768)
    for split in (1, 3, 512):
        options = AttentionOptions(split=split, keys=64, stages=1, waves=8)
        best = choose_attention(problem, H200, options=options)[0]
        assert (best.split, best.tile[1], best.stages, best.waves) == (split, 64, 1, 8)
        assert best.window_bytes > 0
    rows = choose_rows(RowProblem(8, 1, 8192), H200, options=RowOptions((1, 2048), 16))
    assert (rows.tile, rows.waves) == ((1, 2048), 16)


def test_rounds_and_shares_of_stream_k():
    assert [stream_rounds(tiles, 38) for tiles in (20, 75, 76, 128)] == [0, 0, 1, 2]
    assert stream_rounds(128, 38, 0) == 0
    assert share_streams([20, 4, 4], 38) == [27, 5, 5]


def test_stream_k_is_taken_where_tiles_leave_units_idle_and_caches_hold_the_operands():
    options = GemmOptions(tile=(128, 256, 64), stages=4)
    # 144 tiles on 132 units: two rounds for little more than one.
    problem = GemmProblem(1, 1536, (3072,), 4096)
    assert choose_gemm(problem, H200, options=options)[0].streams == 132
    never = choose_gemm(problem, H200, options=replace(options, streams=0))[0]
    assert never.seconds > choose_gemm(problem, H200, options=options)[0].seconds
    # Of as many tiles as units there is nothing to share out.
    even = GemmProblem(1, 128 * 12, (256 * 11,), 4096)
    assert choose_gemm(even, H200, options=options)[0].streams == 0


def test_an_h200_takes_wide_tiles_alone_on_their_unit_and_shares_loads():
    best = choose_gemm(SQUARE, H200)[0]
    assert sorted(best.tile[:2]) == [128, 256]
    assert (best.multicast, best.resident, best.waves) == (2, 1, 8)
    assert gemm_resident((256, 256, 16), 2, 2, H200) == 0
    assert gemm_waves((64, 64, 64), H200) == 4
    assert {s.multicast for s in choose_gemm(SQUARE, GPU)} == {1}
    assert choose_gemm(SQUARE, H200, options=GemmOptions(multicast=1))[0].multicast == 1


def test_heads_of_a_kv_head_are_dealt_to_one_die_where_their_keys_take_the_time():
    problem = AttentionProblem(1, 2048, 8, 8, 128, 0, 2048)
    slow = replace(GPU, mall_rate=GPU.mall_rate / 20)
    assert not deals_heads(problem, GPU, 16, 1)
    assert deals_heads(problem, slow, 16, 1)
    assert not deals_heads(replace(problem, group=1, kv_heads=64), slow, 16, 1)
    assert not deals_heads(problem, replace(slow, dies=1), 16, 1)
