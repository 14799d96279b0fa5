"""Operations on every element by itself."""

from __future__ import annotations

from typing import ClassVar

from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    result_def,
    traits_def,
)
from xdsl.traits import (
    Pure,
)

from starc.dialects.nn_requirements import (
    FLOAT_TENSOR,
    FloatTensor,
    require_same,
    tensor,
)


class _UnaryOp(IRDLOperation):
    """An operation on every element by itself."""

    input = operand_def(FLOAT_TENSOR)
    result = result_def(FLOAT_TENSOR)

    assembly_format: ClassVar[str | None] = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[input], result_types=[type])

    def verify_(self) -> None:
        require_same("the result", tensor(self.result), "the input", tensor(self.input))


@irdl_op_definition
class SiluOp(_UnaryOp):
    """numpy: ``x / (1 + exp(-x))``, computed in f32."""

    name = "nn.silu"
    traits = traits_def(Pure())


@irdl_op_definition
class GeluOp(_UnaryOp):
    """numpy: ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``, computed in f32: the
    tanh form of the Gaussian error linear unit that language models use."""

    name = "nn.gelu"
    traits = traits_def(Pure())


class _BinaryOp(IRDLOperation):
    """An operation on pairs of elements of two tensors of one shape."""

    lhs = operand_def(FLOAT_TENSOR)
    rhs = operand_def(FLOAT_TENSOR)
    result = result_def(FLOAT_TENSOR)

    assembly_format: ClassVar[str | None] = (
        "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"
    )

    def __init__(self, lhs: SSAValue, rhs: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[lhs, rhs], result_types=[type])

    def verify_(self) -> None:
        lhs = tensor(self.lhs)
        require_same("the second operand", tensor(self.rhs), "the first", lhs)
        require_same("the result", tensor(self.result), "the operands", lhs)


@irdl_op_definition
class AddOp(_BinaryOp):
    """numpy: ``x + y``, computed in f32."""

    name = "nn.add"
    traits = traits_def(Pure())


@irdl_op_definition
class MulOp(_BinaryOp):
    """numpy: ``x * y``, computed in f32."""

    name = "nn.mul"
    traits = traits_def(Pure())
