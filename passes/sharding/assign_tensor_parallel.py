"""``assign-tensor-parallel``: the plan of today's serving engines, as encodings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, BlockArgument, Operation
from xdsl.rewriter import Rewriter

from starc.analysis.tensor_parallel import Split, Splits, divide_mesh, plan_tensor_parallelism
from starc.core.sharding.encoding import DimSharding, Encoding
from starc.core.sharding.mesh import AxisRef, Mesh, axes_text
from starc.diagnostics import Diagnostic, InputError, counted
from starc.dialects.locations import location_of
from starc.dialects.nn import ParameterOp, StateOp
from starc.dialects.sharding import AnyTensor, MeshOp, global_type
from starc.passes.base import RemarkSink, StarcPass
from starc.targets.target import Target

MESH_NAME = "node"


@dataclass(frozen=True)
class AssignTensorParallelPass(StarcPass):
    """Gives every parameter, state and layer argument its encoding under one-dimensional tensor
    parallelism, as vLLM and Megatron-LM place them.

    The mesh of the target becomes the module's ``sharding.mesh``. The ``tensor-parallel-size``
    devices that share a layer are the inner axes of the mesh, flattened, the outer rest divides the
    batch. Weights are split by columns or rows as ``starc.analysis.tensor_parallel`` derives it, KV
    caches by KV heads as far as the outer axes divide them, and replicated over the rest.

    Contract: after this pass every ``nn.parameter``, every ``nn.state`` and every argument of a
    layer has an encoding; no other type has. Needs a plan that ``verify-model`` accepts. Where
    ``uneven`` makes it accept more, shares differ: columns and sequences are cut into blocks of
    which the last may be smaller or empty, heads by whole KV groups or, where devices share a KV
    head, its query heads among them, with the boundaries written out. On a mesh with several axes a
    level a dimension is split over the axes that divide it, and devices along the others keep the
    same piece.

    Before, for 8 x 8 devices:

    ```mlir
    nn.parameter @decoder.up : tensor<64x256xbf16>
    nn.parameter @decoder.down : tensor<256x64xbf16>
    func.func @decoder(%x : tensor<2x1x64xbf16>) -> tensor<2x1x64xbf16> {
      %0 = nn.read @decoder.up : tensor<64x256xbf16>
      %1 = nn.linear %x, %0
        : tensor<2x1x64xbf16>, tensor<64x256xbf16> -> tensor<2x1x256xbf16>
      %2 = nn.read @decoder.down : tensor<256x64xbf16>
      %3 = nn.linear %1, %2
        : tensor<2x1x256xbf16>, tensor<256x64xbf16> -> tensor<2x1x64xbf16>
      func.return %3 : tensor<2x1x64xbf16>
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    nn.parameter @decoder.up : tensor<64x256xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
    nn.parameter @decoder.down : tensor<256x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
    func.func @decoder(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>)
        -> tensor<2x1x64xbf16> {
      %0 = nn.read @decoder.up : tensor<64x256xbf16>
      %1 = nn.linear %x, %0
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<64x256xbf16>
        -> tensor<2x1x256xbf16>
      %2 = nn.read @decoder.down : tensor<256x64xbf16>
      %3 = nn.linear %1, %2
        : tensor<2x1x256xbf16>, tensor<256x64xbf16> -> tensor<2x1x64xbf16>
      func.return %3 : tensor<2x1x64xbf16>
    }
    ```
    """

    name = "assign-tensor-parallel"

    tensor_parallel_size: int | None = None
    """Devices that share a layer; all of them by default."""

    uneven: bool = False
    """Whether devices may have shares of different size."""

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        mesh = Mesh.from_rows(MESH_NAME, target.mesh)
        size = mesh.size if self.tensor_parallel_size is None else self.tensor_parallel_size
        if size < 1 or mesh.size % size:
            raise InputError(
                Diagnostic(
                    f"tensor-parallel size {size} does not divide the {mesh.size} devices",
                    key="--tensor-parallel-size",
                )
            )
        tensor_axes, batch_axes = divide_mesh(mesh, size)
        plan = plan_tensor_parallelism(module)
        placement = _Placement(mesh, tensor_axes, batch_axes, self.uneven)
        _insert_mesh(module, mesh)
        for op in module.body.ops:
            if isinstance(op, ParameterOp):
                _place_parameter(op, plan.symbols.get(op.sym_name.data, {}), placement, sink)
            elif isinstance(op, StateOp):
                _place_state(op, plan.symbols.get(op.sym_name.data, {}), placement, sink)
            elif isinstance(op, FuncOp) and op.body.blocks:
                _place_arguments(op, plan.arguments, placement)
        sink.remark(
            "tensor-parallel-plan",
            f"weights are split over {{{axes_text(tensor_axes)}}}, "
            + (
                f"the batch over {{{axes_text(batch_axes)}}}"
                if batch_axes
                else "the batch is whole"
            ),
            tensor_parallel_size=size,
            data_parallel_size=mesh.size // size,
        )


@dataclass(frozen=True)
class _Placement:
    """Turns the dimensions that a plan splits into encodings on a mesh."""

    mesh: Mesh
    tensor_axes: tuple[AxisRef, ...]
    batch_axes: tuple[AxisRef, ...]
    uneven: bool

    def sharding(self, split: Split, op: Operation | None = None) -> DimSharding:
        """How the pieces of a dimension are shared; ``op`` is where an error is."""
        if self.uneven:
            return split.sharding(self.mesh, self.tensor_axes)
        size = self.mesh.refs_size(self.tensor_axes)
        if not split.allows(size, shared=self.mesh.is_nested):
            raise _not_even(f"{split.units} heads or columns", size, op)
        return DimSharding(split.axes(self.mesh, self.tensor_axes))

    def axes(self, split: Split | None) -> tuple[AxisRef, ...]:
        return self.sharding(split).axes if split is not None else ()

    def replication(self, splits: Splits) -> int:
        """How many devices of a replica hold the same piece of a cache."""
        used = self.mesh.refs_size(self.axes(splits.get(1)))
        return self.mesh.refs_size(self.tensor_axes) // used

    def replication_of(self, splits: Splits) -> int:
        """How many devices of a replica hold the same piece of what is split; 1 of what is not."""
        if not splits:
            return 1
        used = [ref for split in splits.values() for ref in self.axes(split)]
        return self.mesh.refs_size(self.tensor_axes) // self.mesh.refs_size(used)

    def type(self, type: Attribute, splits: Splits, op: Operation, *, batched: bool) -> AnyTensor:
        tensor = cast(AnyTensor, type)
        encoding = Encoding.replicated(self.mesh, tensor.get_num_dims())
        if batched:
            replicas, batch = self.mesh.refs_size(self.batch_axes), tensor.get_shape()[0]
            if batch % replicas and not self.uneven:
                raise _not_even(f"a batch of {batch}", replicas, op)
            encoding = encoding.with_dim(0, self.batch_axes)
        for dim, split in splits.items():
            sharding, block = self.sharding(split, op), tensor.get_shape()[dim] // split.units
            ranks = self.mesh.refs_size(sharding.axes)
            shard_map = sharding.map.of_blocks(block, ranks, split.units)
            encoding = encoding.with_dim(dim, sharding.axes, shard_map)
        return global_type(tensor, encoding)


def _not_even(what: str, ranks: int, op: Operation | None) -> InputError:
    return InputError(
        Diagnostic(
            f"{what} cannot be split evenly over {ranks} ranks",
            location_of(op) if op is not None else None,
            hint="run verify-model for the sizes that are possible, or allow any with --uneven",
        )
    )


def _insert_mesh(module: ModuleOp, mesh: Mesh) -> None:
    """Puts the mesh first in the module, in place of one that is there."""
    for op in list(module.body.ops):
        if isinstance(op, MeshOp):
            op.detach()
            op.erase()
    first = module.body.block.first_op
    op = MeshOp(mesh)
    if first is None:
        module.body.block.add_op(op)
        return
    op.location = first.location
    module.body.block.insert_op_before(op, first)


def _place_parameter(
    op: ParameterOp, splits: Splits, placement: _Placement, sink: RemarkSink
) -> None:
    op.properties["type"] = placement.type(op.properties["type"], splits, op, batched=False)
    copies = placement.replication_of(splits)
    if placement.mesh.is_nested and copies > 1:
        axes = [ref for split in splits.values() for ref in placement.axes(split)]
        sink.remark(
            "shared-pieces",
            f"@{op.sym_name.data} is split over {{{axes_text(axes)}}} alone, each is "
            f"stored {counted(copies, 'time')}",
            op,
            replication=copies,
        )


def _place_state(op: StateOp, splits: Splits, placement: _Placement, sink: RemarkSink) -> None:
    op.properties["type"] = placement.type(op.properties["type"], splits, op, batched=True)
    axes = placement.axes(splits.get(1))
    where = f"are split over {{{axes_text(axes)}}}" if axes else "are not split"
    sink.remark(
        "kv-placement",
        f"@{op.sym_name.data}: KV heads {where}, each is stored "
        f"{counted(placement.replication(splits), 'time')}",
        op,
        replication=placement.replication(splits),
    )


def _place_arguments(
    layer: FuncOp, arguments: dict[BlockArgument, Splits], placement: _Placement
) -> None:
    block = layer.body.block
    for argument in block.args:
        old: Attribute = argument.type
        if isinstance(old, TensorType):
            new = placement.type(
                cast(AnyTensor, old), arguments.get(argument, {}), layer, batched=True
            )
            Rewriter.replace_value_with_new_type(argument, new)
    # An argument may be a result too.
    end = block.last_op
    outputs = end.operand_types if isinstance(end, ReturnOp) else layer.function_type.outputs
    layer.function_type = FunctionType.from_lists(list(block.arg_types), list(outputs))
