"""Runs a module before and after a pass on the same data and compares what comes out.

The level of a module decides which interpreter runs it: whole tensors (``nn`` without encodings),
SPMD lockstep (from the first encoding to planned memory), or the concurrent one (instruction
streams). Results are whole tensors at every level, so any two modules can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from starc.backend.program import Program
from starc.core.element_types import FORMATS
from starc.dialects.sharding import spec_of
from starc.interpreter.element_types import Array, Mode
from starc.interpreter.global_semantics import LayerRun, run_layer
from starc.interpreter.isa_runs import run_streams
from starc.interpreter.local_semantics import SemanticsError
from starc.interpreter.program_runs import run_program
from starc.interpreter.seeded_data import (
    ModelData,
    argument_types,
    layers_of,
    seeded_data,
    storage_types,
)
from starc.interpreter.spmd import ExecutionError, SpmdInterpreter
from starc.passes import levels
from starc.passes.base import RemarkSink, StarcPass
from starc.passes.verification import verify
from starc.targets.target import Target

EXACT_TOLERANCE: Final = 1e-9
"""The largest error that passes in exact mode, relative to the largest magnitude of the tensor:
float64 sums in another order differ by far less, a wrong program by far more."""

TYPED_TOLERANCE: Final[Mapping[str, float]] = {
    row.name: row.tolerance for row in FORMATS if row.tolerance is not None
}
"""The same in typed mode, by the narrowest type that values are stored in."""


def tolerance_of(element_types: Iterable[str], mode: Mode) -> float:
    """What passes for values of these element types. Integers have no say."""
    if mode == "exact":
        return EXACT_TOLERANCE
    return max(
        (TYPED_TOLERANCE[name] for name in element_types if name in TYPED_TOLERANCE),
        default=TYPED_TOLERANCE["f32"],
    )


def element_types(module: ModuleOp) -> set[str]:
    """The names of the element types of parameters, states and the inputs of layers."""
    types = [type for _, type in storage_types(module).values()]
    types += [type for func in layers_of(module) for type in argument_types(module, func)]
    return {str(type.element_type) for type in types}


@dataclass(frozen=True)
class ModelRun:
    """What every layer of a module gave on its own inputs, by name."""

    layers: Mapping[str, LayerRun]


@dataclass(frozen=True)
class Difference:
    """How far two runs are apart: the largest relative error, and the tensor that has it."""

    error: float
    where: str


@dataclass(frozen=True)
class Check:
    """One row of a report: ``subject`` (a pass or a level) was run at ``level`` in ``mode``.

    ``error`` is the largest error relative to the tensor's largest magnitude, None where the module
    could not be run at all; ``message`` then says why.
    """

    subject: str
    level: str
    mode: Mode
    error: float | None
    tolerance: float
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.error is not None and self.error <= self.tolerance


def level_of(module: ModuleOp) -> levels.Level:
    """The level that a module is run at. One with a mesh whose values have no encodings yet is run
    on whole tensors."""
    level = levels.level_of(module)
    if level == "sharding" and all(spec_of(type) is None for type in levels.types_of(module)):
        return "nn"
    return level


def run_module(
    module: ModuleOp, data: ModelData, mode: Mode = "exact", interleaving: int = 0
) -> ModelRun:
    """Runs every layer of a module on its inputs, each from the initial states. ``interleaving`` is
    the seed by which instruction streams are interleaved.

    Raises ``ExecutionError`` where the module cannot be run or breaks what its types declare.
    """
    level = level_of(module)
    if level == "isa":
        return ModelRun(run_streams(module, data, mode, interleaving))
    if level == "nn":
        return ModelRun(
            {
                func.sym_name.data: _run_whole(module, func.sym_name.data, data, mode)
                for func in layers_of(module)
            }
        )
    interpreter = SpmdInterpreter(module, mode)
    runs: dict[str, LayerRun] = {}
    for func in layers_of(module):
        name = func.sym_name.data
        runs[name] = interpreter.run_layer(name, data.inputs[name], data.parameters, data.states)
    return ModelRun(runs)


def _run_whole(module: ModuleOp, layer: str, data: ModelData, mode: Mode) -> LayerRun:
    try:
        return run_layer(module, layer, data.inputs[layer], data.parameters, data.states, mode)
    except (ValueError, KeyError) as error:
        raise ExecutionError(f"@{layer}: {error}") from error


def compare_runs(reference: ModelRun, run: ModelRun) -> Difference:
    """The largest difference of outputs and states. Missing or extra results are infinitely far
    apart, as is whatever is not a number."""
    worst = Difference(0.0, "")
    for layer, expected in reference.layers.items():
        found = run.layers.get(layer)
        if found is None:
            return Difference(np.inf, f"@{layer} was not run")
        if len(found.outputs) != len(expected.outputs):
            return Difference(np.inf, f"@{layer} has {len(found.outputs)} results")
        pairs = {
            f"result {index} of @{layer}": pair
            for index, pair in enumerate(zip(expected.outputs, found.outputs, strict=True))
        }
        for name, state in expected.states.items():
            if name not in found.states:
                return Difference(np.inf, f"state @{name} after @{layer} is missing")
            pairs[f"state @{name} after @{layer}"] = (state, found.states[name])
        for where, (left, right) in pairs.items():
            error = relative_error(left, right)
            if error > worst.error:
                worst = Difference(error, where)
    return worst


def relative_error(reference: Array, found: Array) -> float:
    """The largest difference over the largest magnitude of the reference; infinite for another
    shape and for values that are not numbers."""
    if reference.shape != found.shape:
        return np.inf
    if not reference.size:
        return 0.0
    left, right = reference.astype(np.float64), found.astype(np.float64)
    largest = float(np.max(np.abs(left)))
    distance = float(np.max(np.abs(left - right)))
    if not np.isfinite(distance):
        return np.inf
    return distance / largest if largest else distance


def check_module(
    subject: str,
    module: ModuleOp,
    data: ModelData,
    reference: ModelRun,
    mode: Mode = "exact",
    tolerance: float | None = None,
    interleaving: int = 0,
) -> Check:
    """Runs a module and compares it with a run that is known to be right."""
    limit = tolerance_of(element_types(module), mode) if tolerance is None else tolerance
    level = level_of(module)
    try:
        difference = compare_runs(reference, run_module(module, data, mode, interleaving))
    except (ExecutionError, SemanticsError) as error:
        return Check(subject, level, mode, None, limit, str(error))
    message = difference.where if difference.error > limit else ""
    return Check(subject, level, mode, difference.error, limit, message)


def check_pass(
    module: ModuleOp,
    instance: StarcPass,
    target: Target,
    data: ModelData | None = None,
    mode: Mode = "exact",
) -> tuple[ModuleOp, Check]:
    """Runs a pass on a copy of a module and compares the module before and after it.

    Returns the module after the pass and what was found. A module that does not verify after the
    pass fails the check, too. Raises what the pass raises.
    """
    given = seeded_data(module) if data is None else data
    before = run_module(module, given, mode)
    after = module.clone()
    instance.run(after, target, RemarkSink(pass_name=instance.name))
    try:
        verify(after, locations=False)
    except VerifyException as error:
        text = f"does not verify: {error}".split("\n", 1)[0]
        limit = tolerance_of(element_types(module), mode)
        return after, Check(instance.name, level_of(after), mode, None, limit, text)
    return after, check_module(instance.name, after, given, before, mode)


def check_program(
    program: Program,
    data: ModelData,
    reference: LayerRun,
    mode: Mode = "exact",
    limit: int | None = None,
) -> Check:
    """Executes the packed rows of a program and compares with ``run_stack`` of the model."""
    names = {info.dtype.format.name for info in program.buffers}
    tolerance = tolerance_of(names, mode)
    try:
        if limit is None:
            found = run_program(program, data, mode)
        else:
            found = run_program(program, data, mode, limit)
    except ExecutionError as error:
        return Check("pack", "program", mode, None, tolerance, str(error))
    difference = compare_runs(ModelRun({"stack": reference}), ModelRun({"stack": found}))
    message = difference.where if difference.error > tolerance else ""
    return Check("pack", "program", mode, difference.error, tolerance, message)
