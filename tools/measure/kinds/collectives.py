"""Collectives between GPUs through the library (NCCL or RCCL), one process a GPU.

The library reads its protocol once, when a communicator is made: each protocol is measured in
processes of its own, with NCCL_PROTO set. Tensors count whole: ``bytes`` is what every GPU holds
after an all-gather and before a reduce-scatter.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kinds.kind import Case, Extent, Kind, Row

if TYPE_CHECKING:
    from device import Device

COLLECTIVES: Final = ("all_reduce", "all_gather", "reduce_scatter")
PROTOCOLS: Final = ("LL", "LL128", "Simple")
PORT: Final = 29517
WORKER_SECONDS: Final = 240


def _sizes(extent: Extent) -> list[int]:
    if extent == "quick":
        return [1 << 16]
    if extent == "wide":
        return [3 << k for k in range(9, 29)]
    return [1 << k for k in range(10, 31, 2)]


def _plain(extent: Extent) -> list[dict[str, Any]]:
    return [{"protocol": None, "sizes": _sizes(extent)}]


def _protocols(extent: Extent) -> list[dict[str, Any]]:
    sizes = [1 << k for k in range(10, 31)] if extent != "quick" else [1 << 16]
    return [{"protocol": protocol, "sizes": sizes} for protocol in PROTOCOLS]


def _workers(device: Device, case: Case, gpus: int) -> list[dict[str, Any]]:
    """Runs one process a GPU and returns the rows of the first."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "rows.json"
        environment = dict(os.environ)
        if case["protocol"]:
            environment["NCCL_PROTO"] = case["protocol"]
        script = Path(__file__).parent.parent / "collective_worker.py"
        words = [
            sys.executable,
            str(script),
            str(gpus),
            str(PORT),
            str(out),
            json.dumps(case["sizes"]),
        ]
        processes = [subprocess.Popen([*words, str(rank)], env=environment) for rank in range(gpus)]
        try:
            for process in processes:
                process.wait(timeout=WORKER_SECONDS)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
        del device
        # What was written before a failure counts; a process that wrote nothing is an error.
        if not out.exists():
            raise RuntimeError(f"the processes of {gpus} GPUs ended without a result")
        return json.loads(out.read_text())


def _run(device: Device, case: Case) -> Iterator[Row]:
    gpus = device.torch.cuda.device_count()
    for row in _workers(device, case, gpus):
        if case["protocol"]:
            yield "collective_protocols", row | {"protocol": case["protocol"]}
        else:
            yield "collectives", row


def _peers(extent: Extent) -> list[dict[str, Any]]:
    sizes = [1 << 20, 1 << 24, 1 << 28, 1 << 30]
    blocks = [1, 2, 4, 8, 16, 32, 64, 132, 264]
    if extent == "wide":
        sizes = [1 << 18, 1 << 22, 1 << 26, 3 << 27]
    if extent == "quick":
        sizes, blocks = sizes[1:2], [16]
    cases: list[dict[str, Any]] = [{"what": "copy", "a": size} for size in sizes]
    cases += [{"what": "chase", "a": mib} for mib in (1, 64, 1024)]
    cases += [
        {"what": what, "a": count, "b": threads}
        for what in ("read", "write")
        for threads in (256, 1024)
        for count in blocks
    ]
    return cases


def _run_peers(device: Device, case: Case) -> Iterator[Row]:
    torch = device.torch
    kernels = importlib.import_module("kernels")
    here, there = torch.device("cuda", 0), torch.device("cuda", 1)
    what, a = case["what"], case["a"]
    if what == "copy":
        source = torch.randn(a // 4, device=there)
        target = torch.empty(a // 4, device=here)
        us = device.time([lambda: target.copy_(source)], graph=False).us
        yield "collectives", {"kind": "peer_copy", "gpus": 2, "bytes": a, "us": us}
        return
    # A first copy makes PyTorch open each GPU's memory to the other.
    torch.empty(16, device=here).copy_(torch.empty(16, device=there))
    torch.empty(16, device=there).copy_(torch.empty(16, device=here))
    row = {"kind": f"peer_{what}", "a": a, "b": case.get("b")}
    if what == "chase":
        from kinds.micro import LOADS, ring

        links = ring(device, a << 20, 128).to(there)
        state = torch.zeros(1, dtype=torch.int64, device=here)
        walk = lambda: kernels.chase[(1,)](links, state, LOADS, CACHE=".cg", num_warps=1)  # noqa: E731
        walk()
        us = sorted(device.elapsed_us(walk) for _ in range(5))[2]
        yield "peers", row | {"kind": "peer_chase_ns", "value": us * 1000 / LOADS, "unit": "ns"}
        return
    threads = case["b"]
    size = min(1 << 28, a << 22)
    far = torch.randn(size // 4, device=there)
    out = torch.empty(max(a, 16), device=here)
    wave = 64 if device.hip else 32
    options = {"WIDTH": 4, "BLOCK": threads * 4, "UNROLL": 4, "num_warps": threads // wave}
    if what == "read":
        work = lambda: kernels.read[(a,)](far, out, size // 4, **options)  # noqa: E731
    else:
        work = lambda: kernels.write[(a,)](far, size // 4, **options)  # noqa: E731
    us = device.time([work]).us
    yield "peers", row | {"value": size / us / 1000.0, "unit": "GB/s"}


KINDS = [
    Kind(
        "collectives",
        "collectives of the library between all GPUs by size",
        {"collectives": ("kind", "gpus", "bytes", "us")},
        _plain,
        _run,
        share=1.0,
        gpus=2,
    ),
    Kind(
        "collective_protocols",
        "the same with the protocol given (NCCL_PROTO)",
        {"collective_protocols": ("kind", "gpus", "bytes", "protocol", "us")},
        _protocols,
        _run,
        share=2.0,
        gpus=2,
    ),
    Kind(
        "peers",
        "one GPU copies from, reads and writes another's memory; latency of a dependent load",
        {
            "peers": ("kind", "a", "b", "value", "unit"),
            "collectives": ("kind", "gpus", "bytes", "us"),
        },
        _peers,
        _run_peers,
        share=1.0,
        gpus=2,
    ),
]
