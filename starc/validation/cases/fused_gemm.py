"""``h200x2_fused_gemm.csv``: products and exchanges of two H200, in one kernel and in two.

``ag_gemm`` gathers the rows of an input, half of them on each GPU, and multiplies them with a
weight of each; ``gemm_rs`` multiplies and leaves each GPU the sums of half of the rows.
``gemm_only`` is the product alone, ``separate`` the library's exchange and product as two launches.
``fused`` are the measured library's operators, which cut the exchange into pieces beside the
product; simulated is the compiler's own fused kernel, or two launches where its estimate says that
these are faster. That kernel exchanges columns instead of rows, as many bytes. Launches come from
the host.

All rows are shown: the measured operators are other programs, and at few rows their time is the
host's (100 us and more), which no number of the machine says.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from xdsl.dialects.builtin import ModuleOp

from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.passes.manager import Driver, instantiate
from starc.passes.selection import PassSpec
from starc.simulator.options import SimulationOptions
from starc.targets.target import Target
from starc.validation.cases.gemm import library_machine
from starc.validation.columns import Column, cases_of, time_column
from starc.validation.context import Context
from starc.validation.rows import Case, Role, Work

OPERATIONS: Final = ("ag_gemm", "gemm_rs")
WAYS: Final = ("fused", "separate", "gemm_only")
NEEDS: Final = ("kernels.gemm",)
COLUMNS: Final = (
    Column("kind", "text", choices=tuple(f"{o}_{way}" for o in OPERATIONS for way in WAYS)),
    Column("gpus", least=2),
    *(Column(name) for name in "MNK"),
    time_column(),
)


def read(path: Path) -> list[Case]:
    """The cases of a file."""
    return cases_of(path, "fused_gemm", COLUMNS)


def role(case: Case) -> Role:
    """All are shown."""
    return "shown"


def group(case: Case) -> str:
    """By the way taken."""
    return _operation(case)[1].replace("_", " ")


def effort(case: Case) -> float:
    """FLOP."""
    m, n, k = (case.integer(name) for name in "MNK")
    return 2.0 * m * n * k


def work(case: Case) -> Work | None:
    """Shown rows need no baselines."""
    return None


def _operation(case: Case) -> tuple[str, str]:
    kind = case.text("kind")
    operation = next(name for name in OPERATIONS if kind.startswith(f"{name}_"))
    return operation, kind.removeprefix(f"{operation}_")


def simulate(case: Case, context: Context) -> float:
    """Microseconds of the launches as the host issues them."""
    _, way = _operation(case)
    alone = way == "gemm_only"
    gpus = 1 if alone else case.integer("gpus")
    library = library_machine(context, "bf16")
    target = context.machine("h200", gpus=gpus)
    target = replace(
        target,
        matrix_sustained=library.matrix_sustained,
        matrix_sustained_by_type={},
        scratch_bytes_per_clock=library.scratch_bytes_per_clock,
        l2_bytes_per_clock=library.l2_bytes_per_clock,
        hbm_rate=library.hbm_rate,
        hbm_stack_rate=library.hbm_stack_rate,
    )
    text = _product(case) if alone else _exchange(target, case, 2 if way == "fused" else 1)

    def fuse(module: ModuleOp) -> None:
        spec = PassSpec("fuse-compute-collectives")
        Driver(target).run_pass(module, spec, instantiate(spec))

    prepare = fuse if way == "fused" else None
    options = SimulationOptions(eager=True, governor=True)
    return context.run(text, target, prepare=prepare, options=options).time_ps * 1e-6


def _product(case: Case) -> str:
    m, n, k = (case.integer(name) for name in "MNK")
    x, w, y = f"tensor<1x{m}x{k}xbf16>", f"tensor<{k}x{n}xbf16>", f"tensor<1x{m}x{n}xbf16>"
    return f"""
        nn.parameter @w : {w}
        func.func @product(%x : {x}) -> {y} {{
          %w = nn.read @w : {w}
          %y = nn.linear %x, %w : {x}, {w} -> {y}
          func.return %y : {y}
        }}"""


def _exchange(target: Target, case: Case, dim: int) -> str:
    """The product with its exchange of slices of a dimension: a GPU has a part of the columns of a
    weight twice as wide, and of ``gemm_rs`` of its rows."""
    m, n, k = (case.integer(name) for name in "MNK")
    axes = tuple(AxisRef(axis) for axis, _, _, _ in target.mesh)
    mesh = Mesh("node", tuple(Axis(*row) for row in target.mesh))
    names = ", ".join(map(str, axes))
    ranks = target.devices
    whole, matrix = Encoding.replicated(mesh, 3), Encoding.replicated(mesh, 2)
    sliced = whole.with_dim(dim, axes)

    def tensor(encoding: Encoding, held: tuple[int, ...], full: tuple[int, ...]) -> str:
        shape = "x".join(map(str, held))
        return f"tensor<{shape}xbf16, #sharding.of<@node, {encoding}, global = {list(full)}>>"

    def part(rows: int, columns: int) -> tuple[int, int, int]:
        return (1, rows // ranks, columns) if dim == 1 else (1, rows, columns // ranks)

    if _operation(case)[0] == "ag_gemm":
        x = tensor(sliced, part(m, k), (1, m, k))
        gathered = tensor(whole, (1, m, k), (1, m, k))
        w = tensor(matrix.with_dim(1, axes), (k, n), (k, n * ranks))
        y = tensor(whole.with_dim(2, axes), (1, m, n), (1, m, n * ranks))
        body = f"""
          %g = collective.all_gather %x on @node axes = [{names}] dim = {dim}
            {{algorithm = "ring", transport = "bulk"}} : {x} -> {gathered}
          %y = nn.linear %g, %w : {gathered}, {w} -> {y}"""
    else:
        x = tensor(whole.with_dim(2, axes), (1, m, k), (1, m, k * ranks))
        w = tensor(matrix.with_dim(0, axes), (k, n), (k * ranks, n))
        sums = tensor(whole.with_partial("sum", axes), (1, m, n), (1, m, n))
        y = tensor(sliced, part(m, n), (1, m, n))
        body = f"""
          %s = nn.linear %x, %w : {x}, {w} -> {sums}
          %y = collective.reduce_scatter %s on @node axes = [{names}] reduction = sum dim = {dim}
            {{algorithm = "ring", transport = "bulk"}} : {sums} -> {y}"""
    return f"""
        nn.parameter @w : {w}
        func.func @product(%x : {x}) -> {y} {{
          %w = nn.read @w : {w}
          {body}
          func.return %y : {y}
        }}"""
