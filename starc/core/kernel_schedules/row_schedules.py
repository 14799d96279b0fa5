"""How operations without a matrix product are cut: elementwise chains, norms, gathers of rows, and
the payload of a collective.

**Rules.** The value is seen as rows x columns. Values of 32 rows and more lie in blocks of
32 x 64, so tiles are whole blocks; smaller ones lie row-major, so tiles are long rows. A tile is as
large as 16 KiB, and is halved while there are fewer tiles than compute units, down to a cache line
or a block. A norm or a sum over rows takes as many rows at a time as are estimated to be the
fastest, and the most of nearly equal ones: few where a step of decode is shared out over a large
device, blocks where there are many, for each row of a piece of a block is a request of its own.
Rows that registers hold are read once by a norm, others twice. The estimate lets caches hold back
the results that they have room for.

A collective's payload is cut into pieces of at most 16 KiB such that the busiest workgroup has the
least to move, where less than 2 KiB saves nothing; among equals fewer workgroups, then fewer and
wider pieces win.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.residency import WAVES
from starc.core.memory.layout import BLOCK_COLUMNS, BLOCKED_ROWS, LINE_BYTES
from starc.core.tiling import RowTiling, ceil_div, covering_power_of_two, overlapped, row_tiling

TILE_BYTES: Final = 16384
SHARE_BYTES: Final = 2048
EQUAL: Final = 0.02  # estimates that differ by less are equal
MOST_WAVES: Final = 16  # of a workgroup
HELD_TILES: Final = 8  # tiles of columns that rows are held in


@dataclass(frozen=True)
class RowProblem:
    """A value [batch, query, columns] that is computed row by row or element by element.

    ``unit`` columns stay together (a head under rope, 1 for none), ``one_unit`` when a tile is one
    of them (a head appended to a cache), ``whole_rows`` when every result needs its whole row (a
    norm), ``one_pass`` when nothing needs the row again behind its sum. ``read_bytes`` and
    ``written_bytes`` are totals, ``lane_operations`` the vector work.
    """

    batch: int
    query: int
    columns: int
    element_bytes: int = 2
    unit: int = 1
    one_unit: bool = False
    whole_rows: bool = False
    one_pass: bool = False
    read_bytes: int = 0
    written_bytes: int = 0
    lane_operations: int = 0

    @property
    def rows(self) -> int:
        return self.batch * self.query


@dataclass(frozen=True)
class RowOptions:
    """What a caller fixes of a schedule: rows and columns of a tile, waves of a workgroup."""

    tile: tuple[int, int] | None = None
    waves: int | None = None


ANY: Final = RowOptions()


@dataclass(frozen=True)
class RowSchedule:
    """Rows and columns of a tile; ``steps`` tiles a workgroup goes through (norms only)."""

    tile: tuple[int, int]
    rows: RowTiling
    column_tiles: int
    steps: int
    waves: int
    window_bytes: int
    seconds: float

    @property
    def grid(self) -> int:
        return self.rows.tiles * self.column_tiles


def choose_rows(
    problem: RowProblem, rates: DeviceRates, *, options: RowOptions = ANY
) -> RowSchedule:
    """The schedule by the rule above, with its estimated time."""
    waves = options.waves
    if options.tile is not None:
        return _estimated(problem, options.tile, rates, waves)
    if not problem.whole_rows:
        return _estimated(problem, _element_tile(problem, rates), rates, waves)
    tiles = _sum_tiles(problem) if problem.one_pass else _norm_tiles(problem, rates)
    found = [_estimated(problem, tile, rates, waves) for tile in tiles]
    fastest = min(schedule.seconds for schedule in found)
    # Of nearly equal ones the highest: its pieces of blocks are the largest.
    return next(s for s in found if s.seconds <= (1 + EQUAL) * fastest)


def _estimated(
    problem: RowProblem, tile: tuple[int, int], rates: DeviceRates, waves: int | None = None
) -> RowSchedule:
    rows = row_tiling(problem.batch, problem.query, tile[0])
    across = ceil_div(problem.columns, tile[1])
    column_tiles, steps = (1, across) if problem.whole_rows else (across, 1)
    # A tile's loads are issued together, through the registers of waves enough for it.
    tile_bytes = rows.rows * tile[1] * problem.element_bytes
    waves = waves or max(WAVES, min(MOST_WAVES, ceil_div(tile_bytes, rates.wave_window_bytes)))
    window = rates.window(waves, rates.window_bytes, 1, registers=True)
    grid = rows.tiles * column_tiles
    busiest = ceil_div(grid, rates.compute_units)
    width = problem.columns * problem.element_bytes
    is_held = steps <= HELD_TILES and holds_rows(rows.rows, width, rates.register_bytes)
    passes = 1 if steps == 1 or is_held or problem.one_pass else 2
    # A second pass goes through its steps again; in both, two are on their way at a time.
    waits = 2 if passes == 1 else 2 + steps
    share = (problem.read_bytes * passes + problem.written_bytes) / grid
    stream = rates.stream_rate(window, min(busiest, 4))
    # Caches hold back what they have room for of the results.
    caches = rates.l2_bytes * rates.dies + rates.mall_bytes
    memory = problem.read_bytes * passes + max(0, problem.written_bytes - caches)
    seconds = overlapped(
        (
            memory / rates.hbm_rate,
            (problem.read_bytes * passes + problem.written_bytes) / rates.mall_rate,
            busiest * share / stream,
            busiest * rates.vector_seconds(problem.lane_operations / grid),
            ceil_div(grid, rates.dies) * rates.dispatch_s,
        )
    )
    return RowSchedule(
        tile=tile,
        rows=rows,
        column_tiles=column_tiles,
        steps=steps,
        waves=waves,
        window_bytes=window,
        seconds=seconds + waits * rates.latency_s,
    )


def _element_tile(problem: RowProblem, rates: DeviceRates) -> tuple[int, int]:
    unit = problem.unit
    line = max(1, LINE_BYTES // problem.element_bytes)
    elements = TILE_BYTES // problem.element_bytes
    is_blocked = problem.rows >= BLOCKED_ROWS
    least_rows = min(BLOCKED_ROWS, problem.rows) if is_blocked else 1
    least_columns = unit * ceil_div(BLOCK_COLUMNS if is_blocked else line, unit)
    if problem.one_unit:
        least_columns = unit
    widest = unit if problem.one_unit else min(problem.columns, elements // least_rows)
    columns = max(least_columns, covering_power_of_two(max(1, widest // unit)) * unit)
    while columns > least_columns and columns >= 2 * problem.columns:
        columns //= 2
    rows = least_rows
    if not is_blocked:
        room = max(1, elements // columns)
        rows = min(covering_power_of_two(problem.rows), 1 << (room.bit_length() - 1))

    def grid(rows: int, columns: int) -> int:
        tiling = row_tiling(problem.batch, problem.query, rows)
        return tiling.tiles * ceil_div(problem.columns, columns)

    while grid(rows, columns) < rates.compute_units:
        if rows > least_rows:
            rows //= 2
        elif columns % (2 * unit) == 0 and columns // 2 >= least_columns:
            columns //= 2
        else:
            break
    return rows, min(columns, problem.columns)


def _sum_tiles(problem: RowProblem) -> list[tuple[int, int]]:
    """Tiles of a sum over rows, the highest first: up to the rows of a block, as many columns of
    them as a tile has bytes for."""
    tiles: list[tuple[int, int]] = []
    rows = min(BLOCKED_ROWS, covering_power_of_two(problem.rows))
    while rows >= 1:
        columns = max(BLOCK_COLUMNS, TILE_BYTES // (rows * problem.element_bytes))
        tiles.append((rows, min(columns, problem.columns)))
        rows //= 2
    return tiles


def _norm_tiles(problem: RowProblem, rates: DeviceRates) -> list[tuple[int, int]]:
    """Tiles of a norm, the highest first: up to the rows of a block. A row alone is taken whole
    where row, weight and result fit scratch memory; rows that registers hold in a few tiles of
    whole blocks; others in tiles of as many columns as have room, twice."""
    width = problem.columns * problem.element_bytes
    tiles: list[tuple[int, int]] = []
    rows = min(BLOCKED_ROWS, covering_power_of_two(problem.rows))
    while rows >= 1:
        if rows == 1 and 3 * width <= rates.scratch_bytes:
            columns = problem.columns
        elif holds_rows(rows, width, rates.register_bytes):
            columns = ceil_div(problem.columns, HELD_TILES * BLOCK_COLUMNS) * BLOCK_COLUMNS
        else:
            columns = max(BLOCK_COLUMNS, TILE_BYTES // (rows * problem.element_bytes))
        tiles.append((rows, min(columns, problem.columns)))
        rows //= 2
    return tiles


def holds_rows(rows: int, row_bytes: int, register_bytes: int) -> bool:
    """Whether a workgroup can keep so many rows in half of the registers of a compute unit: it then
    reads them once."""
    return rows * row_bytes <= register_bytes // 2


@dataclass(frozen=True)
class PieceSchedule:
    """Pieces of a collective's payload: ``tile`` rows x columns each, ``chunk_pieces`` in a chunk
    (the n-th part of the payload), ``workgroups`` that share out the pieces of a chunk."""

    tile: tuple[int, int]
    pieces: int
    chunk_pieces: int
    workgroups: int

    @property
    def workgroup_pieces(self) -> int:
        """Pieces of one chunk that a workgroup moves."""
        return ceil_div(self.chunk_pieces, self.workgroups)


def choose_pieces(
    batch: int,
    query: int,
    columns: int,
    element_bytes: int,
    chunks: int,
    workgroups: int,
    rings: int = 1,
) -> PieceSchedule:
    """The pieces of a payload [batch, query, columns] that is cut into ``chunks``, for at most so
    many workgroups, which are dealt out evenly over ``rings``."""
    rows = batch * query
    is_blocked = rows >= BLOCKED_ROWS and rows % BLOCKED_ROWS == 0 and columns >= BLOCK_COLUMNS
    row_unit, column_unit = (BLOCKED_ROWS, BLOCK_COLUMNS) if is_blocked else (1, 1)
    best: tuple[int, int, int, int] | None = None
    chosen: PieceSchedule | None = None
    for height in _doublings(row_unit, rows):
        tiling = row_tiling(batch, query, height)
        for width in _doublings(column_unit, columns):
            # Row-major pieces are rows, each at least a cache line.
            size = height * width * element_bytes
            if not is_blocked:
                size = height * max(LINE_BYTES, width * element_bytes)
            if size > TILE_BYTES and (height > row_unit or width > column_unit):
                continue
            pieces = tiling.tiles * ceil_div(columns, width)
            chunk = ceil_div(pieces, chunks)
            active = min(workgroups, chunk)
            if active > rings:
                active -= active % rings
            schedule = PieceSchedule((height, width), pieces, chunk, active)
            busiest = max(SHARE_BYTES, schedule.workgroup_pieces * size)
            score = (busiest, max(active, rings), schedule.workgroup_pieces, height)
            if best is None or score < best:
                best, chosen = score, schedule
    assert chosen is not None
    return chosen


def _doublings(unit: int, limit: int) -> list[int]:
    values = [unit]
    while values[-1] * 2 <= limit:
        values.append(values[-1] * 2)
    if values[-1] < limit:
        values.append(limit)
    return values
