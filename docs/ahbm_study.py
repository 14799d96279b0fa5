"""Runs what ``ahbm.md`` reports and writes its tables and charts: ``python docs/ahbm_study.py``.

Programs are compiled once and simulated on machines with other numbers, where these do not stand in
the program: issue costs do, and are compiled anew. ``--quick`` runs a few small points, writes
nothing, and takes less than a minute; ``--only NAME`` writes one block of the page and its chart.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Final

from ahbm_runs import Case, run
from line_charts import Chart

from starc.backend.program import Engine
from starc.simulator.state import engine_counts as counts

DOCS: Final = Path(__file__).parent
FACTORS: Final = (0.25, 1.0, 4.0)
OPERATING: Final = [(tile, memory) for tile in FACTORS for memory in FACTORS]
"""Factors on the cycles of a tile of the matrix engine and on the rate of the memory."""
SCHEDULES: Final = {"opt1": "blocking", "opt3": "pipelined", "opt2": "stateful"}


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def short(number: float) -> str:
    """Three digits."""
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"


def tokens(context: int) -> str:
    return f"{context // 1024}k" if context >= 1024 else str(context)


Block = tuple[str, dict[str, Chart]]


def crossover(contexts: Sequence[int]) -> Block:
    """(a) Where the sweep takes as long as the merge."""
    kinds = {
        "C=1, heads scattered": (Case(cubes=1), contexts),
        "C=8, heads scattered": (Case(), contexts),
        "C=8, one root": (Case(sharding="mode=queries output=root"), contexts[1::2]),
    }
    rows: list[list[str]] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    crossings: list[list[str]] = []
    for name, (kind, chosen) in kinds.items():
        halves: list[str] = []
        for tile, memory in OPERATING:
            found = [run(replace(kind, context=context), tile, memory) for context in chosen]
            shares = [(float(c), 100 * each.share) for c, each in zip(chosen, found, strict=True)]
            halves.append(f"{_crossing(shares, 50)}; {_crossing(shares, 25)}")
            if memory == 1 and tile < 4:
                short_name = re.sub(", heads|, one", "", name)
                lines[f"{short_name}{'' if tile == 1 else ', x0.25'}"] = shares
            if (tile, memory) == (1, 1):
                rows += [
                    [name, tokens(c), *map(short, (r.us, r.sweep_us)), f"{100 * r.share:.0f} %"]
                    for c, r in zip(chosen, found, strict=True)
                ]
        crossings.append([name, *halves])
    text = table(["", "context", "us", "of it the sweep, us", "merge"], rows)
    text += (
        "\n\nContext at which the merge is half of the time; a quarter: by cycles of a tile of the "
    )
    text += "matrix engine and rate of the memory:\n\n"
    text += table(
        ["", *(f"tile x{tile:g}, memory x{rate:g}" for tile, rate in OPERATING)], crossings
    )
    chart = Chart(
        "Share of the merge in decode attention; x0.25: cycles of a tile",
        "context",
        "percent of the time",
        lines,
        log_y=False,
    )
    return text, {"crossover": chart}


def _crossing(line: Sequence[tuple[float, float]], level: float) -> str:
    """The context at which a share falls below a level."""
    for (x0, y0), (x1, y1) in pairwise(line):
        if y0 >= level > y1:
            return f"{x0 * 2 ** (log2(x1 / x0) * (y0 - level) / (y0 - y1)):,.0f}"
    return "nowhere" if line[0][1] < level else f"beyond {tokens(int(line[-1][0]))}"


CUBES: Final = (1, 2, 4, 8, 16)


def best(contexts: Sequence[int]) -> Block:
    """(b) The number of cubes that share a KV head."""
    lines: dict[str, list[tuple[float, float]]] = {f"C={cubes}": [] for cubes in CUBES}
    rows: list[list[str]] = []
    grid: list[list[str]] = []
    for context in contexts:
        us = {cubes: run(Case(cubes=cubes, context=context)).us for cubes in CUBES}
        two = run(Case(cubes=16, context=context, kv_heads=2)).us
        for cubes, time_us in us.items():
            lines[f"C={cubes}"].append((context, time_us))
        rows.append(
            [tokens(context), *map(short, us.values()), short(two), "16" if two < us[8] else "8"]
        )
        cells: list[str] = []
        for tile, memory in OPERATING:
            found = [run(Case(cubes=cubes, context=context), tile, memory).us for cubes in CUBES]
            least = min(found)
            near = next(c for c, us in zip(CUBES, found, strict=True) if us <= 1.1 * least)
            fastest = CUBES[found.index(least)]
            cells.append(str(fastest) if near == fastest else f"{fastest} ({near})")
        grid.append([tokens(context), *cells])
    text = table(
        [
            "context",
            *(f"C={cubes}, us" for cubes in CUBES),
            "two KV heads in turn on C=16, us",
            "best C of a SIP with two",
        ],
        rows,
    )
    text += "\n\nFastest C by cycles of a tile and rate of the memory, in brackets the smallest "
    text += "within a tenth of it:\n\n"
    heads = [f"tile x{tile:g}, memory x{memory:g}" for tile, memory in OPERATING]
    text += table(["context", *heads], grid)
    return text, {
        "cubes": Chart("One KV head on C cubes of 8 PEs", "context", "microseconds", lines)
    }


COSTS: Final = (0, 1, 10, 100)
FORMS: Final = {
    "opt1": "",
    "opt3": "",
    "opt2": "",
    "opt1, softmax fused": "f",
    "opt3, softmax fused": "f",
}


def schedules(context: int, keys: Sequence[int]) -> Block:
    """(c) The three schedules of a sweep on one PE."""
    lines: dict[str, list[tuple[float, float]]] = {}
    rows: list[list[str]] = []
    verdicts: list[list[str]] = []
    for tile_keys in keys:
        tiles = context // tile_keys
        cases = {
            (name, cost): Case(
                1,
                1,
                context,
                tiles=f"attention-keys={tile_keys}" + (" softmax=fused" if form else ""),
                schedule=SCHEDULES[name[:4]],
                issue=cost,
                stateful=name == "opt2",
            )
            for name, form in FORMS.items()
            for cost in COSTS
        }
        found = {place: run(case) for place, case in cases.items()}
        outside = found["opt2", 0].commands - 2 * tiles
        for name in FORMS:
            runs = [found[name, cost] for cost in COSTS]
            rows.append(
                [
                    str(tile_keys),
                    name,
                    f"{(runs[0].commands - outside) / tiles:g}",
                    *(f"{each.us * 1000 / tiles:,.0f}" for each in runs),
                    *(f"{each.bubbles_us * 1000 / tiles:,.0f}" for each in runs),
                ]
            )
            if tile_keys == keys[0]:
                lines[name.replace("softmax ", "")] = [
                    (max(cost, 0.5), each.us * 1000 / tiles)
                    for cost, each in zip(COSTS, runs, strict=True)
                ]
        for tile, memory in OPERATING:
            cells: list[str] = []
            for cost in (0, 10, 100):
                us = {name: run(cases[name, cost], tile, memory).us for name in SCHEDULES}
                cells.append(f"{us['opt1'] / us['opt3']:.2f}, {us['opt3'] / us['opt2']:.2f}")
            verdicts.append([str(tile_keys), f"x{tile:g}", f"x{memory:g}", *cells])
    text = table(
        [
            "keys of a tile",
            "",
            "commands a tile",
            *(f"cycles a tile, issue {cost}" for cost in COSTS),
            *(f"bubbles, issue {cost}" for cost in COSTS),
        ],
        rows,
    )
    text += "\n\nTime of opt1 over opt3, and of opt3 over opt2, by issue cost:\n\n"
    text += table(
        ["keys of a tile", "tile cycles", "memory", "issue 0", "issue 10", "issue 100"], verdicts
    )
    chart = Chart(
        f"Cycles of a tile of {keys[0]} keys by issue cost (0 drawn at 0.5)",
        "cycles to issue a command",
        "cycles a tile",
        lines,
    )
    return text, {"schedules": chart}


RINGS: Final = {"contiguous": "mode=ring map=contiguous", "round-robin": "mode=ring map=cyclic"}


def ring(cubes: int, elements: int, prompt: int) -> Block:
    """(d) Keys that go around cubes, in stretches and dealt out. A block time is what a cube needs
    for a block that all rows see: the ring without a mask, by its steps."""
    rows: list[list[str]] = []
    rooms: list[list[str]] = []
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in RINGS}
    base = Case(cubes, elements, prompt, prompt=True)
    cases = {name: replace(base, sharding=sharding) for name, sharding in RINGS.items()}
    for tile in FACTORS:
        blocks = {
            name: run(replace(case, masked=False), tile).us / cubes for name, case in cases.items()
        }
        for network in (1 / 256, 1 / 64, 1 / 16, 0.25, 1.0, 4.0):
            cells: list[str] = []
            for name, case in cases.items():
                us = run(case, tile, 1, network).us
                cells += [short(us), f"{us / blocks[name]:.2f}"]
                if tile == 1:
                    lines[name].append((256 * network, us / blocks[name]))
            rows.append([f"x{tile:g}", f"{256 * network:g}", *cells])
    for slots in (2, 3):
        for name, case in cases.items():
            chosen = case if slots == 3 else replace(case, tiles=f"ring-slots={slots}")
            found, whole = run(chosen), run(replace(chosen, masked=False))
            work = cubes * found.products / whole.products
            block = whole.us / cubes
            rooms.append([str(slots), name, f"{work:.2f}", short(found.us)])
            rooms[-1].append(f"{found.us / block:.2f}")
    text = table(
        [
            "tile cycles",
            "links of cubes, GB/s",
            "contiguous, us",
            "in block times",
            "round-robin, us",
            "in block times",
        ],
        rows,
    )
    text += "\n\nThe same by blocks that a cube has room for; the work is the products that the "
    text += "busiest PE computes:\n\n"
    text += table(["blocks", "keys", "work, in block times", "us", "in block times"], rooms)
    return text, {
        "ring": Chart(
            "Causal ring over eight cubes",
            "rate of links between cubes, GB/s",
            "time in block times",
            lines,
            log_y=False,
        )
    }


def outputs(contexts: Sequence[int]) -> Block:
    """(e) All heads at one PE, or each at an owner."""
    rows: list[list[str]] = []
    for context in contexts:
        for name in ("root", "scatter"):
            found = run(Case(context=context, sharding=f"mode=queries output={name}"))
            rows.append([tokens(context), name, short(found.us), short(found.ready_us)])
    head = ["context", "output", "attention, us", "until every PE has what it projects, us"]
    return table(head, rows), {}


def reductions(context: int) -> Block:
    """(f) Ways to a root."""
    rows: list[list[str]] = []
    ways = [("tree", across) for across in ("mesh", "tree", "ring", "flat")]
    ways += [(inside, "mesh") for inside in ("ring", "flat")]
    for inside, across in ways:
        case = Case(
            context=context,
            sharding="mode=queries output=root",
            tiles=f"reduce-pe={inside} reduce-cube={across}",
        )
        found = run(case)
        rows.append([inside, across, short(found.us), f"{(found.us - found.sweep_us) * 1000:,.0f}"])
    head = ["over PEs", "over cubes", "attention, us", "behind the last product, ns"]
    return table(head, rows), {}


def whole() -> Block:
    """The four cases for all KV heads of the model over four SIPs."""
    rows: list[list[str]] = []
    for phase, context, sharding in (
        ("decode", 131072, "mode=queries output=scatter"),
        ("prefill", 4096, "mode=ring map=cyclic"),
    ):
        for cubes, elements in ((1, 1), (8, 8)):
            case = Case(cubes, elements, context, phase == "prefill", 8, sharding=sharding)
            found = run(replace(case, sips=4, groups=2))
            name = f"{phase}, {tokens(context)}, {'no ' if cubes == 1 else ''}sequence parallelism"
            busy = [found.of(e, counts.BUSY) / found.us / 1e4 for e in (Engine.GEMM, Engine.MATH)]
            rows.append(
                [
                    name,
                    str(8 * cubes * elements),
                    short(found.us),
                    short(found.result.time_ps / 1e6),
                ]
            )
            rows[-1] += [*(f"{share:.0f} %" for share in busy), f"{found.puts:,}"]
    head = ["case", "PEs", "attention, us", "layer of attention alone, us", "GEMM", "MATH", "puts"]
    return table(head, rows), {}


LONG: Final = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
BLOCKS: Final[dict[str, Callable[[], Block]]] = {
    "schedules": lambda: schedules(8192, (64, 512)),
    "crossover": lambda: crossover(LONG),
    "best": lambda: best((*LONG[::2], LONG[-1])),
    "ring": lambda: ring(8, 1, 4096),
    "outputs": lambda: outputs((1024, 16384, 131072)),
    "reductions": lambda: reductions(4096),
    "whole": whole,
}
QUICK: Final[dict[str, Callable[[], Block]]] = {
    "schedules": lambda: schedules(512, (64,)),
    "crossover": lambda: crossover((512, 1024)),
    "ring": lambda: ring(2, 1, 512),
}


def written(page: str, blocks: Mapping[str, str]) -> str:
    """The page with the blocks between ``<!-- study: NAME -->`` and ``<!-- end -->`` anew."""
    for name, text in blocks.items():
        pattern = re.compile(rf"<!-- study: {name} -->\n.*?<!-- end -->", re.DOTALL)
        if not pattern.search(page):
            raise ValueError(f"ahbm.md has no block called {name}")
        new = f"<!-- study: {name} -->\n{text}\n<!-- end -->"
        page = pattern.sub(lambda _, new=new: new, page)
    return page


def studies(chosen: Mapping[str, Callable[[], Block]]) -> Iterator[tuple[str, Block]]:
    for name, study in chosen.items():
        started = time.perf_counter()
        print(f"{name} ...", flush=True)
        found = study()
        print(f"{found[0]}\n{name}: {time.perf_counter() - started:.0f} s", flush=True)
        yield name, found


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs the studies of ahbm.md.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=BLOCKS)
    options = parser.parse_args()
    if options.quick:
        for _ in studies(QUICK):
            pass
        return
    page = DOCS / "ahbm.md"
    chosen = {options.only: BLOCKS[options.only]} if options.only else BLOCKS
    for name, (text, charts) in studies(chosen):
        for file, chart in charts.items():
            chart.write(DOCS / f"ahbm-{file}.svg")
        page.write_text(written(page.read_text(encoding="utf-8"), {name: text}), encoding="utf-8")


if __name__ == "__main__":
    main()
