"""The verification plan of the kernbench design record ADR-0060, section 11: items 1 to 5."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from starc.backend.program import Engine, Opcode
from starc.core.collectives.reduction_trees import cube_tree, element_tree, fan_out, two_levels
from starc.diagnostics import InputError
from starc.simulator.state import engine_counts as counts
from tests.ahbm.runs import Attention, Run, compiled, reference, run

ROOT = (("mode", "queries"), ("output", "root"))
RING = (("mode", "ring"), ("map", "contiguous"))

CASES = {
    "decode": Attention(1, 1, context=45),
    "decode, keys over 2 x 4": Attention(2, 4, context=45, keys=4, sharding=ROOT),
    "decode, keys over 8 x 8": Attention(8, 8, context=150, keys=4, sharding=ROOT),
    "prefill": Attention(1, 1, query=32, context=32),
    "prefill, a chunk": Attention(1, 1, query=9, context=45),
    "prefill, ring of 2 x 2": Attention(2, 2, query=32, context=32, keys=4, sharding=RING),
    "prefill, ring of 8 x 1": Attention(8, 1, query=64, context=64, keys=8, sharding=RING),
}


# 1. All cases run in data mode, with full parity


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_item_1_cases_run_on_data(case: Attention) -> None:
    """The record accepts parity on symmetric data alone, for its transposes only reshape. Here keys
    are random: as a square they differ from their transpose, which gives other results."""
    found = run(case)
    wanted = reference(case, found.data)
    np.testing.assert_allclose(found.output(), wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.output("typed"), wanted, rtol=0, atol=2e-5)
    turned = replace(found.data, states={}, inputs={"only": list(found.data.inputs["only"])})
    states = {name: np.array(values) for name, values in found.data.states.items()}
    (name,) = [name for name in states if name.endswith("k_cache")]
    d = case.head_dim
    states[name][0, 0, :d] = states[name][0, 0, :d].T.copy()
    inputs = [np.array(values) for values in turned.inputs["only"]]
    if case.query >= d:
        inputs[1][0, :d] = inputs[1][0, :d].T.copy()
    turned = replace(turned, states=states, inputs={"only": tuple(inputs)})
    assert np.abs(reference(case, turned) - wanted).max() > 1e-3


@pytest.mark.parametrize("name", ["decode, keys over 2 x 4", "prefill, ring of 2 x 2"])
def test_item_1_in_bf16(name: str) -> None:
    found = run(replace(CASES[name], dtype="bf16", kv_heads=2 if "ring" not in name else 1))
    wanted = reference(found.case, found.data)
    np.testing.assert_allclose(found.output(), wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        found.output("typed"), wanted, rtol=0, atol=np.abs(wanted).max() / 32
    )


# 2. Reuse of keys and values by all heads of a group


def test_item_2_keys_are_loaded_once_and_products_grow_with_the_heads() -> None:
    """Also where the heads are more rows than a tile of the matrix engine has: 32. With fewer, the
    engine takes as long as for 32."""
    runs = [run(Attention(1, 1, heads=heads, context=256, keys=64)) for heads in (8, 32, 64, 128)]
    assert {tuple(found.moved("loads")) for found in runs} == {(1 + 2 * 4,)}
    row = 4 * 8  # bytes of a head of queries
    read = [f.launch.traffic.hbm_read_bytes - f.case.heads * row for f in runs]
    assert len(set(read)) == 1
    busy = [found.of_engine(Engine.GEMM, counts.BUSY)[0] for found in runs]
    assert [time / busy[0] for time in busy] == [1, 1, 2, 4]
    flops = [found.program.launch_attributes[found.number]["flops"] for found in runs]
    assert [each / flops[0] for each in flops] == [1, 4, 8, 16]


# 3. What crosses ranks

DECODE = Attention(8, 8, context=512, keys=8, sharding=ROOT)


def rounds(found: Run) -> int:
    """The longest chain of messages in the log: each is sent after its sender has waited for those
    that it merges. Who sends to whom is the plan's; that the log agrees is checked."""
    plan = two_levels(cube_tree("mesh", 8), element_tree("tree", 8))
    ways: list[int] = []

    def depth(rank: int) -> int:
        waits = found.rows(Engine.CPU, Opcode.WAIT, rank)
        puts = found.rows(Engine.DMA, Opcode.PUT, rank)
        children = plan.children[rank]
        assert (len(waits), len(puts)) == (len(children), int(rank != plan.root))
        for wait, child in zip(waits, children, strict=True):
            (sent,) = found.rows(Engine.DMA, Opcode.PUT, child)
            assert sent["end_ps"] < wait["end_ps"]
        for before, after in pairwise(waits["end_ps"].tolist()):
            assert before < after
        if len(puts):
            assert all(puts[0]["start_ps"] >= wait["end_ps"] for wait in waits)
        taken = 0
        for child in children:
            taken = max(taken, depth(child)) + 1
            ways.append(taken)
        return taken

    depth(plan.root)
    assert len(ways) == 63
    return max(ways)


def test_item_3_decode_has_six_rounds_of_messages() -> None:
    found = run(DECODE)
    assert sum(found.moved("puts")) == 63
    assert rounds(found) == 6
    assert (len(fan_out(64)), fan_out(64)[-1].round) == (4032, 63)


