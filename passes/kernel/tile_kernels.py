"""The pass ``tile-kernels``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Final, cast

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute

from starc.core.collectives.reduction_trees import ACROSS, CUBE_TREES, ELEMENT_TREES, INSIDE
from starc.core.kernel_schedules.attention_schedules import (
    AttentionOptions,
    AttentionProblem,
    AttentionSchedule,
    choose_attention,
)
from starc.core.kernel_schedules.cube_schedules import choose_element_tiles
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.fused_schedules import FusedSchedule, choose_fused
from starc.core.kernel_schedules.ring_prefill import SLOTS
from starc.core.kernel_schedules.ring_schedules import choose_ring_tiles
from starc.core.kernel_schedules.row_schedules import RowOptions, RowProblem, choose_rows
from starc.core.kernel_schedules.share_merging import Combine, Merge
from starc.core.kernel_schedules.tile_schedules import (
    WAVES,
    GemmOptions,
    GemmProblem,
    GemmSchedule,
    choose_gemm,
)
from starc.core.kernel_schedules.tile_softmax import FORMS, OPERATIONS
from starc.diagnostics import Diagnostic, InputError, counted, did_you_mean
from starc.dialects.kernel import COMBINES, LaunchOp, integers
from starc.dialects.kernel_fusion import fused_problem, is_fused, merging_of
from starc.dialects.kernel_problems import CollectiveProblem, pieces_of, problem_of
from starc.dialects.kernel_rings import ring_problem, rows_are_split
from starc.dialects.locations import location_of
from starc.kernel_bodies.collectives.plan import is_planned, plan_of
from starc.passes.base import OptionValues, RemarkSink, StarcPass
from starc.targets.target import Target

PIECE_BYTES = 4096


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
        "gemm_combine": COMBINES,
        "attention_combine": COMBINES,
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
        problems: list[Diagnostic] = []
        found = [op for op in module.walk() if isinstance(op, LaunchOp)]
        names = [op.sym_name.data for op in found]
        problems += [
            Diagnostic(f"there is no launch '{name}'", hint=did_you_mean(name, names))
            for name in self.launches
            if name not in names
        ]
        for op in found:
            if op.tile is None:
                fixed = not self.launches or op.sym_name.data in self.launches
                try:
                    tile(op, rates, target, sink, options if fixed else NO_OPTIONS)
                except ValueError as error:
                    problems.append(Diagnostic(f"{op.sym_name.data}: {error}", location_of(op)))
        if problems:
            raise InputError(problems)

    def options(self) -> KernelOptions:
        """What the options fix. Raises ``InputError`` for values that no kernel has, all at
        once."""
        problems = self.wrong_values()

        def extents(key: str, values: tuple[int, ...], count: int) -> tuple[int, ...] | None:
            if values and (len(values) != count or min(values) < 1):
                given = ",".join(str(value) for value in values)
                text = f"is '{given}': {count} numbers, each at least 1"
                problems.append(Diagnostic(text, key=f"tile-kernels {key}"))
                return None
            return values or None

        for item in fields(self):
            value = getattr(self, item.name)
            least = LEAST.get(item.name, 1)
            if isinstance(value, int) and value < least:
                key = f"tile-kernels {item.name.replace('_', '-')}"
                problems.append(Diagnostic(f"is {value}, at least {least}", key=key))
        gemm_tile = extents("gemm-tile", self.gemm_tile, 3)
        rows_tile = extents("rows-tile", self.rows_tile, 2)
        found = KernelOptions(
            GemmOptions(
                cast("tuple[int, int, int] | None", gemm_tile),
                self.gemm_split,
                cast("Combine | None", self.gemm_combine),
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
                cast("Combine | None", self.attention_combine),
                self.attention_stages,
                self.attention_waves,
            ),
            RowOptions(cast("tuple[int, int] | None", rows_tile), self.rows_waves),
            self.reduce_pe,
            self.reduce_cube,
            self.ring_slots,
            self.softmax,
        )
        if problems:
            raise InputError(problems)
        return found


LEAST: Final = {"gemm_streams": 0, "gemm_whole_rounds": 0, "ring_slots": 2}
"""The least value of an option where that is not 1."""


@dataclass(frozen=True)
class KernelOptions:
    """What is fixed of the schedules of launches, by kind."""

    gemm: GemmOptions = field(default_factory=GemmOptions)
    attention: AttentionOptions = field(default_factory=AttentionOptions)
    rows: RowOptions = field(default_factory=RowOptions)
    reduce_pe: str = INSIDE
    reduce_cube: str = ACROSS
    ring_slots: int = SLOTS
    softmax: str = OPERATIONS


NO_OPTIONS: Final = KernelOptions()


def tile(
    launch: LaunchOp,
    rates: DeviceRates,
    target: Target,
    sink: RemarkSink,
    options: KernelOptions = NO_OPTIONS,
) -> None:
    """Sets the schedule of one launch. Raises ``ValueError`` when none fits the device, or none
    that is as asked for. What a launch has without a ``tile`` is asked for, too."""
    problem = problem_of(launch)
    options = _with_attributes(launch, options)
    window = launch.properties.get("window_bytes")
    if is_fused(launch):
        _tile_fused(launch, rates, sink)
    elif isinstance(problem, GemmProblem):
        gemm = choose_gemm(problem, rates, options=options.gemm)
        _set_product(launch, gemm[0], _ways(gemm[0], options.gemm))
        if options.gemm.group is not None:
            launch.properties["swizzle"] = integers((options.gemm.group, 1))
        _remark_choice(launch, gemm, sink, problem.flops, problem.compulsory_bytes)
    elif isinstance(problem, AttentionProblem) and launch.ring is not None:
        _tile_ring(launch, problem, rates, target, sink, options)
    elif isinstance(problem, AttentionProblem) and target.engines:
        _tile_element(launch, problem, rates, target, sink, options)
    elif isinstance(problem, AttentionProblem):
        attention = choose_attention(problem, rates, options=options.attention)
        _set_product(launch, attention[0], {"group": attention[0].group})
        _remark_choice(launch, attention, sink, problem.flops, problem.compulsory_bytes)
    elif isinstance(problem, RowProblem):
        rows = choose_rows(problem, rates, options=options.rows)
        _set(launch, rows.tile, {"waves": rows.waves, "window_bytes": rows.window_bytes})
        sink.remark(
            "tile-chosen",
            f"{launch.sym_name.data}: tiles of {rows.tile[0]} x {rows.tile[1]}, "
            f"{counted(rows.grid, 'workgroup')}, estimated {rows.seconds * 1e6:.2f} us",
            launch,
            workgroups=rows.grid,
            estimate_us=round(rows.seconds * 1e6, 3),
        )
    else:
        _tile_collective(launch, problem, rates, target, sink)
    if window is not None:
        launch.properties["window_bytes"] = window
    launch.properties["kernel_class"] = StringAttr(launch.kind.data)
    launch.properties["piece_bytes"] = IntegerAttr(PIECE_BYTES, i64)


def _tile_ring(
    launch: LaunchOp,
    problem: AttentionProblem,
    rates: DeviceRates,
    target: Target,
    sink: RemarkSink,
    options: KernelOptions,
) -> None:
    """Attention whose keys go around the cubes of a group."""
    tiles = choose_ring_tiles(
        problem,
        ring_problem(launch),
        rates,
        target,
        options.attention,
        options.ring_slots,
        options.softmax,
    )
    schedule = tiles.schedule
    more = {"group": schedule.group, "sub_tile": tiles.sub, "ring_slots": options.ring_slots}
    _set_product(launch, schedule, more)
    launch.properties["softmax"] = StringAttr(options.softmax)
    _remark_choice(launch, (schedule,), sink, problem.flops, problem.compulsory_bytes)
    sink.remark(
        "ring-balance",
        f"{launch.sym_name.data}: the busiest PE of each step computes "
        f"{tiles.work.step_imbalance:.2f} times the mean of all; the ring waits for keys for "
        f"{tiles.waiting * 1e6:.2f} us by the estimate, which takes every PE for as slow as the "
        "busiest of its cube",
        launch,
        imbalance=round(tiles.work.step_imbalance, 3),
        waiting_us=round(tiles.waiting * 1e6, 3),
        tiles=tiles.work.tiles,
    )


def _tile_element(
    launch: LaunchOp,
    problem: AttentionProblem,
    rates: DeviceRates,
    target: Target,
    sink: RemarkSink,
    options: KernelOptions,
) -> None:
    """Attention on the engines of an element, and the ways by which parts of it are merged."""
    if rows_are_split(launch):
        raise ValueError(
            "query rows are split over devices where keys go around, in the launch of the attention"
        )
    tiles = choose_element_tiles(problem, rates, target, options.attention, options.softmax)
    schedule = tiles.schedule
    _set_product(launch, schedule, {"group": schedule.group, "sub_tile": tiles.sub})
    launch.properties["softmax"] = StringAttr(options.softmax)
    _remark_choice(launch, (schedule,), sink, problem.flops, problem.compulsory_bytes)
    asked = options.attention.keys
    if asked is not None and schedule.tile[1] < asked:
        sink.remark(
            "keys-limited",
            f"{launch.sym_name.data}: attention-keys={asked}: an element has "
            f"{problem.visible_keys:,} keys, its tiles take {schedule.tile[1]:,}",
            launch,
            declined=True,
            asked=asked,
            keys=schedule.tile[1],
        )
    passes = schedule.tasks
    if passes > 1:
        times = "two passes" if passes == 2 else f"{passes} passes"
        sink.remark(
            "several-passes",
            f"{launch.sym_name.data}: {times} over the keys of an element, one for each sequence "
            "and KV head that it has keys of",
            launch,
            passes=passes,
            sequences=problem.batch,
            kv_heads=problem.kv_heads,
        )
    if merging_of(launch) is not None:
        launch.properties["reduce_inside"] = StringAttr(options.reduce_pe)
        launch.properties["reduce_across"] = StringAttr(options.reduce_cube)


def _with_attributes(launch: LaunchOp, options: KernelOptions) -> KernelOptions:
    """The options with what the launch itself fixes, which counts more."""

    def given(names: tuple[str, ...]) -> dict[str, int]:
        return {name: launch.integer(name) for name in names if name in launch.properties}

    combine: dict[str, Combine] = {}
    if launch.combine is not None:
        combine["combine"] = cast("Combine", launch.combine.data)
    products = ("split", "stages", "waves")
    gemm = given((*products, "streams", "whole_rounds", "multicast"))
    return KernelOptions(
        replace(options.gemm, **gemm, **combine),
        replace(options.attention, **given(products), **combine),
        replace(options.rows, **given(("waves",))),
        options.reduce_pe,
        options.reduce_cube,
        options.ring_slots,
        launch.softmax.data if launch.softmax is not None else options.softmax,
    )


def _ways(schedule: GemmSchedule, options: GemmOptions) -> dict[str, int]:
    """What a product has where it is not one workgroup a tile that loads for itself."""
    more: dict[str, int] = {}
    if schedule.streams:
        more["streams"] = schedule.streams
        if options.whole_rounds is not None:
            more["whole_rounds"] = options.whole_rounds
    if schedule.multicast > 1:
        more["multicast"] = schedule.multicast
    return more


def _tile_fused(launch: LaunchOp, rates: DeviceRates, sink: RemarkSink) -> None:
    way = launch.pull.data if launch.pull is not None else None
    problem = fused_problem(launch, rates)
    found = [s for s in choose_fused(problem, rates) if way in (None, s.pull)]
    if not found:
        raise ValueError("its workgroups wait for peers, and no tile lets all of them be resident")
    set_fused(launch, found[0])
    sink.remark(
        "tile-chosen",
        f"{launch.sym_name.data}: tiles of {found[0]}, estimated {found[0].seconds * 1e6:.2f} us",
        launch,
        workgroups=sum(found[0].grid),
        estimate_us=round(found[0].seconds * 1e6, 3),
    )


def set_fused(launch: LaunchOp, schedule: FusedSchedule) -> None:
    """Sets the schedule of a launch that exchanges data with peers, its grid included."""
    _set_product(launch, schedule.gemm, {})
    if schedule.pull is not None:
        launch.properties["pull"] = StringAttr(schedule.pull)
    launch.properties["grid"] = integers(schedule.grid)
    launch.properties["kernel_class"] = StringAttr(launch.kind.data)
    launch.properties["piece_bytes"] = IntegerAttr(PIECE_BYTES, i64)


def _tile_collective(
    launch: LaunchOp,
    problem: CollectiveProblem,
    rates: DeviceRates,
    target: Target,
    sink: RemarkSink,
) -> None:
    transport = rates.transports.get(problem.transport)
    if transport is None:
        known = ", ".join(rates.transports)
        raise ValueError(f"the target has no transport '{problem.transport}', it has {known}")
    # Workgroups that have all waves of a unit leave nothing of it to others.
    reserves = target.transports[problem.transport].reserves
    waves = target.max_waves_per_cu if reserves else WAVES
    if is_planned(launch, target):
        plan = plan_of(launch, target)
        waves = max(WAVES, waves // plan.resident) if reserves else WAVES
        _set(launch, plan.tile, {"waves": waves, "window_bytes": transport.window_bytes})
        if launch.properties.get("chunks") is not None:
            launch.properties["chunks"] = IntegerAttr(plan.chunks, i64)
        boxes = [box for phase in plan.phases for value in phase.values for box in value.boxes]
        sink.remark(
            "tile-chosen",
            f"{launch.sym_name.data}: pieces of {boxes[-1].rows} x {boxes[-1].columns}",
            launch,
            workgroups=sum(plan.grids),
            chunk_pieces=max(max(phase.shares) for phase in plan.phases),
        )
        return
    pieces = pieces_of(problem, transport.workgroups)
    _set(launch, pieces.tile, {"waves": waves, "window_bytes": transport.window_bytes})
    sink.remark(
        "tile-chosen",
        f"{launch.sym_name.data}: pieces of {pieces.tile[0]} x {pieces.tile[1]}",
        launch,
        workgroups=pieces.workgroups,
        chunk_pieces=pieces.chunk_pieces,
    )


def _set_product(
    launch: LaunchOp, schedule: GemmSchedule | AttentionSchedule, more: Mapping[str, int]
) -> None:
    numbers = {
        **more,
        "split": schedule.split,
        "stages": schedule.stages,
        "waves": schedule.waves,
        "window_bytes": schedule.window_bytes,
    }
    _set(launch, schedule.tile, numbers)
    set_merge(launch, schedule.merge)


def set_merge(launch: LaunchOp, merge: Merge) -> None:
    """Sets how the shares of a launch are combined."""
    if merge.combine is None:
        return
    launch.properties["combine"] = StringAttr(merge.combine)
    launch.properties["combine_stages"] = IntegerAttr(merge.stages, i64)
    launch.properties.pop("combine_rows", None)
    if merge.rows:
        launch.properties["combine_rows"] = IntegerAttr(merge.rows, i64)


def _set(launch: LaunchOp, extents: Sequence[int], numbers: Mapping[str, int]) -> None:
    properties: dict[str, Attribute] = {"tile": integers(extents)}
    properties |= {key: IntegerAttr(value, i64) for key, value in numbers.items()}
    launch.properties.update(properties)


def _remark_choice(
    launch: LaunchOp,
    ranked: Sequence[GemmSchedule] | Sequence[AttentionSchedule],
    sink: RemarkSink,
    flops: int,
    compulsory_bytes: int,
) -> None:
    best, others = ranked[0], ranked[1:]
    terms = ", ".join(f"{name} {seconds * 1e6:.2f}" for name, seconds in best.terms if seconds)
    alternatives = "; ".join(f"{other} {other.seconds * 1e6:.2f} us" for other in others)
    sink.remark(
        "tile-chosen",
        f"{launch.sym_name.data}: tiles of {best}, estimated {best.seconds * 1e6:.2f} us "
        f"({terms} us); next: {alternatives or 'none'}",
        launch,
        workgroups=best.grid,
        estimate_us=round(best.seconds * 1e6, 3),
        flops=flops,
        compulsory_bytes=compulsory_bytes,
    )
