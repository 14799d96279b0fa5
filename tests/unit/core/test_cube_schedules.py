"""Tiles of attention on the engines of a processing element."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.core.kernel_schedules.attention_problem import AttentionOptions, AttentionProblem
from starc.core.kernel_schedules.cube_schedules import choose_element_tiles, sub_tile
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.targets.loader import load_target
from starc.targets.target import Target

TARGET = load_target("ahbm")


def problem(context: int = 131072, ranks: int = 64, **changes: int) -> AttentionProblem:
    """Decode with one KV head of eight query heads."""
    one = AttentionProblem(1, 1, 1, 8, 128, context - 1, context, ranks=ranks)
    return replace(one, **changes)


def chosen(
    of: AttentionProblem, target: Target = TARGET, keys: int | None = None, split: int | None = None
) -> tuple[int, ...]:
    options = AttentionOptions(keys=keys, split=split)
    tiles = choose_element_tiles(of, DeviceRates.of(target), target, options)
    return (*tiles.schedule.tile, tiles.schedule.group, tiles.sub)


def test_heads_are_rows() -> None:
    rows, keys, d, group, sub = chosen(problem())
    assert (rows, d, group) == (8, 128, 8)
    assert keys % sub == 0
    assert sub == 64
    # Sub-tiles are whole stripes over the channels.
    assert sub * 256 % (TARGET.channels * TARGET.channel_granule) == 0


def test_sub_tiles_divide_odd_tiles() -> None:
    assert [sub_tile(TARGET, 256, keys) for keys in (512, 96, 40, 4)] == [64, 48, 40, 4]
    # Narrow keys need more of them for a stripe.
    assert sub_tile(TARGET, 16, 512) == 128


def test_costly_commands_ask_for_larger_tiles() -> None:
    slow = replace(TARGET, issue_ps={name: 1_000_000 for name in TARGET.issue_ps})
    assert chosen(problem(), slow)[1] > chosen(problem())[1]


def test_tiles_fit_the_scratch_memory() -> None:
    small = replace(TARGET, scratch_bytes_per_cu=TARGET.queue_bytes + 150_000)
    slow = replace(small, issue_ps={name: 1_000_000 for name in TARGET.issue_ps})
    rows, keys, _, _, _ = chosen(problem(), slow)
    assert rows * keys * 10 < 150_000
    with pytest.raises(ValueError, match="no attention tile fits"):
        chosen(problem(), replace(TARGET, scratch_bytes_per_cu=TARGET.queue_bytes + 1000))


def test_a_prompt_has_several_tiles_of_rows() -> None:
    of = problem(4096, ranks=1, query=1024, start=3072)
    rows, _, _, group, _ = chosen(of)
    assert (rows, group) == (128, 8)


def test_what_is_asked_for() -> None:
    assert chosen(problem(), keys=96)[1:] == (96, 128, 8, 48)
    with pytest.raises(ValueError, match="one compute unit"):
        chosen(problem(), split=2)


def test_a_tile_takes_no_more_keys_than_there_are() -> None:
    few = problem(context=8192)  # 128 keys an element
    assert chosen(few, keys=4096)[1] == 128
    assert chosen(few, keys=96)[1] == 96
    assert chosen(problem(context=64 * 100), keys=4096)[1] == 128
    assert chosen(problem(context=64), keys=4096)[1] == 16
