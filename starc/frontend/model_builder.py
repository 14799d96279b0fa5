"""A whole file to a module: layers, the ends of the model, and the stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from xdsl.dialects.builtin import ModuleOp, TensorType, i32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation

from starc.diagnostics import Location
from starc.dialects import nn
from starc.frontend.evaluation import Evaluator, as_real, as_size
from starc.frontend.layer_body import BuiltLayer, LayerBody, Tensor, ir_location
from starc.frontend.layer_builder import LayerBuilder
from starc.frontend.model_parameters import ModelParameters, report_missing
from starc.frontend.problems import Problems
from starc.frontend.syntax import Identifier, Layer, SourceFile, Stack
from starc.frontend.workload import Workload
from starc.quantities import LARGEST

EMBEDDING: Final = "embedding"
FINAL_NORM: Final = "rms_norm"
LM_HEAD: Final = "lm_head"
HEAD: Final = "head"
"""The layer kind that the final norm and the lm_head become."""

BUILT_IN: Final = (EMBEDDING, FINAL_NORM, LM_HEAD)
_MOST_LAYERS: Final = 100_000


@dataclass
class BuiltModel:
    """The module and, in order, its layer kinds with their counts."""

    module: ModuleOp
    stack: tuple[tuple[str, int], ...]
    layers: tuple[BuiltLayer, ...]


@dataclass
class _Order:
    """What the stack says: the user's layers in order, and whether the model has its ends."""

    layers: list[tuple[Identifier, int]] = field(default_factory=list[tuple[Identifier, int]])
    embedding: Identifier | None = None
    norm: Identifier | None = None
    lm_head: Identifier | None = None


def build_model(
    source: SourceFile, model: ModelParameters, workload: Workload, problems: Problems
) -> BuiltModel | None:
    """Builds all layers, also those that no stack has (their errors are reported all the same).
    None if something is wrong, which is reported."""
    layers = _distinct_layers(source, problems)
    built: dict[str, BuiltLayer | None] = {}
    for name, layer in layers.items():
        body = LayerBody(name, model, workload, problems)
        built[name] = LayerBuilder(layer, body).build()
    order = _order(source, layers, model, problems)
    if order is None:
        return None
    used = {name.text for name, _ in order.layers}
    for name, layer in layers.items():
        if name not in used:
            problems.report(
                f"the layer '{name}' is not in the stack",
                layer.name.location,
                severity="warning",
            )
    kinds: list[BuiltLayer | None] = [built[name] for name in layers if name in used]
    stack = [(name.text, count) for name, count in order.layers]
    if source.stacks:
        _require_hidden_state(order, built, problems)
    if order.embedding is not None:
        kinds.insert(0, _build_embedding(order.embedding, model, workload, problems))
        stack.insert(0, (EMBEDDING, 1))
    if order.norm is not None or order.lm_head is not None:
        kinds.append(_build_head(order, model, workload, problems))
        stack.append((HEAD, 1))
    complete = [kind for kind in kinds if kind is not None]
    if len(complete) < len(kinds):
        return None
    _check_total_bytes(stack, complete, source, problems)
    return BuiltModel(
        _module(model, workload, complete, stack, _stack_location(source)),
        tuple(stack),
        tuple(complete),
    )


def _distinct_layers(source: SourceFile, problems: Problems) -> dict[str, Layer]:
    layers: dict[str, Layer] = {}
    for layer in source.layers:
        name = layer.name
        if name.text in (*BUILT_IN, HEAD):
            problems.report(
                f"the name '{name.text}' is reserved for a layer that every model may have",
                name.location,
            )
        elif name.text in layers:
            first = layers[name.text].name.location.line
            problems.report(
                f"the layer '{name.text}' is given twice; first in line {first}", name.location
            )
        else:
            layers[name.text] = layer
    return layers


# -- the stack ---------------------------------------------------------------------------------


