"""Public figures of MI300X: what is read, what role rows have, and short rows within margins."""

from __future__ import annotations

from pathlib import Path

import pytest

from starc import cli
from starc.diagnostics import InputError
from starc.validation.cases import mi300x_collectives, mi300x_public, mi300x_published
from starc.validation.context import Context
from starc.validation.registry import FILES, margin_of, role_of
from starc.validation.rows import Case

PUBLIC = mi300x_public.read(FILES["mi300x_public.csv"].shipped)
PUBLISHED = mi300x_published.read(FILES["mi300x_published.csv"].shipped)
COLLECTIVES = mi300x_collectives.read(FILES["mi300x_collectives.csv"].shipped)
HEADER = "benchmark,param,value,config,us,what\n"


def error(case: Case, simulated: float) -> float:
    return abs(simulated / case.measured - 1)


def public(benchmark: str, value: int, config: str = "") -> Case:
    (case,) = (
        case
        for case in PUBLIC
        if case.text("benchmark") == benchmark
        and case.integer("value") == value
        and config in case.text("config")
    )
    return case


@pytest.mark.parametrize(
    ("benchmark", "value", "config"),
    [
        ("cache_latency", 32768, ""),
        ("cache_latency", 6291456, ""),
        ("cache_latency", 1073741824, ""),
        ("memory_bandwidth", 4, ""),
        ("shoc_devicememory", 32, "read"),
        ("empty_kernel", 4096, "block_size=1024"),
        ("fp16_throughput", 262144, "threads_per_block=1024"),
        ("fp64_throughput", 1048576, "threads_per_block=64"),
        ("shared_mem_bandwidth", 512, "block_size=1024"),
    ],
)
def test_micro_benchmarks(benchmark: str, value: int, config: str) -> None:
    case = public(benchmark, value, config)
    margin = margin_of(case)
    assert margin is not None
    assert error(case, mi300x_public.simulate(case, Context())) <= margin


@pytest.mark.parametrize(
    ("benchmark", "value", "config"),
    [
        ("atomic_operations", 4, "atomicCAS"),
        ("shared_mem_bandwidth", 1024, "conflict;block_size=256"),
        ("tensor_core_throughput", 256, ""),
    ],
)
def test_what_has_no_mechanism_is_shown(benchmark: str, value: int, config: str) -> None:
    cases = [
        case
        for case in PUBLIC
        if case.kind == benchmark and case.integer("value") == value
        and config in case.text("config") and role_of(case, shipped=True) == "shown"
    ]  # fmt: skip
    assert cases
    assert mi300x_public.simulate(cases[0], Context()) > 0
    assert benchmark in mi300x_public.NOTES


def test_unknown_benchmarks_are_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mi300x_public.csv").write_text(
        HEADER + "stencil,size,0.5,a=1,9.5,x\nempty_kernel,num_blocks,16,block_size=128,8.7,x\n"
    )
    assert cli.run(["validate", "--data", str(tmp_path), "--jobs", "1"]) == 0
    captured = capsys.readouterr()
    assert "stencil is not modelled: 1 row left out" in captured.err
    assert "empty_kernel" in captured.out
    assert "stencil" not in captured.out


def test_a_size_that_is_no_number_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mi300x_public.csv"
    path.write_text(HEADER + "empty_kernel,num_blocks,many,,8.7,x\n")
    with pytest.raises(InputError, match="'many' must be a whole number"):
        mi300x_public.read(path)


# Products take seconds each.
@pytest.mark.parametrize(
    "case",
    [case for case in PUBLISHED if not case.kind.startswith("gemm")],
    ids=lambda case: f"{case.kind} {case.text('detail')}",
)
def test_single_figures(case: Case) -> None:
    margin = margin_of(case)
    if margin is None and case.text("role") != "input":
        return
    simulated = mi300x_published.simulate(case, Context())
    assert error(case, simulated) <= (0.01 if margin is None else margin)


@pytest.mark.parametrize(
    ("protocol", "size"),
    [
        ("default_graph", 32),
        ("default_graph", 16384),
        ("default_graph", 262144),
        ("ring_simple", 16384),
        ("tree_ll", 1024),
    ],
)
def test_sums_over_a_node(protocol: str, size: int) -> None:
    (case,) = (
        case
        for case in COLLECTIVES
        if case.text("protocol") == protocol and case.integer("bytes") == size
    )
    margin = margin_of(case)
    assert margin is not None
    assert error(case, mi300x_collectives.simulate(case, Context())) <= margin


def test_fitted_rows_are_chosen_by_their_parameters() -> None:
    fitted = [case for case in COLLECTIVES if role_of(case, shipped=True) == "fitted"]
    assert len(fitted) == 7
    assert all(role_of(case, shipped=False) == "test" for case in fitted)
    assert len([case for case in COLLECTIVES if case.kind == "all_reduce_8"]) == 16
