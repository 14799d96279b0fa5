"""The text report on values that strain it."""

import re
from dataclasses import fields, replace

import pytest

from starc.report.comparison import Row, comparison_text
from starc.report.glossary import GLOSSARY, entry_for
from starc.report.glossary_aliases import ALIASES
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
from starc.simulator.state.servers import SERVER_NAMES

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
        KernelReport(
            "decoder.q_k_v", "fused", 0.0, 12.0, 10**9, 10**7, 100.0, "hbm", 0.0, {}, 38, "gemm",
            ["linear", "reduce_scatter"],
        ),
        KernelReport(
            "decoder.a_kernel_with_a_long_name", "collective", 12.0, 100.0, 0, 10**7, 0.0,
            "latency", 100.0, {}, 16, "collective",
        ),
    ],
    collectives=[
        CollectiveReport(
            "decoder.all", "all_reduce", ["gpu", "xcd"], 64, 131072, 52.0, 2.5, 5.0, "ring", "bulk"
        )
    ],
    parameters=ParametersReport(70553706496, 855654400),
    kinds=[KindReport("decoder", 80, 123.4, 67.0, 12), KindReport("head", 1, 90.0, 70.0, 4)],
    engine=EngineReport(10**5, 10**6, 4 * 10**6, 0.5, 2.2, 1, ""),
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
    rows = [Row(how, report) for how in ("best", "bulk") for report in (REPORT, TOO_LARGE)]
    text = comparison_text(rows)
    assert "each with its best transports" in text
    assert "all with bulk" in text
    assert text.count("1.00") >= 2
    assert "OOM" in text
    assert "batch 2 would fit" in text
    assert max(len(line) for line in text.split("\n")) <= WIDTH


@pytest.mark.parametrize("utilization", [1.0, 0.5, 1e-3, 1e-5, 1e-6, 1e-9])
@pytest.mark.parametrize("peak", [0, 1, 64_000, 20_000_000_000, 25_000_000_000, 10**15])
def test_memory_bar(utilization: float, peak: int) -> None:
    """The bar has its full width and, unless all fits, shows where the usable memory ends."""
    usable = int(24_000_000_000 * utilization)
    memory = replace(
        REPORT.memory, usable_bytes=usable, peak_bytes=peak, weights_bytes=peak, kv_bytes=0,
        activations_bytes=0, communication_bytes=0, fits=peak <= usable,
    )  # fmt: skip
    text = render_text(replace(REPORT, memory=memory))
    bar = text.split("Memory of the fullest partition\n")[1].split("\n")[0][2:56]
    assert set(bar) <= set("█┃·┆")
    assert ("┃" in bar) == (peak > usable)


def test_a_model_of_one_device_without_weights() -> None:
    text = render_text(
        replace(REPORT, devices=1, mesh={"gpu": 1}, parameters=ParametersReport(0, 0), batch=1)
    )
    assert "  1 device (1 gpu)" in text
    assert "  no parameters, bf16" in text
    assert "for the sequence" in text


def test_a_program_that_was_not_compiled_now() -> None:
    assert "compiled" in render_text(REPORT)
    engine = replace(REPORT.engine, compile_s=0.0)
    assert "compiled" not in render_text(replace(REPORT, engine=engine))


def words_of(text: str) -> set[str]:
    """The names of lines and columns in a text report."""
    found: set[str] = set()
    for line in text.split("\n"):
        if line.startswith(("  kernel ", "  collective ", "  kind ")):
            found.update(re.split(r" {2,}", line.strip()))
        elif (row := re.match(r"  ([a-z][a-z ,]*?)  +[\d-]", line)) is not None:
            found.add(row[1])
        found.update(re.findall(r"[█▓▒░] ([A-Za-z ]+?) [\d.]+ k?M?G?B", line))
    # Rows of the table of layer kinds begin with the model's own names.
    return found - {kind.name for kind in REPORT.kinds}


def test_every_line_of_the_report_is_explained() -> None:
    words = words_of(render_text(REPORT))
    assert {"bound, compulsory", "throughput", "FLOP/B", "KV cache", "share"} <= words
    extra = {"(between kernels)", "payload", "remote", "links", "defaults in force", "usable"}
    kinds = {*SERVER_NAMES, "latency"}
    unexplained = sorted(word for word in words | extra | kinds if entry_for(word) is None)
    assert not unexplained


def test_every_key_of_the_report_is_explained() -> None:
    sections = (LayerReport, WholeModelReport, MemoryReport, TrafficReport, KernelReport,
                CollectiveReport, ParametersReport, KindReport, EngineReport, Report)  # fmt: skip
    keys = {item.name for section in sections for item in fields(section)}
    unexplained = sorted(key for key in keys if entry_for(key) is None)
    assert not unexplained


def test_aliases_lead_to_entries() -> None:
    assert not [name for name, key in ALIASES.items() if key not in GLOSSARY or name in GLOSSARY]


def test_a_layer_of_matrix_work_says_when_power_is_not_modelled():
    note = "power limit"
    assert note not in render_text(REPORT)
    bound = replace(REPORT, layer=replace(REPORT.layer, busiest="matrix"))
    assert note in render_text(bound)
    known = replace(bound, layer=replace(bound.layer, power_w=641.6, power_cap_w=750.0))
    assert note not in render_text(known)
    assert "642 W" in render_text(known)
    assert "the cap is 750 W" in render_text(known)
    assert "caches serve some of them" in GLOSSARY["bytes"]
    assert "power cap" in GLOSSARY["matrix"]
