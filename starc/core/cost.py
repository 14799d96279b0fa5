"""The cost model: estimated times of launches, and the work that no schedule can avoid.

Times come from the same schedules that are compiled (``tile_schedules``, ``attention_schedules``,
``row_schedules``, ``collective_schedules``) over the rates of the target, so that "by cost" means
by what would be built: the cost of an operation is the minimum over its schedules. They include a
kernel's prologue, and not the gap in front of it.

Compulsory work is what the operation itself asks for, each operand read once and each result
written once. Over the device's rates it is the time of a launch whose operands come from memory and
whose results go there; caches can keep activations from doing so, and a report's
``algorithm_bound`` (``starc.report.bounds``) counts only what they cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starc.core.attention_schedules import AttentionProblem, choose_attention
from starc.core.collective_schedules import ring_time
from starc.core.device_rates import DeviceRates
from starc.core.row_schedules import RowProblem, choose_rows
from starc.core.tile_schedules import GemmProblem, choose_gemm

if TYPE_CHECKING:
    from starc.dialects.kernel import LaunchOp
    from starc.dialects.kernel_problems import CollectiveProblem


@dataclass(frozen=True)
class Cost:
    """Estimated seconds and what they are spent on."""

    seconds: float
    bound_by: str


def gemm_cost(problem: GemmProblem, rates: DeviceRates) -> Cost:
    """The estimate of the best schedule of a GEMM launch."""
    best = choose_gemm(problem, rates)[0]
    return Cost(best.seconds + rates.prologue("gemm"), _largest(dict(best.terms)))


def attention_cost(problem: AttentionProblem, rates: DeviceRates) -> Cost:
    """The estimate of the best schedule of an attention launch."""
    best = choose_attention(problem, rates)[0]
    return Cost(best.seconds + rates.prologue("attention"), _largest(dict(best.terms)))


def rows_cost(problem: RowProblem, rates: DeviceRates, kernel_class: str = "elementwise") -> Cost:
    """The estimate of an elementwise, norm, append or embedding launch."""
    schedule = choose_rows(problem, rates)
    return Cost(schedule.seconds + rates.prologue(kernel_class), "memory")


def collective_cost(problem: CollectiveProblem, rates: DeviceRates) -> Cost:
    """The alpha-beta estimate of a collective.

    A step costs the transport's fixed time and three crossings of a link: the data, its
    acknowledgement and the signal. A ring goes round with the mean of its links, for every chunk
    crosses all of them; its bytes go at the rate of the slowest, or of the transport's windows over
    a round trip where that is less.
    """
    transport = rates.transports[problem.transport]
    if problem.ranks < 2 or not problem.link_classes:
        return Cost(problem.payload_bytes / rates.hbm_rate, "memory")
    link = rates.links[problem.link_classes[0]]
    round_trip = 2 * link.latency_s + rates.latency_s
    window = transport.workgroups * transport.window_bytes / round_trip
    rate = min(link.bytes_per_s, window) / transport.payload_factor
    is_ring = problem.algorithm == "ring"
    crossing = _ring_latency(problem, rates) if is_ring else link.latency_s
    alpha = transport.step_s + 3 * crossing + rates.l2_latency_s
    start = transport.start_s + rates.prologue("collective")
    if is_ring:
        operation, ranks = problem.operation, problem.ranks
        body = ring_time(operation, ranks, problem.payload_bytes, alpha, rate, problem.rings)
        fixed = ring_time(operation, ranks, 0, alpha, rate)
    else:
        fixed = alpha
        body = fixed + problem.sent_bytes / (rate * min(problem.rings, problem.ranks - 1))
    return Cost(start + body, "latency" if fixed > body / 2 else problem.link_classes[0])


def _ring_latency(problem: CollectiveProblem, rates: DeviceRates) -> float:
    """The mean latency of the links of a ring in the order of ranks: of n devices, n / (devices
    inside a level) links leave it."""
    total, inside = 0.0, 1
    sizes = [size for size, _ in problem.levels]
    for number, (size, link_class) in reversed(list(enumerate(problem.levels))):
        if size > 1 and link_class in rates.links:
            is_outermost = all(outer == 1 for outer in sizes[:number])
            share = (1 if is_outermost else 1 - 1 / size) / inside
            total += share * rates.links[link_class].latency_s
        inside *= size
    return total


def _largest(terms: Mapping[str, float]) -> str:
    return max(terms, key=lambda name: terms[name])


@dataclass(frozen=True)
class Compulsory:
    """Work of one launch on one device that no schedule avoids.

    ``link_bytes`` are bytes that a device must send by link class, for an exchange that uses every
    level of the mesh for its own part: over the outermost level only what inner ones cannot do.
    """

    flops: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    link_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    dtype: str = "bf16"

    @property
    def hbm_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    def bound(self, rates: DeviceRates) -> Cost:
        """The largest of the parts over the device's sustained rates, with caches that keep
        nothing from one launch to the next."""
        times = {
            "hbm": self.hbm_bytes / rates.hbm_rate,
            "matrix": self.flops / (rates.matrix_rate(self.dtype) * rates.compute_units),
        }
        for name, sent in self.link_bytes.items():
            if name in rates.links:
                link = rates.links[name]
                times[name] = sent / (link.bytes_per_s * link.per_device)
        slowest = _largest(times)
        return Cost(times[slowest], slowest)


def compulsory(launch: LaunchOp) -> Compulsory:
    """The compulsory work of a launch, before or after ``plan-memory``."""
    from starc.dialects.kernel_problems import CollectiveProblem, moved_bytes, problem_of

    problem = problem_of(launch)
    read, written = moved_bytes(launch)
    if isinstance(problem, GemmProblem | AttentionProblem):
        return Compulsory(problem.flops, read, written, dtype=problem.dtype)
    if isinstance(problem, CollectiveProblem):
        return Compulsory(0, read, written, link_bytes(problem))
    return Compulsory(0, read, written)


def link_bytes(problem: CollectiveProblem) -> dict[str, int]:
    """Bytes that a device must send by link class when every level does its part: over axes of
    sizes n, inner to outer, each level exchanges what the levels inside it leave, (n-1)/n of it
    once for a gather or scatter and twice for an all-reduce."""
    factor = 2 if problem.operation == "all_reduce" else 1
    sent: dict[str, int] = {}
    left = problem.payload_bytes
    for size, link_class in reversed(problem.levels):
        if size > 1:
            sent[link_class] = sent.get(link_class, 0) + factor * left * (size - 1) // size
            left //= size
    return sent


def launch_cost(launch: LaunchOp, rates: DeviceRates) -> Cost:
    """The estimate of one launch."""
    from starc.dialects.kernel_problems import problem_of

    problem: Any = problem_of(launch)
    if isinstance(problem, GemmProblem):
        return gemm_cost(problem, rates)
    if isinstance(problem, AttentionProblem):
        return attention_cost(problem, rates)
    if isinstance(problem, RowProblem):
        return rows_cost(problem, rates, launch.kind.data)
    return collective_cost(problem, rates)


def work_facts(launch: LaunchOp, roles: Mapping[str, str]) -> dict[str, int | str]:
    """The compulsory work of a launch after ``plan-memory`` as plain values for reports: ``flops``,
    ``bytes`` (operands read once, results written once), ``cold_bytes`` (of them those that no
    earlier launch of the layer can have brought into a cache: weights, but not rows of a table that
    data chooses, and the part of a KV cache that was there before the step), ``dtype`` of the
    matrix operations and ``link.CLASS`` bytes.

    ``roles`` maps buffers to their roles.
    """
    from starc.dialects import nn
    from starc.dialects.kernel_problems import ops_of, tensor, tensor_bytes

    work = compulsory(launch)
    facts: dict[str, int | str] = {"flops": work.flops, "bytes": work.hbm_bytes}
    if work.flops:
        facts["dtype"] = work.dtype
    cold = 0
    ops = ops_of(launch)
    for argument, name in zip(launch.block.args, launch.read_names, strict=True):
        role = roles.get(name)
        for op in ops:
            if argument not in op.operands:
                continue
            if role == "weight":
                if not isinstance(op, nn.EmbeddingOp):
                    cold += tensor_bytes(tensor(argument))
                break
            if role == "state" and isinstance(op, nn.AttentionOp):
                positions = tensor(argument).get_shape()[2]
                cold += tensor_bytes(tensor(argument)) // positions * op.start.value.data
                break
    facts["cold_bytes"] = cold
    for name, sent in work.link_bytes.items():
        facts[f"link.{name}"] = sent
    return facts
