"""Combiners of partial values: what the devices of a group must still combine, and how.

A value that is *partial* over some axes is the combination of what the devices along them hold.
A combiner may have several components: a partial softmax is three values, the running maximum
``m``, the sum ``l`` and the unnormalised output ``o``, in that order, with the identity
``(-inf, 0, 0)``. One set of devices combines them together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Parts = tuple[Array, ...]


class ReductionKind(StrEnum):
    """A kind of partial state, by the name it has in ``partial = kind{axes}``."""

    SUM = "sum"
    MAX = "max"
    LSE = "lse"
    """A partial softmax."""
    ROOT = "root"
    """The first device of the group holds the value: what a reduction to a root leaves."""

    @classmethod
    def _missing_(cls, value: object) -> ReductionKind:
        raise ValueError(f'unknown reduction "{value}", expected one of: {", ".join(cls)}')


@dataclass(frozen=True)
class Combiner:
    """``combine`` merges what two ranks hold; ``finalise`` turns the combination into the value.

    ``associative`` and ``commutative`` say which schedules may reorder it: a ring or a hierarchy
    needs both. ``linear`` says that linear operations may be applied before the combination.
    """

    name: str
    components: tuple[str, ...]
    identity: tuple[float, ...]
    combine: Callable[[Parts, Parts], Parts]
    finalise: Callable[[Parts], Array]
    associative: bool = True
    commutative: bool = True
    linear: bool = False

    @property
    def is_joint(self) -> bool:
        """Whether several values are combined together."""
        return len(self.components) > 1

    @property
    def order_problem(self) -> str | None:
        """Why contributions must be combined in the order of their ranks, or ``None``."""
        if not self.associative:
            return f"{self.name} is not associative"
        return None if self.commutative else f"{self.name} is not commutative"

    def shared_dims(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The dimensions along which the components may be scattered together: those where every
        component has the same extent, or the last component has a block for each position of the
        others (heads of ``m`` and ``l`` against heads times head size of ``o``).

            >>> COMBINERS[ReductionKind.LSE].shared_dims([(2, 1, 8), (2, 1, 8), (2, 1, 1024)])
            (0, 1, 2)
            >>> COMBINERS[ReductionKind.LSE].shared_dims([(2, 8, 1), (2, 8, 1), (2, 8, 128)])
            (0, 1)
        """
        rank = len(shapes[0])
        if any(len(shape) != rank for shape in shapes):
            return ()
        shared: list[int] = []
        for dim in range(rank):
            first = shapes[0][dim]
            same = all(shape[dim] == first for shape in shapes[:-1])
            last = shapes[-1][dim]
            if same and (last == first or (first > 1 and last % first == 0)):
                shared.append(dim)
        return tuple(shared)


def _per_column(rows: Array, output: Array) -> Array:
    """Stretches a value per head to the columns of the heads: (..., h) to (..., h * d)."""
    if rows.shape == output.shape:
        return rows
    if rows.ndim == output.ndim - 1:
        return rows[..., None]
    return np.repeat(rows, output.shape[-1] // max(rows.shape[-1], 1), axis=-1)


def _merge_lse(left: Parts, right: Parts) -> Parts:
    m_left, l_left, o_left = left
    m_right, l_right, o_right = right
    m = np.maximum(m_left, m_right)
    # An empty shard has m = -inf; the guard keeps exp() from seeing inf - inf.
    safe = np.where(np.isneginf(m), 0.0, m)
    scale_left, scale_right = np.exp(m_left - safe), np.exp(m_right - safe)
    o = o_left * _per_column(scale_left, o_left) + o_right * _per_column(scale_right, o_right)
    return m, l_left * scale_left + l_right * scale_right, o


def _finish_lse(parts: Parts) -> Array:
    _, total, output = parts
    safe = np.where(total > 0, total, 1.0)
    stretched = _per_column(safe, output)
    return np.where(_per_column(total, output) > 0, output / stretched, 0.0)


def _add(left: Parts, right: Parts) -> Parts:
    return (left[0] + right[0],)


def _maximum(left: Parts, right: Parts) -> Parts:
    return (np.maximum(left[0], right[0]),)


def _only(parts: Parts) -> Array:
    return parts[0]


def _held(left: Parts, right: Parts) -> Parts:
    del right
    return left


COMBINERS: Mapping[str, Combiner] = MappingProxyType(
    {
        combiner.name: combiner
        for combiner in (
            Combiner(ReductionKind.SUM, ("value",), (0.0,), _add, _only, linear=True),
            Combiner(ReductionKind.MAX, ("value",), (-np.inf,), _maximum, _only),
            Combiner(
                ReductionKind.LSE, ("m", "l", "o"), (-np.inf, 0.0, 0.0), _merge_lse, _finish_lse
            ),
            Combiner(ReductionKind.ROOT, ("value",), (0.0,), _held, _only, commutative=False),
        )
    }
)
"""The combiner of every kind of partial state, by the kind's name."""
