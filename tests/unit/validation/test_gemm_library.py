"""Kernels of a library of matrix products, and a few rows against what was measured."""

from __future__ import annotations

import pytest

from starc.targets.loader import load_target
from starc.validation.cases import gemm, rms_norm
from starc.validation.cases.gemm_library import choose
from starc.validation.context import Context
from starc.validation.rows import Case

# Weight columns x rows and whether K is split, as the names of the library's kernels say.
NAMES = [
    ((1, 8192, 3584), (64, 16, False)),
    ((16, 1280, 8192), (64, 16, True)),
    ((128, 13312, 16384), (112, 128, False)),
    ((256, 8192, 8192), (128, 128, False)),
    ((512, 8192, 8192), (256, 128, False)),
    ((1024, 1280, 8192), (80, 128, False)),
    ((1024, 10240, 8192), (320, 128, False)),
    ((2048, 7168, 8192), (176, 128, False)),
    ((4096, 57344, 8192), (320, 128, False)),
]


@pytest.mark.parametrize(("shape", "expected"), NAMES)
def test_tiles_are_those_of_the_library(
    shape: tuple[int, int, int], expected: tuple[int, int, bool]
):
    found = choose(*shape, 2, "bf16", load_target("h200", gpus=1))
    assert (found.columns, found.rows, found.split > 1) == expected


def test_a_kernel_fits_a_compute_unit():
    target = load_target("h200", gpus=1)
    for m in (1, 64, 256, 4096):
        found = choose(m, 4096, 4096, 2, "bf16", target)
        bytes_ = found.stages * (found.rows + found.columns) * found.step * 2
        assert bytes_ <= target.scratch_bytes_per_cu


@pytest.mark.parametrize(
    ("m", "n", "k", "measured"),
    [(16, 8192, 3584, 17.664), (64, 16384, 2048, 20.56), (512, 1280, 8192, 21.893)],
)
def test_short_products_take_what_was_measured(m: int, n: int, k: int, measured: float):
    case = Case("h200_gemm.csv", "gemm", {"M": m, "N": n, "K": k, "name": ""}, measured)
    assert gemm.simulate(case, Context("h200")) == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(("m", "measured"), [(1, 2.872), (128, 3.04)])
def test_short_norms_take_what_was_measured(m: int, measured: float):
    case = Case("h200_rms_norm.csv", "rms_norm", {"M": m, "N": 2880}, measured)
    assert rms_norm.simulate(case, Context("h200")) == pytest.approx(measured, rel=0.1)
