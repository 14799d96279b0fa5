"""``orthogonalize-gemms``: a level of the machine for each loop of a matrix product."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from starc.analysis.orthogonality import (
    Gemm,
    TwoLevels,
    outer_shards,
    unexplained,
    violations,
)
from starc.analysis.reencoding import (
    ParameterUses,
    encoding,
    layers_of,
    refit,
    reshard_after,
    reshard_before,
    set_encoding,
)
from starc.analysis.sharding_rules import module_mesh
from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import AxisRef, Mesh, axes_text
from starc.dialects.nn import EmbeddingOp, LinearOp
from starc.dialects.sharding import AnyTensor, encoding_of, global_shape
from starc.passes.base import RemarkSink, StarcPass
from starc.passes.sharding.orthogonal.streams import size_problem, split_streams
from starc.targets.target import Target


@dataclass(frozen=True)
class OrthogonalizeGemmsPass(StarcPass):
    """Moves the inner level of the machine to another loop of every matrix product.

    One-dimensional tensor parallelism splits one loop of a product over all devices. Here the outer
    levels keep it and the inner level gets another:

    - a weight whose rows are split over both, ``[K:{outer, inner}, N]``, becomes ``[K:{outer},
      N:{inner}]``: row parallel outside, column parallel inside. Its input is gathered over the
      inner level; the result is split by columns, a partial sum over the outer level alone.
    - a weight whose rows are whole, ``[K, N:{outer, inner}]``, becomes ``[K:{inner}, N:{outer}]``:
      column parallel outside, row parallel inside. Its input is sliced; the result is a partial sum
      over the inner level, which is scattered to the columns it had. Weights that the inner level
      replicated (few KV heads) are cut as well.
    - the rows of an embedding table stay with the outer level, its columns go to the inner one.

    Values that pass between layers, the residual stream, are split over the inner level, and
    gathered where a layer starts; ``compose-reshards`` then moves these gathers to where they are
    needed or removes them. A dimension that the inner level does not divide is left whole, with a
    remark, unless ``uneven`` allows shards of different size; and so is a weight whose axes do not
    have the outer level first. Where the shards of a plan differ in size already, those of the
    outer level are the inner level's put together.

    Contract: the encodings are legal (``sharding_rules.check``); no loop of a product is split by
    an outer and the inner level except where a remark ``not-orthogonal`` says why
    (``starc.analysis.orthogonality``). A mesh of one level is left as it is. Needs
    ``propagate-shardings``.

    Before:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    nn.parameter @mlp.up : tensor<64x256xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
    nn.parameter @mlp.down : tensor<256x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
    nn.stack [@mlp * 2]
    func.func @mlp(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>)
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> {
      %0 = nn.read @mlp.up : tensor<64x256xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
      %1 = nn.linear %x, %0
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>,
          tensor<64x256xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
        -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
      %2 = nn.read @mlp.down : tensor<256x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
      %3 = nn.linear %1, %2
        : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>,
          tensor<256x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>>
      %4 = sharding.reshard %3
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
      func.return %4 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    nn.parameter @mlp.up : tensor<64x256xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
    nn.parameter @mlp.down : tensor<256x64xbf16, #sharding.of<@node, [{"gpu"}, {"xcd"}]>>
    nn.stack [@mlp * 2]
    func.func @mlp(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>)
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> {
      %x_1 = sharding.reshard %x
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
      %0 = nn.read @mlp.up : tensor<64x256xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
      %x_2 = sharding.reshard %x_1
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
      %1 = nn.linear %x_2, %0
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>,
          tensor<64x256xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
        -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
      %2 = sharding.reshard %1
        : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
        -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
      %3 = nn.read @mlp.down : tensor<256x64xbf16, #sharding.of<@node, [{"gpu"}, {"xcd"}]>>
      %4 = sharding.reshard %2
        : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
        -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
      %5 = nn.linear %4, %3
        : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>,
          tensor<256x64xbf16, #sharding.of<@node, [{"gpu"}, {"xcd"}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>
      %6 = sharding.reshard %5
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
      %7 = sharding.reshard %6
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
      func.return %7 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
    }
    ```
    """

    name = "orthogonalize-gemms"

    uneven: bool = False
    """Allow shards of different size, and empty ones, where a size does not divide."""

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        mesh = module_mesh(module)
        parameters = ParameterUses.of(module)
        levels = _levels_in_use(mesh, parameters)
        if levels is None:
            sink.remark(
                "orthogonal-gemms",
                "weights are split over one level of devices: there is nothing to move",
                declined=True,
            )
            return
        rewrite = _Rewrite(module, mesh, levels, self.uneven, parameters, sink)
        rewrite.weights()
        for layer in layers_of(module):
            rewrite.layer(layer)
        split_streams(module, levels, rewrite.changed, self.uneven, sink)
        for violation in violations(module):
            if violation.op not in rewrite.declined:
                rewrite.decline(violation.op, f"{violation} and the other loops are taken")
        assert not unexplained(module, rewrite.declined)


def _levels_in_use(mesh: Mesh, parameters: ParameterUses) -> TwoLevels | None:
    """The parts of the outer levels and of the inner one that split weights (others divide the
    batch); ``None`` where one of the two is absent."""
    levels = TwoLevels.of(mesh)
    if levels is None:
        return None
    found: list[AxisRef] = []
    for op in parameters.parameters.values():
        sharding = encoding_of(op.type, mesh)
        found += sharding.used_axes() if sharding is not None else ()
    used = mesh.complement(mesh.complement(found))
    outer, inner = levels.outer_of(used), levels.inner_of(used)
    return TwoLevels(outer, inner) if outer and inner else None


@dataclass
class _Rewrite:
    module: ModuleOp
    mesh: Mesh
    levels: TwoLevels
    uneven: bool
    parameters: ParameterUses
    sink: RemarkSink
    chosen: dict[str, Encoding] = field(default_factory=dict[str, Encoding])
    declined: list[Operation] = field(default_factory=list[Operation])
    changed: list[FuncOp] = field(default_factory=list[FuncOp])

    # Weights

    def weights(self) -> None:
        """Chooses the encodings of the weights of all products."""
        for name in self.parameters.parameters:
            users = self.parameters.users(name)
            if not users or not all(
                isinstance(op, LinearOp | EmbeddingOp) and index == 1 for op, index in users
            ):
                continue
            found = self._weight(name, [op for op, _ in users])
            if isinstance(found, Encoding):
                self.chosen[name] = found
            elif found is not None:
                for op, _ in users:
                    self.decline(op, f"@{name}: {found}")

    def _weight(self, name: str, users: list[Operation]) -> Encoding | str | None:
        """The new encoding of a weight, why it keeps its own, or ``None`` where it is orthogonal
        already."""
        type = cast(AnyTensor, self.parameters.parameters[name].type)
        old = encoding_of(type, self.mesh)
        if old is None:
            return None
        rows, columns = old.dims
        k, n = global_shape(type)
        levels = self.levels
        if levels.splits_twice(rows.axes) and not columns.axes:
            dim, sharding, moved = 0, rows, (1, n)
        elif not rows.axes and not any(isinstance(op, EmbeddingOp) for op in users):
            dim, sharding, moved = 1, columns, (0, k)
        else:
            return None
        kept = outer_shards(self.mesh, levels, sharding, (k, n)[dim])
        if kept is None:
            return (
                f"{'KN'[dim]} is split over {sharding}, which is not the outer level's shards cut "
                "further"
            )
        moved_dim, moved_extent = moved
        size = self.mesh.refs_size(levels.inner)
        problem = size_problem(
            f"{'KN'[moved_dim]} of {moved_extent}", moved_extent, size, self.uneven
        )
        if problem is not None:
            return problem
        if any(encoding(op.operands[0], self.mesh).partial is not None for op in users):
            return "its input is a partial sum"
        used = [
            ref
            for op in users
            for sharding in encoding(op.operands[0], self.mesh).dims[:2]
            for ref in sharding.axes
        ]
        if any(self.mesh.overlap(ref, other) for ref in levels.inner for other in used):
            return "the rows of its input are split over the inner level"
        return old.with_dim(dim, kept.axes, kept.map).with_dim(moved_dim, levels.inner)

    # Products

    def layer(self, layer: FuncOp) -> None:
        """Rewrites the products of a layer on their new weights."""
        before = {
            op: gemm
            for op in layer.body.block.ops
            if (gemm := Gemm.of(op, self.mesh)) is not None and self._weight_name(op) in self.chosen
        }
        if not before:
            return
        resharded: dict[tuple[SSAValue, Encoding], SSAValue] = {}
        for op, gemm in before.items():
            name = self._weight_name(op)
            weight = self.chosen[name]
            self.parameters.set_encoding(name, weight)
            self._product(op, weight, resharded)
            self._remark(op, name, gemm)
        refit(layer, self.mesh)
        self.changed.append(layer)

    def _weight_name(self, op: Operation) -> str:
        for name, reads in self.parameters.reads.items():
            if any(op.operands[1] is read.result for read in reads):
                return name
        return ""

    def _product(
        self,
        op: Operation,
        weight: Encoding,
        resharded: dict[tuple[SSAValue, Encoding], SSAValue],
    ) -> None:
        rows, columns = weight.dims
        value = op.operands[0]
        input = encoding(value, self.mesh)
        if isinstance(op, LinearOp):
            input = input.with_dim(2, rows.axes, rows.map)
            key = (value, input)
            if key not in resharded:
                resharded[key] = reshard_before(op, value, input)
            op.operands[0] = resharded[key]
        old = encoding(op.results[0], self.mesh)
        new = Encoding(self.mesh, (*input.dims[:2], columns)).with_partial(
            ReductionKind.SUM, rows.axes
        )
        # Its users get the value it had, combined where it was a partial sum.
        reshard_after(set_encoding(op.results[0], new), old.with_partial(None))

    def _remark(self, op: Operation, name: str, before: Gemm) -> None:
        after = Gemm.of(op, self.mesh)
        assert after is not None
        old, new = dict(before.axes), dict(after.axes)
        tile = {loop: after.local_extent(loop, self.mesh) for loop in "NK"}
        was = {loop: before.local_extent(loop, self.mesh) for loop in "NK"}
        self.sink.remark(
            "orthogonal-gemm",
            f"@{name}: K over {{{axes_text(new['K'])}}} and N over {{{axes_text(new['N'])}}} in "
            f"place of K over {{{axes_text(old['K'])}}} and N over {{{axes_text(old['N'])}}}; a "
            f"device multiplies K = {tile['K']}, N = {tile['N']} in place of K = {was['K']}, "
            f"N = {was['N']}",
            op,
            k=tile["K"],
            n=tile["N"],
            k_before=was["K"],
            n_before=was["N"],
            flops_an_output_ratio=tile["K"] / was["K"],
        )

    def decline(self, op: Operation, why: str) -> None:
        self.declined.append(op)
        self.sink.remark("not-orthogonal", why, op, declined=True)
