"""``mi300x_collectives.csv``: public times of all-reduce over a node of eight MI300X.

- ``default_graph``: one rank a GPU in SPX, in a graph, by whatever the library takes, which is not
  said. Simulated are sums in one and in two steps with flags beside the data (``one_shot``,
  ``two_shot`` by ``ll``) and seven rings by ``bulk``, of which the fastest counts.
- ``ring_simple``, ``ring_ll``: 64 ranks in CPX/NPS4 on one ring, by ``bulk`` and ``channel_ll``.
- ``tree_ll``, ``tree_simple``: the same by trees, which are chains inside a node. Half of a
  channel's threads serve each way; parts of 8 KiB a channel follow each other. Above 16 MiB a chain
  is simulated at 8 and 16 MiB and extended: its time is linear in the bytes once it is full.

Fitted are, by four sizes, three constants of the SPX table (``ll.start`` at 32 B, ``ll.share`` at
256 KiB and 4 MiB, ``bulk.workgroups`` at 128 MiB), and by the smallest and the largest size of
``ring_simple`` and the smallest of ``tree_ll`` the steps and the channels in CPX. All others of
these three are tests. ``ring_ll`` and ``tree_simple`` are shown: what the table says of them (a
ring takes 154 us for 1 KiB and 129 for 16) has no mechanism here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

from starc.core.collectives.rings import all_rings
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.dialects.kernel import LaunchOp
from starc.targets.target import Target
from starc.validation.cases.mi300x_modes import NODE, machine
from starc.validation.columns import Column, cases_of, time_column
from starc.validation.context import Context
from starc.validation.rows import Case, Role, Work

PROTOCOLS: Final = ("default_graph", "ring_simple", "tree_ll", "ring_ll", "tree_simple")
COLUMNS: Final = (
    Column("mode", choices=("spx-nps1", "cpx-nps4"), kind="text"),
    Column("ranks"),
    Column("protocol", choices=PROTOCOLS, kind="text"),
    Column("bytes", least=4),
    time_column(),
)
CONSTANTS: Final = (
    "transports.ll.start",
    "transports.ll.share",
    "transports.bulk.workgroups",
    "transports.bulk.workgroups_cpx",
    "transports.bulk.step",
    "transports.channel_ll.step",
)
NOTES: Final[Mapping[str, str]] = {
    "all_reduce_64": "what makes a ring with flags beside the data (ring_ll) take 154 us for 1 KiB "
    "and 129 for 16 KiB, and a chain with fences (tree_simple) 549 us for 1 MiB.",
}
FITTED: Final[Mapping[str, tuple[int, ...]]] = {
    "default_graph": (32, 1 << 18, 1 << 22, 1 << 27),
    "ring_simple": (32, 1 << 27),
    "tree_ll": (32,),
}
SHOWN: Final = ("ring_ll", "tree_simple")
LONGEST_CHAIN: Final = 1 << 24
PART_BYTES: Final = 8192
LARGEST_EAGER: Final = 1 << 24
"""Above it flags beside the data are not worth trying: they double the bytes."""


def read(path: Path) -> list[Case]:
    """The cases of a file."""
    return [
        replace(case, kind=f"all_reduce_{case.integer('ranks')}")
        for case in cases_of(path, "all_reduce", COLUMNS)
    ]


def role(case: Case) -> Role:
    """By protocol the sizes of ``FITTED``; two protocols are shown."""
    if case.text("protocol") in SHOWN:
        return "shown"
    return "fitted" if case.integer("bytes") in FITTED.get(case.text("protocol"), ()) else "test"


def margin(case: Case) -> float | None:
    """A fifth for 8 ranks, 30 % for 64."""
    if role(case) == "shown":
        return None
    return 0.2 if case.integer("ranks") == NODE else 0.3


def group(case: Case) -> str:
    """By protocol."""
    return case.text("protocol")


def work(case: Case) -> Work:
    """What a rank sends."""
    size, ranks = case.integer("bytes"), case.integer("ranks")
    return Work(2.0 * size * (ranks - 1) / ranks)


def effort(case: Case) -> float:
    """Bytes times ranks."""
    return float(case.integer("bytes") * case.integer("ranks"))


def simulate(case: Case, context: Context) -> float:
    """Microseconds of one sum in a graph."""
    target = machine(context, case.text("mode"), gpus=NODE)
    size, protocol = case.integer("bytes"), case.text("protocol")
    match protocol:
        case "default_graph":
            times = [_time(context, target, size, "ring", "bulk", all_rings(NODE))]
            if size <= LARGEST_EAGER:
                times.append(_time(context, target, size, "two_shot", "ll"))
            if size <= LARGEST_EAGER // 16:
                times.append(_time(context, target, size, "one_shot", "ll"))
            return min(times)
        case "ring_simple" | "ring_ll":
            transport = "bulk" if protocol == "ring_simple" else "channel_ll"
            return _time(context, target, size, "ring", transport)
        case _:
            return _chain(
                context, target, size, "bulk" if protocol == "tree_simple" else "channel_ll"
            )


def _chain(context: Context, target: Target, size: int, transport: str) -> float:
    """A chain, of which each way has half of a channel."""
    own = target.transports[transport]
    halved = replace(own, workgroups=max(1, own.workgroups // 2))
    target = replace(target, transports={**target.transports, transport: halved})

    def time(size: int) -> float:
        parts = max(1, size // (halved.workgroups * PART_BYTES))
        return _time(context, target, size, "chain", transport, parts=parts)

    if size <= LONGEST_CHAIN:
        return time(size)
    full, half = time(LONGEST_CHAIN), time(LONGEST_CHAIN // 2)
    return full + (full - half) * (size - LONGEST_CHAIN) / (LONGEST_CHAIN - LONGEST_CHAIN // 2)


def _time(
    context: Context,
    target: Target,
    size: int,
    algorithm: str,
    transport: str,
    rings: tuple[int, ...] = (),
    parts: int = 1,
) -> float:
    """A sum of f32 over all devices, in ``parts`` parts that follow each other."""
    axes = tuple(AxisRef(axis) for axis, _, _, _ in target.mesh)
    elements = max(1, size // 4)
    columns = min(elements, 4096)
    shape = (1, max(1, elements // columns), columns)
    mesh = Mesh("node", tuple(Axis(*row) for row in target.mesh))
    whole = Encoding.replicated(mesh, len(shape))
    local = "x".join(map(str, shape))

    def tensor(encoding: Encoding) -> str:
        return f"tensor<{local}xf32, #sharding.of<@node, {encoding}, global = {list(shape)}>>"

    before, after = tensor(whole.with_partial("sum", axes)), tensor(whole)
    names = ", ".join(map(str, axes))
    given = f", rings = array<i64: {', '.join(map(str, rings))}>" if rings else ""
    module = f"""
        func.func @sum(%x : {before}) -> {after} {{
          %y = collective.all_reduce %x on @node axes = [{names}] reduction = sum
            {{algorithm = "{algorithm}", transport = "{transport}"{given}}} : {before} -> {after}
          func.return %y : {after}
        }}"""

    def divide(module: ModuleOp) -> None:
        for op in module.walk():
            if isinstance(op, LaunchOp):
                op.properties["chunks"] = IntegerAttr(parts, i64)

    prepare = divide if parts > 1 else None
    return context.run(module, target, prepare=prepare).time_ps * 1e-6
