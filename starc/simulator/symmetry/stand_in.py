"""A run of one GPU that stands for all: what is watched in it, and the node that it stands for."""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.backend.program import Program
from starc.simulator.machine.address_map import BLOCK, AddressMap
from starc.simulator.state.arrays import Array, State
from starc.simulator.state.counts import STAT_EVENTS, STAT_INSTRUCTIONS, STAT_REQUESTS, STAT_UNSURE
from starc.simulator.state.numbers import LAUNCHES
from starc.simulator.state.watches import FIRST_STAY, SEEN_L2, SEEN_MEMORY, WATCHES
from starc.simulator.symmetry.proof import MEMORY, Symmetry
from starc.targets.target import Target

_TURN = range(1, FIRST_STAY)
_STAY = range(FIRST_STAY, WATCHES)


def watch(operations: Array, records: Any, symmetry: Symmetry) -> None:
    """Numbers the instructions on turning buffers."""
    taken = {_TURN: 0, _STAY: 0}
    memory = np.isin(records["op"], [int(op) for op in MEMORY])
    for i in np.flatnonzero(memory & np.isin(records["buffer"], sorted(symmetry.turning))).tolist():
        numbers = _TURN if i in symmetry.records else _STAY
        operations[i]["watch"] = numbers[taken[numbers] % len(numbers)]
        taken[numbers] += 1


def turning_blocks(
    program: Program, target: Target, symmetry: Symmetry
) -> list[tuple[int, int, int]]:
    """Where buffers that turn lie in the memory of a GPU: domain, first block in it and the one
    behind the last, for every device."""
    places = AddressMap.of(target)
    found: list[tuple[int, int, int]] = []
    for device in range(target.devices_per_gpu):
        domain, k = divmod(device, places.devices_per_domain)
        for buffer in sorted(symmetry.turning):
            info = program.buffers[buffer]
            low = k * places.device_blocks + info.address // BLOCK
            high = k * places.device_blocks + (info.address + info.bytes - 1) // BLOCK
            found.append((domain, low, high + 1))
    return found


def violation(state: State, launch_names: tuple[str, ...]) -> str:
    """What a run of one GPU found that the others may find differently, or nothing."""
    seen = state.watches.reshape(-1, WATCHES)
    turned = np.isin(np.arange(WATCHES), list(_TURN))
    for bits, what in (
        (seen & SEEN_L2 & -turned.astype(np.int64), "the L2"),
        (seen & SEEN_MEMORY, "the memory-side cache"),
    ):
        mixed = np.argwhere(bits & (bits - 1))
        if len(mixed):
            name = launch_names[int(mixed[0, 0])]
            return f"{name} finds a part of what turns with the GPU in {what}, not all or nothing"
    if state.stats[STAT_UNSURE]:
        return "what turns with the GPU may displace other data in the memory-side cache"
    return ""


def of_node(state: State, gpus: int) -> State:
    """What a run of one GPU has found, as of all of them."""
    launches = int(state.cfg[LAUNCHES])

    def every(array: Array) -> Array:
        rows = array.reshape(launches, -1)
        return np.ascontiguousarray(np.tile(rows, (1, gpus))).ravel()

    stats = state.stats.copy()
    stats[[STAT_EVENTS, STAT_REQUESTS, STAT_INSTRUCTIONS]] *= gpus
    return state._replace(
        starts=every(state.starts),
        ends=every(state.ends),
        work=every(state.work),
        counts=every(state.counts),
        engine_counts=every(state.engine_counts),
        stats=stats,
    )
