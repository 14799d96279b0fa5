"""Simulates a program: ``simulate(program)`` returns times, traffic, work and bounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from starc.backend.program import Program
from starc.simulator.allocation import allocate
from starc.simulator.core.compiled import interpreted
from starc.simulator.core.event_core import GROW, run_calendar, run_heap
from starc.simulator.core.launches.controllers import begin
from starc.simulator.core.memory.turning import mark_turning
from starc.simulator.core.state_type import STATE_TYPE, handle
from starc.simulator.growth import grow, warmed
from starc.simulator.options import SimulationOptions
from starc.simulator.program.decode import Decoded, decode
from starc.simulator.results.collection import collect
from starc.simulator.results.deadlock import find_deadlock
from starc.simulator.results.governor import at_clock, govern
from starc.simulator.results.operation_log import collect_log
from starc.simulator.results.result import Caches, SimulationResult
from starc.simulator.state.arrays import State
from starc.simulator.state.counts import STAT_UNSURE
from starc.simulator.state.watches import VICTIMS
from starc.simulator.symmetry.proof import Symmetry, find_symmetry
from starc.simulator.symmetry.stand_in import of_node, turning_blocks, violation, watch
from starc.targets.target import Target


def simulate(program: Program, options: SimulationOptions | None = None) -> SimulationResult:
    """Runs a program on the machine that it was built for.

    Raises ``DecodeError`` or ``MachineError`` where program and machine do not fit,
    ``DeadlockError`` where workgroups wait for each other for ever.
    """
    chosen = options or SimulationOptions()
    target = chosen.target or Target.from_dict(program.target)
    result = replace(_simulate(program, target, chosen), bins_asked=chosen.bins_ps is not None)
    clock = govern(program, target, result) if chosen.governor else None
    if clock is None:
        return result
    again = _simulate(program, at_clock(target, clock), chosen)
    return replace(again, wall_s=result.wall_s + again.wall_s, bins_asked=result.bins_asked)


_HIDDEN: Final = (
    "--eager changes nothing: no launch waits for the host, which issues each before the device "
    "is ready for it"
)


def _eager(
    result: SimulationResult, state: State, target: Target, chosen: SimulationOptions
) -> SimulationResult:
    """A result that says so where the host does not show although it launches one by one: no
    launch begins when it is issued."""
    starts = state.starts.reshape(-1, target.devices)[1:]
    issued = target.kernel_issue_ps * np.arange(1, 1 + len(starts))[:, None]
    if not chosen.eager or bool(np.any(starts == issued)):
        return result
    return replace(result, warnings=(*result.warnings, _HIDDEN))


def _simulate(program: Program, target: Target, chosen: SimulationOptions) -> SimulationResult:
    """Runs a program at one clock: one GPU where it stands for all of them, or the node."""
    decoded = decode(program, target, eager=chosen.eager)
    caches = Caches.WARM if chosen.warm else Caches.COLD
    symmetry = Symmetry("the full node was asked for")
    if chosen.page_walk:
        symmetry = Symmetry("pages that a die knows depend on the GPU")
    elif not chosen.full_node:
        symmetry = find_symmetry(program, target)
    wall = 0.0
    if not symmetry.reason:
        state, wall = _run(program, target, decoded, chosen, symmetry)
        reason = violation(state, program.launch_names)
        if not reason:
            node = of_node(state, target.gpus)
            alone = collect(
                program,
                target,
                node,
                wall,
                caches=caches,
                simulated_gpus=1,
                log=collect_log(state, chosen.log_devices),
            )
            return _eager(alone, node, target, chosen)
        symmetry = Symmetry(reason)
    state, took = _run(program, target, decoded, chosen, None)
    reason = symmetry.reason
    whole = collect(
        program,
        target,
        state,
        wall + took,
        caches=caches,
        whole_node=reason,
        log=collect_log(state, chosen.log_devices),
    )
    return _eager(whole, state, target, chosen)


def _run(
    program: Program,
    target: Target,
    decoded: Decoded,
    chosen: SimulationOptions,
    symmetry: Symmetry | None,
) -> tuple[State, float]:
    """The state at the end, of the node or of one GPU that stands for all, and the seconds. A warm
    run is a second one with the caches as the first has left them."""
    if symmetry is not None:
        operations = decoded.operations.copy()
        watch(operations, program.records, symmetry)
        decoded = replace(decoded, operations=operations)
    loop, first = _compiled(chosen)
    wall = 0.0
    used: State | None = None
    for _ in range(2 if chosen.warm else 1):
        state = allocate(decoded, target, chosen, alone=symmetry is not None)
        if used is not None:
            state = warmed(state, used)
            state.watches[:] = used.watches
            state.stats[STAT_UNSURE] = used.stats[STAT_UNSURE]
        if symmetry is not None and target.mall_bytes_per_stack:
            _mark(state, program, target, symmetry, chosen.jit)
            if state.turning.max() > VICTIMS:
                # Too many blocks turn for any of them to be sure: the run is not even begun.
                state.stats[STAT_UNSURE] = 1
                return state, wall
        started = time.perf_counter()
        first(state)
        while loop(state) == GROW:
            state = grow(state)
        wall += time.perf_counter() - started
        find_deadlock(program, target, state)
        used = state
    assert used is not None
    return used, wall


def _mark(state: State, program: Program, target: Target, symmetry: Symmetry, jit: bool) -> None:
    """Notes which sets of the memory-side caches hold what turns with the GPU."""
    mark: Any = mark_turning if jit else interpreted(mark_turning)
    seen: Any = handle(state) if jit else state
    for place in turning_blocks(program, target, symmetry):
        mark(seen, *place)


def _compiled(chosen: SimulationOptions) -> tuple[Callable[[State], int], Callable[[State], None]]:
    loop: Any = run_calendar if chosen.engine == "calendar" else run_heap
    first: Any = begin
    if not chosen.jit:
        return interpreted(loop), interpreted(first)
    # Compiles the event core, or loads it from disk, so that a run's wall time is its own.
    loop.compile((STATE_TYPE,))
    first.compile((STATE_TYPE,))
    return lambda state: loop(handle(state)), lambda state: first(handle(state))


def simulate_governed(
    program: Program, options: SimulationOptions | None = None
) -> SimulationResult:
    """Runs a program as ``simulate`` does, and once more at the clock that the power cap leaves if
    that is lower. Raises what ``simulate`` raises."""
    return simulate(program, replace(options or SimulationOptions(), governor=True))
