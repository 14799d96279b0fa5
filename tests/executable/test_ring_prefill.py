"""Attention of prompts on memory cubes: keys go around the cubes, query rows lie over their PEs.

Every case runs behind every pass that changes it, in one stream and in those of the engines,
against the reference on data without symmetry; the packed programs run in the simulator, which
counts what is sent and computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.analysis import sharding_rules
from starc.backend.program import Engine
from starc.checking.harness import ModelRun, check_module, check_program, run_module
from starc.core.kernel_schedules.ring_prefill import triangular
from starc.diagnostics import InputError
from starc.dialects.kernel import LaunchOp
from starc.dialects.target import set_target
from starc.frontend.loading import load_model
from starc.interpreter.program_runs import run_stack
from starc.interpreter.seeded_data import ModelData, seeded_data
from starc.passes.base import RemarkSink
from starc.passes.manager import instantiate
from starc.passes.pipeline import OptionValue
from starc.passes.program.pack import pack
from starc.passes.selection import PassSpec, plan_passes
from starc.simulator.run import simulate
from starc.simulator.state.engine_counts import (
    BUSY,
    ENGINE_COUNTS,
    INSTRUCTIONS,
    MOVE_NAMES,
    MOVES,
    PER_ENGINE,
)
from starc.targets.loader import load_target
from starc.targets.target import Target

MODEL = """
model "attention" {{
  dtype = f32, heads = {heads}, kv_heads = {kv_heads}, head_dim = {head_dim}
}}
layer only(q, k, v) {{ return attention(q, k, v, causal{more}) }}
phase prefill {{ batch = 1, prompt = 8 }}
"""


@dataclass(frozen=True)
class Case:
    """A prompt, or the last ``query`` positions of one, on ``cubes`` x ``pes`` of a group."""

    cubes: int
    pes: int
    query: int = 16
    context: int = 0  # 0: as many as queries
    heads: int = 8
    kv_heads: int = 1
    batch: int = 1
    map: str = "cyclic"
    block: int = 4
    rows: str = "auto"
    row_tile: int = 0  # 0: what follows each other
    slots: int = 3
    sips: int = 1
    groups: int = 1
    mode: str = "ring"
    head_dim: int = 8
    key_tile: int = 4
    softmax: str = "operations"
    more: str = ""

    @property
    def target(self) -> Target:
        sizes = {"sip": self.sips, "group": self.groups, "cube": self.cubes, "pe": self.pes}
        return load_target("ahbm", mesh=sizes)

    @property
    def passes(self) -> tuple[PassSpec, ...]:
        sharding: dict[str, OptionValue] = {"mode": self.mode, "map": self.map, "rows": self.rows}
        if self.map == "cyclic":
            sharding["block"] = self.block
        tiles: dict[str, OptionValue] = {"attention-keys": self.key_tile, "ring-slots": self.slots}
        if self.softmax != "operations":
            tiles["softmax"] = self.softmax
        if self.row_tile:
            tiles["attention-rows"] = self.row_tile
        options = {"shard-attention-sequence": sharding, "tile-kernels": tiles}
        return plan_passes("starscream", options=options)


@dataclass(frozen=True)
class Loaded:
    module: ModuleOp
    data: ModelData
    reference: ModelRun


@lru_cache(maxsize=32)
def load(case: Case) -> Loaded:
    text = MODEL.format(
        heads=case.heads, kv_heads=case.kv_heads, more=case.more, head_dim=case.head_dim
    )
    module = load_model(
        text,
        file="attention.sa",
        phase="prefill",
        batch=case.batch,
        context=case.context or case.query,
        prompt=case.query,
    ).module
    set_target(module, case.target)
    data = seeded_data(module)
    return Loaded(module, data, run_module(module, data))


def compiled(case: Case, last: str) -> ModuleOp:
    """The module of a case behind a pass."""
    module, target = load(case).module.clone(), case.target
    for spec in case.passes:
        instance = instantiate(spec)
        instance.run(module, target, RemarkSink(pass_name=instance.name))
        if instance.name == last:
            return module
    raise AssertionError(f"no pass is called {last}")


def check(case: Case, last: str, interleavings: tuple[int, ...] = (0,)) -> None:
    loaded, module = load(case), compiled(case, last)
    for interleaving in interleavings:
        found = check_module(
            last, module, loaded.data, loaded.reference, "exact", interleaving=interleaving
        )
        assert found.ok, (last, interleaving, found.error, found.message)


CHANGING = (
    "shard-attention-sequence",
    "localize",
    "fuse-compute-collectives",
    "plan-memory",
    "lower-to-isa",
    "assign-engines",
)
SMALL = Case(4, 2)


@pytest.mark.parametrize("name", CHANGING)
@pytest.mark.parametrize(
    "case",
    [SMALL, replace(SMALL, map="contiguous", context=24, query=9, batch=2)],
    ids=["prompt", "chunk"],
)
def test_every_pass_keeps_what_the_attention_computes(case: Case, name: str) -> None:
    check(case, name)
    if name in CHANGING[:2]:
        assert sharding_rules.check(compiled(case, name)) == []


MESHES = [(cubes, pes) for cubes in (1, 2, 4, 8) for pes in (1, 2, 4) if 1 < cubes * pes <= 16]


@pytest.mark.parametrize("map", ["cyclic", "contiguous"])
@pytest.mark.parametrize(("cubes", "pes"), MESHES)
def test_every_mesh_on_engines(cubes: int, pes: int, map: str) -> None:
    check(Case(cubes, pes, query=4 * cubes * pes, map=map), "assign-engines")


CASES = [
    # Rows in stretches, dealt out, and in several tiles whose state is kept in memory.
    Case(2, 2, query=32, rows="contiguous", row_tile=8),
    Case(2, 2, query=32, rows="cyclic", row_tile=8),
    Case(2, 2, query=32, rows="zigzag", row_tile=16, slots=2),
    # Several sequences; a cache that is longer than what is written; lengths that do not divide.
    Case(2, 2, query=8, context=24, batch=3, slots=2),
    Case(2, 2, query=7, context=21, map="contiguous"),
    Case(2, 4, query=5, context=13, block=1, batch=2),
    # Several heads of a cube share a KV head; KV heads of several groups and SIPs.
    Case(2, 2, heads=16, kv_heads=2, groups=2),
    Case(2, 1, heads=16, kv_heads=4, groups=2, sips=2),
    # More cubes than query heads of a KV head: the rest of the axis has query rows.
    Case(8, 1, heads=4, query=32),
    Case(4, 2, more=", window = 9", query=32),
    # The softmax of a tile as one command.
    replace(SMALL, softmax="fused"),
    Case(2, 2, query=32, rows="zigzag", row_tile=16, slots=2, softmax="fused"),
    Case(2, 2, query=7, context=21, map="contiguous", softmax="fused"),
    Case(4, 2, more=", window = 9", query=32, softmax="fused"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_shapes_on_engines(case: Case) -> None:
    check(case, "assign-engines", (0, 1))


@pytest.mark.parametrize("case", [SMALL, CASES[2], CASES[3]], ids=str)
def test_packed_programs(case: Case) -> None:
    loaded, module = load(case), compiled(case, "verify-schedule")
    program = pack(module, case.target)
    reference = run_stack(loaded.module, loaded.data, "exact")
    found = check_program(program, loaded.data, reference)
    assert found.ok, (found.error, found.message)


@pytest.mark.parametrize(("cubes", "pes"), [(1, 4), (2, 2), (4, 2), (8, 1)])
def test_what_is_sent_and_computed_in_the_simulator(cubes: int, pes: int) -> None:
    """Every PE sends on its shares of all blocks but one, keys and values by tiles of four; the
    PEs of a cube compute the lower triangle of tiles, two products each."""
    tiles = 2 * cubes * pes
    case = Case(cubes, pes, query=4 * tiles, heads=cubes, row_tile=4, rows="zigzag")
    program = pack(compiled(case, "assign-engines"), case.target)
    result = simulate(program)
    launch = next(i for i, row in enumerate(program.launch_kinds) if row == "attention")
    counts = np.asarray(result.engine_counts[launch]).reshape(cubes * pes, ENGINE_COUNTS)
    puts = counts[:, MOVES + MOVE_NAMES.index("puts")]
    assert puts.tolist() == [2 * 2 * (cubes - 1)] * (cubes * pes)
    products = counts[:, Engine.GEMM * PER_ENGINE + INSTRUCTIONS].reshape(cubes, pes)
    assert products.sum(axis=1).tolist() == [2 * triangular(tiles)] * cubes
    again = simulate(program)
    assert again.time_ps == result.time_ps
    assert np.array_equal(again.engine_counts, result.engine_counts)


def attention_times(case: Case) -> tuple[int, list[int]]:
    """Picoseconds of an attention, and those that the DMA, GEMM and MATH engines of its busiest
    device work."""
    module, target = (
        load_model(
            MODEL.format(heads=case.heads, kv_heads=1, more="", head_dim=case.head_dim),
            file="attention.sa",
            phase="prefill",
            prompt=case.query,
        ).module,
        case.target,
    )
    set_target(module, target)
    for spec in case.passes:
        instance = instantiate(spec)
        if instance.name != "verify-schedule":
            instance.run(module, target, RemarkSink(pass_name=instance.name))
    program = pack(module, target)
    result = simulate(program)
    launch = next(i for i, kind in enumerate(program.launch_kinds) if kind == "attention")
    time = int(np.max(result.ends[launch]) - np.min(result.starts[launch]))
    counts = np.asarray(result.engine_counts[launch])
    engines = (Engine.DMA, Engine.GEMM, Engine.MATH)
    return time, [int(counts[:, engine * PER_ENGINE + BUSY].max()) for engine in engines]


def test_keys_arrive_while_others_are_computed_with() -> None:
    """The kernel takes less than its loads, products and softmax one after the other. Where blocks
    are stretches of positions, cubes wait for the one that has the first, with two slots."""
    case = Case(4, 1, query=1024, heads=4, head_dim=64, key_tile=64, block=64)
    dealt, engines = attention_times(case)
    assert max(engines) < dealt < 0.75 * sum(engines)
    stretches, same = attention_times(replace(case, map="contiguous", slots=2))
    assert same[1] == engines[1]
    assert stretches > dealt


def test_prompts_go_around_by_default_and_single_tokens_do_not() -> None:
    for query, rings in ((16, 1), (1, 0)):
        case = replace(SMALL, mode="auto", query=query, context=16)
        module = compiled(case, "fuse-compute-collectives")
        found = [op for op in module.walk() if isinstance(op, LaunchOp) and op.ring is not None]
        assert len(found) == rings


def test_one_slot_is_refused() -> None:
    with pytest.raises(InputError, match="ring-slots: is 1, at least 2"):
        compiled(replace(SMALL, slots=1), "tile-kernels")


def test_other_machines_pass_no_keys_on() -> None:
    module = load(SMALL).module.clone()
    target = load_target("mi300x-cpx", mesh={"gpu": 1, "xcd": 8})
    set_target(module, target)
    *before, sharding = SMALL.passes[:4]
    for spec in before:
        instantiate(spec).run(module, target, RemarkSink())
    with pytest.raises(InputError, match="option 'mode' has no value 'ring' on mi300x-cpx"):
        instantiate(sharding).run(module, target, RemarkSink())
