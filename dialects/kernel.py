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

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final, TypeAlias, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i64,
)
from xdsl.dialects.utils import AbstractYieldOperation
from xdsl.ir import Attribute, Block, Dialect, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import (
    IsolatedFromAbove,
    IsTerminator,
    SymbolTable,
    SymbolUserOpInterface,
)
from xdsl.utils.exceptions import VerifyException

from starc.dialects.kernel_buffers import BufferOp, LayoutAttr, element_bytes, logical_extents

__all__ = [
    "BufferOp",
    "Kernel",
    "LaunchOp",
    "LayoutAttr",
    "YieldOp",
    "element_bytes",
    "integers",
    "logical_extents",
    "symbols",
]

KINDS: Final = ("gemm", "attention", "norm", "elementwise", "append", "embedding", "collective")
ONE_PART: Final = ("attention", "norm", "collective")
"""Kinds whose workgroups compute all results of the launch."""

COMBINES: Final = ("owner", "kernel")
PULLS: Final = ("uncached", "cached", "staged")

Integers: TypeAlias = DenseArrayBase[IntegerType]


def integers(values: Iterable[int]) -> Integers:
    """An ``array<i64: ...>`` attribute."""
    return DenseArrayBase.from_list(i64, list(values))


def symbols(names: Iterable[str]) -> ArrayAttr[SymbolRefAttr]:
    """An array of symbol references."""
    return ArrayAttr([SymbolRefAttr(name) for name in names])


@irdl_op_definition
class YieldOp(AbstractYieldOperation[Attribute]):
    """Ends the body of a launch with the values that it produces."""

    name = "kernel.yield"

    traits = traits_def(IsTerminator())


class LaunchSymbols(SymbolUserOpInterface):
    """Buffers that a launch names exist, with the types of the values that stand for them."""

    def verify(self, op: Operation) -> None:
        launch = cast(LaunchOp, op)
        if not launch.uses_buffers:
            return
        block = launch.body.block
        terminator = block.last_op
        pairs = list(zip(launch.read_names, block.arg_types, strict=False))
        if isinstance(terminator, YieldOp):
            types = terminator.operand_types
            pairs += list(zip(launch.written_names, types, strict=False))
        for name, type in pairs:
            if self._buffer(op, name).type != type:
                raise VerifyException(f"@{name} is not of type {type}")
        for name in (*launch.workspace_names, *launch.staging_names):
            self._buffer(op, name)

    @staticmethod
    def _buffer(op: Operation, name: str) -> BufferOp:
        buffer = SymbolTable.lookup_symbol(op, name)
        if not isinstance(buffer, BufferOp):
            raise VerifyException(f"@{name} is not a kernel.buffer")
        return buffer


