"""Rows of a decoded program as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from starc.simulator.state.arrays import Array


def array_of(rows: Sequence[Any], dtype: np.dtype[Any]) -> Array:
    """An array of rows. Compiled code takes no empty one: where there are no rows it has one of
    zeros."""
    return np.array(rows, dtype) if len(rows) else np.zeros(1, dtype)
