"""The log of operations: which instruction ran where and when."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from starc.simulator.state.arrays import State
from starc.simulator.state.counts import STAT_LOGGED
from starc.simulator.state.numbers import DEVICES, GPUS, LOG, NODE_GPUS

Log: TypeAlias = npt.NDArray[np.void]
"""Rows of ``starc.simulator.state.LOG_ROW``: device, launch, workgroup, engine, record of the
program, iteration (how often the workgroup has executed the record before), begin and end."""

ORDER = ("device", "launch", "engine", "start_ps", "end_ps", "workgroup", "record", "iteration")


def collect_log(state: State, devices: tuple[int, ...] | None) -> Log | None:
    """The rows of a run, in the order of ``ORDER``, of the node; those of one GPU that stands for
    all are the others' too. None where nothing was logged."""
    if not state.cfg[LOG]:
        return None
    rows = state.log[: int(state.stats[STAT_LOGGED])].copy()
    _number(rows)
    gpus, node = int(state.cfg[GPUS]), int(state.cfg[NODE_GPUS])
    if gpus < node:
        copies = [rows.copy() for _ in range(node)]
        for gpu, copied in enumerate(copies):
            copied["device"] += gpu * int(state.cfg[DEVICES])
        rows = np.concatenate(copies)
    if devices is not None:
        rows = rows[np.isin(rows["device"], devices)]
    return rows[np.lexsort([rows[name] for name in reversed(ORDER)])]


def _number(rows: Log) -> None:
    """Counts the executions of a record by a workgroup, which begin in the order of the rows."""
    names = ("device", "launch", "workgroup", "record")
    order = np.lexsort([rows[name] for name in names])
    ordered = rows[order]
    place = np.arange(len(rows))
    begins = np.ones(len(rows), np.bool_)
    if len(rows):
        begins[1:] = np.any([ordered[name][1:] != ordered[name][:-1] for name in names], axis=0)
    first = np.maximum.accumulate(np.where(begins, place, 0))
    rows["iteration"][order] = place - first
