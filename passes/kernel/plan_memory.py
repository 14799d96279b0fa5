"""The pass ``plan-memory``: the one bufferisation."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from starc import units
from starc.analysis.memory_report import memory_plan
from starc.core.memory.buffer_kinds import BufferRole
from starc.dialects import nn
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_attributes import symbols
from starc.passes.base import RemarkSink, StarcPass, with_location
from starc.passes.kernel.memory.layer_values import chain_layers, plan_layer, returned
from starc.passes.kernel.memory.placement import place_buffers
from starc.passes.kernel.memory.planned_buffers import BufferTable
from starc.targets.default import MEMORY_UTILIZATION
from starc.targets.target import Target


@dataclass(frozen=True)
class PlanMemory(StarcPass):
    """Values become buffers with layouts and addresses; launches read and write them by name.

    After it no function has arguments, results or values between launches: every
    ``kernel.launch`` names the buffers that it reads and writes, parameters and states are
    ``kernel.buffer`` of their names, and no two buffers that are live at the same time overlap.

    - **Layers chain by buffers.** The functions of the stack run one behind the other, in order of
      their first appearance. A layer's result is the buffer that the next kind takes as its
      argument (embedding, decoder, head); a layer's own argument and result are distinct, so that
      one program runs the kinds one behind the other, and a repeated layer alternates between the
      two. ``kernel.arguments`` and ``kernel.results`` of a function name them; they live to the
      end.
    - **Layouts**: weights of GEMMs in blocks (32 x 64 in bf16) that divide a tile, so that what a
      step reads is as few runs as possible; where accesses take their bytes from channels a row
      narrower than a block is not padded. Embedding tables
      and vectors row-major, caches in blocks of 16 tokens x 128, activations in
      blocks of 32 rows, of all rows where there are fewer and a GEMM reads them, others row-major
      (``starc.core.memory.layout``). Rows that an all-reduce deals out to the GPUs lie so far apart that
      the rows of all GPUs begin on the same memory stack.
    - **States** are updated in place: an append writes new rows of the cache's own buffer, and the
      attention behind it reads that.
    - **Workspaces** of split GEMMs and attentions live during their launch.
    - **Communication**: staging buffers hold what a reduction receives, a slot per step, and live
      to the end, for a peer may write before this device starts the collective. All-reduces of one
      shape and queue share one, since a device ends one only when all its peers have read their slots.
      Buffers that peers write into directly (``symmetric``) live to the end too, except the result
      of an all-reduce: it is written only after every device has contributed to it.
    - **Queues** of launches that merge over memory cubes lie in the scratch memory of every device,
      in the region at its top that the machine keeps for them.
    - A launch on the communication queue may start when its operands are ready and end as late as
      its result is needed; its buffers are live for all of that.

    Whether the whole model fits a partition (weights and caches of all layers) is a remark, not an
    error; ``starc.analysis.memory_report.memory_plan`` has the numbers.

    Before:

    ```mlir
    func.func @f(%x : tensor<2x1x64xbf16>) -> tensor<2x1x64xbf16> {
      %y = kernel.launch @f.silu elementwise (%a = %x : tensor<2x1x64xbf16>) -> (tensor<2x1x64xbf16>) attributes {queue = 0 : i64, tile = array<i64: 1, 64>, grid = array<i64: 2>} {
        %b = nn.silu %a : tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
        kernel.yield %b : tensor<2x1x64xbf16>
      }
      func.return %y : tensor<2x1x64xbf16>
    }
    ```

    After:

    ```mlir
    kernel.buffer @f.x : tensor<2x1x64xbf16> {address = 0 : i64, bytes = 256 : i64, layout = #kernel.layout<row_major>, space = "private", role = "input"}
    kernel.buffer @f.result : tensor<2x1x64xbf16> {address = 8192 : i64, bytes = 256 : i64, layout = #kernel.layout<row_major>, space = "private", role = "output"}
    func.func @f() attributes {kernel.arguments = [@f.x], kernel.results = [@f.result]} {
      kernel.launch @f.silu elementwise reads (%a = @f.x : tensor<2x1x64xbf16>) writes (@f.result) attributes {queue = 0 : i64, tile = array<i64: 1, 64>, grid = array<i64: 2>} {
        %b = nn.silu %a : tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
        kernel.yield %b : tensor<2x1x64xbf16>
      }
      func.return
    }
    ```
    """  # noqa: E501

    name = "plan-memory"

    memory_utilization: float = MEMORY_UTILIZATION

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        queue_bytes = _plan(module, target)
        if queue_bytes:
            sink.remark(
                "queues-planned",
                f"queues take {queue_bytes:,} of the {target.queue_bytes:,} bytes of "
                "scratch memory that are for queues",
                queue_bytes=queue_bytes,
            )
        plan = memory_plan(module, target, self.memory_utilization)
        sink.remark(
            "memory-planned" if plan.fits else "memory-exceeded",
            f"the fullest partition needs {units.size(plan.peak_bytes)} of "
            f"{units.size(plan.usable_bytes)} usable",
            declined=not plan.fits,
            weights_bytes=plan.weights_bytes,
            kv_bytes=plan.kv_bytes,
            activations_bytes=plan.activations_bytes,
            communication_bytes=plan.communication_bytes,
            padding_bytes=plan.padding_bytes,
            max_batch=plan.max_batch,
        )


def _plan(module: ModuleOp, target: Target) -> int:
    """Makes values buffers. Returns the bytes of queues in scratch memory."""
    table = BufferTable(target)
    functions = _functions(module)
    storage = [op for op in module.body.ops if isinstance(op, nn.ParameterOp | nn.StateOp)]
    for op in storage:
        role = BufferRole.WEIGHT if isinstance(op, nn.ParameterOp) else BufferRole.STATE
        table.add(op.sym_name.data, op.type, role, op)
    chain_layers(table, functions)
    for function in functions:
        plan_layer(table, function)
    anchor = functions[0] if functions else module
    queue_bytes = place_buffers(module, anchor, list(table.by_name.values()), target)
    for function in functions:
        _name_buffers(table, function)
    for op in storage:
        op.detach()
        op.erase()
    return queue_bytes


def _functions(module: ModuleOp) -> list[FuncOp]:
    """The functions in the order in which their kinds first run."""
    found = {
        op.sym_name.data: op
        for op in module.body.ops
        if isinstance(op, FuncOp) and not op.is_declaration
    }
    stacks = [op for op in module.body.ops if isinstance(op, nn.StackOp)]
    names = dict.fromkeys(name for stack in stacks for name, _ in stack.entries)
    return [found[name] for name in (*names, *(n for n in found if n not in names))]


def _name_buffers(table: BufferTable, function: FuncOp) -> None:
    """Replaces the values of a function by the names of their buffers."""
    block = function.body.block
    terminator = block.last_op
    assert terminator is not None
    arguments = [table.of_value[argument].name for argument in block.args]
    results = [table.of_value[value].name for value in returned(function)]
    terminator.operands = []
    for op in reversed(list(block.ops)):
        if isinstance(op, LaunchOp):
            block.insert_op_after(_over_buffers(table, op), op)
        if isinstance(op, LaunchOp | nn.ReadOp):
            op.detach()
            op.erase(safe_erase=False)
    for argument in reversed(list(block.args)):
        block.erase_arg(argument)
    function.properties["function_type"] = FunctionType.from_lists([], [])
    function.attributes["kernel.arguments"] = symbols(arguments)
    function.attributes["kernel.results"] = symbols(results)


def _over_buffers(table: BufferTable, launch: LaunchOp) -> LaunchOp:
    """A launch that reads and writes the buffers of its values."""
    properties: dict[str, Attribute] = dict(launch.properties)
    properties["reads"] = symbols(table.of_value[value].name for value in launch.inputs)
    properties["writes"] = symbols(table.of_value[value].name for value in launch.results)
    body = launch.detach_region(launch.body)
    new = LaunchOp(launch.sym_name.data, launch.kind.data, [], body, properties=properties)
    new.attributes.update(launch.attributes)
    return with_location(new, launch)
