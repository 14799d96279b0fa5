"""Microbenchmarks: latency by footprint, bandwidth by blocks, re-read bandwidth, empty kernels."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kinds.kind import Case, Extent, Kind, Row

if TYPE_CHECKING:
    from device import Device

LINE = 16  # int64 elements from a node of the chain to the next line, 128 B
LOADS = 20_000


def ring(device: Device, footprint: int, stride: int, *, shuffled: bool = True) -> Any:
    """A chain through every ``stride`` bytes of a buffer, in random order or in that of addresses;
    entries are indices of int64 elements."""
    torch = device.torch
    nodes, step = footprint // stride, stride // 8
    order = (torch.randperm if shuffled else torch.arange)(nodes, device="cuda")
    links = torch.empty(footprint // 8, dtype=torch.int64, device="cuda")
    links[order * step] = torch.roll(order, -1) * step
    return links


def chase_ns(
    device: Device, footprint: int, stride: int, cache: str = ".cg", *, shuffled: bool = True
) -> float:
    """Nanoseconds of one dependent load, the chain being walked on from where it was left."""
    kernels = importlib.import_module("kernels")
    links = ring(device, footprint, stride, shuffled=shuffled)
    state = device.torch.zeros(1, dtype=device.torch.int64, device="cuda")
    work = lambda: kernels.chase[(1,)](links, state, LOADS, CACHE=cache, num_warps=1)  # noqa: E731
    # Once round a ring that some cache can hold; the others are met cold in every run.
    rounds = -(-(footprint // stride) // LOADS) if footprint <= 2 * device.cache_bytes else 1
    for _ in range(rounds + 1):
        work()
    return sorted(device.elapsed_us(work) for _ in range(7))[3] * 1000.0 / LOADS


def read_launch(device: Device, data: Any, out: Any, blocks: int, threads: int, unroll: int) -> Any:
    """A launch of the reading kernel with 16 B a thread and load."""
    kernels = importlib.import_module("kernels")
    wave = 64 if device.hip else 32
    n = data.numel()

    def work() -> None:
        kernels.read[(blocks,)](
            data, out, n, WIDTH=4, BLOCK=threads * 4, UNROLL=unroll, num_warps=threads // wave
        )

    return work


def _cases(extent: Extent) -> list[dict[str, Any]]:
    chase = [16, 64, 128, 512, 2048, 8192, 16384, 24576, 32768, 49152, 65536, 131072]
    chase += [524288, 2097152]
    blocks = [1, 2, 4, 8, 16, 32, 64, 132, 264, 528, 1056]
    shapes = [(u, t) for u in (1, 4, 8) for t in (256, 1024)]
    again = [8, 16, 24, 32, 40, 48, 64, 96]
    if extent == "quick":
        chase, blocks, shapes, again = [16, 65536], [1, 132], [(4, 256)], [16]
    if extent == "wide":
        chase = [32, 256, 1024, 4096, 20480, 28672, 40960, 57344, 98304, 262144, 1048576, 8388608]
        blocks = [1, 3, 12, 24, 48, 96, 198, 396, 792]
        shapes = [(u, t) for u in (1, 2, 4, 8) for t in (128, 512)]
        again = [4, 12, 20, 28, 36, 44, 56, 80, 128]
    cases: list[dict[str, Any]] = [{"what": "clock"}]
    cases += [{"what": "chase", "kib": kib} for kib in chase]
    cases += [{"what": "reread", "mib": mib} for mib in again]
    cases += [
        {"what": "read", "unroll": u, "threads": t, "blocks": b} for u, t in shapes for b in blocks
    ]
    cases += [{"what": "empty"}]
    return cases


def _row(kind: str, a: int | None, value: float, unit: str) -> Row:
    return "micro", {"kind": kind, "a": a, "b": None, "value": value, "unit": unit}


def _run(device: Device, case: Case) -> Iterator[Row]:
    what = case["what"]
    if what == "clock":
        rate = getattr(device.properties, "clock_rate", None)
        if rate:
            yield _row("clock_max", None, float(rate), "kHz")
    elif what == "chase":
        kib = case["kib"]
        yield _row("chase_ns", kib, chase_ns(device, kib << 10, 128), "ns")
        if kib <= 128:
            yield _row("chase_l1_ns", kib, chase_ns(device, kib << 10, 128, ".ca"), "ns")
    elif what == "read":
        yield _read(device, case)
    elif what == "reread":
        size = case["mib"] << 20
        data = device.random(size // 4, dtype="float32")
        out = device.empty(8 * device.units, dtype="float32")
        work = read_launch(device, data, out, 4 * device.units, 512, 4)
        us = device.time([work]).us
        yield _row("reread_gbps", case["mib"], size / us / 1000.0, "GB/s")
    else:
        kernels = importlib.import_module("kernels")
        word = device.empty(16, dtype="float32")
        empty = lambda: kernels.empty[(1,)](word, num_warps=4)  # noqa: E731
        yield _row("empty_kernel_back_to_back", None, device.time([empty], graph=False).us, "us")
        yield _row("empty_kernel_in_graph", None, device.time([empty]).us, "us")


def _read(device: Device, case: Case) -> Row:
    blocks, threads, unroll = case["blocks"], case["threads"], case["unroll"]
    # Enough bytes that a launch takes long against its overhead, at most 1 GiB.
    size = min(1 << 30, blocks * threads * unroll * 16 * 1024)
    size = min(1 << 30, max(size, 16 << 20))
    sets = device.sets(size)
    data = [device.random(size // 4, dtype="float32") for _ in range(sets)]
    out = device.empty(max(blocks, 16), dtype="float32")
    works = [read_launch(device, each, out, blocks, threads, unroll) for each in data]
    us = device.time(works).us
    return _row(f"read_gbps_u{unroll}_t{threads}", blocks, size / us / 1000.0, "GB/s")


KINDS = [
    Kind(
        "micro",
        "latency by footprint (KiB), read bandwidth by blocks, re-read bandwidth (MiB)",
        {"micro": ("kind", "a", "b", "value", "unit")},
        _cases,
        _run,
        share=1.5,
    )
]
