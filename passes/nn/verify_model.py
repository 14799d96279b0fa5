"""``verify-model``: is the plan legal for this model and machine?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from starc.analysis.tensor_parallel import (
    Demand,
    divide_mesh,
    legal_sizes,
    plan_tensor_parallelism,
)
from starc.core.sharding.mesh import Mesh
from starc.core.sharding.shard_map import CONTIGUOUS
from starc.diagnostics import Diagnostic, InputError, counted
from starc.dialects.locations import location_of
from starc.dialects.sharding import AnyTensor
from starc.passes.base import RemarkSink, StarcPass
from starc.targets.target import Target


@dataclass(frozen=True)
class VerifyModelPass(StarcPass):
    """Refuses a model that the devices cannot share, and says which sizes they could.

    Contract: after this pass, ``assign-tensor-parallel`` with the same options gives every device
    an equal share: the tensor-parallel size divides the devices; it divides every dimension that is
    split (heads, MLP columns, vocabulary), and divides the KV heads or is a multiple of them; the
    remaining devices divide the batch. On a mesh with several axes a level a dimension that the
    devices do not divide is split over the axes that divide it, and devices along the others keep
    the same piece. Every violated rule is reported, in one ``InputError``. With ``uneven`` only the
    first rule refuses a model; of every other one that is violated a remark tells the shares. The
    module is not changed.

    Before, for 64 devices:

    ```mlir
    nn.parameter @decoder.gate : tensor<64x128xbf16>
    func.func @decoder(%x : tensor<1x1x64xbf16>) -> tensor<1x1x128xbf16> {
      %w = nn.read @decoder.gate : tensor<64x128xbf16>
      %y = nn.linear %x, %w : tensor<1x1x64xbf16>, tensor<64x128xbf16> -> tensor<1x1x128xbf16>
      func.return %y : tensor<1x1x128xbf16>
    }
    ```

    After, unchanged:

    ```mlir
    nn.parameter @decoder.gate : tensor<64x128xbf16>
    func.func @decoder(%x : tensor<1x1x64xbf16>) -> tensor<1x1x128xbf16> {
      %w = nn.read @decoder.gate : tensor<64x128xbf16>
      %y = nn.linear %x, %w : tensor<1x1x64xbf16>, tensor<64x128xbf16> -> tensor<1x1x128xbf16>
      func.return %y : tensor<1x1x128xbf16>
    }
    ```

    With 96 columns instead::

        error: 96 columns of @decoder.gate cannot be split over 64 devices
          hint: 96 columns of @decoder.gate allow --tensor-parallel-size 1, 2, 4, 8, 16, 32, or any
          with --uneven
    """

    name = "verify-model"
    only_checks = True

    tensor_parallel_size: int | None = None
    """Devices that share a layer; all of them by default."""
    uneven: bool = False
    """Whether devices may have shares of different size."""

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        rules = _Rules.of(module, target)
        size = rules.devices if self.tensor_parallel_size is None else self.tensor_parallel_size
        if size < 1 or rules.devices % size:
            raise InputError(
                Diagnostic(
                    f"tensor-parallel size {size} does not divide the {rules.devices} devices of "
                    f"{target.name}",
                    key="--tensor-parallel-size",
                    hint=_sizes("the model and machine allow", rules.legal),
                )
            )
        diagnostics = rules.problems(size)
        if self.uneven:
            _tell_shares(rules.demands, rules.batches, size, target, sink)
        elif diagnostics:
            raise InputError(diagnostics)
        replicas = rules.devices // size
        sink.remark(
            "plan-is-legal",
            "every device has a layer and a batch of its own"
            if size == replicas == 1
            else f"layers are split over {counted(size, 'device')}, the batch over "
            f"{counted(replicas, 'replica')}",
            tensor_parallel_size=size,
            data_parallel_size=replicas,
        )


@dataclass(frozen=True)
class _Rules:
    """What must divide over ``devices``: the heads and columns of ``demands`` over those that share
    a layer, ``batches`` over the replicas. Where pieces may be ``shared`` several devices keep the
    same one."""

    devices: int
    shared: bool
    demands: list[Demand]
    batches: list[int]

    @classmethod
    def of(cls, module: ModuleOp, target: Target) -> _Rules:
        mesh = Mesh.from_rows("node", target.mesh)
        demands = plan_tensor_parallelism(module).demands
        return cls(mesh.size, mesh.is_nested, demands, _batches(module))

    @cached_property
    def legal(self) -> list[int]:
        """The tensor-parallel sizes that satisfy all demands."""
        return self._legal(self.demands)

    def _legal(self, demands: Sequence[Demand]) -> list[int]:
        return legal_sizes(
            self.devices, lambda size: all(self._allows(demand, size) for demand in demands)
        )

    def _allows(self, demand: Demand, size: int) -> bool:
        return demand.split.allows(size, shared=self.shared)

    def problems(self, size: int) -> list[Diagnostic]:
        """Everything that does not divide with a tensor-parallel size, each with what would."""
        found: list[Diagnostic] = []
        for demand in self.demands:
            if not self._allows(demand, size):
                what = f"{demand.split.units} {demand.what} allow"
                hint = _or_uneven(_sizes(what, self._legal([demand])))
                found.append(Diagnostic(_refusal(demand, size), location_of(demand.op), hint=hint))
        if len(found) > 1:
            together = _sizes("all rules together allow", self.legal)
            found.append(Diagnostic(together, severity="note"))
        replicas = self.devices // size
        for batch in self.batches:
            if batch % replicas:
                message = (
                    f"batch {batch} cannot be divided over {replicas} data-parallel replicas "
                    f"({self.devices} devices / tensor-parallel size {size})"
                )
                hint = _or_uneven(_batch_hint(batch, self.devices, self.legal, replicas))
                found.append(Diagnostic(message, hint=hint))
        return found


def _tell_shares(
    demands: list[Demand], batches: list[int], size: int, target: Target, sink: RemarkSink
) -> None:
    """Remarks on everything that the devices do not share evenly."""
    mesh = Mesh.from_rows("node", target.mesh)
    tensor_axes, batch_axes = divide_mesh(mesh, size)
    for demand in demands:
        shares = demand.split.shares(mesh, tensor_axes)
        if min(shares) != max(shares):
            _tell_share(f"{demand.split.units} {demand.what}", shares, sink, demand.op)
    replicas = mesh.refs_size(batch_axes)
    for batch in batches:
        if batch % replicas:
            shares = tuple(CONTIGUOUS.count(rank, replicas, batch) for rank in range(replicas))
            _tell_share(f"a batch of {batch}", shares, sink, None)


def _tell_share(what: str, shares: tuple[int, ...], sink: RemarkSink, op: Operation | None) -> None:
    devices, empty = len(shares), shares.count(0)
    text = f"{what} over {devices} ranks: {max(shares)} at most, {min(shares)} at least"
    sink.remark(
        "uneven-shares",
        text + (f", {counted(empty, 'rank')} without any" if empty else ""),
        op,
        largest=max(shares),
        smallest=min(shares),
        empty=empty,
    )


def _or_uneven(hint: str) -> str:
    return f"{hint}, or any with --uneven"


def _refusal(demand: Demand, size: int) -> str:
    split = demand.split
    if split.replicable:
        return (
            f"{split.units} {demand.what} can neither be split over nor replicated evenly on "
            f"{size} devices: neither is a multiple of the other"
        )
    return f"{split.units} {demand.what} cannot be split over {size} devices"


def _sizes(allows: str, sizes: list[int]) -> str:
    return f"{allows} --tensor-parallel-size {', '.join(str(size) for size in sizes)}"


def _batch_hint(batch: int, devices: int, sizes: list[int], replicas: int) -> str:
    fitting = [size for size in sizes if batch % (devices // size) == 0]
    if fitting:
        return _sizes(f"batch {batch} allows", fitting)
    return f"use a batch that is a multiple of {replicas}, or fewer devices"


def _batches(module: ModuleOp) -> list[int]:
    """The sizes of the first dimension of layer inputs, each once."""
    found: dict[int, None] = {}
    for op in module.body.ops:
        if isinstance(op, FuncOp) and op.body.blocks:
            for type in op.body.block.arg_types:
                if isinstance(type, TensorType) and type.get_num_dims() > 0:
                    found[cast(AnyTensor, type).get_shape()[0]] = None
    return list(found)
