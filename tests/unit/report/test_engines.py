"""Engines of a device in reports, in the log of operations and in timelines."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from starc.backend.program import Engine, Program, Role, Space
from starc.backend.template import DEVICE
from starc.report.engines import engine_reports, engines_table
from starc.report.glossary import entry_for
from starc.report.lanes import shown_devices
from starc.report.model import EngineUse, KernelEngines
from starc.report.operation_log import COLUMNS, csv_text, json_lines_text
from starc.report.trace import trace_text
from starc.simulator.results.result import SimulationResult
from tests.unit.simulator.programs import BF16, F32, assembler, machine, run

PAIR = machine("ahbm", sip=1, group=1, cube=1, pe=2)


def program() -> Program:
    """Two tiles are loaded and multiplied; the result goes to the other PE, with a signal, for
    which each waits."""
    p = assembler("exchange", PAIR)
    x = p.buffer("x", (64, 64), BF16, role=Role.INPUT)
    y = p.buffer("y", (32, 32), F32, space=Space.SYMMETRIC)
    flags = p.counter("flags", 1)
    t = p.template("exchange")
    a, acc = t.tile(32, 64, BF16, slots=2, depth=1), t.tile(32, 32, F32)
    expand, load, product = t.semaphore(), t.semaphore(), t.semaphore()
    there, ready, send = t.semaphore(), t.semaphore(), t.semaphore()
    with t.stream(Engine.CPU):
        t.delay(10_000)
        t.release(expand)
        t.delay(5_000)
        t.release(send)
        t.wait(flags, 0, 1)
    with t.stream(Engine.SCHEDULER):
        t.acquire(expand)
        with t.loop(0, 2):
            t.delay(1_000)
            t.release(load)
            t.delay(1_000)
            t.release(product)
    with t.stream(Engine.DMA):
        with t.loop(0, 2) as i:
            t.acquire(load)
            t.load(a, x, (i * 32, 0))
            t.release(there, a)
        t.acquire(send)
        t.acquire(ready)
        t.put(acc, y, (0, 0), (DEVICE + 1) % 2)
        t.signal(flags, 0, peer=(DEVICE + 1) % 2, attached=True)
    with t.stream(Engine.GEMM):
        with t.loop(0, 2):
            t.acquire(product)
            t.acquire(there)
            t.matrix(acc, a, a, transpose_b=True)
        t.release(ready)
    p.layer("layer")
    p.launch("layer.kernel", [(p.add(t, window_bytes=1 << 16), 1)])
    return p.finish()


PROGRAM = program()


def simulated(**options: bool | tuple[int, ...]) -> SimulationResult:
    return run(PROGRAM, PAIR, jit=False, skew=False, **options)


def test_engines_of_a_kernel() -> None:
    result = simulated()
    (found,) = engine_reports(PROGRAM, PAIR, result, PROGRAM.layers[0])
    time = result.time_ps * 1e-6
    cpu, gemm, dma = (found.engines[name] for name in ("cpu", "gemm", "dma"))
    assert found.name == "layer.kernel"
    assert cpu.busy_us == pytest.approx(0.015)
    assert found.engines["scheduler"].busy_us == pytest.approx(0.004)
    # The kernel ends when it knows that its put has arrived.
    assert 0.128 < cpu.awaited_us < time - 0.015
    # The second tile comes 20 ns behind the first, so the second product follows at once.
    assert gemm.busy_us == pytest.approx(0.128)
    assert gemm.idle_us == pytest.approx(time - 0.128)
    assert (gemm.bubbles, gemm.bubbles_us) == (0, 0)
    # Loads, then the put.
    assert dma.bubbles == 2
    assert dma.bubbles_us > 0.064
    assert gemm.instructions == 4
    assert found.commands == {
        "composite": 2, "load": 0, "store": 0, "send": 2, "signal": 0, "receive": 2, "matrix": 0,
        "math": 0,
    }  # fmt: skip
    assert found.moves == {
        "loads": 4, "gets": 0, "stores": 0, "puts": 2, "signals": 2, "requests": 6,
    }  # fmt: skip
    assert found.messages == {"pe_mesh": 2, "noc": 0, "ucie": 0}


def test_the_log_has_every_instruction_in_order() -> None:
    result = simulated(log=True)
    lines = csv_text(PROGRAM, result.log).splitlines()  # pyright: ignore[reportArgumentType]
    assert lines[0] == ",".join(COLUMNS)
    assert lines[1] == (
        "0,sip=0 group=0 cube=0 pe=0,layer.kernel,0,cpu,0,0,0,10000,delay 10000 ps,"
    )
    assert len(lines) > 20
    rows = [json.loads(line) for line in json_lines_text(PROGRAM, result.log).splitlines()]  # pyright: ignore[reportArgumentType]
    loads = [row for row in rows if row["operation"].startswith("load") and row["device"] == 1]
    assert [row["iteration"] for row in loads] == [0, 1]
    assert [row["engine"] for row in loads] == ["dma", "dma"]
    assert simulated(log=True).key() == result.key()
    assert simulated(log=True, log_devices=(1,)).log is not None


def test_a_log_of_some_devices_has_no_others() -> None:
    log = simulated(log=True, log_devices=(1,)).log
    assert log is not None
    assert set(log["device"].tolist()) == {1}


def test_what_is_observed_changes_no_time() -> None:
    assert simulated(log=True).key()[:7] == simulated().key()[:7]


def test_a_timeline_has_lanes_of_engines() -> None:
    assert shown_devices(PROGRAM) == (0,)
    trace = json.loads(trace_text(PROGRAM, simulated(log=True), shown_devices(PROGRAM)))
    events = trace["traceEvents"]
    packages = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert packages[0] == "SIP 0"
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    lanes = [name for name in names if "sip=0" in name]
    assert lanes == [
        f"device 0 (sip=0 group=0 cube=0 pe=0), {engine}"
        for engine in ("cpu", "scheduler", "dma", "dma 2", "gemm")
    ]
    products = [event for event in events if event["name"] == "matrix"]
    assert [event["dur"] for event in products] == [0.064, 0.064]
    assert products[0]["args"]["operation"].startswith("matrix 32x32x64")
    # Slices of a lane do not overlap.
    by_lane: dict[int, float] = {}
    for event in sorted((e for e in events if e.get("cat") == "dma"), key=lambda e: e["ts"]):
        assert by_lane.get(event["tid"], 0.0) <= event["ts"] + 1e-9
        by_lane[event["tid"]] = event["ts"] + event["dur"]


def test_plain_kernels_have_a_log_but_no_engines() -> None:
    gpu = machine(gpu=1, xcd=1)
    p = assembler("plain", gpu)
    x = p.buffer("x", (64, 64), BF16, role=Role.INPUT)
    t = p.template("plain")
    a, acc = t.tile(64, 64, BF16), t.tile(64, 64, F32)
    t.load(a, x, (0, 0))
    t.matrix(acc, a, a, transpose_b=True)
    p.layer("layer")
    p.launch("kernel", [(p.add(t), 2)])
    packed = p.finish()
    result = run(packed, gpu, jit=False, log=True)
    assert result.log is not None
    assert sorted(result.log[["engine", "workgroup"]].tolist()) == [
        (Engine.DMA, 0), (Engine.DMA, 1), (Engine.GEMM, 0), (Engine.GEMM, 1),
    ]  # fmt: skip
    assert engine_reports(packed, gpu, result, packed.layers[0]) == []
    assert run(packed, gpu, jit=False).key()[:7] == result.key()[:7]


def test_the_table_and_all_keys_are_explained() -> None:
    (found,) = engine_reports(PROGRAM, PAIR, simulated(), PROGRAM.layers[0])
    table = engines_table([found], "layer")
    words = [str(column.header) for column in table.columns]
    words += [item.name for section in (EngineUse, KernelEngines) for item in fields(section)]
    assert not [word for word in words if entry_for(word) is None]
