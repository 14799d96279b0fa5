"""``mi300x_public.csv``: public times of micro-benchmarks of an MI300X in SPX/NPS1.

Every benchmark is a small program of this project's format, built by hand:

- ``cache_latency``: one work-item that follows a chain, always to another line. A whole round is
  simulated behind another, up to the size of the caches; beyond it a few thousand loads, which are
  all alike. Their mean times the loads of the benchmark is its time. Sets of up to 16 KiB lie in
  the L1, which is not modelled: they are shown.
- ``memory_bandwidth``: a copy on the device, cold: up to 128 MiB it is hardly faster than beyond,
  so it finds little in the Infinity Cache. The floor of the timer is the least that it shows. From
  1 GiB on the time is extended in a straight line.
- ``shoc_devicememory``: blocks of 256 threads, 65,536 at most, read or write a float a thread.
- ``empty_kernel``: workgroups that do nothing, between two looks of the host.
- ``atomic_operations``: signals of all waves to one counter. That read-modify-writes of a line
  wait for each other is not modelled: shown.
- ``fp16_throughput``, ``fp64_throughput``, ``int32_throughput``: one workgroup, each operation on
  the result of the one before, which is there ``kernels.public_timer.operation`` after it left the
  vector units. All types have one rate.
- ``shared_mem_bandwidth``: LDS that the threads read for its own sake: a matrix operation whose
  operand takes as many bytes of LDS. Bank conflicts and the issue of single waves are not
  modelled: rows with conflicts, and of less than 16 waves, are shown.
- ``tensor_core_throughput``: the compiler's own GEMM against one that nobody tuned and whose
  definition is not known: shown, up to N = 4096.

Kernels have the floor of the timer added, ``kernels.public_timer.floor``; empty kernels the round
trip of the host, ``round_trip``. The anchors fix latencies (32 KiB, 16 MiB and 1 GiB), dispatch
(empty kernels of one block, and of 2,097,152 blocks of 256 and 1,024 threads), operations (one
thread in fp16) and the copy of 1 GiB. All others are tests.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from starc.backend.program import Program
from starc.core.element_types import ElementType
from starc.diagnostics import Diagnostic, InputError, Location
from starc.diagnostics import counted as counted_rows
from starc.simulator.run import simulate as run
from starc.targets.target import Target
from starc.validation.cases.mi300x_modes import machine
from starc.validation.cases.micro_programs import (
    GRANULE,
    chain,
    counted,
    dependent,
    empty,
    floats,
    scratch_reads,
)
from starc.validation.columns import LARGEST_NUMBER, Column, cases_of, time_column
from starc.validation.context import Context
from starc.validation.rows import Case, Role
from starc.validation.streams import stream

COLUMNS: Final = (
    Column("benchmark", "text"),
    Column("param", "text"),
    Column("value", "text"),
    Column("config", "text", optional=True),
    time_column(),
    Column("what", "text", optional=True),
)
CONSTANTS: Final = (
    "latency.l2",
    "latency.mall_nps1",
    "latency.hbm_nps1",
    "dispatch.clocks",
    "dispatch.clocks_per_wave",
    "kernels.public_timer.floor",
    "kernels.public_timer.round_trip",
    "kernels.public_timer.operation",
)
NOTES: Final[Mapping[str, str]] = {
    "cache_latency": "no L1 (sets up to 16 KiB are shown with the L2's latency); translation of "
    "addresses is off, which a chain over 128 MiB and more pays 10 to 20 % for.",
    "memory_bandwidth": "between 8 and 32 MiB the timer shows less than the bytes take; beyond, a "
    "copy finds a little in the Infinity Cache, a share that is not known.",
    "shoc_devicememory": "reads and writes share one fraction of a stack's peak, fixed by copies: "
    "streams of writes alone reach 4.9 TB/s and are simulated a fifth too slow, streams of reads "
    "alone reach 3.4 to 3.7 and are simulated an eighth too fast.",
    "atomic_operations": "that read-modify-writes of one line wait for each other: 9.5 ns a wave "
    "operation, 10.1 ns a lane for compare-and-swap.",
    "int32_throughput": "multiply-adds of integers take longer than those of floats.",
    "shared_mem_bandwidth": "bank conflicts (a 32-way one takes twelve times as long), and the "
    "latency of single waves: less than 16 on a compute unit do not fill the LDS.",
    "tensor_core_throughput": "nothing of the benchmark but its name is known: its kernel is far "
    "from tuned, the compiler's GEMM is not.",
}
KIB: Final = 1 << 10
MIB: Final = 1 << 20
LARGEST_GEMM: Final = 4096
LONG_STREAM: Final = 1024  # MiB from which a stream is extended
FEW: Final = 4096
"""Loads of a chain that misses everywhere."""
MARGIN: Final = 0.15


def _numbers(case: Case) -> dict[str, str]:
    """The settings of a row: ``a=1;b=2``."""
    pairs = (item.partition("=") for item in str(case.parameters.get("config", "")).split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs if name}


def _setting(case: Case, name: str, default: int) -> int:
    text = _numbers(case).get(name, "")
    return max(1, int(text)) if text.isdecimal() else default


def read(path: Path) -> list[Case]:
    """The cases of benchmarks that are modelled; ``left_out`` tells of the others. Raises
    ``InputError`` where the size of a modelled one is no whole number."""
    modelled: list[Case] = []
    problems: list[Diagnostic] = []
    for case in cases_of(path, "public", COLUMNS):
        if case.text("benchmark") not in BENCHMARKS:
            continue
        text = case.text("value")
        if not text.isdecimal() or not 0 < int(text) <= LARGEST_NUMBER:
            place = Location(str(path), case.line, 1)
            problems.append(
                Diagnostic(f"column value: '{text[:40]}' must be a whole number", place)
            )
            continue
        parameters = {n: v for n, v in case.parameters.items() if n != "what"}
        parameters["value"] = int(text)
        found = replace(case, kind=case.text("benchmark"), parameters=parameters)
        if _why_not(found) is None:
            modelled.append(found)
    if problems:
        raise InputError(problems)
    return modelled


def _why_not(case: Case) -> str | None:
    benchmark = case.text("benchmark")
    if benchmark not in BENCHMARKS:
        return "is not modelled"
    value = str(case.parameters["value"])
    if benchmark == "tensor_core_throughput" and value.isdecimal() and int(value) > LARGEST_GEMM:
        return f"is not simulated above N = {LARGEST_GEMM}"
    return None


def left_out(path: Path) -> list[str]:
    """What rows of a file are left out, and why, by benchmark."""
    reasons: dict[tuple[str, str], int] = {}
    for case in cases_of(path, "public", COLUMNS):
        why = _why_not(case)
        if why is not None:
            key = case.text("benchmark"), why
            reasons[key] = reasons.get(key, 0) + 1
    return [
        f"{path}: {name} {why}: {counted_rows(n, 'row')} left out"
        for (name, why), n in reasons.items()
    ]


def role(case: Case) -> Role:
    """By benchmark and size, see above."""
    value, benchmark = case.integer("value"), case.text("benchmark")
    match benchmark:
        case "cache_latency":
            if value <= 16 * KIB:
                return "shown"
            return "anchor" if value in (32 * KIB, 16 * MIB, 1024 * MIB) else "test"
        case "empty_kernel":
            is_anchor = value == 1 or (
                value == 2097152 and _setting(case, "block_size", 256) in (256, 1024)
            )
            return "anchor" if is_anchor else "test"
        case "memory_bandwidth":
            return "anchor" if value == 1024 else "test"
        case "shoc_devicememory":
            return "test"
        case "fp16_throughput":
            return "anchor" if _setting(case, "threads_per_block", 64) == 1 else "test"
        case "fp64_throughput" | "int32_throughput":
            return "test"
        case "shared_mem_bandwidth":
            is_free = _numbers(case).get("access_pattern") == "no_conflict"
            is_full = _setting(case, "block_size", 1024) >= 1024
            return "test" if is_free and is_full else "shown"
        case _:
            return "shown"


def margin(case: Case) -> float | None:
    """What no table states: 15 % of every test."""
    return None if role(case) == "shown" else MARGIN


def group(case: Case) -> str:
    """By where the data lie, the mode or the operation."""
    value, numbers = case.integer("value"), _numbers(case)
    match case.text("benchmark"):
        case "cache_latency":
            for name, most in (("L1", 16 * KIB), ("L2", 4 * MIB), ("Infinity Cache", 256 * MIB)):
                if value <= most:
                    return f"chain in {name}"
            return "chain in HBM"
        case "memory_bandwidth":
            return "copy up to 128 MiB" if value <= 128 else "copy beyond 128 MiB"
        case "shoc_devicememory":
            return f"stream {numbers.get('transfer_mode', 'read')}"
        case "shared_mem_bandwidth":
            return f"LDS {numbers.get('access_pattern', '')}".strip()
        case other:
            return other


def key(case: Case) -> Hashable:
    """Everything but the words."""
    return case.text("benchmark"), case.integer("value"), str(case.parameters.get("config", ""))


def effort(case: Case) -> float:
    """Bytes or workgroups."""
    return float(case.integer("value"))


def simulate(case: Case, context: Context) -> float:
    """Microseconds as the benchmark gives them."""
    target = machine(context, "spx-nps1")
    return BENCHMARKS[case.text("benchmark")](case, target, context) * 1e-6


def _floor(target: Target) -> float:
    return target.kernels["public_timer"]["floor"]


def _time(program: Program) -> float:
    return float(run(program).time_ps)


# Chains of loads


def _cache_latency(case: Case, target: Target, _: Context) -> float:
    size = case.integer("value")
    granules = max(1, -(-size // GRANULE))
    cached = target.carriers * target.stacks_per_carrier * target.mall_bytes_per_stack
    passes = 1
    if size > cached:
        # What is further away than all caches are large misses them always.
        loads = min(granules, FEW)
    else:
        loads, passes = granules, 2
    once = _time(chain(target, granules=granules, loads=loads, passes=1))
    if passes == 2:
        twice = _time(chain(target, granules=granules, loads=loads, passes=2))
        each = (twice - once) / loads
    else:
        half = _time(chain(target, granules=granules, loads=loads // 2, passes=1))
        each = (once - half) / (loads - loads // 2)
    count = min(max(4 * size // 64, 1 << 17), 1 << 24)
    return each * count + _floor(target)


# Streams


def _memory_bandwidth(case: Case, target: Target, _: Context) -> float:
    def copy(mebibytes: int) -> float:
        units = target.cus_per_die * target.dies_per_device
        program = stream(
            target,
            size=mebibytes * MIB,
            blocks=4 * units,
            threads=256,
            unroll=4,
            copy=True,
            gap_ps=0,
        )
        return _time(program)

    return max(_floor(target), _extended(copy, case.integer("value"), LONG_STREAM))


def _extended(time: Callable[[int], float], size: int, longest: int) -> float:
    """A time that grows in a straight line from half of ``longest`` on."""
    if size <= longest:
        return time(size)
    full, half = time(longest), time(longest // 2)
    return full + (full - half) * (size - longest) / (longest - longest // 2)


def _shoc_devicememory(case: Case, target: Target, _: Context) -> float:
    threads = min(1024, _setting(case, "block_size", 256))
    writes = _numbers(case).get("transfer_mode") == "write"

    def time(mebibytes: int) -> float:
        program = floats(target, size=mebibytes * MIB, threads=threads, writes=writes)
        return _time(program)

    return _floor(target) + _extended(time, case.integer("value"), LONG_STREAM)


# Kernels that do little


def _empty_kernel(case: Case, target: Target, _: Context) -> float:
    threads = min(1024, _setting(case, "block_size", 256))
    program = empty(target, blocks=case.integer("value"), threads=threads)
    return target.kernels["public_timer"]["round_trip"] + _time(program)


def _vector(case: Case, target: Target, _: Context) -> float:
    threads = min(1024, _setting(case, "threads_per_block", 64))
    types = {"fp16_throughput": ElementType.F16, "int32_throughput": ElementType.I32}
    dtype = types.get(case.text("benchmark"), ElementType.F32)
    operation = round(target.kernels["public_timer"]["operation"])
    target = replace(target, vector_latency_ps=operation)

    def time(operations: int) -> float:
        return _time(dependent(target, threads=threads, operations=operations, dtype=dtype))

    return _floor(target) + _extended(time, case.integer("value"), FEW)


def _atomic_operations(case: Case, target: Target, _: Context) -> float:
    threads = min(1024, _setting(case, "threads_per_block", 256))
    blocks = _setting(case, "num_blocks", 2048)
    lanes = threads if _numbers(case).get("atomic_op") == "atomicCAS" else 0
    waves = max(1, -(-threads // target.wave_size))

    def time(operations: int) -> float:
        return _time(counted(target, blocks=blocks, waves=waves, operations=operations))

    each = _extended(time, case.integer("value"), 8)
    return _floor(target) + each * (target.wave_size if lanes else 1)


# Scratch memory and matrix engines


def _shared_mem_bandwidth(case: Case, target: Target, _: Context) -> float:
    threads = max(target.wave_size, min(1024, _setting(case, "block_size", 1024)))
    blocks = _setting(case, "num_blocks", 304)

    def time(iterations: int) -> float:
        program = scratch_reads(target, blocks=blocks, threads=threads, iterations=iterations)
        return _time(program)

    return _floor(target) + _extended(time, case.integer("value"), 1024)


def _tensor_core_throughput(case: Case, target: Target, context: Context) -> float:
    n = case.integer("value")
    wide = f"tensor<{n}x{n}xf16>"
    rows = f"tensor<1x{n}x{n}xf16>"
    module = f"""
        nn.parameter @w : {wide}
        func.func @gemm(%x : {rows}) -> {rows} {{
          %w = nn.read @w : {wide}
          %y = nn.linear %x, %w : {rows}, {wide} -> {rows}
          func.return %y : {rows}
        }}"""
    return _floor(target) + context.run(module, replace(target, kernel_gap_ps=0)).time_ps


Benchmark = Callable[[Case, Target, Context], float]

BENCHMARKS: Final[Mapping[str, Benchmark]] = {
    "cache_latency": _cache_latency,
    "memory_bandwidth": _memory_bandwidth,
    "shoc_devicememory": _shoc_devicememory,
    "empty_kernel": _empty_kernel,
    "atomic_operations": _atomic_operations,
    "fp16_throughput": _vector,
    "fp64_throughput": _vector,
    "int32_throughput": _vector,
    "shared_mem_bandwidth": _shared_mem_bandwidth,
    "tensor_core_throughput": _tensor_core_throughput,
}
"""Picoseconds of every benchmark that is modelled."""
