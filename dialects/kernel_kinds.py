"""Names that attributes of launches take."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class LaunchKind(StrEnum):
    """What a launch computes (``kind`` of ``kernel.launch``)."""

    GEMM = "gemm"
    ATTENTION = "attention"
    NORM = "norm"
    ELEMENTWISE = "elementwise"
    APPEND = "append"
    EMBEDDING = "embedding"
    COLLECTIVE = "collective"


ONE_PART: Final = (LaunchKind.ATTENTION, LaunchKind.NORM, LaunchKind.COLLECTIVE)
"""Kinds whose workgroups compute all results of the launch."""


class Tax(StrEnum):
    """What a fused kernel saves and can pay again (``unfuse``)."""

    HBM = "hbm"
    """The intermediate goes through memory."""
    SYNC = "sync"
    """Nobody goes on before everything is there."""
    LAUNCH = "launch"
    """The waiting side is a launch of its own."""
