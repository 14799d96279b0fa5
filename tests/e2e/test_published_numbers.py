"""Numbers of the paper and of its arithmetic, counted on compiled and simulated programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from starc.api import Compilation, CompileOptions, compile_model, simulate
from starc.simulator.machine.services import server_kinds
from starc.simulator.results.result import SimulationResult
from tests.unit.passes.exchanges import Exchange
from tests.unit.passes.test_collective_algorithms import NODE, all_reduce, hierarchical

EXAMPLES = Path(__file__).parents[2] / "examples"
CONTEXT = 128 * 1024


def compiled(model: str, strategy: str, utilization: float = 0.9, **settings: str) -> Compilation:
    return compile_model(
        CompileOptions(
            EXAMPLES / f"{model}.sa",
            strategy=strategy,
            phase="decode",
            batch=1,
            context=CONTEXT,
            gpu_memory_utilization=utilization,
            settings=settings,
        )
    )


@pytest.mark.parametrize(
    ("model", "strategy", "utilization", "batch"),
    [
        ("llama3-405b", "naive", 1.0, 1),
        ("llama3-405b", "starscream", 1.0, 10),
        ("llama3-405b", "starscream", 0.9, 8),
        ("llama3-70b", "naive", 1.0, 4),
        ("llama3-70b", "starscream", 1.0, 32),
        ("llama3-70b", "starscream", 0.9, 28),
    ],
)
def test_batch_ceilings_and_copies_of_the_caches(
    model: str, strategy: str, utilization: float, batch: int
) -> None:
    """How many sequences of 128k tokens a node holds, and how often it holds a KV head."""
    memory = compiled(model, strategy, utilization).memory
    assert memory is not None
    assert memory.max_batch == batch
    assert memory.kv_replication == (8 if strategy == "naive" else 1)
    if utilization == 1.0:
        # The formula counts weights and caches alone, in 24e9 bytes a partition.
        rest = 24_000_000_000 - memory.weights_bytes
        assert rest // memory.kv_bytes == batch


def test_a_decode_step_receives_a_thousandth_of_the_cache_that_it_reads() -> None:
    """128 heads of 128 at 128k in bf16: 14 heads of queries and 14 heads of parts, over 8 MiB of
    keys and values a die."""
    compilation = compiled("attention", "starscream", heads="128")
    result = simulate(compilation.packed)
    received = sum(result.traffic.logical.values()) / 64
    (attention,) = [launch for launch in result.launches if launch.kind == "attention"]
    cache, read = 8 * 2**20, attention.traffic.l2_miss_bytes / 64
    assert received == 3584 + 3696
    assert 100 * received / cache == pytest.approx(0.0868, abs=5e-5)
    assert cache < read < 1.002 * cache  # the queries too


def bytes_of_links(exchange: Exchange, result: SimulationResult) -> np.ndarray:
    """Bytes over each link between GPUs, by GPU and port, from the work of their servers."""
    kinds = np.array(server_kinds(exchange.target))
    work = result.work.sum(axis=0)[:, kinds == "xgmi"]
    return work * exchange.target.link_rate["xgmi"] / 1e12


def test_links_of_a_hierarchical_all_reduce_and_of_a_flat_ring() -> None:
    """1.75 V a GPU, a quarter of V on each of seven links; a ring of 64 has 1.97 V on one link."""
    payload = 1 << 22
    levels = hierarchical((8, 8), (1, 2048, 1024), ("direct", "two_shot", "direct"), 1)
    result = simulate(levels.program)
    assert result.traffic.logical["xgmi"] == 8 * 1.75 * payload
    links = bytes_of_links(levels, result)
    used = links[links > 0].reshape(8, 7)
    assert used.min() >= 0.999 * payload / 4
    assert used.max() <= 1.02 * payload / 4  # signals besides
    ring = all_reduce((8, 8), NODE, "ring", (1, 2048, 1024))
    result = simulate(ring.program)
    assert result.traffic.logical["xgmi"] == 8 * 2 * 63 * payload // 64
    links = bytes_of_links(ring, result)
    assert (links > 0.1 * payload).sum(axis=1).tolist() == [1] * 8
    assert links.max() == pytest.approx(1.97 * payload, rel=0.02)
