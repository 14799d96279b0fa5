"""Whether a fused launch is made: its estimate against that of the launches that it replaces, and
the remark that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Block

from starc.analysis.cost import launch_cost
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.fused_schedules import FusedSchedule, Pull, choose_fused
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_fusion import fused_problem, is_fused
from starc.dialects.kernel_kinds import LaunchKind, Tax
from starc.dialects.locations import location_of
from starc.passes.base import Remark, RemarkSink
from starc.passes.kernel.tiling.launch_schedules import set_fused

Numbers = Mapping[str, int | float]
NONE: Final[Numbers] = MappingProxyType({})


class Outcome(StrEnum):
    """What is said of a launch."""

    FUSED = "fused"
    NOT_FUSED = "not-fused"


def microseconds(seconds: float) -> float:
    """As remarks have them."""
    return round(seconds * 1e6, 3)


@dataclass(frozen=True)
class FusionChoice:
    """The launches of one function, and what decides which of them become one.

    ``pull`` is the one way of reading slices of peers, ``None`` the fastest; ``unfuse`` lists the
    costs of separate kernels that fused ones pay again; ``on_engines`` says that kernels run on the
    engines of memory cubes."""

    block: Block
    rates: DeviceRates
    sink: RemarkSink
    pull: Pull | None
    unfuse: tuple[Tax, ...]
    on_engines: bool

    def accept(self, launch: LaunchOp, message: str, numbers: Numbers = NONE) -> None:
        """Says what a launch does from now on."""
        self._say(Outcome.FUSED, launch, message, numbers)

    def decline(self, launch: LaunchOp, reason: str, numbers: Numbers = NONE) -> None:
        """Says why a launch is left alone."""
        message = f"{launch.sym_name.data}: {reason}"
        self._say(Outcome.NOT_FUSED, launch, message, numbers)

    def _say(self, outcome: Outcome, launch: LaunchOp, message: str, numbers: Numbers) -> None:
        # Each time it is said: a launch may be tried in several ways with the same end.
        remark = Remark(
            outcome.value,
            message,
            location_of(launch),
            dict(numbers),
            declined=outcome is Outcome.NOT_FUSED,
            launch=launch.sym_name.data,
        )
        self.sink.remarks.append((self.sink.pass_name, remark))

    def separate_seconds(self, alone: float, others: Sequence[LaunchOp]) -> float:
        """Seconds of a launch and of others around it, with the gaps between them."""
        rates = self.rates
        return alone + sum(launch_cost(op, rates).seconds + rates.gap_s for op in others)

    def is_faster(
        self, launch: LaunchOp, fused: float, separate: float, does: str, numbers: Numbers
    ) -> bool:
        """Whether a launch that ``does`` more is faster than separate ones; declined where not."""
        if fused < separate:
            return True
        self.decline(
            launch,
            f"separate launches are faster: {microseconds(separate):.1f} us, one {does} "
            f"{microseconds(fused):.1f} us",
            numbers,
        )
        return False

    def pays(
        self,
        launch: LaunchOp,
        ways: Sequence[FusedSchedule],
        others: Sequence[LaunchOp],
        what: str,
        behind: Sequence[LaunchOp] = (),
    ) -> bool:
        """Whether the best fused schedule of a product is faster than the launch and those that it
        replaces; says so either way. The work of ``behind`` is done behind the sums."""
        rates = self.rates
        if not ways:
            self.decline(
                launch,
                f"it does not do the exchange itself: no tile lets all of its workgroups, which "
                f"wait for peers, be resident on {rates.compute_units} compute units",
            )
            return False
        separate = self.separate_seconds(self._alone(launch), others)
        fused = ways[0].seconds + rates.prologue(LaunchKind.GEMM)
        # Work behind sums takes as long as alone, but for the start of its kernel.
        for op in behind:
            fused += max(0.0, launch_cost(op, rates).seconds - rates.prologue(op.kind.data))
        numbers: dict[str, int | float] = {
            "fused_us": microseconds(fused),
            "separate_us": microseconds(separate),
            "link_bytes": int(ways[0].link_bytes),
        }
        for schedule in ways:
            if schedule.pull is not None and len(ways) > 1:
                seconds = schedule.seconds + rates.prologue(LaunchKind.GEMM)
                numbers[f"{schedule.pull}_us"] = microseconds(seconds)
        if not self.is_faster(launch, fused, separate, f"that {what}", numbers):
            return False
        way = f", {ways[0].pull} reads" if ways[0].pull is not None else ""
        self.accept(
            launch,
            f"{launch.sym_name.data} {what}{way}: {microseconds(fused):.1f} us instead of "
            f"{microseconds(separate):.1f} us",
            numbers,
        )
        return True

    def _alone(self, launch: LaunchOp) -> float:
        """Seconds of a product as it is."""
        if is_fused(launch):
            seconds = choose_fused(fused_problem(launch, self.rates), self.rates)[0].seconds
            return seconds + self.rates.prologue(LaunchKind.GEMM)
        return launch_cost(launch, self.rates).seconds

    def schedule(self, launch: LaunchOp) -> None:
        """Sets tile and grid of a fused product, and the costs that are put back."""
        way = launch.pull.data if launch.pull is not None else None
        if way is not None and Tax.HBM in self.unfuse:
            way = Pull.STAGED
        ways = choose_fused(fused_problem(launch, self.rates), self.rates)
        found = next((schedule for schedule in ways if schedule.pull == way), None)
        if found is not None:
            set_fused(launch, found)
        self.put_back(launch)

    def put_back(self, launch: LaunchOp) -> None:
        """Notes the costs that a fused launch pays again."""
        if self.unfuse:
            launch.properties["unfuse"] = ArrayAttr([StringAttr(tax.value) for tax in self.unfuse])
