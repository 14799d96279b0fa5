"""``select-collective-algorithm``: how every collective is executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, StringAttr, i64

from starc.analysis.sharding_rules import module_mesh
from starc.core.collectives.cost import Choice, choices, transports_of
from starc.core.collectives.table import ALGORITHMS, legal_algorithms
from starc.core.sharding.combiners import COMBINERS
from starc.core.sharding.mesh import Mesh, axes_text
from starc.diagnostics import Diagnostic, InputError, counted
from starc.dialects import nn
from starc.dialects.collective import CollectiveOp
from starc.dialects.collective_payload import payload_bytes
from starc.dialects.locations import location_of
from starc.kernel_bodies.collectives.plan import templates_of
from starc.passes.base import OptionValues, RemarkSink, StarcPass
from starc.targets.target import Target

AUTO = "auto"
LIBRARY: Final = "bulk"
"""The transport that libraries take for all sizes."""
ORDERED = ("one_shot",)
"""Algorithms that combine in the order of the group, whatever the combiner."""


@dataclass(frozen=True)
class SelectCollectiveAlgorithmPass(StarcPass):
    """Writes the algorithm, the transport and the rings into every collective.

    By default all-reduce, all-gather and reduce-scatter become rings over the flattened group, as
    collective libraries run them on many ranks, and other exchanges are direct. With
    ``algorithm=auto`` and ``transport=auto`` every collective gets the pair of them that the cost
    model estimates to be the fastest for its bytes and the links that it crosses; a name takes that
    one for all operations that have it; copy engines only move data, and are refused where data are
    combined. Where the group of a ring lies on one axis whose devices
    are all linked to each other, several rings with strides coprime to its size share the data,
    each on links of its own. A remark gives the estimate and those of the alternatives.
    Where a device has no room for all workgroups of the named algorithm, which wait for each other,
    the fastest algorithm that fits takes its place, which a remark says.
    On machines with engines an estimate adds up phases: the commands of the CPU, the way of the
    first piece through memory, engines and links, and the busiest of them for all other pieces.

    Contract: after this pass every collective that moves data has ``algorithm`` and ``transport``,
    and a ring has the strides of its ``rings``. All algorithms but ``one_shot``, which combines in
    the order of the group, need an associative and commutative combiner. Needs ``localize``.

    Before:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @decoder(
        %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"},
                                              global = [2, 1, 64]>>) {
      %0 = collective.all_reduce %x on @node axes = ["gpu"] reduction = sum
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"},
                                           global = [2, 1, 64]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
      func.return
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @decoder(
        %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"},
                                              global = [2, 1, 64]>>) {
      %0 = collective.all_reduce %x on @node axes = ["gpu"] reduction = sum
        {algorithm = "ring", transport = "bulk", rings = array<i64: 1, 3, 5, 7>}
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"},
                                           global = [2, 1, 64]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
      func.return
    }
    ```
    """

    name = "select-collective-algorithm"
    VALUES: ClassVar[OptionValues] = {
        "algorithm": (AUTO, *sorted({name for names in ALGORITHMS.values() for name in names})),
        "transport": (AUTO, "a transport of the target"),
    }

    algorithm: str = "ring"
    """The algorithm of all collectives that have it, or ``auto``."""

    transport: str | None = None
    """The transport of the target that all collectives use, or ``auto``; by default ``bulk``, that
    of libraries, or the first of a target that has none."""

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        self._check_options(target)
        wanted = self._transport(target)
        diagnostics: list[Diagnostic] = []
        for op in module.walk():
            if not isinstance(op, CollectiveOp):
                continue
            if not op.KIND.moves_data:
                # A copy inside a device, by the kernel of a transport that the target has.
                if LIBRARY not in target.transports:
                    op.transport = StringAttr(min(target.transports))
                continue
            mesh = module_mesh(module)
            able = transports_of(op.KIND, target)
            if wanted not in (AUTO, *able):
                diagnostics.append(
                    Diagnostic(
                        f"{op.KIND} combines data, and copy engines ({wanted}) only move them",
                        location_of(op),
                        hint=f"transports: {', '.join(able)}, {AUTO}",
                    )
                )
                continue
            legal = _legal(op, self._wanted(op, mesh, target))
            if not legal:
                name = "a ring" if self.algorithm == "ring" else self.algorithm
                problem = f"{name} needs an associative and commutative reduction"
                diagnostics.append(
                    Diagnostic(f"{problem}, {op.reduction_kind} is not", location_of(op))
                )
                continue
            self._choose(op, legal, mesh, target, sink)
        if diagnostics:
            raise InputError(diagnostics)

    def _transport(self, target: Target) -> str:
        if self.transport is not None:
            return self.transport
        return LIBRARY if LIBRARY in target.transports else min(target.transports)

    def _check_options(self, target: Target) -> None:
        able = (AUTO, *sorted(target.transports))
        if problems := self.wrong_values(target.name, transport=able):
            raise InputError(problems)

    def _wanted(self, op: CollectiveOp, mesh: Mesh, target: Target) -> tuple[str, ...]:
        """The algorithms to choose among: the named one if the operation has it, else a direct
        exchange, else all."""
        operation = op.KIND
        if self.algorithm == AUTO:
            return legal_algorithms(operation, mesh, op.axes.data, target)
        for name in (self.algorithm, "direct"):
            if name in ALGORITHMS[operation]:
                return (name,)
        return ALGORITHMS[operation]

    def _choose(
        self,
        op: CollectiveOp,
        algorithms: Sequence[str],
        mesh: Mesh,
        target: Target,
        sink: RemarkSink,
    ) -> None:
        wanted = self._transport(target)
        transports = sorted(target.transports) if wanted == AUTO else [wanted]
        axes, payload = op.axes.data, payload_bytes(op)
        found = choices(
            op.KIND,
            payload,
            mesh,
            axes,
            target,
            algorithms=algorithms,
            transports=transports,
        )
        best = _best(found, op, mesh.refs_size(axes), target)
        _set(op, best)
        units = target.dies_per_device * target.cus_per_die
        fits = templates_of(op, mesh, target) <= units
        if not fits and len(found) > 1:
            # Its workgroups wait for each other, and the device has no room for all.
            for choice in found:
                _set(op, choice)
                if templates_of(op, mesh, target) <= units:
                    best, fits = choice, True
                    break
            _set(op, best)
        if not fits:
            best = self._other_that_fits(op, best, mesh, transports, units, target, sink)
        _remark_choice(op, found, best, mesh, sink)

    def _other_that_fits(
        self,
        op: CollectiveOp,
        best: Choice,
        mesh: Mesh,
        transports: Sequence[str],
        units: int,
        target: Target,
        sink: RemarkSink,
    ) -> Choice:
        """The fastest choice of another algorithm whose workgroups, which wait for each other, a
        device has room for; ``best`` where there is none."""
        operation, axes = op.KIND, op.axes.data
        needed = templates_of(op, mesh, target)
        others = _legal(op, legal_algorithms(operation, mesh, axes, target))
        payload = payload_bytes(op)
        for choice in choices(
            operation, payload, mesh, axes, target, algorithms=others, transports=transports
        ):
            _set(op, choice)
            if templates_of(op, mesh, target) <= units:
                sink.remark(
                    "algorithm-does-not-fit",
                    f"algorithm={self.algorithm}: {needed} workgroups of {operation} over "
                    f"{{{axes_text(axes)}}} by {best.algorithm} wait for each other, and a device "
                    f"has room for {units}: {choice.algorithm}",
                    op,
                    declined=True,
                    workgroups=needed,
                    compute_units=units,
                )
                return choice
        _set(op, best)
        return best


def _remark_choice(
    op: CollectiveOp, found: Sequence[Choice], best: Choice, mesh: Mesh, sink: RemarkSink
) -> None:
    axes, payload = op.axes.data, payload_bytes(op)
    link_class = mesh.link_class(axes)
    if link_class is None:
        return
    how = best.algorithm
    if best.algorithm == "ring":
        how += f" of {mesh.refs_size(axes)} devices, {counted(len(best.strides), 'ring')}"
    others = _best_of_each([choice for choice in found if choice is not best], best)
    against = ", ".join(f"{_label(other)} {other.time.seconds * 1e6:.1f} us" for other in others)
    sink.remark(
        "collective-algorithm",
        f"{op.KIND} of {payload:,} bytes over {{{axes_text(axes)}}}, {link_class} "
        f"links: {how} by {best.transport}, {best.time.seconds * 1e6:.1f} us, most of it "
        f"{best.time.bound_by}" + (f"; else {against}" if against else ""),
        op,
        devices=mesh.refs_size(axes),
        rings=len(best.strides),
        payload_bytes=payload,
        cost_us=best.time.seconds * 1e6,
        **_numbers(others),
    )


def _best(found: Sequence[Choice], op: CollectiveOp, ranks: int, target: Target) -> Choice:
    """The fastest choice. Where a product or attention runs beside the exchange, one of copy
    engines is also taken that is slower by less than what the other costs that work: the share of
    the compute units that it takes, for its time."""
    best = found[0]
    how = target.transports[best.transport]
    if how.copy_engines or not _works_beside(op):
        return best
    units = target.dies_per_device * target.cus_per_die
    taken = how.shared_by(payload_bytes(op) // ranks, units)
    lost = best.time.seconds * taken / units
    for choice in found:
        if target.transports[choice.transport].copy_engines:
            return choice if choice.time.seconds < best.time.seconds + lost else best
    return best


def _set(op: CollectiveOp, choice: Choice) -> None:
    op.algorithm = StringAttr(choice.algorithm)
    op.transport = StringAttr(choice.transport)
    op.rings = DenseArrayBase.from_list(i64, choice.strides) if choice.algorithm == "ring" else None


def _works_beside(op: CollectiveOp) -> bool:
    """Whether work of compute units stands between a collective and the first use of its
    results."""
    users = {use.operation for value in op.results for use in value.uses}
    following = op.next_op
    while following is not None and following not in users:
        if isinstance(following, nn.LinearOp | nn.AttentionOp | nn.PartialAttentionOp):
            return True
        following = following.next_op
    return False


def _best_of_each(found: Sequence[Choice], best: Choice) -> list[Choice]:
    """The cheapest choice of every other algorithm, and the other transports of the chosen one."""
    seen: set[str] = set()
    kept: list[Choice] = []
    for choice in found:
        if choice.algorithm == best.algorithm:
            kept.append(choice)
        elif choice.algorithm not in seen:
            seen.add(choice.algorithm)
            kept.append(choice)
    return kept


def _numbers(others: Sequence[Choice]) -> dict[str, Any]:
    return {
        f"{choice.algorithm}_{choice.transport}_us": choice.time.seconds * 1e6 for choice in others
    }


def _label(choice: Choice) -> str:
    return f"{choice.algorithm} {choice.transport}"


def _legal(op: CollectiveOp, algorithms: Sequence[str]) -> tuple[str, ...]:
    """Those of the algorithms that combine the operation's reduction correctly."""
    kind = op.reduction_kind
    if kind is None or COMBINERS[kind].order_problem is None:
        return tuple(algorithms)
    return tuple(name for name in algorithms if name in ORDERED)
