"""The device that an instruction is about."""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.simulator.core.compiled import inlined
from starc.simulator.core.expressions import evaluate
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.numbers import DEVICES, GPUS, GROUPS, NODE_GPUS, VARIABLES


@inlined
def set_peer(s: State, g: Int, w: Int, peer: Int) -> None:
    """The device that a memory operation is about: an expression's value, or its own."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    if peer < 0:
        group["peer"] = group["device"]
        group["peer_gpu"] = g
    else:
        device = evaluate(s, g, w, peer)
        group["peer_gpu"] = device // s.cfg[DEVICES]
        group["peer"] = device - (device // s.cfg[DEVICES]) * s.cfg[DEVICES]


@inlined
def stand_in(s: State, g: Int, w: Int, gpu: Int) -> None:
    """Has expressions of a workgroup evaluated as on another GPU, where one stands for all."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    device = gpu * s.cfg[DEVICES] + np.int64(group["device"])
    v = (g * s.cfg[GROUPS] + w) * VARIABLES
    s.variables[v + 5] = device
    for axis in range(4):
        s.variables[v + 6 + axis] = s.coordinates[device * 4 + axis]


@inlined
def stands_in(s: State, g: Int, w: Int) -> Any:
    """Whether what goes to a peer is what another GPU, for which this one stands, sends here."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    return s.cfg[GPUS] != s.cfg[NODE_GPUS] and group["peer_gpu"] != g
