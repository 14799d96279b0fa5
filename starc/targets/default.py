"""The machine that is meant where none is named."""

from __future__ import annotations

from typing import Final

DEFAULT_TARGET: Final = "mi300x-cpx"
