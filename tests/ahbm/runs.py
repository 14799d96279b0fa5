"""Attention on machines of memory cubes, from source to a packed program that runs on data and in
the simulator, and a reference that shares no code with starc."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from xdsl.dialects.builtin import ModuleOp

from starc.backend.program import Engine, Opcode, Program
from starc.dialects.target import set_target
from starc.frontend.loading import load_model
from starc.interpreter.element_types import Mode
from starc.interpreter.program_runs import run_program
from starc.interpreter.seeded_data import ModelData, seeded_data
from starc.passes.base import RemarkSink
from starc.passes.manager import instantiate
from starc.passes.pipeline import OptionValue
from starc.passes.program.pack import pack
from starc.passes.selection import plan_passes
from starc.simulator.options import SimulationOptions
from starc.simulator.results.result import LaunchTime, SimulationResult
from starc.simulator.run import simulate
from starc.simulator.state import engine_counts as counts
from starc.targets.loader import load_target
from starc.targets.target import Target

Array: TypeAlias = npt.NDArray[np.float64]
Log: TypeAlias = npt.NDArray[np.void]

MODEL = """
model "attention" {{
  dtype = {dtype}, heads = {heads}, kv_heads = {kv_heads}, head_dim = {head_dim}
}}
layer only(q, k, v) {{ return attention(q, k, v{masked}) }}
phase decode {{ batch = 1, context = 64 }}
phase prefill {{ batch = 1, prompt = 8 }}
"""


@dataclass(frozen=True)
class Attention:
    """``query`` new positions at the end of ``context``, on a group of ``cubes`` x ``elements``."""

    cubes: int
    elements: int
    query: int = 1
    context: int = 64
    heads: int = 8
    kv_heads: int = 1
    head_dim: int = 8
    keys: int = 16  # of a tile
    dtype: str = "f32"
    masked: str = ", causal"
    sharding: tuple[tuple[str, OptionValue], ...] = ()
    tiles: tuple[tuple[str, OptionValue], ...] = ()
    schedule: str = "pipelined"
    stateful: bool = False

    @property
    def target(self) -> Target:
        sizes = {"sip": 1, "group": 1, "cube": self.cubes, "pe": self.elements}
        numbers = {"compute.stateful_composites": 1.0} if self.stateful else None
        return load_target("ahbm", mesh=sizes, overrides=numbers)

    @property
    def positions(self) -> int:
        """The first of the new positions."""
        return self.context - self.query


@dataclass(frozen=True)
class Run:
    """A program with its data and what the simulator found, with the log of operations."""

    case: Attention
    data: ModelData
    program: Program
    result: SimulationResult

    @property
    def number(self) -> int:
        """The attention's launch."""
        (found,) = [i for i, kind in enumerate(self.program.launch_kinds) if kind == "attention"]
        return found

    @property
    def launch(self) -> LaunchTime:
        return self.result.launches[self.number]

    def moved(self, name: str) -> list[int]:
        """A count of the DMA engines, by device."""
        place = counts.MOVES + counts.MOVE_NAMES.index(name)
        return self.result.engine_counts[self.number, :, place].tolist()

    def messages(self) -> list[int]:
        """Messages inside cubes, and between cubes."""
        first = counts.MESSAGES
        return self.result.engine_counts[self.number, :, first : first + 2].sum(axis=0).tolist()

    def commands(self, name: str) -> int:
        """Commands of a class that the CPUs issue."""
        place = counts.COMMANDS + counts.COMMAND_NAMES.index(name)
        return int(self.result.engine_counts[self.number, :, place].sum())

    def of_engine(self, engine: Engine, count: int) -> list[int]:
        return self.result.engine_counts[
            self.number, :, engine * counts.PER_ENGINE + count
        ].tolist()

    def rows(self, engine: Engine, opcode: Opcode, device: int | None = None) -> Log:
        """Rows of the log of the attention, in the order of their begin."""
        log = self.result.log
        assert log is not None
        chosen = (log["launch"] == self.number) & (log["engine"] == int(engine))
        chosen &= self.program.records["op"][log["record"]] == int(opcode)
        if device is not None:
            chosen &= log["device"] == device
        found = log[chosen]
        return found[np.argsort(found["start_ps"], kind="stable")]

    def output(self, mode: Mode = "exact") -> Array:
        """What the packed rows compute on the data."""
        return np.asarray(run_program(self.program, self.data, mode).outputs[0], np.float64)


def module_of(case: Attention) -> tuple[ModuleOp, ModelData]:
    """A case at the level of whole tensors, with its data, which is random and has no symmetry."""
    text = MODEL.format(
        dtype=case.dtype,
        heads=case.heads,
        kv_heads=case.kv_heads,
        head_dim=case.head_dim,
        masked=case.masked,
    )
    module = load_model(
        text,
        file="attention.sa",
        phase="decode" if case.query == 1 else "prefill",
        batch=1,
        context=case.context,
        prompt=case.query if case.query > 1 else None,
    ).module
    set_target(module, case.target)
    return module, seeded_data(module)


def compiled(case: Attention) -> Program:
    """The program of a case."""
    options = {
        "shard-attention-sequence": dict(case.sharding),
        "tile-kernels": {"attention-keys": case.keys, **dict(case.tiles)},
        "schedule-commands": {"attention-schedule": case.schedule},
    }
    module, target = module_of(case)[0], case.target
    for spec in plan_passes("starscream", options=options):
        instantiate(spec).run(module, target, RemarkSink(pass_name=spec.name))
    return pack(module, target)


@lru_cache(maxsize=32)
def run(case: Attention) -> Run:
    """A case, compiled and simulated once a process."""
    program = compiled(case)
    result = simulate(program, SimulationOptions(log=True))
    return Run(case, module_of(case)[1], program, result)


def reference(case: Attention, data: ModelData) -> Array:
    """Softmax attention in float64, position by position."""
    q, k, v = (np.asarray(values, np.float64) for values in data.inputs["only"])
    group, d = case.heads // case.kv_heads, case.head_dim
    states = {name.split(".")[-1]: np.asarray(data.states[name]) for name in data.states}
    keys, values = (states[name][0].astype(np.float64) for name in ("k_cache", "v_cache"))
    for new, cache in ((k, keys), (v, values)):
        cache[:, case.positions : case.context] = (
            new[0].reshape(case.query, case.kv_heads, d).transpose(1, 0, 2)
        )
    queries = q[0].reshape(case.query, case.heads, d)
    found = np.zeros_like(queries)
    for row in range(case.query):
        seen = case.positions + row + 1 if case.masked else case.context
        for head in range(case.heads):
            scores = keys[head // group, :seen] @ queries[row, head] / sqrt(d)
            weights = np.exp(scores - scores.max())
            found[row, head] = weights @ values[head // group, :seen] / weights.sum()
    return found.reshape(1, case.query, case.heads * d)
