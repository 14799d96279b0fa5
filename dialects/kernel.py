"""Kernels: which operations run as one launch, how they are cut into workgroups, and where their
data lies.

A function of this level holds ``kernel.launch`` operations and little else. Each launch wraps the
``nn`` and ``collective`` operations that it stands for, on local types, so that its meaning is
theirs; its attributes say how it is executed. Before ``plan-memory`` launches pass SSA values;
after it they read and write ``kernel.buffer`` symbols.

Values:

    %q, %k = kernel.launch @decoder.qk gemm (%x = %h : tensor<2x1x64xbf16>,
        %wq = %0 : tensor<64x64xbf16>, %wk = %1 : tensor<64x32xbf16>)
        -> (tensor<2x1x64xbf16>, tensor<2x1x32xbf16>) attributes {queue = 0 : i64} {
      %2 = nn.linear %x, %wq : ...
      %3 = nn.linear %x, %wk : ...
      kernel.yield %2, %3 : ...
    }

Buffers:

    kernel.launch @decoder.qk gemm reads (%x = @decoder.h : tensor<2x1x64xbf16>, ...)
        writes (@decoder.q, @decoder.k) attributes {...} { ... }

After ``plan-memory`` a function has no arguments and results; its attributes ``kernel.arguments``
and ``kernel.results`` (arrays of symbols) name the buffers that hold them. The buffer of a layer's
result is the buffer of the next layer's argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Dialect, Region, SSAValue
from xdsl.irdl import irdl_op_definition, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove
from xdsl.utils.exceptions import VerifyException

from starc.dialects.kernel_attributes import LaunchAttributes, YieldOp
from starc.dialects.kernel_buffers import BufferOp, LayoutAttr
from starc.dialects.kernel_kinds import LaunchKind
from starc.dialects.kernel_launch_rules import (
    LaunchSymbols,
    verify_over_buffers,
    verify_schedule,
)
from starc.dialects.kernel_launch_syntax import parse_launch, print_launch


@irdl_op_definition
class LaunchOp(LaunchAttributes):
    """One kernel launch: the operations in its body run as one grid of workgroups on every device.

    The body takes no value from outside but its arguments, and ``nn.append`` in it names its state.
    A launch has one **part** per yielded value, in order: part i computes the backward slice of
    operand i of ``kernel.yield`` and is one workgroup template; collectives, attention and norms
    are one part, whatever they yield. Workgroup numbers count on through the parts. Values:
    ``%arg = %operand`` pairs and results. Buffers (after ``plan-memory``):
    ``reads (%arg = @buffer : type)`` and ``writes (@buffer, ...)``, one per yielded value. A launch
    that appends to a cache writes the cache's buffer in place: only the new rows are stored.

    Attributes, absent until the pass in brackets sets them:

    ``kind`` [form-kernels]
        ``gemm`` (one or more ``nn.linear`` of the same input, and the scaling of rows of their
        results; with the exchanges around them and what is done with their sums where they are
        fused, a part then is a product), ``attention`` (whole or partial), ``norm`` (or sums of
        squares, and elementwise operations on the same rows),
        ``elementwise`` (a chain of elementwise operations and rope), ``append`` (rows of K and V
        to the caches, with the rope before them), ``embedding`` (also ``nn.last_token``: gathers
        of rows), ``collective``.
    ``queue`` [assign-queues]
        0 compute, 1 communication. Launches of a queue run in order; a launch runs after
        launches of other queues that write what it reads.
    ``tile`` [tile-kernels] - the part of the result (2-D view: leading dimensions are rows) that a
        workgroup computes.
        gemm ``[m, n, k]``: m rows, n columns, k the step of the loop over K; one for all parts.
        attention ``[rows, keys, d]``: rows of the query tile, keys a step, head size.
        norm ``[rows, columns]``: rows a workgroup; where columns are fewer than a row has, it goes
        through the row in such steps twice (sum of squares, then result).
        elementwise, embedding ``[rows, columns]``; columns are whole heads under rope.
        append ``[rows, head size]``: one head.
        collective ``[rows, columns]``: one piece of the payload (2-D view); pieces are numbered
        row-major, chunk c of n ranks is pieces ``c*p .. (c+1)*p`` with p = ceil(pieces / n), pieces
        past the end are empty. A gather's pieces are those of its operand (one chunk a rank), a
        scatter's those of its result.
        Rows of a [batch, query, feature] value: with ``q = min(query, rows)`` and
        ``b = max(1, min(batch, rows // q))`` a tile covers b sequences x q positions, so it never
        straddles sequences unevenly; row tiles = ceil(batch / b) * ceil(query / q), sequence-major
        (``starc.core.tiling.row_tiling``). Edge tiles are clipped.
    ``group`` [tile-kernels] - attention only: query heads of one task. g (heads / kv_heads) packs
        the heads that share a KV head into ``rows = query * g`` rows (decode, row = query * g +
        head in group); 1 takes one head and ``rows`` of its queries (prefill).
    ``split`` [tile-kernels]
        Workgroups that share one result tile: shares of K (gemm) or of the keys (attention), 1 for
        none. Share s of S takes steps ``s*c .. min((s+1)*c, steps)`` with c = ceil(steps / S).
    ``combine`` [tile-kernels]
        Present when split > 1. ``owner``: shares 1.. store their partial result in the workspace
        and signal, share 0 waits and adds them in order. ``kernel``: all store, and a second launch
        behind this one combines them in order of the shares; of an attention that may be one, as in
        libraries that always launch their second kernel.
    ``combine_rows`` [tile-kernels] - with combine ``kernel``: the second launch has
        ceil(rows of a tile / combine_rows) workgroups per result tile, each for that many rows.
        With combine ``owner``, of attention: so many of the first shares are owners, each of that
        many rows; then all shares store their partial result.
    ``combine_stages`` [tile-kernels] - slots of the shares that are read while they are combined.
    ``stages`` [tile-kernels] - slots of the tiles that are loaded in the inner loop (loads of
        step t + stages - 1 are issued while step t computes).
    ``chain`` - attention: picoseconds that a workgroup spends on a tile of keys beside what its
        engines take: steps that its warps take one after the other.
    ``rows_first`` - attention: the row tiles of a task follow each other: other than ``swizzle``
        says, row tile = order[u mod row tiles], task = u floordiv row tiles.
    ``streams`` [tile-kernels] - gemm without shares: so many persistent workgroups in all
        (stream-K). Of a part with T tiles of S steps and G workgroups, f rounds of tiles stay
        whole, and the (T - f*G) * S steps of the first tiles are shared out: workgroup w takes
        steps ``w*c .. (w+1)*c`` with c = ceil((T - f*G) * S / G), then the tiles
        T - f*G + i*G + w.
        The workgroup with the first step of a tile owns it; the others store what they have of it
        in the workspace and signal, and the owner adds that in the order of their numbers.
    ``whole_rounds`` [tile-kernels] - at most so many rounds f; absent: all but the last full one.
    ``multicast`` [tile-kernels] - gemm: so many neighbouring workgroups load the operand together
        that they have in common (weights where they are tiles of one column, else the input).
    ``grid`` [map-workgroups] - ``array<i64>``, workgroups per part; a collective has one part.
        gemm part: row tiles * column tiles * split, or its share of ``streams``;
        attention: tasks * row tiles * split with tasks = batch * local query heads / group;
        collective: workgroups that each take an equal contiguous share of the pieces of a chunk.
    ``swizzle`` [map-workgroups] - gemm ``[group, dies]``. Workgroup w of a part with R row tiles,
        C column tiles, T = R*C: share = w floordiv T, u = w mod T; with dies > 1 (it divides T)
        t = (u mod dies) * (T / dies) + u floordiv dies, else t = u; then, group dividing R,
        column = (t mod (group*C)) floordiv group,
        row = (t floordiv (group*C)) * group + t mod group.
        Of a launch with ``streams``, dies > 1 (it divides G) deals out workgroup numbers instead:
        w of the rule for ``streams`` is (w mod dies) * (G / dies) + w floordiv dies.
        Attention: with T = tasks * row tiles, share = w floordiv T, u = w mod T, task = u mod
        tasks, or with ``[1, dies]`` (dies > 1 divides tasks) that number t dealt out:
        (t mod dies) * (tasks / dies) + t floordiv dies;
        row tile = order[u floordiv tasks]. Tasks number [sequence, local KV
        head] when packed, [sequence, local query head] otherwise.
        Norms, elementwise chains, appends and embeddings walk tiles row by row:
        row tile = w floordiv C, column tile = w mod C.
    ``bands`` [map-workgroups] - of a gemm with several parts: each part's workgroups in so many
        equal bands, which start in turns, so that the parts read the same row tiles of their
        input at the same time.
    ``order`` [map-workgroups] - of an attention with several row tiles: the row tiles as they
        start; the longest first where it is absent.
    ``waves`` [tile-kernels] - waves of a workgroup.
    ``waits`` [map-workgroups] - present when workgroups wait for others of the launch: the grid
        fits the resident slots (checked).
    ``window_bytes`` [tile-kernels] - bytes in flight that waves and stages allow a workgroup.
    ``kernel_class`` [tile-kernels] - class of launch costs, a key of the target's prologues.
    ``piece_bytes`` [tile-kernels] - the size at which its accesses are cut: 4096, or 16384 where
        whole blocks of that size are contiguous.
    ``workspace`` [plan-memory] - buffers of partial results, f32, row-major. gemm: one,
        ``[shares, tiles of all parts, m, n]``, with ``streams`` ``[1, workgroups, m, n]``;
        attention: three, m and l ``[shares, tasks, rows]`` and o ``[shares, tasks, rows, d]``,
        in that order.
        shares = split for combine ``kernel``, split - 1 for ``owner`` (share s at s - 1).
        Tiles are numbered as t above, part after part. A chain of collectives: the values between
        them, symmetric.
    ``staging`` [plan-memory] - collective that receives from peers: one symmetric buffer
        ``[slots, pieces of a chunk, rows, columns]``, a slot per receiving step of its reduction
        (n - 1 for a ring), so a slot is written once a run. Other collectives have one for each
        component of each value, with a slot for every contribution that a device receives; in a
        chain of many ``chunks`` a slot holds two of them, which take turns. A gemm that pushes
        result tiles has one for each part that does, ``[ranks, batch, query, columns]``: what each
        rank has of the columns that the device adds up.
    ``chunks`` [pipeline-collectives] - several collectives one behind the other: in how many parts
        the data goes through them, so that all work at once.
    ``pull`` [fuse-compute-collectives] - gemm whose body begins with an all-gather: how slices of
        peers are read. ``uncached``: by every workgroup over the links; ``cached``: through the L2,
        so that the workgroups of a die share a fetch; ``staged``: some workgroups copy them to a
        local buffer (the last of ``workspace``), the others wait for what they need of it.
    ``ring`` [ring-prefill] - attention whose keys go around: the cubes of a group, by their number
        along the leading axes of the gather of keys, in the order of the ring; the devices of a
        cube are along the rest. It runs as one workgroup a device. Workspace, where the query rows
        are several tiles: m and l ``[row tiles, rows]``, o ``[row tiles, rows, d]``; staging: keys
        and values, ``[slots, positions of a share, d]`` each.
    ``ring_slots`` [tile-kernels] - those slots, the own block's among them.
    ``unfuse`` [fuse-compute-collectives] - costs of unfused kernels that a fused one pays again:
        ``hbm``, ``sync``.
    ``sub_tile`` [tile-kernels] - attention on engines: keys of a tile that one load brings.
    ``softmax`` [tile-kernels] - attention on engines: whether the softmax of a tile of keys is
        done by ``operations`` of the MATH engine one by one, or ``fused`` in one command.
    ``reduce_inside``, ``reduce_across`` [tile-kernels] - partial attention that is merged over
        memory cubes: the ways inside a cube and from cube to cube, of
        ``starc.core.collectives.reduction_trees``. ``staging`` then has the queues of both.
    """

    name = "kernel.launch"

    traits = traits_def(IsolatedFromAbove(), LaunchSymbols())

    def __init__(
        self,
        name: str,
        kind: str,
        inputs: Sequence[SSAValue],
        body: Region,
        *,
        result_types: Sequence[Attribute] = (),
        properties: Mapping[str, Attribute] | None = None,
    ) -> None:
        super().__init__(
            operands=[list(inputs)],
            result_types=[list(result_types)],
            properties={
                "sym_name": StringAttr(name),
                "kind": StringAttr(kind),
                **(properties or {}),
            },
            regions=[body],
        )

    def verify_(self) -> None:
        kind = self.kind.data
        if kind not in list(LaunchKind):
            known = [kind.value for kind in LaunchKind]
            raise VerifyException(f"unknown kind '{kind}', one of {known}")
        terminator = self.block.last_op
        if not isinstance(terminator, YieldOp):
            raise VerifyException("the body of a launch ends with kernel.yield")
        if self.uses_buffers:
            verify_over_buffers(self)
        elif self.writes is not None:
            raise VerifyException("a launch that writes buffers says which it reads")
        elif tuple(self.inputs.types) != tuple(self.block.arg_types):
            raise VerifyException("operands and arguments of the body have different types")
        elif tuple(self.results_.types) != tuple(terminator.operand_types):
            raise VerifyException("results and yielded values have different types")
        verify_schedule(self)

    @classmethod
    def parse(cls, parser: Parser) -> LaunchOp:
        return parse_launch(parser, cls)

    def print(self, printer: Printer) -> None:
        print_launch(self, printer)


Kernel = Dialect("kernel", [BufferOp, LaunchOp, YieldOp], [LayoutAttr])
