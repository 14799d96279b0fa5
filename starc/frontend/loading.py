"""A model file to a verified module of the ``nn`` level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from starc.diagnostics import Diagnostic

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from starc.frontend.model_builder import BuiltModel
    from starc.frontend.model_parameters import ModelParameters
    from starc.frontend.source import Source
    from starc.frontend.workload import Workload


@dataclass(frozen=True)
class ModelSummary:
    """What was read, with everything that was chosen for the user.

    ``layers`` counts the user's layers in the stack, ``stack`` lists all kinds in order with their
    counts, ``parameters`` has the model's entries by name (element types by name),
    ``parameter_count`` is that of the whole model, ``parameters_per_layer`` that of one layer of
    each kind.
    """

    name: str
    phase: str
    batch: int
    query: int
    context: int
    dtype: str
    kv_dtype: str
    layers: int
    stack: tuple[tuple[str, int], ...]
    parameters: Mapping[str, int | float | str]
    parameter_count: int
    parameters_per_layer: Mapping[str, int]


@dataclass(frozen=True)
class LoadedModel:
    """A model at the ``nn`` level, the text of its file for messages, and warnings."""

    module: ModuleOp
    sources: dict[str, str]
    summary: ModelSummary
    warnings: tuple[Diagnostic, ...] = field(default=())


def load_model(
    path_or_text: str | Path,
    *,
    file: str | None = None,
    phase: str | None = None,
    batch: int | None = None,
    context: int | None = None,
    prompt: int | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    overrides: Mapping[str, str] | None = None,
) -> LoadedModel:
    """Reads a ``.sa`` model and builds its module.

    ``path_or_text`` is a path, ``-`` for standard input, or the text itself: a string with a new
    line in it, or any string if ``file`` gives it a name. ``phase`` (default: the file's first),
    ``batch``, ``context``, ``prompt`` (tokens), ``dtype`` and ``kv_dtype`` take the place of what
    the file says; ``overrides`` maps names of model parameters to expressions.

    Raises ``InputError`` with everything that is wrong with the file or those values, and
    ``UsageError`` for a phase that does not exist.
    """
    # These import xDSL and lark, which a command that reads no model does without.
    from starc.frontend.model_builder import build_model
    from starc.frontend.model_parameters import evaluate_model
    from starc.frontend.parser import parse_source
    from starc.frontend.problems import Problems
    from starc.frontend.workload import Request, Workload, evaluate_workload

    source = _source(path_or_text, file)
    syntax = parse_source(source)
    problems = Problems(source.file, source.text)
    name = Path(source.file).stem.strip("<>") or "model"
    model = evaluate_model(syntax, name, overrides or {}, dtype, kv_dtype, problems)
    request = Request(phase, batch, context, prompt)
    workload = evaluate_workload(syntax, model, request, problems)
    if workload is None:
        # Layers are checked all the same, on a step that fits any of them.
        build_model(syntax, model, Workload("decode", 1, 1, 1), problems)
        problems.raise_if_any()
        raise AssertionError("a missing workload was not reported")
    built = build_model(syntax, model, workload, problems)
    problems.raise_if_any()
    assert built is not None
    built.module.verify()
    summary = _summary(model, workload, built)
    return LoadedModel(built.module, problems.sources, summary, problems.warnings)


def _source(path_or_text: str | Path, file: str | None) -> Source:
    from starc.frontend.source import Source, read_source

    if file is not None:
        return Source(file, str(path_or_text))
    if isinstance(path_or_text, str) and "\n" in path_or_text:
        return Source("<text>", path_or_text)
    return read_source(path_or_text)


def _summary(model: ModelParameters, workload: Workload, built: BuiltModel) -> ModelSummary:
    from starc.frontend.model_builder import BUILT_IN, HEAD
    from starc.frontend.model_parameters import constants

    counts = {
        layer.name: sum(prod(op.type.get_shape()) for op in layer.parameters)
        for layer in built.layers
    }
    return ModelSummary(
        name=model.name,
        phase=workload.phase,
        batch=workload.batch,
        query=workload.query,
        context=workload.context,
        dtype=model.dtype.name,
        kv_dtype=model.kv_dtype.name,
        layers=sum(count for kind, count in built.stack if kind not in (*BUILT_IN, HEAD)),
        stack=built.stack,
        parameters=constants(model.values),
        parameter_count=sum(counts[kind] * count for kind, count in built.stack),
        parameters_per_layer=counts,
    )
