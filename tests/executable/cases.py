"""The grid: which model runs in which phase on which mesh, and its modules after every pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Final

from xdsl.dialects.builtin import ModuleOp

from starc.checking.harness import ModelRun, run_module
from starc.dialects.target import set_target
from starc.frontend.loading import load_model
from starc.interpreter.seeded_data import ModelData, seeded_data
from starc.passes.base import RemarkSink, StarcPass
from starc.passes.manager import instantiate
from starc.passes.pipeline import OptionValue
from starc.passes.selection import plan_passes
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.executable.models import MODELS


@dataclass(frozen=True)
class Case:
    """A model in a phase on a mesh. ``tensor_parallel`` is all devices by default; ``prompt`` is
    given for prefill, and ``context`` with it for a chunk of a longer context. ``enable`` names
    passes that run beside those of the strategy."""

    model: str
    mesh: tuple[tuple[str, int], ...]
    phase: str
    batch: int
    context: int
    prompt: int | None = None
    tensor_parallel: int | None = None
    uneven: bool = False
    enable: tuple[str, ...] = ()
    strategy: str = "naive"

    def __str__(self) -> str:
        mesh = "x".join(str(size) for _, size in self.mesh)
        mesh += "cubes" if self.mesh[0][0] == "sip" else ""
        parallel = f"-tp{self.tensor_parallel}" if self.tensor_parallel is not None else ""
        query = f"-q{self.prompt}" if self.prompt is not None else ""
        uneven = "-uneven" if self.uneven else ""
        more = "".join(f"-{name}" for name in self.enable)
        more += f"-{self.strategy}" if self.strategy != "naive" else ""
        size = f"b{self.batch}-c{self.context}{query}{uneven}{more}"
        return f"{self.model}-{mesh}{parallel}-{self.phase}-{size}"

    @property
    def devices(self) -> int:
        size = 1
        for _, extent in self.mesh:
            size *= extent
        return size


def mesh(gpu: int, xcd: int) -> tuple[tuple[str, int], ...]:
    """A mesh of an outer and an inner axis."""
    return (("gpu", gpu), ("xcd", xcd))


def decode(
    model: str, on: tuple[int, int], batch: int = 1, context: int = 37, tp: int | None = None
) -> Case:
    """One new token a sequence."""
    return Case(model, mesh(*on), "decode", batch, context, None, tp)


def prefill(
    model: str,
    on: tuple[int, int],
    batch: int = 1,
    prompt: int = 21,
    context: int | None = None,
    tp: int | None = None,
) -> Case:
    """A whole prompt, or the chunk of it that ends a longer context."""
    total = prompt if context is None else context
    return Case(model, mesh(*on), "prefill", batch, total, prompt, tp)


SMALL: Final[tuple[Case, ...]] = (
    decode("gqa", (1, 1), batch=3),
    decode("gqa", (2, 2), batch=1, context=65),
    decode("gqa", (4, 2), batch=3),
    decode("gqa", (2, 2), batch=4, tp=2),
    decode("mqa", (2, 2), batch=2),
    decode("mqa", (4, 2), batch=1, context=1),
    decode("mha", (4, 2), batch=2),
    decode("mha", (2, 2), batch=3, tp=4),
    decode("triple", (3, 2), batch=3),
    decode("triple", (3, 2), batch=2, tp=3),
    decode("attention", (2, 2), batch=2, context=33),
    prefill("gqa", (2, 2), prompt=21),
    prefill("gqa", (4, 2), batch=3, prompt=3, context=40),
    prefill("mqa", (2, 2), batch=1, prompt=35),
    prefill("mha", (2, 2), batch=2, prompt=5, context=9, tp=2),
    prefill("triple", (3, 2), prompt=7),
    prefill("attention", (1, 1), batch=1, prompt=33),
    decode("windows", (2, 2), batch=3),
    decode("windows", (4, 2), batch=2, context=2),
    prefill("windows", (2, 2), prompt=21),
    prefill("windows", (2, 1), batch=2, prompt=7, context=40),
    decode("parallel", (4, 2), batch=2, context=70),
    prefill("parallel", (2, 2), prompt=19),
    decode("alternating", (2, 2), batch=2, context=70),
    prefill("alternating", (2, 1), prompt=19, context=50),
    decode("deep", (2, 1), batch=2, context=517),
    decode("deep", (2, 2), batch=1, context=1030),
    prefill("deep", (1, 2), prompt=150),
    prefill("deep", (2, 1), batch=2, prompt=9, context=300),
)
"""Cases that run at every level."""

SPLIT: Final[tuple[Case, ...]] = tuple(
    replace(case, enable=("shard-attention-sequence",))
    for case in (
        decode("gqa", (4, 2), batch=3),
        decode("mqa", (2, 2), batch=2, context=64),
        prefill("windows", (4, 2), batch=2, prompt=7, context=40),
        decode("attention", (4, 2), batch=2, context=33),
    )
)
"""Attention over caches that are split along the sequence, at every level."""

STARSCREAM: Final[tuple[Case, ...]] = tuple(
    replace(case, strategy="starscream")
    for case in SMALL
    if case.model != "deep" or all(size > 1 for _, size in case.mesh)
)
"""All passes, at every level; long loops where there are two levels."""

NESTED: Final[tuple[Case, ...]] = tuple(
    Case(model, tuple(zip(names, on, strict=True)), phase, batch, context, prompt)
    for names in ("abcd", ("sip", "group", "cube", "pe"))
    for model, on, phase, batch, context, prompt in (
        # As many devices as query heads, more than KV heads; and twice as many.
        ("gqa", (2, 1, 2, 2), "decode", 3, 37, None),
        ("gqa", (2, 2, 2, 2), "decode", 1, 65, None),
        ("mqa", (1, 2, 2, 2), "decode", 2, 40, None),
        ("mha", (2, 2, 2, 2), "prefill", 1, 9, 9),
        # A device of the outer axes has more than one KV head.
        ("gqa", (2, 1, 4, 2), "prefill", 2, 19, 5),
        # Dimensions that divide over some of the axes.
        ("windows", (2, 1, 2, 4), "decode", 2, 33, None),
    )
)
"""Two axes a level, of GPUs and of cubes of memory."""

LARGE: Final[tuple[Case, ...]] = (
    decode("wide", (8, 8), batch=2, context=19),
    prefill("wide", (8, 8), batch=1, prompt=3, context=11),
)
"""64 devices: the lockstep levels."""

UNEVEN: Final[tuple[Case, ...]] = tuple(
    replace(case, uneven=True)
    for case in (
        # 28 query heads of 4 KV heads: two devices share the 7 of one.
        decode("groups", (4, 2), batch=2, context=19),
        prefill("groups", (2, 4), prompt=5, context=12),
        # KV heads by whole groups, and devices without one.
        decode("triple", (4, 2), batch=3),
        decode("gqa", (3, 2), batch=2, context=9),
        prefill("gqa", (3, 2), prompt=7),
        # Query heads that would divide, with KV heads that do not.
        decode("fours", (3, 2), batch=2, context=9),
        # Fewer sequences than replicas, and one more.
        decode("gqa", (4, 2), batch=1, tp=2),
        decode("gqa", (2, 2), batch=3, tp=2),
        # Fewer heads, columns and rows of the vocabulary than devices, or a few more.
        decode("mha", (3, 3), batch=2, context=5),
        prefill("mqa", (3, 2), prompt=4),
        decode("attention", (3, 2), batch=2, context=33),
        decode("parallel", (3, 2), batch=2, context=10),
    )
)
"""Plans whose shares differ."""

ILLEGAL: Final[tuple[tuple[Case, str], ...]] = (
    (decode("mha", (8, 8)), "8 .*heads? .*64 devices|cannot be split over 64"),
    (decode("triple", (4, 2)), "over 8 devices|neither is a multiple"),
    (decode("gqa", (2, 2), batch=3, tp=2), "batch 3"),
    (decode("gqa", (3, 2)), "over 6 devices|neither is a multiple"),
    (decode("gqa", (2, 2), tp=3), "does not divide"),
)
"""Plans that are refused, with what the message says."""


@dataclass(frozen=True)
class Stage:
    """A module as a pass left it: the one before where the pass ``changed`` nothing."""

    pass_name: str
    module: ModuleOp
    changed: bool = True


@dataclass(frozen=True)
class Loaded:
    """A case at the level of whole tensors, with its data and the reference run."""

    case: Case
    target: Target
    module: ModuleOp
    passes: tuple[StarcPass, ...]
    data: ModelData
    reference: ModelRun


@lru_cache(maxsize=64)
def load(case: Case) -> Loaded:
    """Reads a case and runs its reference, once a process."""
    model = load_model(
        MODELS[case.model],
        file=f"{case.model}.sa",
        phase=case.phase,
        batch=case.batch,
        context=case.context,
        prompt=case.prompt,
    )
    module = model.module
    target = machine(case.mesh)
    set_target(module, target)
    data = seeded_data(module)
    reference = run_module(module, data)
    return Loaded(case, target, module, passes_of(case), data, reference)


def machine(sizes: tuple[tuple[str, int], ...]) -> Target:
    """A machine with a mesh of two axes, or of two axes a level: the outermost one counts GPUs, or
    it is one of cubes of memory."""
    if len(sizes) == 2:
        return load_target("mi300x-cpx", mesh=dict(sizes))
    if sizes[0][0] == "sip":
        return load_target("ahbm", mesh=dict(sizes))
    (first, gpus), *inner = sizes
    devices = prod(size for _, size in inner)
    node = load_target("mi300x-cpx", mesh={"gpu": gpus, "xcd": devices})
    (_, _, outer, far), (_, _, near, close) = node.mesh
    levels = (outer, near, near)
    rows = [(name, size, level, close) for (name, size), level in zip(inner, levels, strict=True)]
    return replace(node, mesh=((first, gpus, outer, far), *rows))


WHATEVER_IT_COSTS: Final[dict[str, dict[str, OptionValue]]] = {
    "shard-attention-sequence": {"mode": "queries"},
    "pipeline-collectives": {"parts": 2},
}
"""Options under which a pass does to small models what it does to large ones."""


def passes_of(case: Case) -> tuple[StarcPass, ...]:
    """The passes of the case's strategy, with its tensor-parallel size."""
    size = case.tensor_parallel
    plan: dict[str, OptionValue] = {} if size is None else {"tensor-parallel-size": size}
    if case.uneven:
        plan["uneven"] = True
    options = {"verify-model": plan, "assign-tensor-parallel": plan, **WHATEVER_IT_COSTS}
    if case.uneven:
        options["orthogonalize-gemms"] = {"uneven": True}
    specs = plan_passes(case.strategy, options=options, enable=case.enable)
    return tuple(instantiate(spec) for spec in specs)


@lru_cache(maxsize=64)
def stages(case: Case) -> tuple[Stage, ...]:
    """The modules after each pass, in order, the input first; computed once a process."""
    loaded = load(case)
    return run_passes(loaded, loaded.module, loaded.passes)


def run_passes(loaded: Loaded, module: ModuleOp, passes: Sequence[StarcPass]) -> tuple[Stage, ...]:
    """Runs passes on a copy of a module and keeps a copy after each that changed it."""
    current = module.clone()
    found = [Stage("input", current.clone())]
    for instance in passes:
        instance.run(current, loaded.target, RemarkSink(pass_name=instance.name))
        before = found[-1].module
        changed = str(current) != str(before)
        found.append(Stage(instance.name, current.clone() if changed else before, changed))
    return tuple(found)


def to_run(stages: Sequence[Stage], end_again: bool = True) -> list[tuple[int, Stage]]:
    """The stages that show whether the passes keep what is computed, with the seeds that interleave
    their streams: the input, what a pass changed, and with ``end_again`` the end in any case."""
    last = len(stages) - 1 if end_again else None
    return [(at, stage) for at, stage in enumerate(stages) if stage.changed or at == last]
