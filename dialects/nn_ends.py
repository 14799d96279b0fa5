"""The ends of a model: from token ids to rows, and the rows whose logits a step needs."""

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
    I32_TENSOR,
    FloatTensor,
    require_rank,
    shape_text,
    tensor,
)


@irdl_op_definition
class EmbeddingOp(IRDLOperation):
    """The rows of a table that the token ids name.

    numpy: ``table[ids]`` for ``ids[batch, query]`` and ``table[vocab, hidden]``. On a device that
    holds some rows of the table, rows that it does not hold are zero, so that the sum over devices
    is the lookup.
    """

    name = "nn.embedding"

    ids = operand_def(I32_TENSOR)
    table = operand_def(FLOAT_TENSOR)
    result = result_def(FLOAT_TENSOR)

    traits = traits_def(Pure())

    assembly_format = "$ids `,` $table attr-dict `:` type($ids) `,` type($table) `->` type($result)"

    def __init__(self, ids: SSAValue, table: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[ids, table], result_types=[type])

    def verify_(self) -> None:
        ids, table, result = tensor(self.ids), tensor(self.table), tensor(self.result)
        require_rank("the ids", ids, 2, "[batch, query]")
        require_rank("the table", table, 2, "[vocab, hidden]")
        expected = (*ids.get_shape(), table.get_shape()[1])
        if result.get_shape() != expected or result.element_type != table.element_type:
            raise VerifyException(
                f"the result must be {list(expected)} of {table.element_type}, "
                f"got {shape_text(result)} of {result.element_type}"
            )


@irdl_op_definition
class LastTokenOp(IRDLOperation):
    """The last query token of every sequence, whose logits alone a step needs.

    numpy: ``x[:, -1:, :]``
    """

    name = "nn.last_token"

    input = operand_def(FLOAT_TENSOR)
    result = result_def(FLOAT_TENSOR)

    traits = traits_def(Pure())

    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[input], result_types=[type])

    def verify_(self) -> None:
        x, y = tensor(self.input), tensor(self.result)
        require_rank("the input", x, 3, "[batch, query, feature]")
        batch, _, features = x.get_shape()
        if y.get_shape() != (batch, 1, features) or y.element_type != x.element_type:
            raise VerifyException(
                f"the result must be [{batch}, 1, {features}] of {x.element_type}, "
                f"got {shape_text(y)} of {y.element_type}"
            )
