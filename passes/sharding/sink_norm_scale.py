"""``sink-norm-scale``: a norm of a sharded row is finished behind the products that use it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, cast

from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from starc.analysis.reencoding import (
    encoding,
    layers_of,
    reshard_before,
    shape_of,
)
from starc.analysis.sharding_rules import module_mesh
from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.encoding import DimSharding, Encoding
from starc.core.sharding.mesh import Mesh, axes_text
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.nn import (
    FloatTensor,
    LinearOp,
    NormScaleOp,
    RmsNormOp,
    ScaleColumnsOp,
    ScaleRowsOp,
    SumSquaresOp,
)
from starc.dialects.sharding import AnyTensor, ReshardOp, global_shape, global_type
from starc.passes.base import RemarkSink, StarcPass, with_location
from starc.targets.target import Target

WIDE_TYPES: Final = ("bf16", "f32", "f64")
"""Element types with at least the exponents of f32: a row can be kept without its scale."""


@dataclass(frozen=True)
class SinkNormScalePass(StarcPass):
    """Splits a norm whose rows lie on several devices, and sinks the scale of rows below products.

    ``rms_norm(x, w)`` is ``scale_rows(scale_columns(x, w), r)`` with one number a row, ``r =
    norm_scale(sum_squares(x))``. Where ``x`` was gathered for the norm alone, the sum of squares is
    taken of what a device holds and reduced over the devices instead: one float a token in place of
    the hidden size. The scale of a row commutes with a matrix product, ``(r x w) W = r (x w W)``,
    and with a partial sum; so it is applied to the product's result, and the product need not wait
    for the reduction. Where a use is no product the scale is applied before it.

    Legal if

    - the norm's input is a gather of features alone, of no partial sum;
    - some product takes the normed row as it was before the gather (else the row is gathered
      anyway, and nothing is won);
    - the rows and the results of the products have the exponents of f32 (``bf16``, ``f32``): an
      unscaled row of ``f16`` or ``fp8`` could overflow;
    - two more roundings are acceptable: the row times its weight and the product are rounded before
      the scale, each by half a unit in the last place.

    Contract: encodings are legal, layers compute the same up to that rounding; no norm that fits
    the conditions is left. Needs ``propagate-shardings``.

    Before:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    nn.parameter @mlp.norm : tensor<64xbf16, #sharding.of<@node, [{}]>>
    nn.parameter @mlp.up : tensor<64x256xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
    func.func @mlp(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>)
        -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> {
      %0 = sharding.reshard %x
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
      %1 = nn.read @mlp.norm : tensor<64xbf16, #sharding.of<@node, [{}]>>
      %2 = nn.rms_norm %0, %1 {eps = 1.0e-05 : f64}
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>,
          tensor<64xbf16, #sharding.of<@node, [{}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
      %3 = sharding.reshard %2
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
      %4 = nn.read @mlp.up : tensor<64x256xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
      %5 = nn.linear %3, %4
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>,
          tensor<64x256xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
        -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
      %6 = sharding.reshard %5
        : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
        -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
      func.return %6 : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    nn.parameter @mlp.norm : tensor<64xbf16, #sharding.of<@node, [{}]>>
    nn.parameter @mlp.up : tensor<64x256xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
    func.func @mlp(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>)
        -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> {
      %0 = nn.read @mlp.norm : tensor<64xbf16, #sharding.of<@node, [{}]>>
      %1 = nn.sum_squares %x
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
        -> tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}>>
      %2 = sharding.reshard %1
        : tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}>>
        -> tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {}]>>
      %3 = nn.norm_scale %2 {eps = 1.0e-05 : f64, count = 64 : i64}
        : tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {}]>>
        -> tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {}]>>
      %4 = sharding.reshard %0
        : tensor<64xbf16, #sharding.of<@node, [{}]>>
        -> tensor<64xbf16, #sharding.of<@node, [{"xcd"}]>>
      %5 = nn.scale_columns %x, %4
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>,
          tensor<64xbf16, #sharding.of<@node, [{"xcd"}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
      %6 = nn.read @mlp.up : tensor<64x256xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
      %7 = nn.linear %5, %6
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>,
          tensor<64x256xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
        -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
      %8 = nn.scale_rows %7, %3
        : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>,
          tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {}]>>
        -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
      %9 = sharding.reshard %8
        : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
        -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
      func.return %9 : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
    }
    ```
    """

    name = "sink-norm-scale"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        mesh = module_mesh(module)
        for layer in layers_of(module):
            for op in list(layer.body.block.ops):
                if isinstance(op, RmsNormOp):
                    _visit(op, mesh, sink)


def _visit(norm: RmsNormOp, mesh: Mesh, sink: RemarkSink) -> None:
    gather = norm.input.owner
    if not isinstance(gather, ReshardOp) or len(gather.inputs) != 1:
        return
    whole, split = encoding(norm.input, mesh), encoding(gather.inputs[0], mesh)
    if split.dims[:2] != whole.dims[:2] or not split.dims[2].axes or split.partial is not None:
        return
    problem = _problem(norm, split, mesh)
    if problem is not None:
        sink.remark("norm-scale", f"the norm is left as it is: {problem}", norm, declined=True)
        return
    type = cast(AnyTensor, norm.input.type)
    row = global_shape(type)[2] * element_bytes(type)
    sunk, kept = _Sinking(norm, gather.inputs[0], split, mesh).run()
    sink.remark(
        "norm-scale",
        f"a token's sum of squares, 4 bytes, is reduced over {{{axes_text(split.dims[2].axes)}}} "
        f"in place of gathering its row, {row:,} bytes; the norm's factor sinks below {sunk} of "
        f"{sunk + kept} uses",
        norm,
        products=sunk,
        other_uses=kept,
        row_bytes=row,
    )
    for op in (norm, gather):
        if not any(value.first_use for value in op.results):
            op.detach()
            op.erase()


def _problem(norm: RmsNormOp, split: Encoding, mesh: Mesh) -> str | None:
    """Why the norm must stay, or ``None``."""
    products = [op for op, index in _uses(norm.result) if _is_product(op, index)]
    types = [cast(AnyTensor, norm.input.type).element_type]
    types += [cast(AnyTensor, op.results[0].type).element_type for op in products]
    narrow = [str(type) for type in types if str(type) not in WIDE_TYPES]
    if narrow:
        return f"an unscaled row of {narrow[0]} could overflow"
    if not any(encoding(op.operands[0], mesh) == split for op in products):
        return "no product takes its result split as the norm's input is"
    return None


def _is_product(op: Operation, index: int) -> bool:
    return isinstance(op, LinearOp) and index == 0


def _uses(value: SSAValue) -> list[tuple[Operation, int]]:
    """The uses of a value, of itself or of a reshard of it alone."""
    found: list[tuple[Operation, int]] = []
    for use in value.uses:
        op = use.operation
        if isinstance(op, ReshardOp) and len(op.inputs) == 1:
            found += [(inner.operation, inner.index) for inner in op.results[0].uses]
        else:
            found.append((op, use.index))
    return found


@dataclass
class _Sinking:
    """The rewrite of one norm of ``input``, which is split as ``split``."""

    norm: RmsNormOp
    input: SSAValue
    split: Encoding
    mesh: Mesh
    resharded: dict[tuple[SSAValue, Encoding], SSAValue] = field(
        default_factory=dict[tuple[SSAValue, Encoding], SSAValue]
    )

    def run(self) -> tuple[int, int]:
        """Rewrites the norm. Returns how many products the scale sank below and how many other
        uses there are."""
        scale = self._scale()
        columns = reshard_before(
            self.norm,
            self.norm.weight,
            encoding(self.norm.weight, self.mesh).with_dim(
                0, self.split.dims[2].axes, self.split.dims[2].map
            ),
        )
        type = cast(FloatTensor, self.input.type)
        row = self._insert(ScaleColumnsOp(self.input, columns, type), self.norm)
        uses = sorted(_uses(self.norm.result), key=lambda use: (_position(use[0]), use[1]))
        products = 0
        scaled: SSAValue | None = None
        for op, index in uses:
            wanted = encoding(op.operands[index], self.mesh)
            if _is_product(op, index):
                op.operands[index] = self._resharded(row, wanted, op)
                self._scale_result(op, scale)
                products += 1
                continue
            if scaled is None:
                scaled = self._insert(ScaleRowsOp(row, scale, type), self.norm)
            op.operands[index] = self._resharded(scaled, wanted, op)
        for use in list(self.norm.result.uses):
            # What is left are reshards that nobody uses any more.
            use.operation.detach()
            use.operation.erase()
        return products, len(uses) - products

    def _insert(self, op: Operation, before: Operation) -> SSAValue:
        with_location(op, self.norm)
        op.results[0].name_hint = self.norm.result.name_hint
        Rewriter.insert_op(op, InsertPoint.before(before))
        return op.results[0]

    def _scale(self) -> SSAValue:
        batch, query, features = shape_of(self.input)
        rows = replace(self.split, dims=(*self.split.dims[:2], DimSharding()))
        axes = self.split.dims[2].axes
        plain = TensorType(f32, (batch, query, 1))
        partial = cast(FloatTensor, global_type(plain, rows.with_partial(ReductionKind.SUM, axes)))
        squares = self._insert(SumSquaresOp(self.input, partial), self.norm)
        squares = reshard_before(self.norm, squares, rows)
        eps = self.norm.eps.value.data
        type = cast(FloatTensor, squares.type)
        return self._insert(NormScaleOp(squares, eps=eps, count=features, type=type), self.norm)

    def _scale_result(self, product: Operation, scale: SSAValue) -> None:
        """Multiplies the rows of a product's result by the scale, for all its users."""
        result = product.results[0]
        users = [(use.operation, use.index) for use in result.uses]
        found = encoding(result, self.mesh)
        behind = product.next_op
        assert behind is not None
        rows = Encoding(self.mesh, (*found.dims[:2], DimSharding()))
        factor = self._resharded(scale, rows, behind)
        op = ScaleRowsOp(result, factor, cast(FloatTensor, result.type))
        scaled = self._insert(op, behind)
        scaled.name_hint = result.name_hint
        for user, index in users:
            user.operands[index] = scaled

    def _resharded(self, value: SSAValue, wanted: Encoding, user: Operation) -> SSAValue:
        key = (value, wanted)
        if key not in self.resharded:
            self.resharded[key] = reshard_before(user, value, wanted)
        return self.resharded[key]


def _position(op: Operation) -> int:
    """The place of an operation in its block."""
    block = op.parent
    assert block is not None
    return block.get_operation_index(op)
