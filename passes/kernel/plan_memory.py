"""The pass ``plan-memory``: the one bufferisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd, prod
from typing import cast

from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from starc import units
from starc.analysis.memory_report import memory_plan
from starc.core.kernel_schedules.attention_problem import AttentionProblem
from starc.core.kernel_schedules.gemm_problem import GemmProblem
from starc.core.kernel_schedules.ring_prefill import SLOTS
from starc.core.memory.layout import (
    BLOCKED_ROWS,
    Layout,
    activation_layout,
    blocked,
    cache_layout,
    matrix_layout,
    row_layout,
    row_major,
)
from starc.core.memory.planning import (
    GRANULE,
    Request,
    plan_addresses,
    plan_queues,
    rotation_unit,
)
from starc.core.tiling import ceil_div, power_of_two_divisor, row_tiling
from starc.diagnostics import Diagnostic, InputError
from starc.dialects import nn
from starc.dialects.collective import AllGatherOp, AllReduceOp, CollectiveOp, ReduceScatterOp
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_attributes import symbols
from starc.dialects.kernel_buffers import SCRATCH_ALIGNMENT, BufferOp, element_bytes
from starc.dialects.kernel_fusion import (
    Merging,
    gemm_parts,
    is_fused,
    merging_of,
    owned_columns,
    pulled,
    summed_rows,
)
from starc.dialects.kernel_problems import (
    AnyTensor,
    CollectiveProblem,
    attention_of,
    pieces_of,
    problem_of,
    tensor,
)
from starc.dialects.locations import location_of
from starc.dialects.sharding import mesh_of
from starc.kernel_bodies.attention.cube_reduction import CubeReduction
from starc.kernel_bodies.collectives.plan import is_planned, plan_of
from starc.passes.base import RemarkSink, StarcPass, with_location
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

    memory_utilization: float = 0.9

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        planner = _Planner(module, target)
        planner.plan()
        if planner.queue_bytes:
            sink.remark(
                "queues-planned",
                f"queues take {planner.queue_bytes:,} of the {target.queue_bytes:,} bytes of "
                "scratch memory that are for queues",
                queue_bytes=planner.queue_bytes,
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


@dataclass
class _Buffer:
    """A buffer before it has an address."""

    name: str
    type: AnyTensor
    role: str
    origin: Operation
    space: str = "private"
    memory: str = "hbm"
    first: int = 0
    last: int | None = 0
    steps: set[int] = field(default_factory=set[int])  # widths of the tiles that GEMMs read of it
    heights: set[int] = field(default_factory=set[int])  # of a weight: K steps
    gpu_rows: int = 0  # rows that one GPU of an exchange owns, 0 where none owns whole rows
    layout: Layout | None = None

    def touch(self, step: int) -> None:
        if self.last is not None:
            self.last = max(self.last, step)


ORDER = ("weight", "state", "communication", "input", "output", "activation")


class _Planner:
    def __init__(self, module: ModuleOp, target: Target) -> None:
        self.module = module
        self.target = target
        self.granule = target.interleave_granule
        self.stacks = target.stacks // target.memory_domains
        self.buffers: dict[str, _Buffer] = {}
        self.of_value: dict[SSAValue, _Buffer] = {}
        self.shared_staging: dict[tuple[AnyTensor, int], str] = {}
        self.step = 0
        self.queue_bytes = 0

    def plan(self) -> None:
        functions = self._functions()
        storage = [op for op in self.module.body.ops if isinstance(op, nn.ParameterOp | nn.StateOp)]
        for op in storage:
            role = "weight" if isinstance(op, nn.ParameterOp) else "state"
            self._add(op.sym_name.data, op.type, role, op, pinned=True)
        self._chain(functions)
        for function in functions:
            self._function(function)
        for buffer in self.buffers.values():
            if buffer.layout is None:
                buffer.layout = self._layout(buffer)
        self._place(functions)
        for function in functions:
            self._rewrite(function)
        for op in storage:
            op.detach()
            op.erase()

    def _functions(self) -> list[FuncOp]:
        """The functions in the order in which their kinds first run."""
        found = {
            op.sym_name.data: op
            for op in self.module.body.ops
            if isinstance(op, FuncOp) and not op.is_declaration
        }
        stacks = [op for op in self.module.body.ops if isinstance(op, nn.StackOp)]
        names = dict.fromkeys(name for stack in stacks for name, _ in stack.entries)
        return [found[name] for name in (*names, *(n for n in found if n not in names))]

    def _add(
        self, name: str, type: AnyTensor, role: str, origin: Operation, *, pinned: bool
    ) -> _Buffer:
        unique, number = name, 1
        while unique in self.buffers:
            number += 1
            unique = f"{name}_{number}"
        last = None if pinned else self.step
        buffer = _Buffer(unique, type, role, origin, first=0 if pinned else self.step, last=last)
        self.buffers[unique] = buffer
        return buffer

    # Arguments and results

    def _chain(self, functions: list[FuncOp]) -> None:
        results: list[_Buffer] = []
        for number, function in enumerate(functions):
            layer = function.sym_name.data
            linked = list(results)
            for index, argument in enumerate(function.body.block.args):
                type = tensor(argument)
                match = linked[index] if index < len(linked) else None
                if match is None or match.type != type:
                    name = f"{layer}.{argument.name_hint or f'argument{index}'}"
                    match = self._add(name, type, "input", function, pinned=True)
                self.of_value[argument] = match
            terminator = function.body.block.last_op
            assert isinstance(terminator, ReturnOp)
            results = []
            is_last = number == len(functions) - 1 or not self._follows(functions, number)
            for index, value in enumerate(terminator.operands):
                if value in self.of_value:  # an argument, or a value that is returned twice
                    results.append(self.of_value[value])
                    continue
                suffix = f"result{index}" if len(terminator.operands) > 1 else "result"
                role = "output" if is_last else "activation"
                buffer = self._add(f"{layer}.{suffix}", tensor(value), role, function, pinned=True)
                self.of_value[value] = buffer
                results.append(buffer)

    def _follows(self, functions: list[FuncOp], number: int) -> bool:
        """Whether the next function takes this one's results."""
        terminator = functions[number].body.block.last_op
        assert terminator is not None
        types = [value.type for value in terminator.operands]
        return types == [argument.type for argument in functions[number + 1].body.block.args]

    # Values of a function

    def _function(self, function: FuncOp) -> None:
        launches: list[LaunchOp] = []
        ready: dict[SSAValue, int] = {}
        for op in function.body.block.ops:
            if isinstance(op, nn.ReadOp):
                self.of_value[op.result] = self.buffers[op.parameter.string_value()]
            elif isinstance(op, LaunchOp):
                self.step += 1
                self._launch(op, ready)
                launches.append(op)
        # A launch of the communication queue may run until the first one that needs its result.
        first_step = self.step - len(launches) + 1
        position = {launch: first_step + index for index, launch in enumerate(launches)}
        for launch in launches:
            if launch.integer("queue", 0) == 0:
                continue
            users = [position.get(use.operation) for r in launch.results for use in r.uses]  # pyright: ignore
            end = min((user for user in users if user is not None), default=self.step)
            start = max(ready.get(value, first_step - 1) for value in launch.inputs) + 1
            for value in (*launch.inputs, *launch.results):
                self.of_value[value].touch(end)
            for value in launch.results:
                buffer = self.of_value[value]
                buffer.first = min(buffer.first, start)

    def _launch(self, launch: LaunchOp, ready: dict[SSAValue, int]) -> None:
        for value in launch.inputs:
            self.of_value[value].touch(self.step)
        for index, (value, inner) in enumerate(zip(launch.results, launch.yielded, strict=True)):
            ready[value] = self.step
            owner = inner.owner
            if isinstance(owner, nn.AppendOp):
                self.of_value[value] = self.buffers[owner.state.string_value()]
            elif value not in self.of_value:
                suffix = f"out{index}" if len(launch.results) > 1 else "out"
                name = f"{launch.sym_name.data}.{suffix}"
                self.of_value[value] = self._add(
                    name, tensor(value), "activation", launch, pinned=False
                )
        problem = problem_of(launch)
        if isinstance(problem, GemmProblem):
            self._gemm(launch)
        elif isinstance(problem, AttentionProblem):
            self._attention(launch, problem)
        elif isinstance(problem, CollectiveProblem):
            self._communication(launch, problem)

    def _ring(self, launch: LaunchOp) -> None:
        """The slots of keys that go around, and the state of query rows that are several tiles."""
        name = launch.sym_name.data
        op = attention_of(launch)
        cache = tensor(cast(AllGatherOp, op.key.owner).inputs[0])
        batch, _, positions, head_dim = cache.get_shape()
        del batch
        shape = [launch.integer("ring_slots", SLOTS), positions, head_dim]
        staging: list[str] = []
        for letter in "kv":
            type = TensorType(cache.element_type, shape)
            buffer = self._add(f"{name}.slots.{letter}", type, "communication", launch, pinned=True)
            buffer.space, buffer.layout = "symmetric", row_major(shape)
            staging.append(buffer.name)
        launch.properties["staging"] = symbols(staging)
        rows = launch.integers("tile")[0]
        tiles = ceil_div(tensor(op.query).get_shape()[1], rows // launch.integer("group"))
        if tiles > 1:
            lead = [tiles, rows]
            parts = (("m", lead), ("l", lead), ("o", [*lead, head_dim]))
            names = [self._workspace(launch, part, extents) for part, extents in parts]
            launch.properties["workspace"] = symbols(names)

    def _attention(self, launch: LaunchOp, problem: AttentionProblem) -> None:
        """Caches that peers read stay as they are to the end."""
        if launch.ring is not None:
            self._ring(launch)
            return
        for op in launch.block.ops:
            if isinstance(op, AllGatherOp):
                cache = self._outside(launch, op.inputs[0])
                cache.space, cache.first, cache.last = "symmetric", 0, None
        if launch.combine is not None:
            self._attention_workspace(launch, problem)
        merging = merging_of(launch)
        if merging is not None:
            self._merging(launch, merging)

    def _merging(self, launch: LaunchOp, merging: Merging) -> None:
        """Records that a device sends to the owners of heads, behind its other workspace, and
        those that it receives, a slot per rank."""
        name = launch.sym_name.data
        reduction = CubeReduction.of(launch, self.target)
        if reduction is not None:
            self._queues(launch, reduction)
            return
        ranks = mesh_of(launch).refs_size(merging.scatter.axes.data)
        workspace = list(launch.workspace_names)
        staging: list[str] = []
        values = zip("mlo", merging.scatter.inputs, merging.scatter.outputs, strict=True)
        for letter, sent, kept in values:
            type = tensor(sent)
            workspace.append(
                self._workspace(launch, f"sent.{letter}", list(type.get_shape()), type)
            )
            shape = [ranks, *tensor(kept).get_shape()]
            received = TensorType(type.element_type, shape)
            buffer = self._add(
                f"{name}.staging.{letter}", received, "communication", launch, pinned=True
            )
            buffer.space, buffer.layout = "symmetric", row_major(shape)
            staging.append(buffer.name)
        launch.properties["workspace"] = symbols(workspace)
        launch.properties["staging"] = symbols(staging)

    def _queues(self, launch: LaunchOp, reduction: CubeReduction) -> None:
        """The queues of a merge over memory cubes, in the scratch memory of its receivers."""
        queues: list[str] = []
        for level, shape in reduction.queue_shapes.items():
            name = f"{launch.sym_name.data}.queue.{level}"
            type = TensorType(f32, shape)
            buffer = self._add(name, type, "communication", launch, pinned=True)
            buffer.space, buffer.memory = "symmetric", "scratch"
            buffer.layout = row_major(shape)
            queues.append(buffer.name)
        launch.properties["staging"] = symbols(queues)

    def _gemm(self, launch: LaunchOp) -> None:
        n, k = launch.integers("tile")[1:]
        gather = pulled(launch)
        for part in gemm_parts(launch):
            x, weight = part.linear.input, part.linear.weight
            if gather is not None:
                x = gather.inputs[0]
            self._outside(launch, x).steps.add(k)
            # Tiles begin where the columns of an owner do: blocks must not lie across.
            firsts = owned_columns(part, mesh_of(launch)) if part.scatter is not None else ()
            self._outside(launch, weight).steps.add(power_of_two_divisor(gcd(n, *firsts)))
            self._outside(launch, weight).heights.add(k)
        if is_fused(launch):
            self._fused_gemm(launch, gather)
        elif launch.integer("split") > 1 or launch.streams is not None:
            self._gemm_workspace(launch)

    def _outside(self, launch: LaunchOp, value: SSAValue) -> _Buffer:
        """The buffer behind an argument of a launch's body."""
        assert isinstance(value, BlockArgument)
        return self.of_value[launch.inputs[value.index]]

    def _fused_gemm(self, launch: LaunchOp, gather: AllGatherOp | None) -> None:
        """What a product that exchanges data with peers needs: staging slots for the tiles that it
        receives, and for its own work the tiles that go through memory, shares of K and slices of
        peers, in that order. Slices that peers read stay as they are to the end."""
        m, n, _ = launch.integers("tile")
        name, split = launch.sym_name.data, launch.integer("split")
        mesh = mesh_of(launch)
        workspace: list[str] = []
        staging: list[str] = []
        shares = 0
        for number, part in enumerate(gemm_parts(launch)):
            batch, query, width = tensor(part.linear.result).get_shape()
            rows = row_tiling(batch, query, m)
            if part.reduction is None:
                shares += rows.tiles * ceil_div(width, n)
                continue
            ranks = mesh.refs_size(part.reduction.axes.data)
            received = part.received
            tiles = rows.tiles * ceil_div(received[2], n)
            if part.scatter is not None:
                tiles *= ranks
            shares += tiles
            element = tensor(part.partial).element_type
            buffer = self._add(
                f"{name}.staging{number}",
                TensorType(element, [ranks, *received]),
                "communication",
                launch,
                pinned=True,
            )
            buffer.space = "symmetric"
            # A tile is one block.
            block = (1, rows.sequences, rows.positions, n)
            buffer.layout = blocked((ranks, *received), block)
            staging.append(buffer.name)
            if "hbm" in launch.taxes:
                through = [tiles, rows.rows, n]
                workspace.append(self._workspace(launch, f"through{number}", through))
        for op in launch.block.ops:
            if isinstance(op, AllReduceOp) and summed_rows(op) is not None:
                type = tensor(op.inputs[0])
                shape = [mesh.refs_size(op.axes.data), *type.get_shape()]
                received = TensorType(type.element_type, shape)
                buffer = self._add(
                    f"{name}.staging.rows", received, "communication", launch, pinned=True
                )
                buffer.space, buffer.layout = "symmetric", row_major(shape)
                staging.append(buffer.name)
        if split > 1:
            workspace.append(self._workspace(launch, "partial", [split - 1, shares, m, n]))
        if gather is not None:
            source = self._outside(launch, gather.inputs[0])
            source.space, source.first, source.last = "symmetric", 0, None
            if launch.pull is not None and launch.pull.data == "staged":
                shape = [mesh.refs_size(gather.axes.data), *source.type.get_shape()]
                workspace.append(self._workspace(launch, "gathered", shape, source.type))
        if workspace:
            launch.properties["workspace"] = symbols(workspace)
        if staging:
            launch.properties["staging"] = symbols(staging)

    # Workspaces and staging

    def _workspace(
        self, launch: LaunchOp, suffix: str, shape: list[int], like: AnyTensor | None = None
    ) -> str:
        type = TensorType(f32 if like is None else like.element_type, shape)
        name = f"{launch.sym_name.data}.{suffix}"
        buffer = self._add(name, type, "activation", launch, pinned=False)
        buffer.layout = row_major(shape)
        return buffer.name

    def _shares(self, launch: LaunchOp) -> int:
        is_owner = launch.combine is not None and launch.combine.data == "owner"
        # A single owner keeps its own share; several store theirs as everybody does.
        keeps = is_owner and launch.combine_rows is None
        return launch.integer("split") - (1 if keeps else 0)

    def _gemm_workspace(self, launch: LaunchOp) -> None:
        m, n, _ = launch.integers("tile")
        tiles = launch.workgroups // launch.integer("split")
        shares = 1 if launch.streams is not None else self._shares(launch)
        shape = [shares, tiles, m, n]
        launch.properties["workspace"] = symbols([self._workspace(launch, "partial", shape)])

    def _attention_workspace(self, launch: LaunchOp, problem: AttentionProblem) -> None:
        rows = launch.integers("tile")[0]
        tasks = launch.integers("grid")[0] // launch.integer("split")
        lead = [self._shares(launch), tasks, rows]
        names = [
            self._workspace(launch, "m", lead),
            self._workspace(launch, "l", lead),
            self._workspace(launch, "o", [*lead, problem.head_dim]),
        ]
        launch.properties["workspace"] = symbols(names)

    def _communication(self, launch: LaunchOp, problem: CollectiveProblem) -> None:
        if is_planned(launch, self.target):
            self._planned(launch)
            return
        op = next(op for op in launch.block.ops if isinstance(op, CollectiveOp))
        self._owned_rows(launch, op)
        for value in launch.results:
            buffer = self.of_value[value]
            buffer.space = "symmetric"
            if not isinstance(op, AllReduceOp):
                buffer.first, buffer.last = 0, None
        if not isinstance(op, AllReduceOp | ReduceScatterOp):
            return
        names: list[str] = []
        for value in op.inputs if isinstance(op, AllReduceOp) else op.outputs:
            names.append(self._staging(launch, problem, tensor(value)))
        launch.properties["staging"] = symbols(names)

    def _planned(self, launch: LaunchOp) -> None:
        """Results, what phases hand on, and the staging slots of every phase."""
        plan = plan_of(launch, self.target)
        (op, *more) = (phase.op for phase in plan.phases)
        is_all_reduce = isinstance(op, AllReduceOp) and not more
        if plan.phases[0].program.pulled:  # peers read the operands while the launch runs
            for value in launch.inputs:
                self.of_value[value].space = "symmetric"
        for value in launch.results:
            buffer = self.of_value[value]
            buffer.space = "symmetric"
            if not is_all_reduce:
                buffer.first, buffer.last = 0, None
        for phase in plan.phases:
            if phase.program.owned:
                self._owned_rows(launch, phase.op)
        name = launch.sym_name.data
        between: list[str] = []
        for value in plan.intermediates:
            type = tensor(value)
            buffer = self._add(f"{name}.between", type, "communication", launch, pinned=True)
            buffer.space = "symmetric"
            between.append(buffer.name)
        if between:
            launch.properties["workspace"] = symbols(between)
        # Every device ends such an all-reduce only when all its slots everywhere have been read.
        algorithm = op.algorithm.data if op.algorithm is not None else "ring"
        shares = is_all_reduce and algorithm in ("ring", "two_shot", "bidirectional_ring")
        names: list[str] = []
        taken: set[str] = set()
        for phase in plan.phases:
            for element, shape in phase.staging_shapes(plan.chunks):
                staged = TensorType(element, shape)
                key = (staged, launch.integer("queue", 0))
                known = self.shared_staging.get(key) if shares else None
                if known is None or known in taken:
                    label = "all_reduce.staging" if shares else f"{name}.staging"
                    buffer = self._add(label, staged, "communication", launch, pinned=True)
                    buffer.space, buffer.layout = "symmetric", row_major(shape)
                    known = buffer.name
                    if shares:
                        self.shared_staging.setdefault(key, known)
                taken.add(known)
                names.append(known)
        if names:
            launch.properties["staging"] = symbols(names)

    def _owned_rows(self, launch: LaunchOp, op: CollectiveOp) -> None:
        """Notes how many rows of a value each GPU sums and hands out."""
        mesh = mesh_of(launch)
        outer = [ref for ref in op.axes.data if mesh.axis(ref.name).level == "outer"]
        if not isinstance(op, AllReduceOp) or not outer:
            return
        gpus = mesh.refs_size(outer)
        for value in (*op.inputs, *op.outputs):
            outside = value
            if value in launch.block.args:
                assert isinstance(value, BlockArgument)
                outside = launch.inputs[value.index]
            elif value in launch.yielded:
                outside = launch.results[launch.yielded.index(value)]
            rows = prod(tensor(value).get_shape()[:-1])
            if outside in self.of_value and rows % gpus == 0:
                self.of_value[outside].gpu_rows = rows // gpus

    def _staging(self, launch: LaunchOp, problem: CollectiveProblem, type: AnyTensor) -> str:
        rows, columns = launch.integers("tile")
        transport = self.target.transports[problem.transport]
        pieces = pieces_of(problem, transport.workgroups)
        shape = [max(1, problem.ranks - 1), pieces.chunk_pieces, rows, columns]
        staged = TensorType(type.element_type, shape)
        is_shared = problem.operation == "all_reduce"
        key = (staged, launch.integer("queue", 0))
        if is_shared and key in self.shared_staging:
            return self.shared_staging[key]
        name = "all_reduce.staging" if is_shared else f"{launch.sym_name.data}.staging"
        buffer = self._add(name, staged, "communication", launch, pinned=True)
        buffer.space, buffer.layout = "symmetric", row_major(shape)
        if is_shared:
            self.shared_staging[key] = buffer.name
        return buffer.name

    # Layouts and addresses

    def _layout(self, buffer: _Buffer) -> Layout:
        shape, width = buffer.type.get_shape(), element_bytes(buffer.type)
        narrowest = min(buffer.steps, default=64)
        if buffer.role == "weight":
            if not buffer.steps:  # a table or a vector: read by rows
                return row_major(shape)
            columns = min(128 // width, narrowest)
            # Where bytes of an access come from all channels, short rows would take as long each.
            rows, whole = min(buffer.heights), self.target.channels > 1
            return matrix_layout(shape, width, columns, rows=rows, whole_rows=whole)
        if buffer.role == "state":
            return cache_layout(shape, width)
        if not buffer.steps and prod(shape[:-1]) < BLOCKED_ROWS:  # no GEMM reads it
            if buffer.gpu_rows:
                # In a mesh of carriers there is one way.
                carriers = 1 if self.target.grid else self.target.carriers
                unit = rotation_unit(self.granule, self.stacks, carriers)
                return row_layout(shape, width, buffer.gpu_rows, unit)
            return row_major(shape)
        return activation_layout(shape, width, min(128 // width, narrowest))

    def _place(self, functions: list[FuncOp]) -> None:
        ordered = sorted(self.buffers.values(), key=lambda buffer: ORDER.index(buffer.role))
        requests: list[Request] = []
        for buffer in ordered:
            if buffer.memory != "hbm":
                continue
            assert buffer.layout is not None
            size = buffer.layout.bytes(element_bytes(buffer.type))
            requests.append(Request(buffer.name, size, buffer.first, buffer.last))
        # Buffers begin with a page, and on a stack of their own where granules are larger.
        granule = max(GRANULE, self.granule)
        plan = plan_addresses(requests, stacks=max(1, self.stacks), granule=granule)
        addresses = {**plan.addresses, **self._place_queues(ordered)}
        anchor: Operation = functions[0] if functions else self.module
        for buffer in ordered:
            assert buffer.layout is not None
            op = BufferOp(
                buffer.name,
                buffer.type,
                address=addresses[buffer.name],
                layout=buffer.layout,
                space=buffer.space,
                role=buffer.role,
                element_bytes=element_bytes(buffer.type),
                memory=buffer.memory,
            )
            self.module.body.block.insert_op_before(with_location(op, buffer.origin), anchor)

    def _place_queues(self, buffers: Sequence[_Buffer]) -> dict[str, int]:
        """Addresses of the buffers in scratch memory: in the region for queues at its top, for
        peers may write before this device starts a launch. Raises ``InputError`` where they need
        more."""
        queues = {buffer.name: buffer for buffer in buffers if buffer.memory == "scratch"}
        sizes: dict[str, int] = {}
        for name, buffer in queues.items():
            assert buffer.layout is not None
            sizes[name] = buffer.layout.bytes(element_bytes(buffer.type))
        available = self.target.queue_bytes
        first = self.target.scratch_bytes_per_cu - available
        try:
            addresses, self.queue_bytes = plan_queues(sizes, first, available, SCRATCH_ALIGNMENT)
        except OverflowError as error:
            largest = max(queues.values(), key=lambda buffer: sizes[buffer.name])
            hint = "queues of fewer slots or smaller tiles fit"
            raise InputError(
                Diagnostic(str(error), location_of(largest.origin), hint=hint)
            ) from None
        return addresses

    # Functions without values

    def _rewrite(self, function: FuncOp) -> None:
        block = function.body.block
        terminator = block.last_op
        assert terminator is not None
        arguments = [self.of_value[argument].name for argument in block.args]
        results = [self.of_value[value].name for value in terminator.operands]
        terminator.operands = []
        for op in reversed(list(block.ops)):
            if isinstance(op, LaunchOp):
                launch = self._over_buffers(op)
                block.insert_op_after(launch, op)
            if isinstance(op, LaunchOp | nn.ReadOp):
                op.detach()
                op.erase(safe_erase=False)
        for argument in reversed(list(block.args)):
            block.erase_arg(argument)
        function.properties["function_type"] = FunctionType.from_lists([], [])
        function.attributes["kernel.arguments"] = symbols(arguments)
        function.attributes["kernel.results"] = symbols(results)

    def _over_buffers(self, launch: LaunchOp) -> LaunchOp:
        properties: dict[str, Attribute] = dict(launch.properties)
        properties["reads"] = symbols(self.of_value[value].name for value in launch.inputs)
        properties["writes"] = symbols(self.of_value[value].name for value in launch.results)
        body = launch.detach_region(launch.body)
        new = LaunchOp(launch.sym_name.data, launch.kind.data, [], body, properties=properties)
        new.attributes.update(launch.attributes)
        return with_location(new, launch)
