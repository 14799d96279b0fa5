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

from starc.core.collectives.cost import collective_time, pipelined, strides_of
from starc.core.kernel_schedules.attention_problem import AttentionProblem
from starc.core.kernel_schedules.attention_schedules import choose_attention
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.gemm_problem import GemmProblem
from starc.core.kernel_schedules.row_schedules import RowProblem, choose_rows
from starc.core.kernel_schedules.tile_schedules import choose_gemm

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
    """The estimate of a collective launch; see ``starc.core.collectives.cost``."""
    if problem.operation == "all_slice":
        return Cost(2 * problem.payload_bytes / rates.hbm_rate, "memory")
    phases = [
        collective_time(
            phase.operation,
            phase.algorithm,
            phase.transport,
            phase.payload_bytes,
            phase.mesh,
            phase.refs,
            rates.machine,
            strides_of(phase.algorithm, phase.mesh, phase.refs, rates.machine)[: phase.rings],
            operands=phase.operands,
        )
        for phase in problem.phases or (problem,)
    ]
    time = phases[0] if len(phases) == 1 else pipelined(phases, problem.parts)
    return Cost(time.seconds, time.bound_by)


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
    from starc.dialects.kernel_problems import (
        CollectiveProblem,
        exchanges_of,
        moved_bytes,
        problem_of,
    )

    problem = problem_of(launch)
    read, written = moved_bytes(launch)
    if isinstance(problem, GemmProblem | AttentionProblem):
        sent: dict[str, int] = {}
        for exchange in exchanges_of(launch):
            for name, amount in link_bytes(exchange).items():
                sent[name] = sent.get(name, 0) + amount
        return Compulsory(problem.flops, read, written, sent, problem.dtype)
    if isinstance(problem, CollectiveProblem):
        return Compulsory(0, read, written, link_bytes(problem))
    return Compulsory(0, read, written)


def link_bytes(problem: CollectiveProblem) -> dict[str, int]:
    """Bytes that a device must send by link class when every level does its part: over axes of
    sizes n, inner to outer, each level exchanges what the levels inside it leave, (n-1)/n of it
    once for a gather or scatter and twice for an all-reduce."""
    sent: dict[str, int] = {}
    if problem.phases:
        for phase in problem.phases:
            for link_class, amount in link_bytes(phase).items():
                sent[link_class] = sent.get(link_class, 0) + amount
        return sent
    factor = 2 if problem.operation == "all_reduce" else 1
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
    from starc.dialects.kernel_problems import ops_of, problem_of, tensor, tensor_bytes

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
            if role == "state" and isinstance(op, nn.AttentionOp | nn.PartialAttentionOp):
                problem = problem_of(launch)
                assert isinstance(problem, AttentionProblem)
                positions = tensor(argument).get_shape()[2]
                cold += tensor_bytes(tensor(argument)) // positions * problem.old_keys
                break
    facts["cold_bytes"] = cold
    for name, sent in work.link_bytes.items():
        facts[f"link.{name}"] = sent
    return facts
