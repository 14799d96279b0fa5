"""The operations that a layer calls, as operations of the ``nn`` level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from starc.diagnostics import Location
from starc.dialects import nn
from starc.frontend.attention_call import build_attention
from starc.frontend.call_arguments import CallArguments
from starc.frontend.evaluation import UNKNOWN, Value, describe
from starc.frontend.layer_body import Tensor
from starc.frontend.signatures import BoundCall, bind
from starc.frontend.syntax import Call

OPERATORS: Final[Mapping[str, type[nn.ElementwiseOp]]] = {"+": nn.AddOp, "*": nn.MulOp}
"""What operators between two tensors are."""


class OperationBuilder(CallArguments):
    """Emits the operation of each call and of sums and products of tensors."""

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
        operation = OPERATORS.get(operator)
        if operation is None:
            self.problems.report(f"'{operator}' is not defined for tensors", location)
            return UNKNOWN
        return self._elementwise(f"'{operator}'", operation, [left, right], location) or UNKNOWN

    def _elementwise(
        self,
        name: str,
        operation: type[nn.ElementwiseOp],
        operands: Sequence[Tensor],
        location: Location,
    ) -> Tensor | None:
        first = operands[0]
        if any(operand.shape != first.shape for operand in operands):
            shapes = " and ".join(str(list(operand.shape)) for operand in operands)
            self.problems.report(f"{name} needs tensors of one shape, got {shapes}", location)
            return None
        op = operation.create(
            operands=[operand.value for operand in operands], result_types=[first.type]
        )
        return self.body.emit(op, location, operation.result_name())

    def call(self, call: Call) -> Value:
        bound = bind(call, self.problems)
        if bound is None:
            return UNKNOWN
        if bound.signature.elementwise is not None:
            return self._elementwise_call(bound, bound.signature.elementwise) or UNKNOWN
        match call.operation:
            case "linear":
                result = self._linear(bound)
            case "rms_norm":
                result = self._rms_norm(bound)
            case "rope":
                result = self._rope(bound)
            case "attention":
                result = build_attention(self, bound)
            case _:
                raise AssertionError(call.operation)
        return UNKNOWN if result is None else result

    def _linear(self, bound: BoundCall) -> Tensor | None:
        x = self.tensor("x", bound)
        width = self.size("width", bound, bound.call.location)
        name = self.weight_name(bound)
        if x is None or width is None or name is None:
            return None
        return self.body.linear(x, width, name, bound.call.location)

    def _rms_norm(self, bound: BoundCall) -> Tensor | None:
        x = self.tensor("x", bound)
        eps = self.real("eps", bound)
        name = self.weight_name(bound)
        if x is None or eps is None or name is None:
            return None
        return self.body.rms_norm(x, eps, name, bound.call.location)

    def _rope(self, bound: BoundCall) -> Tensor | None:
        location = bound.call.location
        x = self.tensor("x", bound)
        theta = self.real("theta", bound)
        head_dim = self.size("head_dim", bound, location)
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

    def _elementwise_call(
        self, bound: BoundCall, operation: type[nn.ElementwiseOp]
    ) -> Tensor | None:
        given = [self.tensor(name, bound) for name in bound.signature.parameters]
        operands = [operand for operand in given if operand is not None]
        if len(operands) < len(given):
            return None
        return self._elementwise(bound.call.operation, operation, operands, bound.call.location)
