"""The commands as functions: compile a model, simulate the program, report.

    >>> report = compile_and_simulate(CompileOptions("examples/tiny.sa", gpus=1))

or step by step:

    >>> compilation = compile_model(CompileOptions("examples/tiny.sa", gpus=1))
    >>> report = report_of(compilation, simulate(compilation.packed))

Errors are ``InputError`` for what the model or the machine does not allow, ``UsageError`` for
options that make no sense, and ``CompilerBug`` with the evidence of a bug.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from xdsl.dialects.builtin import ModuleOp

from starc.diagnostics import InputError, UsageError
from starc.dialects.target import set_target
from starc.passes.manager import NO_INSPECTION, Driver, Inspection, instantiate, ir_text, record_bug
from starc.passes.pipeline import DEFAULT_STRATEGY, OptionValue, entry_of, unknown_name
from starc.passes.selection import (
    PassSpec,
    allowing_uneven,
    parse_pipeline,
    plan_passes,
    refuse_command_options,
)
from starc.report.memory import memory_plan, misfit
from starc.report.metadata import Metadata
from starc.targets.default import DEFAULT_TARGET, MEMORY_UTILIZATION
from starc.targets.loader import load_target
from starc.targets.target import Target
from starc.units import tokens

UNFUSE: Final = ("hbm", "sync", "launch")
"""The taxes of unfused kernels: results through memory, bulk synchronisation, launches."""

FUSION: Final = "fuse-compute-collectives"
SCHEDULE_CHECK: Final = "verify-schedule"

if TYPE_CHECKING:
    from starc.backend.program import Program
    from starc.core.memory.planning import MemoryPlan
    from starc.frontend import LoadedModel
    from starc.report.model import Report
    from starc.simulator.options import SimulationOptions
    from starc.simulator.results.result import SimulationResult


@dataclass(frozen=True)
class CompileOptions:
    """What to compile, for which machine, by which plan. ``None`` takes the model file's value, or
    the machine's: all GPUs of a node, tensor parallelism over all devices."""

    model: str | Path
    target: str | Target = DEFAULT_TARGET
    gpus: int | None = None
    mesh: Mapping[str, int] | None = None
    tensor_parallel: int | None = None
    strategy: str = DEFAULT_STRATEGY
    enable: tuple[str, ...] = ()  # passes to add, or to give options: "name{key=value}"
    disable: tuple[str, ...] = ()
    uneven: bool = False  # shards may differ in size where a shape does not divide
    unfuse: tuple[str, ...] = ()  # of UNFUSE: what fused kernels pay again
    transport: str | None = None  # of all collectives, "auto" by cost; None takes the plan's
    phase: str | None = None
    batch: int | None = None
    context: int | None = None
    prompt: int | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    gpu_memory_utilization: float = MEMORY_UTILIZATION
    compile_to: str = "program"
    pipeline: str | None = None  # passes to run instead of the strategy's
    inspection: Inspection = NO_INSPECTION
    given: frozenset[str] = frozenset()  # options of the command line that are no defaults

    def machine(self) -> Target:
        """The machine with its resolved numbers."""
        if isinstance(self.target, Target):
            return self.target
        return load_target(self.target, self.gpus, self.mesh)

    def tensor_parallel_on(self, target: Target) -> int:
        """The devices of a machine that share a layer."""
        return self.tensor_parallel or target.devices


@dataclass(frozen=True)
class Compilation:
    """A compiled model: the module at the last level, and the program and the memory of the whole
    model if the level is ``program``."""

    options: CompileOptions
    target: Target
    model: LoadedModel
    module: ModuleOp
    program: Program | None
    memory: MemoryPlan | None
    driver: Driver
    specs: tuple[PassSpec, ...]
    compile_s: float
    steps: Mapping[str, float]  # seconds of what is no pass: the frontend, the packer

    def ir_text(self) -> str:
        """The module as text."""
        return ir_text(self.module)

    @property
    def packed(self) -> Program:
        """The program. Raises ``UsageError`` if the compilation stopped before it."""
        if self.program is None:
            raise UsageError("the compilation stopped before the program")
        return self.program

    @property
    def fits(self) -> bool:
        """Whether the whole model fits the fullest partition."""
        return self.memory is None or self.memory.fits

    @property
    def warnings(self) -> list[str]:
        """What the user should know, about the file, the machine and the fit."""
        found = [item.text(severity=False) for item in self.model.warnings]
        found += self.target.warnings
        if self.memory is not None and not self.memory.fits:
            found.append(misfit(self.memory))
        return found


