"""The links between GPUs, as tables of shortest ways."""

from __future__ import annotations

import numpy as np

from starc.simulator.machine.carriers import carrier_ways
from starc.simulator.state.arrays import Array
from starc.targets.graph import gpu_path, port_carrier, port_to
from starc.targets.target import Target


def network_tables(target: Target) -> dict[str, Array]:
    """For every GPU and peer: the server that the way begins with, the carrier of its port, the
    carrier of the peer where the way ends, the next GPU, and the picoseconds from port to port."""
    count = target.gpus
    shape = (count, count)
    ports, carriers, arrivals, following = (np.zeros(shape, np.int32) for _ in range(4))
    ways = np.zeros(shape, np.int64)
    far = carrier_ways(target)
    for g in range(count):
        for h in range(count):
            if g == h:
                continue
            path = gpu_path(target, g, h)
            ports[g, h] = 0 if target.network == "switch" else port_to(target, g, path[1])
            carriers[g, h] = port_carrier(target, g, path[1])
            arrivals[g, h] = port_carrier(target, h, path[-2])
            following[g, h] = path[1]
            ways[g, h] = (len(path) - 1) * target.link_latency_ps[target.gpu_link]
            for before, at, after in zip(path, path[1:], path[2:], strict=False):
                ways[g, h] += far[port_carrier(target, at, before)][port_carrier(target, at, after)]
    return {
        "ports": ports.ravel(),
        "port_carriers": carriers.ravel(),
        "arrivals": arrivals.ravel(),
        "next_gpus": following.ravel(),
        "gpu_ways": ways.ravel(),
    }
