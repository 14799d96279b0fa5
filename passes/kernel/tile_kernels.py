"""The pass ``tile-kernels``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Final

from xdsl.dialects.builtin import ModuleOp

from starc.core.collectives.reduction_trees import ACROSS, CUBE_TREES, ELEMENT_TREES, INSIDE
from starc.core.kernel_schedules.attention_problem import AttentionOptions
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.gemm_problem import GemmOptions
from starc.core.kernel_schedules.ring_prefill import SLOTS
from starc.core.kernel_schedules.row_schedules import RowOptions
from starc.core.kernel_schedules.share_merging import Combine
from starc.core.kernel_schedules.tile_softmax import FORMS, OPERATIONS
from starc.diagnostics import Diagnostic, InputError, did_you_mean
from starc.dialects.kernel import LaunchOp
from starc.dialects.locations import location_of
from starc.passes.base import OptionValues, RemarkSink, StarcPass
from starc.passes.kernel.tiling.kernel_options import NO_OPTIONS, KernelOptions
from starc.passes.kernel.tiling.launch_tiler import LaunchTiler
from starc.passes.kernel.tiling.launch_tiles import tile_launch
from starc.targets.target import Target

LEAST: Final = {"gemm_streams": 0, "gemm_whole_rounds": 0, "ring_slots": 2}
"""The least value of an option where that is not 1."""
EXTENTS: Final = {"gemm_tile": 3, "rows_tile": 2}
"""How many numbers a tile has, by option."""


@dataclass(frozen=True)
class TileKernels(StarcPass):
    """Every launch gets its tile, shares, slots, waves, window and class of launch costs.

    The rules stand in ``starc.core.kernel_schedules.tile_schedules`` (GEMM), ``attention_schedules`` and
    ``row_schedules``: every candidate that fits a compute unit is estimated with the target's
    rates and the fastest is taken; the remark has the estimate and the next best ones. A launch
    that already has ``tile`` keeps what it has; of one without it ``split``, ``combine``,
    ``stages``, ``waves``, ``streams``, ``whole_rounds``, ``multicast`` and ``window_bytes`` stay
    as they are, and the rest is chosen to go with them.

    Options fix what they name, of the launches that ``launches`` lists or of all; the rest is still
    chosen by estimate, among what fits them. ``gemm-tile=128,256,64``, ``gemm-split=4``,
    ``gemm-combine=kernel`` or ``owner``, ``gemm-streams=132`` (stream-K of so many workgroups, 0
    for none) with ``gemm-whole-rounds=0`` (all steps shared out), ``gemm-group`` (tile rows walked
    together), ``gemm-multicast``, ``gemm-stages`` and ``gemm-waves``; ``attention-split``,
    ``attention-keys``, ``attention-rows``, ``attention-combine``, ``attention-stages`` and
    ``attention-waves``; ``reduce-pe`` (``tree``, ``ring`` or ``flat``) and ``reduce-cube``
    (``mesh``, ``tree``, ``ring`` or ``flat``) for the ways by which partial attention is merged
    over memory cubes, ``softmax`` (``operations`` of the MATH engine one by one, or ``fused``, one
    command a tile of keys) and ``ring-slots``, the blocks of keys that a cube has room for; ``rows-tile=2,8192`` and ``rows-waves`` for norms and elementwise kernels.

    After it every ``kernel.launch`` has ``tile``, ``waves``, ``window_bytes``, ``piece_bytes`` and
    ``kernel_class``; GEMM and attention have ``split`` and ``stages``, and ``combine`` where
    ``split`` is more than 1; a GEMM may have ``streams`` and ``multicast``.

    Before:

    ```mlir
    nn.parameter @f.w : tensor<64x32xbf16>
    func.func @f(%x : tensor<2x1x64xbf16>) -> tensor<2x1x32xbf16> {
      %w = nn.read @f.w : tensor<64x32xbf16>
      %y = kernel.launch @f.w gemm (%a = %x : tensor<2x1x64xbf16>, %b = %w : tensor<64x32xbf16>) -> (tensor<2x1x32xbf16>) {
        %c = nn.linear %a, %b : tensor<2x1x64xbf16>, tensor<64x32xbf16> -> tensor<2x1x32xbf16>
        kernel.yield %c : tensor<2x1x32xbf16>
      }
      func.return %y : tensor<2x1x32xbf16>
    }
    ```

    After:

    ```mlir
    nn.parameter @f.w : tensor<64x32xbf16>
    func.func @f(%x : tensor<2x1x64xbf16>) -> tensor<2x1x32xbf16> {
      %w = nn.read @f.w : tensor<64x32xbf16>
      %y = kernel.launch @f.w gemm (%a = %x : tensor<2x1x64xbf16>, %b = %w : tensor<64x32xbf16>) -> (tensor<2x1x32xbf16>) attributes {tile = array<i64: 16, 16, 64>, split = 1 : i64, stages = 4 : i64, waves = 4 : i64, window_bytes = 6912 : i64, kernel_class = "gemm", piece_bytes = 4096 : i64} {
        %c = nn.linear %a, %b : tensor<2x1x64xbf16>, tensor<64x32xbf16> -> tensor<2x1x32xbf16>
        kernel.yield %c : tensor<2x1x32xbf16>
      }
      func.return %y : tensor<2x1x32xbf16>
    }
    ```
    """  # noqa: E501

    name = "tile-kernels"
    VALUES: ClassVar[OptionValues] = {
        "gemm_combine": tuple(Combine),
        "attention_combine": tuple(Combine),
        "reduce_pe": ELEMENT_TREES,
        "reduce_cube": CUBE_TREES,
        "softmax": FORMS,
    }

    launches: tuple[str, ...] = ()
    gemm_tile: tuple[int, ...] = ()
    gemm_split: int | None = None
    gemm_combine: str | None = None
    gemm_stages: int | None = None
    gemm_waves: int | None = None
    gemm_streams: int | None = None
    gemm_whole_rounds: int | None = None
    gemm_group: int | None = None
    gemm_multicast: int | None = None
    attention_rows: int | None = None
    attention_keys: int | None = None
    attention_split: int | None = None
    attention_combine: str | None = None
    attention_stages: int | None = None
    attention_waves: int | None = None
    rows_tile: tuple[int, ...] = ()
    rows_waves: int | None = None
    reduce_pe: str = INSIDE
    reduce_cube: str = ACROSS
    ring_slots: int = SLOTS
    softmax: str = OPERATIONS

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        rates = DeviceRates.of(target)
        options = self.options()
        found = [op for op in module.walk() if isinstance(op, LaunchOp)]
        names = [op.sym_name.data for op in found]
        problems = [
            Diagnostic(f"there is no launch '{name}'", hint=did_you_mean(name, names))
            for name in self.launches
            if name not in names
        ]
        for op in found:
            if op.tile is not None:
                continue
            fixed = not self.launches or op.sym_name.data in self.launches
            asked = (options if fixed else NO_OPTIONS).with_attributes(op)
            try:
                tile_launch(LaunchTiler(op, rates, target, sink, asked))
            except ValueError as error:
                problems.append(Diagnostic(f"{op.sym_name.data}: {error}", location_of(op)))
        if problems:
            raise InputError(problems)

    def options(self) -> KernelOptions:
        """What the options fix. Raises ``InputError`` for values that no kernel has, all at
        once."""
        problems = [*self.wrong_values(), *self._wrong_numbers(), *self._wrong_tiles()]
        if problems:
            raise InputError(problems)
        gemm_tile = rows_tile = None
        if self.gemm_tile:
            m, n, k = self.gemm_tile
            gemm_tile = m, n, k
        if self.rows_tile:
            rows, columns = self.rows_tile
            rows_tile = rows, columns
        return KernelOptions(
            GemmOptions(
                gemm_tile,
                self.gemm_split,
                _combine(self.gemm_combine),
                self.gemm_stages,
                self.gemm_waves,
                self.gemm_streams,
                self.gemm_whole_rounds,
                self.gemm_group,
                self.gemm_multicast,
            ),
            AttentionOptions(
                self.attention_rows,
                self.attention_keys,
                self.attention_split,
                _combine(self.attention_combine),
                self.attention_stages,
                self.attention_waves,
            ),
            RowOptions(rows_tile, self.rows_waves),
            self.reduce_pe,
            self.reduce_cube,
            self.ring_slots,
            self.softmax,
        )

    def _wrong_numbers(self) -> list[Diagnostic]:
        """What is wrong with options that are a number."""
        found: list[Diagnostic] = []
        for item in fields(self):
            value = getattr(self, item.name)
            least = LEAST.get(item.name, 1)
            if isinstance(value, int) and value < least:
                key = f"tile-kernels {item.name.replace('_', '-')}"
                found.append(Diagnostic(f"is {value}, at least {least}", key=key))
        return found

    def _wrong_tiles(self) -> list[Diagnostic]:
        """What is wrong with tiles."""
        found: list[Diagnostic] = []
        for name, count in EXTENTS.items():
            values: tuple[int, ...] = getattr(self, name)
            if values and (len(values) != count or min(values) < 1):
                given = ",".join(str(value) for value in values)
                text = f"is '{given}': {count} numbers, each at least 1"
                key = f"tile-kernels {name.replace('_', '-')}"
                found.append(Diagnostic(text, key=key))
        return found


def _combine(name: str | None) -> Combine | None:
    return None if name is None else Combine(name)
