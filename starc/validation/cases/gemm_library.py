"""Which kernel a tuned library launches for a matrix product on a device of many equal units.

The library of the measurements has kernels of many tile shapes and takes, for each product, one
whose tiles fill the units evenly. The menu below is that of its kernel names (weight columns x
rows of the input; a step of K is 128 bytes deep, as many stages as fit the scratch memory). The
rule is an estimate: the busiest unit's products, or the stream of weights, whichever takes longer;
few workgroups cannot draw all of the memory's bandwidth, and then K is split and a second kernel
adds the shares. Among equals the one with the most workgroups in one round wins, then the one whose
last round is fullest, then the larger tile. For most of 25 shapes the kernels that the library
reports by name have this tile or one of as many rounds; where it splits long K although its tiles
fill the device (K = 8192, N = 7168 and 10240, M <= 32) this rule does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

from starc.core.tiling import ceil_div
from starc.dialects.kernel import LaunchOp
from starc.targets.target import Target

COLUMNS: Final = (64, 80, 96, 112, 128, 144, 160, 176, 192, 256, 320, 448)
ROWS: Final = (16, 32, 64, 128, 192)
LARGEST_TILE: Final = {1: 160 * 128, 2: 320 * 128}
"""By bytes of an element: sums of 8-bit products are kept twice, for they are promoted."""
STEP_BYTES: Final = 128
MOST_STAGES: Final = 16
WAVES: Final = 8
GROUP: Final = 4  # tile rows walked together
CLUSTER: Final = 2  # workgroups that load an operand together
LEAST_WORKGROUPS: Final = 100  # that draw all of the memory's bandwidth
SECOND_KERNEL_US: Final = 3.0
OPERANDS: Final = 10.0  # what a row or column of operands costs, in elements of the result
SAME_FILL: Final = 0.1  # rounds filled this alike are equal
SAME: Final = 0.02  # estimates this close are equal


@dataclass(frozen=True)
class LibraryKernel:
    """A tile of rows x columns x step, its stages and shares of K."""

    rows: int
    columns: int
    step: int
    stages: int
    split: int
    us: float
    workgroups: int

    def options(self) -> dict[str, int | str | tuple[int, ...]]:
        """Options of ``tile-kernels`` that make this kernel."""
        found: dict[str, int | str | tuple[int, ...]] = {
            "gemm-tile": (self.rows, self.columns, self.step),
            "gemm-stages": self.stages,
            "gemm-waves": WAVES,
            "gemm-split": self.split,
            "gemm-streams": 0,
            # Workgroups side by side share the longer operand.
            "gemm-group": GROUP if self.columns >= self.rows else 1,
            "gemm-multicast": CLUSTER,
        }
        if self.split > 1:
            found["gemm-combine"] = "kernel"
        return found

    def widen(self, module: ModuleOp) -> None:
        """Lets a workgroup have all of its free stages under way: bulk copies need no threads."""
        step_bytes = (self.rows + self.columns) * STEP_BYTES
        for op in module.walk():
            if isinstance(op, LaunchOp):
                window = IntegerAttr((self.stages - 1) * step_bytes, i64)
                op.properties["window_bytes"] = window


def choose(m: int, n: int, k: int, element_bytes: int, dtype: str, target: Target) -> LibraryKernel:
    """The kernel of a product of [m, k] and [k, n]."""
    found = sorted(_kernels(m, n, k, element_bytes, dtype, target), key=lambda item: item.us)
    close = [item for item in found if item.us <= found[0].us * (1 + SAME)]
    units = target.cus_per_die * target.dies_per_device

    def worth(item: LibraryKernel) -> tuple[int, int, int, int]:
        in_one_round = item.workgroups if item.workgroups <= units else 0
        filled = item.workgroups / (units * ceil_div(item.workgroups, units))
        return -item.split, in_one_round, round(filled / SAME_FILL), item.rows * item.columns

    return max(close, key=worth)


def _kernels(
    m: int, n: int, k: int, element_bytes: int, dtype: str, target: Target
) -> Iterator[LibraryKernel]:
    units = target.cus_per_die * target.dies_per_device
    step = STEP_BYTES // element_bytes
    steps = ceil_div(k, step)
    flops = target.matrix_rate(dtype) * 1e-6
    for rows in _rows(m):
        for columns in COLUMNS:
            stages = min(
                MOST_STAGES, target.scratch_bytes_per_cu // ((rows + columns) * STEP_BYTES)
            )
            if rows * columns > LARGEST_TILE[element_bytes] or stages < 3:
                continue
            tiles = ceil_div(m, rows) * ceil_div(n, columns)
            most = max(1, units // tiles)
            for split in {1, most} if tiles < LEAST_WORKGROUPS else {1}:
                share = ceil_div(steps, split)
                rounds = ceil_div(tiles * split, units)
                ports = 1 + OPERANDS * (1 / rows + 1 / columns)
                products = rounds * share * 2 * rows * columns * step * ports / flops
                drawn = min(1.0, tiles * split / LEAST_WORKGROUPS)
                stream = (n + m) * k * element_bytes / (target.hbm_rate * 1e-6 * drawn)
                us = max(products, stream)
                if split > 1:
                    us += SECOND_KERNEL_US + 8 * split * m * n / (target.hbm_rate * 1e-6)
                yield LibraryKernel(rows, columns, step, stages, split, us, tiles * split)


def _rows(m: int) -> tuple[int, ...]:
    """Rows of tiles for a product of m rows."""
    if m <= ROWS[2]:
        covering = next(rows for rows in ROWS if rows >= m)
        return (covering, covering // 2) if covering == ROWS[2] else (covering,)
    return ROWS[2:4] if m <= 2 * ROWS[3] else ROWS[3:]
