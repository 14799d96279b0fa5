"""Launches: one empty kernel inside a graph and launched from Python, and many empty blocks."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kinds.kind import Case, Extent, Kind, Row

if TYPE_CHECKING:
    from device import Device

LAUNCHES = 200


def _cases(extent: Extent) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = [{"how": "graph"}, {"how": "eager"}]
    blocks, threads = [1, 132, 528, 2112, 8448, 33792, 135168], [32, 128, 256, 512, 1024]
    if extent == "quick":
        blocks, threads = blocks[3:4], threads[2:3]
    cases += [{"how": "dispatch", "blocks": b, "threads": t} for t in threads for b in blocks]
    return cases


def _run(device: Device, case: Case) -> Iterator[Row]:
    kernels = importlib.import_module("kernels")
    word = device.empty(16, dtype="float32")
    wave = 64 if device.hip else 32
    blocks, threads = case.get("blocks", 1), case.get("threads", 128)

    def one() -> None:
        kernels.empty[(blocks,)](word, num_warps=max(1, threads // wave))

    if case["how"] == "dispatch":
        us = device.time([one]).us
        row = {"kind": "dispatch", "a": blocks, "b": threads, "value": us, "unit": "us"}
        yield "launches", row
        return
    one()

    def many() -> None:
        for _ in range(LAUNCHES):
            one()

    queued = case["how"] == "graph"
    work = device.graph(many) if queued else many
    times = sorted(device.elapsed_us(work, queued=queued) / LAUNCHES for _ in range(15))
    yield f"launch_{case['how']}", {"us": times[7]}


KINDS = [
    Kind(
        "launch",
        "an empty kernel in a graph, launched from Python, and of many blocks (a) of threads (b)",
        {
            "launch_graph": ("us",),
            "launch_eager": ("us",),
            "launches": ("kind", "a", "b", "value", "unit"),
        },
        _cases,
        _run,
        share=0.3,
    )
]
