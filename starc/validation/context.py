"""What a case is simulated with: the machine, and single operations compiled to programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from xdsl.dialects.builtin import ModuleOp

from starc.backend.program import Program
from starc.dialects.target import set_target
from starc.passes.pipeline import LOWERING, OptionValue
from starc.passes.selection import PassSpec
from starc.simulator.options import SimulationOptions
from starc.simulator.results.result import SimulationResult
from starc.simulator.run import simulate
from starc.targets.loader import load_target
from starc.targets.target import Target

PASSES = ("form-kernels", *(name for name, _ in LOWERING))
"""From an operation on tensors to instructions, by the compiler's own rules."""


@dataclass(frozen=True)
class Context:
    """The machine of a validation. ``target`` is a name or a file; None takes the target that a
    file's rows were measured on. ``overrides`` replace numbers of it by key path."""

    target: str | None = None
    overrides: Mapping[str, float] = field(default_factory=dict[str, float])

    def machine(
        self,
        default: str,
        gpus: int | None = 1,
        overrides: Mapping[str, float] | None = None,
    ) -> Target:
        """The machine, ``default`` where the user named none, with overrides added."""
        changes = {**self.overrides, **(overrides or {})}
        return _machine(self.target or default, gpus, tuple(sorted(changes.items())))

    def run(
        self,
        module: str,
        target: Target,
        *,
        kernels: Mapping[str, OptionValue] | None = None,
        prepare: Callable[[ModuleOp], None] | None = None,
        tiled: Callable[[ModuleOp], None] | None = None,
        options: SimulationOptions | None = None,
    ) -> SimulationResult:
        """Compiles the text of a module at the collective level and simulates it: a function of
        ``nn`` operations on one device, or of collectives too; where the target has several
        devices its mesh ``@node`` is put in front. ``kernels`` are options of ``tile-kernels`` and
        ``prepare`` may set attributes of the launches after they are formed and ``tiled`` when they
        have tiles: a kernel's choices where a file gives them."""
        program = build(module, target, kernels=kernels, prepare=prepare, tiled=tiled)
        return simulate(program, options=options)


@lru_cache(maxsize=64)
def _machine(name: str, gpus: int | None, changes: tuple[tuple[str, float], ...]) -> Target:
    return load_target(name, gpus=gpus, overrides=dict(changes) or None)


def build(
    module: str,
    target: Target,
    *,
    kernels: Mapping[str, OptionValue] | None = None,
    prepare: Callable[[ModuleOp], None] | None = None,
    tiled: Callable[[ModuleOp], None] | None = None,
) -> Program:
    """The program of a module at the collective level, by the compiler's own passes."""
    from starc.passes.manager import Driver, instantiate
    from starc.passes.program.pack import pack
    from starc.universe import parse_module

    # A module without a mesh is the program of one device.
    mesh = mesh_text(target) if target.devices > 1 else ""
    text = f"builtin.module {{\n{mesh}\n{module}\n}}"
    parsed = parse_module(text, "<validation>")
    set_target(parsed, target)
    driver = Driver(target)
    for name in PASSES:
        spec = PassSpec(name, kernels or {}) if name == "tile-kernels" else PassSpec(name)
        driver.run_pass(parsed, spec, instantiate(spec))
        if name == PASSES[0] and prepare is not None:
            prepare(parsed)
        if name == "tile-kernels" and tiled is not None:
            tiled(parsed)
    return pack(parsed, target)


def mesh_text(target: Target) -> str:
    """The mesh ``@node`` of a target as an operation."""
    axes = ", ".join(f'"{axis}"={size} : {level} {link}' for axis, size, level, link in target.mesh)
    return f"sharding.mesh @node = [{axes}]"