def test_item_3_the_result_is_at_one_rank() -> None:
    """One PE stores, and has all heads."""
    found = run(DECODE)
    stores = found.rows(Engine.DMA, Opcode.STORE)
    root = two_levels(cube_tree("mesh", 8), element_tree("tree", 8)).root
    assert stores["device"].tolist() == [root]
    row = 8 * 8 * 4  # heads, head_dim, f32
    assert found.launch.traffic.hbm_write_bytes == row


def test_item_3_levels_take_their_own_links() -> None:
    """A record is eight heads of a value of eight numbers, a sum and a maximum, in f32. Inside of a
    cube it takes one link of PEs; between cubes the way to the router, one link of routers, and the
    way down."""
    found = run(DECODE)
    assert found.messages() == [56, 7]
    record, traffic = 8 * (8 + 2) * 4, found.launch.traffic
    assert traffic.links["ucie"] == traffic.logical["ucie"] == 0
    inside, across = traffic.logical["pe_mesh"], traffic.logical["noc"]
    assert 56 * record <= inside < 56 * (record + 128)
    assert 7 * record <= across < 7 * (record + 128)
    alone = run(replace(DECODE, cubes=1))
    assert alone.launch.traffic.links["noc"] == alone.launch.traffic.logical["noc"] == 0


@pytest.mark.parametrize("cubes", [2, 4, 8])
def test_item_3_prefill_rotates_keys_and_merges_nothing(cubes: int) -> None:
    """C - 1 rotations (the record says C): every PE sends the keys and values of all blocks but the
    last one that it has, and no records. Each cube writes a head of its own."""
    case = Attention(cubes, 2, query=16 * cubes, context=16 * cubes, heads=cubes, keys=8)
    found = run(replace(case, sharding=RING))
    share = 8 * 8 * 4  # keys of a PE, head_dim, f32
    assert found.moved("puts") == [2 * (cubes - 1)] * (2 * cubes)
    assert found.messages() == [0, 2 * (cubes - 1) * 2 * cubes]
    sent = found.launch.traffic.logical
    signals = sum(found.moved("signals"))
    assert 0 <= sent["noc"] - 2 * (cubes - 1) * 2 * cubes * share <= 64 * signals
    results: set[int] = set()
    for row in found.rows(Engine.DMA, Opcode.STORE):
        buffer = found.program.buffers[found.program.records["buffer"][row["record"]]]
        if buffer.shape == (1, case.query // 2, 8):  # half of the rows of one head
            results.add(int(row["device"]))
    assert results == set(range(2 * cubes))


# 4. Tiles of the future are skipped

SKIPS = {
    "one PE": Attention(1, 1, query=128, context=128, heads=1),
    "ring, keys in stretches": Attention(4, 1, query=128, context=128, heads=4, sharding=RING),
    "ring, keys by tiles": Attention(4, 1, query=128, context=128, heads=4, sharding=RING[:1]),
}


@pytest.mark.parametrize("name", SKIPS)
def test_item_4_products_are_the_lower_triangle(name: str) -> None:
    """Eight tiles of rows and of keys: 36 pairs of two products a cube, of 64. Whole blocks of keys
    are never of the future for a cube that has all rows of its head; tiles are."""
    case = replace(SKIPS[name], tiles=(("attention-rows", 16),))
    found = run(case)
    products = found.of_engine(Engine.GEMM, counts.INSTRUCTIONS)
    assert products == [2 * 36] * case.cubes
    assert len(found.rows(Engine.GEMM, Opcode.MATRIX)) == 2 * 36 * case.cubes
    np.testing.assert_allclose(found.output(), reference(case, found.data), rtol=1e-9, atol=1e-12)


def test_item_4_without_a_mask_there_is_the_whole_square() -> None:
    case = replace(SKIPS["one PE"], masked="", tiles=(("attention-rows", 16),))
    assert run(case).of_engine(Engine.GEMM, counts.INSTRUCTIONS) == [2 * 64]


# 5. Long contexts


def scratch(found: Run) -> int:
    """The scratch memory that the attention takes."""
    (name,) = {t.name for t in found.program.templates if "attention" in t.name}
    return max(t.scratch_bytes for t in found.program.templates if t.name == name)


def test_item_5_scratch_memory_does_not_depend_on_the_context() -> None:
    """Without recycling, the tiles of 64 steps of the sweep would take 3.5 MiB."""
    case = Attention(1, 1, heads=32, head_dim=64, keys=64, context=4096)
    found, short = run(case), run(replace(case, context=512))
    tile = 64 * 64 * 4
    steps = case.context // case.keys
    per_step = 2 * tile + 3 * case.heads * 64 * 4
    assert steps * per_step >= 3.5 * 2**20 > 2**20 > scratch(found) == scratch(short)
    np.testing.assert_allclose(found.output(), reference(case, found.data), rtol=1e-9, atol=1e-12)


def test_item_5_what_does_not_fit_is_named() -> None:
    with pytest.raises(InputError) as error:
        compiled(Attention(1, 1, heads=64, head_dim=64, keys=4096, context=4096))
    text = str(error.value)
    assert "needs 2,130,688 bytes of scratch memory" in text
    assert "(1,048,576 less 262,144 for queues)" in text
    assert "%s 64x4096xf32 1,048,576 B" in text
    assert "%q 64x64xf32 16,384 B" in text
