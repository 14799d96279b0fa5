"""Whether the simulator's machine code is on disk yet: without it a first run takes long."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_ENTRY: Final = "event_core.run_calendar-*.nbc"


def with_notice(step: str) -> str:
    """The name of a step that simulates; where machine code has to be made first, it says so."""
    from starc.simulator.core.compiled import cache_directory

    if any(Path(cache_directory()).rglob(_ENTRY)):
        return step
    return f"{step} (compiling the simulator, once: a minute or more)"
