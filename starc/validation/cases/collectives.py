"""``h200x2_collectives.csv``: NCCL between two H200, and copies from the memory of the other one.

``bytes`` is the full tensor. Each of the library's collectives is simulated by two transports, of
which the faster counts, as the library's own tables choose: ``ll`` (flags beside the data) and
``bulk``; two ranks are a ring of two. ``peer_copy`` is one GPU that reads the other.

Fitted are 64 KiB, 4 MiB and 256 MiB of the collectives, and 1 MiB of the copy. Sizes below 64 KiB
are shown: they carry the unequal start of two processes. All others are tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from starc.backend.assembly import ProgramAssembler
from starc.backend.program import Program, Space
from starc.backend.program import Role as BufferRole
from starc.backend.template import DEVICE, WORKGROUP
from starc.core.element_types import ElementType
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.simulator.run import simulate as run
from starc.targets.target import Target
from starc.validation.columns import Column, cases_of, time_column
from starc.validation.context import Context
from starc.validation.rows import Case, Role, Work

KIB: Final = 1 << 10
MIB: Final = 1 << 20
COLLECTIVES: Final = ("all_reduce", "all_gather", "reduce_scatter")
KINDS: Final = (*COLLECTIVES, "peer_copy")
COLUMNS: Final = (
    Column("kind", "text", choices=KINDS),
    Column("gpus", least=2),
    Column("bytes", least=8),
    time_column(),
)
NEEDS: Final = ("kernels.nccl", "kernels.peer_copy")
MARGINS: Final[Mapping[str, float]] = {"collective": 0.1, "peer_copy": 0.1}
CONSTANTS: Final = (
    "transports.ll.start",
    "transports.bulk.start",
    "transports.bulk.window",
    "kernels.nccl.gather",
    "kernels.peer_copy.start",
)
FITTED: Final = (64 * KIB, 4 * MIB, 256 * MIB)
SMALLEST: Final = 64 * KIB
LARGEST_LL: Final = 16 * MIB
"""Above it flags beside the data are not worth trying: they double the bytes."""
COLUMNS_OF_TENSOR: Final = 4096


def read(path: Path) -> list[Case]:
    """The cases of a file: collectives, and copies from a peer."""
    cases = cases_of(path, "collective", COLUMNS)
    return [
        replace(case, kind="peer_copy") if case.text("kind") == "peer_copy" else case
        for case in cases
    ]


def role(case: Case) -> Role:
    """Three sizes of the collectives and one of the copy are fitted."""
    size = case.integer("bytes")
    if size < SMALLEST:
        return "shown"
    if case.kind == "peer_copy":
        return "fitted" if size == MIB else "test"
    return "fitted" if size in FITTED else "test"


def group(case: Case) -> str:
    """By operation."""
    return case.text("kind")


def effort(case: Case) -> float:
    """Bytes."""
    return float(case.integer("bytes"))


def work(case: Case) -> Work:
    """Bytes that leave a GPU."""
    size, gpus = case.integer("bytes"), case.integer("gpus")
    match case.text("kind"):
        case "all_reduce":
            return Work(2.0 * size * (gpus - 1) / gpus)
        case "peer_copy":
            return Work(float(size))
        case _:
            return Work(float(size) * (gpus - 1) / gpus)


def simulate(case: Case, context: Context) -> float:
    """Microseconds in a graph."""
    target = context.machine("h200", gpus=case.integer("gpus"))
    size, kind = case.integer("bytes"), case.text("kind")
    if kind == "peer_copy":
        start = round(target.kernels["peer_copy"]["start"])
        return run(_peer_copy(target, size, start)).time_ps * 1e-6
    transports = ("ll", "bulk") if size <= LARGEST_LL else ("bulk",)
    return min(_time(context, target, kind, size, transport) for transport in transports)


def _time(context: Context, target: Target, kind: str, size: int, transport: str) -> float:
    """A collective of bf16 over all GPUs. A gather has less under way."""
    if kind == "all_gather":
        own = target.transports[transport]
        window = round(own.window_bytes * target.kernels["nccl"]["gather"] / 64) * 64
        changed = {**target.transports, transport: replace(own, window_bytes=window)}
        target = replace(target, transports=changed)
    axes = tuple(AxisRef(axis) for axis, _, _, _ in target.mesh)
    elements = max(target.devices, size // 2)
    columns = min(elements // target.devices, COLUMNS_OF_TENSOR)
    rows = elements // columns
    mesh = Mesh("node", tuple(Axis(*row) for row in target.mesh))
    whole = Encoding.replicated(mesh, 3)
    shared = whole.with_dim(1, axes)
    partial = whole.with_partial("sum", axes)

    def tensor(encoding: Encoding, held: int) -> str:
        shape = f"1x{held}x{columns}xbf16"
        return f"tensor<{shape}, #sharding.of<@node, {encoding}, global = {[1, rows, columns]}>>"

    share = rows // target.devices
    before, after, extra = {
        "all_reduce": (tensor(partial, rows), tensor(whole, rows), " reduction = sum"),
        "all_gather": (tensor(shared, share), tensor(whole, rows), " dim = 1"),
        "reduce_scatter": (
            tensor(partial, rows),
            tensor(shared, share),
            " reduction = sum dim = 1",
        ),
    }[kind]
    names = ", ".join(map(str, axes))
    module = f"""
        func.func @exchange(%x : {before}) -> {after} {{
          %y = collective.{kind} %x on @node axes = [{names}]{extra}
            {{algorithm = "ring", transport = "{transport}"}} : {before} -> {after}
          func.return %y : {after}
        }}"""
    return context.run(module, target).time_ps * 1e-6


def _peer_copy(target: Target, size: int, start_ps: int) -> Program:
    """The first GPU copies from the second one's memory to its own."""
    mesh = tuple((axis, count) for axis, count, _, _ in target.mesh)
    p = ProgramAssembler("peer_copy", target.to_dict(), mesh)
    rows, batch = -(-size // 256), 64
    blocks = max(1, min(target.cus_per_die, rows // batch))
    x = p.buffer("x", (rows, 128), ElementType.BF16, space=Space.SYMMETRIC)
    y = p.buffer("y", (rows, 128), ElementType.BF16, role=BufferRole.OUTPUT)
    t = p.template("peer_copy")
    tile = t.tile(batch, 128, ElementType.BF16, slots=2, depth=1)
    with t.if_(DEVICE * -1), t.loop(0, -(-rows // (batch * blocks))) as i:
        place = (i * blocks + WORKGROUP) * batch
        t.get(tile, x, (place, 0), 1)
        t.store(tile, y, (place, 0), stage=1)
    p.layer("peer_copy")
    p.launch(
        "peer_copy",
        [(p.add(t, waves=8, window_bytes=2 * batch * 256), blocks)],
        kind="collective",
        gap_ps=start_ps,
    )
    return p.finish()
