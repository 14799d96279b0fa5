"""The kinds of collectives and what schedules, costs and checks must know of each.

>>> CollectiveKind.ALL_REDUCE.rounds, CollectiveKind.ALL_GATHER.payload_is_result
(2, True)
>>> [str(kind) for kind in CollectiveKind if not kind.moves_data]
['all_slice']
"""

from __future__ import annotations

from enum import StrEnum


class CollectiveKind(StrEnum):
    """A collective, by its name in the ``collective`` dialect."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"
    PERMUTE = "permute"
    REDUCE_TO_ROOT = "reduce_to_root"
    BROADCAST = "broadcast"
    ALL_SLICE = "all_slice"

    @property
    def moves_data(self) -> bool:
        """Whether devices exchange anything."""
        return self is not CollectiveKind.ALL_SLICE

    @property
    def combines(self) -> bool:
        """Whether contributions of several devices become one: copy engines cannot do that."""
        return self in _COMBINING

    @property
    def payload_is_result(self) -> bool:
        """Whether the whole data of a device are its result, and not its operand."""
        return self is CollectiveKind.ALL_GATHER

    @property
    def rounds(self) -> int:
        """How often each of n devices sends (n - 1)/n of the payload."""
        if self is CollectiveKind.ALL_REDUCE:
            return 2
        return 1 if self.moves_data else 0

    @property
    def shrinks_outwards(self) -> bool:
        """Whether done level by level, inner devices first, an outer level carries only the
        piece of each of the inner devices."""
        return self in _SHRINKING


_COMBINING = frozenset(
    {CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.REDUCE_TO_ROOT}
)
_SHRINKING = frozenset(
    {CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER}
)
