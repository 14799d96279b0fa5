"""RMSNorm of M rows of N, bf16."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kinds.kind import Case, Extent, Kind, Row

if TYPE_CHECKING:
    from device import Device


def _cases(extent: Extent) -> list[dict[str, Any]]:
    rows, columns = [1, 16, 128, 1024, 8192], [2880, 8192]
    if extent == "quick":
        rows, columns = [16], [2880]
    if extent == "wide":
        rows, columns = [4, 64, 256, 512, 2048, 4096, 16384], [4096, 5120, 16384]
    return [{"M": m, "N": n} for n in columns for m in rows]


def launches(device: Device, case: Case, implementation: str) -> list[Any]:
    """Launches of one norm, one for each set of buffers."""
    kernels = importlib.import_module("kernels")
    library = device.torch.nn.functional.rms_norm
    m, n = case["M"], case["N"]
    works: list[Any] = []
    block = 1 << (n - 1).bit_length()
    for _ in range(device.sets(2 * m * n * 2)):
        x, w, out = device.random(m, n), device.random(n), device.empty(m, n)

        def own(x: Any = x, w: Any = w, out: Any = out) -> None:
            kernels.rms_norm[(m,)](x, w, out, n, BLOCK=block, num_warps=8)

        def of_library(x: Any = x, w: Any = w) -> None:
            library(x, (n,), w, 1e-5)

        works.append(own if implementation == "triton" else of_library)
    return works


def _run(device: Device, case: Case) -> Iterator[Row]:
    for implementation in ("triton", "library"):
        us = device.time(launches(device, case, implementation)).us
        if implementation == "triton":
            yield "rms_norm", dict(case) | {"us": us}
        yield "rms_norm_types", dict(case) | {"impl": implementation, "us": us}


KINDS = [
    Kind(
        "rms_norm",
        "RMSNorm of M rows of N, bf16: a Triton kernel; by implementation in a second file",
        {"rms_norm": ("M", "N", "us"), "rms_norm_types": ("M", "N", "impl", "us")},
        _cases,
        _run,
        share=0.3,
    )
]
