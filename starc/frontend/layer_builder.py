"""One layer: its statements, checked and turned into a function of ``nn`` operations."""

from __future__ import annotations

from typing import cast

from xdsl.ir import Operation

from starc.dialects import nn
from starc.dialects.locations import location_of
from starc.frontend.evaluation import RESERVED_WORDS, Unknown, describe, element_type
from starc.frontend.layer_body import BuiltLayer, Tensor
from starc.frontend.operations import OperationBuilder
from starc.frontend.syntax import Assignment, Identifier, Return


class LayerBuilder(OperationBuilder):
    """Evaluates a layer's statements in order and emits their operations as it goes."""

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
            return [self.size("hidden", None, self.layer.inputs[0].location)]
        if names == ["q", "k", "v"]:
            location = self.layer.inputs[0].location
            head_dim = self.size("head_dim", None, location)
            heads = self.size("heads", None, location)
            kv_heads = self.size("kv_heads", None, location)
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
