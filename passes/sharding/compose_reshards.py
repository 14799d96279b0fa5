"""``compose-reshards``: reshards meet, move behind what they commute with, and cancel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from starc.analysis.communication import communicated_bytes, moving_steps
from starc.analysis.reencoding import (
    ParameterUses,
    drop_if_idle,
    encoding,
    layers_of,
    reshard_after,
    reshard_before,
    set_encoding,
    shape_of,
    sharded_inputs,
    sharded_results,
    update_signature,
)
from starc.analysis.sharding_rules import has_rule, module_mesh, rule_of, symbol_type
from starc.core.sharding.encoding import DimSharding, Encoding, is_refinement
from starc.core.sharding.factor_rules import FactorRule, problems_of
from starc.core.sharding.link_bytes import add_bytes, bytes_text, is_no_more, reshard_bytes
from starc.core.sharding.mesh import Mesh
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.nn import ReadOp
from starc.dialects.sharding import AnyTensor, ReshardOp
from starc.passes.base import RemarkSink, StarcPass
from starc.targets.target import Target


@dataclass(frozen=True)
class ComposeReshardsPass(StarcPass):
    """Composes reshards, and moves them to where they compose.

    - A reshard of a reshard is one from the first encoding to the last: a gather and the slice that
      takes a part of it cancel, a reduction and a slice are a reduce-scatter. Reshards that change
      nothing, or that nobody uses, vanish; two that do the same are one.
    - A gather moves below an operation on single elements (or rows, or columns), which then runs on
      the finer shards, where its other operands can be had there.
    - A reduction moves below operations that are linear in it, to the reshards behind them: a
      reduce-scatter, a rotary embedding and a gather become an embedding of the partial sum and an
      all-reduce. Reductions of the terms of a sum become one reduction of the sum.
    - A parameter that is always resharded is stored that way.

    Each rewrite is done only where no link class carries more bytes after it than before
    (``starc.analysis.communication``).

    Contract: encodings are legal; values, layers' arguments and results keep their types, and no
    layer communicates more bytes on any link class. Needs ``propagate-shardings``.

    Before:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @residual(
        %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>,
        %o : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>)
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> {
      %0 = sharding.reshard %x
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
      %1 = sharding.reshard %o
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
      %2 = nn.add %0, %1
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>,
          tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
      %3 = sharding.reshard %2
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
      func.return %3 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @residual(
        %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>,
        %o : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>)
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> {
      %0 = sharding.reshard %o
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
      %1 = nn.add %x, %0
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>,
          tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
      func.return %1 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
    }
    ```
    """

    name = "compose-reshards"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        mesh = module_mesh(module)
        for layer in layers_of(module):
            before = communicated_bytes(layer)
            composer = _Composer(layer, mesh)
            composer.run()
            update_signature(layer)
            after = communicated_bytes(layer)
            assert is_no_more(after, before), f"@{layer.sym_name.data}: {before} became {after}"
            if composer.rewrites:
                sink.remark(
                    "composed-reshards",
                    f"@{layer.sym_name.data}: a device sends {bytes_text(after)} in place of "
                    f"{bytes_text(before)}",
                    layer,
                    rewrites=composer.rewrites,
                    sent_bytes=sum(after.values()),
                    sent_bytes_before=sum(before.values()),
                )
        _store_as_used(module, mesh)


def _store_as_used(module: ModuleOp, mesh: Mesh) -> None:
    """Stores parameters of which only a reshard is used, always the same, as it leaves them."""
    parameters = ParameterUses.of(module)
    for name, reads in parameters.reads.items():
        users = [op for op, _ in parameters.users(name)]
        wanted = {
            encoding(op.results[0], mesh).canonical() if isinstance(op, ReshardOp) else None
            for op in users
        }
        found = wanted.pop() if len(wanted) == 1 else None
        if found is None:
            continue
        old, shape = encoding(reads[0].result, mesh), shape_of(reads[0].result)
        if not all(
            is_refinement(mesh, coarse, fine, extent)
            for coarse, fine, extent in zip(old.dims, found.dims, shape, strict=True)
        ):
            continue
        parameters.set_encoding(name, found)
        for op in users:
            assert isinstance(op, ReshardOp)
            drop_if_idle(op, mesh)


Bytes = dict[str, int]


@dataclass(frozen=True)
class _Step:
    """An operation on other encodings: those of its operands, and of its result."""

    operands: tuple[Encoding, ...]
    result: Encoding


@dataclass
class _Composer:
    layer: FuncOp
    mesh: Mesh
    rewrites: int = 0

    def run(self) -> None:
        """Rewrites until nothing changes. Every rewrite removes a reshard or moves one towards the
        end of the block, so this ends."""
        changed = True
        while changed:
            changed = False
            for op in list(self.layer.body.block.ops):
                while op.parent is not None and self._rewrite(op):
                    changed = True
                    self.rewrites += 1

    def _rewrite(self, op: Operation) -> bool:
        if isinstance(op, ReshardOp):
            if not any(value.first_use for value in op.results):
                op.detach()
                op.erase()
                return True
            return drop_if_idle(op, self.mesh) or (
                len(op.inputs) == 1
                and (self._compose(op) or self._unite(op) or self._sink_reduction(op))
            )
        if not has_rule(op) or isinstance(op, ReadOp) or len(op.results) != 1:
            return False
        if symbol_type(op) is not None:
            return False
        return self._merge_reductions(op) or self._sink_gathers(op)

    # Costs

    def _cost(self, value: SSAValue, source: Encoding, target: Encoding) -> Bytes:
        """Bytes of a reshard of a value of that type."""
        width = element_bytes(cast(AnyTensor, value.type))
        return reshard_bytes(source, target, shape_of(value), width)

    def _cost_of(self, op: ReshardOp) -> Bytes:
        return self._cost(op.inputs[0], *self._ends(op))

    def _ends(self, op: ReshardOp) -> tuple[Encoding, Encoding]:
        return encoding(op.inputs[0], self.mesh), encoding(op.results[0], self.mesh)

    def _cost_behind(self, value: SSAValue, found: Encoding) -> Bytes:
        """Bytes of what follows a value if its encoding is ``found``: the reshards of it, and one
        to the encoding it has now if anything else uses it."""
        own = encoding(value, self.mesh)
        counts = [
            self._cost(value, found, encoding(user.results[0], self.mesh))
            for user in _reshards(value)
        ]
        if _others(value) and found != own:
            counts.append(self._cost(value, found, own))
        return add_bytes(counts)

    def _steps_behind(self, value: SSAValue, found: Encoding) -> int:
        own, shape = encoding(value, self.mesh), shape_of(value)
        ends = [encoding(user.results[0], self.mesh) for user in _reshards(value)]
        ends += [own] if _others(value) else []
        return sum(moving_steps(found, end, shape) for end in ends)

    # Reshards that meet

    def _compose(self, op: ReshardOp) -> bool:
        """A reshard of a reshard."""
        first = op.inputs[0].owner
        if not isinstance(first, ReshardOp) or len(first.inputs) != 1:
            return False
        source, target = first.inputs[0], encoding(op.results[0], self.mesh)
        now = self._cost_of(op)
        if first.results[0].has_one_use():
            now = add_bytes([now, self._cost_of(first)])
        if not is_no_more(self._cost(source, encoding(source, self.mesh), target), now):
            return False
        op.operands[0] = source
        return True

    def _unite(self, op: ReshardOp) -> bool:
        """Two reshards that do the same."""
        for use in op.inputs[0].uses:
            other = use.operation
            if (
                isinstance(other, ReshardOp)
                and other is not op
                and other.result_types == op.result_types
                and other.is_before_in_block(op)
            ):
                op.results[0].replace_all_uses_with(other.results[0])
                op.detach()
                op.erase()
                return True
        return False

    # Reductions

    def _sink_reduction(self, op: ReshardOp) -> bool:
        """Moves a reduction below the linear operations that follow it, as far as it pays."""
        source, target = self._ends(op)
        if source.partial is None or source.partial == target.partial:
            return False
        if source.partial.kind != "sum":
            return False
        shape = shape_of(op.inputs[0])
        chain: list[tuple[Operation, _Step]] = []
        value, found, length = op.results[0], source, 0
        while (use := value.get_unique_use()) is not None:
            step = self._carry(use.operation, use.index, found)
            if step is None:
                break
            chain.append((use.operation, step))
            value, found = use.operation.results[0], step.result
            own = encoding(value, self.mesh)
            now = add_bytes([self._cost_of(op), self._cost_behind(value, own)])
            new = self._cost_behind(value, found)
            steps = moving_steps(source, target, shape) + self._steps_behind(value, own)
            fewer = self._steps_behind(value, found) < steps
            if value.first_use and is_no_more(new, now) and (new != now or fewer):
                length = len(chain)
        for index, (user, step) in enumerate(chain[:length]):
            for number, wanted in enumerate(step.operands):
                old = user.operands[number]
                if index == 0 and old is op.results[0]:
                    user.operands[number] = op.inputs[0]
                elif encoding(old, self.mesh) != wanted:
                    user.operands[number] = reshard_before(user, old, wanted)
            self._retype(user.results[0], step.result, last=index == length - 1)
        return length > 0

    def _carry(self, op: Operation, index: int, found: Encoding) -> _Step | None:
        """An operation that passes a partial sum on, with operand ``index`` as ``found``; the
        others must be there without communication."""
        if not has_rule(op) or len(op.results) != 1 or symbol_type(op) is not None:
            return None
        rule = rule_of(op)
        alone = len(op.operands) == 1 and (rule.additive or rule.transparent)
        if index not in rule.linear and not alone:
            return None
        shardings = dict(zip(_names(rule, index), found.dims, strict=True))
        step = self._step(op, rule, shardings)
        result = step.result.with_partial("sum", found.partial.axes if found.partial else ())
        operands = (*step.operands[:index], found, *step.operands[index + 1 :])
        for number, (value, wanted) in enumerate(zip(op.operands, operands, strict=True)):
            if number == index:
                continue
            held = encoding(value, self.mesh)
            if held.partial is not None or self._cost(value, held, wanted):
                return None
        return self._legal(op, rule, _Step(operands, result))

    def _merge_reductions(self, op: Operation) -> bool:
        """The terms of a sum that are all reduced in the same way."""
        rule = rule_of(op)
        reshards = [value.owner for value in op.operands]
        if not rule.additive or len(op.operands) < 2:
            return False
        ends: list[tuple[Encoding, Encoding]] = []
        for reshard in reshards:
            if not isinstance(reshard, ReshardOp) or len(reshard.inputs) != 1:
                return False
            if any(use.operation is not op for use in reshard.results[0].uses):
                return False
            ends.append(self._ends(reshard))
        source, target = ends[0]
        if source.partial is None or source.partial == target.partial or len(set(ends)) != 1:
            return False
        step = self._legal(op, rule, _Step((source,) * len(ends), source))
        if step is None or encoding(op.results[0], self.mesh) != target:
            return False
        for index, reshard in enumerate(reshards):
            assert isinstance(reshard, ReshardOp)
            op.operands[index] = reshard.inputs[0]
        self._retype(op.results[0], source, last=True)
        return True

    # Gathers

    def _sink_gathers(self, op: Operation) -> bool:
        """Runs an operation on single elements, rows or columns on the finer shards that one of its
        operands was gathered from."""
        rule = rule_of(op)
        if rule.summed() or rule.nested is not None or rule.window is not None:
            return False
        kept = {factor.name for factor in rule.results[0]}
        for index, value in enumerate(op.operands):
            reshard = _reshard_of(value)
            if reshard is None:
                continue
            fine, coarse = self._ends(reshard)
            names = _names(rule, index)
            shardings = {
                name: new
                for name, old, new, extent in zip(
                    names, coarse.dims, fine.dims, shape_of(value), strict=True
                )
                if name in kept
                and old != new
                and self.mesh.refs_size(new.axes) > self.mesh.refs_size(old.axes)
                and is_refinement(self.mesh, old, new, extent)
            }
            if shardings and self._run_finer(op, rule, shardings):
                return True
        return False

    def _run_finer(
        self, op: Operation, rule: FactorRule, shardings: dict[str, DimSharding]
    ) -> bool:
        step = self._legal(op, rule, self._step(op, rule, shardings))
        if step is None:
            return False
        result = op.results[0]
        now = [self._cost_behind(result, encoding(result, self.mesh))]
        new = [self._cost_behind(result, step.result)]
        sources: dict[SSAValue, SSAValue] = {}
        for value, wanted in zip(op.operands, step.operands, strict=True):
            if value in sources:
                continue
            reshard = _reshard_of(value)
            sources[value] = value
            cost = self._cost(value, encoding(value, self.mesh), wanted)
            if reshard is not None:
                first = reshard.inputs[0]
                direct = self._cost(first, encoding(first, self.mesh), wanted)
                dies = all(use.operation is op for use in reshard.results[0].uses)
                if dies:
                    now.append(self._cost_of(reshard))
                if dies or is_no_more(direct, cost):
                    sources[value], cost = first, direct
            new.append(cost)
        if not is_no_more(add_bytes(new), add_bytes(now)):
            return False
        for number, (value, wanted) in enumerate(
            zip(list(op.operands), step.operands, strict=True)
        ):
            op.operands[number] = reshard_before(op, sources[value], wanted)
        self._retype(result, step.result, last=True)
        return True

    # Operations on other encodings

    def _step(self, op: Operation, rule: FactorRule, shardings: dict[str, DimSharding]) -> _Step:
        """The encodings of an operation whose factors are split as said, all others as they are."""

        def changed(value: SSAValue, names: Sequence[str]) -> Encoding:
            old = encoding(value, self.mesh)
            dims = zip(names, old.dims, strict=True)
            return replace(old, dims=tuple(shardings.get(name, own) for name, own in dims))

        operands = tuple(
            changed(value, _names(rule, index)) for index, value in enumerate(op.operands)
        )
        result = op.results[0]
        return _Step(operands, changed(result, [factor.name for factor in rule.results[0]]))

    def _legal(self, op: Operation, rule: FactorRule, step: _Step) -> _Step | None:
        inputs = [
            replace(value, encoding=wanted)
            for value, wanted in zip(sharded_inputs(op, self.mesh), step.operands, strict=True)
        ]
        results = [replace(sharded_results(op, self.mesh)[0], encoding=step.result)]
        if any(value.encoding.problems(value.shape) for value in (*inputs, *results)):
            return None
        return None if problems_of(rule, inputs, results) else step

    def _retype(self, value: SSAValue, wanted: Encoding, *, last: bool) -> None:
        """Gives a result another encoding. With ``last``, users other than reshards get the one it
        had."""
        old = encoding(value, self.mesh)
        new = set_encoding(value, wanted)
        others = _others(new)
        if not last or not others or old == wanted:
            return
        reshards = [(user, user.inputs[0]) for user in _reshards(new)]
        reshard_after(new, old)
        for user, source in reshards:
            user.operands[0] = source


def _names(rule: FactorRule, index: int) -> list[str]:
    return [factor.name for factor in rule.operands[index]]


def _reshard_of(value: SSAValue) -> ReshardOp | None:
    """The reshard of one value that gives ``value``."""
    owner = value.owner
    return owner if isinstance(owner, ReshardOp) and len(owner.inputs) == 1 else None


def _reshards(value: SSAValue) -> list[ReshardOp]:
    """The reshards of a value alone."""
    users = [use.operation for use in value.uses]
    return [user for user in users if isinstance(user, ReshardOp) and len(user.inputs) == 1]


def _others(value: SSAValue) -> bool:
    """Whether anything but reshards of it alone uses a value."""
    return len(_reshards(value)) < sum(1 for _ in value.uses)
