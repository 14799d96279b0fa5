"""What the tile of a launch is chosen by, and what is said of the choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starc.core.kernel_schedules.attention_problem import AttentionProblem, AttentionSchedule
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.gemm_problem import GemmProblem, GemmSchedule
from starc.dialects.kernel import LaunchOp
from starc.passes.base import RemarkSink
from starc.passes.kernel.tiling.kernel_options import KernelOptions
from starc.targets.target import Target


@dataclass(frozen=True)
class LaunchTiler:
    """A launch, the machine, and what is fixed of the schedule."""

    launch: LaunchOp
    rates: DeviceRates
    target: Target
    sink: RemarkSink
    options: KernelOptions

    @property
    def name(self) -> str:
        return self.launch.sym_name.data

    def say_tile(self, text: str, **numbers: int | float) -> None:
        """Remarks the tile of a launch."""
        message = f"{self.name}: {text}"
        self.sink.remark("tile-chosen", message, self.launch, declined=False, **numbers)

    def say_choice(
        self,
        ranked: Sequence[GemmSchedule] | Sequence[AttentionSchedule],
        problem: GemmProblem | AttentionProblem,
    ) -> None:
        """Remarks the best schedule with the terms of its estimate, and the next ones."""
        best, others = ranked[0], ranked[1:]
        terms = ", ".join(f"{name} {seconds * 1e6:.2f}" for name, seconds in best.terms if seconds)
        alternatives = "; ".join(f"{other} {other.seconds * 1e6:.2f} us" for other in others)
        self.say_tile(
            f"tiles of {best}, estimated {best.seconds * 1e6:.2f} us "
            f"({terms} us); next: {alternatives or 'none'}",
            workgroups=best.grid,
            estimate_us=round(best.seconds * 1e6, 3),
            flops=problem.flops,
            compulsory_bytes=problem.compulsory_bytes,
        )
