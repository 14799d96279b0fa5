"""What ``starc check`` and ``--check`` do: a model through every level on data.

The module is run after every pass and compared with the dense float64 reference, the packed program
as well, in exact mode and with every stored value rounded to its type. A model that is too big to
run is checked through its shrunk twin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from starc.api import CompileOptions, load, pack_module, passes_of
from starc.checking.harness import Check, check_module, check_program, level_of, run_module
from starc.checking.twin import shrink
from starc.diagnostics import Diagnostic, InputError
from starc.dialects.target import set_target
from starc.frontend import LoadedModel
from starc.interpreter.program_runs import run_stack
from starc.interpreter.seeded_data import element_count, seeded_data
from starc.passes.manager import Driver, instantiate
from starc.passes.selection import PassSpec
from starc.targets.loader import load_target
from starc.targets.target import Target

MAX_ELEMENTS: Final = 8_000_000
"""A model with more numbers than this, weights, caches and activations, is shrunk."""

SEQUENCE: Final = "shard-attention-sequence"

MAX_INTERLEAVED_DEVICES: Final = 16
"""On more devices the interleaved execution of instruction streams, whose race detection costs
about the square of the devices, is done once, after the last pass; the passes before it are checked
by the packed rows of what they leave."""


@dataclass(frozen=True)
class CheckReport:
    """What was found, a row per pass and mode. ``changes`` says how the model was shrunk; it is
    empty where the model itself was run. ``notes`` are choices that were made for the user."""

    model: str
    target: str
    mesh: Mapping[str, int]
    phase: str
    rows: tuple[Check, ...]
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows)

    def lines(self) -> list[str]:
        """The table as a reader sees it."""
        mesh = " x ".join(f"{axis} {size}" for axis, size in self.mesh.items())
        found = [f"{self.model}, {self.phase}, on {self.target} ({mesh})"]
        found += self.notes
        if self.changes:
            found.append("shrunk twin: " + ", ".join(self.changes))
        found.append("")
        width = max(len(row.subject) for row in self.rows)
        found.append(f"{'after':<{width}}  {'level':<10}  {'mode':<5}  {'error':>8}  {'limit':>8}")
        for row in self.rows:
            error = "-" if row.error is None else f"{row.error:.1e}"
            verdict = "ok" if row.ok else "WRONG"
            message = f"  {row.message}" if row.message else ""
            found.append(
                f"{row.subject:<{width}}  {row.level:<10}  {row.mode:<5}  {error:>8}  "
                f"{row.tolerance:>8.1e}  {verdict}{message}"
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite error becomes None."""
        return {
            "model": self.model,
            "target": self.target,
            "mesh": dict(self.mesh),
            "phase": self.phase,
            "shrunk": list(self.changes),
            "notes": list(self.notes),
            "ok": self.ok,
            "checks": [
                {
                    "after": row.subject,
                    "level": row.level,
                    "mode": row.mode,
                    "error": row.error if row.error is None or row.error < 1e300 else None,
                    "tolerance": row.tolerance,
                    "ok": row.ok,
                    "message": row.message,
                }
                for row in self.rows
            ],
        }


