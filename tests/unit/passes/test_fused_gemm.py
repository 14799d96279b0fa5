"""Products that pull their input from peers and push their result tiles to owners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from starc.passes.base import RemarkSink
from starc.passes.isa.verify_schedule import VerifySchedule
from tests.unit.passes.launches import Launch, check
from tests.unit.passes.lost_instructions import assert_losses_are_caught
from tests.unit.passes.test_lower_collectives import GROUPS, mesh_of
from tests.unit.passes.test_lower_to_isa import random

Array = npt.NDArray[Any]

MESHES = [(2, 2), (4, 2), (1, 8), (3, 2)]
SEEDS = (None, 1, 2, 4)
AXES = '"xcd"'


def listed(values: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, values))}>"


def typed(
    shape: Sequence[int],
    element: str,
    dims: Sequence[str],
    whole: Sequence[int],
    partial: str = "",
) -> str:
    cut = ", ".join(f"{{{dim}}}" for dim in dims)
    suffix = f", partial = sum{{{partial}}}" if partial else ""
    extents = "x".join(map(str, shape))
    return f"{extents}x{element}, #sharding.of<@node, [{cut}]{suffix}, global = {list(whole)}>"


def schedule(
    tile: Sequence[int],
    grid: Sequence[int],
    *,
    split: int = 1,
    swizzle: Sequence[int] = (1, 1),
    pull: str = "",
    unfuse: Sequence[str] = (),
    workspace: Sequence[str] = (),
    staging: Sequence[str] = (),
) -> str:
    entries = [
        f"tile = {listed(tile)}",
        f"grid = {listed(grid)}",
        f"swizzle = {listed(swizzle)}",
        f"split = {split} : i64",
        "stages = 2 : i64",
        "waits",
    ]
    if split > 1:
        entries += ['combine = "owner"', "combine_stages = 2 : i64"]
    if pull:
        entries.append(f'pull = "{pull}"')
    for key, names in (("workspace", workspace), ("staging", staging)):
        if names:
            entries.append(f"{key} = [{', '.join(f'@{name}' for name in names)}]")
    if unfuse:
        quoted = ", ".join(f'"{tax}"' for tax in unfuse)
        entries.append(f"unfuse = [{quoted}]")
    return f"attributes {{{', '.join(entries)}}}"


def tiles_of(rows: tuple[int, int], columns: int, tile: Sequence[int]) -> tuple[int, int]:
    """Row and column tiles."""
    batch, query = rows
    positions = min(query, tile[0])
    sequences = max(1, min(batch, tile[0] // positions)) if positions == query else 1
    return -(-batch // sequences) * -(-query // positions), -(-columns // tile[1])


def pull(
    mesh: tuple[int, int],
    rows: tuple[int, int] = (3, 1),
    k: int = 24,
    widths: Sequence[int] = (20,),
    *,
    tile: Sequence[int] = (16, 16, 16),
    grid: Sequence[int] | None = None,
    split: int = 1,
    mode: str = "cached",
    unfuse: Sequence[str] = (),
    copiers: int = 2,
    produced: bool = False,
) -> Launch:
    """x in slices of ``k`` columns over the inner axis, a product for each of ``widths`` columns a
    device. A ``produced`` x is what an earlier launch makes of z."""
    ranks = mesh[1]
    x = typed((*rows, k), "bf16", ["", "", AXES], (*rows, k * ranks))
    whole = typed((*rows, k * ranks), "bf16", ["", "", ""], (*rows, k * ranks))
    buffers = {"x": x}
    reads = [f"%x = @x : tensor<{x}>"]
    products: list[str] = []
    names: list[str] = []
    counts: list[int] = []
    for i, width in enumerate(widths):
        w = typed((k * ranks, width), "bf16", ["", AXES], (k * ranks, width * ranks))
        y = typed((*rows, width), "bf16", ["", "", AXES], (*rows, width * ranks))
        buffers |= {f"w{i}": w, f"y{i}": y}
        reads.append(f"%w{i} = @w{i} : tensor<{w}>")
        names.append(f"@y{i}")
        products.append(
            f"%y{i} = nn.linear %g, %w{i} : tensor<{whole}>, tensor<{w}> -> tensor<{y}>"
        )
        row_tiles, across = tiles_of(rows, width, tile)
        counts.append(row_tiles * across)
    sizes = list(grid) if grid is not None else [count * split for count in counts]
    workspace: list[str] = []
    if split > 1:
        buffers["shares"] = f"{split - 1}x{sum(counts)}x{tile[0]}x{tile[1]}xf32"
        workspace.append("shares")
    if mode == "staged":
        buffers["gathered"] = f"{ranks}x{rows[0]}x{rows[1]}x{k}xbf16"
        workspace.append("gathered")
        sizes.append(copiers)
    given = schedule(tile, sizes, split=split, pull=mode, unfuse=unfuse, workspace=workspace)
    yielded = ", ".join(f"%y{i}" for i in range(len(widths)))
    types = ", ".join(f"tensor<{buffers[f'y{i}']}>" for i in range(len(widths)))
    body = "\n".join(products)
    before = ""
    if produced:
        buffers["z"] = x
        before = f"""
    kernel.launch @make elementwise reads (%z = @z : tensor<{x}>) writes (@x)
      attributes {{tile = array<i64: 16, 64>, grid = array<i64: 1>}} {{
      %v = nn.silu %z : tensor<{x}> -> tensor<{x}>
      kernel.yield %v : tensor<{x}>
    }}"""
    text = f"""{before}
    kernel.launch @gemm gemm reads ({", ".join(reads)}) writes ({", ".join(names)}) {given} {{
      %g = collective.all_gather %x on @node axes = [{AXES}] dim = 2
        : tensor<{x}> -> tensor<{whole}>
      {body}
      kernel.yield {yielded} : {types}
    }}"""
    return Launch(text, buffers, mesh, ("x",))


def pulled_values(
    mesh: tuple[int, int], rows: tuple[int, int], k: int, widths: Sequence[int]
) -> tuple[dict[str, list[Array]], dict[str, list[Array]]]:
    """Inputs and what every device must compute."""
    ranks, devices = mesh[1], mesh[0] * mesh[1]
    wholes = [random(*rows, k * ranks, seed=gpu) for gpu in range(mesh[0])]
    inputs = {"x": [np.split(wholes[d // ranks], ranks, axis=2)[d % ranks] for d in range(devices)]}
    expected: dict[str, list[Array]] = {}
    for i, width in enumerate(widths):
        weights = [random(k * ranks, width, seed=50 + 10 * i + d % ranks) for d in range(devices)]
        inputs[f"w{i}"] = weights
        expected[f"y{i}"] = [wholes[d // ranks] @ weights[d] for d in range(devices)]
    return inputs, expected


def check_pull(launch: Launch, rows: tuple[int, int], k: int, widths: Sequence[int]) -> None:
    inputs, expected = pulled_values(launch.mesh, rows, k, widths)
    check(launch, inputs, expected, SEEDS)


@pytest.mark.parametrize("mode", ["uncached", "cached", "staged"])
@pytest.mark.parametrize("mesh", MESHES)
def test_pull_on_any_mesh(mesh: tuple[int, int], mode: str):
    check_pull(pull(mesh, mode=mode), (3, 1), 24, (20,))


@pytest.mark.parametrize("mode", ["uncached", "cached", "staged"])
@pytest.mark.parametrize("split", [2, 3, 5])
def test_shares_of_k_cross_slices(split: int, mode: str):
    check_pull(pull((2, 2), k=40, split=split, mode=mode), (3, 1), 40, (20,))


@pytest.mark.parametrize("mode", ["cached", "staged"])
def test_workgroups_take_several_tiles(mode: str):
    rows, widths = (2, 19), (40, 70)
    launch = pull((2, 2), rows, 24, widths, grid=(2, 3), mode=mode)
    check_pull(launch, rows, 24, widths)


TAXES = [("sync",), ("launch",), ("sync", "launch")]


@pytest.mark.parametrize("unfuse", TAXES, ids=["+".join(taxes) for taxes in TAXES])
@pytest.mark.parametrize("mode", ["uncached", "staged"])
def test_pull_with_the_costs_of_separate_kernels(mode: str, unfuse: tuple[str, ...]):
    check_pull(pull((2, 2), mode=mode, unfuse=unfuse), (3, 1), 24, (20,))


def push(
    mesh: tuple[int, int],
    rows: tuple[int, int] = (3, 1),
    k: int = 24,
    widths: Sequence[int] = (20,),
    *,
    tile: Sequence[int] = (16, 16, 16),
    grid: Sequence[int] | None = None,
    split: int = 1,
    scaled: bool = False,
    plain: Sequence[int] = (),
    unfuse: Sequence[str] = (),
) -> Launch:
    """Products over slices of K whose results, ``widths`` columns for each owner, are scattered
    over the inner axis; those numbered in ``plain`` stay partial sums."""
    ranks = mesh[1]
    x = typed((*rows, k), "bf16", ["", "", AXES], (*rows, k * ranks))
    buffers = {"x": x}
    reads = [f"%x = @x : tensor<{x}>"]
    if scaled:
        buffers["r"] = f"{rows[0]}x{rows[1]}x1xf32"
        reads.append(f"%r = @r : tensor<{buffers['r']}>")
    lines: list[str] = []
    counts: list[int] = []
    staging: list[str] = []
    through: list[str] = []
    results: list[str] = []
    for i, width in enumerate(widths):
        all_ = (*rows, width * ranks)
        w = typed((k, width * ranks), "bf16", [AXES, ""], (k * ranks, width * ranks))
        p = typed(all_, "f32", ["", "", ""], all_, AXES)
        y = typed((*rows, width), "f32", ["", "", AXES], all_)
        is_plain = i in plain
        buffers |= {f"w{i}": w, f"y{i}": p if is_plain else y}
        reads.append(f"%w{i} = @w{i} : tensor<{w}>")
        value = f"%p{i}"
        lines.append(f"{value} = nn.linear %x, %w{i} : tensor<{x}>, tensor<{w}> -> tensor<{p}>")
        if scaled:
            r = buffers["r"]
            lines.append(
                f"%s{i} = nn.scale_rows {value}, %r : tensor<{p}>, tensor<{r}> -> tensor<{p}>"
            )
            value = f"%s{i}"
        row_tiles, across = tiles_of(rows, width, tile)
        if is_plain:
            row_tiles, across = tiles_of(rows, width * ranks, tile)
            counts.append(row_tiles * across)
            results.append(value)
            continue
        lines.append(
            f"%y{i} = collective.reduce_scatter {value} on @node axes = [{AXES}] reduction = sum "
            f"dim = 2 : tensor<{p}> -> tensor<{y}>"
        )
        results.append(f"%y{i}")
        counts.append(row_tiles * across * ranks)
        buffers[f"staging{i}"] = f"{ranks}x{rows[0]}x{rows[1]}x{width}xf32"
        staging.append(f"staging{i}")
        if "hbm" in unfuse:
            positions = min(rows[1], tile[0])
            held = positions
            if positions == rows[1]:
                held *= max(1, min(rows[0], tile[0] // positions))
            buffers[f"through{i}"] = f"{row_tiles * across * ranks}x{held}x{tile[1]}xf32"
            through.append(f"through{i}")
    workspace = through
    if split > 1:
        buffers["shares"] = f"{split - 1}x{sum(counts)}x{tile[0]}x{tile[1]}xf32"
        workspace = [*through, "shares"]
    given = schedule(
        tile,
        grid if grid is not None else [count * split for count in counts],
        split=split,
        unfuse=unfuse,
        workspace=workspace,
        staging=staging,
    )
    names = ", ".join(f"@y{i}" for i in range(len(widths)))
    types = ", ".join(f"tensor<{buffers[f'y{i}']}>" for i in range(len(widths)))
    body = "\n".join(lines)
    text = f"""
    kernel.launch @gemm gemm reads ({", ".join(reads)}) writes ({names}) {given} {{
      {body}
      kernel.yield {", ".join(results)} : {types}
    }}"""
    return Launch(text, buffers, mesh, tuple(staging))


def check_push(
    launch: Launch,
    rows: tuple[int, int] = (3, 1),
    k: int = 24,
    widths: Sequence[int] = (20,),
    *,
    scaled: bool = False,
    plain: Sequence[int] = (),
    seeds: Sequence[int | None] = SEEDS,
) -> None:
    mesh = mesh_of(launch.mesh)
    ranks, devices = launch.mesh[1], mesh.size
    inputs: dict[str, Any] = {"x": [random(*rows, k, seed=d) for d in range(devices)]}
    factors = np.ones((*rows, 1))
    if scaled:
        factors = random(*rows, 1, seed=99)
        inputs["r"] = factors
    expected: dict[str, Any] = {}
    for i, width in enumerate(widths):
        weights = [random(k, width * ranks, seed=50 + 10 * i + d % ranks) for d in range(devices)]
        inputs[f"w{i}"] = weights
        partial = [inputs["x"][d] @ weights[d] * factors for d in range(devices)]
        if i in plain:
            expected[f"y{i}"] = partial
            continue
        expected[f"y{i}"] = [
            np.split(sum(partial[e] for e in group), ranks, axis=2)[d % ranks]
            for d in range(devices)
            for group in mesh.groups(GROUPS[AXES])
            if d in group
        ]
    check(launch, inputs, expected, seeds)


@pytest.mark.parametrize("mesh", MESHES)
def test_push_on_any_mesh(mesh: tuple[int, int]):
    check_push(push(mesh))


@pytest.mark.parametrize("split", [2, 3])
def test_pushed_tiles_of_shares(split: int):
    check_push(push((2, 2), k=40, split=split), k=40)


def test_several_results_of_which_one_stays():
    rows, widths = (2, 19), (40, 24, 16)
    launch = push((2, 2), rows, 24, widths, grid=(3, 2, 4), scaled=True, plain=(1,))
    check_push(launch, rows, 24, widths, scaled=True, plain=(1,))


PUSH_TAXES = [("hbm",), ("sync",), ("launch",), ("hbm", "sync", "launch")]


@pytest.mark.parametrize("unfuse", PUSH_TAXES, ids=["+".join(taxes) for taxes in PUSH_TAXES])
def test_push_with_the_costs_of_separate_kernels(unfuse: tuple[str, ...]):
    rows, widths = (2, 3), (20, 33)
    check_push(push((2, 2), rows, 24, widths, unfuse=unfuse), rows, 24, widths)


def norm_behind(
    mesh: tuple[int, int],
    rows: tuple[int, int] = (3, 1),
    k: int = 24,
    width: int = 20,
    *,
    tile: Sequence[int] = (16, 16, 16),
    grid: int | None = None,
    split: int = 1,
    joined: bool = True,
    unfuse: Sequence[str] = (),
) -> Launch:
    """A product over slices of K whose tiles go to all devices of the inner axis, which add the
    residual to the sums, weight the columns and sum the squares of rows; ``joined`` over the outer
    axis, too, along which the columns are split."""
    gpus, ranks = mesh
    columns = width * gpus
    x = typed((*rows, k), "bf16", ["", "", AXES], (*rows, k * ranks))
    w = typed((k, width), "bf16", [AXES, '"gpu"'], (k * ranks, columns))
    cut, whole = ["", "", '"gpu"'], (*rows, columns)
    p = typed((*rows, width), "f32", cut, whole, AXES)
    y = typed((*rows, width), "f32", cut, whole)
    c = typed((width,), "f32", ['"gpu"'], (columns,))
    part = typed((*rows, 1), "f32", ["", "", ""], (*rows, 1), '"gpu"')
    total = typed((*rows, 1), "f32", ["", "", ""], (*rows, 1))
    square = total if joined else part
    row_tiles, across = tiles_of(rows, width, tile)
    count = row_tiles * across
    buffers = {"x": x, "w": w, "z": y, "c": c, "y": y, "q": square, "v": y}
    buffers["staging0"] = f"{ranks}x{rows[0]}x{rows[1]}x{width}xf32"
    staging, workspace = ["staging0"], list[str]()
    if joined:
        buffers["staging1"] = f"{gpus}x{rows[0]}x{rows[1]}x1xf32"
        staging.append("staging1")
    if "hbm" in unfuse:
        buffers["through"] = f"{count}x{rows[0] * rows[1]}x{tile[1]}xf32"
        workspace.append("through")
    if split > 1:
        buffers["shares"] = f"{split - 1}x{count}x{tile[0]}x{tile[1]}xf32"
        workspace.append("shares")
    given = schedule(
        tile,
        [grid or count * split],
        split=split,
        unfuse=unfuse,
        workspace=workspace,
        staging=staging,
    )
    join = ""
    if joined:
        join = f"""%t = collective.all_reduce %s on @node axes = ["gpu"] reduction = sum
        : tensor<{part}> -> tensor<{total}>"""
    text = f"""
    kernel.launch @gemm gemm
      reads (%x = @x : tensor<{x}>, %w = @w : tensor<{w}>, %z = @z : tensor<{y}>,
             %c = @c : tensor<{c}>) writes (@y, @q, @v) {given} {{
      %p = nn.linear %x, %w : tensor<{x}>, tensor<{w}> -> tensor<{p}>
      %a = collective.all_reduce %p on @node axes = [{AXES}] reduction = sum
        : tensor<{p}> -> tensor<{y}>
      %r = nn.add %z, %a : tensor<{y}>, tensor<{y}> -> tensor<{y}>
      %s = nn.sum_squares %r : tensor<{y}> -> tensor<{part}>
      %v = nn.scale_columns %r, %c : tensor<{y}>, tensor<{c}> -> tensor<{y}>
      {join}
      kernel.yield %r, {"%t" if joined else "%s"}, %v
        : tensor<{y}>, tensor<{square}>, tensor<{y}>
    }}"""
    return Launch(text, buffers, mesh, tuple(staging))


def norm_values(
    mesh: tuple[int, int], rows: tuple[int, int], k: int, width: int, *, joined: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Contents of the buffers before such a launch, and after it."""
    gpus, ranks = mesh
    devices = range(gpus * ranks)
    inputs: dict[str, Any] = {
        # Devices along the outer axis have the same x, those along the inner one the same columns.
        "x": [random(*rows, k, seed=d % ranks) for d in devices],
        "w": [random(k, width, seed=50 + d) for d in devices],
        "z": [random(*rows, width, seed=90 + d // ranks) for d in devices],
        "c": [random(width, seed=70 + d // ranks) for d in devices],
    }
    partial = [inputs["x"][d] @ inputs["w"][d] for d in devices]
    sums = [sum(partial[g * ranks : (g + 1) * ranks]) for g in range(gpus)]
    y = [inputs["z"][d] + sums[d // ranks] for d in devices]
    squares = [(value**2).sum(axis=2, keepdims=True) for value in y]
    if joined:
        squares = [sum(squares[::ranks])] * len(y)
    scaled = [value * inputs["c"][d] for d, value in enumerate(y)]
    return inputs, {"y": y, "q": squares, "v": scaled}


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("mesh", [(2, 2), (4, 2), (3, 2), (2, 3)])
def test_norms_behind_sums_on_any_mesh(mesh: tuple[int, int], joined: bool):
    rows, k, width = (3, 1), 24, 20
    inputs, expected = norm_values(mesh, rows, k, width, joined=joined)
    check(norm_behind(mesh, rows, k, width, joined=joined), inputs, expected, SEEDS)


@pytest.mark.parametrize(
    "options",
    [
        {"split": 2},
        {"grid": 2},
        {"unfuse": ("hbm",)},
        {"unfuse": ("sync",)},
        {"unfuse": ("launch",)},
        {"unfuse": ("hbm", "sync", "launch"), "split": 2},
    ],
    ids=str,
)
def test_norms_behind_sums_in_turns_and_with_costs_put_back(options: dict[str, Any]):
    rows, k, width = (2, 19), 40, 33
    inputs, expected = norm_values((2, 2), rows, k, width)
    check(norm_behind((2, 2), rows, k, width, **options), inputs, expected, SEEDS)


@pytest.mark.parametrize(
    "launch",
    [
        pull((2, 2), produced=True),
        pull((2, 2), mode="staged", produced=True),
        pull((2, 2), mode="staged", unfuse=("sync",), produced=True),
        pull((2, 2), unfuse=("launch",), produced=True),
        pull((1, 4), mode="uncached", split=2, produced=True),
        push((2, 2)),
        push((1, 4), split=2),
        push((2, 2), unfuse=("sync",)),
        norm_behind((2, 2)),
        norm_behind((2, 2), split=2),
    ],
    ids=[
        "pull",
        "staged",
        "staged-sync",
        "meet",
        "shares",
        "push",
        "pushed-shares",
        "sync",
        "norm",
        "norm-shares",
    ],
)
def test_lost_signals_and_waits_are_caught(launch: Launch):
    module = launch.lowered()
    VerifySchedule().run(module, launch.target, RemarkSink())
    ranks = launch.mesh[1]
    rows, widths = (3, 1), (20,)
    given, _ = pulled_values(launch.mesh, rows, 24, widths)
    given["z"] = given.pop("x") if "z" in launch.buffers else given["x"]
    if "z" in launch.buffers and "staging0" in launch.buffers:
        given, _ = norm_values(launch.mesh, rows, 24, 20)
    elif "staging0" in launch.buffers:
        given = {
            "x": given["z"],
            "w0": [random(24, 20 * ranks, seed=d) for d in range(mesh_of(launch.mesh).size)],
        }
    buffers = {
        (d, name): v
        for name, own in given.items()
        if name in launch.buffers
        for d, v in enumerate(own)
    }
    assert assert_losses_are_caught(module, launch.target, buffers) > 0
