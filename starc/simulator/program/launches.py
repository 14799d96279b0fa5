"""Launches as the event core reads them: occupancy of compute units, windows, intervals."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from starc.backend.program import Program
from starc.simulator.errors import DecodeError
from starc.simulator.program.rows import array_of
from starc.simulator.state.arrays import Array
from starc.simulator.state.numbers import QUEUES
from starc.simulator.state.program_records import LAUNCH_INFO, PART_INFO
from starc.targets.target import Target

_FOREVER = 1 << 50


def occupancy(target: Target, template: Any) -> int:
    """Workgroups of a template that one compute unit holds. 0 where it holds none."""
    limits = [target.max_waves_per_cu // int(template["waves"])]
    if template["scratch"] > 0:
        limits.append(target.scratch_bytes_per_cu // int(template["scratch"]))
    if template["registers"] > 0:
        limits.append(target.registers_bytes_per_cu // int(template["registers"]))
    return min(limits)


def names_peers(program: Program, template: int) -> bool:
    """Whether a template has an instruction that may be about another device."""
    info = program.templates[template]
    records = program.records[info.first_record : info.first_record + info.records]
    return bool((records["peer"] >= 0).any())


def _set_quiet(launches: Array) -> None:
    """How long after the end of a launch none of its successors can send anything to another GPU:
    the gaps and prologues up to the next launch that names other devices."""
    quiet = [_FOREVER] * QUEUES
    for i in reversed(range(len(launches))):
        queue = int(launches[i]["queue"])
        launches[i]["quiet"] = quiet[queue]
        start = int(launches[i]["gap"])
        start += int(launches[i]["prologue"]) if launches[i]["workgroups"] else 0
        quiet[queue] = start if launches[i]["remote"] else min(_FOREVER, start + quiet[queue])


def decode_launches(
    program: Program, target: Target, templates: Array, issue: int
) -> tuple[Array, Array, int]:
    """Launches, which the host issues ``issue`` picoseconds after each other, their parts, and the
    workgroups that a compute unit can hold. Raises ``DecodeError`` where one cannot run."""
    launches = np.zeros(len(program.launches), LAUNCH_INFO)
    parts = array_of([(*tuple(row), 0) for row in program.parts.tolist()], PART_INFO)
    most = [1] * QUEUES
    for i, (launch, out) in enumerate(zip(program.launches, launches, strict=True)):
        name, queue = program.launch_names[i], int(launch["queue"])
        first = int(launch["first_part"])
        own = parts[first : first + int(launch["parts"])]
        needs = templates[own["template"]]
        waves = 1
        if launch["engines"]:
            _open_engine_windows(own, needs, target, name)
        else:
            most[queue] = max(most[queue], _open_windows(own, needs, launch, target, name))
            waves = int(needs["waves"].max(initial=1))
        for field in ("queue", "workgroups", "first_part", "parts", "depends", "bands", "engines"):
            out[field] = launch[field]
        out["gap"] = launch["gap_ps"]
        out["prologue"] = launch["prologue_ps"]
        out["interval"] = _dispatch_interval_ps(target, waves)
        out["issued"] = i * issue
        out["remote"] = int(any(names_peers(program, t) for t in own["template"].tolist()))
    _set_quiet(launches)
    slots = min(62, target.max_waves_per_cu, sum(most))
    return launches, parts, slots


def _open_engine_windows(parts: Array, templates: Array, target: Target, name: str) -> None:
    """Bytes that a copy engine may have in flight, per part of a launch on copy engines."""
    if not target.copy_engines:
        raise DecodeError(f"{name} runs on copy engines, and a device of {target.name} has none")
    most = target.copy_engine_window_bytes
    for part, template in zip(parts, templates, strict=True):
        part["window"] = max(64, min(int(template["window"]) or most, most))


def _open_windows(parts: Array, templates: Array, launch: Any, target: Target, name: str) -> int:
    """Bytes that a workgroup may have in flight, per part of a launch on compute units. Returns the
    most workgroups of it that a compute unit holds."""
    cus = target.cus_per_die * target.dies_per_device
    most = 1
    for part, template in zip(parts, templates, strict=True):
        held = occupancy(target, template)
        if held == 0:
            raise DecodeError(f"a workgroup of {name} does not fit a compute unit")
        most = max(most, held)
        # The compute unit's bytes in flight are shared by the workgroups that it will hold.
        resident = max(1, min(held, -(-int(launch["workgroups"]) // cus)))
        window = max(64, target.window_bytes_per_cu // resident)
        own = int(template["window"])
        part["window"] = min(own, window) if own > 0 else window
    return most


def _dispatch_interval_ps(target: Target, waves: int) -> int:
    """Between the workgroups that a die starts, of so many waves."""
    by_waves = Fraction(str(target.dispatch_clocks_per_wave)) * waves
    return ceil(max(Fraction(target.dispatch_clocks), by_waves) * target.cycle_ps)


def orders_of(launches: Array) -> tuple[Array, Array]:
    """The launches of each queue in their order, [queue, launch], and how many these are; notes
    the position of each launch."""
    orders = np.zeros((QUEUES, max(1, len(launches))), np.int32)
    lengths = np.zeros(QUEUES, np.int32)
    for i, queue in enumerate(launches["queue"].tolist()):
        launches[i]["position"] = lengths[queue]
        orders[queue, lengths[queue]] = i
        lengths[queue] += 1
    return orders.ravel(), lengths
