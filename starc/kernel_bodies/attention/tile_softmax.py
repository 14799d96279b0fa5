"""The online softmax of a tile of keys on engines: one command of the MATH engine, or several.

``operations``: an engine that has maxima, exponentials and sums does a tile in nine commands, each
of which the CPU issues:

    s = s where visible, else -inf;  n = max of the columns of s;  n = max(m, n)
    p = exp(s - n);  correction = exp(m - n);  m = n
    n = sum of the columns of p;  l = l * correction;  l = l + n

``fused``: an engine that has the whole step as one function. An element of the scores costs the
same lane operations in both: the fused function scales them, too, which otherwise is the epilogue
of their product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from starc.core.kernel_schedules.tile_softmax import FUSED, OPERATIONS
from starc.core.quasi_affine.expressions import Expression
from starc.dialects.kernel import LaunchOp
from starc.kernel_bodies.attention.key_tiles import Sight, visible
from starc.kernel_bodies.attention.state import State
from starc.kernel_bodies.body import Body
from starc.kernel_bodies.shards import Run


@dataclass(frozen=True)
class TileSoftmax:
    """The softmax of the tiles of a launch, ``rows`` x ``keys`` scores."""

    is_fused: bool
    scale: float
    rows: int
    keys: int
    group: int

    @classmethod
    def of(cls, launch: LaunchOp, scale: float, rows: int, keys: int, group: int) -> TileSoftmax:
        form = launch.softmax.data if launch.softmax is not None else OPERATIONS
        return cls(form == FUSED, scale, rows, keys, group)

    def scale_scores(self, body: Body, scores: SSAValue) -> None:
        """The epilogue of the product of queries and keys."""
        if not self.is_fused:
            body.vector("scale", scores, scores, params=[self.scale])

    def emit(
        self,
        body: Body,
        sight: Sight,
        run: Run,
        limit: Expression,
        first: Expression,
        scores: SSAValue,
        weights: SSAValue,
        correction: SSAValue,
        state: State,
    ) -> None:
        """The weights of the tile from local key ``first``, what the output so far is multiplied
        by, and the state behind the tile."""
        suffix, before, behind = visible(sight, run, limit, first, self.keys)
        positions: Sequence[Expression | int] = [*before, self.group, *behind]
        if self.is_fused:
            operands = (weights, scores, state.m, state.l, correction)
            body.vector(f"softmax_step{suffix}", *operands, params=[self.scale, *positions])
            return
        column = body.tile("n", self.rows, 1, register=False)
        body.vector(f"mask{suffix}", scores, scores, params=positions)
        body.vector("row_max", column, scores)
        body.vector("maximum", column, state.m, column)
        body.vector("exp_difference", weights, scores, column)
        body.vector("exp_difference", correction, state.m, column)
        body.vector("copy", state.m, column)
        body.vector("row_sum", column, weights)
        body.vector("mul", state.l, state.l, correction)
        body.vector("add", state.l, state.l, column)
