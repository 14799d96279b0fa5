"""Arithmetic of tiles in closed form."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from starc.core.tiling import ceil_div, divisors, floor_sum, shares


@given(st.integers(1, 5000))
def test_divisors_are_all_divisors(number: int) -> None:
    assert list(divisors(number)) == [d for d in range(1, number + 1) if number % d == 0]


def test_divisors_of_a_very_large_number_are_found_at_once() -> None:
    assert divisors(2**61)[-1] == 2**61
    assert all(2**61 % d == 0 for d in divisors(2**61))


@given(st.integers(1, 400), st.data())
def test_shares_are_every_number_of_shares_once(steps: int, data: st.DataObject) -> None:
    most = data.draw(st.integers(1, steps))
    first = ceil_div(steps, most)
    counts = {ceil_div(steps, share) for share in range(first, steps + 1)}
    assert [count for _, count in shares(steps, most)] == sorted(counts, reverse=True)
    assert all(ceil_div(steps, share) == count for share, count in shares(steps, most))


@given(st.integers(0, 60), st.integers(0, 300), st.integers(0, 300), st.integers(1, 200))
def test_floor_sum(count: int, step: int, offset: int, divisor: int) -> None:
    expected = sum((step * i + offset) // divisor for i in range(count))
    assert floor_sum(count, step, offset, divisor) == expected
