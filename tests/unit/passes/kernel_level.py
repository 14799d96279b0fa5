"""Models compiled to the kernel level, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from starc.dialects.target import set_target
from starc.frontend.loading import load_model
from starc.passes.base import Remark, RemarkSink
from starc.passes.manager import instantiate
from starc.passes.selection import plan_passes
from starc.targets.loader import load_target
from starc.targets.target import Target

EXAMPLES = Path(__file__).parents[3] / "examples"


@dataclass(frozen=True)
class KernelLevel:
    """A module after ``plan-memory``, or after an earlier pass."""

    module: ModuleOp
    target: Target
    remarks: list[tuple[str, Remark]]


def compile_to_kernels(
    model: str,
    target_name: str = "mi300x-cpx",
    *,
    gpus: int | None = None,
    phase: str | None = None,
    batch: int | None = None,
    context: int | None = None,
    last: str = "plan-memory",
) -> KernelLevel:
    """Compiles an example up to and including the pass ``last``."""
    target = load_target(target_name, gpus)
    module = load_model(EXAMPLES / model, phase=phase, batch=batch, context=context).module
    set_target(module, target)
    sink = RemarkSink()
    for spec in plan_passes("naive", compile_to="kernel"):
        sink.pass_name = spec.name
        instantiate(spec).run(module, target, sink)
        if spec.name == last:
            break
    return KernelLevel(module, target, sink.remarks)
