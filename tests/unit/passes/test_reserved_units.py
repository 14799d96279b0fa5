"""Transports whose workgroups have compute units for themselves."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import pytest

from starc.core.sharding.mesh import AxisRef
from starc.simulator.run import simulate
from starc.targets.target import Target
from tests.unit.passes.exchanges import Exchange, Tensor

AXES = (AxisRef("xcd"),)
SHAPE = (4, 8, 1024)


class Reserved(Exchange):
    @cached_property
    def target(self) -> Target:
        target = Exchange(self.mesh_shape, self.steps, self.values).target
        own = {name: replace(one, reserves=1) for name, one in target.transports.items()}
        return replace(target, transports=own)


@pytest.mark.parametrize("algorithm", ["ring", "two_shot"])
def test_workgroups_of_a_transport_fill_their_units(algorithm: str) -> None:
    steps = (("all_reduce", "reduction = sum", AXES, algorithm),)
    values = ((Tensor(SHAPE, partial=("sum", AXES)),), (Tensor(SHAPE),))
    shared, reserved = (kind((1, 4), steps, values) for kind in (Exchange, Reserved))
    assert {t.waves for t in shared.program.templates} == {4}
    assert {t.waves for t in reserved.program.templates} == {reserved.target.max_waves_per_cu}
    # Alone on the device it makes little difference.
    times = [simulate(one.program).time_ps for one in (shared, reserved)]
    assert times[1] == pytest.approx(times[0], rel=0.15)
