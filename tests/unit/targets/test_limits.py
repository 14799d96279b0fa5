"""Limits of the numbers of a machine: what a number may be is a machine, everything else a
message."""

from __future__ import annotations

import pytest

from starc.core.streams.engine_times import matrix_ps, scratch_ps, vector_ps
from starc.diagnostics import InputError
from starc.simulator.machine.configuration import configuration
from starc.simulator.machine.services import service_table
from starc.simulator.results.governor import PowerModel
from starc.targets.limits import is_counted, is_flag, limits
from starc.targets.loader import load_target
from starc.targets.machine_file import Number, products, shipped
from starc.targets.names import numbers
from starc.targets.target import Target

KEYS = [(product, number) for product in products() for number in numbers(product)]


def loaded(product: str, key: str, value: float) -> Target | None:
    """The machine with another number, or None where there is a message that names a number."""
    try:
        return load_target(product, overrides={key: value})
    except InputError as error:
        named = [item.key or item.message for item in error.diagnostics]
    assert named
    assert all("." in name for name in named), named
    return None


def derive(target: Target) -> None:
    """What divides by numbers of a machine, and what does not hold larger ones."""
    assert Target.from_dict(target.to_dict()) == target
    table = service_table(target)
    assert (table >= 0).all()
    configuration(target, slots=1, tile_slots=1, counters=1, launches=1, skew=True, page_walk=True)
    for dtype in ("bf16", "f32"):
        assert matrix_ps(target, dtype, 16, 16, 16) > 0
        assert target.matrix_rate(dtype) > 0
    assert vector_ps(target, 64, 64) > 0
    assert scratch_ps(target, 4, (16, 16, 16), (2, 2)) >= 0
    for transport in target.transports.values():
        assert transport.shared_by(1 << 20, 8) >= 1
        assert transport.window_bytes // transport.workgroups >= 0
        assert transport.payload_factor >= 1
    assert target.window_bytes_per_cu // target.max_workgroups_per_cu >= 0
    assert min(target.hbm_rate, target.hbm_peak, *target.link_rate.values()) > 0
    assert target.device_memory_bytes > 0
    if (model := PowerModel.of(target)) is not None:
        assert model.voltage(1000.0) == model.voltage(1000.0)


@pytest.mark.parametrize(
    ("product", "number"), KEYS, ids=[f"{product}-{number.key}" for product, number in KEYS]
)
def test_any_value_is_a_machine_or_a_message(product: str, number: Number) -> None:
    key, unit = number.key, number.unit
    least, most = limits(key, unit)
    assert loaded(product, key, -1) is None
    for nonsense in (float("inf"), float("nan"), 1e30, most * 2 + 1):
        assert loaded(product, key, nonsense) is None
    if least > 0:
        assert loaded(product, key, 0) is None
        assert loaded(product, key, least / 2) is None
    if is_counted(key, unit):
        assert loaded(product, key, 1.5) is None
    if is_flag(key, unit):
        assert loaded(product, key, 2) is None
    for value in (0, 0.01, 0.5, least, 1, 1.5, 2, 3, most):
        if (target := loaded(product, key, value)) is not None:
            derive(target)


def test_own_numbers_lie_within_their_limits() -> None:
    for product, number in KEYS:
        least, most = limits(number.key, number.unit)
        for value in (number.low, number.value, number.high):
            assert value is None or least <= value <= most, (product, number.key)
    assert {product for product, _ in KEYS} == set(products())
    assert all(shipped(product).data["sources"] for product in products())


@pytest.mark.parametrize(
    ("product", "key", "value", "message"),
    [
        ("ahbm", "compute.vector_lanes", 0, "must be at least 1, not 0"),
        ("mi300x", "compute.vector_lanes", 0.01, "is a whole number of lane-op/clk/CU, not 0.01"),
        ("ahbm", "compute.special_lanes", 0, "must be at least 1, not 0"),
        ("ahbm", "dispatch.window_bytes_per_cu", 0, "must be at least 128, not 0"),
        ("ahbm", "transports.bulk.window", 0, "must be at least 128, not 0"),
        ("ahbm", "transports.bulk.share", 0, "must be at least 1, not 0"),
        ("mi300x", "transports.ll.workgroups", 0, "must be at least 1, not 0"),
        ("mi300x", "transports.ll.payload_factor", 0, "must be at least 1, not 0"),
        ("ahbm", "structure.max_workgroups_per_cu", 0, "must be at least 1, not 0"),
        ("ahbm", "compute.stateful_composites", 2, "is 2 / legal: 0, 1"),
        ("h200", "compute.special_apart", 2, "is 2 / legal: 0, 1"),
        ("ahbm", "issue.load", 1.5, "is a whole number of clk, not 1.5"),
        ("ahbm", "clock.core_mhz", 1e12, "at most 100,000"),
        ("ahbm", "memory.access_bytes", 0, "must be at least 1, not 0"),
        ("mi300x", "memory.write_batch", 0, "must be at least 64, not 0"),
        ("mi300x", "memory.sustained_nps1", 1e-9, "must be at least 0.001"),
        ("mi300x", "memory.device_bytes", 1e12, "less than 549,755,813,888 of a GPU"),
        ("mi300x", "latency.port_to_cu", 0, "a line of 128 B alone takes"),
        ("mi300x", "latency.hop", float("inf"), "is a number, not inf"),
    ],
)
def test_messages(product: str, key: str, value: float, message: str) -> None:
    with pytest.raises(InputError) as error:
        load_target(product, overrides={key: value})
    shown = "\n".join(f"{d.key} {d.message} / {d.hint}" for d in error.value.diagnostics)
    assert message in shown
