"""``mi300x_published.csv``: single figures that are public, of MI300X, MI325X and MI355X.

- ``stream_copy``: bytes read and written a second, by all dies of a GPU (``all dies``, ``device
  copy``), or a die's where one or both of a carrier copy. The two anchors are the fractions of peak
  that a stack sustains in NPS1 and NPS4.
- ``latency``: a dependent load that finds its line in the L2, the Infinity Cache or the stacks, the
  mean of NPS1. Inputs; a second tool's figures are shown.
- ``dispatch``: clocks between two workgroups of as many threads on a die. Inputs.
- ``xgmi_link``: all GPUs put to the next one. An anchor.
- ``gemm``: one GEMM again and again at the clock that the power cap leaves. Anchors of three
  energies and, on MI325X in bf16, of the slope of the voltage; the others are tests.
- ``gemm_ratio``: eight independent GEMMs, one a die in CPX/NPS4, against the same GEMM on the whole
  GPU, FLOP a second. A test that nothing was chosen for.

The roles stand in the file; rows from elsewhere are all tests.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Final, cast

from starc.backend.assembly import ProgramAssembler
from starc.backend.program import Program, Space
from starc.backend.program import Role as BufferRole
from starc.backend.template import DEVICE, WORKGROUP
from starc.core.element_types import ElementType
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import Axis, Mesh
from starc.diagnostics import Diagnostic, InputError
from starc.simulator.run import simulate as run
from starc.simulator.run import simulate_governed
from starc.targets.target import Target
from starc.validation.cases.mi300x_modes import NODE, machine
from starc.validation.cases.mi300x_public import FEW
from starc.validation.cases.micro_programs import chain, empty
from starc.validation.columns import Column, cases_of
from starc.validation.context import Context, build
from starc.validation.rows import ROLES, Case, Role

COLUMNS: Final = (
    Column("quantity", "text"),
    Column("product", "text"),
    Column("mode", "text"),
    Column("detail", "text"),
    Column("value", "float", least=0),
    Column("unit", "text"),
    Column("role", "text", choices=ROLES),
    Column("margin", "float", least=0, optional=True),
    Column("source", "text", optional=True),
)
CONSTANTS: Final = (
    "memory.sustained_nps1",
    "memory.sustained_nps4",
    "fabric.xgmi_sustained",
    "power.matrix_bf16",
    "power.matrix_f16",
    "power.matrix_f8E4M3FN",
    "power.slope",
)
NOTES: Final[Mapping[str, str]] = {
    "gemm_ratio": "the gain that is left is waves of tiles that fill the dies better and a little "
    "clock; hops between dies at 8 pJ a byte give no more, twice that about 2 % more. Nothing is "
    "tuned to the published 1.10 to 1.15.",
}
MIB: Final = 1 << 20
COPIED: Final = 512 * MIB  # a GPU
ROW: Final = 4096


def read(path: Path) -> list[Case]:
    """The cases of quantities that are known; ``left_out`` tells of the others."""
    return [
        Case(
            case.file,
            case.text("quantity"),
            {n: v for n, v in case.parameters.items() if n not in ("unit", "source")},
            case.measured,
            case.text("unit"),
            case.line,
        )
        for case in _all(path)
        if _is_known(case)
    ]


def _all(path: Path) -> list[Case]:
    return cases_of(path, "published", COLUMNS, measured="value")


def _is_known(case: Case) -> bool:
    details = DETAILS.get(case.text("quantity"))
    if details is None or case.text("product") not in PRODUCTS:
        return False
    return not details or case.text("detail") in details


def left_out(path: Path) -> list[str]:
    """Rows of other quantities, products or details."""
    return [
        f"{path}:{case.line}: {case.text('quantity')} of {case.text('product')}, "
        f"{case.text('detail')}, is not modelled: left out"
        for case in _all(path)
        if not _is_known(case)
    ]


def role(case: Case) -> Role:
    """As the file says."""
    return cast(Role, case.text("role"))


def margin(case: Case) -> float | None:
    """As the file says."""
    found = case.parameters.get("margin")
    return None if found is None else float(found)


def group(case: Case) -> str:
    """By product."""
    return f"{case.text('quantity')} {case.text('product')}"


def key(case: Case) -> Hashable:
    """What is simulated."""
    return tuple(case.text(name) for name in ("quantity", "product", "mode", "detail"))


def effort(case: Case) -> float:
    """GEMMs are long."""
    return {"gemm_ratio": 2.0, "gemm": 1.0}.get(case.text("quantity"), 0.0)


def simulate(case: Case, context: Context) -> float:
    """The figure in its unit."""
    return QUANTITIES[case.text("quantity")](case, context)


def _assembler(name: str, target: Target) -> ProgramAssembler:
    mesh = tuple((axis, size) for axis, size, _, _ in target.mesh)
    return ProgramAssembler(name, target.to_dict(), mesh)


def copies(target: Target, *, size: int, every: int = 1) -> Program:
    """Every device, or one in ``every``, copies ``size`` bytes of its own."""
    p = _assembler("copies", target)
    blocks = 4 * target.cus_per_die * target.dies_per_device
    steps = size // (ROW * blocks)
    shape = (blocks * steps, ROW // 4)
    x = p.buffer("x", shape, ElementType.F32, role=BufferRole.INPUT)
    y = p.buffer("y", shape, ElementType.F32, role=BufferRole.OUTPUT)
    t = p.template("copies")
    tile = t.tile(1, ROW // 4, ElementType.F32, slots=4, depth=1)
    with t.if_(DEVICE % every * -1), t.loop(0, steps) as i:
        start = i * blocks + WORKGROUP
        t.load(tile, x, (start, 0))
        t.store(tile, y, (start, 0), stage=3)
    p.layer("copies")
    p.launch("copies", [(p.add(t, waves=4), blocks)], gap_ps=0, prologue_ps=0)
    return p.finish()


def _stream_copy(case: Case, context: Context) -> float:
    target = machine(context, case.text("mode"), product=case.text("product"))
    share = COPIED // target.devices_per_gpu
    apart = case.text("detail") == "one die of a carrier"
    every = target.dies_per_carrier if apart else 1
    # The second half of a copy: what is left in an L2 at the end is written back after it.
    half, full = (run(copies(target, size=n, every=every)).time_ps for n in (share // 2, share))
    row = 4 * target.cus_per_die * target.dies_per_device * ROW
    moved = 2 * (share // row - share // 2 // row) * row
    rate = moved / (full - half) * 1e3  # of a device, in GB/s
    return rate if "carrier" in case.text("detail") else rate * target.devices_per_gpu


def _latency(case: Case, context: Context) -> float:
    target = machine(context, case.text("mode"), product=case.text("product"))
    # Sets of 1 MiB, 16 MiB, and more than all caches hold.
    granules = {"l2": 256, "mall": 4096, "hbm": 1 << 18}[case.text("detail")]
    loads = min(granules, FEW)
    if case.text("detail") == "hbm":
        first = run(chain(target, granules=granules, loads=loads // 2, passes=1)).time_ps
        both = run(chain(target, granules=granules, loads=loads, passes=1)).time_ps
        return (both - first) / (loads - loads // 2) * 1e-3
    first = run(chain(target, granules=granules, loads=loads, passes=1)).time_ps
    both = run(chain(target, granules=granules, loads=loads, passes=2)).time_ps
    return (both - first) / loads * 1e-3


def _dispatch(case: Case, context: Context) -> float:
    target = machine(context, case.text("mode"), product=case.text("product"))
    dies = target.dies_per_device
    few, many = (
        run(empty(target, blocks=n * dies, threads=int(case.text("detail")))).time_ps
        for n in (4096, 8192)
    )
    return (many - few) / 4096 / float(target.cycle_ps)


def puts(target: Target, *, size: int) -> Program:
    """Every GPU puts ``size`` bytes to the next."""
    p = _assembler("puts", target)
    blocks = 32
    steps = size // (ROW * blocks)
    shape = (blocks * steps, ROW // 4)
    x = p.buffer("x", shape, ElementType.F32, role=BufferRole.INPUT)
    y = p.buffer("y", shape, ElementType.F32, space=Space.SYMMETRIC)
    t = p.template("puts")
    tile = t.tile(1, ROW // 4, ElementType.F32, slots=4, depth=1)
    with t.loop(0, steps) as i:
        start = i * blocks + WORKGROUP
        t.load(tile, x, (start, 0))
        t.put(tile, y, (start, 0), (DEVICE + 1) % target.devices, stage=3)
    p.layer("puts")
    launched = [(p.add(t, waves=4), blocks)]
    p.launch("puts", launched, kind="collective", gap_ps=0, prologue_ps=0)
    return p.finish()


def _xgmi_link(case: Case, context: Context) -> float:
    target = machine(context, case.text("mode"), product=case.text("product"), gpus=NODE)
    small, large = (run(puts(target, size=n * MIB)).time_ps for n in (8, 16))
    return 8 * MIB / (large - small) * 1e3


def gemm_text(target: Target, dtype: str, m: int, n: int, k: int) -> str:
    """A GEMM as a module, the same on every device; its result is of 16 bits."""
    mesh = Mesh("node", tuple(Axis(*row) for row in target.mesh))

    def tensor(shape: tuple[int, ...], element: str) -> str:
        text = "x".join(map(str, (*shape, element)))
        if target.devices == 1:
            return f"tensor<{text}>"
        whole = Encoding.replicated(mesh, len(shape))
        return f"tensor<{text}, #sharding.of<@node, {whole}, global = {list(shape)}>>"

    out = "f16" if dtype == "f16" else "bf16"
    x, w, y = tensor((1, m, k), dtype), tensor((k, n), dtype), tensor((1, m, n), out)
    return f"""
        nn.parameter @w : {w}
        func.func @gemm(%x : {x}) -> {y} {{
          %w = nn.read @w : {w}
          %y = nn.linear %x, %w : {x}, {w} -> {y}
          func.return %y : {y}
        }}"""


def _shape(case: Case) -> tuple[str, int, int, int]:
    """Element type and extents: ``bf16 4096x4864x32896``."""
    dtype, _, extents = case.text("detail").partition(" ")
    numbers = extents.split("x")
    if len(numbers) != 3 or not all(number.isdecimal() and int(number) for number in numbers):
        raise InputError(Diagnostic(f"'{case.text('detail')}' must be a type and MxNxK"))
    m, n, k = map(int, numbers)
    return dtype, m, n, k


def _rate(target: Target, dtype: str, m: int, n: int, k: int) -> float:
    """TFLOP/s of a device at the clock that its GPU's power cap leaves."""
    program = build(gemm_text(target, dtype, m, n, k), target)
    return 2.0 * m * n * k / simulate_governed(program).time_ps


