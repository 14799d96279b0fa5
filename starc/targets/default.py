"""What is meant where nothing is said: the machine, and how much of its memory may be used."""

from __future__ import annotations

from typing import Final

DEFAULT_TARGET: Final = "mi300x-cpx"

MEMORY_UTILIZATION: Final = 0.9
"""The part of a device's memory that weights, caches and activations may take."""
