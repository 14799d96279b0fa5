"""Numbers as people read them: three significant digits and a unit."""

from __future__ import annotations


def three_digits(value: float) -> str:
    """``1234.5`` -> ``1,234``; ``12.34`` -> ``12.3``; ``0.1234`` -> ``0.123``."""
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:,.0f}"
    if magnitude >= 9.995:
        return f"{value:.1f}"
    if magnitude >= 0.9995:
        return f"{value:.2f}"
    return f"{value:.3f}" if magnitude else "0"


def scaled(value: float, unit: str) -> str:
    """A quantity with a decimal prefix: ``5.37e9, "B"`` -> ``5.37 GB``."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * factor:
            return f"{three_digits(value / factor)} {prefix}{unit}"
    return f"{three_digits(value)} {unit}"


def size(value: float) -> str:
    """Bytes with a decimal prefix (GB is 10^9 bytes, as vendors and the JSON count)."""
    return scaled(value, "B")


def microseconds(value: float | None) -> str:
    """A time given in microseconds, in the unit that suits it."""
    if value is None:
        return "-"
    if abs(value) >= 999_500:
        return f"{three_digits(value / 1e6)} s"
    if abs(value) >= 999.5:
        return f"{three_digits(value / 1e3)} ms"
    return f"{three_digits(value)} us"


def count(value: float) -> str:
    """A large count: ``70.6e9`` -> ``70.6 G``."""
    return scaled(value, "").strip()


def tokens(value: int) -> str:
    """A token count, with ``k`` = 1024 as on the command line where it is exact."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB")):
        if value >= 16 * 2**20 and value % factor == 0:
            return f"{value // factor}{unit}"
    return f"{value // 1024}k" if value >= 1024 and value % 1024 == 0 else f"{value:,}"
