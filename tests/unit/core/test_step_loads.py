"""Loads of steps: groups of one GPU stand for those of all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from starc.core.collectives import step_loads
from starc.core.collectives.step_loads import steps_of
from starc.core.collectives.table import legal_algorithms
from starc.core.sharding.mesh import Mesh
from starc.targets.loader import load_target


def all_groups(groups: Sequence[Sequence[int]], per_gpu: int) -> Sequence[Sequence[int]]:
    return groups


@pytest.mark.parametrize("name", ["mi300x-cpx", "ahbm"])
@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "all_to_all"])
def test_groups_of_one_gpu_load_it_as_all_do(
    name: str, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = load_target(name, gpus=2)
    mesh = Mesh.from_rows("node", target.mesh)
    _, *inside = mesh.all_axes()
    axes = tuple(inside)[-1:]
    for algorithm in legal_algorithms(operation, mesh, axes, target):
        few = steps_of(operation, algorithm, mesh, axes, target)
        with monkeypatch.context() as patch:
            patch.setattr(step_loads, "_unlike", all_groups)
            step_loads._steps_of.cache_clear()  # pyright: ignore[reportPrivateUsage]
            assert steps_of(operation, algorithm, mesh, axes, target) == few
        step_loads._steps_of.cache_clear()  # pyright: ignore[reportPrivateUsage]


def test_groups_that_leave_their_gpu_or_are_not_alike_all_count() -> None:
    unlike = step_loads._unlike  # pyright: ignore[reportPrivateUsage]
    across = [(0, 2), (1, 3)]
    assert unlike(across, 2) is across
    different = [(0, 1), (3, 2)]
    assert unlike(different, 2) is different
    assert unlike([(0, 1), (2, 3)], 2) == [(0, 1)]
