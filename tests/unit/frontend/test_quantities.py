"""Numbers and their units."""

from __future__ import annotations

import pytest

from starc.frontend import QuantityError, parse_size
from starc.quantities import combine, parse_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("128256", 128256),
        ("128_256", 128256),
        ("16k", 16384),
        ("2KiB", 2048),
        ("24MiB", 24 * 2**20),
        ("24GiB", 24 * 2**30),
        ("1.5k", 1536),
        ("1e-5", 1e-5),
        ("0.5", 0.5),
        ("5e5", 5e5),
    ],
)
def test_a_number(text: str, value: float) -> None:
    number = parse_number(text)
    assert number == value
    assert isinstance(number, int) == isinstance(value, int)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("16m", "unknown unit 'm': a number may end in k, KiB, MiB, GiB"),
        ("16K", "unknown unit 'K': a number may end in k, KiB, MiB, GiB"),
        ("k", "'k' is not a number"),
        ("-1", "'-1' is not a number"),
        ("9223372036854775808", "the number does not fit in 63 bits"),
        ("8589934592GiB", "the number does not fit in 63 bits"),
        ("1e400", "the number is too large"),
        ("1" * 41, "a number has at most 40 characters"),
    ],
)
def test_a_text_that_is_no_number(text: str, message: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_number(text)
    assert str(caught.value) == message


def test_the_largest_number_has_63_bits() -> None:
    assert parse_number("9223372036854775807") == 2**63 - 1


def test_sizes_of_command_line_options_are_positive_and_whole() -> None:
    assert parse_size("128k") == 131072
    assert parse_size(" 7 ") == 7
    for text in ("0", "1.5", "-3", "", "1e3"):
        with pytest.raises(QuantityError):
            parse_size(text)


def test_whole_numbers_stay_whole() -> None:
    assert combine("/", 64, 4) == 16
    assert isinstance(combine("/", 64, 4), int)
    assert combine("/", 1.0, 4) == 0.25
    assert combine("-", 3, 5) == -2
    with pytest.raises(QuantityError, match="7 is not a multiple of 2"):
        combine("/", 7, 2)
