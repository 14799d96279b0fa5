"""``verify-schedule``: no deadlock, and kernels that wait are resident as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import AnyFloat, IntegerAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from starc.backend.schedule import no_engines, not_resident
from starc.core import quasi_affine as qa
from starc.core.happens_before import (
    Branch,
    Loop,
    Node,
    Signal,
    Skeleton,
    SkeletonLaunch,
    TooLarge,
    Wait,
    check,
    resident_workgroups,
)
from starc.core.quasi_affine import Expression
from starc.diagnostics import Diagnostic, InputError, location_of
from starc.dialects import isa
from starc.dialects.isa_instructions import index_environment
from starc.dialects.isa_memory import buffer_type
from starc.dialects.sharding import MeshOp
from starc.passes.base import RemarkSink, StarcPass
from starc.targets.target import Target


def _skeleton(kernel: isa.KernelOp, mesh: tuple[tuple[str, int], ...]) -> Skeleton:
    indices: dict[SSAValue, Expression] = {
        kernel.device: qa.Var("device"),
        kernel.workgroup: qa.Var("wg"),
    }
    if kernel.axes and len(kernel.axes) != len(mesh):
        raise InputError(
            Diagnostic(
                f"kernel {kernel.sym_name.data} has {len(kernel.axes)} mesh coordinates; the mesh "
                f"has {len(mesh)} axes",
                location_of(kernel),
            )
        )
    for argument, (axis, _) in zip(kernel.axes, mesh, strict=False):
        indices[argument] = qa.Var(axis)
    return Skeleton(kernel.sym_name.data, _body(kernel.body.block, indices, 0))


def _body(block: Block, indices: dict[SSAValue, Expression], depth: int) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for op in block.ops:
        stage = op.attributes.get("stage")
        s = stage.value.data if isinstance(stage, IntegerAttr) else 0
        match op:
            case isa.IndexOp():
                indices[op.result] = _value(op, op.value, indices)
            case isa.SignalOp():
                peer = None if op.peer is None else _value(op, op.peer, indices)
                nodes.append(
                    Signal(
                        op.counter.string_value(),
                        _value(op, op.element, indices),
                        _value(op, op.value, indices),
                        peer,
                        s,
                    )
                )
            case isa.WaitOp():
                nodes.append(
                    Wait(
                        op.counter.string_value(),
                        _value(op, op.element, indices),
                        _value(op, op.value, indices),
                        s,
                    )
                )
            case isa.LoopOp():
                counter = qa.Var(f"counter{depth}")
                lower, upper = _value(op, op.lower, indices), _value(op, op.upper, indices)
                indices[op.counter] = counter
                inner = _body(op.body.block, indices, depth + 1)
                nodes.append(Loop(counter.name, lower, upper, inner, s))
            case isa.IfOp():
                condition = _value(op, op.condition, indices)
                nodes.append(Branch(condition, _body(op.body.block, indices, depth), s))
            case _:
                pass
    return tuple(nodes)


def _value(
    op: Operation, attribute: isa.ExpressionAttr, indices: Mapping[SSAValue, Expression]
) -> Expression:
    names = {name: indices[value] for name, value in index_environment(op).items()}
    return qa.substitute(attribute.data, names)


def _adds_floats(op: Operation) -> bool:
    """Whether an instruction adds floats to the memory of a peer."""
    if not isinstance(op, isa.PutOp) or op.accumulate is None:
        return False
    return isinstance(buffer_type(op, op.buffer).element_type, AnyFloat)


def _waits(kernel: isa.KernelOp) -> bool:
    return any(isinstance(op, isa.WaitOp) for op in kernel.body.walk())


@dataclass(frozen=True)
class VerifySchedule(StarcPass):
    """Checks that every launch ends, and changes nothing.

    After this pass every wait is satisfied in some, and so in every, order in which the devices
    advance (counters only grow), no signal or wait names an element or device that does not exist,
    and the workgroups of a launch that waits all fit on a device at once.

    Floats that a put adds to the memory of a peer are a remark: nothing here tells who else does.

    Each violation is an error that names the launch, the counter and who waits for whom. A layer
    whose synchronisation is too large to expand is not checked, which a remark says.

    A wait that no signal answers is refused:

    ```mlir
    sharding.mesh @node = ["gpu"=2 : outer xgmi]
    isa.counter @ready count 1
    isa.kernel @consume coords(%device, %gpu, %wg) attributes {kernel_class = "elementwise"} {
      isa.wait @ready[0] until [1]
    }
    func.func @layer() {
      isa.launch @consume [@consume grid 1] queue "compute"
      func.return
    }
    ```

    ```
    error: consume (device 0, workgroup 0) waits forever for @ready[0] to reach 1 (it is at 0)
      hint: all signals to it add up to 0
    ```
    """

    name = "verify-schedule"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        mesh_op = next((op for op in module.ops if isinstance(op, MeshOp)), None)
        mesh = (
            tuple((axis.name, axis.size) for axis in mesh_op.mesh.axes)
            if mesh_op is not None
            else tuple((row[0], row[1]) for row in target.mesh)
        )
        kernels = {op.sym_name.data: op for op in module.ops if isinstance(op, isa.KernelOp)}
        skeletons = {name: _skeleton(kernel, mesh) for name, kernel in kernels.items()}
        counters = {
            op.sym_name.data: op.count.value.data
            for op in module.ops
            if isinstance(op, isa.CounterOp)
        }
        found: list[Diagnostic] = []
        checked = 0
        for function in module.ops:
            if not isinstance(function, FuncOp):
                continue
            launches = [op for op in function.walk() if isinstance(op, isa.LaunchOp)]
            for launch in launches:
                found.extend(_residency(launch, kernels, target))
            checked += sum(
                any(_waits(kernels[name]) for name, _ in launch.parts) for launch in launches
            )
            try:
                for problem in check(_launches(launches, skeletons), counters, mesh):
                    place = location_of(launches[problem.launch])
                    found.append(Diagnostic(problem.message, place, hint=problem.hint))
            except TooLarge as error:
                sink.remark("schedule-not-checked", str(error), function, declined=True)
        if found:
            raise InputError(found)
        for name, kernel in kernels.items():
            if any(_adds_floats(op) for op in kernel.body.walk()):
                sink.remark(
                    "float-sums",
                    f"@{name} adds floats to memory of peers: its results are the same in every "
                    "run only where one workgroup adds to an element",
                    kernel,
                    declined=True,
                )
        sink.remark(
            "schedule-verified",
            f"{checked:,} launches wait inside: all workgroups that wait are resident together, "
            "and all waits end",
            launches=checked,
        )


def _launches(
    launches: list[isa.LaunchOp], skeletons: Mapping[str, Skeleton]
) -> list[SkeletonLaunch]:
    labels = {op.label.data: i for i, op in enumerate(launches)}
    queues = sorted({op.queue.data for op in launches})
    result: list[SkeletonLaunch] = []
    for op in launches:
        depends = op.attributes.get("depends")
        result.append(
            SkeletonLaunch(
                op.label.data,
                tuple((skeletons[name], grid) for name, grid in op.parts),
                queues.index(op.queue.data),
                labels.get(depends.data) if isinstance(depends, StringAttr) else None,
            )
        )
    return result


def _residency(
    launch: isa.LaunchOp, kernels: Mapping[str, isa.KernelOp], target: Target
) -> list[Diagnostic]:
    parts = [(kernels[name], grid) for name, grid in launch.parts]
    if not any(_waits(kernel) for kernel, _ in parts):
        return []
    grid = sum(grid for _, grid in parts)
    if launch.engines is not None:
        if grid <= target.copy_engines:
            return []
        text = no_engines(launch.label.data, grid, target.copy_engines)
        return [Diagnostic(text, location_of(launch))]
    fits = min(
        resident_workgroups(
            compute_units=target.cus_per_die * target.dies_per_device,
            max_waves=target.max_waves_per_cu,
            scratch_bytes=target.scratch_bytes_per_cu,
            register_bytes=target.registers_bytes_per_cu,
            kernel_waves=kernel.waves.value.data,
            kernel_scratch_bytes=_bytes(kernel.scratch_bytes),
            kernel_register_bytes=_bytes(kernel.register_bytes),
        )
        for kernel, _ in parts
    )
    if grid <= fits:
        return []
    return [Diagnostic(not_resident(launch.label.data, grid, fits), location_of(launch))]


def _bytes(value: IntegerAttr | None) -> int:
    return 0 if value is None else value.value.data