def check_model(
    options: CompileOptions,
    *,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> CheckReport:
    """Checks a model as the options compile it; ``seed`` gives other data.

    Raises ``InputError`` for a model that cannot be compiled or is too big even when shrunk, and
    what else ``compile_model`` raises.
    """
    model = load(options)
    options, notes = _legal_machine(options, model)
    target = options.machine()
    changes: tuple[str, ...] = ()
    specs = passes_of(options)
    if element_count(model.module) > MAX_ELEMENTS:
        specs, choices = _choices_of(options, model, target, specs)
        notes += choices
        model, changes = _twin(options, model, target)
    return CheckReport(
        model.summary.name,
        target.name,
        {row[0]: row[1] for row in target.mesh},
        model.summary.phase,
        tuple(_rows(options, specs, model, target, seed, progress)),
        changes,
        notes,
    )


def _legal_machine(
    options: CompileOptions, model: LoadedModel
) -> tuple[CompileOptions, tuple[str, ...]]:
    """The options, on fewer GPUs where the model is too narrow for all of them and the caller has
    not said how many there are, and what to tell about that.

    Raises ``InputError`` for a plan that is not legal.
    """
    try:
        _refuse_illegal(options, model)
    except InputError as error:
        if _machine_is_given(options):
            raise
        machine = options.machine()
        gpus = machine.gpus
        while gpus > 1:
            gpus //= 2
            fewer = replace(options, target=load_target(machine.name, gpus), gpus=None)
            try:
                _refuse_illegal(fewer, model)
            except InputError:
                continue
            return fewer, (f"on --gpus {gpus}: {error.diagnostics[0].message}",)
        raise
    return options, ()


def _machine_is_given(options: CompileOptions) -> bool:
    """Whether the caller has said how many devices there are."""
    values = (options.gpus, options.mesh, options.tensor_parallel)
    named = {"gpus", "mesh", "tensor_parallel_size"} & options.given
    return bool(named) or values != (None, None, None)


def _refuse_illegal(options: CompileOptions, model: LoadedModel) -> None:
    """Runs the passes of the nn level on the model itself, whose sizes they judge."""
    module = model.module.clone()
    driver = Driver(options.machine())
    for spec in passes_of(replace(options, compile_to="nn")):
        try:
            driver.run_pass(module, spec, instantiate(spec))
        except InputError as error:
            raise InputError(error.diagnostics, model.sources) from error


def _choices_of(
    options: CompileOptions, model: LoadedModel, target: Target, specs: tuple[PassSpec, ...]
) -> tuple[tuple[PassSpec, ...], tuple[str, ...]]:
    """The passes for a twin, and a note: caches that the costs of the model split are split in the
    twin, too, whose own small caches would not be worth it."""
    names = [spec.name for spec in specs]
    through = names.index(SEQUENCE) + 1 if SEQUENCE in names else 0
    if options.pipeline is not None or not through:
        return specs, ()
    driver = Driver(target)
    module = model.module.clone()
    set_target(module, target)
    try:
        driver.run(module, specs[:through])
    except InputError as error:
        raise InputError(error.diagnostics, model.sources) from error
    moved = {
        remark.numbers["moved"]
        for name, remark in driver.sink.remarks
        if name == SEQUENCE and not remark.declined
    }
    if not moved:
        return specs, ()
    mode = "queries" if "queries" in moved else "keys"
    forced = tuple(
        replace(spec, options={**spec.options, "mode": mode}) if spec.name == SEQUENCE else spec
        for spec in specs
    )
    return forced, (f"as in the model, KV caches are split along the sequence; {mode} travel",)


def _twin(
    options: CompileOptions, model: LoadedModel, target: Target
) -> tuple[LoadedModel, tuple[str, ...]]:
    tensor_parallel = options.tensor_parallel_on(target)
    twin = shrink(model.summary, tensor_parallel, target.devices // tensor_parallel)
    settings = {**options.settings, **{name: str(size) for name, size in twin.settings.items()}}
    small = load(
        replace(
            options,
            settings=settings,
            phase=model.summary.phase,
            batch=twin.batch,
            context=twin.context,
            prompt=twin.prompt,
        )
    )
    count = element_count(small.module)
    if count > MAX_ELEMENTS:
        raise InputError(
            Diagnostic(
                f"{model.summary.name} cannot be checked on data: its shrunk twin still has "
                f"{count:,} numbers, more than {MAX_ELEMENTS:,}",
                hint="sizes that are written as model parameters (hidden, ffn, vocab, head_dim) "
                "can be shrunk; or check on fewer devices",
            )
        )
    return small, twin.changes(model.summary)


def _rows(
    options: CompileOptions,
    specs: tuple[PassSpec, ...],
    model: LoadedModel,
    target: Target,
    seed: int,
    progress: Callable[[str], None],
) -> list[Check]:
    module = model.module
    data = seeded_data(module, seed)
    reference = run_module(module, data)
    stack = run_stack(module, data, "exact")
    current = module.clone()
    set_target(current, target)
    driver = Driver(target, progress=progress)
    rows: list[Check] = []
    level = "nn"
    for spec in specs:
        driver.run_pass(current, spec, instantiate(spec))
        if (
            level_of(current) == "isa"
            and target.devices > MAX_INTERLEAVED_DEVICES
            and spec is not specs[-1]
        ):
            program = pack_module(current, target, "starc check")
            rows.append(replace(check_program(program, data, stack), subject=spec.name))
            continue
        rows.append(check_module(spec.name, current, data, reference))
        if level_of(current) not in (level, "isa"):
            # Rounding shows once a level: what it does not change between passes is not repeated.
            level = level_of(current)
            rows.append(check_module(spec.name, current, data, reference, "typed"))
    if options.compile_to == "program" and options.pipeline is None:
        program = pack_module(current, target, "starc check")
        progress("program")
        rows.append(check_program(program, data, stack))
        rows.append(check_program(program, data, stack, "typed"))
    return rows
