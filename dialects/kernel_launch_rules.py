"""What holds of the attributes of a ``kernel.launch``, by itself and among each other."""

from __future__ import annotations

from typing import Final, cast

from xdsl.ir import Operation
from xdsl.traits import SymbolUserOpInterface
from xdsl.utils.exceptions import VerifyException

from starc.core.kernel_schedules.fused_schedules import Pull
from starc.core.kernel_schedules.share_merging import Combine
from starc.dialects.kernel_attributes import LaunchAttributes
from starc.dialects.kernel_buffers import BufferOp
from starc.dialects.kernel_kinds import ONE_PART, LaunchKind
from starc.dialects.nn_linear import LinearOp
from starc.dialects.symbols import named

POSITIVE: Final = (
    "split",
    "combine_rows",
    "combine_stages",
    "stages",
    "group",
    "bands",
    "waves",
    "window_bytes",
    "streams",
    "multicast",
)
POSITIVE_ENTRIES: Final = ("tile", "grid", "swizzle")


class LaunchSymbols(SymbolUserOpInterface):
    """Buffers that a launch names exist, with the types of the values that stand for them."""

    def verify(self, op: Operation) -> None:
        launch = cast(LaunchAttributes, op)
        if not launch.uses_buffers:
            return
        pairs = list(zip(launch.read_names, launch.block.arg_types, strict=False))
        types = (value.type for value in launch.yielded)
        pairs += list(zip(launch.written_names, types, strict=False))
        for name, type in pairs:
            if self._buffer(op, name).type != type:
                raise VerifyException(f"@{name} is not of type {type}")
        for name in (*launch.workspace_names, *launch.staging_names):
            self._buffer(op, name)

    @staticmethod
    def _buffer(op: Operation, name: str) -> BufferOp:
        buffer = named(op, name)
        if not isinstance(buffer, BufferOp):
            raise VerifyException(f"@{name} is not a kernel.buffer")
        return buffer


def verify_over_buffers(launch: LaunchAttributes) -> None:
    """Raises ``VerifyException`` for a launch over buffers that has values, or other buffers than
    its body takes and yields."""
    if launch.inputs or launch.results_:
        raise VerifyException("a launch over buffers has no operands and no results")
    if len(launch.read_names) != len(launch.block.args):
        raise VerifyException("one argument of the body per buffer that is read")
    if len(launch.written_names) != len(launch.yielded):
        raise VerifyException("one yielded value per buffer that is written")


def verify_schedule(launch: LaunchAttributes) -> None:
    """Raises ``VerifyException`` for a schedule that a launch cannot have."""
    for key in POSITIVE:
        if launch.integer(key) < 1:
            raise VerifyException(f"{key} must be positive")
    _verify_attention(launch)
    for key in POSITIVE_ENTRIES:
        if any(value < 1 for value in launch.integers(key)):
            raise VerifyException(f"the entries of {key} must be positive")
    _verify_tile(launch)
    _verify_grid(launch)
    _verify_shares(launch)
    if launch.pull is not None and launch.pull.data not in list(Pull):
        raise VerifyException(f"pull is one of {[way.value for way in Pull]}")


def _verify_attention(launch: LaunchAttributes) -> None:
    is_attention = launch.kind.data == LaunchKind.ATTENTION
    if (launch.chain or launch.rows_first) and not is_attention:
        raise VerifyException("chain and rows_first are of attention")
    if launch.ring is not None and not is_attention:
        raise VerifyException("ring is of attention")
    ring = launch.integers("ring")
    if sorted(ring) != list(range(len(ring))):
        raise VerifyException("a ring passes every cube once")
    if launch.chain is not None and launch.chain.value.data < 0:
        raise VerifyException("chain must not be negative")


def _verify_tile(launch: LaunchAttributes) -> None:
    tile = launch.integers("tile")
    rank = 3 if launch.kind.data in (LaunchKind.GEMM, LaunchKind.ATTENTION) else 2
    if tile and len(tile) != rank:
        raise VerifyException(f"the tile of a kernel of this kind has {rank} extents")


def _verify_grid(launch: LaunchAttributes) -> None:
    kind, grid, yielded = launch.kind.data, launch.integers("grid"), len(launch.yielded)
    parts = 1 if kind in ONE_PART else yielded
    if kind == LaunchKind.GEMM:
        parts = sum(isinstance(op, LinearOp) for op in launch.block.ops)
    if launch.pull is not None and launch.pull.data == Pull.STAGED:
        parts += 1  # the workgroups that copy
    if kind == LaunchKind.COLLECTIVE and grid:
        parts = len(grid)  # as many templates as its schedules take
    if kind == LaunchKind.ATTENTION and len(grid) == 2 and yielded == 1:
        parts = 2  # the owners that merge
    if grid and len(grid) != parts:
        raise VerifyException(f"grid has {len(grid)} entries for {parts} parts")


def _verify_shares(launch: LaunchAttributes) -> None:
    kind, is_split, combine = launch.kind.data, launch.integer("split") > 1, launch.combine
    if launch.streams is not None and (kind != LaunchKind.GEMM or is_split):
        raise VerifyException("streams are of a gemm without shares")
    way = combine.data if combine is not None else None
    always = kind == LaunchKind.ATTENTION and way == Combine.KERNEL
    if launch.tile is not None and (is_split or always) != (way is not None):
        raise VerifyException(
            "combine stands exactly where split is more than 1, and for one share of attention "
            "it is kernel"
        )
    if way is not None and way not in list(Combine):
        raise VerifyException(f"combine is one of {[way.value for way in Combine]}")
