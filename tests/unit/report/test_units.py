"""Numbers as people read them."""

import pytest

from starc.diagnostics import counted
from starc.units import count, microseconds, size, three_digits, tokens


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.1234, "0.123"), (0.9996, "1.00"), (9.996, "10.0"), (99.96, "100"),
     (1234.5, "1,234"), (-12.34, "-12.3")],
)  # fmt: skip
def test_three_digits(value: float, text: str) -> None:
    assert three_digits(value) == text


def test_units() -> None:
    assert size(5_368_709_120) == "5.37 GB"
    assert size(999) == "999 B"
    assert microseconds(None) == "-"
    assert microseconds(0.5) == "0.500 us"
    assert microseconds(1234.0) == "1.23 ms"
    assert microseconds(2_500_000.0) == "2.50 s"
    assert count(70_553_706_496) == "70.6 G"
    assert tokens(131072) == "128k"
    assert tokens(1000) == "1,000"
    assert tokens(2**30) == "1GiB"
    assert tokens(48 * 2**20) == "48MiB"
    assert tokens(2**20) == "1024k"
    assert counted(1, "die") == "1 die"
    assert counted(1234, "device") == "1,234 devices"
