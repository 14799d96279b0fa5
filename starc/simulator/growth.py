"""Arrays of a run that grow while it goes on, or begin with the caches of another run."""

from __future__ import annotations

import numpy as np

from starc.simulator.allocation import packed
from starc.simulator.core.observation import LOG_SPARE
from starc.simulator.state.arrays import FIELDS, Array, By, State
from starc.simulator.state.counts import STAT_LOGGED, STAT_LOW
from starc.simulator.state.numbers import ENTITIES, LOG, POOL
from starc.simulator.state.phases import LOW


def warmed(state: State, used: State) -> State:
    """A state at time 0 with the caches as a run has left them: nothing is being filled any more,
    and no launch of the new run has acquired anything."""
    l2_lines, mall_lines = used.l2_lines.copy(), used.mall_lines.copy()
    l2_lines["filler"] = -1
    l2_lines["acquired"] = 0
    mall_lines["filled"] = 0
    return packed(
        state._replace(
            l2=used.l2,
            l2_lines=l2_lines,
            mall=used.mall,
            mall_lines=mall_lines,
            tlb=used.tlb,
            victims=used.victims,
        )
    )


def grow(state: State) -> State:
    """The same state with pools of twice the size, or with a log of twice the size where that is
    what runs low."""
    stats = state.stats.copy()
    stats[STAT_LOW] = 0
    state = state._replace(cfg=state.cfg.copy(), stats=stats)
    free = min(int(state.gpus[f"free_{kind}s"].min()) for kind in ("request", "message"))
    log_is_low = int(stats[STAT_LOGGED]) + LOG_SPARE >= int(state.cfg[LOG]) > 0
    if log_is_low:
        state.cfg[LOG] *= 2
        state = state._replace(log=np.concatenate([state.log, np.zeros_like(state.log)]))
    if not log_is_low or free < LOW:
        state = _with_larger_pools(state)
    return packed(state)


def _with_larger_pools(state: State) -> State:
    """Numbers of entities stay the same, so nothing that is pending changes its place."""
    pool = int(state.cfg[POOL])
    state.cfg[POOL] += pool
    state.cfg[ENTITIES] += 2 * pool  # requests and messages
    gpus = state.gpus.copy()
    added = {By.REQUEST: pool, By.ENTITY: 2 * pool}
    arrays = {
        name: _wider(getattr(state, name), len(gpus), added[field.by[1]])
        for name, field in FIELDS.items()
        if len(field.by) == 2 and field.by[1] in added
    }
    for g in range(len(gpus)):
        for kind in ("request", "message"):
            _lengthen(arrays[f"{kind}s"].reshape(len(gpus), -1)[g], gpus[g : g + 1], kind, pool)
    return state._replace(gpus=gpus, **arrays)


def _wider(array: Array, gpus: int, added: int) -> Array:
    """An array with so many more entries for each GPU."""
    rows = array.reshape(gpus, -1)
    return np.concatenate([rows, np.zeros((gpus, added), array.dtype)], axis=1).ravel()


def _lengthen(pool: Array, gpu: Array, kind: str, added: int) -> None:
    """Links the last entries of a pool, which are new, behind those of its list of free ones, so
    that these are still taken first."""
    first = len(pool) - added
    pool["next"][first:] = np.arange(first + 1, len(pool) + 1)
    pool["next"][-1] = -1
    last = int(gpu[f"free_{kind}"][0])
    if last < 0:
        gpu[f"free_{kind}"] = first
    else:
        while pool["next"][last] >= 0:
            last = int(pool["next"][last])
        pool["next"][last] = first
    gpu[f"free_{kind}s"] += added
