"""The forms of the online softmax of a tile of keys on the engines of a processing element."""

from __future__ import annotations

from typing import Final

OPERATIONS: Final = "operations"
FUSED: Final = "fused"
FORMS: Final = (OPERATIONS, FUSED)
"""By commands of the MATH engine one by one, or as one command."""

COMMANDS: Final = {OPERATIONS: 11, FUSED: 3}
"""Commands of the MATH engine for a tile of keys beside its two composites: the softmax, and the
two that merge the product with the values."""
ROW_OPERATIONS: Final = {OPERATIONS: 9, FUSED: 0}
"""Lane operations for each row of a tile that the softmax does beside those for its scores: a
maximum, an exponential of a difference (5), a copy, a product and a sum."""
