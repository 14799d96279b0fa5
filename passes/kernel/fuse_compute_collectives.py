"""The pass ``fuse-compute-collectives``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final, cast

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from starc.analysis.cost import launch_cost
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.fused_schedules import PULLS, FusedSchedule, choose_fused
from starc.diagnostics import InputError, counted
from starc.dialects import nn
from starc.dialects.collective import AllGatherOp, AllReduceOp, CollectiveOp, ReduceScatterOp
from starc.dialects.kernel import LaunchOp, integers
from starc.dialects.kernel_fusion import (
    AFTER_SUMS,
    Reduction,
    fused_problem,
    gemm_parts,
    is_fused,
    slice_starts,
)
from starc.dialects.kernel_problems import ops_of, tensor, tensor_bytes
from starc.dialects.kernel_rings import ring_of, ring_text
from starc.dialects.locations import location_of
from starc.dialects.sharding import encoding_of, mesh_of
from starc.kernel_bodies.shards import shard_of
from starc.passes.base import OptionValues, Remark, RemarkSink, StarcPass, with_location
from starc.passes.kernel.tile_kernels import set_fused
from starc.targets.target import Target

TAXES: Final = ("hbm", "sync", "launch")
UNEVEN_OWNERS: Final = "the owners have different numbers of heads"


@dataclass(frozen=True)
class FuseComputeCollectives(StarcPass):
    """Products and the collectives around them become one kernel over symmetric memory, where the
    estimate says that it is faster.

    - **Scaled rows**: the factors of rows behind a product are applied to its tiles before they are
      stored.
    - **Pull**: an all-gather in front of products moves into their launch. Workgroups begin with
      the slice of their own device and read those of the peers as they come to them, in turned
      order; a counter says that a peer's slice is there. The reads are ``uncached`` (each workgroup
      over the link), ``cached`` (through the L2) or ``staged`` (some workgroups copy the slices to
      a local buffer), by estimate, or as the option ``pull`` says.
    - **Push**: the reduction behind a product moves into its launch. Each result tile goes to a
      staging slot as soon as it is done, and who receives it adds the slots in the order of ranks:
      the owner of its columns where they are scattered, tiles of peers first; all peers where
      everybody needs the sum, or where rows are scattered to the places of a cache. The rotation of
      rows by their positions may stand between product and reduction: it is linear, and done to the
      sums.
    - **Behind the sums**: what reads the sums alone, and values that are there before, is done
      while they are in registers. That is a residual sum or a gate; the norm of rows that are then
      summed as a whole, with the all-reduce of their sums of squares; the append of keys and
      values, each row by the device that holds its position.
    - **Caches of peers**: gathers of keys and values move into the launch of their attention, which
      reads the tiles of peers as it comes to them.
      On machines of cubes keys go around instead: ``ring`` has the order of the cubes.
    - **Merge**: behind a partial attention, the reduce-scatter of its heads and their end move into
      its launch. The records of a head go to the head's owner, who merges them in the order of
      ranks, takes a sink in once and divides. On machines of cubes this is always done, along the
      trees of PEs and cubes that ``tile-kernels`` names.

    A launch is left alone, which a remark says with numbers, where the intermediate has other uses,
    slices are not contiguous, replicas would be summed in different orders, no tile lets all
    workgroups that wait be resident together, nothing else in the layer tells that peers have read
    what was sent to all, or the estimate of separate launches is smaller.

    What a fused kernel saves can be put back piece by piece: ``unfuse`` lists ``hbm`` (the
    intermediate goes through memory), ``sync`` (nobody goes on before everything is there) and
    ``launch`` (the waiting side is a launch of its own). What is fused does not depend on it.

    After it a ``gemm`` launch may hold, in order, an all-gather of its input, products with scaled
    and rotated rows, reductions of their results, and what is done with the sums; such a launch has
    its tile, grid and ``pull``.

    Before:

    ```mlir
    // gpus: 1
    sharding.mesh @node = ["gpu"=1 : outer xgmi, "xcd"=8 : inner usr]
    nn.parameter @f.w : tensor<4096x512xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [4096, 4096]>>
    func.func @f(%x : tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>>) -> tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>> {
      %w = nn.read @f.w : tensor<4096x512xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [4096, 4096]>>
      %g = kernel.launch @f.all_gather collective (%a = %x : tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>>) -> (tensor<8x1x4096xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 4096]>>) {
        %b = collective.all_gather %a on @node axes = ["xcd"] dim = 2 {algorithm = "ring", transport = "bulk"} : tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>> -> tensor<8x1x4096xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 4096]>>
        kernel.yield %b : tensor<8x1x4096xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 4096]>>
      }
      %y = kernel.launch @f.w gemm (%c = %g : tensor<8x1x4096xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 4096]>>, %d = %w : tensor<4096x512xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [4096, 4096]>>) -> (tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>>) {
        %e = nn.linear %c, %d : tensor<8x1x4096xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 4096]>>, tensor<4096x512xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [4096, 4096]>> -> tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>>
        kernel.yield %e : tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>>
      }
      func.return %y : tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>>
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=1 : outer xgmi, "xcd"=8 : inner usr]
    nn.parameter @f.w : tensor<4096x512xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [4096, 4096]>>
    func.func @f(%x : tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>>) -> tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>> {
      %w = nn.read @f.w : tensor<4096x512xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [4096, 4096]>>
      %y = kernel.launch @f.w gemm (%c = %x : tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>>, %d = %w : tensor<4096x512xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [4096, 4096]>>) -> (tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>>) attributes {tile = array<i64: 16, 16, 256>, split = 1 : i64, stages = 3 : i64, grid = array<i64: 32>, waves = 4 : i64, window_bytes = 16384 : i64, kernel_class = "gemm", piece_bytes = 4096 : i64, pull = "cached"} {
        %b = collective.all_gather %c on @node axes = ["xcd"] dim = 2 {algorithm = "ring", transport = "bulk"} : tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>> -> tensor<8x1x4096xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 4096]>>
        %e = nn.linear %b, %d : tensor<8x1x4096xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 4096]>>, tensor<4096x512xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [4096, 4096]>> -> tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>>
        kernel.yield %e : tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>>
      }
      func.return %y : tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>>
    }
    ```
    """  # noqa: E501

    name = "fuse-compute-collectives"
    VALUES: ClassVar[OptionValues] = {"unfuse": TAXES, "pull": ("auto", *PULLS)}

    unfuse: tuple[str, ...] = ()
    """Costs of separate kernels that fused ones pay again: ``hbm``, ``sync``, ``launch``."""

    pull: str = "auto"
    """How slices of peers are read: ``auto`` by estimate, ``uncached``, ``cached`` or ``staged``.
    """

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        if problems := self.wrong_values():
            raise InputError(problems)
        rates = DeviceRates.of(target)
        for function in module.ops:
            if isinstance(function, FuncOp) and not function.is_declaration:
                fusion = _Fusion(
                    function.body.block,
                    rates,
                    sink,
                    self.pull,
                    self.unfuse,
                    on_engines=bool(target.engines),
                )
                fusion.fuse()


@dataclass(frozen=True)
class _Chain:
    """The way of a product's result to its sum: the launch that rotates its rows, the launch that
    reduces the value, as which operand, and the sum."""

    result: OpResult
    turned: LaunchOp | None
    rope: nn.RopeOp | None
    turned_value: SSAValue
    source: LaunchOp
    reduction: Reduction
    position: int
    outer: SSAValue

    @property
    def to_owners(self) -> bool:
        """Whether every tile goes to the owner of its columns alone."""
        reduction = self.reduction
        return isinstance(reduction, ReduceScatterOp) and reduction.number("dim") == 2


class _Fusion:
    """The launches of one function."""

    def __init__(
        self,
        block: Block,
        rates: DeviceRates,
        sink: RemarkSink,
        pull: str,
        unfuse: Sequence[str],
        on_engines: bool = False,
    ) -> None:
        self.on_engines = on_engines
        self.block = block
        self.rates = rates
        self.sink = sink
        self.pull = pull
        self.unfuse = [tax for tax in TAXES if tax in unfuse]

    def fuse(self) -> None:
        for launch in [op for op in self.block.ops if isinstance(op, LaunchOp)]:
            if launch.parent is not self.block:
                continue
            if launch.kind.data == "gemm" and launch.tile is None:
                self._scale(launch)
                self._pull(launch)
                fused = self._push(launch)
                if is_fused(fused):
                    self._schedule(fused)
            elif launch.kind.data == "attention" and launch.tile is None:
                self._merge(launch)
                if launch.parent is self.block:
                    self._pull_caches(launch)

    # Scaled rows

    def _scale(self, launch: LaunchOp) -> None:
        """Takes the scaling of rows of the launch's results into it."""
        for user in dict.fromkeys(
            use.operation for result in launch.results for use in result.uses
        ):
            if isinstance(user, LaunchOp) and user.kind.data == "elementwise":
                self._scale_by(launch, user)

    def _scale_by(self, launch: LaunchOp, scaling: LaunchOp) -> None:
        scales = ops_of(scaling)
        if not all(isinstance(op, nn.ScaleRowsOp) for op in scales):
            return
        pairs: list[tuple[int, nn.ScaleRowsOp, int]] = []
        results = list(launch.results)
        yielded = list(scaling.yielded)
        for op in cast(list[nn.ScaleRowsOp], scales):
            source, factors = _outside(scaling, op.input), _outside(scaling, op.scale)
            if source is None or factors is None or op.result not in yielded:
                return
            if source.owner is not launch or factors.owner is launch:
                return
            if _is_used_beside(source, scaling):
                return
            pairs.append((list[SSAValue](results).index(source), op, yielded.index(op.result)))
        if not self._may_move(launch, scaling):
            return
        waited = [
            op
            for op in _between(launch, scaling)
            if isinstance(op, LaunchOp)
            and any(
                isinstance(factors.owner, Operation) and factors.owner is op
                for factors in scaling.inputs
            )
        ]
        saved = launch_cost(scaling, self.rates).seconds + self.rates.gap_s
        lost = 0.0
        if waited:
            others = sum(
                launch_cost(op, self.rates).seconds
                for op in _between(launch, scaling)
                if isinstance(op, LaunchOp)
            )
            lost = min(launch_cost(launch, self.rates).seconds, others)
        name = launch.sym_name.data
        if lost > saved:
            self.sink.remark(
                "not-fused",
                f"{name}: the factors of its rows are computed meanwhile, it would wait for them",
                launch,
                declined=True,
                saved_us=_us(saved),
                lost_us=_us(lost),
            )
            return
        launch.detach()
        self.block.insert_op_before(launch, scaling)
        block = launch.block
        terminator = block.last_op
        assert terminator is not None
        for result, op, position in pairs:
            factors = _outside(scaling, op.scale)
            assert factors is not None
            inner = self._argument(launch, factors)
            value = terminator.operands[result]
            scaled = nn.ScaleRowsOp(value, inner, op.result.type)  # pyright: ignore
            scaled.location = op.location
            block.insert_op_before(scaled, terminator)
            terminator.operands[result] = scaled.result
            scaling.results[position].replace_all_uses_with(launch.results[result])
        Rewriter.erase_op(scaling)
        self.sink.remark(
            "rows-scaled",
            f"{name}: its rows are scaled before they are stored",
            launch,
            saved_us=_us(saved),
        )

    def _argument(self, launch: LaunchOp, value: SSAValue) -> SSAValue:
        """The argument of the launch's body for a value from outside."""
        for outer, inner in zip(launch.inputs, launch.block.args, strict=True):
            if outer is value:
                return inner
        inner = launch.block.insert_arg(value.type, len(launch.block.args))
        inner.name_hint = value.name_hint
        launch.operands = [*launch.operands, value]
        return inner

    def _may_move(self, launch: LaunchOp, before: Operation) -> bool:
        """Whether nothing between a launch and a later one uses its results."""
        users = {use.operation for result in launch.results for use in result.uses}
        return not any(op in users for op in _between(launch, before))

    # Pull

    def _pull(self, launch: LaunchOp) -> None:
        found = [
            (outer, inner)
            for outer, inner in zip(launch.inputs, launch.block.args, strict=True)
            if _single(outer, AllGatherOp) is not None
        ]
        linears = [op for op in ops_of(launch) if isinstance(op, nn.LinearOp)]
        for outer, inner in found:
            if not all(op.input is inner for op in linears):
                continue
            gather = _single(outer, AllGatherOp)
            assert isinstance(gather, AllGatherOp)
            self._pull_by(launch, outer, inner, gather)
            return

    def _pull_by(
        self, launch: LaunchOp, outer: SSAValue, inner: SSAValue, gather: AllGatherOp
    ) -> None:
        source = outer.owner
        assert isinstance(source, LaunchOp)
        reason = self._pull_obstacle(launch, outer, gather)
        if reason is not None:
            self._decline(launch, f"it does not read slices of peers itself: {reason}")
            return
        ways = choose_fused(fused_problem(launch, self.rates, gather), self.rates)
        if self.pull != "auto":
            ways = tuple(s for s in ways if s.pull == self.pull)
        if not self._worth(launch, ways, [source], "reads slices of peers itself"):
            return
        block = launch.block
        index = block.args.index(cast(BlockArgument, inner))
        x = source.inputs[0]
        argument = block.insert_arg(x.type, index)
        argument.name_hint = inner.name_hint
        copy = gather.clone({gather.inputs[0]: argument})
        copy.location = gather.location
        first = block.first_op
        assert first is not None
        block.insert_op_before(copy, first)
        inner.replace_all_uses_with(copy.outputs[0])
        block.erase_arg(cast(BlockArgument, inner))
        launch.operands[index] = x
        launch.properties["pull"] = StringAttr(ways[0].pull or "")
        Rewriter.erase_op(source)

    def _pull_obstacle(self, launch: LaunchOp, outer: SSAValue, gather: AllGatherOp) -> str | None:
        if gather.number("dim") != 2:
            return "rows are gathered, not columns"
        if _is_used_beside(outer, launch):
            return "the gathered value has other uses"
        mesh = mesh_of(launch)
        for part in gemm_parts(launch):
            encoding = encoding_of(part.linear.result.type, mesh)
            if encoding is None:
                return "its results have no encoding"
            used = [ref for dim in encoding.dims for ref in dim.axes]
            used += encoding.partial.axes if encoding.partial is not None else ()
            replicated = mesh.complement(used)
            if any(mesh.overlap(a, b) for a in replicated for b in gather.axes.data):
                return "devices of a group compute the same, each would add in another order"
        if slice_starts(gather, mesh) is None:
            return "the slices are not contiguous"
        return None

    # Push

    def _push(self, launch: LaunchOp) -> LaunchOp:
        """Takes the reductions of a launch's results into it, with what is done with the sums.
        Returns the launch that there is then."""
        chains = self._chains(launch)
        if not chains:
            return launch
        if len({chain.reduction.axes.data for chain in chains}) > 1:
            self._decline(launch, "it does not push its tiles: they go to different groups")
            return launch
        behind = self._behind(launch, chains)
        owned = [chain for chain in chains if chain.to_owners]
        ways = [(chains, behind)]
        if 0 < len(owned) < len(chains):
            ways.append((owned, self._behind(launch, owned)))
        for kept, following in ways:
            new = self._push_by(launch, kept, following)
            if new is not None:
                return new
        return launch

    def _push_by(
        self, launch: LaunchOp, chains: Sequence[_Chain], behind: Sequence[LaunchOp]
    ) -> LaunchOp | None:
        """The launch with these reductions, and launches behind them, where that is faster."""
        replaced: list[LaunchOp] = []
        for chain in chains:
            replaced += [op for op in (chain.turned, chain.source) if op is not None]
        replaced = [*dict.fromkeys(replaced), *behind]
        place = self._place(launch, replaced)
        if place is None:
            self._decline(launch, "it does not push its tiles: results are used meanwhile")
            return None
        if not all(chain.to_owners for chain in chains) and not self._meets_again(
            replaced, chains[0].reduction
        ):
            self._decline(
                launch,
                "it does not push its tiles to all: nothing else in the layer says that peers have "
                "read them",
            )
            return None
        new, values = self._with_sums(launch, chains, behind)
        self.block.insert_op_before(with_location(new, launch), place)
        way = launch.pull.data if launch.pull is not None else None
        ways = choose_fused(fused_problem(new, self.rates), self.rates)
        ways = tuple(s for s in ways if way is None or s.pull == way)
        where = "their owners" if all(chain.to_owners for chain in chains) else "all peers"
        what = f"pushes result tiles to {where}"
        if behind:
            names = " and ".join(op.sym_name.data for op in behind)
            what += f", with the work of {names} behind the sums"
        if not self._worth(launch, ways, replaced, what, behind):
            new.detach()
            new.erase()
            return None
        for value, result in zip(values, new.results, strict=True):
            result.name_hint = value.name_hint
            value.replace_all_uses_with(result)
        for op in reversed([launch, *replaced]):
            op.detach()
            op.erase(safe_erase=False)
        return new

    def _chains(self, launch: LaunchOp) -> list[_Chain]:
        """What leads from results of a launch to their sums, where a launch can do all of it."""
        chains: list[_Chain] = []
        for result in launch.results:
            chain, reason = self._chain(launch, result)
            if reason is not None:
                self._decline(launch, f"it does not push its tiles: {reason}")
            if chain is not None:
                chains.append(chain)
        while True:
            # A launch that turns or reduces other values, too, stays.
            known = {chain.result for chain in chains}
            turned = {chain.turned_value for chain in chains}
            kept = [
                chain
                for chain in chains
                if set(chain.source.inputs) <= known | turned
                and (chain.turned is None or set(chain.turned.inputs) <= known)
            ]
            if len(kept) == len(chains):
                return chains
            chains = kept
            if not kept:
                self._decline(
                    launch,
                    "it does not push its tiles: results of other launches are exchanged with them",
                )

    def _chain(self, launch: LaunchOp, result: OpResult) -> tuple[_Chain | None, str | None]:
        """The way of one result to its sum; or why there is none that a launch can go."""
        value: SSAValue = result
        turned: LaunchOp | None = None
        rope: nn.RopeOp | None = None
        user = _only_user([value])
        if user is not None and all(isinstance(op, nn.RopeOp) for op in ops_of(user)):
            ropes = [
                op
                for op in cast(list[nn.RopeOp], ops_of(user))
                if _outside(user, op.input) is value
            ]
            if len(ropes) != 1 or ropes[0].result not in user.yielded:
                return None, None
            turned, (rope,) = user, ropes
            value = user.results[user.yielded.index(rope.result)]
            user = _only_user([value])
        if user is None or user.kind.data != "collective":
            return None, None
        ops = ops_of(user)
        if len(ops) != 1 or not isinstance(ops[0], ReduceScatterOp | AllReduceOp):
            return None, None
        reduction, mesh = ops[0], mesh_of(launch)
        found = [
            n for n, operand in enumerate(reduction.inputs) if _outside(user, operand) is value
        ]
        if len(found) != 1 or reduction.outputs[found[0]] not in user.yielded:
            return None, None
        outer = user.results[user.yielded.index(reduction.outputs[found[0]])]
        chain = _Chain(result, turned, rope, value, user, reduction, found[0], outer)
        if reduction.reduction_kind != "sum":
            return None, f"they are combined by {reduction.reduction_kind}"
        if isinstance(reduction, ReduceScatterOp) and reduction.number("dim") == 2:
            if slice_starts(reduction, mesh) is None:
                return None, "the slices are not contiguous"
            owned = tensor(outer).get_shape()[2]
            if rope is not None and owned % rope.head_dim.value.data:
                return None, "the slices cut heads that are rotated"
        elif isinstance(reduction, ReduceScatterOp):
            if reduction.number("dim") != 1 or not self._reaches_cache(chain):
                return None, "rows are scattered, not columns"
        return chain, None

    def _reaches_cache(self, chain: _Chain) -> bool:
        """Whether scattered rows go to the places of a cache where they belong, and nowhere
        else."""
        user = _only_user([chain.outer])
        if user is None:
            return False
        mesh = mesh_of(user)
        for op in ops_of(user):
            if isinstance(op, nn.AppendOp) and _outside(user, op.input) is chain.outer:
                held, new = shard_of(op.result, 2, mesh), shard_of(op.input, 1, mesh)
                start, query = op.start.value.data, new.extent
                matching = held.map.window(start, query, held.ranks, held.extent)
                return (new.map, new.ranks, new.rank) == (matching, held.ranks, held.rank)
        return False

    def _behind(self, launch: LaunchOp, chains: Sequence[_Chain]) -> list[LaunchOp]:
        """The launches behind sums that can be done while the sums are in registers."""
        by_value = {chain.outer: chain for chain in chains}
        users = dict.fromkeys(
            user for chain in chains if (user := _only_user([chain.outer])) is not None
        )
        behind: list[LaunchOp] = []
        for user in users:
            if self._follows(launch, user, by_value):
                behind += [user, *self._joins(user)]
        return behind

    def _joins(self, norm: LaunchOp) -> list[LaunchOp]:
        """The launches that add up the sums of squares of a launch over devices."""
        found: list[LaunchOp] = []
        for result, inner in zip(norm.results, norm.yielded, strict=True):
            user = _only_user([result])
            reduction = _only_op(user, AllReduceOp)
            if (
                user is not None
                and isinstance(inner.owner, nn.SumSquaresOp)
                and isinstance(reduction, AllReduceOp)
                and reduction.reduction_kind == "sum"
                and len(reduction.inputs) == 1
                and self._meets_again([user], reduction)
            ):
                found.append(user)
        return found

    def _follows(self, launch: LaunchOp, user: LaunchOp, chains: Mapping[SSAValue, _Chain]) -> bool:
        ops, given = ops_of(user), [chains[v] for v in user.inputs if v in chains]
        if not all(isinstance(op, AFTER_SUMS) for op in ops):
            return False
        if any(_is_used_beside(chain.outer, user) for chain in given):
            return False
        if any(value.owner is launch for value in user.inputs):
            return False
        appends = [op for op in ops if isinstance(op, nn.AppendOp)]
        if appends:
            return (
                len(appends) == len(ops)
                and all(_outside(user, op.input) in chains for op in appends)
                and all(self._only_append(op) for op in appends)
                and all(
                    tensor(op.input).get_shape()[2] % tensor(op.result).get_shape()[3] == 0
                    for op in appends
                )
            )
        sums = {op.result for op in ops if isinstance(op, nn.SumSquaresOp)}
        if any(operand in sums for op in ops for operand in op.operands):
            return False
        # One collection: all values have the extents of the sums, which are made alike.
        extents = {tensor(chain.outer).get_shape() for chain in given}
        kinds = {(chain.to_owners, chain.rope is None) for chain in given}
        if len(extents) > 1 or len(kinds) > 1 or (kinds == {(True, True)} and sums):
            return False
        if any(isinstance(chain.reduction, ReduceScatterOp) != chain.to_owners for chain in given):
            return False
        shape = next(iter(extents))
        values = [op.results[0] for op in ops if op.results[0] not in sums]
        values += [op.operands[0] for op in ops]
        if any(tensor(value).get_shape() != shape for value in values):
            return False
        # Every value that is made has a sum in it, else it is nothing that the launch computes.
        made: set[SSAValue] = set()
        for op in ops:
            inner = {operand for operand in op.operands if _outside(user, operand) in chains}
            if inner or made & set(op.operands):
                made.add(op.results[0])
        return made >= set(user.yielded)

    def _only_append(self, op: nn.AppendOp) -> bool:
        """Whether the layer appends to the cache once."""
        others = [
            other
            for launch in self.block.ops
            for other in launch.walk()
            if isinstance(other, nn.AppendOp) and other.state == op.state
        ]
        return len(others) == 1

    def _meets_again(self, replaced: Sequence[LaunchOp], reduction: CollectiveOp) -> bool:
        """Whether all devices of the group of a reduction wait for each other elsewhere in the
        layer, so that nobody comes round again before the others have read what it sent."""
        axes = set(reduction.axes.data)
        return any(
            isinstance(op, CollectiveOp) and axes <= set(op.axes.data)
            for launch in self.block.ops
            if isinstance(launch, LaunchOp) and launch not in replaced
            for op in launch.block.ops
        )

    def _place(self, launch: LaunchOp, replaced: Sequence[LaunchOp]) -> LaunchOp | None:
        """The launch in front of which one that does the work of all can stand."""
        order = {op: number for number, op in enumerate(self.block.ops)}
        inside = {launch, *replaced}
        outer = [
            value.owner
            for op in inside
            for value in op.inputs
            if isinstance(value.owner, Operation) and value.owner not in inside
        ]
        if all(order[op] < order[launch] for op in outer):
            return launch
        last = max(replaced, key=lambda op: order[op])
        users = [use.operation for op in inside for value in op.results for use in value.uses]
        if any(user not in inside and order.get(user, len(order)) < order[last] for user in users):
            return None
        return last

    def _with_sums(
        self, launch: LaunchOp, chains: Sequence[_Chain], behind: Sequence[LaunchOp]
    ) -> tuple[LaunchOp, list[SSAValue]]:
        """A copy of a launch with reductions and what is behind them, and the values outside that
        its results stand for."""
        copy = launch.clone()
        block, terminator = copy.block, copy.block.last_op
        assert terminator is not None
        inside: dict[SSAValue, SSAValue] = dict(
            zip(launch.results, terminator.operands, strict=True)
        )
        inputs = list(launch.inputs)

        def add(op: Operation, source: Operation) -> Operation:
            op.location = source.location
            block.insert_op_before(op, terminator)
            return op

        for chain in chains:
            value = inside[chain.result]
            if chain.rope is not None:
                rope = add(chain.rope.clone({chain.rope.input: value}), chain.rope)
                value = rope.results[0]
            reduction = chain.reduction
            made = type(reduction).create(
                operands=[value],
                result_types=[reduction.outputs[chain.position].type],
                properties=dict(reduction.properties),
                attributes=dict(reduction.attributes),
            )
            inside[chain.outer] = add(made, reduction).results[0]

        def value_of(outer: SSAValue) -> SSAValue:
            if outer not in inside:
                if outer in inputs:
                    inside[outer] = block.args[inputs.index(outer)]
                else:
                    inside[outer] = block.insert_arg(outer.type, len(block.args))
                    inside[outer].name_hint = outer.name_hint
                    inputs.append(outer)
            return inside[outer]

        for follower in behind:
            mapping: dict[SSAValue, SSAValue] = {
                argument: value_of(outer)
                for argument, outer in zip(follower.block.args, follower.inputs, strict=True)
            }
            for op in ops_of(follower):
                clone = add(op.clone(mapping), op)
                mapping.update(zip(op.results, clone.results, strict=True))
            inside.update(
                (outer, mapping[inner])
                for outer, inner in zip(follower.results, follower.yielded, strict=True)
            )
        following = {value: op for op in behind for value in op.inputs}
        by_result = {chain.result: chain for chain in chains}
        values: dict[SSAValue, None] = {}

        def keep(value: SSAValue) -> None:
            if value not in following:
                values[value] = None
                return
            for result in following[value].results:
                keep(result)

        for result in launch.results:
            keep(by_result[result].outer if result in by_result else result)
        terminator.operands = [inside[value] for value in values]
        properties = dict(launch.properties)
        new = LaunchOp(
            launch.sym_name.data,
            launch.kind.data,
            inputs,
            copy.detach_region(copy.body),
            result_types=[value.type for value in values],
            properties=properties,
        )
        new.attributes.update(launch.attributes)
        copy.erase()
        return new, list(values)

    # Caches of peers

    def _pull_caches(self, launch: LaunchOp) -> None:
        """Takes the gathers of keys and values into an attention, which then reads the caches of
        peers tile by tile."""
        ops = ops_of(launch)
        if len(ops) != 1 or not isinstance(ops[0], nn.AttentionOp):
            return
        sources: list[LaunchOp] = []
        for value in (ops[0].key, ops[0].value):
            outer = _outside(launch, value)
            if outer is None or not isinstance(outer.owner, LaunchOp):
                return
            gather = _only_op(outer.owner, AllGatherOp)
            if not isinstance(gather, AllGatherOp):
                return
            reason = self._cache_obstacle(launch, outer, gather)
            if reason is not None:
                self._decline(launch, f"it does not read the caches of peers itself: {reason}")
                return
            if outer.owner not in sources:
                sources.append(outer.owner)
        rates, name = self.rates, launch.sym_name.data
        new = launch.clone()
        self.block.insert_op_before(with_location(new, launch), launch)
        self._gather_inside(new)
        if self.on_engines:
            self._go_around(launch, new, sources)
            return
        fused = launch_cost(new, rates).seconds
        separate = launch_cost(launch, rates).seconds
        separate += sum(launch_cost(op, rates).seconds + rates.gap_s for op in sources)
        numbers = {"fused_us": _us(fused), "separate_us": _us(separate)}
        if fused >= separate:
            new.detach()
            new.erase()
            self._decline(
                launch,
                f"separate launches are faster: {_us(separate):.1f} us, one that reads the caches "
                f"of peers itself {_us(fused):.1f} us",
                numbers,
            )
            return
        message = (
            f"{name} reads the caches of peers itself: {_us(fused):.1f} us instead of "
            f"{_us(separate):.1f} us"
        )
        remark = Remark("fused", message, location_of(launch), dict(numbers))
        self.sink.remarks.append((self.sink.pass_name, remark))
        self._replace(launch, new, sources)

    def _replace(self, launch: LaunchOp, new: LaunchOp, sources: Sequence[LaunchOp]) -> None:
        """Puts ``new`` in the place of an attention and the gathers in front of it."""
        new.results[0].name_hint = launch.results[0].name_hint
        launch.results[0].replace_all_uses_with(new.results[0])
        for op in (launch, *sources):
            op.detach()
            op.erase(safe_erase=False)

    def _go_around(self, launch: LaunchOp, new: LaunchOp, sources: Sequence[LaunchOp]) -> None:
        """On machines of cubes the kernel passes keys around the cubes of a group: no PE has room
        for all of them, and each is read where it is needed next."""
        ring = ring_of(new)
        new.properties["ring"] = integers(ring)
        name, rotations = launch.sym_name.data, len(ring) - 1
        for op in new.block.ops:
            if isinstance(op, AllGatherOp):
                op.algorithm = StringAttr("ring")
        message = (
            f"{name} gathers keys and values itself: they go around {ring_text(new)}, "
            f"in {counted(rotations, 'rotation')}"
        )
        numbers: dict[str, int | float] = {"cubes": len(ring), "rotations": rotations}
        remark = Remark("fused", message, location_of(launch), numbers)
        self.sink.remarks.append((self.sink.pass_name, remark))
        self._replace(launch, new, sources)

    def _cache_obstacle(self, launch: LaunchOp, outer: SSAValue, gather: AllGatherOp) -> str | None:
        if _is_used_beside(outer, launch):
            return "a gathered cache has other uses"
        if gather.number("dim") != 2:
            return "other dimensions than positions are gathered"
        encoding = encoding_of(outer.type, mesh_of(launch))
        if encoding is None or encoding.ranks(2) != 1:
            return "the gathered caches are not whole"
        return None

    def _gather_inside(self, launch: LaunchOp) -> None:
        """Replaces the gathered caches of a launch by gathers in its body."""
        block = launch.block
        (attention,) = [op for op in block.ops if isinstance(op, nn.AttentionOp)]
        for value in (attention.key, attention.value):
            assert isinstance(value, BlockArgument)
            index = value.index
            outer = launch.inputs[index]
            source = cast(LaunchOp, outer.owner)
            gather = cast(AllGatherOp, _only_op(source, AllGatherOp))
            position = list[SSAValue](gather.outputs).index(
                source.yielded[cast(OpResult, outer).index]
            )
            inner = _outside(source, gather.inputs[position])
            assert inner is not None
            argument = block.insert_arg(inner.type, index)
            argument.name_hint = value.name_hint
            copy = AllGatherOp.create(
                operands=[argument],
                result_types=[outer.type],
                properties=dict(gather.properties),
                attributes=dict(gather.attributes),
            )
            copy.location = gather.location
            block.insert_op_before(copy, attention)
            value.replace_all_uses_with(copy.results[0])
            block.erase_arg(value)
            launch.operands[index] = inner

    # Owners that merge

    def _merge(self, launch: LaunchOp) -> None:
        """Takes the reduce-scatter of a partial attention's heads, and their end, into it."""
        results = list(launch.results)
        op = ops_of(launch)[-1]
        if not isinstance(op, nn.PartialAttentionOp) or len(results) != 3:
            return
        source = _only_user(results)
        scatter = _only_op(source, ReduceScatterOp)
        if source is None or not isinstance(scatter, ReduceScatterOp):
            return
        last = _only_user(list(source.results))
        finish = _only_op(last, nn.LseFinishOp)
        if last is None or not isinstance(finish, nn.LseFinishOp):
            return
        reason = self._merge_obstacle(launch, source, scatter, last, finish)
        if self.on_engines and reason in (None, UNEVEN_OWNERS):
            self._merge_cubes(launch, scatter, source, finish, last)
            return
        if reason is not None:
            self._decline(launch, f"the owners of heads do not merge in it: {reason}")
            return
        rates = self.rates
        alone = launch_cost(launch, rates).seconds
        others = [launch_cost(other, rates).seconds + rates.gap_s for other in (source, last)]
        separate = alone + sum(others)
        moved = sum(tensor_bytes(tensor(value)) for value in scatter.inputs)
        link = rates.links.get(mesh_of(launch).link_class(scatter.axes.data) or "")
        crossing = moved / link.bytes_per_s + 3 * link.latency_s if link is not None else 0.0
        # Records go out through local memory and a launch behind may have to merge them.
        merged = alone + crossing + 8 * rates.latency_s
        merged += rates.gap_s + rates.prologue("attention")
        numbers = {
            "fused_us": _us(merged),
            "separate_us": _us(separate),
            "link_bytes": moved,
        }
        name = launch.sym_name.data
        if merged >= separate:
            self._decline(
                launch,
                f"separate launches are faster: {_us(separate):.1f} us, one whose owners merge "
                f"{_us(merged):.1f} us",
                numbers,
            )
            return
        message = (
            f"{name} sends what it has of each head to the head's owner, who merges: "
            f"{_us(merged):.1f} us instead of {_us(separate):.1f} us"
        )
        remark = Remark("fused", message, location_of(launch), dict(numbers))
        self.sink.remarks.append((self.sink.pass_name, remark))
        self._join(launch, scatter, source, finish, last)

    def _merge_cubes(
        self,
        launch: LaunchOp,
        scatter: ReduceScatterOp,
        source: LaunchOp,
        finish: nn.LseFinishOp,
        last: LaunchOp,
    ) -> None:
        """On machines of cubes partial results are merged along trees of the elements, in the
        kernel that makes them: it is the one that knows when they are ready."""
        name = launch.sym_name.data
        message = f"{name} merges its parts with those of its group and finishes the heads"
        ranks = mesh_of(launch).refs_size(scatter.axes.data)
        remark = Remark("fused", message, location_of(launch), {"ranks": ranks})
        self.sink.remarks.append((self.sink.pass_name, remark))
        self._join(launch, scatter, source, finish, last)

    def _merge_obstacle(
        self,
        launch: LaunchOp,
        source: LaunchOp,
        scatter: ReduceScatterOp,
        last: LaunchOp,
        finish: nn.LseFinishOp,
    ) -> str | None:
        parts = tuple(_outside(source, value) for value in scatter.inputs)
        if scatter.reduction_kind != "lse" or scatter.number("dim") != 2:
            return "its parts are not reduced to heads by lse"
        if parts != tuple(launch.results):
            return "its parts are scattered in another order"
        kept = tuple(_outside(last, value) for value in (finish.m, finish.l, finish.o))
        if kept != tuple(source.results) or source.yielded != tuple(scatter.outputs):
            return "its parts are finished in another order"
        starts = slice_starts(scatter, mesh_of(launch))
        if starts is None:
            return "the slices of heads are not contiguous"
        heads = tensor(scatter.inputs[0]).get_shape()[2]
        ranks = len(starts[0])
        owned = tensor(scatter.outputs[0]).get_shape()[2]
        if owned * ranks != heads or any(
            row != tuple(rank * owned for rank in range(ranks)) for row in starts
        ):
            return UNEVEN_OWNERS
        if finish.sink is not None:
            sink = _outside(last, finish.sink)
            if sink is None or isinstance(sink.owner, LaunchOp):
                return "its sink is computed"
        return None

    def _join(
        self,
        launch: LaunchOp,
        scatter: ReduceScatterOp,
        source: LaunchOp,
        finish: nn.LseFinishOp,
        last: LaunchOp,
    ) -> None:
        if finish.sink is not None:
            outer = _outside(last, finish.sink)
            assert outer is not None
            sink = self._argument(launch, outer)
        else:
            sink = None
        block = launch.block
        terminator = block.last_op
        assert terminator is not None
        yielded = list(terminator.operands)
        scattered = ReduceScatterOp.create(
            operands=yielded,
            result_types=[value.type for value in scatter.outputs],
            properties=dict(scatter.properties),
            attributes=dict(scatter.attributes),
        )
        scattered.location = scatter.location
        mapping: dict[SSAValue, SSAValue] = dict(
            zip((finish.m, finish.l, finish.o), scattered.results, strict=True)
        )
        if finish.sink is not None and sink is not None:
            mapping[finish.sink] = sink
        ended = finish.clone(mapping)
        ended.location = finish.location
        block.insert_ops_before([scattered, ended], terminator)
        terminator.operands = [ended.result]
        properties = dict(launch.properties)
        if self.unfuse:
            properties["unfuse"] = ArrayAttr([StringAttr(tax) for tax in self.unfuse])
        inputs = list(launch.inputs)
        new = LaunchOp(
            launch.sym_name.data,
            launch.kind.data,
            inputs,
            launch.detach_region(launch.body),
            result_types=[last.results[0].type],
            properties=properties,
        )
        new.attributes.update(launch.attributes)
        self.block.insert_op_before(with_location(new, launch), launch)
        new.results[0].name_hint = last.results[0].name_hint
        last.results[0].replace_all_uses_with(new.results[0])
        for op in (last, source, launch):
            op.detach()
            op.erase(safe_erase=False)

    # Choice and schedule

    def _worth(
        self,
        launch: LaunchOp,
        ways: Sequence[FusedSchedule],
        others: Sequence[LaunchOp],
        what: str,
        behind: Sequence[LaunchOp] = (),
    ) -> bool:
        """Whether the best fused schedule is faster than the launch and those that it replaces."""
        name, rates = launch.sym_name.data, self.rates
        if not ways:
            self._decline(
                launch,
                f"it does not do the exchange itself: no tile lets all of its workgroups, which "
                f"wait for peers, be resident on {rates.compute_units} compute units",
            )
            return False
        alone = launch_cost(launch, rates).seconds
        if is_fused(launch):
            alone = choose_fused(fused_problem(launch, rates), rates)[0].seconds
            alone += rates.prologue("gemm")
        separate = alone + sum(launch_cost(op, rates).seconds + rates.gap_s for op in others)
        fused = ways[0].seconds + rates.prologue("gemm")
        # Work behind sums takes as long as alone, but for the start of its kernel.
        for op in behind:
            fused += max(0.0, launch_cost(op, rates).seconds - rates.prologue(op.kind.data))
        numbers: dict[str, int | float] = {
            "fused_us": _us(fused),
            "separate_us": _us(separate),
            "link_bytes": int(ways[0].link_bytes),
        }
        for schedule in ways:
            if schedule.pull is not None and len(ways) > 1:
                numbers[f"{schedule.pull}_us"] = _us(schedule.seconds + rates.prologue("gemm"))
        way = f", {ways[0].pull} reads" if ways[0].pull is not None else ""
        if fused >= separate:
            self._decline(
                launch,
                f"separate launches are faster: {_us(separate):.1f} us, one that {what} "
                f"{_us(fused):.1f} us",
                numbers,
            )
            return False
        message = f"{name} {what}{way}: {_us(fused):.1f} us instead of {_us(separate):.1f} us"
        remark = Remark("fused", message, location_of(launch), dict(numbers))
        self.sink.remarks.append((self.sink.pass_name, remark))
        return True

    def _decline(
        self,
        launch: LaunchOp,
        reason: str,
        numbers: Mapping[str, int | float] = MappingProxyType({}),
    ) -> None:
        message = f"{launch.sym_name.data}: {reason}"
        remark = Remark("not-fused", message, location_of(launch), dict(numbers), declined=True)
        self.sink.remarks.append((self.sink.pass_name, remark))

    def _schedule(self, launch: LaunchOp) -> None:
        """Sets tile and grid, and the costs that are put back."""
        way = launch.pull.data if launch.pull is not None else None
        if way is not None and "hbm" in self.unfuse:
            way = "staged"
        found = [
            schedule
            for schedule in choose_fused(fused_problem(launch, self.rates), self.rates)
            if schedule.pull == way
        ]
        if found:
            set_fused(launch, found[0])
        if self.unfuse:
            launch.properties["unfuse"] = ArrayAttr([StringAttr(tax) for tax in self.unfuse])


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _outside(launch: LaunchOp, value: SSAValue) -> SSAValue | None:
    """The value outside for an argument of a launch's body."""
    if isinstance(value, BlockArgument) and value.block is launch.block:
        return launch.inputs[value.index]
    return None


