"""Arguments of the operations that a layer calls: tensors, sizes, numbers and names."""

from __future__ import annotations

from starc.diagnostics import Location
from starc.frontend.evaluation import (
    UNKNOWN,
    Evaluator,
    Unknown,
    Value,
    as_real,
    as_size,
    describe,
)
from starc.frontend.layer_body import LayerBody, Tensor
from starc.frontend.model_parameters import report_missing
from starc.frontend.signatures import BoundCall
from starc.frontend.syntax import Identifier, Layer, String


class CallArguments(Evaluator):
    """Evaluates arguments of calls in a layer; what they do not give, the layer or its model
    does. Anything of a wrong kind is reported."""

    def __init__(self, layer: Layer, body: LayerBody) -> None:
        # The layer's names hide the model's.
        scope: dict[str, Value] = dict(body.model.values)
        super().__init__(scope, body.problems)
        self.scope = scope
        self.layer = layer
        self.body = body
        self.target: Identifier | None = None

    def tensor(self, name: str, bound: BoundCall) -> Tensor | None:
        """The tensor of an argument; None, reported, for another value."""
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

    def size(self, name: str, bound: BoundCall | None, location: Location) -> int | None:
        """The positive whole number of a name; None, reported, for another value."""
        value, place = self._setting(name, bound, location)
        return as_size(value, name, self.problems, place)

    def real(self, name: str, bound: BoundCall) -> float | None:
        """The positive number of a name; None, reported, for another value."""
        value, place = self._setting(name, bound, bound.call.location)
        return as_real(value, name, self.problems, place)

    def name(self, bound: BoundCall) -> Identifier | None:
        """The text of the argument ``name``."""
        argument = bound.arguments["name"]
        if isinstance(argument, String):
            return Identifier(argument.text, argument.location)
        self.problems.report(
            f"{bound.call.operation} needs a string as 'name': name = \"...\"",
            argument.location,
        )
        return None

    def weight_name(self, bound: BoundCall) -> Identifier | None:
        """The weight's name: given, or taken from the assignment."""
        location = bound.call.location
        if "name" in bound.arguments:
            return self.name(bound)
        if self.target is not None:
            return Identifier(self.target.text, location)
        self.problems.report(
            f"the weight of this {bound.call.operation} has no name",
            location,
            hint='outside of an assignment it needs one: name = "..."',
        )
        return None
