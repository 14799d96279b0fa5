"""The matrix product with a weight."""

from __future__ import annotations

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
from xdsl.utils.exceptions import VerifyException

from starc.dialects.nn_requirements import (
    FLOAT_TENSOR,
    FloatTensor,
    require_rank,
    shape_text,
    tensor,
)


@irdl_op_definition
class LinearOp(IRDLOperation):
    """A matrix product with a weight, without bias.

    numpy: ``x @ w`` for ``x[batch, query, k]``, ``w[k, n]``; products accumulate in f32.

    ``%y = nn.linear %x, %w : tensor<2x1x64xbf16>, tensor<64x32xbf16> -> tensor<2x1x32xbf16>``
    """

    name = "nn.linear"

    input = operand_def(FLOAT_TENSOR)
    weight = operand_def(FLOAT_TENSOR)
    result = result_def(FLOAT_TENSOR)

    traits = traits_def(Pure())

    assembly_format = (
        "$input `,` $weight attr-dict `:` type($input) `,` type($weight) `->` type($result)"
    )

    def __init__(self, input: SSAValue, weight: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[input, weight], result_types=[type])

    def verify_(self) -> None:
        x, w, y = tensor(self.input), tensor(self.weight), tensor(self.result)
        require_rank("the input", x, 3, "[batch, query, k]")
        require_rank("the weight", w, 2, "[k, n]")
        require_rank("the result", y, 3, "[batch, query, n]")
        batch, query, k = x.get_shape()
        weight_k, n = w.get_shape()
        if k != weight_k:
            raise VerifyException(f"the input has {k} features, the weight {weight_k} rows")
        if y.get_shape() != (batch, query, n):
            raise VerifyException(
                f"the result must be [{batch}, {query}, {n}], got {shape_text(y)}"
            )
