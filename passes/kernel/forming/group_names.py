"""Names of launches: after their layer and their weights, or their operations."""

from __future__ import annotations

from collections.abc import Sequence

from starc.dialects import nn
from starc.dialects.kernel_kinds import LaunchKind
from starc.passes.kernel.forming.grouping_rules import KernelGroup
from starc.passes.kernel.forming.kernel_groups import KernelGroups


def name_groups(groups: KernelGroups, layer: str) -> None:
    """Names every group, no two alike."""
    taken: dict[str, int] = {}
    for kernel in groups.kernels:
        name = f"{layer}.{_stem(kernel, _computed_by(groups, kernel), layer)}"
        taken[name] = taken.get(name, 0) + 1
        kernel.name = name if taken[name] == 1 else f"{name}_{taken[name]}"


def _computed_by(groups: KernelGroups, kernel: KernelGroup) -> list[KernelGroup]:
    """The groups that make what one reads; where they only exchange it, those that compute it."""
    found = groups.producers(kernel.ops[0])
    if kernel.kind is not LaunchKind.COLLECTIVE:
        return found
    while found and found[0].kind is LaunchKind.COLLECTIVE:
        found = groups.producers(found[0].ops[0])
    return found


def _stem(kernel: KernelGroup, producers: Sequence[KernelGroup], layer: str) -> str:
    weights = [
        operand.owner.parameter.string_value().removeprefix(f"{layer}.")
        for op in kernel.ops
        for operand in op.operands
        if isinstance(operand.owner, nn.ReadOp)
    ]
    if kernel.kind in (LaunchKind.GEMM, LaunchKind.NORM) and weights:
        return "_".join(weights)
    stem = "_".join(dict.fromkeys(op.name.split(".")[-1] for op in kernel.ops))
    if kernel.kind is LaunchKind.COLLECTIVE and producers and producers[0].name:
        return f"{producers[0].name.removeprefix(f'{layer}.')}_{stem}"
    return stem
