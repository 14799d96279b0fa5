"""Decode attention merged over memory cubes gives the reference's numbers, whoever merges how.

The reference is checked against a plain softmax on the same data, which is not symmetric in any
way: a transpose that is only a reshape is wrong here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from starc.checking.harness import check_module
from starc.diagnostics import InputError
from starc.dialects import isa
from starc.interpreter.element_types import Mode
from tests.executable.cube_decode import CubeCase, compiled, load

MESHES = [(cubes, elements) for cubes in (1, 2, 4, 8) for elements in (1, 2, 4, 8)]
MERGED = [mesh for mesh in MESHES if mesh != (1, 1)]


def check(case: CubeCase, last: str, interleavings: tuple[int, ...] = (0,)) -> None:
    """The module behind a pass gives the reference's numbers in both arithmetics, however the
    streams of devices interleave."""
    loaded = load(case)
    module = compiled(case, last)
    runs: list[tuple[Mode, int]] = [("exact", interleaving) for interleaving in interleavings]
    runs.append(("typed", interleavings[0]))
    for mode, interleaving in runs:
        found = check_module(
            last, module, loaded.data, loaded.reference, mode, interleaving=interleaving
        )
        assert found.ok, (str(case), mode, found.error, found.message)


def sweeps(case: CubeCase) -> int:
    """The sweeps over key tiles behind ``lower-to-isa``."""
    return sum("sweep" in op.attributes for op in compiled(case, "lower-to-isa").walk())


@pytest.mark.parametrize("heads", [1, 2, 8])
def test_the_reference_is_attention(heads: int) -> None:
    case = CubeCase(2, 2, heads=heads, context=29, batch=2)
    loaded = load(case)
    (q, k, v) = loaded.data.inputs["only"]
    caches = {name.split(".")[-1]: loaded.data.states[name] for name in loaded.data.states}
    keys, values = caches["k_cache"].copy(), caches["v_cache"].copy()
    keys[:, 0, -1], values[:, 0, -1] = k[:, 0], v[:, 0]
    queries = np.asarray(q, np.float64).reshape(2, heads, case.head_dim)
    scores = np.einsum("bhd,bkd->bhk", queries, keys[:, 0]) / np.sqrt(case.head_dim)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    wanted = np.einsum("bhk,bkd->bhd", weights, values[:, 0]).reshape(2, 1, -1)
    found = loaded.reference.layers["only"].outputs[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    square = keys[0, 0, : case.head_dim]
    assert np.abs(square - square.T).max() > 0.1


@pytest.mark.parametrize("output", ["root", "scatter"])
@pytest.mark.parametrize(("cubes", "elements"), MERGED)
def test_every_mesh(cubes: int, elements: int, output: str) -> None:
    check(CubeCase(cubes, elements, output=output), "lower-to-isa")


def test_one_element_has_nothing_to_merge() -> None:
    several = CubeCase(1, 1, heads=8, kv_heads=2, batch=2)
    prompt = CubeCase(1, 1, query=40, context=40)
    for case in (CubeCase(1, 1), several, prompt, CubeCase(1, 1, more=", sink")):
        check(case, "assign-engines")
        assert sweeps(case) == 1


WAYS = [
    CubeCase(2, 8, inside="ring", across="ring"),
    CubeCase(2, 4, inside="flat", across="flat"),
    CubeCase(4, 2, inside="tree", across="tree"),
    CubeCase(8, 2, across="ring"),
    CubeCase(8, 1, across="tree", output="scatter"),
    CubeCase(4, 4, across="ring", output="scatter"),
    CubeCase(2, 4, across="flat", output="scatter"),
]
SHAPES = [
    # Fewer keys than ranks: parts without a key are the identity.
    CubeCase(4, 4, context=1),
    CubeCase(4, 4, context=5, output="scatter"),
    CubeCase(8, 8, context=70),
    # Query heads that do not divide.
    CubeCase(2, 2, heads=1),
    CubeCase(2, 2, heads=3, output="scatter"),
    # Stretches of positions instead of turns.
    CubeCase(2, 4, positions="contiguous", context=21),
    CubeCase(2, 4, positions="contiguous", context=21, output="scatter"),
    # A window, and several new tokens.
    CubeCase(2, 2, more=", window = 6", context=33, keys=2),
    CubeCase(2, 2, query=3, context=33, output="scatter"),
    # A sink counts once, by the owner of the head.
    CubeCase(2, 2, more=", sink", context=21),
    CubeCase(2, 4, more=", sink", context=3, output="scatter"),
]
TURNS = [
    CubeCase(2, 4, batch=2, context=21),
    CubeCase(2, 2, batch=9, context=11),
    CubeCase(2, 2, batch=9, context=11, output="scatter"),
    # KV heads of a device whose heads end at different owners, so that ways differ by task.
    CubeCase(2, 2, batch=6, heads=8, kv_heads=2, context=21, output="scatter"),
    CubeCase(2, 2, batch=3, heads=8, kv_heads=2, context=21),
    # Two KV heads a SIP with one group: two passes.
    CubeCase(2, 2, sips=2, heads=16, kv_heads=4, context=13),
    CubeCase(2, 2, sips=2, groups=2, heads=32, kv_heads=4, context=13, output="scatter"),
]


# As on 64 ranks, which run on engines above, ranks have one key or two.
FEWER = CubeCase(4, 4, context=18)
FUSED = [
    replace(case, softmax="fused")
    for case in (WAYS[0], SHAPES[0], FEWER, SHAPES[7], SHAPES[8], TURNS[3])
]


@pytest.mark.parametrize("case", [*WAYS, *SHAPES, *TURNS, *FUSED], ids=str)
def test_on_engines(case: CubeCase) -> None:
    check(case, "assign-engines", (0, 1))


@pytest.mark.parametrize("case", [WAYS[0], FEWER, TURNS[1], TURNS[2]], ids=str)
def test_on_one_stream(case: CubeCase) -> None:
    assert sweeps(case) == 1
    check(case, "lower-to-isa", (0, 1, 2))


@pytest.mark.parametrize("schedule", ["blocking", "pipelined"])
@pytest.mark.parametrize("output", ["root", "scatter"])
def test_schedules(schedule: str, output: str) -> None:
    check(CubeCase(2, 4, output=output, schedule=schedule, context=65), "assign-engines", (0, 1))


def test_keys_and_values_are_read_once_for_all_heads() -> None:
    """The loads of a sweep do not depend on the number of query heads, which are rows."""
    counts: set[tuple[int, int]] = set()
    rows: list[int] = []
    for heads in (1, 2, 8):
        module = compiled(CubeCase(2, 2, heads=heads), "lower-to-isa")
        (sweep,) = [op for op in module.walk() if "sweep" in op.attributes]
        loads = [op for op in sweep.walk() if isinstance(op, isa.LoadOp)]
        products = [op for op in sweep.walk() if isinstance(op, isa.MatrixOp)]
        counts.add((len(loads), len(products)))
        rows += [op.tiles[0].type.rows for op in products[:1]]  # pyright: ignore
        assert {op.tile_type.rows for op in loads} == {4}
    assert counts == {(2, 2)}
    assert rows == [1, 2, 8]


def test_ways_that_do_not_exist() -> None:
    case = CubeCase(2, 2, inside="star", across="hypercube", softmax="hard")
    with pytest.raises(InputError) as error:
        compiled(case, "tile-kernels")
    text = str(error.value)
    assert "option 'reduce-pe' has no value 'star', one of tree, ring, flat" in text
    assert "option 'reduce-cube' has no value 'hypercube', one of mesh, tree, ring, flat" in text
    assert "option 'softmax' has no value 'hard', one of operations, fused" in text
    with pytest.raises(InputError, match="option 'output' has no value 'leaf'"):
        compiled(replace(case, output="leaf"), "shard-attention-sequence")
