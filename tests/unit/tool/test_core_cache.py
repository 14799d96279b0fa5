"""A run that has to make the simulator's machine code first says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from starc.command_line.core_cache import with_notice
from starc.simulator.core.compiled import cache_directory


def test_a_cold_cache_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    cache_directory.cache_clear()
    try:
        assert with_notice("simulate").startswith("simulate (compiling the simulator, once")
        code = Path(cache_directory()) / "simulator_1"
        code.mkdir()
        (code / "event_core.run_calendar-178.py311.1.nbc").touch()
        assert with_notice("simulate") == "simulate"
    finally:
        cache_directory.cache_clear()
