"""What is fixed of the schedules of launches, by options or by the launches themselves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from starc.core.collectives.reduction_trees import ACROSS, INSIDE
from starc.core.kernel_schedules.attention_problem import AttentionOptions
from starc.core.kernel_schedules.gemm_problem import GemmOptions
from starc.core.kernel_schedules.ring_prefill import SLOTS
from starc.core.kernel_schedules.row_schedules import RowOptions
from starc.core.kernel_schedules.share_merging import Combine
from starc.core.kernel_schedules.tile_softmax import OPERATIONS
from starc.dialects.kernel import LaunchOp


@dataclass(frozen=True)
class KernelOptions:
    """What is fixed of the schedules of launches, by kind."""

    gemm: GemmOptions = field(default_factory=GemmOptions)
    attention: AttentionOptions = field(default_factory=AttentionOptions)
    rows: RowOptions = field(default_factory=RowOptions)
    reduce_pe: str = INSIDE
    reduce_cube: str = ACROSS
    ring_slots: int = SLOTS
    softmax: str = OPERATIONS

    def with_attributes(self, launch: LaunchOp) -> KernelOptions:
        """The options with what the launch itself fixes, which counts more."""

        def given(names: tuple[str, ...]) -> dict[str, int]:
            return {name: launch.integer(name) for name in names if name in launch.properties}

        combine: dict[str, Combine] = {}
        if launch.combine is not None:
            combine["combine"] = Combine(launch.combine.data)
        products = ("split", "stages", "waves")
        gemm = given((*products, "streams", "whole_rounds", "multicast"))
        return replace(
            self,
            gemm=replace(self.gemm, **gemm, **combine),
            attention=replace(self.attention, **given(products), **combine),
            rows=replace(self.rows, **given(("waves",))),
            softmax=launch.softmax.data if launch.softmax is not None else self.softmax,
        )


NO_OPTIONS: Final = KernelOptions()
