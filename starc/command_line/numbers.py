"""Values as they are typed on the command line, with errors that name what is legal."""

from __future__ import annotations

import argparse
import re

LARGEST_COUNT = 1 << 40
"""Counts above this are refused: no tensor with such an extent can be laid out in 63 bits."""

_COUNT = re.compile(r"(\d+)(k|Ki|K|M|Mi)?")
_FACTORS = {None: 1, "k": 1 << 10, "K": 1 << 10, "Ki": 1 << 10, "M": 1 << 20, "Mi": 1 << 20}


def parse_count(text: str) -> int:
    """A positive count; ``k`` is 1024 and ``M`` 1024 k: ``128k`` is 131072."""
    match = _COUNT.fullmatch(text.strip().replace("_", ""))
    if match is None:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a count (examples: 16, 4096, 128k = 131072)"
        )
    value = int(match[1]) * _FACTORS[match[2]]
    if not 1 <= value <= LARGEST_COUNT:
        raise argparse.ArgumentTypeError(f"'{text}' is not between 1 and {LARGEST_COUNT}")
    return value


def parse_fraction(text: str) -> float:
    """A fraction above 0 and at most 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 1.0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a fraction above 0 and at most 1")
    return value


def parse_mesh(text: str) -> dict[str, int]:
    """``gpu=4,xcd=2`` -> axis sizes, outer to inner."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(\d+)\s*", part)
        if match is None or match[1] in axes or int(match[2]) < 1:
            raise argparse.ArgumentTypeError(
                f"'{text}' is not a list of different axes with sizes (example: gpu=4,xcd=2)"
            )
        axes[match[1]] = int(match[2])
    return axes


def parse_setting(text: str) -> tuple[str, int | float | str]:
    """``NAME=VALUE`` for a parameter of the model."""
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name) or not value:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE (example: hidden=4096)")
    if _COUNT.fullmatch(value):
        return name, parse_count(value)
    try:
        return name, float(value)
    except ValueError:
        return name, value
