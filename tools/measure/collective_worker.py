"""One process of a measurement of collectives; ``kinds/collectives.py`` starts one for each GPU.

Arguments: number of GPUs, port, result file, list of sizes in bytes (JSON), rank.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

LAUNCHES_US = 4000.0
MOST_LAUNCHES = 100


def main(words: list[str]) -> int:
    """Measures every collective at every size; rank 0 writes the rows as they come."""
    gpus, port, out, rank = int(words[0]), words[1], Path(words[2]), int(words[4])
    sizes: list[int] = json.loads(words[3])
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=gpus,
        timeout=timedelta(seconds=60), device_id=torch.device("cuda", rank),
    )  # fmt: skip
    rows: list[dict[str, Any]] = []
    for size in sizes:
        whole = torch.randn(max(size // 2 // gpus, 1) * gpus, device="cuda").to(torch.bfloat16)
        part = torch.empty(whole.numel() // gpus, device="cuda", dtype=torch.bfloat16)
        works: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda whole=whole: dist.all_reduce(whole),
            "all_gather": lambda whole=whole, part=part: dist.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda w=whole, p=part: dist.reduce_scatter_tensor(p, w),
        }
        for kind, work in works.items():
            us = _time(torch, dist, work)
            rows.append({"kind": kind, "gpus": gpus, "bytes": size, "us": us})
            if rank == 0:
                out.write_text(json.dumps(rows))
            whole.normal_()
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _time(torch: Any, dist: Any, work: Callable[[], Any]) -> float:
    """Microseconds of one collective inside a graph; the same number of launches on every GPU."""
    for _ in range(3):
        work()
    single = torch.tensor([_elapsed(torch, work)], device="cuda")
    dist.all_reduce(single, op=dist.ReduceOp.MAX)
    count = max(1, min(MOST_LAUNCHES, round(LAUNCHES_US / max(float(single), 1.0))))
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(count):
            work()

    times: list[float] = []
    for _ in range(12):
        dist.barrier()
        times.append(_elapsed(torch, graph.replay) / count)
    return sorted(times[2:])[5]


def _elapsed(torch: Any, work: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1000.0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
