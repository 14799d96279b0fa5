"""``hierarchical-collectives``: collectives over several levels become phases of one level each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from starc.analysis.sharding_rules import module_mesh
from starc.core.collectives.cost import choices
from starc.core.sharding.combiners import COMBINERS
from starc.core.sharding.encoding import Encoding, is_refinement
from starc.core.sharding.hierarchy import (
    LinkUse,
    Scatter,
    flat_ring_use,
    is_outer_to_inner,
    phase_use,
    scatter,
    split_levels,
    split_over_inner,
    without_partial,
)
from starc.core.sharding.mesh import AxisRef, Mesh, axes_text
from starc.diagnostics import counted
from starc.dialects import nn
from starc.dialects.collective import (
    AllGatherOp,
    AllReduceOp,
    AllSliceOp,
    AllToAllOp,
    CollectiveOp,
    PermuteOp,
    ReduceScatterOp,
)
from starc.dialects.collective_payload import operation_name, payload_bytes
from starc.dialects.sharding import AnyTensor, encoding_of, global_shape, local_type
from starc.passes.base import RemarkSink, StarcPass, with_location
from starc.targets.target import Target

Axes = tuple[AxisRef, ...]


@dataclass(frozen=True)
class HierarchicalCollectivesPass(StarcPass):
    """Splits every collective whose group crosses several levels of the mesh into phases.

    - An all-reduce becomes a reduce-scatter inside, an all-reduce between peers and an all-gather
      inside, for any number of levels. The scattered dimension is one that divides over the inner
      devices: one that a slice behind the all-reduce cuts if there is one, else the last. Where no
      dimension divides, ``uneven`` allows pieces of different size; without it the levels are
      reduced one after the other.
    - A reduce-scatter goes inside first, an all-gather between peers first, while pieces are small;
      an all-to-all exchanges inside, then between peers. On machines of cubes the reduce-scatter of
      a partial attention stays whole: the attention's kernel goes through the levels by itself.
    - Phases that cancel with a neighbour disappear: a gather and the slice of what it gathered, a
      slice and the gather of what it cut. A gather whose one use slices another dimension is an
      all-to-all.

    The combiner must be associative and commutative, for phases combine in another order. Several
    operands (the maximum, sum and output of a partial softmax) go through the same phases together,
    cut at the same blocks.

    On a mesh with several axes a level there are many ways to do so: phases may join two
    neighbouring levels, an all-reduce may scatter over some of the inner ones alone and reduce the
    others one after the other, and a reduce-scatter may be an all-reduce of which each device keeps
    its piece. Each is estimated with the fastest algorithm of each phase, and the fastest is taken,
    one exchange included.

    Contract: after this pass no all-reduce, reduce-scatter, all-gather or all-to-all crosses more
    than one level, but for those that a remark names. Needs ``localize``.

    Before:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @decoder(
        %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"},
                                              global = [2, 1, 64]>>) {
      %0 = collective.all_reduce %x on @node axes = ["gpu", "xcd"] reduction = sum
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"},
                                           global = [2, 1, 64]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
      func.return
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @decoder(
        %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"},
                                              global = [2, 1, 64]>>) {
      %0 = collective.reduce_scatter %x on @node axes = ["xcd"] reduction = sum dim = 2
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"},
                                           global = [2, 1, 64]>>
        -> tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"},
                                           global = [2, 1, 64]>>
      %1 = collective.all_reduce %0 on @node axes = ["gpu"] reduction = sum
        : tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"},
                                          global = [2, 1, 64]>>
        -> tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 64]>>
      %2 = collective.all_gather %1 on @node axes = ["xcd"] dim = 2
        : tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 64]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
      func.return
    }
    ```
    """

    name = "hierarchical-collectives"

    uneven: bool = False
    """Pieces may differ in size where no dimension divides."""

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        found = [op for op in module.walk() if isinstance(op, CollectiveOp)]
        if not found:
            return
        mesh = module_mesh(module)
        for op in found:
            if target.engines and (_merges_attention(op) or _gathers_keys(op)):
                continue
            _split(op, mesh, self.uneven, target, sink)
        _cancel(module, mesh, sink)


def _gathers_keys(op: CollectiveOp) -> bool:
    """Whether caches are put together for an attention: on machines of cubes its kernel does so,
    and keys go around."""
    users = [use.operation for value in op.outputs for use in value.uses]
    return (
        isinstance(op, AllGatherOp)
        and op.number("dim") == 2
        and all(isinstance(user, nn.AttentionOp) for user in users)
    )


def _merges_attention(op: CollectiveOp) -> bool:
    """Whether parts of an attention are reduced to the owners of heads. On machines of cubes they
    are merged in the kernel that makes them, which goes through the levels by itself."""
    return isinstance(op, ReduceScatterOp) and op.reduction_kind == "lse"


_KINDS = (AllReduceOp, ReduceScatterOp, AllGatherOp, AllToAllOp)


@dataclass
class _Phases:
    """Collectives in front of ``op`` that replace it, built one behind the other."""

    op: CollectiveOp
    mesh: Mesh
    values: list[SSAValue]
    made: list[CollectiveOp]

    def encodings(self) -> list[Encoding]:
        return [_encoding(value, self.mesh) for value in self.values]

    def add(
        self,
        kind: type[CollectiveOp],
        axes: Axes,
        results: Sequence[Encoding],
        **clauses: str | int,
    ) -> None:
        types = [
            local_type(_type(value), encoding)
            for value, encoding in zip(self.values, results, strict=True)
        ]
        new = with_location(kind(self.values, types, self.mesh.name, axes, **clauses), self.op)
        Rewriter.insert_op(new, InsertPoint.before(self.op))
        for old, result in zip(self.op.outputs, new.results, strict=True):
            result.name_hint = old.name_hint
        self.values = list(new.results)
        self.made.append(new)


def _split(op: CollectiveOp, mesh: Mesh, uneven: bool, target: Target, sink: RemarkSink) -> None:
    if not isinstance(op, _KINDS):
        return
    levels = split_levels(mesh, op.axes.data)
    if len(levels) < 2:
        return
    kind = op.reduction_kind
    if kind is not None:
        combiner = COMBINERS[kind]
        if not (combiner.associative and combiner.commutative):
            why = "associative" if not combiner.associative else "commutative"
            _decline(op, f"{kind} is not {why}, and phases combine in another order", sink)
            return
    if not is_outer_to_inner(mesh, levels):
        _decline(op, "its axes are not in the order of the levels", sink)
        return
    phases = _Phases(op, mesh, list(op.inputs), [])
    if mesh.is_nested:
        form = _fastest(op, mesh, levels, uneven, target)
        if form is None:
            _decline(op, "one exchange is estimated to be faster than phases", sink)
            return
        form.build(phases, op, uneven)
    else:
        Form(levels, len(levels) - 1).build(phases, op, uneven)
    if not phases.made:
        text = axes_text(op.axes.data)
        _decline(op, f"no shard map says which pieces {{{text}}} hold between phases", sink)
        return
    _explain(op, phases.made, mesh, sink)
    for old, new in zip(list(op.outputs), phases.values, strict=True):
        old.replace_all_uses_with(new)
    op.detach()
    op.erase()


@dataclass(frozen=True)
class Form:
    """Phases of a collective: the axes of each, outer to inner, and how many of the inner ones an
    all-reduce scatters over and gathers again. The others are reduced one after the other. Where
    it is ``sliced``, a reduce-scatter is an all-reduce of which each device keeps its piece."""

    levels: tuple[Axes, ...]
    scattered: int
    sliced: bool = False

    def build(self, phases: _Phases, op: CollectiveOp, uneven: bool) -> None:
        """Adds the phases in front of ``op``; none where no shard map says what they hold."""
        match op:
            case AllReduceOp():
                _all_reduce(phases, op, self, uneven)
            case ReduceScatterOp() if self.sliced:
                _all_reduce(phases, op, self, uneven)
                final = [_encoding(value, phases.mesh) for value in op.outputs]
                phases.add(AllSliceOp, op.axes.data, final, dim=op.number("dim"))
            case ReduceScatterOp():
                _reduce_scatter(phases, op, self.levels)
            case AllGatherOp():
                _all_gather(phases, op, self.levels)
            case AllToAllOp():
                _all_to_all(phases, op, self.levels)
            case _:
                pass


def _fastest(
    op: CollectiveOp, mesh: Mesh, levels: Sequence[Axes], uneven: bool, target: Target
) -> Form | None:
    """The form of a collective whose phases have the least estimated time, gaps between launches
    included; ``None`` where that is one exchange. A phase crosses two neighbouring levels at most.
    """
    forms: list[tuple[float, int, Form]] = []
    for number, parts in enumerate(_partitions(levels)):
        groups = tuple(mesh.canonical([ref for refs in part for ref in refs]) for part in parts)
        most = len(groups) - 1
        each = [Form(groups, scattered) for scattered in range(most + 1)]
        if not isinstance(op, AllReduceOp):
            each = [Form(groups, most)]
        if isinstance(op, ReduceScatterOp) and most:
            each += [Form(groups, scattered, sliced=True) for scattered in range(most + 1)]
        for form in each:
            phases = _Phases(op, mesh, list(op.inputs), [])
            if len(groups) > 1:
                form.build(phases, op, uneven)
                if not phases.made:
                    continue
            seconds = _seconds(phases.made or [op], op, mesh, target)
            forms.append((seconds, number, form))
            for made in reversed(phases.made):
                made.detach()
                made.erase()
    best = min(forms, key=lambda found: (found[0], len(found[2].levels), found[1]), default=None)
    return None if best is None or len(best[2].levels) == 1 else best[2]


def _partitions(levels: Sequence[Axes]) -> list[tuple[tuple[Axes, ...], ...]]:
    """The ways to join neighbouring levels by one or two, the finest first.

    >>> [len(parts) for parts in _partitions(((), (), ()))]
    [3, 2, 2]
    """
    if not levels:
        return [()]
    found = [((levels[0],), *rest) for rest in _partitions(levels[1:])]
    if len(levels) > 1:
        found += [((levels[0], levels[1]), *rest) for rest in _partitions(levels[2:])]
    return found


def _seconds(made: Sequence[CollectiveOp], op: CollectiveOp, mesh: Mesh, target: Target) -> float:
    """The estimated time of collectives one after the other. A gather whose results are sliced
    again will cancel, and costs nothing."""
    total = 0.0
    for phase in made:
        last = phase is made[-1] and isinstance(phase, AllGatherOp) and phase is not op
        if last and _all_sliced(op, phase.number("dim"), phase.axes.data):
            continue
        if isinstance(phase, AllSliceOp):
            total += (target.kernel_gap_ps + target.prologue_ps.get("elementwise", 0)) * 1e-12
            total += (payload_bytes(phase) / target.hbm_rate) + target.memory_latency_ps * 1e-12
            continue
        found = choices(
            operation_name(phase),
            payload_bytes(phase),
            mesh,
            phase.axes.data,
            target,
            operands=len(phase.inputs),
        )
        total += found[0].time.seconds + target.kernel_gap_ps * 1e-12
    return total


def _all_sliced(op: CollectiveOp, dim: int, axes: Axes) -> bool:
    users = [use.operation for value in op.outputs for use in value.uses]
    return bool(users) and all(
        isinstance(user, AllSliceOp) and user.number("dim") == dim and user.axes.data == axes
        for user in users
    )


def _all_reduce(
    phases: _Phases, op: AllReduceOp | ReduceScatterOp, form: Form, uneven: bool
) -> None:
    kind, levels = op.reduction.data, form.levels
    inner = [refs for refs in reversed(levels[len(levels) - form.scattered :])]
    outer = [refs for refs in reversed(levels[: len(levels) - form.scattered])]
    shapes = [global_shape(_type(value)) for value in op.inputs]
    chosen = _scatters(op, phases, inner, shapes, uneven) if inner else None
    if chosen is None:
        for refs in (*inner, *outer):
            results = [without_partial(encoding, refs) for encoding in phases.encodings()]
            phases.add(AllReduceOp, refs, results, reduction=kind)
        return
    before: list[list[Encoding]] = []
    for refs, step in zip(inner, chosen, strict=True):
        before.append([encoding.with_partial(None) for encoding in phases.encodings()])
        results = [
            _with_partial_of(encoding, without_partial(now, refs))
            for encoding, now in zip(step.results, phases.encodings(), strict=True)
        ]
        phases.add(ReduceScatterOp, refs, results, reduction=kind, dim=step.dim)
    for refs in outer:
        results = [without_partial(encoding, refs) for encoding in phases.encodings()]
        phases.add(AllReduceOp, refs, results, reduction=kind)
    for refs, step, whole in reversed(list(zip(inner, chosen, before, strict=True))):
        restored = [
            _with_partial_of(encoding, now)
            for encoding, now in zip(whole, phases.encodings(), strict=True)
        ]
        phases.add(AllGatherOp, refs, restored, dim=step.dim)


def _scatters(
    op: AllReduceOp | ReduceScatterOp,
    phases: _Phases,
    inner: Sequence[Axes],
    shapes: Sequence[tuple[int, ...]],
    uneven: bool,
) -> list[Scatter] | None:
    """The scatter of every inner level, inner ones first, along one dimension."""
    combiner = COMBINERS[op.reduction.data]
    rank = min(len(shape) for shape in shapes)
    dims = range(rank)
    if len(combiner.components) > 1:
        dims = [dim for dim in combiner.shared_dims(shapes) if dim < rank]
    options: list[tuple[tuple[bool, bool, int], list[Scatter]]] = []
    for dim in dims:
        steps: list[Scatter] = []
        encodings = phases.encodings()
        for refs in inner:
            step = scatter(encodings, shapes, dim, refs)
            if step is None:
                break
            steps.append(step)
            encodings = list(step.results)
        if len(steps) < len(inner):
            continue
        is_even = all(step.is_even for step in steps)
        ranks = phases.mesh.refs_size([ref for refs in inner for ref in refs])
        extent = min(_type(value).get_shape()[dim] for value in phases.op.inputs)
        if not is_even and (not uneven or extent < ranks):
            continue
        cancels = any(_is_sliced(result, dim, inner[0]) for result in op.outputs)
        options.append(((is_even, cancels, dim), steps))
    return max(options, key=lambda option: option[0])[1] if options else None


def _is_sliced(value: SSAValue, dim: int, axes: Axes) -> bool:
    """Whether a use keeps a piece of ``dim`` over ``axes`` alone."""
    for use in value.uses:
        user = use.operation
        if isinstance(user, AllSliceOp) and user.number("dim") == dim:
            if user.axes.data[: len(axes)] == axes:
                return True
    return False


def _between(
    whole: Sequence[Encoding],
    split: Sequence[Encoding],
    dim: int,
    inner: Axes,
    shapes: Sequence[tuple[int, ...]],
) -> list[Encoding] | None:
    found = [
        split_over_inner(coarse, fine, dim, inner, shape[dim])
        for coarse, fine, shape in zip(whole, split, shapes, strict=True)
    ]
    return None if None in found else cast(list[Encoding], found)


def _chain(
    op: CollectiveOp,
    whole: Sequence[Encoding],
    split: Sequence[Encoding],
    dim: int,
    levels: Sequence[Axes],
) -> list[list[Encoding]] | None:
    """Encodings from ``whole`` to ``split`` with one more level each, inner levels first."""
    shapes = [global_shape(_type(value)) for value in op.inputs]
    steps = [list(whole)]
    for number in range(len(levels) - 1, 0, -1):
        inner = tuple(ref for refs in levels[number:] for ref in refs)
        between = _between(whole, split, dim, inner, shapes)
        if between is None:
            return None
        steps.append(between)
    return [*steps, list(split)]


def _reordered(
    encodings: Sequence[Encoding], dim: int, kept: Sequence[Axes], levels: Sequence[Axes]
) -> list[Encoding]:
    """The same shards with the axes of ``levels`` inner first: on other devices."""
    order = [ref for refs in reversed(levels) for ref in refs]
    return [
        encoding.with_dim(dim, (*axes, *order), encoding.dims[dim].map)
        for encoding, axes in zip(encodings, kept, strict=True)
    ]


def _reduce_scatter(phases: _Phases, op: ReduceScatterOp, levels: Sequence[Axes]) -> None:
    kind, dim = op.reduction.data, op.number("dim")
    mesh = phases.mesh
    whole = phases.encodings()
    final = [_encoding(value, mesh) for value in op.outputs]
    chain = _chain(op, whole, final, dim, levels)
    if chain is not None:
        for refs, split in zip(reversed(levels), chain[1:], strict=True):
            results = [
                _with_partial_of(encoding, without_partial(now, refs))
                for encoding, now in zip(split, phases.encodings(), strict=True)
            ]
            phases.add(ReduceScatterOp, refs, results, reduction=kind, dim=dim)
        return
    # Scattered inner axes first, then put to the devices that the result names.
    moved = _reordered(final, dim, [encoding.dims[dim].axes for encoding in whole], levels)
    steps = _prefixes(moved, dim, [encoding.dims[dim].axes for encoding in whole], levels)
    if not _are_refined(whole, steps, dim, op):
        return
    for refs, split in zip(reversed(levels), steps, strict=True):
        results = [
            _with_partial_of(encoding, without_partial(now, refs))
            for encoding, now in zip(split, phases.encodings(), strict=True)
        ]
        phases.add(ReduceScatterOp, refs, results, reduction=kind, dim=dim)
    phases.add(PermuteOp, op.axes.data, final)


def _all_gather(phases: _Phases, op: AllGatherOp, levels: Sequence[Axes]) -> None:
    dim = op.number("dim")
    mesh = phases.mesh
    split = phases.encodings()
    whole = [_encoding(value, mesh) for value in op.outputs]
    chain = _chain(op, whole, split, dim, levels)
    if chain is not None:
        for refs, results in zip(levels, reversed(chain[:-1]), strict=True):
            phases.add(AllGatherOp, refs, results, dim=dim)
        return
    kept = [encoding.dims[dim].axes for encoding in whole]
    moved = _reordered(split, dim, kept, levels)
    steps = _prefixes(moved, dim, kept, levels)
    if not _are_refined(whole, steps, dim, op):
        return
    phases.add(PermuteOp, op.axes.data, moved)
    for refs, results in zip(levels, (*reversed(steps[:-1]), whole), strict=True):
        phases.add(AllGatherOp, refs, results, dim=dim)


def _prefixes(
    moved: Sequence[Encoding], dim: int, kept: Sequence[Axes], levels: Sequence[Axes]
) -> list[list[Encoding]]:
    """The encodings with the axes of the innermost level, of the two innermost and so on."""
    steps: list[list[Encoding]] = []
    axes: list[AxisRef] = []
    for refs in reversed(levels):
        axes += refs
        steps.append(
            [
                encoding.with_dim(dim, (*own, *axes), encoding.dims[dim].map)
                for encoding, own in zip(moved, kept, strict=True)
            ]
        )
    return steps


def _are_refined(
    whole: Sequence[Encoding], steps: Sequence[Sequence[Encoding]], dim: int, op: CollectiveOp
) -> bool:
    for index, value in enumerate(op.inputs):
        extent = global_shape(_type(value))[dim]
        chain = [whole[index], *(step[index] for step in steps)]
        for coarse, fine in itertools.pairwise(chain):
            if fine.dims[dim].map.problem(fine.ranks(dim), extent):
                return False
            if not is_refinement(coarse.mesh, coarse.dims[dim], fine.dims[dim], extent):
                return False
    return True


def _all_to_all(phases: _Phases, op: AllToAllOp, levels: Sequence[Axes]) -> None:
    split, concat = op.number("split_dim"), op.number("concat_dim")
    mesh = phases.mesh
    old = phases.encodings()
    new = [_encoding(value, mesh) for value in op.outputs]
    cut = _chain(op, old, new, split, levels)
    if cut is None:
        return
    # The dimension that is joined loses inner axes first: what is left is its outer axes.
    joined: list[list[Encoding]] = []
    for number in range(len(levels) - 1, 0, -1):
        outer = tuple(ref for refs in levels[:number] for ref in refs)
        step: list[Encoding] = []
        for source, result, value in zip(old, new, op.inputs, strict=True):
            extent = global_shape(_type(value))[concat]
            axes = (*result.dims[concat].axes, *outer)
            left = result.with_dim(concat, axes, source.dims[concat].map)
            if not _are_refined_pair(left, source, concat, extent):
                return
            step.append(left)
        joined.append(step)
    joined.append(new)
    for refs, cuts, joins in zip(reversed(levels), cut[1:], joined, strict=True):
        results = [
            encoding.with_dim(concat, other.dims[concat].axes, other.dims[concat].map)
            for encoding, other in zip(cuts, joins, strict=True)
        ]
        phases.add(AllToAllOp, refs, results, split_dim=split, concat_dim=concat)


def _are_refined_pair(coarse: Encoding, fine: Encoding, dim: int, extent: int) -> bool:
    if coarse.dims[dim].map.problem(coarse.ranks(dim), extent):
        return False
    return is_refinement(coarse.mesh, coarse.dims[dim], fine.dims[dim], extent)


def _with_partial_of(encoding: Encoding, other: Encoding) -> Encoding:
    if other.partial is None:
        return encoding.with_partial(None)
    return encoding.with_partial(other.partial.kind, other.partial.axes)


def _type(value: SSAValue) -> AnyTensor:
    return cast(AnyTensor, value.type)


def _encoding(value: SSAValue, mesh: Mesh) -> Encoding:
    found = encoding_of(value.type, mesh)
    assert found is not None
    return found


# ---------------------------------------------------------------------------------------------
# Phases that cancel
# ---------------------------------------------------------------------------------------------


def _cancel(module: ModuleOp, mesh: Mesh, sink: RemarkSink) -> None:
    """Removes gathers of what is sliced again and slices of what is gathered again."""
    changed = True
    while changed:
        changed = False
        for op in list(module.walk()):
            if op.parent is not None and _cancel_one(op, mesh, sink):
                changed = True


def _cancel_one(op: Operation, mesh: Mesh, sink: RemarkSink) -> bool:
    if isinstance(op, AllSliceOp | AllGatherOp):
        source = _source(op)
        inverse = AllGatherOp if isinstance(op, AllSliceOp) else AllSliceOp
        if isinstance(source, inverse):
            made = _shortened(source, op, mesh)
            if made is None:
                return False
            _replace(op, made, source, sink)
            return True
    return False


def _source(op: CollectiveOp) -> Operation | None:
    """The one operation that gives all operands, as its results in order."""
    owner = op.inputs[0].owner
    if isinstance(owner, CollectiveOp) and list(owner.outputs) == list(op.inputs):
        return owner
    return None


def _shortened(
    first: CollectiveOp, second: CollectiveOp, mesh: Mesh
) -> CollectiveOp | tuple[SSAValue, ...] | None:
    """What a gather and a slice, in either order, are together: nothing, or one of them over fewer
    axes, or an all-to-all; ``None`` if that cannot be said."""
    values = list(first.inputs)
    types = [value.type for value in second.outputs]
    a, b = first.axes.data, second.axes.data
    make: list[Callable[[], CollectiveOp]] = []
    if first.number("dim") == second.number("dim"):
        dim = second.number("dim")
        if [value.type for value in values] == types:
            return tuple(values)
        shared, rest_a, rest_b = mesh.common_prefix(a, b)
        if isinstance(first, AllGatherOp) and shared:
            if not rest_a:
                make.append(lambda: AllSliceOp(values, types, mesh.name, rest_b, dim=dim))
            if not rest_b:
                make.append(lambda: AllGatherOp(values, types, mesh.name, rest_a, dim=dim))
    elif isinstance(first, AllGatherOp) and a == b:
        if all(len(list(value.uses)) == 1 for value in first.outputs):
            split, concat = second.number("dim"), first.number("dim")
            make.append(
                lambda: AllToAllOp(values, types, mesh.name, a, split_dim=split, concat_dim=concat)
            )
    for build in make:
        new = build()
        Rewriter.insert_op(new, InsertPoint.before(second))
        try:
            new.verify_()
        except VerifyException:
            new.detach()
            new.erase()
            continue
        return with_location(new, second)
    return None


def _replace(
    op: CollectiveOp,
    made: CollectiveOp | tuple[SSAValue, ...],
    source: CollectiveOp,
    sink: RemarkSink,
) -> None:
    names = " and ".join(
        f"{operation_name(each)} over {{{axes_text(each.axes.data)}}}" for each in (source, op)
    )
    if isinstance(made, CollectiveOp):
        values = tuple(made.outputs)
        outcome = f"are one {operation_name(made)} over {{{axes_text(made.axes.data)}}}"
    else:
        values, outcome = made, "cancel"
    stays = any(use.operation is not op for value in source.outputs for use in value.uses)
    sink.remark(
        "phases-cancelled",
        f"{names} {outcome}" + ("; the first stays for its other uses" if stays else ""),
        op,
    )
    for old, new in zip(list(op.outputs), values, strict=True):
        old.replace_all_uses_with(new)
    op.detach()
    op.erase()
    if not stays:
        source.detach()
        source.erase()


# ---------------------------------------------------------------------------------------------
# Remarks
# ---------------------------------------------------------------------------------------------


def _decline(op: CollectiveOp, why: str, sink: RemarkSink) -> None:
    sink.remark(
        "hierarchical-collective",
        f"{operation_name(op)} over {{{axes_text(op.axes.data)}}} stays one exchange: {why}",
        op,
        declined=True,
    )


def _explain(op: CollectiveOp, made: Sequence[CollectiveOp], mesh: Mesh, sink: RemarkSink) -> None:
    payload = payload_bytes(op)
    axes = op.axes.data
    before = flat_ring_use(mesh, operation_name(op), axes, payload)
    after: dict[str, LinkUse] = {}
    for phase in made:
        if not phase.MOVES_DATA:
            continue
        link_class = mesh.link_class(phase.axes.data) or ""
        use = phase_use(mesh, operation_name(phase), phase.axes.data, payload_bytes(phase), axes)
        held = after.get(link_class, LinkUse(0.0, 0.0))
        after[link_class] = LinkUse(held.sent + use.sent, held.busiest + use.busiest)
    steps = ", ".join(
        f"{operation_name(phase)} over {{{axes_text(phase.axes.data)}}}" for phase in made
    )
    numbers: dict[str, int] = {}
    words: list[str] = []
    for link_class, use in after.items():
        old = before.get(link_class, LinkUse(0.0, 0.0))
        words.append(
            f"a {mesh.axes[0].name.upper()} sends {use.sent:,.0f} bytes on {link_class} "
            f"(in place of {old.sent:,.0f}), of "
            f"them on the busiest link {use.busiest:,.0f} (in place of {old.busiest:,.0f})"
        )
        numbers[f"{link_class}_before_bytes"] = round(old.sent)
        numbers[f"{link_class}_after_bytes"] = round(use.sent)
        numbers[f"{link_class}_busiest_before_bytes"] = round(old.busiest)
        numbers[f"{link_class}_busiest_after_bytes"] = round(use.busiest)
    sink.remark(
        "hierarchical-collective",
        f"{operation_name(op)} of {payload:,} bytes over {{{axes_text(axes)}}} in "
        f"{counted(len(made), 'phase')}: {steps}; against a ring over all devices: "
        + "; ".join(words),
        made[0],
        payload_bytes=payload,
        phases=len(made),
        **cast("dict[str, Any]", numbers),
    )
