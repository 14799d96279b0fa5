"""The text report on values that strain it."""

from dataclasses import replace

import pytest

from starc.report.comparison import comparison_text
from starc.report.model import (
    CollectiveReport,
    EngineReport,
    KernelReport,
    KindReport,
    LayerReport,
    MemoryReport,
    ParametersReport,
    Report,
    TrafficReport,
    WholeModelReport,
    to_json_text,
)
from starc.report.text import WIDTH, render_text

REPORT = Report(
    model="a-model-with-a-rather-long-name",
    target="mi300x-cpx-nps4",
    strategy="naive",
    phase="decode",
    batch=128,
    context=131072,
    query=1,
    devices=64,
    mesh={"gpu": 8, "xcd": 8},
    tensor_parallel=8,
    data_parallel=8,
    dtype="bf16",
    kv_cache_dtype="f8E4M3FN",
    gpu_memory_utilization=0.9,
    defaults=["--gpus 8", "--strategy naive"],
    layer=LayerReport(
        "decoder", 123.4, 259140, 2100.0, 1.2, 67.0, 54.0, 40.0, "latency", "hbm", "cold", 100.0
    ),
    whole_model=WholeModelReport(80, 9980.0, 801.0, 9.98, None),
    memory=MemoryReport(
        24_000_000_000, 21_600_000_000, 7_600_000_000, 2_200_000_000, 5_370_000_000, 12_000_000,
        4_000_000, 14_000_000, 8.0, 102400, 28, True,
    ),
    traffic=TrafficReport(10**9, 10**8, 5, 7, 8, {"usr": 7, "xgmi": 8}, {"usr": 6, "xgmi": 8}),
    kernels=[
        KernelReport("decoder.q_k_v", "gemm", 0.0, 12.0, 10**9, 10**7, 100.0, "hbm", 0.0, {}, 38),
        KernelReport(
            "decoder.a_kernel_with_a_long_name", "collective", 12.0, 100.0, 0, 10**7, 0.0,
            "latency", 100.0, {}, 16,
        ),
    ],
    collectives=[
        CollectiveReport(
            "decoder.all", "all_reduce", ["gpu", "xcd"], 64, 131072, 52.0, 2.5, 5.0, "ring", "bulk"
        )
    ],
    parameters=ParametersReport(70553706496, 855654400),
    kinds=[KindReport("decoder", 80, 123.4, 67.0, 12), KindReport("head", 1, 90.0, 70.0, 4)],
    engine=EngineReport(10**5, 10**6, 4 * 10**6, 0.5, 2.2),
)  # fmt: skip
TOO_LARGE = replace(
    REPORT,
    layer=replace(REPORT.layer, time_us=None, cycles=None, lower_bound_us=None),
    whole_model=WholeModelReport(80, None, None, None, None),
    memory=replace(REPORT.memory, peak_bytes=40_000_000_000, kv_bytes=37_000_000_000, fits=False,
                   max_batch=2),
    traffic=None,
)  # fmt: skip


@pytest.mark.parametrize("report", [REPORT, TOO_LARGE])
def test_width(report: Report) -> None:
    assert max(len(line) for line in render_text(report).split("\n")) <= WIDTH


def test_a_model_that_fits() -> None:
    text = render_text(REPORT)
    assert "a-model-with-a-rather-long-name on mi300x-cpx-nps4: decode, batch 128" in text
    assert "KV cache f8E4M3FN" in text
    assert "data parallel 8" in text
    assert "67.0 us" in text
    assert "(between kernels)" in text


def test_a_model_that_does_not_fit() -> None:
    text = render_text(TOO_LARGE)
    assert "does not fit" in text
    assert "too large by 18.4 GB; batch 2 would fit at context 128k" in text
    assert "--ignore-capacity" in text
    assert "Kernels" not in text
    assert '"time_us": null' in to_json_text(TOO_LARGE)


def test_color_is_only_for_terminals() -> None:
    assert "\x1b[" not in render_text(REPORT)
    assert "\x1b[" in render_text(REPORT, color=True)


def test_comparison() -> None:
    text = comparison_text([REPORT, TOO_LARGE])
    assert "1.00" in text
    assert "OOM" in text
    assert "batch 2 would fit" in text
    assert max(len(line) for line in text.split("\n")) <= WIDTH
