"""Attention kernels whose keys go around a ring of cubes: results, messages, and what is skipped.

The outer axis stands for the cubes of a group, the inner one for the PEs of a cube.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from starc.core.kernel_schedules.ring_prefill import RingProblem, ring_order, triangular
from starc.core.sharding.encoding import AxisRef, DimSharding, Encoding
from starc.core.sharding.shard_map import CONTIGUOUS, Cyclic, ShardMap, Zigzag
from starc.dialects import isa
from starc.interpreter.concurrent import ConcurrentMachine, ScheduleError
from starc.passes.base import RemarkSink
from starc.passes.isa.lower_to_isa import LowerToIsa
from tests.unit.passes.launches import Launch, check
from tests.unit.passes.sharded_values import held, node, type_text
from tests.unit.passes.test_lower_to_isa import attributes, random

Array = npt.NDArray[Any]
RECTANGLES = {1: (1, 1), 2: (1, 2), 4: (2, 2), 8: (2, 4)}


@dataclass(frozen=True)
class Ring:
    """A prompt, or a chunk of one, whose last query is the last of the written positions."""

    cubes: int
    pes: int
    query: int
    context: int
    keys: ShardMap = CONTIGUOUS
    rows: ShardMap = CONTIGUOUS
    row_tile: int = 4
    key_tile: int = 4
    batch: int = 1
    kv_heads: int = 1
    group: int = 1  # query heads of a cube that share a KV head
    capacity: int = 0  # positions of the cache; 0: as many as there are
    slots: int = 3
    d: int = 8
    window: int | None = None
    causal: bool = True
    sink: bool = False

    @property
    def mesh(self) -> tuple[int, int]:
        return self.cubes, self.pes

    @property
    def positions(self) -> int:
        return max(self.capacity, self.context)

    @property
    def heads(self) -> int:
        """Of all cubes, those of a KV head side by side on a cube."""
        return self.cubes * self.kv_heads * self.group

    @property
    def start(self) -> int:
        return self.context - self.query

    def encoding(self, rank: int, **dims: DimSharding) -> Encoding:
        found = list(Encoding.replicated(node(self.mesh), rank).dims)
        for name, sharding in dims.items():
            found[int(name[1:])] = sharding
        return Encoding(node(self.mesh), tuple(found))

    @property
    def queries(self) -> Encoding:
        heads = DimSharding((AxisRef("gpu"),), CONTIGUOUS)
        return self.encoding(3, _1=DimSharding((AxisRef("xcd"),), self.rows), _2=heads)

    @property
    def cache(self) -> Encoding:
        axes = (AxisRef("gpu"), AxisRef("xcd"))
        return self.encoding(4, _2=DimSharding(axes, self.keys))

    @property
    def query_shape(self) -> tuple[int, int, int]:
        return self.batch, self.query, self.heads * self.d

    @property
    def cache_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.kv_heads, self.positions, self.d

    @property
    def row_tiles(self) -> int:
        rows = self.queries.local_shape(self.query_shape)[1]
        return -(-rows // min(rows, self.row_tile))

    def launch(self) -> Launch:
        q = type_text(self.queries, self.query_shape)
        cache = type_text(self.cache, self.cache_shape)
        whole = type_text(Encoding.replicated(node(self.mesh), 4), self.cache_shape)
        tile = min(self.queries.local_shape(self.query_shape)[1], self.row_tile) * self.group
        share = self.cache.local_shape(self.cache_shape)[2]
        buffers = {"q": q, "k": cache, "v": cache, "y": q}
        workspace: dict[str, str] = {}
        if self.row_tiles > 1:
            lead = f"{self.row_tiles}x{tile}"
            workspace = {"pm": f"{lead}xf32", "pl": f"{lead}xf32", "po": f"{lead}x{self.d}xf32"}
        staging = {f"slots{x}": f"{self.slots}x{share}x{self.d}xbf16" for x in "kv"}
        schedule = attributes(
            tile=[tile, self.key_tile, self.d],
            group=self.group,
            stages=2,
            grid=[1],
            waits=True,
            ring=list(ring_order(*RECTANGLES[self.cubes])),
            workspace=list(workspace) or None,
            staging=list(staging),
        )
        properties = f"head_dim = {self.d} : i64, start = {self.start} : i64"
        properties += f", scale = {self.d**-0.5} : f64"
        properties += ", causal" if self.causal else ""
        properties += f", window = {self.window} : i64" if self.window is not None else ""
        reads, sink = f"%q = @q : tensor<{q}>, %k = @k : tensor<{cache}>", ""
        reads += f", %v = @v : tensor<{cache}>"
        if self.sink:
            heads = DimSharding((AxisRef("gpu"),), CONTIGUOUS)
            buffers["s"] = type_text(self.encoding(1, _0=heads), (self.heads,))
            reads += f", %s = @s : tensor<{buffers['s']}>"
            sink = f"sink %s : tensor<{buffers['s']}>"
        gather = f'on @node axes = ["gpu", "xcd"] dim = 2 : tensor<{cache}> -> tensor<{whole}>'
        text = f"""
        kernel.launch @attention attention reads ({reads}) writes (@y) {schedule} {{
          %0 = collective.all_gather %k {gather}
          %1 = collective.all_gather %v {gather}
          %y = nn.attention %q, %0, %1 {sink} {{{properties}}}
            : tensor<{q}>, tensor<{whole}>, tensor<{whole}> -> tensor<{q}>
          kernel.yield %y : tensor<{q}>
        }}"""
        buffers |= {**workspace, **staging}
        return Launch(text, buffers, self.mesh, symmetric=tuple(staging))

    # Values: no two of them are alike

    def values(self) -> dict[str, Array]:
        cache = {name: random(*self.cache_shape, seed=i) for i, name in enumerate("kv", 1)}
        for values in cache.values():
            values[:, :, self.context :] = np.nan
        return {"q": random(*self.query_shape), **cache, "s": random(self.heads, seed=3)}

    def result(self) -> Array:
        values = self.values()
        q = values["q"].reshape(self.batch, self.query, self.heads, self.d)
        result = np.zeros_like(q)
        at, seen_at = np.arange(self.start, self.context), np.arange(self.context)
        for b in range(self.batch):
            for h in range(self.heads):
                kv = h // self.group % self.kv_heads
                k, v = (values[name][b, kv, : self.context] for name in "kv")
                s = q[b, :, h] @ k.T * self.d**-0.5
                distance = at[:, None] - seen_at[None, :]
                if self.causal:
                    s[distance < 0] = -np.inf
                if self.window is not None:
                    s[distance >= self.window] = -np.inf
                if self.sink:
                    s = np.concatenate([s, np.full((self.query, 1), values["s"][h])], axis=1)
                    v = np.concatenate([v, np.zeros((1, self.d))])
                p = np.exp(s - s.max(axis=1, keepdims=True))
                result[b, :, h] = (p / p.sum(axis=1, keepdims=True)) @ v
        return result.reshape(self.query_shape)

    def split(self, values: Array, encoding: Encoding) -> list[Array]:
        """What each device has of queries or results; other slots are NaN."""
        parts: list[Array] = []
        for coords in encoding.mesh.devices():
            part = np.full(encoding.local_shape(values.shape), np.nan)
            rows = encoding.global_indices(1, values.shape[1], coords)
            columns = encoding.global_indices(2, values.shape[2], coords)
            part[:, : len(rows), : len(columns)] = values[:, rows][:, :, columns]
            parts.append(part)
        return parts

    def check(self, seeds: Sequence[int | None] = (0, 1, 2, 4)) -> None:
        values = self.values()
        inputs: dict[str, list[Array]] = {
            "q": self.split(values["q"], self.queries),
            **{name: held(values[name], self.cache, 2) for name in "kv"},
        }
        if self.sink:
            own = self.heads // self.cubes
            inputs["s"] = [
                values["s"][cube * own : (cube + 1) * own]
                for cube in range(self.cubes)
                for _ in range(self.pes)
            ]
        expected = {"y": self.split(self.result(), self.queries)}
        check(self.launch(), inputs, expected, seeds)


SHAPES = [(1, 1), (1, 4), (2, 1), (2, 2), (4, 2), (8, 1)]


@pytest.mark.parametrize("keys", [CONTIGUOUS, Cyclic(4), Cyclic(1), Zigzag()], ids=str)
@pytest.mark.parametrize(("cubes", "pes"), SHAPES)
def test_a_prompt_gives_the_reference(cubes: int, pes: int, keys: ShardMap) -> None:
    Ring(cubes, pes, 8 * pes, 8 * pes, keys, row_tile=8).check((0, 1))


@pytest.mark.parametrize(
    "rows", [CONTIGUOUS, Cyclic(4), Zigzag()], ids=lambda m: m.suffix() or "contiguous"
)
@pytest.mark.parametrize("keys", [CONTIGUOUS, Cyclic(4), Zigzag()], ids=str)
def test_several_tiles_of_query_rows_keep_their_state_in_memory(
    keys: ShardMap, rows: ShardMap
) -> None:
    case = Ring(2, 2, 16, 16, keys, rows, row_tile=4)
    assert case.row_tiles == 2
    case.check((0, 1))


@pytest.mark.parametrize("row_tile", [4, 16])
@pytest.mark.parametrize("keys", [CONTIGUOUS, Cyclic(4), Cyclic(4, by=0)], ids=str)
def test_chunks_of_prompts_of_several_sequences_and_heads(keys: ShardMap, row_tile: int) -> None:
    """Queries begin at an offset, and the cache has positions that nobody has written."""
    case = Ring(
        2, 2, 16, 24, keys, row_tile=row_tile, batch=2, kv_heads=2, group=3, capacity=32, slots=2
    )
    case.check((0, 1))
    replace(case, cubes=1).check((1,))
    replace(case, pes=1, slots=4).check((0,))


@pytest.mark.parametrize(("query", "context"), [(5, 5), (13, 30), (1, 9)])
@pytest.mark.parametrize("keys", [CONTIGUOUS, Cyclic(1), Cyclic(2, by=0)], ids=str)
@pytest.mark.parametrize("rows", [CONTIGUOUS, Cyclic(4)], ids=str)
def test_ragged_lengths(query: int, context: int, keys: ShardMap, rows: ShardMap) -> None:
    Ring(2, 4, query, context, keys, rows, batch=2).check((0,))


def test_windows_sinks_and_queries_that_see_everything() -> None:
    case = Ring(2, 2, 16, 32, Cyclic(4), Cyclic(4), group=2, sink=True)
    case.check()
    replace(case, window=9).check()
    replace(case, causal=False).check()
    replace(case, keys=CONTIGUOUS, window=9, batch=2).check()


# What is done, counted in the program


def kernel_of(case: Ring) -> isa.KernelOp:
    module = case.launch().module()
    LowerToIsa().run(module, case.launch().target, RemarkSink())
    return next(op for op in module.ops if isinstance(op, isa.KernelOp))


def executed(case: Ring, kind: type[Operation]) -> list[int]:
    """How many instructions of a kind each device executes."""
    kernel = kernel_of(case)
    found: list[int] = []
    for coords in node(case.mesh).devices():
        device = coords["gpu"] * case.pes + coords["xcd"]
        values: dict[SSAValue, int] = {kernel.device: device, kernel.workgroup: 0}
        values |= dict(zip(kernel.axes, coords.values(), strict=True))
        found.append(_executed(kernel.body.block, values, kind))
    return found


def _executed(block: Block, values: dict[SSAValue, int], kind: type[Operation]) -> int:
    def value(attribute: isa.ExpressionAttr, indices: Sequence[SSAValue]) -> int:
        names = {f"d{i}": values[index] for i, index in enumerate(indices)}
        return attribute.data.evaluate(names)

    total = 0
    for op in block.ops:
        total += isinstance(op, kind)
        match op:
            case isa.IndexOp():
                values[op.result] = value(op.value, op.indices)
            case isa.LoopOp():
                first, last = (value(end, op.indices) for end in (op.lower, op.upper))
                for counter in range(first, last):
                    values[op.counter] = counter
                    total += _executed(op.body.block, values, kind)
            case isa.IfOp():
                if value(op.condition, op.indices) >= 0:
                    total += _executed(op.body.block, values, kind)
            case isa.CompositeOp() | isa.ScopeOp():
                total += _executed(op.body.block, values, kind)
            case _:
                pass
    return total


@pytest.mark.parametrize(("cubes", "pes"), SHAPES)
def test_blocks_go_on_one_time_less_than_there_are_cubes(cubes: int, pes: int) -> None:
    """Puts are keys and values of a share, each once a rotation: no maxima, sums or products of a
    head cross from one device to another."""
    size = 8 * cubes * pes
    case = Ring(cubes, pes, size, size, Cyclic(4), Cyclic(4))
    share_tiles = 2
    assert executed(case, isa.PutOp) == [2 * share_tiles * (cubes - 1)] * (cubes * pes)
    moved = {op.buffer.string_value() for op in kernel_of(case).walk() if isinstance(op, isa.PutOp)}
    assert moved == ({"slotsk", "slotsv"} if cubes > 1 else set())


def test_every_cube_computes_heads_of_its_own() -> None:
    """Heads of other cubes may be anything."""
    case = Ring(2, 2, 16, 16, Cyclic(4), Cyclic(4))
    values = case.values()
    inputs = {
        "q": case.split(values["q"], case.queries),
        **{name: held(values[name], case.cache, 2) for name in "kv"},
    }
    before = case.launch().run(inputs, 0)
    inputs["q"] = [q * (1 if device < 2 else 3) for device, q in enumerate(inputs["q"])]
    behind = case.launch().run(inputs, 0)
    for device in range(4):
        same = np.array_equal(before[device]["y"], behind[device]["y"])
        assert same == (device < 2)


@pytest.mark.parametrize("keys", [CONTIGUOUS, Cyclic(4), Zigzag()], ids=str)
@pytest.mark.parametrize("rows", [CONTIGUOUS, Cyclic(4), Zigzag()], ids=str)
@pytest.mark.parametrize(("cubes", "pes"), [(1, 4), (2, 2), (4, 2)])
def test_a_prompt_takes_the_triangular_number_of_products(
    cubes: int, pes: int, keys: ShardMap, rows: ShardMap
) -> None:
    tiles = 2 * cubes * pes
    case = Ring(cubes, pes, 4 * tiles, 4 * tiles, keys, rows)
    found = executed(case, isa.MatrixOp)
    for cube in range(cubes):  # keys and values, for the one head of a cube
        assert sum(found[cube * pes : (cube + 1) * pes]) == 2 * triangular(tiles)
    problem = RingProblem(cubes, pes, 4 * tiles, 0, 4 * tiles, keys, rows, 4, 4)
    assert found == [2 * problem.pe_tiles(pe) for _ in range(cubes) for pe in range(pes)]


@pytest.mark.parametrize("keys", [CONTIGUOUS, Cyclic(1), Cyclic(4)], ids=str)
@pytest.mark.parametrize(("query", "context"), [(16, 16), (16, 48), (9, 29)])
def test_what_is_skipped_is_what_no_row_of_a_tile_sees(
    keys: ShardMap, query: int, context: int
) -> None:
    case = Ring(2, 2, query, context, keys, Cyclic(4))
    problem = RingProblem(2, 2, query, case.start, context, keys, Cyclic(4), 4, 4)
    expected = [2 * problem.pe_tiles(pe) for _ in range(2) for pe in range(2)]
    assert executed(case, isa.MatrixOp) == expected


def test_a_longer_context_is_more_turns_of_the_same_loops() -> None:
    short, long = (kernel_of(Ring(4, 2, 64, size, Cyclic(4), Cyclic(4))) for size in (64, 4096))
    for kernel in (short, long):
        assert isa.count_records(kernel) == isa.count_records(short)
    tiles = [
        [op.tile.type for op in kernel.walk() if isinstance(op, isa.AllocOp)]
        for kernel in (short, long)
    ]
    assert tiles[0] == tiles[1]


def run_with_seeds(module: ModuleOp, buffers: dict[tuple[int, str], Array]) -> None:
    for seed in range(8):
        ConcurrentMachine(module, buffers, seed=seed).run()


def test_slots_that_are_used_too_early_are_found() -> None:
    """Without the wait for readers a block overwrites one that a PE of the cube still reads."""
    case = Ring(4, 2, 32, 32, Cyclic(4), Cyclic(4), slots=2)
    values = case.values()
    inputs = {
        "q": case.split(values["q"], case.queries),
        **{name: held(values[name], case.cache, 2) for name in "kv"},
    }
    launch = case.launch()
    for counter in ("attention.read", "attention.arrived", "attention.copied"):
        module = launch.lowered(pipelined=False)
        for op in list(module.walk()):
            if isinstance(op, isa.WaitOp) and op.counter.string_value() == counter:
                Rewriter.erase_op(op)
        buffers = {
            (d, name): np.asarray(parts[d]) for name, parts in inputs.items() for d in range(8)
        }
        with pytest.raises(ScheduleError):
            run_with_seeds(module, buffers)


def test_one_slot_is_refused() -> None:
    with pytest.raises(ValueError, match="two slots"):
        Ring(2, 2, 16, 16, slots=1).launch().lowered()


def test_rows_that_do_not_follow_each_other_are_no_tile() -> None:
    with pytest.raises(ValueError, match="are not tiles of 4"):
        Ring(2, 2, 16, 16, rows=Cyclic(2)).launch().lowered()


def test_heads_that_a_cube_has_none_of_are_refused() -> None:
    launch = Ring(2, 2, 16, 16, kv_heads=2).launch()
    launch = replace(launch, text=launch.text.replace("group = 1", "group = 2"))
    with pytest.raises(ValueError, match="do not share"):
        launch.lowered()