def _is_used_beside(value: SSAValue, user: Operation) -> bool:
    return any(use.operation is not user for use in value.uses)


def _between(first: Operation, last: Operation) -> list[Operation]:
    """The operations of a block between two of its operations."""
    found: list[Operation] = []
    op = first.next_op
    while op is not None and op is not last:
        found.append(op)
        op = op.next_op
    return found if op is last else []


def _only_user(values: Sequence[SSAValue]) -> LaunchOp | None:
    """The launch that alone uses some values."""
    users = {use.operation for value in values for use in value.uses}
    if len(users) != 1 or any(not value.uses for value in values):
        return None
    (user,) = users
    return user if isinstance(user, LaunchOp) else None


def _only_op(launch: LaunchOp | None, kind: type[Operation]) -> Operation | None:
    """The operation of a launch that holds nothing else, of this kind."""
    if launch is None:
        return None
    ops = ops_of(launch)
    return ops[0] if len(ops) == 1 and isinstance(ops[0], kind) else None


def _single(value: SSAValue, kind: type[Operation]) -> Operation | None:
    """The operation of a launch that holds nothing else, of this kind with one operand, whose
    result ``value`` is."""
    if not isinstance(value.owner, LaunchOp):
        return None
    ops = ops_of(value.owner)
    if len(ops) != 1 or not isinstance(ops[0], kind) or len(ops[0].operands) != 1:
        return None
    return ops[0]
