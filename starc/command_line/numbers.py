"""Values as they are typed on the command line, with errors that name what is legal."""

from __future__ import annotations

import argparse
import re

from starc.quantities import QuantityError, parse_size


def parse_count(text: str) -> int:
    """A positive whole number; ``k`` is 1024: ``128k`` is 131072."""
    if re.fullmatch(r"\s*-\d.*", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive whole number")
    try:
        return parse_size(text)
    except QuantityError as error:
        raise argparse.ArgumentTypeError(f"{error} (examples: 16, 4096, 128k = 131072)") from error


def parse_fraction(text: str) -> float:
    """A fraction above 0 and at most 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 1.0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a fraction above 0 and at most 1")
    return value


def parse_cycles(text: str) -> float:
    """A number of cycles, 0 included."""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text.strip()):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of cycles (example: 10)")
    return float(text)


def parse_seed(text: str) -> int:
    """A whole number, 0 included."""
    if not re.fullmatch(r"\d{1,18}", text.strip()):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number (example: 7)")
    return int(text)


def parse_mesh(text: str) -> dict[str, int]:
    """``gpu=4,xcd=2`` -> axis sizes. The machine says which axes there are."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(\d{1,9})\s*", part)
        if match is None or match[1] in axes or int(match[2]) < 1:
            raise argparse.ArgumentTypeError(
                f"'{text}' is not a list of different axes with sizes (examples: gpu=4,xcd=2 "
                "of GPUs; sip=1,group=2,cube=8,pe=8 of memory cubes)"
            )
        axes[match[1]] = int(match[2])
    return axes


def parse_devices(text: str) -> tuple[int, ...]:
    """``0,8,16-18`` -> numbers of devices, in order and once each."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise argparse.ArgumentTypeError(
                f"'{text}' is not a list of devices and ranges (example: 0,8,16-23)"
            )
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def parse_setting(text: str) -> tuple[str, str]:
    """``NAME=VALUE`` for a parameter of the model; the value is an expression of the language."""
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name) or not value:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE (example: hidden=4096)")
    return name, value


def parse_constant(text: str) -> tuple[str, float | None, float | None]:
    """``KEY`` or ``KEY=LOW:HIGH`` for a number to fit and its bounds."""
    key, equals, bounds = text.partition("=")
    low, colon, high = bounds.partition(":")
    try:
        found = (float(low), float(high)) if equals else (None, None)
    except ValueError:
        found = (-1.0, -1.0)
    legal = found == (None, None) or (colon and 0 <= float(found[0] or 0) < float(found[1] or 0))
    if not key.strip() or not legal:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not KEY or KEY=LOW:HIGH with two numbers, the first at least 0 and below "
            "the second (example: memory.sustained=0.8:0.98)"
        )
    return key.strip(), found[0], found[1]


def parse_override(text: str) -> tuple[str, float]:
    """``KEY=VALUE`` for a number of the machine."""
    key, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not equals or not key.strip() or not 0.0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not KEY=VALUE with a number, at least 0 "
            "(example: fabric.usr_rate=1.0e12; 'starc targets show' lists the keys)"
        )
    return key.strip(), number