def _order(
    source: SourceFile, layers: dict[str, Layer], model: ModelParameters, problems: Problems
) -> _Order | None:
    """The stack, or the one layer of a file without a stack. None, reported, if it is wrong."""
    if not layers:
        if not source.layers:
            problems.report(
                "the file has no layer",
                Location(source.file, 1, 1),
                hint="a layer is: layer decoder(x) { ... return x }",
            )
        return None
    for again in source.stacks[1:]:
        problems.report(
            f"a file has one stack; the first is in line {source.stacks[0].location.line}",
            again.location,
        )
    if source.stacks:
        return _read_stack(source.stacks[0], layers, model, problems)
    if len(layers) > 1:
        _, second, *_ = layers.values()
        problems.report(
            "a file with several layers needs a stack",
            second.name.location,
            hint=f"for example: stack {{ {', '.join(f'{name} * 2' for name in layers)} }}",
        )
        return None
    (layer,) = layers.values()
    return _Order([(layer.name, 1)])


def _read_stack(
    stack: Stack, layers: dict[str, Layer], model: ModelParameters, problems: Problems
) -> _Order | None:
    order = _Order()
    names: list[tuple[Identifier, int]] = []
    wrong = False
    for entry in stack.entries:
        count: int | None = 1
        if entry.count is not None:
            value = Evaluator(model.values, problems).evaluate(entry.count)
            count = as_size(value, "a count", problems, entry.count.location)
        group = [_known_layer(name, layers, problems) for name in entry.layers]
        if count is None or not all(group):
            wrong = True
        elif len(names) + count * len(group) > _MOST_LAYERS and len(group) > 1:
            wrong = True
            problems.report(
                f"the stack has more than {_MOST_LAYERS} entries", entry.layers[0].location
            )
        elif len(group) == 1:
            names.append((entry.layers[0], count))
        else:
            names.extend((name, 1) for _ in range(count) for name in entry.layers)
    if not stack.entries:
        problems.report("the stack is empty", stack.location)
        return None
    for index, (name, count) in enumerate(names):
        if name.text in BUILT_IN:
            wrong |= not _place_built_in(order, names, index, problems)
        elif order.layers and order.layers[-1][0].text == name.text:
            order.layers[-1] = (order.layers[-1][0], order.layers[-1][1] + count)
        else:
            order.layers.append((name, count))
    if not wrong and not order.layers:
        problems.report("the stack has no layer of the file", stack.location)
        wrong = True
    return None if wrong else order


def _known_layer(name: Identifier, layers: dict[str, Layer], problems: Problems) -> bool:
    if name.text in layers or name.text in BUILT_IN:
        return True
    problems.unknown_name("layer", name.text, [*layers, *BUILT_IN], name.location)
    return False


def _place_built_in(
    order: _Order, names: Sequence[tuple[Identifier, int]], index: int, problems: Problems
) -> bool:
    """Takes one of the model's ends at its place: embedding first, rms_norm and lm_head last."""
    name, count = names[index]
    if count != 1:
        problems.report(f"'{name.text}' stands once in a stack", name.location)
        return False
    following = [later.text for later, _ in names[index + 1 :]]
    match name.text:
        case "embedding":
            order.embedding = name
            legal, place = index == 0, "at the beginning of the stack"
        case "rms_norm":
            order.norm = name
            legal, place = following in ([], [LM_HEAD]), "after the last layer of the stack"
        case _:
            order.lm_head = name
            legal, place = following == [], "at the end of the stack"
    if not legal:
        problems.report(f"'{name.text}' stands {place}", name.location)
    return legal


def _require_hidden_state(
    order: _Order, built: dict[str, BuiltLayer | None], problems: Problems
) -> None:
    for name, _ in order.layers:
        layer = built[name.text]
        if layer is not None and not layer.keeps_hidden_state:
            problems.report(
                f"in a stack the input and the output of '{name.text}' have to be the hidden "
                "state, of the same shape",
                name.location,
            )


# -- the ends of a model -----------------------------------------------------------------------


