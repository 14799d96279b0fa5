"""The verification plan of the kernbench design record ADR-0060, section 11: items 6 to 8."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from starc.backend.program import Engine, Opcode
from starc.core.vector_functions.table import BY_NAME
from starc.simulator.state import engine_counts as counts
from tests.ahbm.runs import Attention, Run, reference, run

ROOT = Path(__file__).parents[2]
TILES = 16
SWEEP = Attention(1, 1, context=64 * TILES, keys=64, head_dim=64, dtype="bf16")
SCHEDULES = {
    "blocking": replace(SWEEP, schedule="blocking"),
    "pipelined": SWEEP,
    "stateful": replace(SWEEP, schedule="stateful", stateful=True),
}
FUSED = {name: replace(case, tiles=(("softmax", "fused"),)) for name, case in SCHEDULES.items()}
"""The same with a MATH engine that has the softmax of a tile as one command."""
FORMS = {"operations": SCHEDULES, "fused": FUSED}


def busy(found: Run, engine: Engine) -> int:
    return found.of_engine(engine, counts.BUSY)[0]


def products(found: Run) -> tuple[list[int], list[int]]:
    """Begins of the products with keys and with values, one each a tile."""
    rows = found.rows(Engine.GEMM, Opcode.MATRIX, 0)
    first, second = np.unique(rows["record"])
    starts = [rows["start_ps"][rows["record"] == record].tolist() for record in (first, second)]
    assert [len(each) for each in starts] == [TILES, TILES]
    return starts[0], starts[1]


def softmaxes(found: Run) -> list[int]:
    """Begins of the softmax of every tile, which is where scores are masked."""
    rows = found.rows(Engine.MATH, Opcode.VECTOR, 0)
    called = found.program.records["fn"][rows["record"]]
    starts = rows["start_ps"][called == BY_NAME["mask"].id].tolist()
    assert len(starts) == TILES
    return starts


def composites(found: Run) -> list[list[int]]:
    """When the CPU began to issue every composite, by record."""
    stream = next(
        stream
        for template in found.program.templates
        if template.name.endswith("attention")
        for stream in template.streams
        if stream.engine == Engine.SCHEDULER
    )
    first, last = stream.first_record, stream.first_record + stream.records
    operations = found.program.records["op"]
    awaited = {
        int(found.program.records["buffer"][n])
        for n in range(first, last)
        if operations[n] == Opcode.ACQUIRE
    }
    issued: list[list[int]] = []
    rows = found.rows(Engine.CPU, Opcode.DELAY, 0)
    for record in np.unique(rows["record"]).tolist():
        following = found.program.records[record + 1]
        if following["op"] == Opcode.RELEASE and int(following["buffer"]) in awaited:
            issued.append(rows["start_ps"][rows["record"] == record].tolist())
    return issued


# 6. Loads and computation overlap


@pytest.mark.parametrize("name", ["blocking", "pipelined", "stateful"])
def test_item_6_the_sweep_takes_less_than_loads_and_work_one_after_the_other(name: str) -> None:
    found = run(SCHEDULES[name])
    loads = found.rows(Engine.DMA, Opcode.LOAD, 0)
    assert len(loads) == 1 + 2 * TILES
    transfers = busy(found, Engine.DMA)  # time with anything on its way, counted once
    assert transfers <= int((loads["end_ps"] - loads["start_ps"]).sum())
    serial = transfers + busy(found, Engine.GEMM) + busy(found, Engine.MATH)
    if name == "blocking":  # nothing is issued ahead: that takes its time, too
        assert found.launch.time_ps < serial + busy(found, Engine.CPU)
        return
    assert found.launch.time_ps < 0.8 * serial
    # Somewhere a load is under way while each of the other engines works.
    for engine, opcode in ((Engine.GEMM, Opcode.MATRIX), (Engine.MATH, Opcode.VECTOR)):
        rows = found.rows(engine, opcode, 0)
        begun = loads["start_ps"][:, None] < rows["end_ps"]
        assert (begun & (rows["start_ps"] < loads["end_ps"][:, None])).any()


def test_item_6_queries_arrive_while_keys_are_on_their_way() -> None:
    """Loads are lazy: the first tile of keys does not wait for the queries."""
    found = run(SWEEP)
    queries, keys = found.rows(Engine.DMA, Opcode.LOAD, 0)[:2]
    assert keys["start_ps"] < queries["end_ps"]


# 7. Products are composites, and the next one is given before the last one is awaited


@pytest.mark.parametrize("name", ["blocking", "pipelined"])
def test_item_7_products_are_commands_of_the_scheduler(name: str) -> None:
    """No product is issued by the CPU: two composites a tile are, each before its product."""
    found = run(SCHEDULES[name])
    assert found.commands("matrix") == 0
    assert found.commands("composite") == 2 * TILES
    (keys, values), (first, second) = composites(found), products(found)
    assert [len(keys), len(values)] == [TILES, TILES]
    assert all(issued < begun for issued, begun in zip(keys, first, strict=True))
    assert all(issued < begun for issued, begun in zip(values, second, strict=True))


def test_item_7_scores_are_commanded_before_the_tile_before_is_awaited() -> None:
    """opt3: the scores of a tile are issued before the softmax of the tile before begins, and come
    before its second product. opt1: the CPU waits for scores before it issues more, and products
    follow each other tile by tile."""
    found, tiles = run(SCHEDULES["pipelined"]), range(1, TILES)
    issued, weights, (scores, values) = composites(found)[0], softmaxes(found), products(found)
    assert all(issued[tile] < weights[tile - 1] for tile in tiles)
    assert all(scores[tile] < values[tile - 1] for tile in tiles)
    found = run(SCHEDULES["blocking"])
    issued, weights, (scores, values) = composites(found)[0], softmaxes(found), products(found)
    assert all(issued[tile] >= weights[tile - 1] for tile in tiles)
    assert all(scores[tile] > values[tile - 1] for tile in tiles)


@pytest.mark.parametrize(("form", "commands"), [("operations", 13), ("fused", 5)])
def test_item_7_the_second_composite_may_carry_the_state(form: str, commands: int) -> None:
    """opt2: two commands a tile and nothing else; opt1 and opt3 issue as many as each other, eleven
    of them to the MATH engine, three where it has the softmax as one."""
    issued = {
        name: sum(run(case).commands(each) for each in counts.COMMAND_NAMES)
        for name, case in FORMS[form].items()
    }
    stateful = run(FORMS[form]["stateful"])
    outside = issued["stateful"] - 2 * TILES  # queries, the state, the end
    assert outside == stateful.commands("math") + 2
    assert issued["blocking"] == issued["pipelined"] == outside + commands * TILES
    assert stateful.commands("composite") == 2 * TILES


@pytest.mark.parametrize("form", ["operations", "fused"])
@pytest.mark.parametrize("name", ["blocking", "pipelined", "stateful"])
def test_schedules_keep_what_is_computed(name: str, form: str) -> None:
    found = run(FORMS[form][name])
    np.testing.assert_allclose(
        found.output(), reference(found.case, found.data), rtol=1e-9, atol=1e-12
    )


def test_both_forms_of_the_softmax_are_the_same_work() -> None:
    """The operations one by one take what the fused command does, and nine lane operations for
    each row of a tile: eight rows are less than the lanes, so that each takes a cycle or more."""
    cycle = SWEEP.target.cycle_ps
    for name in SCHEDULES:
        more = busy(run(SCHEDULES[name]), Engine.MATH) - busy(run(FUSED[name]), Engine.MATH)
        assert 0 < more <= TILES * 9 * cycle, name


def test_issues_cost_what_is_not_hidden() -> None:
    """Blocking pays for every command; pipelined hides them behind products, and stateful does not
    have them."""
    time = {
        form: {name: run(case).launch.time_ps for name, case in cases.items()}
        for form, cases in FORMS.items()
    }
    eight = 8 * TILES * SWEEP.target.issue_ps["math"]  # commands that the fused form saves
    saved = {name: time["operations"][name] - time["fused"][name] for name in SCHEDULES}
    assert 0.8 * eight < saved["blocking"] < 1.2 * eight
    assert saved["pipelined"] < 0.2 * eight
    assert abs(saved["stateful"]) < 0.05 * eight


def test_schedules_differ_by_the_bubbles_of_the_matrix_engine() -> None:
    time = {name: run(case).launch.time_ps for name, case in SCHEDULES.items()}
    idle = {name: t - busy(run(SCHEDULES[name]), Engine.GEMM) for name, t in time.items()}
    assert time["pipelined"] < time["blocking"]
    assert idle["pipelined"] < idle["blocking"]


# 8. The same inputs give the same log and times


def test_item_8_two_processes_write_the_same_log(tmp_path: Path) -> None:
    """Byte by byte, whatever the hashes of strings are."""
    found: set[tuple[str, str]] = set()
    for seed in ("1", "2"):
        log = tmp_path / f"{seed}.csv"
        done = subprocess.run(
            [Path(sys.executable).with_name("starc"), "compile",
             "examples/ahbm-attention-decode.sa",
             "--target", "ahbm", "--mesh", "sip=1,group=1,cube=2,pe=4", "--set", "heads=8",
             "--set", "kv_heads=1", "--context", "2048", "--log", str(log), "--format", "json"],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, text=True, capture_output=True,
            check=True,
        )  # fmt: skip
        cycles = [line for line in done.stdout.splitlines() if "cycles" in line or "_us" in line]
        assert cycles
        found.add((hashlib.sha256(log.read_bytes()).hexdigest(), "\n".join(cycles)))
    assert len(found) == 1