def _gemm(case: Case, context: Context) -> float:
    target = machine(context, case.text("mode"), product=case.text("product"))
    return _rate(target, *_shape(case))


def _gemm_ratio(case: Case, context: Context) -> float:
    parts = machine(context, case.text("mode"), product=case.text("product"))
    whole = machine(context, "spx-nps1", product=case.text("product"))
    shape = _shape(case)
    return parts.devices_per_gpu * _rate(parts, *shape) / _rate(whole, *shape)


Quantity = Callable[[Case, Context], float]

QUANTITIES: Final[Mapping[str, Quantity]] = {
    "stream_copy": _stream_copy,
    "latency": _latency,
    "dispatch": _dispatch,
    "xgmi_link": _xgmi_link,
    "gemm": _gemm,
    "gemm_ratio": _gemm_ratio,
}
DETAILS: Final[Mapping[str, tuple[str, ...]]] = {
    "stream_copy": ("all dies", "device copy", "one die of a carrier", "both dies of a carrier"),
    "latency": ("l2", "mall", "hbm"),
    "dispatch": ("64", "128", "256", "512", "1024"),
    "xgmi_link": ("one direction",),
    "gemm": (),
    "gemm_ratio": (),
}
"""The details that a quantity knows; any shape of a GEMM."""
PRODUCTS: Final = ("mi300x", "mi325x", "mi355x")
