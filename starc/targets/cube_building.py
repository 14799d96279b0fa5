"""From the numbers of a machine file of cubes to its target: engines, queues, tiles and links that
other machines do not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil, prod
from typing import Final

from starc.targets.cube_rules import ISSUE_CLASSES, NEEDED, QUEUE_COMMANDS
from starc.targets.cubes import AXES, NOC, PE_MESH, UCIE, Grid
from starc.targets.parts import Engines
from starc.targets.target import Target

ENGINES: Final = ("cpu", "scheduler", "dma", "gemm", "math")


def default_sizes(grid: Grid) -> list[int]:
    """Groups, cubes of a group and PEs of a cube of a whole SIP: groups of half of its cubes."""
    cubes = max(1, grid.cubes // 2)
    return [grid.cubes // cubes, cubes, grid.pes]


def with_cubes(
    target: Target, grid: Grid, sizes: Sequence[int], number: Mapping[str, float]
) -> Target:
    """The target of a machine file with cubes: ``target`` is what it has in common with others."""
    count = {key: int(number[key]) for key in NEEDED}
    groups, cubes, pes = sizes
    tile = tuple(count[f"compute.tile_{axis}"] for axis in "mnk")
    rates = {
        PE_MESH: count["fabric.pe_rate"],
        NOC: count["fabric.noc_rate"],
        UCIE: count["fabric.ucie_rate"],
    }
    return replace(
        target,
        mesh=(
            (AXES[0], target.gpus, "outer", UCIE),
            (AXES[1], groups, "outer", NOC),
            (AXES[2], cubes, "inner", NOC),
            (AXES[3], pes, "inner", PE_MESH),
        ),
        carriers=target.carriers + grid.cubes,
        routers=grid.cubes,
        grid=(grid.cube_rows, grid.cube_columns, grid.pe_rows, grid.pe_columns),
        port_carriers=tuple(
            target.carriers + int(number[f"structure.port_cube_{port}"])
            for port in range(target.ports)
        ),
        matrix_tile=tile,
        matrix_rows=min(tile[:2]),
        matrix_flops_per_clock=_flops_per_clock(2 * prod(tile), count),
        **vars(_engines(number, count, target.cycle_ps)),
        channels=count["memory.pseudo_channels"],
        channel_granule=count["memory.channel_granule"],
        link_rate=rates,
        link_peak=rates,
        link_latency_ps=_link_latencies(target, count),
        noc_hop_latency_ps=count["latency.noc_hop"],
    )


def _flops_per_clock(tile_flops: int, count: Mapping[str, int]) -> dict[str, int]:
    """FLOP a clock by element type, from the FLOP of a tile and its cycles."""
    flops = tile_flops // count["compute.tile_cycles"]
    f32 = tile_flops // count["compute.tile_cycles_f32"]
    return {"bf16": flops, "f16": flops, "f8E4M3FN": flops, "f32": f32}


def _engines(number: Mapping[str, float], count: Mapping[str, int], cycle_ps: Fraction) -> Engines:
    return Engines(
        engines=ENGINES,
        issue_ps={
            name: ceil(Fraction(str(number[f"issue.{name}"])) * cycle_ps) for name in ISSUE_CLASSES
        },
        stateful_composites=bool(number.get("compute.stateful_composites", 0)),
        queue_bytes=count["structure.queue_bytes"],
        queue_depth=count["structure.queue_depth"],
        queue_commands=count[QUEUE_COMMANDS],
        scratch_port_bytes_per_clock=count["caches.scratch_port"],
        scratch_latency_ps=count["latency.scratch"],
    )


def _link_latencies(target: Target, count: Mapping[str, int]) -> dict[str, int]:
    side, hop = target.mall_latency_ps, target.hop_latency_ps
    return {
        PE_MESH: side + hop // 2,
        NOC: side + hop + count["latency.noc_hop"] // 2,
        UCIE: 2 * count["latency.ucie"],
    }
