"""Decode attention on machines of memory cubes: cases, and their modules pass by pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from xdsl.dialects.builtin import ModuleOp

from starc.checking.harness import ModelRun, run_module
from starc.dialects.target import set_target
from starc.frontend.loading import load_model
from starc.interpreter.seeded_data import ModelData, seeded_data
from starc.passes.base import RemarkSink
from starc.passes.manager import instantiate
from starc.passes.pipeline import OptionValue
from starc.passes.selection import PassSpec, plan_passes
from starc.passes.verification import verify
from starc.targets.loader import load_target
from starc.targets.target import Target

MODEL = """
model "attention" {{
  dtype = f32, heads = {heads}, kv_heads = {kv_heads}, head_dim = {head_dim}
}}
layer only(q, k, v) {{ return attention(q, k, v, causal{more}) }}
phase decode {{ batch = 1, context = 64 }}
phase prefill {{ batch = 1, prompt = 8 }}
"""


@dataclass(frozen=True)
class CubeCase:
    """An attention over ``cubes`` x ``elements`` of one group, with the options of passes that say
    how its parts are merged."""

    cubes: int
    elements: int
    heads: int = 8
    kv_heads: int = 1
    context: int = 37
    batch: int = 1
    query: int = 1
    head_dim: int = 8
    keys: int = 4
    sips: int = 1
    groups: int = 1
    output: str = "root"
    inside: str = "tree"
    across: str = "mesh"
    positions: str = "cyclic"
    schedule: str = ""
    softmax: str = "operations"
    more: str = ""
    disabled: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        values = [f"{self.cubes}x{self.elements}", f"h{self.heads}", f"kv{self.kv_heads}"]
        values += [f"c{self.context}", f"b{self.batch}", self.output, self.inside, self.across]
        values += ["sink"] if "sink" in self.more else []
        if self.query > 1:
            values.append(f"q{self.query}")
        if self.sips * self.groups > 1:
            values.append(f"{self.sips}x{self.groups}")
        values += ["fused"] if self.softmax == "fused" else []
        return "-".join([*values, self.positions, *([self.schedule] if self.schedule else [])])

    @property
    def target(self) -> Target:
        sizes = {"sip": self.sips, "group": self.groups, "cube": self.cubes, "pe": self.elements}
        return load_target("ahbm", mesh=sizes)

    @property
    def text(self) -> str:
        return MODEL.format(
            heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim, more=self.more
        )

    @property
    def passes(self) -> tuple[PassSpec, ...]:
        options: dict[str, dict[str, OptionValue]] = {
            "shard-attention-sequence": {
                "mode": "queries",
                "output": self.output,
                "map": self.positions,
            },
            "tile-kernels": {
                "attention-keys": self.keys,
                "reduce-pe": self.inside,
                "reduce-cube": self.across,
                "softmax": self.softmax,
            },
        }
        if self.schedule:
            options["schedule-commands"] = {"attention-schedule": self.schedule}
        return plan_passes("starscream", options=options, disable=self.disabled)


@dataclass(frozen=True)
class Loaded:
    """A case at the level of whole tensors, with its data and the reference run."""

    module: ModuleOp
    data: ModelData
    reference: ModelRun


@lru_cache(maxsize=64)
def load(case: CubeCase) -> Loaded:
    """Reads a case and runs its reference, once a process."""
    module = load_model(
        case.text,
        file="attention.sa",
        phase="decode" if case.query == 1 else "prefill",
        batch=case.batch,
        context=case.context,
        prompt=case.query if case.query > 1 else None,
    ).module
    set_target(module, case.target)
    data = seeded_data(module)
    return Loaded(module, data, run_module(module, data))


def compiled(case: CubeCase, last: str = "plan-scratch") -> ModuleOp:
    """The module of a case behind a pass."""
    module, target = load(case).module.clone(), case.target
    for spec in case.passes:
        instance = instantiate(spec)
        instance.run(module, target, RemarkSink(pass_name=instance.name))
        if instance.name == last:
            break
    verify(module, locations=False)
    return module
