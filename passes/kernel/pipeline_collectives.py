"""``pipeline-collectives``: the phases of an exchange become one launch that works on parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from starc.analysis.sharding_rules import module_mesh
from starc.core.collectives.cost import CollectiveTime, collective_time, pipelined, strides_of
from starc.core.kernel_schedules.residency import WAVES
from starc.core.sharding.mesh import Mesh, axes_text
from starc.diagnostics import counted
from starc.dialects.collective import CollectiveOp
from starc.dialects.collective_payload import payload_bytes
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_attributes import YieldOp
from starc.dialects.kernel_kinds import LaunchKind
from starc.kernel_bodies.context import on_engines
from starc.passes.base import RemarkSink, StarcPass, with_location
from starc.targets.target import Target


@dataclass(frozen=True)
class PipelineCollectivesPass(StarcPass):
    """Joins launches of collectives that follow each other into one that cuts the data in parts.

    The phases of a hierarchical all-reduce use different links: while the first part is exchanged
    between GPUs, the second is reduced inside. One launch holds the chain, and its ``chunks`` say
    in how many parts the data goes through it: as many as make the estimate smallest. Each part
    pays the latencies of all phases again, so small exchanges stay launches of their own, one
    behind the other; the estimates of both stand in a remark.

    A chain is two or more collective launches of one operation each, of which every one reads all
    results of the one before and nothing else, and nobody else reads those.

    Contract: the values are what they were; a launch of several collectives has ``chunks``. Needs
    ``form-kernels`` and ``select-collective-algorithm``.

    Before:

    ```mlir
    // options: {most=4}
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @f(%x : tensor<1x4096x8192xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}, global = [1, 4096, 8192]>>) -> tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4096, 8192]>> {
      %0 = kernel.launch @f.reduce_scatter collective (%1 = %x : tensor<1x4096x8192xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}, global = [1, 4096, 8192]>>) -> (tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}, global = [1, 4096, 8192]>>) {
        %2 = collective.reduce_scatter %1 on @node axes = ["xcd"] reduction = sum dim = 2 {algorithm = "direct", transport = "device_put"} : tensor<1x4096x8192xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}, global = [1, 4096, 8192]>> -> tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}, global = [1, 4096, 8192]>>
        kernel.yield %2 : tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}, global = [1, 4096, 8192]>>
      }
      %3 = kernel.launch @f.all_reduce collective (%4 = %0 : tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}, global = [1, 4096, 8192]>>) -> (tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4096, 8192]>>) {
        %5 = collective.all_reduce %4 on @node axes = ["gpu"] reduction = sum {algorithm = "two_shot", transport = "device_put"} : tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}, global = [1, 4096, 8192]>> -> tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4096, 8192]>>
        kernel.yield %5 : tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4096, 8192]>>
      }
      func.return %3 : tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4096, 8192]>>
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @f(%x : tensor<1x4096x8192xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}, global = [1, 4096, 8192]>>) -> tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4096, 8192]>> {
      %0 = kernel.launch @f.reduce_scatter_all_reduce collective (%1 = %x : tensor<1x4096x8192xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}, global = [1, 4096, 8192]>>) -> (tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4096, 8192]>>) attributes {chunks = 4 : i64} {
        %2 = collective.reduce_scatter %1 on @node axes = ["xcd"] reduction = sum dim = 2 {algorithm = "direct", transport = "device_put"} : tensor<1x4096x8192xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}, global = [1, 4096, 8192]>> -> tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}, global = [1, 4096, 8192]>>
        %3 = collective.all_reduce %2 on @node axes = ["gpu"] reduction = sum {algorithm = "two_shot", transport = "device_put"} : tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}, global = [1, 4096, 8192]>> -> tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4096, 8192]>>
        kernel.yield %3 : tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4096, 8192]>>
      }
      func.return %0 : tensor<1x4096x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4096, 8192]>>
    }
    ```
    """  # noqa: E501

    name = "pipeline-collectives"

    most: int = 64
    """Parts at most."""

    parts: int = 0
    """Parts, whatever the estimate; 0 takes what it says."""

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        for function in module.body.ops:
            if isinstance(function, FuncOp) and not function.is_declaration:
                for chain in _chains(function.body.block, target):
                    self._join(chain, module_mesh(module), target, sink)

    def _join(
        self, chain: Sequence[LaunchOp], mesh: Mesh, target: Target, sink: RemarkSink
    ) -> None:
        ops = [_collective(launch) for launch in chain]
        times = [_time(op, mesh, target) for op in ops]
        apart = sum(time.seconds for time in times)
        apart += (len(chain) - 1) * target.kernel_gap_ps * 1e-12
        counts = [self.parts] if self.parts else [1 << n for n in range(self.most.bit_length())]
        parts = min(counts, key=lambda count: pipelined(times, count).seconds)
        together = pipelined(times, parts).seconds
        steps = ", ".join(
            f"{op.KIND} over {{{axes_text(op.axes.data)}}} {time.seconds * 1e6:.1f} us"
            for op, time in zip(ops, times, strict=True)
        )
        slots = target.dies_per_device * target.cus_per_die
        slots *= min(target.max_workgroups_per_cu, target.max_waves_per_cu // WAVES)
        gains = self.parts > 1 or (parts > 1 and together < apart)
        text = (
            f"{payload_bytes(ops[0]):,} bytes through {steps}: {apart * 1e6:.1f} us one after the "
            f"other with the gaps between them, {together * 1e6:.1f} us in {parts} parts"
        )
        if gains and len(chain) > slots:
            # A workgroup of each phase at least, all of them at work together.
            gains = False
            text += f", but a device has room for {counted(slots, 'workgroup')}"
        sink.remark(
            "collectives-pipelined",
            text if gains else f"{text}; they stay launches of their own",
            chain[0],
            declined=not gains,
            parts=parts,
            pipelined_us=together * 1e6,
            apart_us=apart * 1e6,
        )
        if gains:
            _merge(chain, parts)


def _collective(launch: LaunchOp) -> CollectiveOp:
    (op,) = [op for op in launch.block.ops if isinstance(op, CollectiveOp)]
    return op


def _time(op: CollectiveOp, mesh: Mesh, target: Target) -> CollectiveTime:
    algorithm = op.algorithm.data if op.algorithm is not None else "ring"
    transport = op.transport.data if op.transport is not None else "bulk"
    axes = op.axes.data
    strides = strides_of(algorithm, mesh, axes, target)
    return collective_time(
        op.KIND,
        algorithm,
        transport,
        payload_bytes(op),
        mesh,
        axes,
        target,
        strides if op.rings is not None else (1,),
        operands=len(op.inputs),
    )


def _chains(block: Block, target: Target) -> list[list[LaunchOp]]:
    """Launches of collectives that hand on all they compute, longest chains first met."""
    chains: list[list[LaunchOp]] = []
    taken: set[LaunchOp] = set()
    for op in block.ops:
        if not isinstance(op, LaunchOp) or op in taken or not _is_exchange(op, target):
            continue
        chain = [op]
        while (following := _next(chain[-1], target)) is not None:
            chain.append(following)
        taken.update(chain)
        if len(chain) > 1:
            chains.append(chain)
    return chains


def _is_exchange(launch: LaunchOp, target: Target) -> bool:
    """Whether a launch is one collective by which compute units move data between devices."""
    ops = [op for op in launch.block.ops if not isinstance(op, YieldOp)]
    if launch.kind.data != LaunchKind.COLLECTIVE or len(ops) != 1 or on_engines(launch, target):
        return False
    (op,) = ops
    return isinstance(op, CollectiveOp) and op.KIND.moves_data and launch.chunks is None


def _next(launch: LaunchOp, target: Target) -> LaunchOp | None:
    """The launch that takes over all results of one, and nothing else."""
    users = {use.operation for value in launch.results for use in value.uses}
    if len(users) != 1:
        return None
    (user,) = users
    if not isinstance(user, LaunchOp) or not _is_exchange(user, target):
        return None
    if list(user.inputs) != list(launch.results):
        return None
    return user


def _merge(chain: Sequence[LaunchOp], parts: int) -> LaunchOp:
    first, last = chain[0], chain[-1]
    block = Block(arg_types=[value.type for value in first.inputs])
    values: list[SSAValue] = list(block.args)
    for inner, outer in zip(block.args, first.block.args, strict=True):
        inner.name_hint = outer.name_hint
    for launch in chain:
        terminator = launch.block.last_op
        assert isinstance(terminator, YieldOp)
        for argument, value in zip(launch.block.args, values, strict=True):
            argument.replace_all_uses_with(value)
        values = list(terminator.operands)
        terminator.detach()
        terminator.erase()
        for op in list(launch.block.ops):
            op.detach()
            block.add_op(op)
    block.add_op(YieldOp(*values))
    name = last.sym_name.data
    if not name.startswith(first.sym_name.data):
        following = [op.KIND for op in block.ops if isinstance(op, CollectiveOp)][1:]
        name = "_".join((first.sym_name.data, *following))
    joined = LaunchOp(
        name,
        LaunchKind.COLLECTIVE.value,
        list(first.inputs),
        Region(block),
        result_types=[value.type for value in last.results],
        properties={"chunks": IntegerAttr(parts, i64)},
    )
    Rewriter.insert_op(with_location(joined, first), InsertPoint.before(last))
    for old, new in zip(last.results, joined.results, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    for launch in reversed(chain):
        launch.detach()
        launch.erase()
    return joined
