"""Streams: device copy and read by size, and by element type and width of an access."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kinds.kind import Case, Extent, Kind, Row
from kinds.micro import read_launch

if TYPE_CHECKING:
    from device import Device

SIZES = [1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30, 1 << 32]
OTHER_SIZES = [1 << 21, 1 << 23, 1 << 25, 3 << 24, 1 << 27, 3 << 26, 1 << 29, 3 << 28, 1 << 31]
TYPES = {"int8": 1, "bfloat16": 2, "float32": 4, "float64": 8}
THREADS = 256


def _plain(extent: Extent) -> list[dict[str, Any]]:
    sizes = {"quick": SIZES[2:3], "default": SIZES, "wide": OTHER_SIZES}[extent]
    return [{"what": what, "bytes": size} for what in ("copy", "read", "read_l2") for size in sizes]


def _run(device: Device, case: Case) -> Iterator[Row]:
    what, size = case["what"], case["bytes"]
    if what == "copy":
        works: list[Any] = []
        for _ in range(device.sets(2 * size)):
            a, target = (make(size // 4, dtype="float32") for make in (device.random, device.empty))
            works.append(lambda a=a, target=target: target.copy_(a))
    else:
        out = device.empty(8 * device.units, dtype="float32")
        sets = device.sets(size) if what == "read" else 1
        works = [
            read_launch(
                device, device.random(size // 4, dtype="float32"), out, 4 * device.units, 512, 4
            )
            for _ in range(sets)
        ]
    yield what, {"bytes": size, "us": device.time(works).us}


def _typed(extent: Extent) -> list[dict[str, Any]]:
    sizes = [1 << 22, 1 << 26, 1 << 28, 1 << 30, 1 << 31]
    types = list(TYPES)
    if extent == "quick":
        sizes, types = sizes[1:2], types[1:2]
    if extent == "wide":
        sizes = [1 << 24, 3 << 26, 1 << 29, 3 << 28, 1 << 32]
    cases: list[dict[str, Any]] = []
    for size in sizes:
        for name in types:
            for width in (1, 16 // TYPES[name]):
                for what in ("read", "copy", "write"):
                    cases.append({"kind": what, "type": name, "width": width, "bytes": size})
        for what in ("copy_library", "copy_library_eager"):
            cases.append({"kind": what, "type": "float32", "width": None, "bytes": size})
    return cases


def _run_typed(device: Device, case: Case) -> Iterator[Row]:
    kernels = importlib.import_module("kernels")
    what, name, width, size = case["kind"], case["type"], case["width"], case["bytes"]
    element = TYPES[name]
    count, wave = size // element, 64 if device.hip else 32
    blocks = 8 * device.units
    out = device.empty(blocks, dtype="float32")
    works: list[Any] = []
    moved = size if what in ("read", "write") else 2 * size
    sets = device.sets(moved)
    sources = [None if what == "write" else device.random(count, dtype=name) for _ in range(sets)]
    for source in sources:
        target: Any = None if what == "read" else device.empty(count, dtype=name)
        if what.startswith("copy_library"):
            works.append(lambda source=source, target=target: target.copy_(source))
            continue
        # Several narrow loads of a thread would be joined into one wide one by the compiler.
        unroll = 4 if width * element == 16 else 1
        options = {"WIDTH": width, "BLOCK": THREADS * width, "UNROLL": unroll}
        options["num_warps"] = THREADS // wave
        arguments = {"read": (source, out), "copy": (source, target), "write": (target,)}[what]

        def work(arguments: Any = arguments, options: Any = options) -> None:
            getattr(kernels, what)[(blocks,)](*arguments, count, **options)

        works.append(work)
    us = device.time(works, graph=not what.endswith("eager")).us
    yield "stream_types", dict(case) | {"us": us}


KINDS = [
    Kind(
        "streams",
        "copy and read of so many bytes; read_l2 reads one buffer again and again",
        {name: ("bytes", "us") for name in ("copy", "read", "read_l2")},
        _plain,
        _run,
        share=0.5,
    ),
    Kind(
        "stream_types",
        "read, copy and write by size, element type and elements an access (width)",
        {"stream_types": ("kind", "type", "width", "bytes", "us")},
        _typed,
        _run_typed,
        share=1.0,
    ),
]
