"""How many workgroups a device holds at once."""

from __future__ import annotations


def resident_workgroups(
    *,
    compute_units: int,
    max_waves: int,
    scratch_bytes: int,
    register_bytes: int,
    kernel_waves: int,
    kernel_scratch_bytes: int,
    kernel_register_bytes: int,
) -> int:
    """Workgroups of a kernel that a device holds at once: the first four arguments are what it has
    (waves, scratch and registers of one compute unit), the rest what one workgroup takes."""
    per_unit = max_waves // max(kernel_waves, 1)
    if kernel_scratch_bytes:
        per_unit = min(per_unit, scratch_bytes // kernel_scratch_bytes)
    if kernel_register_bytes:
        per_unit = min(per_unit, register_bytes // kernel_register_bytes)
    return per_unit * compute_units
