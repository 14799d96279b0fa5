"""Exchanges take as many workgroups and pieces in flight as they have use for."""

from __future__ import annotations

import pytest

from starc.core.collectives.cost import choices
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.targets.loader import load_target
from starc.targets.target import Transport
from tests.unit.passes.collective_runs import Exchange, compiled, seconds, simulated

GPUS = load_target("mi300x-spx")
PARTITIONS = load_target("mi300x-cpx")
GPU = (AxisRef("gpu"),)


def took(target_name: str, payload: int) -> tuple[float, float]:
    """Simulated and estimated seconds of a two-shot all-reduce over the GPUs."""
    target = load_target(target_name)
    mesh = Mesh.from_rows("node", target.mesh)
    options = {"algorithm": "two_shot", "transport": "device_put"}
    module, _ = compiled(Exchange("all_reduce", GPU, payload), target, options)
    (way,) = choices(
        "all_reduce",
        payload,
        mesh,
        GPU,
        target,
        algorithms=["two_shot"],
        transports=["device_put"],
    )
    return seconds(simulated(module, target)), way.time.seconds


@pytest.mark.parametrize("payload", [1 << 17, 1 << 20, 1 << 23])
def test_a_whole_gpu_is_not_slower_than_its_links(payload: int) -> None:
    """Two halves that put an eighth of the payload on each link, and latencies."""
    simulated_s, estimated_s = took("mi300x-spx", payload)
    links = 2 * payload / 8 / GPUS.link_rate["xgmi"]
    assert simulated_s <= 1.25 * links + 10e-6
    assert abs(simulated_s - estimated_s) <= max(3e-6, 0.15 * simulated_s)


def test_a_gpu_exchanges_as_fast_as_its_partitions_together() -> None:
    whole, _ = took("mi300x-spx", 1 << 20)
    part, _ = took("mi300x-cpx", 1 << 17)  # an eighth of it in each of eight partitions
    assert whole <= 1.2 * part


def test_workgroups_follow_the_bytes_of_a_chunk() -> None:
    transport = Transport(0, 0, workgroups=16, window_bytes=16384, share_bytes=1024)
    assert transport.shared_by(128, 304) == 16
    assert transport.shared_by(100 * 1024, 304) == 100
    assert transport.shared_by(1 << 30, 304) == 304
    assert transport.shared_by(1 << 30, 8) == 8


@pytest.mark.parametrize("transport", ["bulk", "channel_ll"])
def test_libraries_keep_their_channels(transport: str) -> None:
    for target, channels in ((GPUS, 56), (PARTITIONS, 4)):
        for chunk in (1 << 10, 1 << 18, 1 << 28):
            assert target.transports[transport].shared_by(chunk, 304) == channels
