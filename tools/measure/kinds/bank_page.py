"""Effects of banks and pages: latency by footprint and stride, bandwidth of strided and scattered
lines, and of a copy whose target lies at an offset from its source."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kinds.kind import Case, Extent, Kind, Row
from kinds.micro import chase_ns

if TYPE_CHECKING:
    from device import Device

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
WORKED = 512 * MIB  # bytes that a bandwidth case reads, well above any cache
LINE = 128


def _cases(extent: Extent) -> list[dict[str, Any]]:
    chases = [
        (footprint, stride)
        for stride in (128, 4 * KIB, 64 * KIB, 2 * MIB)
        for footprint in (MIB * 4, 32 * MIB, 256 * MIB, GIB, 4 * GIB, 16 * GIB, 64 * GIB)
        if footprint // stride >= 16 and footprint // stride <= 64 << 20
    ]
    strides = [128, 256, 512, KIB, 2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB]
    strides += [256 * KIB, MIB, 2 * MIB]
    chunks = [32, 64, 128, 256, 512, KIB, 4 * KIB]
    spans = [GIB, 8 * GIB, 32 * GIB]
    offsets = [0, 256, 4 * KIB, 64 * KIB, MIB, 2 * MIB + 4 * KIB]
    if extent == "quick":
        chases, strides, chunks = chases[1:2], [KIB], [128]
        spans, offsets = [GIB], [0]
    if extent == "wide":
        footprints = (64 * MIB, 2 * GIB, 8 * GIB, 32 * GIB)
        chases = [(f, s) for s in (256, 16 * KIB, 512 * KIB) for f in footprints]
        spans = [4 * GIB]
        offsets = [128, 8 * KIB, 16 * KIB, 256 * KIB]
    cases: list[dict[str, Any]] = [{"kind": "chase_ns", "a": f, "b": s} for f, s in chases]
    if extent == "default":
        ordered = (32, 64, 128, 256, 512, KIB, 4 * KIB)
        cases += [{"kind": "chase_ordered_ns", "a": 512 * MIB, "b": s} for s in ordered]
    cases += [{"kind": "strided_gbps", "a": span, "b": s} for span in spans[:2] for s in strides]
    cases += [{"kind": "scattered_gbps", "a": span, "b": c} for span in spans for c in chunks]
    cases += [{"kind": "copy_offset_gbps", "a": GIB, "b": offset} for offset in offsets]
    return cases


def _run(device: Device, case: Case) -> Iterator[Row]:
    kind, a, b = case["kind"], case["a"], case["b"]
    unit = "ns" if kind.endswith("_ns") else "GB/s"
    if unit == "ns":
        value = chase_ns(device, a, b, shuffled=kind == "chase_ns")
    elif kind == "copy_offset_gbps":
        value = _copy(device, a, b)
    else:
        value = _lines(device, kind, a, b)
    yield "bank_page", {"kind": kind, "a": a, "b": b, "value": value, "unit": unit}


def _lines(device: Device, kind: str, span: int, size: int) -> float:
    """GB/s of distinct lines: ``size`` is the stride of a strided read, the chunk of a scattered
    one."""
    kernels = importlib.import_module("kernels")
    data = device.empty(span // 4, dtype="float32")
    data.normal_()
    blocks = 8 * device.units
    out = device.empty(blocks, dtype="float32")
    if kind == "strided_gbps":
        lines = min(WORKED, span // 2) // LINE

        def work() -> None:
            kernels.strided[(blocks,)](
                data, out, lines, STRIDE=size // 4, FOOTPRINT=span // 4, LINE=LINE // 4,
                PER_PROGRAM=128, num_warps=8,
            )  # fmt: skip

        moved = lines * LINE
    else:
        chunks = min(WORKED, span // 2) // size

        def work() -> None:
            kernels.scattered[(blocks,)](
                data, out, chunks, ALL=span // size, CHUNK=size // 4,
                PER_PROGRAM=max(1, 16384 // size), num_warps=8,
            )  # fmt: skip

        moved = chunks * size
    return moved / device.time([work]).us / 1000.0


def _copy(device: Device, size: int, offset: int) -> float:
    """GB/s, read and written, of a copy inside one allocation whose halves are ``offset`` bytes
    more than ``size`` apart."""
    kernels = importlib.import_module("kernels")
    data = device.random((2 * size + offset) // 4, dtype="float32")
    source, target = data[: size // 4], data[(size + offset) // 4 :]
    wave = 64 if device.hip else 32

    def work() -> None:
        kernels.copy[(8 * device.units,)](
            source, target, size // 4, WIDTH=4, BLOCK=1024, UNROLL=4, num_warps=256 // wave
        )

    return 2 * size / device.time([work]).us / 1000.0


KINDS = [
    Kind(
        "bank_page",
        "latency (a footprint, b stride, bytes; shuffled and ordered), strided (a span, b stride) "
        "and scattered reads (b chunk), copies at an offset (b)",
        {"bank_page": ("kind", "a", "b", "value", "unit")},
        _cases,
        _run,
        share=1.2,
    )
]
