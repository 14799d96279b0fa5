"""One layer: its statements, checked and turned into a function of ``nn`` operations."""

from __future__ import annotations

from typing import cast

from xdsl.ir import Operation

from starc.diagnostics import Location
from starc.dialects import nn
from starc.dialects.locations import location_of
from starc.frontend.evaluation import (
    RESERVED_WORDS,
    UNKNOWN,
    Evaluator,
    Unknown,
    Value,
    as_real,
    as_size,
    describe,
    element_type,
)
from starc.frontend.layer_body import BuiltLayer, LayerBody, Tensor
from starc.frontend.model_parameters import report_missing
from starc.frontend.signatures import BoundCall, bind
from starc.frontend.syntax import Assignment, Call, Identifier, Layer, Return, String


class LayerBuilder(Evaluator):
    """Evaluates a layer's statements in order and emits their operations as it goes."""

    def __init__(self, layer: Layer, body: LayerBody) -> None:
        # The layer's names hide the model's.
        scope: dict[str, Value] = dict(body.model.values)
        super().__init__(scope, body.problems)
        self.scope = scope
        self.layer = layer
        self.body = body
        self.target: Identifier | None = None

    def build(self) -> BuiltLayer | None:
        """The layer; None if something in it is wrong, which is reported."""
        if not self._declare_inputs():
            return None
        name = self.layer.name
        end = next((step for step in self.layer.statements if isinstance(step, Return)), None)
        for statement in self.layer.statements:
            if statement is end:
                break
            self._assign(cast(Assignment, statement))
        if end is None:
            self.problems.report(
                f"the layer '{name.text}' returns nothing",
                name.location,
                hint="end it with: return x",
            )
            return None
        self.target = None
        result = self.evaluate(end.value)
        if end is not self.layer.statements[-1]:
            self._report_after(end)
            return None
        if not isinstance(result, Tensor):
            if not isinstance(result, Unknown):
                self.problems.report(
                    f"a layer returns a tensor, not {describe(result)}", end.location
                )
            return None
        if result.value in self.body.block.args:
            self.problems.report(
                f"the layer '{name.text}' returns its input as it is",
                end.value.location,
                hint="return a value that the layer computes",
            )
            return None
        self._warn_of_unused(result)
        inputs = [cast(nn.FloatTensor, arg.type).get_shape() for arg in self.body.block.args]
        return BuiltLayer(
            name.text,
            self.body.finish(result, name.location, end.location),
            self.body.parameters,
            self.body.states,
            inputs == [result.shape],
        )

    def _warn_of_unused(self, result: Tensor) -> None:
        """A value that nothing uses is dropped by the compiler, while its weights still count."""
        for op in self.body.block.ops:
            if op.results and not op.results[0].uses and op.results[0] is not result.value:
                name = op.results[0].name_hint
                what = f"'{name}'" if name is not None else f"this {op.name.removeprefix('nn.')}"
                self.problems.report(
                    f"nothing uses {what}",
                    location_of(op),
                    hint="it is not computed, but weights and caches in it count",
                    severity="warning",
                )

    def _report_after(self, end: Return) -> None:
        following = self.layer.statements[self.layer.statements.index(end) + 1]
        location = (
            following.location if isinstance(following, Return) else following.target.location
        )
        self.problems.report(
            f"this stands after the 'return' in line {end.location.line}", location
        )

    # -- statements --------------------------------------------------------------------------

    def _declare_inputs(self) -> bool:
        """Gives the layer's inputs their shapes: one is the hidden state; q, k and v are what
        attention takes."""
        inputs = self.layer.inputs
        texts = [input.text for input in inputs]
        for index, input in enumerate(inputs):
            if input.text in texts[:index]:
                self.problems.report(f"the input '{input.text}' is given twice", input.location)
                return False
            if not self._may_name_value(input):
                return False
        for input, width in zip(inputs, self._input_widths(texts), strict=False):
            if width is None:
                return False
            shape = (self.body.workload.batch, self.body.workload.query, width)
            type = self.body.tensor_type(shape, self.body.model.dtype, input.location)
            if type is None:
                return False
            argument = self.body.block.insert_arg(type, len(self.body.block.args))
            argument.name_hint = input.text
            self.scope[input.text] = Tensor(argument, shape)
        return len(self.body.block.args) > 0

    def _input_widths(self, names: list[str]) -> list[int | None]:
        """Features of every input; nothing, reported, if a layer takes no such inputs."""
        if len(names) == 1:
            return [self._size("hidden", None, self.layer.inputs[0].location)]
        if names == ["q", "k", "v"]:
            location = self.layer.inputs[0].location
            head_dim = self._size("head_dim", None, location)
            heads = self._size("heads", None, location)
            kv_heads = self._size("kv_heads", None, location)
            if head_dim is None or heads is None or kv_heads is None:
                return []
            return [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
        self.problems.report(
            "a layer takes one input, the hidden state, or q, k and v", self.layer.name.location
        )
        return []

    def _may_name_value(self, name: Identifier) -> bool:
        if name.text in RESERVED_WORDS or element_type(name.text) is not None:
            self.problems.report(f"'{name.text}' is a reserved word", name.location)
            return False
        return True

    def _assign(self, statement: Assignment) -> None:
        self.target = statement.target
        value = self.evaluate(statement.value)
        if not self._may_name_value(statement.target):
            return
        if isinstance(value, Tensor) and isinstance(value.value.owner, Operation):
            value.value.name_hint = statement.target.text
        self.scope[statement.target.text] = value

    # -- expressions -------------------------------------------------------------------------

    def combine_tensors(
        self, operator: str, left: Value, right: Value, location: Location
    ) -> Value:
        if not isinstance(left, Tensor) or not isinstance(right, Tensor):
            self.problems.report(
                f"'{operator}' needs two tensors or two numbers, got {describe(left)} and "
                f"{describe(right)}",
                location,
            )
            return UNKNOWN
        if operator not in "+*":
            self.problems.report(f"'{operator}' is not defined for tensors", location)
            return UNKNOWN
        if left.shape != right.shape:
            self.problems.report(
                f"'{operator}' needs tensors of one shape, got {list(left.shape)} and "
                f"{list(right.shape)}",
                location,
            )
            return UNKNOWN
        operation, name = (nn.AddOp, "sum") if operator == "+" else (nn.MulOp, "product")
        op = operation(left.value, right.value, left.type)
        return self.body.emit(op, location, name)

    def call(self, call: Call) -> Value:
        bound = bind(call, self.problems)
        if bound is None:
            return UNKNOWN
        match call.operation:
            case "linear":
                result = self._linear(bound)
            case "rms_norm":
                result = self._rms_norm(bound)
            case "rope":
                result = self._rope(bound)
            case "attention":
                result = self._attention(bound)
            case "silu" | "gelu":
                result = self._activation(bound)
            case _:
                raise AssertionError(call.operation)
        return UNKNOWN if result is None else result

    def _linear(self, bound: BoundCall) -> Tensor | None:
        x = self._tensor("x", bound)
        width = self._size("width", bound, bound.call.location)
        name = self._weight_name(bound)
        if x is None or width is None or name is None:
            return None
        return self.body.linear(x, width, name, bound.call.location)

    def _rms_norm(self, bound: BoundCall) -> Tensor | None:
        x = self._tensor("x", bound)
        eps = self._real("eps", bound)
        name = self._weight_name(bound)
        if x is None or eps is None or name is None:
            return None
        return self.body.rms_norm(x, eps, name, bound.call.location)

    def _rope(self, bound: BoundCall) -> Tensor | None:
        location = bound.call.location
        x = self._tensor("x", bound)
        theta = self._real("theta", bound)
        head_dim = self._size("head_dim", bound, location)
        if x is None or theta is None or head_dim is None:
            return None
        if head_dim % 2:
            self.problems.report(f"rope needs an even head_dim, got {head_dim}", location)
            return None
        if x.shape[-1] % head_dim:
            self.problems.report(
                f"rope needs heads of head_dim = {head_dim}, but x has {x.shape[-1]} features",
                location,
            )
            return None
        start = self.body.workload.start
        op = nn.RopeOp(x.value, theta=theta, head_dim=head_dim, start=start, type=x.type)
        return self.body.emit(op, location, "rope")

    def _attention(self, bound: BoundCall) -> Tensor | None:
        location = bound.call.location
        q, k, v = (self._tensor(name, bound) for name in "qkv")
        heads = self._size("heads", bound, location)
        kv_heads = self._size("kv_heads", bound, location)
        head_dim = self._size("head_dim", bound, location)
        prefix = self._name(bound) if "name" in bound.arguments else Identifier("", location)
        if heads is None or kv_heads is None or head_dim is None or prefix is None:
            return None
        scale: float | None = head_dim**-0.5
        if "scale" in bound.arguments:
            scale = self._real("scale", bound)
        window, keep, sees = self._visibility(bound)
        if heads % kv_heads:
            self.problems.report(
                f"heads = {heads} is not a multiple of kv_heads = {kv_heads}", location
            )
            return None
        if q is None or k is None or v is None or scale is None:
            return None
        wrong = False
        for name, tensor, count_name, count in (
            ("q", q, "heads", heads),
            ("k", k, "kv_heads", kv_heads),
            ("v", v, "kv_heads", kv_heads),
        ):
            if tensor.shape[-1] != count * head_dim:
                self.problems.report(
                    f"{name} has {tensor.shape[-1]} features, but {count_name} * head_dim = "
                    f"{count} * {head_dim} = {count * head_dim}",
                    bound.arguments[name].location,
                )
                wrong = True
        if wrong or not sees:
            return None
        caches = [
            Identifier(f"{prefix.text}_{part}_cache".lstrip("_"), prefix.location) for part in "kv"
        ]
        if caches[0].text in self.body.caches:
            taken = self.body.names[caches[0].text]
            given = f"named '{prefix.text}'" if prefix.text else "without a name"
            self.problems.report(
                f"the layer '{self.layer.name.text}' has two attentions {given}; the first is in "
                f"line {taken.line}",
                prefix.location,
                hint='give this one a name of its own, for its KV cache: name = "..."',
            )
            return None
        keys = self.body.append(caches[0], k, kv_heads, head_dim, location)
        values = self.body.append(caches[1], v, kv_heads, head_dim, location)
        if keys is None or values is None:
            return None
        sink: Tensor | None = None
        if "sink" in bound.flags:
            name = Identifier(f"{prefix.text}_sink".lstrip("_"), prefix.location)
            sink = self.body.parameter(name, (heads,), location)
            if sink is None:
                return None
        op = nn.AttentionOp(
            q.value,
            keys.value,
            values.value,
            head_dim=head_dim,
            start=self.body.workload.start,
            scale=scale,
            causal="causal" in bound.flags,
            type=q.type,
            window=window,
            keep=keep,
            sink=sink.value if sink is not None else None,
        )
        return self.body.emit(op, location, prefix.text or "attention")

    def _visibility(self, bound: BoundCall) -> tuple[int | None, int | None, bool]:
        """The window and the positions kept beside it, and whether they are as they should be."""
        arguments = bound.arguments
        found = {
            name: self._size(name, bound, arguments[name].location) if name in arguments else None
            for name in ("window", "keep")
        }
        sees = all(found[name] is not None for name in found if name in arguments)
        if "window" in arguments and "causal" not in bound.flags:
            self.problems.report(
                "a window needs causal: it is the nearest positions up to the query's own",
                arguments["window"].location,
                hint="attention(q, k, v, causal, window = ...)",
            )
            sees = False
        if "keep" in arguments and "window" not in arguments:
            self.problems.report(
                "keep needs a window: without one no position is left out",
                arguments["keep"].location,
                hint="attention(q, k, v, causal, window = ..., keep = ...)",
            )
            sees = False
        return found["window"], found["keep"], sees

    def _activation(self, bound: BoundCall) -> Tensor | None:
        x = self._tensor("x", bound)
        if x is None:
            return None
        operation = nn.SiluOp if bound.call.operation == "silu" else nn.GeluOp
        name = bound.call.operation
        return self.body.emit(operation(x.value, x.type), bound.call.location, name)

    # -- arguments ---------------------------------------------------------------------------

    def _tensor(self, name: str, bound: BoundCall) -> Tensor | None:
        argument = bound.arguments[name]
        value = self.evaluate(argument)
        if isinstance(value, Tensor):
            return value
        if not isinstance(value, Unknown):
            self.problems.report(
                f"{bound.call.operation} needs a tensor as '{name}', got {describe(value)}",
                argument.location,
            )
        return None

    def _setting(
        self, name: str, bound: BoundCall | None, location: Location
    ) -> tuple[Value, Location]:
        """The value of a size or real: from the call, else the layer, else the model."""
        if bound is not None and name in bound.arguments:
            argument = bound.arguments[name]
            return self.evaluate(argument), argument.location
        if name in self.scope:
            return self.scope[name], location
        needs = bound.call.operation if bound is not None else "the input"
        report_missing(name, needs, self.body.model, self.problems, location)
        return UNKNOWN, location

    def _size(self, name: str, bound: BoundCall | None, location: Location) -> int | None:
        value, place = self._setting(name, bound, location)
        return as_size(value, name, self.problems, place)

    def _real(self, name: str, bound: BoundCall) -> float | None:
        value, place = self._setting(name, bound, bound.call.location)
        return as_real(value, name, self.problems, place)

    def _name(self, bound: BoundCall) -> Identifier | None:
        argument = bound.arguments["name"]
        if isinstance(argument, String):
            return Identifier(argument.text, argument.location)
        self.problems.report(
            f"{bound.call.operation} needs a string as 'name': name = \"...\"",
            argument.location,
        )
        return None

    def _weight_name(self, bound: BoundCall) -> Identifier | None:
        """The weight's name: given, or taken from the assignment."""
        location = bound.call.location
        if "name" in bound.arguments:
            return self._name(bound)
        if self.target is not None:
            return Identifier(self.target.text, location)
        self.problems.report(
            f"the weight of this {bound.call.operation} has no name",
            location,
            hint='outside of an assignment it needs one: name = "..."',
        )
        return None
