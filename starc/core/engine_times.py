"""How long the engines of a compute unit take for an instruction."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from starc.targets.target import Target


def matrix_ps(target: Target, dtype: str, m: int, n: int, k: int) -> int:
    """Picoseconds that a CU's matrix engine takes for m x n x k, padded to its instructions."""
    pad = target.matrix_rows
    flops = 2
    for extent in (m, n, k):
        flops *= -(-extent // pad) * pad
    per_clock = target.matrix_flops_per_clock.get(dtype, target.matrix_flops_per_clock["f32"])
    fraction = target.matrix_sustained_by_type.get(dtype, target.matrix_sustained)
    rate = Fraction(per_clock) * Fraction(str(fraction)) / target.cycle_ps
    return ceil(flops / rate)


def vector_ps(target: Target, plain: int, special: int = 0) -> int:
    """Picoseconds that a CU's vector units take for so many plain lane operations and so many
    exponentials, reciprocals and roots, which may have a unit beside the others."""
    clocks = Fraction(plain, target.vector_ops_per_clock)
    slow = Fraction(special) / Fraction(str(target.special_lanes))
    return ceil((max(clocks, slow) if target.special_apart else clocks + slow) * target.cycle_ps)
