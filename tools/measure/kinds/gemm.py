"""Matrix products: bf16 and fp8, weights cold and warm, and what the clock does under load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kinds.kind import Case, Extent, Kind, Row

if TYPE_CHECKING:
    from device import Device

# (N, K, name) of weights W[N, K]
SHAPES: list[tuple[int, int, str]] = [
    (1280, 8192, "l70_qkv_tp8"),
    (8192, 1024, "l70_o_tp8"),
    (7168, 8192, "l70_gateup_tp8"),
    (8192, 3584, "l70_down_tp8"),
    (10240, 8192, "l70_qkv"),
    (8192, 8192, "l70_o"),
    (57344, 8192, "l70_gateup"),
    (8192, 28672, "l70_down"),
    (16384, 2048, "l405_o_tp8"),
    (13312, 16384, "l405_gateup_tp8"),
    (16384, 6656, "l405_down_tp8"),
    (4096, 4096, "sq4k"),
    (8192, 8192, "sq8k"),
]
OTHER_SHAPES: list[tuple[int, int, str]] = [
    (2560, 8192, "l70_qkv_tp4"),
    (8192, 2048, "l70_o_tp4"),
    (14336, 8192, "l70_gateup_tp4"),
    (8192, 7168, "l70_down_tp4"),
    (6144, 4096, "l8_qkv"),
    (28672, 4096, "l8_gateup"),
    (4096, 14336, "l8_down"),
    (2304, 16384, "l405_qkv_tp8"),
    (6144, 6144, "sq6k"),
    (2048, 2048, "sq2k"),
    (5120, 2880, "odd5120"),
    (2880, 4096, "odd2880"),
]
POWERS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
BETWEEN = [1, 24, 96, 192, 384, 768, 1536, 3072]


def _plain(extent: Extent) -> list[dict[str, Any]]:
    if extent == "quick":
        return [{"M": m, "N": 8192, "K": 1024, "name": "l70_o_tp8"} for m in (1, 256)]
    shapes, rows = (OTHER_SHAPES, BETWEEN) if extent == "wide" else (SHAPES, POWERS)
    return [{"M": m, "N": n, "K": k, "name": name} for n, k, name in shapes for m in rows]


def _fp8(extent: Extent) -> list[dict[str, Any]]:
    if extent == "quick":
        return [{"M": 64, "N": 8192, "K": 8192, "name": "sq8k"}]
    shapes = [(8192, 8192, "sq8k"), (7168, 8192, "l70_gateup_tp8")]
    rows = [16, 64, 256, 1024, 4096, 8192]
    if extent == "wide":
        shapes = [(4096, 4096, "sq4k"), (8192, 3584, "l70_down_tp8"), (13312, 16384, "l405_gateup")]
        rows = [16, 32, 128, 512, 2048]
    return [{"M": m, "N": n, "K": k, "name": name} for n, k, name in shapes for m in rows]


def _warmth(extent: Extent) -> list[dict[str, Any]]:
    shapes = [shape for shape in SHAPES if shape[0] * shape[1] * 2 <= 48 << 20]
    rows = [1, 16, 64, 256, 1024]
    if extent == "quick":
        shapes, rows = shapes[:1], [16]
    if extent == "wide":
        shapes, rows = OTHER_SHAPES[:2] + OTHER_SHAPES[8:], [4, 32, 128, 512, 2048]
    return [{"M": m, "N": n, "K": k, "name": name} for n, k, name in shapes for m in rows]


def _load(extent: Extent) -> list[dict[str, Any]]:
    shapes = [(m, 8192, 8192) for m in (64, 512, 1024, 2048, 4096, 8192)] + [(8192, 57344, 8192)]
    types = ["bf16", "fp8"]
    if extent == "quick":
        shapes, types = shapes[:1], types[:1]
    if extent == "wide":
        shapes = [(m, 4096, 4096) for m in (256, 1024, 4096)] + [(2048, 13312, 16384)]
    return [{"dtype": t, "M": m, "N": n, "K": k} for t in types for m, n, k in shapes]


def launches(device: Device, case: Case, dtype: str, sets: int) -> list[Any]:
    """Launches of C[M,N] = A[M,K] W[N,K]^T, one for each set of buffers."""
    torch = device.torch
    m, n, k = case["M"], case["N"], case["K"]
    works: list[Any] = []
    for _ in range(sets):
        out = device.empty(m, n)
        if dtype == "bf16":
            a, w = device.random(m, k), device.random(n, k)
            works.append(lambda a=a, w=w, out=out: torch.mm(a, w.t(), out=out))
        else:
            name = "float8_e4m3fnuz" if device.hip and "MI3" in device.name else "float8_e4m3fn"
            a, w = device.random(m, k, dtype=name), device.random(n, k, dtype=name)
            one = torch.ones((), device="cuda", dtype=torch.float32)

            def product(a: Any = a, w: Any = w, one: Any = one, out: Any = out) -> None:
                torch._scaled_mm(
                    a, w.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, out=out
                )

            works.append(product)
    return works


def _bytes(case: Case, size: int) -> int:
    m, n, k = case["M"], case["N"], case["K"]
    return (m * k + n * k) * size + m * n * 2


def _run(dtype: str) -> Any:
    size, file = (2, "gemm") if dtype == "bf16" else (1, "gemm_fp8")

    def run(device: Device, case: Case) -> Iterator[Row]:
        works = launches(device, case, dtype, device.sets(_bytes(case, size)))
        yield file, dict(case) | {"us": device.time(works).us}

    return run


def _run_warmth(device: Device, case: Case) -> Iterator[Row]:
    for state in ("cold", "warm"):
        sets = device.sets(_bytes(case, 2)) if state == "cold" else 1
        us = device.time(launches(device, case, "bf16", sets)).us
        yield "gemm_warmth", dict(case) | {"state": state, "us": us}


def _run_load(device: Device, case: Case) -> Iterator[Row]:
    size = 2 if case["dtype"] == "bf16" else 1
    works = launches(device, case, case["dtype"], device.sets(_bytes(case, size)))
    for work in works:
        work()
    count = max(1, round(1000.0 / device.time(works).us))

    def some() -> None:
        for index in range(count):
            works[index % len(works)]()

    graph = device.graph(some)
    row = dict(case)
    rested = device.rested(graph, 0.3)
    yield "gemm_load", row | {"state": "rested", "us": rested / count, "mhz": None, "watts": None}
    loaded, mhz, watts = device.under_load(graph, 0.4)
    yield "gemm_load", row | {"state": "loaded", "us": loaded / count, "mhz": mhz, "watts": watts}


SHAPE = ("M", "N", "K", "name")
KINDS = [
    Kind(
        "gemm",
        "bf16 C[M,N] = A[M,K] W[N,K]^T, the library's",
        {"gemm": (*SHAPE, "us")},
        _plain,
        _run("bf16"),
        share=2.0,
    ),
    Kind(
        "gemm_fp8",
        "the same in fp8 e4m3 with bf16 output",
        {"gemm_fp8": (*SHAPE, "us")},
        _fp8,
        _run("fp8"),
        share=0.4,
    ),
    Kind(
        "gemm_warmth",
        "the same bf16 products with weights from memory (cold) and from the cache (warm)",
        {"gemm_warmth": (*SHAPE, "state", "us")},
        _warmth,
        _run_warmth,
        share=0.8,
    ),
    Kind(
        "gemm_load",
        "time of a millisecond of products after a rest, and under load with clock and power",
        {"gemm_load": ("dtype", "M", "N", "K", "state", "us", "mhz", "watts")},
        _load,
        _run_load,
        share=0.6,
    ),
]