def compile_model(
    options: CompileOptions,
    *,
    progress: Callable[[str], None] = lambda _: None,
    repeat: str = "starc compile",
) -> Compilation:
    """Compiles a model to the level of the options. ``progress`` is told each step as it starts;
    ``repeat`` is the command that a report of a bug names."""
    started = time.perf_counter()
    check_options(options)
    target = options.machine()
    driver = Driver(target, options.inspection, progress=progress)
    steps: dict[str, float] = {}
    progress("frontend")
    begun = time.perf_counter()
    model = load(options)
    steps["frontend"] = time.perf_counter() - begun
    module = model.module
    set_target(module, target)
    specs = passes_of(options)
    driver.show_input(module)
    try:
        driver.run(module, specs)
    except InputError as error:
        # Passes know locations, the frontend knows the text at them.
        raise InputError(error.diagnostics, model.sources) from error
    steps["imports of the passes"] = driver.loading_s
    steps["copies and dumps of the IR"] = driver.inspection_s
    program = memory = None
    if options.compile_to == "program" and options.pipeline is None:
        progress("pack")
        begun = time.perf_counter()
        is_checked = SCHEDULE_CHECK in driver.checked
        packed = pack_module(module, target, repeat, schedule_is_checked=is_checked)
        program = replace(packed, metadata=_metadata(options, model, target).to_dict())
        memory = memory_plan(program)
        steps["pack"] = time.perf_counter() - begun
    seconds = time.perf_counter() - started
    return Compilation(
        options, target, model, module, program, memory, driver, specs, seconds, steps
    )


def compile_and_simulate(
    options: CompileOptions,
    *,
    simulation: SimulationOptions | None = None,
    ignore_capacity: bool = False,
) -> Report:
    """Compiles a model, simulates it if it fits (or with ``ignore_capacity``), and reports. The
    times of a model that was not simulated are None."""
    compilation = compile_model(replace(options, compile_to="program", pipeline=None))
    result = None
    if compilation.fits or ignore_capacity:
        result = simulate(compilation.packed, simulation)
    return report_of(compilation, result)


def _metadata(options: CompileOptions, model: LoadedModel, target: Target) -> Metadata:
    """What a program says about how it came about."""
    summary = model.summary
    tensor_parallel = options.tensor_parallel_on(target)
    choices = (
        ("target", ("target", "system"), f"--target {target.name}"),
        ("gpus", ("gpus", "sips", "mesh"), f"--{'sips' if target.grid else 'gpus'} {target.gpus}"),
        ("tp", ("tensor_parallel_size",), f"-tp {tensor_parallel}"),
        ("strategy", ("strategy",), f"--strategy {options.strategy}"),
        ("phase", ("phase",), f"--phase {summary.phase}"),
        ("batch", ("batch",), f"--batch {summary.batch}"),
    )
    defaults = [text for _, names, text in choices if not options.given.intersection(names)]
    if summary.phase == "prefill" and "prompt" not in options.given:
        defaults.append(f"--prompt {tokens(summary.query)}")
    if summary.phase == "decode" and "context" not in options.given:
        defaults.append(f"--context {tokens(summary.context)}")
    return Metadata(
        model=summary.name,
        strategy=options.strategy,
        phase=summary.phase,
        batch=summary.batch,
        query=summary.query,
        context=summary.context,
        dtype=summary.dtype,
        kv_cache_dtype=summary.kv_dtype,
        tensor_parallel=tensor_parallel,
        layers=summary.layers,
        gpu_memory_utilization=options.gpu_memory_utilization,
        defaults=tuple(defaults),
        changes=_changes(options),
    )


def _changes(options: CompileOptions) -> tuple[str, ...]:
    """The options that change a strategy's plan, as they are written."""
    return (
        *(f"--enable {name}" for name in options.enable),
        *(f"--disable {name}" for name in options.disable),
        *(("--uneven",) if options.uneven else ()),
        *(f"--unfuse {tax}" for tax in options.unfuse),
        *((f"--transport {options.transport}",) if options.transport is not None else ()),
    )


def load(options: CompileOptions) -> LoadedModel:
    """The model of the options at the nn level."""
    from starc.frontend import load_model

    return load_model(
        options.model,
        phase=options.phase,
        batch=options.batch,
        context=options.context,
        prompt=options.prompt,
        dtype=options.dtype,
        kv_dtype=options.kv_cache_dtype,
        overrides=options.settings,
    )


