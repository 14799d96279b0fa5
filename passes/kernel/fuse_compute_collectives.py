"""The pass ``fuse-compute-collectives``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.fused_schedules import Pull
from starc.diagnostics import InputError
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_fusion import is_fused
from starc.dialects.kernel_kinds import LaunchKind, Tax
from starc.passes.base import OptionValues, RemarkSink, StarcPass
from starc.passes.kernel.fusion.choice import FusionChoice
from starc.passes.kernel.fusion.gathered_caches import gather_caches_inside
from starc.passes.kernel.fusion.gathered_inputs import gather_inside
from starc.passes.kernel.fusion.merged_heads import merge_heads_inside
from starc.passes.kernel.fusion.pushed_results import reduce_inside
from starc.passes.kernel.fusion.row_scaling import scale_rows_inside
from starc.targets.target import Target

BY_ESTIMATE: Final = "auto"
"""The value of ``pull`` that leaves the way to the estimate."""


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
    VALUES: ClassVar[OptionValues] = {
        "unfuse": tuple(Tax),
        "pull": (BY_ESTIMATE, *Pull),
    }

    unfuse: tuple[str, ...] = ()
    """Costs of separate kernels that fused ones pay again: ``hbm``, ``sync``, ``launch``."""

    pull: str = BY_ESTIMATE
    """How slices of peers are read: ``auto`` by estimate, ``uncached``, ``cached`` or ``staged``.
    """

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        if problems := self.wrong_values():
            raise InputError(problems)
        rates = DeviceRates.of(target)
        unfuse = tuple(tax for tax in Tax if tax in self.unfuse)
        pull = None if self.pull == BY_ESTIMATE else Pull(self.pull)
        for function in module.ops:
            if isinstance(function, FuncOp) and not function.is_declaration:
                block, on_engines = function.body.block, bool(target.engines)
                _fuse(FusionChoice(block, rates, sink, pull, unfuse, on_engines))


def _fuse(choice: FusionChoice) -> None:
    """Fuses the launches of a function, one after the other."""
    for launch in [op for op in choice.block.ops if isinstance(op, LaunchOp)]:
        if launch.parent is not choice.block or launch.tile is not None:
            continue
        if launch.kind.data == LaunchKind.GEMM:
            scale_rows_inside(choice, launch)
            gather_inside(choice, launch)
            fused = reduce_inside(choice, launch)
            if is_fused(fused):
                choice.schedule(fused)
        elif launch.kind.data == LaunchKind.ATTENTION:
            merge_heads_inside(choice, launch)
            if launch.parent is choice.block:
                gather_caches_inside(choice, launch)
