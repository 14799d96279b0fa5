"""How long the engines of a compute unit take for an instruction."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starc.targets.target import Target


def matrix_ps(target: Target, dtype: str, m: int, n: int, k: int) -> int:
    """Picoseconds that a CU's matrix engine takes for m x n x k, padded to its instructions or to
    its tile."""
    pads = target.matrix_tile or (target.matrix_rows,) * 3
    flops = 2
    for extent, pad in zip((m, n, k), pads, strict=True):
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


@lru_cache(maxsize=4096)
def scratch_bytes(
    unit_rows: int,
    direct_rows: int,
    waves: int,
    extents: tuple[int, int, int],
    operands: tuple[int, int],
) -> int:
    """Bytes that pass scratch memory for a matrix operation [m, n, k]. ``operands`` are bytes of an
    element of a and of b, 0 for one that is in registers: each was stored there once, and is read
    as often as there are waves with other parts of the other one. Waves share the result out, in
    units of ``unit_rows``, so that all have a part and this is least; where a product of
    ``direct_rows`` reads scratch memory itself, all of b is read for each of its rows together."""
    m, n, k = extents
    tall, wide = -(-m // unit_rows), -(-n // unit_rows)
    a, b = m * k * operands[0], n * k * operands[1]
    if direct_rows:
        return 2 * a + b + b * -(-m // direct_rows)
    ways = [(min(d, tall), min(waves // d, wide)) for d in range(1, waves + 1) if waves % d == 0]
    most = max(down * across for down, across in ways)  # as many waves as possible work
    return a + b + min(a * across + b * down for down, across in ways if down * across == most)


def scratch_ps(
    target: Target, waves: int, extents: tuple[int, int, int], operands: tuple[int, int]
) -> int:
    """Picoseconds of scratch memory that a matrix operation takes; see ``scratch_bytes``. Bank
    conflicts are not counted."""
    if target.scratch_bytes_per_clock == 0:
        return 0
    unit, direct = target.matrix_rows, target.matrix_direct_rows
    moved = scratch_bytes(unit, direct, waves, extents, operands)
    rate = target.scratch_bytes_per_clock * Fraction(str(target.scratch_sustained))
    return ceil(moved / rate * target.cycle_ps)
