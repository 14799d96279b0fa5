"""``verify-schedule``: no deadlock, kernels that wait are resident as a whole, and streams of one
kernel use their tiles in turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import AnyFloat, IntegerAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from starc.backend.schedule import no_engines, not_resident
from starc.core.streams.happens_before import check
from starc.core.streams.residency import resident_workgroups
from starc.core.streams.skeleton import Skeleton, SkeletonLaunch
from starc.core.streams.stream_events import TooLarge
from starc.core.streams.stream_order import TooLong
from starc.diagnostics import Diagnostic, InputError
from starc.dialects import isa
from starc.dialects.isa_memory import buffer_type
from starc.dialects.locations import location_of
from starc.dialects.sharding import MeshOp
from starc.passes.base import RemarkSink, StarcPass
from starc.passes.isa.scheduling.machine_limits import beyond_machine
from starc.passes.isa.scheduling.stream_templates import skeleton, stream_problems
from starc.targets.target import Target


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

    The streams of a kernel for several engines (after ``assign-engines``) all end, and use scratch
    memory in turn: what reads a tile comes behind the arrival of what its iteration has written
    there (*read before arrival*), and what writes scratch bytes behind all that reads what lay
    there, of an iteration that used the slot before (*overwrite*) or of another tile (*use after
    recycle*). A semaphore has one stream that releases it and one that acquires it, as often.
    Streams are expanded for every way in which the branches and loops of devices go; of a long
    loop the first, middle and last trips stand for all (``Window`` of
    ``starc.core.streams.stream_template``).
    Waits for other devices are checked with the streams as sequences of their own.

    Kernels take no more of the machine than there is: every slot of a tile lies in the scratch
    bytes of tiles, below those of queues; streams are for engines that there are, composites carry
    state only where the machine has such, and one that ``continues`` a command stands behind one.

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
    only_checks = True

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        mesh_op = next((op for op in module.ops if isinstance(op, MeshOp)), None)
        mesh = (
            tuple((axis.name, axis.size) for axis in mesh_op.mesh.axes)
            if mesh_op is not None
            else tuple((row[0], row[1]) for row in target.mesh)
        )
        kernels = {op.sym_name.data: op for op in module.ops if isinstance(op, isa.KernelOp)}
        skeletons = {name: skeleton(kernel, mesh) for name, kernel in kernels.items()}
        counters = {
            op.sym_name.data: op.count.value.data
            for op in module.ops
            if isinstance(op, isa.CounterOp)
        }
        found = beyond_machine(module, target)
        found += _streams(module, kernels, mesh, sink)
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
            f"launches with waits inside: {checked:,}; all workgroups that wait are resident "
            "together, and all waits end",
            launches=checked,
        )


def _streams(
    module: ModuleOp,
    kernels: Mapping[str, isa.KernelOp],
    mesh: tuple[tuple[str, int], ...],
    sink: RemarkSink,
) -> list[Diagnostic]:
    """What is wrong inside of kernels that have streams."""
    grids: dict[str, int] = {}
    for launch in module.walk():
        if isinstance(launch, isa.LaunchOp):
            for name, grid in launch.parts:
                grids[name] = max(grids.get(name, 1), grid)
    found: list[Diagnostic] = []
    for name, kernel in kernels.items():
        if not kernel.streams:
            continue
        try:
            for problem in stream_problems(kernel, mesh, grids.get(name, 1)):
                op = problem.origin if isinstance(problem.origin, Operation) else kernel
                place = location_of(op) or location_of(kernel)
                found.append(Diagnostic(problem.message, place, hint=problem.hint))
        except TooLong as error:
            sink.remark("schedule-not-checked", str(error), kernel, declined=True)
    return found


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
