"""Kernels as streams of engines: what is joined is needed, what does not fit is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

from starc.diagnostics import InputError
from starc.dialects import isa
from starc.passes.base import RemarkSink
from starc.passes.isa.assign_engines import AssignEngines
from starc.passes.isa.verify_schedule import VerifySchedule
from starc.targets.loader import load_target
from tests.unit.passes.sweeps import machine, parse, scheduled, sweep

ISSUE_ALONE = ("queue", "room", "to_cpu")
"""Semaphores without which results stay right: they say when a command is issued."""


def semaphores(module: ModuleOp) -> list[isa.SemaphoreOp]:
    return [op for op in module.walk() if isinstance(op, isa.SemaphoreOp)]


@pytest.mark.parametrize("schedule", ["pipelined", "stateful"])
def test_every_dependence_is_needed(schedule: str) -> None:
    """Without any one of the semaphores between engines a tile is read or overwritten too early."""
    target = machine()
    module = scheduled(sweep(5), target, schedule)
    VerifySchedule().run(module, target, RemarkSink())
    names = [op.semaphore.name_hint or "" for op in semaphores(module)]
    assert len([name for name in names if "room" not in name]) == 17
    for number, name in enumerate(names):
        if any(part in name for part in ISSUE_ALONE):
            continue
        without = module.clone()
        semaphore = semaphores(without)[number].semaphore
        for use in list(semaphore.uses):
            use.operation.detach()
            use.operation.erase()
        with pytest.raises(InputError):
            VerifySchedule().run(without, target, RemarkSink())


def test_the_same_kernel_gives_the_same_streams() -> None:
    first, second = (str(scheduled(sweep(5), machine(), "pipelined")) for _ in range(2))
    assert first == second


def test_commands_cost_what_their_class_costs() -> None:
    target = machine()
    costs = {name: 1000 * (number + 1) for number, name in enumerate(sorted(target.issue_ps))}
    module = scheduled(sweep(5), replace(target, issue_ps=costs), "blocking")
    (kernel,) = [op for op in module.ops if isinstance(op, isa.KernelOp)]
    slept = {
        stream.engine.data: [
            op.picoseconds.value.data for op in stream.walk() if isinstance(op, isa.DelayOp)
        ]
        for stream in kernel.streams
    }
    math, composite = costs["math"], costs["composite"]
    assert slept["cpu"] == [
        *(costs["load"], math, math, math),
        *(composite, math, composite, math, math),
        *(math, costs["store"]),
    ]
    assert set(slept["scheduler"]) == {costs["scheduler"]}
    assert not slept["dma"] + slept["gemm"] + slept["math"]


def test_free_commands_take_no_records() -> None:
    module = scheduled(sweep(5), machine(issue=0, scheduler=0), "pipelined")
    assert not any(isinstance(op, isa.DelayOp) for op in module.walk())


def test_a_stream_that_is_too_long_is_refused() -> None:
    buffer = (
        "kernel.buffer @x : tensor<64x64xbf16> {address = 0 : i64, bytes = 8192 : i64, layout = "
        '#kernel.layout<row_major>, space = "private", role = "activation"}'
    )
    tiles = "\n".join(
        f"%t{i} = isa.alloc scratch offset {i * 128} : !isa.tile<1x64xbf16>" for i in range(100)
    )
    loads = "\n".join(
        f"isa.load %t{i}, @x[{i % 64}, 0] : !isa.tile<1x64xbf16>\n"
        f'isa.vector "silu"(%t{i}, %t{i}) : !isa.tile<1x64xbf16>, !isa.tile<1x64xbf16>'
        for i in range(100)
    )
    module = parse(
        f"module {{ {buffer}\n isa.kernel @long coords(%device, %sip, %group, %cube, %pe, %wg) "
        f'attributes {{kernel_class = "norm", waves = 4 : i64}} {{ {tiles}\n isa.composite {{ '
        f"{loads} }} }} }}"
    )
    with pytest.raises(InputError) as refused:
        AssignEngines().run(module, machine(queue=0), RemarkSink())
    messages = [problem.message for problem in refused.value.diagnostics]
    assert messages == [
        "template @long: its scheduler stream has 401 records, more than 256",
        "template @long: its dma stream has 300 records, more than 256",
        "template @long: its math stream has 300 records, more than 256",
    ]


def test_other_targets_keep_one_stream() -> None:
    module = sweep(5)
    before = str(module)
    AssignEngines().run(module, load_target("mi300x-cpx", gpus=1), RemarkSink())
    assert str(module) == before


def test_kernels_that_have_streams_stay() -> None:
    target = machine()
    module = scheduled(sweep(5), target, "pipelined")
    before = str(module)
    AssignEngines().run(module, target, RemarkSink())
    assert str(module) == before


def test_a_queue_without_an_entry_hangs_and_is_found() -> None:
    """The streams of a sweep end with one entry a queue; with none the CPU never issues."""
    module = scheduled(sweep(5), machine(queue=1), "pipelined")
    VerifySchedule().run(module, machine(queue=1), RemarkSink())
    rooms = [op for op in semaphores(module) if "room" in (op.semaphore.name_hint or "")]
    assert rooms
    assert {op.initial.value.data for op in rooms} == {1}
    for number in range(len(rooms)):
        without = module.clone()
        room = [op for op in semaphores(without) if "room" in (op.semaphore.name_hint or "")][
            number
        ]
        room.initial = IntegerAttr(0, i64)
        with pytest.raises(InputError, match="hangs") as refused:
            VerifySchedule().run(without, machine(queue=1), RemarkSink())
        assert "_room" in str(refused.value)
