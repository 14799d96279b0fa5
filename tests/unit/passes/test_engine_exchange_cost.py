"""Estimates of collectives on a machine of memory cubes against the simulator."""

from __future__ import annotations

import pytest

from starc.core.collectives.cost import choices
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.passes.collective_runs import Exchange, compiled, seconds, simulated

TOLERANCE = 0.3
CLOSE = 1.15
SIZES = (512, 1 << 14, 1 << 17)
AXES = (("pe", 4), ("pe", 8), ("cube", 4), ("sip", 2))
WAYS = {
    "all_reduce": ("ring", "one_shot", "two_shot"),
    "reduce_scatter": ("ring", "direct", "one_shot"),
    "all_gather": ("ring", "direct"),
}


def machine(axis: str, size: int) -> Target:
    """A machine with ``size`` places along an axis, and two PEs beside them."""
    mesh = {"sip": 1, "group": 1, "cube": 1, "pe": 1 if axis == "pe" else 2} | {axis: size}
    return load_target("ahbm", mesh=mesh)


@pytest.mark.parametrize(("axis", "size"), AXES)
@pytest.mark.parametrize("operation", WAYS)
def test_estimates_hold_and_choose_well(operation: str, axis: str, size: int) -> None:
    target = machine(axis, size)
    mesh, axes = Mesh.from_rows("node", target.mesh), (AxisRef(axis),)
    for payload in SIZES:
        found = choices(
            operation,
            payload,
            mesh,
            axes,
            target,
            algorithms=WAYS[operation],
            transports=["bulk"],
        )
        times: list[float] = []
        for choice in found:
            options = {"algorithm": choice.algorithm, "transport": choice.transport}
            module, _ = compiled(Exchange(operation, axes, payload), target, options)
            times.append(seconds(simulated(module, target)))
            ratio = choice.time.seconds / times[-1]
            assert abs(ratio - 1) <= TOLERANCE, (payload, choice.algorithm, ratio)
        assert times[0] <= CLOSE * min(times), (payload, found[0].algorithm)


def test_commands_cost_what_the_cpu_takes_for_them() -> None:
    """Dearer commands make all exchanges longer, those with many targets most."""
    target = machine("pe", 8)
    dear = load_target(
        "ahbm",
        mesh={"sip": 1, "group": 1, "cube": 1, "pe": 8},
        overrides={"issue.send": 100.0, "issue.receive": 100.0},
    )
    mesh, axes = Mesh.from_rows("node", target.mesh), (AxisRef("pe"),)

    def time(of: Target, algorithm: str) -> float:
        (way,) = choices(
            "all_gather", 512, mesh, axes, of, algorithms=[algorithm], transports=["bulk"]
        )
        return way.time.seconds

    added = {name: time(dear, name) - time(target, name) for name in WAYS["all_gather"]}
    assert all(seconds > 0 for seconds in added.values())
    # A ring takes one receive a step, a direct exchange a send and a receive for each of 7 peers.
    assert added["direct"] > 7 * 2 * 90e-9
