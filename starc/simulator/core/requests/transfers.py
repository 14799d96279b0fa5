"""Transfers between devices, counted once."""

from __future__ import annotations

import numpy as np

from starc.simulator.core.compiled import inlined
from starc.simulator.core.servers import count
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.counts import COUNT_LOGICAL_DIE, COUNT_LOGICAL_USR, COUNT_LOGICAL_XGMI
from starc.simulator.state.numbers import DIES_PER_DEVICE, GROUPS


@inlined
def count_logical(s: State, g: Int, w: Int, size: Int) -> None:
    """Counts a transfer between devices once, by the nearest class of links between them."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    launch = np.int64(group["launch"])
    if group["peer_gpu"] != g:
        count(s, g, launch, COUNT_LOGICAL_XGMI, size)
    elif group["peer"] != group["device"]:
        here = s.die_places[np.int64(group["die"])]
        there = s.die_places[np.int64(group["peer"]) * s.cfg[DIES_PER_DEVICE]]
        kind = COUNT_LOGICAL_DIE if here == there else COUNT_LOGICAL_USR
        count(s, g, launch, kind, size)