def check_options(options: CompileOptions) -> None:
    """Checks names of passes, the strategy, the level and the numbers before any work is done."""
    specs = passes_of(options)
    if options.pipeline is not None or options.enable:
        for spec in specs:
            instantiate(spec)
    inspection = options.inspection
    runs = [spec.name for spec in specs]
    for name in (*inspection.before, *inspection.after):
        if name != "all" and entry_of(name).name not in runs:
            raise UsageError(
                f"the IR around '{name}' cannot be printed: the pass is not run\n"
                f"  passes that run: {', '.join(runs)}"
            )
    if inspection.changed_only and not (inspection.after or inspection.tree_dir):
        raise UsageError("--print-ir-changed-only needs --print-ir-after or --print-ir-tree-dir")
    if not 0.0 < options.gpu_memory_utilization <= 1.0:
        raise UsageError(
            f"gpu_memory_utilization is {options.gpu_memory_utilization}: it must be above 0 and "
            "at most 1"
        )
    for name in ("gpus", "tensor_parallel", "batch", "context", "prompt"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}: it must be a positive whole number")
    transports = ("auto", *options.machine().transports)
    if options.transport is not None and options.transport not in transports:
        raise unknown_name("transport", options.transport, transports)
    for tax in options.unfuse:
        if tax not in UNFUSE:
            raise unknown_name("tax", tax, UNFUSE)
    if options.unfuse and FUSION not in runs:
        raise UsageError(f"there is nothing to unfuse: '{FUSION}' is not run")


def passes_of(options: CompileOptions) -> tuple[PassSpec, ...]:
    """The passes that the options ask for, in order. Raises ``UsageError``."""
    if options.pipeline is not None:
        return parse_pipeline(options.pipeline)
    plan: dict[str, OptionValue] = {}
    if options.tensor_parallel is not None:
        plan["tensor-parallel-size"] = options.tensor_parallel
    memory: dict[str, OptionValue] = {"memory-utilization": options.gpu_memory_utilization}
    chosen: dict[str, Mapping[str, OptionValue]] = {
        "verify-model": plan,
        "assign-tensor-parallel": plan,
        "interchange-collectives": memory,
        "plan-memory": memory,
    }
    if options.transport is not None:
        chosen["select-collective-algorithm"] = {"transport": options.transport}
    if options.unfuse:
        chosen[FUSION] = {"unfuse": options.unfuse}
    enabled = [spec for text in options.enable for spec in parse_pipeline(text, "--enable")]
    for spec in enabled:
        refuse_command_options(spec)
        chosen[spec.name] = {**chosen.get(spec.name, {}), **spec.options}
    specs = plan_passes(
        options.strategy,
        options=chosen,
        disable=options.disable,
        enable=[spec.name for spec in enabled],
        compile_to=options.compile_to,
    )
    return tuple(allowing_uneven(spec) for spec in specs) if options.uneven else specs


def pack_module(
    module: ModuleOp, target: Target, repeat: str, *, schedule_is_checked: bool = False
) -> Program:
    """The packed program of a module at the isa level, verified; its schedule unless that
    ``is_checked``."""
    from starc.passes.program.pack import pack

    try:
        return pack(module, target, schedule_is_checked=schedule_is_checked)
    except (InputError, UsageError):
        raise
    except Exception as error:
        files: dict[str, str | bytes] = {"before.mlir": ir_text(module, locations=True)}
        raise record_bug("pack", files, repeat, error) from error


def simulate(
    program: Program, options: SimulationOptions | None = None, *, repeat: str = "starc run"
) -> SimulationResult:
    """Simulates a program. A deadlock, or anything else that stops the event core, is a bug of the
    compiler: the evidence has the program."""
    from starc.backend.files import to_bytes
    from starc.simulator import run

    try:
        return run.simulate(program, options=options)
    except (InputError, UsageError):
        raise
    except Exception as error:
        files: dict[str, str | bytes] = {"program.starc": to_bytes(program)}
        command = "starc run {}/program.starc"
        raise record_bug("the simulation", files, command, error) from error


def report_of(
    compilation: Compilation,
    result: SimulationResult | None = None,
    *,
    checks: Sequence[str] = (),
) -> Report:
    """The report of a compilation and, unless the model does not fit, its simulation."""
    from starc.report.build import build_report

    return build_report(
        compilation.packed,
        result,
        compile_s=compilation.compile_s,
        remarks=compilation.driver.sink.remarks,
        warnings=compilation.warnings,
        checks=checks,
    )


def program_report(
    program: Program, result: SimulationResult | None, *, warnings: Sequence[str] = ()
) -> Report:
    """The report of a program file; without a ``result`` its times are None."""
    from starc.report.build import build_report

    return build_report(program, result, warnings=warnings)
