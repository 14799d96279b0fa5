"""Collectives as rings: any group and shape, adversarial interleavings, equal bits everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from starc.backend.functional import FunctionalMachine
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.dialects import isa
from starc.interpreter.concurrent import ConcurrentMachine
from starc.interpreter.shared_memory import ScheduleError
from starc.passes.program.pack import pack
from tests.unit.passes import launches
from tests.unit.passes.launches import Launch, Values
from tests.unit.passes.test_lower_to_isa import attributes, random

Array = npt.NDArray[Any]

GROUPS = {
    '"gpu", "xcd"': (AxisRef("gpu"), AxisRef("xcd")),
    '"xcd"': (AxisRef("xcd"),),
    '"gpu"': (AxisRef("gpu"),),
    '"xcd":(1)2': (AxisRef("xcd", 1, 2),),
    '"gpu", "xcd":(2)2': (AxisRef("gpu"), AxisRef("xcd", 2, 2)),
}


SEEDS = (None, 1, 2, 4)


def check(launch: Launch, inputs: Values, expected: Values):
    launches.check(launch, inputs, expected, SEEDS)


def mesh_of(shape: tuple[int, int]) -> Mesh:
    return Mesh("node", (Axis("gpu", shape[0]), Axis("xcd", shape[1])))


def typed(
    shape: tuple[int, ...], whole: tuple[int, ...], dims: list[str], partial: str = ""
) -> str:
    encoding = ", ".join(f"{{{dim}}}" for dim in dims)
    suffix = f", partial = sum{{{partial}}}" if partial else ""
    extents = "x".join(map(str, shape))
    return f"{extents}xbf16, #sharding.of<@node, [{encoding}]{suffix}, global = {list(whole)}>"


def collective(
    operation: str,
    mesh: tuple[int, int],
    x: str,
    y: str,
    *,
    tile: list[int],
    grid: int,
    staging: str | None,
    rings: list[int] | None = None,
) -> Launch:
    buffers = {"x": x, "y": y}
    symmetric = ["y"]
    if staging is not None:
        buffers["staging"] = staging
        symmetric.append("staging")
    schedule = attributes(
        tile=tile, grid=[grid], waits=True, staging=["staging"] if staging is not None else None
    )
    strides = f", rings = array<i64: {', '.join(map(str, rings))}>" if rings else ""
    text = f"""
    kernel.launch @exchange collective reads (%x = @x : tensor<{x}>) writes (@y) {schedule} {{
      %y = collective.{operation} {{algorithm = "ring", transport = "bulk"{strides}}}
        : tensor<{x}> -> tensor<{y}>
      kernel.yield %y : tensor<{y}>
    }}"""
    return Launch(text, buffers, mesh, tuple(symmetric))


def sums(mesh: Mesh, axes: tuple[AxisRef, ...], values: list[Array]) -> list[Array]:
    """The sum over its group, for every device."""
    groups = mesh.groups(axes)
    return [
        np.sum([values[member] for group in groups if d in group for member in group], axis=0)
        for d in range(mesh.size)
    ]


def all_reduce(
    mesh: tuple[int, int],
    axes: str,
    shape: tuple[int, int, int],
    tile: list[int],
    grid: int,
    rings: list[int] | None = None,
) -> Launch:
    ranks = mesh_of(mesh).refs_size(GROUPS[axes])
    batch, query, columns = shape
    positions = min(query, tile[0])
    sequences = max(1, min(batch, tile[0] // positions)) if positions == query else 1
    pieces = -(-batch // sequences) * -(-query // positions) * -(-columns // tile[1])
    none = ["", "", ""]
    return collective(
        f"all_reduce %x on @node axes = [{axes}] reduction = sum",
        mesh,
        typed(shape, shape, none, axes),
        typed(shape, shape, none),
        tile=tile,
        grid=grid,
        staging=f"{ranks - 1}x{-(-pieces // ranks)}x{tile[0]}x{tile[1]}xbf16",
        rings=rings,
    )


def check_all_reduce(launch: Launch, axes: str, shape: tuple[int, int, int]):
    mesh = mesh_of(launch.mesh)
    values = [random(*shape, seed=d) for d in range(mesh.size)]
    check(launch, {"x": values}, {"y": sums(mesh, GROUPS[axes], values)})


@pytest.mark.parametrize("axes", GROUPS)
def test_all_reduce_over_any_axes(axes: str):
    shape = (2, 1, 40)
    check_all_reduce(all_reduce((2, 4), axes, shape, [1, 8], 2), axes, shape)


@pytest.mark.parametrize(
    ("shape", "tile", "grid"),
    [
        ((1, 1, 8), [1, 8], 1),  # fewer pieces than ranks: chunks without a piece
        ((3, 1, 50), [2, 16], 3),  # edges, an idle workgroup
        ((2, 5, 24), [4, 16], 2),  # row tiles that do not straddle sequences
        ((1, 7, 33), [4, 8], 4),
    ],
)
@pytest.mark.parametrize("mesh", [(2, 1), (3, 1), (2, 2)])
def test_all_reduce_of_ragged_payloads(
    mesh: tuple[int, int], shape: tuple[int, int, int], tile: list[int], grid: int
):
    axes = '"gpu", "xcd"' if mesh[1] > 1 else '"gpu"'
    check_all_reduce(all_reduce(mesh, axes, shape, tile, grid), axes, shape)


@pytest.mark.parametrize("rings", [[1, 3], [3], [1, 3, 5, 7]])
def test_workgroups_take_turns_on_several_rings(rings: list[int]):
    shape, axes = (1, 2, 64), '"gpu", "xcd"'
    check_all_reduce(all_reduce((2, 4), axes, shape, [1, 4], 4, rings), axes, shape)


def test_successor_of_a_ring_is_an_expression_of_the_device():
    launch = all_reduce((2, 4), '"xcd"', (1, 1, 16), [1, 4], 1)
    text = str(launch.lowered())
    assert "table" not in text
    assert "floordiv" not in text.split("isa.index")[1].split("\n")[0]


@pytest.mark.parametrize("axes", GROUPS)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_reduce_scatter(axes: str, dim: int):
    mesh = mesh_of((2, 4))
    ranks = mesh.refs_size(GROUPS[axes])
    local = (1, 2, 12)
    whole = tuple(e * ranks if i == dim else e for i, e in enumerate(local))
    dims = [axes if i == dim else "" for i in range(3)]
    launch = collective(
        f"reduce_scatter %x on @node axes = [{axes}] reduction = sum dim = {dim}",
        (2, 4),
        typed(whole, whole, ["", "", ""], axes),
        typed(local, whole, dims),
        tile=[1, 8],
        grid=2,
        staging=f"{ranks - 1}x4x1x8xbf16",
    )
    values = [random(*whole, seed=d) for d in range(8)]
    total = sums(mesh, GROUPS[axes], values)
    coords = list(mesh.devices())
    expected = [
        np.split(total[d], ranks, axis=dim)[mesh.rank(GROUPS[axes], coords[d])] for d in range(8)
    ]
    check(launch, {"x": values}, {"y": expected})


@pytest.mark.parametrize("operation", ["all_gather", "all_slice"])
@pytest.mark.parametrize("axes", GROUPS)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_all_gather_and_all_slice(operation: str, axes: str, dim: int):
    mesh = mesh_of((2, 4))
    ranks = mesh.refs_size(GROUPS[axes])
    local = (1, 3, 20)  # no multiple of the tile: pieces must not spill into other shards
    whole = tuple(e * ranks if i == dim else e for i, e in enumerate(local))
    dims = [axes if i == dim else "" for i in range(3)]
    small, large = typed(local, whole, dims), typed(whole, whole, ["", "", ""])
    x, y = (small, large) if operation == "all_gather" else (large, small)
    launch = collective(
        f"{operation} %x on @node axes = [{axes}] dim = {dim}",
        (2, 4),
        x,
        y,
        tile=[2, 8],
        grid=2,
        staging=None,
    )
    coords = list(mesh.devices())
    rank = [mesh.rank(GROUPS[axes], coords[d]) for d in range(8)]
    other = [next(i for i, g in enumerate(mesh.groups(GROUPS[axes])) if d in g) for d in range(8)]
    wholes = [random(*whole, seed=group) for group in other]
    shards = [np.split(wholes[d], ranks, axis=dim)[rank[d]] for d in range(8)]
    given, expected = (shards, wholes) if operation == "all_gather" else (wholes, shards)
    check(launch, {"x": given}, {"y": expected})


def test_all_ranks_hold_the_same_bits_in_typed_mode():
    launch = all_reduce((2, 4), '"gpu", "xcd"', (2, 1, 40), [1, 8], 2)
    values = [{"x": random(2, 1, 40, seed=d)} for d in range(8)]
    machine = FunctionalMachine(pack(launch.lowered(), launch.target), values, mode="typed")
    machine.run()
    first = machine.buffer(0, "y")
    assert all(np.array_equal(machine.buffer(d, "y"), first) for d in range(8))


def test_a_ring_without_its_waits_is_caught():
    launch = all_reduce((2, 2), '"gpu", "xcd"', (1, 1, 32), [1, 8], 1)
    caught = 0
    for seed in range(8):
        module = launch.lowered()
        for op in [op for op in module.walk() if isinstance(op, isa.WaitOp)]:
            op.detach()
        buffers = {(d, "x"): random(1, 1, 32, seed=d) for d in range(4)}
        try:
            ConcurrentMachine(module, buffers, seed=seed).run()
        except ScheduleError:
            caught += 1
    assert caught == 8
