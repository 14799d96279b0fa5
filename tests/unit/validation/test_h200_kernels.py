"""Attention, streams, micro-benchmarks and collectives of the H200: short rows of each file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from starc.diagnostics import InputError
from starc.simulator.run import simulate as run
from starc.validation.attention import Attention, Choices, attention_program
from starc.validation.context import Context
from starc.validation.registry import FILES, module_of, role_of, work_of
from starc.validation.rows import Case, Scalar

CONTEXT = Context()


def shipped(file: str, **wanted: Scalar) -> Case:
    """The first shipped row of a file with these parameters."""
    parameters: Mapping[str, Scalar] = wanted
    return next(
        case
        for case in module_of(file).read(FILES[file].shipped)
        if all(case.parameters.get(key) == value for key, value in parameters.items())
    )


@pytest.mark.parametrize(
    ("file", "wanted", "margin"),
    [
        ("h200_attn_decode.csv", {"B": 4, "HK": 8, "S": 1024}, 0.15),
        ("h200_attn_decode_fixed_splits.csv", {"B": 1, "HK": 8, "splits": 8}, 0.1),
        ("h200_attn_prefill.csv", {"HK": 1, "S": 4096, "impl": "flash"}, 0.12),
        ("h200_attn_prefill.csv", {"HK": 8, "S": 1024, "impl": "cudnn"}, 0.12),
        ("h200_copy.csv", {"bytes": 16 << 20}, 0.08),
        ("h200_read.csv", {"bytes": 16 << 20}, 0.1),
        ("h200_read_l2.csv", {"bytes": 16 << 20}, 0.1),
        ("h200_micro.csv", {"kind": "read_gbps_u1_t256", "a": 132}, 0.08),
        ("h200_micro.csv", {"kind": "read_gbps_u4_t1024", "a": 16}, 0.12),
        ("h200x2_collectives.csv", {"kind": "all_reduce", "bytes": 1 << 20}, 0.15),
        ("h200x2_collectives.csv", {"kind": "peer_copy", "bytes": 16 << 20}, 0.1),
    ],
)
def test_short_rows_are_near_what_was_measured(
    file: str, wanted: dict[str, Scalar], margin: float
) -> None:
    case = shipped(file, **wanted)
    simulated = module_of(file).simulate(case, CONTEXT)
    assert simulated == pytest.approx(case.measured, rel=margin)


def test_a_single_share_of_keys_has_its_second_kernel() -> None:
    target = CONTEXT.machine("h200")
    attention = Attention(2, 1, 8, 128, 256)
    choices = Choices(8, 64, 2, 4, 32768, combine_prologue_ps=5)
    alone = attention_program(attention, choices, target)
    both = attention_program(attention, replace(choices, combines_one=True), target)
    assert len(alone.launches) == 1
    assert len(both.launches) == 2
    assert both.launches["prologue_ps"][1] == 5
    times = [launch.end_ps for launch in run(both).launches]
    assert times[0] <= run(alone).time_ps * 1.1
    assert times[1] - times[0] >= target.kernel_gap_ps


def test_small_buffers_in_rotation_stay_in_the_l2() -> None:
    small, large = (
        module_of("h200_copy.csv").simulate(shipped("h200_copy.csv", bytes=size), CONTEXT)
        for size in (1 << 20, 4 << 20)
    )
    assert small == pytest.approx(1.714, rel=0.1)
    assert large > 2 * small


def test_long_copies_are_shown_and_small_collectives_too() -> None:
    assert role_of(shipped("h200_copy.csv", bytes=1 << 30), shipped=True) == "shown"
    assert role_of(shipped("h200x2_collectives.csv", bytes=1024), shipped=True) == "shown"


def test_an_exchange_adds_to_its_product_and_is_shown() -> None:
    file = "h200x2_fused_gemm.csv"
    rows = [
        shipped(file, kind=f"gemm_rs_{way}", M=128) for way in ("gemm_only", "separate", "fused")
    ]
    assert {role_of(row, shipped=True) for row in rows} == {"shown"}
    alone, separate, fused = (module_of(file).simulate(row, CONTEXT) for row in rows)
    assert alone < fused < separate


def test_latencies_are_inputs_and_rates_of_one_block_fitted() -> None:
    assert role_of(shipped("h200_micro.csv", kind="chase_ns"), shipped=True) == "input"
    one = shipped("h200_micro.csv", kind="read_gbps_u8_t256", a=1)
    assert role_of(one, shipped=True) == "fitted"
    assert role_of(one, shipped=False) == "test"


def test_work_of_a_split_attention_knows_its_workgroups() -> None:
    work = work_of(shipped("h200_attn_decode_fixed_splits.csv", B=1, HK=8, splits=4))
    assert work is not None
    assert (work.workgroups, work.stages) == (32, 1)
    assert work.bytes == 4 * 8 * 128 * 16384


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("h200_attn_prefill.csv", "HK,G,D,S,impl,us\n1,8,128,64,fast,3\n", "one of flash, cudnn"),
        ("h200_micro.csv", "kind,a,b,value,unit\nchase_ns,,,1,ns\n", "needs a whole number"),
        ("h200x2_collectives.csv", "kind,gpus,bytes,us\nall_reduce,1,64,3\n", "at least 2"),
    ],
)
def test_wrong_cells_are_refused(tmp_path: Path, file: str, text: str, message: str) -> None:
    path = tmp_path / file
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        module_of(file).read(path)