@irdl_op_definition
class LaunchOp(IRDLOperation):
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
        (``starc.core.kernel_schedules.tile_schedules.row_tiling``). Edge tiles are clipped.
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

    inputs = var_operand_def()
    results_ = var_result_def()
    body = region_def("single_block")

    sym_name = prop_def(StringAttr)
    kind = prop_def(StringAttr)
    reads = opt_prop_def(ArrayAttr[SymbolRefAttr])
    writes = opt_prop_def(ArrayAttr[SymbolRefAttr])
    queue = opt_prop_def(IntegerAttr)
    tile = opt_prop_def(DenseArrayBase)
    group = opt_prop_def(IntegerAttr)
    split = opt_prop_def(IntegerAttr)
    combine = opt_prop_def(StringAttr)
    combine_rows = opt_prop_def(IntegerAttr)
    combine_stages = opt_prop_def(IntegerAttr)
    stages = opt_prop_def(IntegerAttr)
    chain = opt_prop_def(IntegerAttr)
    rows_first = opt_prop_def(UnitAttr)
    streams = opt_prop_def(IntegerAttr)
    whole_rounds = opt_prop_def(IntegerAttr)
    multicast = opt_prop_def(IntegerAttr)
    grid = opt_prop_def(DenseArrayBase)
    swizzle = opt_prop_def(DenseArrayBase)
    bands = opt_prop_def(IntegerAttr)
    order = opt_prop_def(DenseArrayBase)
    waves = opt_prop_def(IntegerAttr)
    waits = opt_prop_def(UnitAttr)
    window_bytes = opt_prop_def(IntegerAttr)
    kernel_class = opt_prop_def(StringAttr)
    piece_bytes = opt_prop_def(IntegerAttr)
    workspace = opt_prop_def(ArrayAttr[SymbolRefAttr])
    staging = opt_prop_def(ArrayAttr[SymbolRefAttr])
    chunks = opt_prop_def(IntegerAttr)
    pull = opt_prop_def(StringAttr)
    ring = opt_prop_def(DenseArrayBase)
    ring_slots = opt_prop_def(IntegerAttr)
    unfuse = opt_prop_def(ArrayAttr[StringAttr])
    sub_tile = opt_prop_def(IntegerAttr)
    softmax = opt_prop_def(StringAttr)
    reduce_inside = opt_prop_def(StringAttr)
    reduce_across = opt_prop_def(StringAttr)

    traits = traits_def(IsolatedFromAbove(), LaunchSymbols())

    PRINTED: ClassVar = (
        "queue",
        "tile",
        "group",
        "split",
        "combine",
        "combine_rows",
        "combine_stages",
        "stages",
        "chain",
        "rows_first",
        "streams",
        "whole_rounds",
        "multicast",
        "grid",
        "swizzle",
        "bands",
        "order",
        "waves",
        "waits",
        "window_bytes",
        "kernel_class",
        "piece_bytes",
        "workspace",
        "staging",
        "chunks",
        "pull",
        "ring",
        "ring_slots",
        "unfuse",
        "sub_tile",
        "softmax",
        "reduce_inside",
        "reduce_across",
    )

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

    @property
    def block(self) -> Block:
        """The body's block."""
        return self.body.block

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """The values that the body yields, one per part."""
        terminator = self.block.last_op
        return tuple(terminator.operands) if isinstance(terminator, YieldOp) else ()

    @property
    def uses_buffers(self) -> bool:
        """Whether the launch reads and writes buffers (after ``plan-memory``)."""
        return self.reads is not None

    @property
    def read_names(self) -> tuple[str, ...]:
        return _names(self.reads)

    @property
    def written_names(self) -> tuple[str, ...]:
        return _names(self.writes)

    @property
    def workspace_names(self) -> tuple[str, ...]:
        return _names(self.workspace)

    @property
    def taxes(self) -> tuple[str, ...]:
        """The costs of unfused kernels that a fused one pays again (``unfuse``)."""
        return tuple(entry.data for entry in self.unfuse.data) if self.unfuse is not None else ()

    @property
    def staging_names(self) -> tuple[str, ...]:
        return _names(self.staging)

    def integer(self, key: str, default: int = 1) -> int:
        """An integer attribute (``split``, ``stages``, ``group``, ``queue``, ``waves``,
        ``window_bytes``, ``piece_bytes``), ``default`` where it is absent."""
        value = self.properties.get(key)
        return cast(IntegerAttr[IntegerType], value).value.data if value is not None else default

    def integers(self, key: str) -> tuple[int, ...]:
        """An integer list (``tile``, ``grid``, ``swizzle``), empty where it is absent."""
        value = self.properties.get(key)
        return tuple(cast(Integers, value).get_values()) if value is not None else ()

    @property
    def workgroups(self) -> int:
        """Workgroups of all parts."""
        return sum(self.integers("grid"))

    def verify_(self) -> None:
        kind = self.kind.data
        if kind not in KINDS:
            raise VerifyException(f"unknown kind '{kind}', one of {list(KINDS)}")
        terminator = self.block.last_op
        if not isinstance(terminator, YieldOp):
            raise VerifyException("the body of a launch ends with kernel.yield")
        if self.uses_buffers:
            self._verify_buffers(terminator)
        else:
            if self.writes is not None:
                raise VerifyException("a launch that writes buffers says which it reads")
            if tuple(self.inputs.types) != tuple(self.block.arg_types):
                raise VerifyException("operands and arguments of the body have different types")
            if tuple(self.results_.types) != tuple(terminator.operand_types):
                raise VerifyException("results and yielded values have different types")
        self._verify_schedule(len(terminator.operands))

    def _verify_buffers(self, terminator: YieldOp) -> None:
        if self.inputs or self.results_:
            raise VerifyException("a launch over buffers has no operands and no results")
        if len(self.read_names) != len(self.block.args):
            raise VerifyException("one argument of the body per buffer that is read")
        if len(self.written_names) != len(terminator.operands):
            raise VerifyException("one yielded value per buffer that is written")

    def _verify_schedule(self, yielded: int) -> None:
        for key in (
            "split",
            "combine_rows",
            "combine_stages",
            "stages",
            "group",
            "bands",
            "waves",
            "window_bytes",
            "streams",
            "multicast",
        ):
            if self.integer(key) < 1:
                raise VerifyException(f"{key} must be positive")
        if (self.chain or self.rows_first) and self.kind.data != "attention":
            raise VerifyException("chain and rows_first are of attention")
        if self.ring is not None and self.kind.data != "attention":
            raise VerifyException("ring is of attention")
        if sorted(self.integers("ring")) != list(range(len(self.integers("ring")))):
            raise VerifyException("a ring passes every cube once")
        if self.chain is not None and self.chain.value.data < 0:
            raise VerifyException("chain must not be negative")
        for key in ("tile", "grid", "swizzle"):
            if any(value < 1 for value in self.integers(key)):
                raise VerifyException(f"the entries of {key} must be positive")
        tile = self.integers("tile")
        rank = 3 if self.kind.data in ("gemm", "attention") else 2
        if tile and len(tile) != rank:
            raise VerifyException(f"the tile of a kernel of this kind has {rank} extents")
        parts = 1 if self.kind.data in ONE_PART else yielded
        if self.kind.data == "gemm":
            parts = sum(op.name == "nn.linear" for op in self.block.ops)
        if self.pull is not None and self.pull.data == "staged":
            parts += 1  # the workgroups that copy
        grid = self.integers("grid")
        if self.kind.data == "collective" and grid:
            parts = len(grid)  # as many templates as its schedules take
        if self.kind.data == "attention" and len(grid) == 2 and yielded == 1:
            parts = 2  # the owners that merge
        if grid and len(grid) != parts:
            raise VerifyException(f"grid has {len(grid)} entries for {parts} parts")
        if self.streams is not None and (self.kind.data != "gemm" or self.integer("split") > 1):
            raise VerifyException("streams are of a gemm without shares")
        always = self.kind.data == "attention" and self.combine == StringAttr("kernel")
        if tile and (self.integer("split") > 1 or always) != (self.combine is not None):
            raise VerifyException(
                "combine stands exactly where split is more than 1, and for one share of attention "
                "it is kernel"
            )
        if self.combine is not None and self.combine.data not in COMBINES:
            raise VerifyException(f"combine is one of {list(COMBINES)}")
        if self.pull is not None and self.pull.data not in PULLS:
            raise VerifyException(f"pull is one of {list(PULLS)}")

    @classmethod
    def parse(cls, parser: Parser) -> LaunchOp:
        properties: dict[str, Attribute] = {"sym_name": parser.parse_symbol_name()}
        properties["kind"] = StringAttr(parser.parse_identifier())
        operands: list[tuple[UnresolvedOperand, Attribute]] = []
        arguments: list[Parser.Argument] = []
        names: list[SymbolRefAttr] = []
        buffers = parser.parse_optional_keyword("reads") is not None

        def parse_input() -> None:
            argument = parser.parse_argument(expect_type=False)
            parser.parse_punctuation("=")
            operand = None
            if buffers:
                names.append(SymbolRefAttr(parser.parse_symbol_name()))
            else:
                operand = parser.parse_unresolved_operand()
            parser.parse_punctuation(":")
            type = parser.parse_type()
            arguments.append(argument.resolve(type))
            if operand is not None:
                operands.append((operand, type))

        parser.parse_comma_separated_list(parser.Delimiter.PAREN, parse_input)
        result_types: list[Attribute] = []
        if buffers:
            properties["reads"] = ArrayAttr(names)
            parser.parse_keyword("writes")
            written = parser.parse_comma_separated_list(
                parser.Delimiter.PAREN, parser.parse_symbol_name
            )
            properties["writes"] = ArrayAttr([SymbolRefAttr(name) for name in written])
        elif parser.parse_optional_punctuation("->"):
            result_types = list(
                parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
            )
        attributes = parser.parse_optional_attr_dict_with_keyword()
        given = dict(attributes.data) if attributes is not None else {}
        properties |= {key: value for key, value in given.items() if key in cls.PRINTED}
        body = parser.parse_region(arguments)
        return cls.create(
            operands=[parser.resolve_operand(operand, type) for operand, type in operands],
            result_types=result_types,
            properties=properties,
            attributes={key: value for key, value in given.items() if key not in cls.PRINTED},
            regions=[body],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(f" {self.kind.data} ")
        outer: Sequence[SSAValue | str] = self.inputs
        if self.uses_buffers:
            printer.print_string("reads ")
            outer = self.read_names

        def print_input(pair: tuple[SSAValue, SSAValue | str]) -> None:
            printer.print_ssa_value(pair[0])
            printer.print_string(" = ")
            if isinstance(pair[1], str):
                printer.print_symbol_name(pair[1])
            else:
                printer.print_ssa_value(pair[1])
            printer.print_string(" : ")
            printer.print_attribute(pair[0].type)

        with printer.in_parens():
            printer.print_list(list(zip(self.block.args, outer, strict=True)), print_input)
        if self.uses_buffers:
            printer.print_string(" writes ")
            with printer.in_parens():
                printer.print_list(self.written_names, printer.print_symbol_name)
        elif self.results_:
            printer.print_string(" -> ")
            with printer.in_parens():
                printer.print_list(self.results_.types, printer.print_attribute)
        shown = {key: self.properties[key] for key in self.PRINTED if key in self.properties}
        printer.print_op_attributes({**shown, **self.attributes}, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)


def _names(references: ArrayAttr[SymbolRefAttr] | None) -> tuple[str, ...]:
    if references is None:
        return ()
    return tuple(reference.root_reference.data for reference in references)


Kernel = Dialect("kernel", [BufferOp, LaunchOp, YieldOp], [LayoutAttr])
