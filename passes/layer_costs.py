"""What a layer costs as the launches that later passes make of it, for passes that choose its form.

A choice between two forms of a layer is only as good as the knowledge of what becomes of them: what
a product can take into its launch depends on what stands around it. So each form is lowered to
launches, by the passes themselves, on a copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from starc.analysis.cost import launch_cost
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.diagnostics import InputError
from starc.dialects.kernel import LaunchOp
from starc.dialects.nn import StackOp
from starc.passes.base import RemarkSink
from starc.passes.manager import instantiate
from starc.passes.pipeline import DEFAULT_STRATEGY, STRATEGIES, load_pass
from starc.passes.selection import PassSpec
from starc.targets.target import Target

FUSION = "fuse-compute-collectives"


@dataclass(frozen=True)
class LaunchEstimate:
    """A launch of a layer and its estimated seconds, with the gap in front of it."""

    name: str
    seconds: float


Launches: TypeAlias = tuple[LaunchEstimate, ...]


def passes_to_launches(
    after: str, *, fused: bool = True, uneven: bool = False
) -> tuple[PassSpec, ...]:
    """The passes of the default strategy behind one of them that make launches, in order; without
    the one that fuses products and collectives unless ``fused``, and with shards of different size
    where ``uneven``."""
    passes = STRATEGIES[DEFAULT_STRATEGY].passes
    first = next(number for number, (name, _) in enumerate(passes) if name == after) + 1
    last = max(number for number, (name, _) in enumerate(passes) if name == "pipeline-collectives")
    found: list[PassSpec] = []
    for name, options in passes[first : last + 1]:
        takes = uneven and any(field.name == "uneven" for field in fields(load_pass(name)))
        if fused or name != FUSION:
            found.append(PassSpec(name, {**options, "uneven": True} if takes else options))
    return tuple(found)


def launch_estimates(
    module: ModuleOp, layer: str, target: Target, specs: Sequence[PassSpec]
) -> Launches | None:
    """The launches that passes make of one layer, in order. ``module`` is a copy that is used up:
    its other layers are removed. ``None`` where the passes do not take this layer."""
    for op in list(module.body.ops):
        if isinstance(op, StackOp) or (isinstance(op, FuncOp) and op.sym_name.data != layer):
            op.detach()
            op.erase()
    sink = RemarkSink()
    try:
        for spec in specs:
            sink.pass_name = spec.name
            instantiate(spec).run(module, target, sink)
        return _estimates(module, DeviceRates.of(target), sink)
    except (InputError, ValueError):
        # What is not supported, or a product of which no tile fits the device.
        return None


def _estimates(module: ModuleOp, rates: DeviceRates, sink: RemarkSink) -> Launches:
    """The launches of a module; of fused ones what the pass that fused them found, for it knows the
    work that they took in."""
    fused = {
        remark.launch: float(remark.numbers["fused_us"]) * 1e-6
        for _, remark in sink.remarks
        if remark.launch is not None and "fused_us" in remark.numbers and remark.id == "fused"
    }
    found: list[LaunchEstimate] = []
    for op in module.walk():
        if isinstance(op, LaunchOp):
            name = op.sym_name.data
            seconds = fused[name] if name in fused else launch_cost(op, rates).seconds
            found.append(LaunchEstimate(name, seconds + rates.gap_s))
    return tuple(found)


def different_seconds(first: Launches, second: Launches) -> tuple[float, float]:
    """The seconds of the launches of each list that the other one has not."""
    one, two = Counter(first), Counter(second)
    return (
        sum(launch.seconds * count for launch, count in (one - two).items()),
        sum(launch.seconds * count for launch, count in (two - one).items()),
    )
