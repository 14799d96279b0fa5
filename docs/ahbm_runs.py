"""Attention on memory cubes as ``ahbm_study.py`` runs it: compiled once, simulated on machines with
other numbers."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from starc.api import CompileOptions, compile_model
from starc.backend.program import Engine, Program
from starc.simulator.options import SimulationOptions
from starc.simulator.results.result import SimulationResult
from starc.simulator.run import simulate
from starc.simulator.state import engine_counts as counts
from starc.targets.loader import load_target
from starc.targets.names import issue_keys
from starc.targets.target import Target

MODEL: Final = """
model "study" {{ dtype = bf16, heads = {heads}, kv_heads = {kv_heads}, head_dim = 128 }}
layer attention_only(q, k, v) {{ return attention(q, k, v{masked}) }}
phase decode {{ batch = 1, context = 4096 }}
phase prefill {{ batch = 1, prompt = 4096 }}
"""


@dataclass(frozen=True)
class Case:
    """Attention of a KV head with eight query heads on a group of cubes, and how it is compiled."""

    cubes: int = 8
    elements: int = 8
    context: int = 4096
    prompt: bool = False
    kv_heads: int = 1
    masked: bool = True
    sharding: str = "mode=queries output=scatter"
    tiles: str = ""
    schedule: str = "pipelined"
    issue: float | None = None  # cycles of every class
    stateful: bool = False
    sips: int = 1
    groups: int = 1


def machine(case: Case, numbers: Mapping[str, float]) -> Target:
    mesh = {"sip": case.sips, "group": case.groups, "cube": case.cubes, "pe": case.elements}
    changed = dict(numbers)
    if case.issue is not None:
        changed |= dict.fromkeys(issue_keys("ahbm"), case.issue)
    if case.stateful:
        changed["compute.stateful_composites"] = 1
    return load_target("ahbm", mesh=mesh, overrides=changed)


@lru_cache(maxsize=256)
def compiled(case: Case) -> Program:
    """The program of a case, compiled for the machine with its own numbers."""
    text = MODEL.format(
        heads=8 * case.kv_heads, kv_heads=case.kv_heads, masked=", causal" if case.masked else ""
    )
    enable = [f"shard-attention-sequence{{{case.sharding}}}"]
    enable.append(f"schedule-commands{{attention-schedule={case.schedule}}}")
    if case.tiles:
        enable.append(f"tile-kernels{{{case.tiles}}}")
    if case.cubes * case.elements == 1:
        del enable[0]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "study.sa"
        path.write_text(text, encoding="utf-8")
        options = CompileOptions(
            path,
            target=machine(case, {}),
            enable=tuple(enable),
            phase="prefill" if case.prompt else "decode",
            context=None if case.prompt else case.context,
            prompt=case.context if case.prompt else None,
        )
        return compile_model(options).packed


@dataclass(frozen=True)
class Run:
    """What one simulation says of the attention."""

    program: Program
    result: SimulationResult

    @property
    def number(self) -> int:
        return self.program.launch_kinds.index("attention")

    @property
    def start(self) -> int:
        return self.result.launches[self.number].start_ps

    @property
    def us(self) -> float:
        """From the launch to the last PE's end."""
        return self.result.launches[self.number].time_ps / 1e6

    @property
    def sweep_us(self) -> float:
        """From the launch to the last product of any PE: the rest is the merge."""
        log = self.result.log
        assert log is not None
        rows = log[(log["launch"] == self.number) & (log["engine"] == int(Engine.GEMM))]
        return float(rows["end_ps"].max() - self.start) / 1e6

    @property
    def share(self) -> float:
        """Of the merge in the time."""
        return 1 - self.sweep_us / self.us

    @property
    def ready_us(self) -> float:
        """From the launch to the end of what brings results to the PEs that project them."""
        return (self.result.time_ps - self.start) / 1e6

    def of(self, engine: Engine, count: int) -> int:
        return int(
            self.result.engine_counts[self.number, :, engine * counts.PER_ENGINE + count].max()
        )

    @property
    def bubbles_us(self) -> float:
        """Idle time of the matrix engine between its first and its last work."""
        first, last, busy = (
            self.of(Engine.GEMM, n) for n in (counts.FIRST, counts.LAST, counts.BUSY)
        )
        return (last - first - busy) / 1e6

    @property
    def products(self) -> int:
        """Products of the PE that computes most."""
        return self.of(Engine.GEMM, counts.INSTRUCTIONS)

    @property
    def puts(self) -> int:
        """Puts of all PEs."""
        place = counts.MOVES + counts.MOVE_NAMES.index("puts")
        return int(self.result.engine_counts[self.number, :, place].sum())

    @property
    def commands(self) -> int:
        """Commands that the CPU of a PE issues."""
        first = counts.COMMANDS
        table = self.result.engine_counts[self.number, :, first : first + len(counts.COMMAND_NAMES)]
        return int(table.sum(axis=1).max())


def run(case: Case, tile: float = 1, memory: float = 1, network: float = 1) -> Run:
    """Simulates a case on the machine with factors on the cycles of a tile of the matrix engine, on
    the rate of the memory (and of the DMA engine's port), and on that of links between cubes."""
    program = compiled(case)
    numbers = {
        "compute.tile_cycles": 64 * tile,
        "memory.stack_rate": 256e9 * memory,
        "caches.cu_port": 256 * max(1.0, memory),
        "fabric.noc_rate": 256e9 * network,
    }
    options = SimulationOptions(target=machine(case, numbers), log=not case.prompt)
    return Run(program, simulate(program, options))
