"""Operations on every element by itself. A new one is a class here and its name in ``nn.py``."""

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


class ElementwiseOp(IRDLOperation):
    """An operation on every element by itself: a vector function of tiles of its operands.

    What forms kernels, emits their instructions or splits tensors asks for this class and what it
    says, not for its members.
    """

    FUNCTION: ClassVar[str]
    """The vector function that computes it (``starc.core.vector_functions``)."""
    GATE: ClassVar[str | None] = None
    """The vector function of its result times another tile, if there is one."""
    RESULT: ClassVar[str | None] = None
    """What its result is called, where that is not the function's name."""

    @classmethod
    def result_name(cls) -> str:
        """The name of values and tiles that it makes."""
        return cls.RESULT or cls.FUNCTION


class UnaryOp(ElementwiseOp):
    """An operation on the elements of one tensor."""

    input = operand_def(FLOAT_TENSOR)
    result = result_def(FLOAT_TENSOR)

    assembly_format: ClassVar[str | None] = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[input], result_types=[type])

    def verify_(self) -> None:
        require_same("the result", tensor(self.result), "the input", tensor(self.input))


@irdl_op_definition
class SiluOp(UnaryOp):
    """numpy: ``x / (1 + exp(-x))``, computed in f32."""

    FUNCTION: ClassVar[str] = "silu"
    GATE: ClassVar[str | None] = "silu_mul"
    name = "nn.silu"
    traits = traits_def(Pure())


@irdl_op_definition
class GeluOp(UnaryOp):
    """numpy: ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``, computed in f32: the
    tanh form of the Gaussian error linear unit that language models use."""

    FUNCTION: ClassVar[str] = "gelu"
    name = "nn.gelu"
    traits = traits_def(Pure())


class BinaryOp(ElementwiseOp):
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
class AddOp(BinaryOp):
    """numpy: ``x + y``, computed in f32."""

    FUNCTION: ClassVar[str] = "add"
    RESULT: ClassVar[str | None] = "sum"
    name = "nn.add"
    traits = traits_def(Pure())


@irdl_op_definition
class MulOp(BinaryOp):
    """numpy: ``x * y``, computed in f32."""

    FUNCTION: ClassVar[str] = "mul"
    RESULT: ClassVar[str | None] = "product"
    name = "nn.mul"
    traits = traits_def(Pure())
