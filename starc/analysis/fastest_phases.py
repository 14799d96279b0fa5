"""Which phases of a collective over several levels are estimated to be fastest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starc.core.collectives.cost import choices
from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.phases import Axes, Encodings, Exchange, Form, Phase, forms, phases

if TYPE_CHECKING:
    from starc.targets.target import Target


@dataclass(frozen=True)
class Alternative:
    """A form of an exchange, its phases (the exchange itself where it stays one) and their
    estimated seconds, gaps between launches included."""

    form: Form
    phases: tuple[Phase, ...]
    seconds: float


def alternatives(
    exchange: Exchange,
    widths: Sequence[int],
    levels: Sequence[Axes],
    target: Target,
    *,
    uneven: bool = False,
) -> list[Alternative]:
    """The forms of an exchange, the fastest first; of equal ones that of fewer phases, then of
    finer levels. ``widths`` are bytes of an element of each value."""
    found: list[tuple[tuple[float, int, int], Alternative]] = []
    for number, form in forms(exchange.kind, exchange.mesh, levels):
        made = phases(exchange, form, uneven=uneven) if len(form.levels) > 1 else (exchange.whole,)
        if made:
            seconds = phases_seconds(exchange, made, widths, target)
            key = (seconds, len(form.levels), number)
            found.append((key, Alternative(form, made, seconds)))
    return [each for _, each in sorted(found, key=lambda item: item[0])]


def phases_seconds(
    exchange: Exchange, made: Sequence[Phase], widths: Sequence[int], target: Target
) -> float:
    """The estimated time of phases one after the other. A gather whose results are sliced again
    will cancel, and costs nothing."""
    total = 0.0
    held = exchange.before
    for phase in made:
        values = phase.results if phase.kind.payload_is_result else held
        payload = _payload_bytes(values, exchange, widths)
        held = phase.results
        if phase is made[-1] and len(made) > 1 and _cancels(exchange, phase):
            continue
        if phase.kind.moves_data:
            found = choices(
                phase.kind, payload, exchange.mesh, phase.axes, target, operands=len(widths)
            )
            total += found[0].time.seconds + target.kernel_gap_ps * 1e-12
        else:
            total += (target.kernel_gap_ps + target.prologue_ps.get("elementwise", 0)) * 1e-12
            total += (payload / target.hbm_rate) + target.memory_latency_ps * 1e-12
    return total


def _cancels(exchange: Exchange, phase: Phase) -> bool:
    return (
        phase.kind is CollectiveKind.ALL_GATHER
        and phase.dim is not None
        and exchange.is_only_cut(phase.dim, phase.axes)
    )


def _payload_bytes(values: Encodings, exchange: Exchange, widths: Sequence[int]) -> int:
    return sum(
        math.prod(encoding.local_shape(shape)) * width
        for encoding, shape, width in zip(values, exchange.shapes, widths, strict=True)
    )
