"""Operations on rows: norms and their parts, and rotary positions."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import (
    FloatAttr,
    IntegerAttr,
)
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import (
    Pure,
)
from xdsl.utils.exceptions import VerifyException

from starc.dialects.nn_requirements import (
    F64,
    FLOAT_TENSOR,
    I64,
    FloatTensor,
    require_multiple,
    require_positive,
    require_rank,
    require_row_values,
    require_row_weight,
    require_same,
    tensor,
)


def _require_eps(eps: FloatAttr) -> None:
    if eps.value.data < 0:
        raise VerifyException(f"eps must not be negative, got {eps.value.data}")


class NormOp(IRDLOperation):
    """Rows over a measure of the whole row, times a weight of the columns; what forms kernels,
    schedules them or splits tensors asks for this class."""

    input = operand_def(FLOAT_TENSOR)
    weight = operand_def(FLOAT_TENSOR)
    eps = prop_def(F64)
    result = result_def(FLOAT_TENSOR)

    irdl_options = (ParsePropInAttrDict(),)

    assembly_format: ClassVar[str | None] = (
        "$input `,` $weight attr-dict `:` type($input) `,` type($weight) `->` type($result)"
    )

    def __init__(self, input: SSAValue, weight: SSAValue, eps: float, type: FloatTensor) -> None:
        super().__init__(
            operands=[input, weight],
            properties={"eps": FloatAttr(eps, 64)},
            result_types=[type],
        )

    def verify_(self) -> None:
        x = tensor(self.input)
        require_row_weight(x, tensor(self.weight))
        require_same("the result", tensor(self.result), "the input", x)
        _require_eps(self.eps)


@irdl_op_definition
class RmsNormOp(NormOp):
    """Root-mean-square normalisation of rows.

    numpy: ``x / sqrt(mean(x * x, axis=-1, keepdims=True) + eps) * w``, computed in f32.

    ``%h = nn.rms_norm %x, %w {eps = 1.0e-05 : f64}
    : tensor<2x1x64xbf16>, tensor<64xbf16> -> tensor<2x1x64xbf16>``
    """

    name = "nn.rms_norm"
    traits = traits_def(Pure())


@irdl_op_definition
class SumSquaresOp(IRDLOperation):
    """The sum of the squares of every row.

    numpy: ``sum(x * x, axis=-1, keepdims=True)``, computed and kept in f32. Where the features are
    split over devices it is a partial sum.

    ``%s = nn.sum_squares %x : tensor<2x1x64xbf16> -> tensor<2x1x1xf32>``
    """

    name = "nn.sum_squares"

    input = operand_def(FLOAT_TENSOR)
    result = result_def(FLOAT_TENSOR)

    traits = traits_def(Pure())

    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[input], result_types=[type])

    def verify_(self) -> None:
        x = tensor(self.input)
        require_rank("the input", x, 3, "[batch, query, feature]")
        require_row_values("the result", tensor(self.result), x.get_shape()[:2])


@irdl_op_definition
class NormScaleOp(IRDLOperation):
    """The factor by which a root-mean-square norm multiplies a row, from its sum of squares over
    ``count`` features.

    numpy: ``1 / sqrt(s / count + eps)`` in f32. Not linear: it takes no partial sum.

    ``%r = nn.norm_scale %s {eps = 1.0e-05 : f64, count = 64 : i64}
    : tensor<2x1x1xf32> -> tensor<2x1x1xf32>``
    """

    name = "nn.norm_scale"

    input = operand_def(FLOAT_TENSOR)
    eps = prop_def(F64)
    count = prop_def(I64)
    result = result_def(FLOAT_TENSOR)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())

    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, *, eps: float, count: int, type: FloatTensor) -> None:
        super().__init__(
            operands=[input],
            properties={"eps": FloatAttr(eps, 64), "count": IntegerAttr(count, 64)},
            result_types=[type],
        )

    def verify_(self) -> None:
        s = tensor(self.input)
        require_rank("the input", s, 3, "[batch, query, 1]")
        require_row_values("the input", s, s.get_shape()[:2])
        require_same("the result", tensor(self.result), "the input", s)
        require_positive("count", self.count)
        _require_eps(self.eps)


@irdl_op_definition
class ScaleColumnsOp(IRDLOperation):
    """Every feature times its weight.

    numpy: ``x * w`` for ``x[batch, query, feature]``, ``w[feature]``, computed in f32. Linear in
    ``x``.

    ``%y = nn.scale_columns %x, %w : tensor<2x1x64xbf16>, tensor<64xbf16> -> tensor<2x1x64xbf16>``
    """

    name = "nn.scale_columns"

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
        x = tensor(self.input)
        require_row_weight(x, tensor(self.weight))
        require_same("the result", tensor(self.result), "the input", x)


@irdl_op_definition
class ScaleRowsOp(IRDLOperation):
    """Every row times its factor.

    numpy: ``x * s`` for ``x[batch, query, feature]``, ``s[batch, query, 1]`` of f32, computed in
    f32. Linear in ``x``: a partial sum passes through.

    ``%y = nn.scale_rows %x, %s : tensor<2x1x64xbf16>, tensor<2x1x1xf32> -> tensor<2x1x64xbf16>``
    """

    name = "nn.scale_rows"

    input = operand_def(FLOAT_TENSOR)
    scale = operand_def(FLOAT_TENSOR)
    result = result_def(FLOAT_TENSOR)

    traits = traits_def(Pure())

    assembly_format = (
        "$input `,` $scale attr-dict `:` type($input) `,` type($scale) `->` type($result)"
    )

    def __init__(self, input: SSAValue, scale: SSAValue, type: FloatTensor) -> None:
        super().__init__(operands=[input, scale], result_types=[type])

    def verify_(self) -> None:
        x = tensor(self.input)
        require_rank("the input", x, 3, "[batch, query, feature]")
        require_row_values("the scale", tensor(self.scale), x.get_shape()[:2])
        require_same("the result", tensor(self.result), "the input", x)


@irdl_op_definition
class RopeOp(IRDLOperation):
    """Rotary position embedding, GPT-NeoX style: in every head dimension ``i`` is rotated with
    dimension ``i + head_dim / 2``.

    numpy, for query token ``t`` and ``i < head_dim / 2``::

        angle = (start + t) * theta ** (-2 * i / head_dim)
        y[i]                = x[i] * cos(angle) - x[i + head_dim / 2] * sin(angle)
        y[i + head_dim / 2] = x[i + head_dim / 2] * cos(angle) + x[i] * sin(angle)
    """

    name = "nn.rope"

    input = operand_def(FLOAT_TENSOR)
    theta = prop_def(F64)
    head_dim = prop_def(I64)
    start = prop_def(I64)
    result = result_def(FLOAT_TENSOR)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())

    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(
        self, input: SSAValue, *, theta: float, head_dim: int, start: int, type: FloatTensor
    ) -> None:
        super().__init__(
            operands=[input],
            properties={
                "theta": FloatAttr(theta, 64),
                "head_dim": IntegerAttr(head_dim, 64),
                "start": IntegerAttr(start, 64),
            },
            result_types=[type],
        )

    def verify_(self) -> None:
        x = tensor(self.input)
        require_rank("the input", x, 3, "[batch, query, head * head_dim]")
        require_same("the result", tensor(self.result), "the input", x)
        require_positive("head_dim", self.head_dim)
        require_positive("start", self.start, 0)
        head_dim = self.head_dim.value.data
        if head_dim % 2:
            raise VerifyException(f"head_dim must be even, got {head_dim}")
        require_multiple("the last dimension", x.get_shape()[-1], head_dim)
        if self.theta.value.data <= 0:
            raise VerifyException(f"theta must be positive, got {self.theta.value.data}")
