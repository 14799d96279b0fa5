"""The three schedules of a sweep over tiles of keys, to the picosecond.

A tile takes q k^T, a scaling, a softmax, p v, and the merge into the running result. Written as it
is, one follows the other; pipelined, the busiest engine decides. The softmax is one command or
nine.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from starc.backend.program import Engine, Opcode
from starc.diagnostics import InputError
from starc.dialects import isa
from starc.passes.base import RemarkSink
from starc.passes.isa.schedule_commands import ScheduleCommands
from starc.simulator.options import SimulationOptions
from starc.simulator.run import simulate
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.passes.sweeps import (
    DIM,
    KERNEL,
    KEYS,
    OPERATIONS,
    ROWS,
    SOFTMAX,
    machine,
    matrix_time,
    program,
    scheduled,
    sweep,
    vector_time,
)

TILES = 12
ISSUES = (0, 1, 10, 100, 400)


FORMS = {"fused": KERNEL, "operations": OPERATIONS}


def periods(target: Target, schedule: str, kernel: str = KERNEL) -> list[int]:
    """Times from the first product of a tile to that of the next one, in the steady state."""
    packed = program(TILES, target, schedule, kernel)
    options = SimulationOptions(log=True, skew=False, target=target)
    log = simulate(packed, options).log
    assert log is not None
    products = log[packed.records["op"][log["record"]] == Opcode.MATRIX]
    first = np.sort(products["start_ps"])[::4]  # two sub-tiles of keys, two of values
    return [int(b - a) for a, b in pairwise(first)][3:-1]


def vectors(target: Target) -> dict[str, int]:
    """Picoseconds of the vector functions of a tile."""
    scores, output = ROWS * KEYS, ROWS * DIM
    return {
        "clear": vector_time(target, "zero", scores),
        "scale": vector_time(target, "scale", scores),
        "softmax": vector_time(target, "softmax_step", scores),
        "clear product": vector_time(target, "zero", output),
        "rescale": vector_time(target, "rescale", output),
        "add": vector_time(target, "add", output),
    }


def softmax(target: Target, form: str) -> list[int]:
    """Picoseconds of the commands of the softmax of a tile."""
    if form == "fused":
        return [vectors(target)["softmax"]]
    width = {"s": KEYS, "p": KEYS}
    sizes = [max(ROWS * width.get(tile, 1) for tile in tiles.split()) for _, tiles in SOFTMAX]
    return [vector_time(target, name, size) for (name, _), size in zip(SOFTMAX, sizes, strict=True)]


@pytest.mark.parametrize("gemm", [1, 0.25])
@pytest.mark.parametrize("issue", ISSUES)
@pytest.mark.parametrize("form", FORMS)
def test_blocking_is_the_sum_of_its_parts(form: str, issue: int, gemm: float) -> None:
    """The CPU waits for p v before it adds it, then issues the next product, whose keys are loaded
    while the addition runs; it waits for the scores before it issues the softmax. The values are
    loaded, and their product cleared, from when its command is issued behind the softmax."""
    target = machine(issue=issue, gemm=gemm)
    (scores, product), v, cost = matrix_time(target), vectors(target), target.issue_ps["math"]
    packed = program(TILES, target, "blocking", FORMS[form])
    log = simulate(packed, SimulationOptions(log=True, skew=False, target=target)).log
    assert log is not None
    loads = log[packed.records["op"][log["record"]] == Opcode.LOAD]
    _, *own = np.unique(loads["record"])  # behind the queries: keys, values
    keys, values = (
        int((each["end_ps"] - each["start_ps"])[each["iteration"] == TILES][0])
        for each in (loads[loads["record"] == record] for record in own)
    )
    done, scheduler = 0, target.issue_ps["scheduler"]
    commands = softmax(target, form)
    for number, time in enumerate(commands):
        done = max(done, (number + 1) * cost) + time
    command = (len(commands) + 1) * cost + scheduler
    ready = max(max(done, command) + v["clear product"], command + scheduler + values)
    # Meanwhile the CPU has issued the rescaling, which does not need the product.
    added = max(ready + product, (len(commands) + 2) * cost)
    expected = keys + scores + v["scale"] + added + 2 * cost + 2 * scheduler
    assert periods(target, "blocking", FORMS[form]) == [expected] * (TILES - 5)


@pytest.mark.parametrize("gemm", [1, 0.25])
@pytest.mark.parametrize("issue", ISSUES)
@pytest.mark.parametrize(
    ("schedule", "form", "commands"),
    [
        ("pipelined", "fused", 5),
        ("pipelined", "operations", 13),
        ("stateful", "fused", 2),
        ("stateful", "operations", 2),
    ],
)
def test_pipelined_is_the_busiest_engine(
    schedule: str, form: str, commands: int, issue: int, gemm: float
) -> None:
    """Products, vector functions, or commands of the CPU. The CPU waits for scaled scores before it
    issues the softmax of a pipelined tile, and the vector engine, which clears the next scores
    meanwhile, for the CPU; a stateful command is issued long before."""
    target = machine(issue=issue, gemm=gemm)
    (scores, product), cost = matrix_time(target), target.issue_ps["math"]
    v = vectors(target)
    work = sum(v.values()) - v["softmax"] + sum(softmax(target, form))
    waits = max(0, cost - v["clear"]) if schedule == "pipelined" else 0
    expected = max(scores + product, work + waits, commands * cost)
    assert periods(target, schedule, FORMS[form]) == [expected] * (TILES - 5)


@pytest.mark.parametrize("entries", [1, 2, 16, 0])
def test_the_cpu_waits_for_an_entry_of_a_queue(entries: int) -> None:
    """With the CPU as the bottleneck a tile takes its commands, one after the other. A command is
    issued when that ``entries`` before it has begun: behind the mask (128 cycles) and the
    exponentials (320) the CPU waits as far as they take longer than so many commands."""
    target = machine(issue=100, queue=entries)
    cost, cycle = target.issue_ps["math"], int(target.cycle_ps)
    waits = {1: (128 - 100) + (320 - 100), 2: 320 - 200}.get(entries, 0) * cycle
    assert periods(target, "pipelined", OPERATIONS) == [13 * cost + waits] * (TILES - 5)


def test_an_entry_is_enough_where_commands_are_few() -> None:
    """A stateful command has all that a tile needs: two entries hide what it takes to issue. With
    one the scheduler, whose queues have as many, waits for the engines."""
    found = {entries: periods(machine(queue=entries), "stateful")[0] for entries in (0, 16, 2, 1)}
    assert found[0] == found[16] == found[2] < found[1]


def test_queues_that_cannot_fill_up_have_no_room() -> None:
    """All commands of two tiles are fewer than the entries."""
    for tiles, entries, expected in ((2, 64, 0), (2, 0, 0), (2, 16, 1), (12, 16, 5)):
        module = scheduled(sweep(tiles, OPERATIONS), machine(queue=entries), "pipelined")
        rooms = [
            op.semaphore.name_hint or ""
            for op in module.walk()
            if isinstance(op, isa.SemaphoreOp) and "room" in (op.semaphore.name_hint or "")
        ]
        assert len(rooms) == expected, rooms


def test_the_matrix_engine_idles_less() -> None:
    target = machine(gemm=0.25)
    idle: dict[str, int] = {}
    for schedule in ("blocking", "pipelined", "stateful"):
        packed = program(TILES, target, schedule)
        log = simulate(packed, SimulationOptions(log=True, skew=False, target=target)).log
        assert log is not None
        products = log[packed.records["op"][log["record"]] == Opcode.MATRIX]
        busy = int((products["end_ps"] - products["start_ps"]).sum())
        idle[schedule] = int(products["end_ps"].max() - products["start_ps"].min()) - busy
    assert idle["blocking"] > 9_000_000
    assert idle["pipelined"] == idle["stateful"] < 700_000


@pytest.mark.parametrize(
    ("form", "schedule", "commands"),
    [
        ("fused", "blocking", 5),
        ("fused", "pipelined", 5),
        ("fused", "stateful", 2),
        ("operations", "blocking", 13),
        ("operations", "pipelined", 13),
        ("operations", "stateful", 2),
    ],
)
def test_commands_are_counted(form: str, schedule: str, commands: int) -> None:
    sink = RemarkSink()
    target = machine()
    ScheduleCommands(attention_schedule=schedule).run(sweep(TILES, FORMS[form]), target, sink)
    (remark,) = [r for _, r in sink.remarks if r.id == "sweep-schedule"]
    assert remark.numbers == {"commands": commands, "schedule": schedule}


def test_stages_and_slots_of_a_pipelined_sweep() -> None:
    module = sweep(TILES)
    ScheduleCommands().run(module, machine(), RemarkSink())
    stages = [
        (op.name.removeprefix("isa."), isa.stage_of(op))
        for op in module.walk()
        if isinstance(op, isa.CompositeOp | isa.VectorOp)
        and isinstance(isa.enclosing(op), isa.LoopOp)
        and not isinstance(op.parent_op(), isa.CompositeOp)
    ]
    assert stages == [
        ("composite", 0),
        ("vector", 1),
        ("composite", 1),
        ("vector", 2),
        ("vector", 2),
        ("composite", 0),  # scales the scores
    ]
    slots = {
        op.tile.name_hint: op.slots.value.data
        for op in module.walk()
        if isinstance(op, isa.AllocOp) and isinstance(isa.enclosing(op), isa.LoopOp)
    }
    assert slots == {"s": 2, "k": 2, "p": 2, "c": 2, "pv": 2, "v": 2}


def test_without_room_weights_have_one_slot() -> None:
    """The stages stay; the softmax waits until the product has read the weights before."""
    target = machine()
    used = 115_200 - 8_192  # everything, less a slot of the weights
    tight = replace(target, scratch_bytes_per_cu=used + target.queue_bytes)
    module = sweep(TILES)
    ScheduleCommands().run(module, tight, RemarkSink())
    slots = {
        op.tile.name_hint: op.slots.value.data
        for op in module.walk()
        if isinstance(op, isa.AllocOp)
    }
    assert slots["p"] == 1
    assert slots["s"] == 2


def test_without_any_room_the_sweep_stays_as_it_is() -> None:
    target = replace(machine(), scratch_bytes_per_cu=300 * 1024)
    module, sink = sweep(TILES), RemarkSink()
    ScheduleCommands().run(module, target, sink)
    (remark,) = [r for _, r in sink.remarks if r.id == "sweep-not-scheduled"]
    assert "fit" in remark.message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'isa.vector "rescale"(%o, %c)',
            'isa.vector "add"(%q, %q, %q) : !isa.tile<32x64xbf16>, !isa.tile<32x64xbf16>, '
            '!isa.tile<32x64xbf16>\n isa.vector "rescale"(%o, %c)',
            "first command needs",
        ),
        (
            "isa.scope {{",
            "isa.scope {{\n isa.store %s, @v[0, 0] extents [64, 64] : !isa.tile<32x128xf32>",
            "stores to what it loads",
        ),
        (
            "isa.scope {{",
            "isa.scope {{\n isa.signal @done[0] add [1] to [%device]",
            "signals",
        ),
    ],
)
def test_a_sweep_that_may_not_overlap_says_why(old: str, new: str, message: str) -> None:
    kernel = KERNEL.replace(old, new, 1)
    if "@done" in new:
        kernel = "\n  isa.counter @done count 1" + kernel
    module, sink = sweep(TILES, kernel), RemarkSink()
    ScheduleCommands().run(module, machine(), sink)
    (remark,) = [r for _, r in sink.remarks if r.id == "sweep-not-scheduled"]
    assert message in remark.message
    assert not any("stage" in op.attributes for op in module.walk())


def test_the_first_command_must_be_there() -> None:
    kernel = KERNEL.replace("isa.composite {{", "isa.scope {{", 1)
    sink = RemarkSink()
    ScheduleCommands(composites="none").run(sweep(TILES, kernel), machine(), sink)
    (remark,) = [r for _, r in sink.remarks if r.id == "sweep-not-scheduled"]
    assert "no command of its own" in remark.message


def test_stateful_commands_need_a_machine_that_has_them() -> None:
    with pytest.raises(InputError) as refused:
        ScheduleCommands(attention_schedule="stateful").run(
            sweep(TILES), machine(stateful=False), RemarkSink()
        )
    (problem,) = refused.value.diagnostics
    assert "one of blocking, pipelined" in problem.message
    assert problem.hint is not None
    assert "carry no state" in problem.hint


def test_unknown_options_are_all_refused_at_once() -> None:
    with pytest.raises(InputError) as refused:
        ScheduleCommands(composites="some", attention_schedule="eager").run(
            sweep(TILES), machine(), RemarkSink()
        )
    messages = [problem.message for problem in refused.value.diagnostics]
    assert len(messages) == 2
    assert "one of auto, none" in messages[0]
    assert "one of blocking, pipelined, stateful" in messages[1]


def test_targets_without_engines_keep_their_kernels() -> None:
    module = sweep(TILES)
    before = str(module)
    target = load_target("mi300x-cpx", gpus=1)
    ScheduleCommands(attention_schedule="stateful").run(module, target, RemarkSink())
    assert str(module) == before


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("schedule", ["blocking", "pipelined", "stateful"])
def test_streams_are_short(schedule: str, form: str) -> None:
    module = scheduled(sweep(TILES, FORMS[form]), machine(), schedule)
    (kernel,) = [op for op in module.ops if isinstance(op, isa.KernelOp)]
    assert [stream.engine.data for stream in kernel.streams] == [e.name.lower() for e in Engine]
    semaphores = [op for op in kernel.body.block.ops if isinstance(op, isa.SemaphoreOp)]
    assert len(semaphores) <= 32
