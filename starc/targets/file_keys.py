"""What may stand in a machine file: sections, keys, units, and words with a choice.

The keys are those that products of starc have, with their units, so that a new number is known once
it stands in one of them; some keys end as the user chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from starc.targets.graph import NETWORKS
from starc.targets.machine_file import products, shipped, walk

KINDS: Final = ("vendor_peak", "measured", "derived", "assumed", "calibrated")
STATUSES: Final = ("validated", "documented", "driver-legal", "own")
COHERENCES: Final = ("software", "hardware")

TEXTS: Final = ("name", "title", "base", "default_mode")
TOP: Final = (*TEXTS, "max_gpus", "same", "sources", "modes", "refused")
MODE_KEYS: Final = (
    "dies_per_device",
    "memory_domains",
    "status",
    "alias",
    "source",
    "note",
    "shared_memory",
)
CHOICES: Final = {"fabric.network": NETWORKS, "caches.coherence": COHERENCES}
LINKS: Final = ("fabric.gpu_links", "fabric.carrier_links")
NUMBER_KEYS: Final = ("value", "low", "high", "unit", "kind", "source", "note", "fitted_on")
# Units of keys whose end the user chooses.
_OPEN_UNITS: Final = {
    "compute.matrix_sustained_": "fraction",
    "compute.matrix_": "FLOP/clk/CU",
    "kernel.": "ps",
    "memory.sustained_": "fraction",
}
OPEN: Final = {
    "compute": ("matrix_", "matrix_sustained_"),
    "kernel": ("prologue_", "gap_", "issue_"),
    "memory": ("sustained_",),
}
"""Keys whose end the user chooses: an element type, a kernel class, a memory mode."""


@lru_cache
def known_keys() -> Mapping[str, tuple[str, ...]]:
    """The keys of each section that products of starc have."""
    found: dict[str, dict[str, None]] = {}
    for product in products():
        for key, _ in walk(shipped(product).data):
            section, _, rest = key.rpartition(".")
            found.setdefault("transports" if section.startswith("transports.") else section, {})[
                rest
            ] = None
    for key in (*CHOICES, *LINKS):
        section, _, rest = key.partition(".")
        found.setdefault(section, {})[rest] = None
    return {section: tuple(keys) for section, keys in found.items()}


@lru_cache
def _units() -> Mapping[tuple[str, str], str]:
    """The unit of each key of each section, that of the products of starc."""
    found: dict[tuple[str, str], str] = {}
    for product in products():
        for key, entry in walk(shipped(product).data):
            section, _, rest = key.rpartition(".")
            section = "transports" if section.startswith("transports.") else section
            found[section, rest] = entry["unit"]
    return found


def unit_of(section: str, key: str) -> str:
    """The one legal unit of a key."""
    if (section, key) in _units():
        return _units()[section, key]
    whole = f"{section}.{key}"
    return next(unit for start, unit in _OPEN_UNITS.items() if whole.startswith(start))
