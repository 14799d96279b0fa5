"""What the lines and keys of a report mean. ``starc explain`` and the glossary page show it."""

from __future__ import annotations

import re
from typing import Final

from starc.report.glossary_aliases import ALIASES
from starc.report.glossary_cubes import CUBE_TERMS
from starc.report.glossary_ir import IR_TERMS
from starc.report.glossary_machines import MACHINE_TERMS
from starc.report.glossary_measures import MEASURE_TERMS
from starc.report.glossary_plans import PLAN_TERMS

GLOSSARY: Final = {**IR_TERMS, **CUBE_TERMS, **MEASURE_TERMS, **PLAN_TERMS, **MACHINE_TERMS}
"""Every term, by key."""


def entry_for(words: str) -> str | None:
    """The key that explains a line, a column or a key: ``bound, compulsory`` is explained by
    ``algorithm_bound``. None if nothing does."""
    key = re.sub(r"[^a-z0-9]+", "_", words.rsplit(".", 1)[-1].lower()).strip("_")
    units = ("_us", "_ms", "_bytes", "_gbps", "_s")
    bare = next((key.removesuffix(unit) for unit in units if key.endswith(unit)), key)
    for name in (key, bare, *(bare + unit for unit in units)):
        if name in GLOSSARY:
            return name
        if name in ALIASES:
            return ALIASES[name]
    return None
