"""``verify-schedule`` on the packed form."""

from __future__ import annotations

from starc.backend.schedule import schedule_problems
from tests.unit.backend.builders import gemm, ring_all_reduce

MACHINE = {
    "cus_per_die": 2,
    "dies_per_device": 1,
    "max_waves_per_cu": 8,
    "scratch_bytes_per_cu": 65536,
    "registers_bytes_per_cu": 524288,
}


def messages(**options: object) -> list[str]:
    return [found.message for found in schedule_problems(ring_all_reduce(**options))]  # type: ignore[arg-type]


def test_ring_and_kernels_without_waits():
    assert messages() == []
    assert schedule_problems(gemm()) == []


def test_removed_signal():
    """Each device leaves out its signal for the last reduction, and then waits for one."""
    (message,) = messages(drop_last_signal=True)
    assert message.startswith("deadlock: all_reduce (device 0, workgroup 0) waits for @arrived[0]")


def test_waits_for_more_than_is_sent():
    (message,) = messages(extra_wait=1)
    assert "which closes the cycle" in message


def test_grid_must_be_resident():
    # Two compute units of 8 waves hold two workgroups of 4 waves each.
    assert messages(workgroups=4, target=MACHINE) == []
    assert messages(workgroups=5, target=MACHINE) == [
        "the workgroups of all_reduce wait for signals, so all 5 must be resident; a device holds 4"
    ]