def _build_embedding(
    name: Identifier, model: ModelParameters, workload: Workload, problems: Problems
) -> BuiltLayer | None:
    """Token ids to the hidden state."""
    vocab = _model_size("vocab", name, model, problems)
    hidden = _model_size("hidden", name, model, problems)
    if vocab is None or hidden is None:
        return None
    body = LayerBody(EMBEDDING, model, workload, problems)
    ids_type = TensorType(i32, (workload.batch, workload.query))
    body.block = Block(arg_types=[ids_type])
    body.block.args[0].name_hint = "ids"
    shape = (workload.batch, workload.query, hidden)
    type = body.tensor_type(shape, model.dtype, name.location)
    table = body.parameter(Identifier("table", name.location), (vocab, hidden), name.location)
    if table is None or type is None:
        return None
    op = nn.EmbeddingOp(body.block.args[0], table.value, type)
    return _built(body, body.emit(op, name.location, "x"), name)


def _build_head(
    order: _Order, model: ModelParameters, workload: Workload, problems: Problems
) -> BuiltLayer | None:
    """The hidden state to logits of the last new token of every sequence."""
    name = order.norm or order.lm_head
    assert name is not None
    hidden = _model_size("hidden", name, model, problems)
    if hidden is None:
        return None
    body = LayerBody(HEAD, model, workload, problems)
    shape = (workload.batch, workload.query, hidden)
    type = body.tensor_type(shape, model.dtype, name.location)
    if type is None:
        return None
    body.block = Block(arg_types=[type])
    body.block.args[0].name_hint = "x"
    x: Tensor | None = Tensor(body.block.args[0], shape)
    if workload.query > 1:
        last = body.tensor_type((workload.batch, 1, hidden), model.dtype, name.location)
        assert last is not None
        x = body.emit(nn.LastTokenOp(x.value, last), name.location, "last")
    if order.norm is not None:
        location = order.norm.location
        if "eps" not in model.values:
            report_missing("eps", FINAL_NORM, model, problems, location)
            return None
        eps = as_real(model.values["eps"], "eps", problems, location)
        x = None if eps is None else body.rms_norm(x, eps, Identifier("norm", location), location)
    if order.lm_head is not None:
        vocab = _model_size("vocab", order.lm_head, model, problems)
        if vocab is None or x is None:
            return None
        x = body.linear(x, vocab, order.lm_head, order.lm_head.location)
    return None if x is None else _built(body, x, name)


def _built(body: LayerBody, result: Tensor, name: Identifier) -> BuiltLayer:
    function = body.finish(result, name.location, name.location)
    return BuiltLayer(body.layer, function, body.parameters, body.states, False)


def _model_size(
    size: str, name: Identifier, model: ModelParameters, problems: Problems
) -> int | None:
    if size in model.values:
        return as_size(model.values[size], size, problems, name.location)
    report_missing(size, name.text, model, problems, name.location)
    return None


# -- the module --------------------------------------------------------------------------------


def _check_total_bytes(
    stack: Sequence[tuple[str, int]],
    layers: Sequence[BuiltLayer],
    source: SourceFile,
    problems: Problems,
) -> None:
    """The weights and caches of the whole model have to be countable in 63 bits."""
    bits = 0
    by_name = {layer.name: layer for layer in layers}
    for name, count in stack:
        layer = by_name[name]
        for op in (*layer.parameters, *layer.states):
            size = op.type.element_type.bitwidth
            for extent in op.type.get_shape():
                size *= extent
            bits += count * size
    if bits // 8 > LARGEST:
        problems.report(
            "the weights and caches of the model have more bytes than fit in 63 bits",
            _stack_location(source),
        )


def _stack_location(source: SourceFile) -> Location:
    return source.stacks[0].location if source.stacks else source.layers[0].name.location


def _module(
    model: ModelParameters,
    workload: Workload,
    layers: Sequence[BuiltLayer],
    stack: Sequence[tuple[str, int]],
    stack_location: Location,
) -> ModuleOp:
    order = nn.StackOp(stack)
    order.location = ir_location(stack_location)
    parameters: list[Operation] = [op for layer in layers for op in layer.parameters]
    states: list[Operation] = [op for layer in layers for op in layer.states]
    functions: list[FuncOp] = [layer.function for layer in layers]
    module = ModuleOp([*parameters, *states, order, *functions])
    module.location = ir_location(Location(stack_location.file, 1, 1))
    facts = nn.ModelFacts(
        model.name, workload.phase, workload.batch, workload.query, workload.context
    )
    facts.write_to(module)
    return module
