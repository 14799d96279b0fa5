"""``shard-attention-sequence``: one copy of the KV cache, its positions dealt out to devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, cast

from xdsl.dialects.builtin import BFloat16Type, Float32Type, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from starc.analysis.attention_cost import Widths, link_seconds, step_seconds
from starc.analysis.reencoding import encoding, layers_of, reshard_before, set_encoding, shape_of
from starc.analysis.sharding_rules import module_mesh
from starc.core.collectives.reduction_trees import default_root, head_owners
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.sharding.attention_sharding import (
    AttentionShape,
    SequencePlan,
    cache_bytes,
    shard_sequence,
    shared_axes,
    with_owners,
)
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.link_bytes import LinkBytes
from starc.core.sharding.mesh import AxisRef, Mesh, axes_text
from starc.core.sharding.ring_sharding import ROWS, RingPlan, ring_sharding
from starc.core.sharding.shard_map import Contiguous
from starc.diagnostics import Diagnostic, InputError, counted
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.nn import (
    AppendOp,
    AttentionOp,
    FloatTensor,
    LseFinishOp,
    PartialAttentionOp,
    StackOp,
    StateOp,
)
from starc.dialects.sharding import AnyTensor, ReshardOp, global_type, is_local
from starc.passes.base import OptionValues, RemarkSink, StarcPass, with_location
from starc.targets.cubes import PE_MESH
from starc.targets.target import Target

MODES: Final = ("auto", "queries", "keys", "ring")
PARTIALS: Final = ("auto", "bf16", "f32")
MAPS: Final = ("cyclic", "contiguous")
OUTPUTS: Final = ("auto", "result", "root", "scatter")

NEGLIGIBLE_MEMORY: Final = 1 / 32
"""Of a device's memory: where caches of all layers that are kept more often than needed take no
more, time alone decides over how many devices positions are split."""


@dataclass(frozen=True)
class ShardAttentionSequencePass(StarcPass):
    """Splits KV caches along the sequence over the devices that would all keep the same heads.

    One-dimensional tensor parallelism replicates a KV head where there are more devices than heads:
    the devices read the same keys to attend with a few query heads each. After this pass each keeps
    some of the positions instead. The axes are those over which the cache is replicated, from the
    inner level outwards; positions are dealt out one by one (``block`` of them at a time), and the
    owner of a token is (sequence + position) modulo the devices, so that equal sequences do not
    write to one device. New keys and values go to their owners, each tensor by itself and in whole
    heads.

    ``mode`` says what travels. With ``queries`` every device gets the queries of all the group's
    heads, attends to its own positions (``nn.partial_attention``), and the parts are merged by the
    owner of each head: one reshard of an ``lse`` partial, which becomes a reduce-scatter where the
    heads divide over the axes and an all-reduce over the rest. The sink counts there, once. With
    ``keys`` the cache is put together in front of ``nn.attention``. ``ring`` (machines of cubes) is
    that with query rows split over the devices that have the same query heads, the PEs of a cube;
    the attention's kernel then passes keys around the cubes
    (``starc.core.sharding.ring_sharding``; ``rows`` says how rows are dealt out; positions are
    dealt out by tiles of keys unless ``block`` says otherwise). ``auto`` takes what moves fewer
    bytes: queries in decode and for a chunk of a long context, keys for a prompt. ``partial`` is
    the type of the parts' values; ``auto`` is bf16 for a model of bf16, else f32, and f32 on
    machines of cubes.

    ``output`` says who finishes which heads. Where it is not the result's own distribution, a
    reshard from the owners to that stands behind.

    With ``auto`` the number of devices follows the estimate of a decode step at this context: where
    the exchange costs more than it saves, positions are split over fewer devices or not at all, as
    long as the copies are a negligible part of memory. Other modes take all devices.

    Contract: encodings of states, of new keys and values and of attention change, and reshards
    stand between; ``sharding_rules.check`` finds nothing; results keep their encodings. Needs
    ``propagate-shardings``.

    Before:

    ```mlir
    // options: {mode="queries"}
    sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]
    nn.state @decoder.k_cache : tensor<3x2x32x8xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
    nn.state @decoder.v_cache : tensor<3x2x32x8xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
    func.func @decoder(%q : tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>,
                       %k : tensor<3x1x16xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>)
        -> tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> {
      %0 = nn.append @decoder.k_cache, %k {start = 31 : i64}
        : tensor<3x1x16xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
        -> tensor<3x2x32x8xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
      %1 = nn.append @decoder.v_cache, %k {start = 31 : i64}
        : tensor<3x1x16xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
        -> tensor<3x2x32x8xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
      %2 = nn.attention %q, %0, %1
        {head_dim = 8 : i64, start = 31 : i64, scale = 0.25 : f64, causal}
        : tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>,
          tensor<3x2x32x8xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>,
          tensor<3x2x32x8xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
        -> tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
      func.return %2 : tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]
    nn.state @decoder.k_cache
      : tensor<3x2x32x8xbf16, #sharding.of<@node, [{}, {"gpu"}, {"xcd"} cyclic(1, by = 0), {}]>>
    nn.state @decoder.v_cache
      : tensor<3x2x32x8xbf16, #sharding.of<@node, [{}, {"gpu"}, {"xcd"} cyclic(1, by = 0), {}]>>
    func.func @decoder(%q : tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>,
                       %k : tensor<3x1x16xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>)
        -> tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> {
      %0 = sharding.reshard %k
        : tensor<3x1x16xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
        -> tensor<3x1x16xbf16,
                  #sharding.of<@node, [{}, {"xcd"} cyclic(1, offset = 1, by = 0), {"gpu"}]>>
      %1 = nn.append @decoder.k_cache, %0 {start = 31 : i64}
        : tensor<3x1x16xbf16,
                  #sharding.of<@node, [{}, {"xcd"} cyclic(1, offset = 1, by = 0), {"gpu"}]>>
        -> tensor<3x2x32x8xbf16, #sharding.of<@node, [{}, {"gpu"}, {"xcd"} cyclic(1, by = 0), {}]>>
      %2 = sharding.reshard %k
        : tensor<3x1x16xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
        -> tensor<3x1x16xbf16,
                  #sharding.of<@node, [{}, {"xcd"} cyclic(1, offset = 1, by = 0), {"gpu"}]>>
      %3 = nn.append @decoder.v_cache, %2 {start = 31 : i64}
        : tensor<3x1x16xbf16,
                  #sharding.of<@node, [{}, {"xcd"} cyclic(1, offset = 1, by = 0), {"gpu"}]>>
        -> tensor<3x2x32x8xbf16, #sharding.of<@node, [{}, {"gpu"}, {"xcd"} cyclic(1, by = 0), {}]>>
      %4 = sharding.reshard %q
        : tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
        -> tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
      %5, %6, %7 = nn.partial_attention %4, %1, %3
        {head_dim = 8 : i64, start = 31 : i64, scale = 0.25 : f64, causal}
        : tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>,
          tensor<3x2x32x8xbf16, #sharding.of<@node, [{}, {"gpu"}, {"xcd"} cyclic(1, by = 0), {}]>>,
          tensor<3x2x32x8xbf16, #sharding.of<@node, [{}, {"gpu"}, {"xcd"} cyclic(1, by = 0), {}]>>
        -> tensor<3x1x4xf32, #sharding.of<@node, [{}, {}, {"gpu"}], partial = lse{"xcd"}>>,
           tensor<3x1x4xf32, #sharding.of<@node, [{}, {}, {"gpu"}], partial = lse{"xcd"}>>,
           tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = lse{"xcd"}>>
      %8, %9, %10 = sharding.reshard %5, %6, %7
        : tensor<3x1x4xf32, #sharding.of<@node, [{}, {}, {"gpu"}], partial = lse{"xcd"}>>,
          tensor<3x1x4xf32, #sharding.of<@node, [{}, {}, {"gpu"}], partial = lse{"xcd"}>>,
          tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = lse{"xcd"}>>
        -> tensor<3x1x4xf32, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>,
           tensor<3x1x4xf32, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>,
           tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
      %11 = nn.lse_finish %8, %9, %10 {head_dim = 8 : i64}
        : tensor<3x1x4xf32, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>,
          tensor<3x1x4xf32, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>,
          tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
        -> tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
      func.return %11 : tensor<3x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
    }
    ```
    """

    name = "shard-attention-sequence"
    VALUES: ClassVar[OptionValues] = {
        "mode": MODES,
        "partial": PARTIALS,
        "rows": ROWS,
        "map": MAPS,
        "output": OUTPUTS,
    }

    mode: str = "auto"
    """What travels: ``queries``, ``keys`` (and values), or ``auto``."""

    partial: str = "auto"
    """Element type of the parts' values: ``bf16``, ``f32`` or ``auto``."""

    block: int | None = None
    """Positions that lie together on a device; only of the map ``cyclic``. By default one, and with
    ``ring`` a tile of keys."""

    rows: str = "auto"
    """How query rows are dealt out with ``ring``: ``cyclic``, ``contiguous``, ``zigzag`` (a chunk
    from the front and one from the back), or ``auto``."""

    map: str = "cyclic"
    """How positions are dealt out: ``cyclic`` or ``contiguous``."""

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        self._check_options(target)
        mesh = module_mesh(module)
        rates = DeviceRates.of(target)
        caches = _Caches.of(module)
        for layer in layers_of(module):
            for op in list(layer.body.block.ops):
                if isinstance(op, AttentionOp):
                    _Rewrite(self, op, mesh, rates, caches, target, sink).run()

    output: str = "auto"
    """Who finishes which heads: ``result`` (as the result has them), ``root`` (one device of a
    group, at the center of its cubes, has all), ``scatter`` (each head has one owner, over cubes
    and their elements), or ``auto``: ``scatter`` on machines of cubes, else ``result``."""

    def _check_options(self, target: Target) -> None:
        """Raises ``InputError`` with everything that is wrong with the options."""
        able = MODES if target.engines else tuple(mode for mode in MODES if mode != "ring")
        diagnostics = self.wrong_values(target.name, mode=able)
        if self.block is None:
            pass
        elif self.block < 1:
            message = f"block of {self.name} must be at least 1, got {self.block}"
            diagnostics.append(Diagnostic(message))
        elif self.block > 1 and self.map != "cyclic":
            message = f"block of {self.name} needs the map cyclic, not {self.map}"
            diagnostics.append(Diagnostic(message))
        if diagnostics:
            raise InputError(diagnostics)


@dataclass(frozen=True)
class _Caches:
    """The states of a module, the operations that append to them, and how many layers have one."""

    states: dict[str, StateOp]
    appends: dict[str, list[AppendOp]]
    layers: dict[FuncOp, int]

    @classmethod
    def of(cls, module: ModuleOp) -> _Caches:
        found = cls({}, {}, {})
        counts: dict[str, int] = {}
        for op in module.walk():
            if isinstance(op, StateOp):
                found.states[op.sym_name.data] = op
            elif isinstance(op, AppendOp):
                found.appends.setdefault(op.state.string_value(), []).append(op)
            elif isinstance(op, StackOp):
                for name, count in op.entries:
                    counts[name] = counts.get(name, 0) + count
        for layer in layers_of(module):
            found.layers[layer] = counts.get(layer.sym_name.data, 1)
        return found


@dataclass
class _Rewrite:
    """One attention."""

    options: ShardAttentionSequencePass
    op: AttentionOp
    mesh: Mesh
    rates: DeviceRates
    caches: _Caches
    target: Target
    sink: RemarkSink
    step_us: dict[int, float] = field(default_factory=dict[int, float])
    """Estimates of a decode step by the devices that share positions, where they were made."""
    no_ring: bool = False
    """Whether keys cannot go around, as they would for this many queries."""
    for_memory: bool = False
    """Whether the copies would take so much memory that time did not decide."""

    def run(self) -> None:
        op = self.op
        appends = self._appends()
        if isinstance(appends, str):
            self._decline(appends)
            return
        cache = encoding(op.key, self.mesh)
        axes = shared_axes(cache)
        if not axes:
            self._decline("no two devices keep the same keys", replication=1)
            return
        if self._rows_are_split(axes):
            self._decline("its queries are split over the devices that keep the same keys")
            return
        shape = self._shape()
        if self._rotates_keys(shape, axes):
            ring = self._ring(shape)
            if not isinstance(ring, str):
                self._rotate(ring, appends)
                return
            self._decline(f"keys do not go around: {ring}")
            if self.options.mode == "ring":
                return
            self.no_ring = True
        cache = self._with_whole_groups(shape, cache)
        plan = self._plan(shape, shared_axes(cache), cache)
        if plan is None:
            return
        gathers_queries = self._gathers_queries(plan)
        self._report(plan, gathers_queries)
        self._store(plan, appends)
        if gathers_queries:
            self._split(plan)
        else:
            if self.options.output not in ("auto", "result"):
                self.sink.remark(
                    "sequence-sharding",
                    f"{self._names()}: output={self.options.output} changes nothing: keys travel, "
                    "not queries, and heads end where the result has them",
                    op,
                    declined=True,
                )
            for index, value in ((1, op.key), (2, op.value)):
                op.operands[index] = reshard_before(op, value, plan.gathered)

    # What there is

    def _appends(self) -> tuple[AppendOp, ...] | str:
        """The operations that make the keys and the values, or why they cannot be split."""
        found: list[AppendOp] = []
        for what, value in (("keys", self.op.key), ("values", self.op.value)):
            append = value.owner
            if not isinstance(append, AppendOp) or is_local(value.type):
                return f"its {what} are not what the layer appends to a cache"
            name = append.state.string_value()
            users = {use.operation for use in value.uses}
            if len(self.caches.appends[name]) > 1 or users != {self.op}:
                return f"@{name} has other users"
            found.append(append)
        if encoding(self.op.key, self.mesh) != encoding(self.op.value, self.mesh):
            return "keys and values are split in different ways"
        return tuple(found)

    def _rows_are_split(self, axes: Sequence[AxisRef]) -> bool:
        """Whether sequences or new tokens are split over some of the axes."""
        used = [
            ref
            for value in (self.op.query, self.op.result)
            for sharding in encoding(value, self.mesh).dims[:2]
            for ref in sharding.axes
        ]
        return any(self.mesh.overlap(ref, other) for ref in used for other in axes)

    def _shape(self) -> AttentionShape:
        op = self.op
        batch, query, features = shape_of(op.query)
        _, kv_heads, positions, head_dim = shape_of(op.key)
        return AttentionShape(
            batch,
            query,
            features // head_dim,
            kv_heads,
            head_dim,
            op.start.value.data,
            positions,
            op.causal is not None,
            op.window.value.data if op.window is not None else None,
            op.keep.value.data if op.keep is not None else 0,
        )

    def _partial_type(self) -> Attribute:
        element = cast(AnyTensor, self.op.result.type).element_type
        is_narrow = isinstance(element, BFloat16Type)
        is_narrow = is_narrow and not self.target.engines
        if self.options.partial == "bf16" or (self.options.partial == "auto" and is_narrow):
            return BFloat16Type()
        return Float32Type()

    def _widths(self) -> Widths:
        return Widths(
            element_bytes(cast(AnyTensor, self.op.query.type)),
            element_bytes(cast(AnyTensor, self.op.key.type)),
            2 if isinstance(self._partial_type(), BFloat16Type) else 4,
        )

    # What is chosen

    def _with_whole_groups(self, shape: AttentionShape, cache: Encoding) -> Encoding:
        """The cache with its KV heads over outer levels alone, where the innermost level has
        several axes and the queries go to the keys: a group then has several KV heads together,
        which its devices attend to in turn, and shares the positions of each."""
        mesh, heads = self.mesh, cache.dims[1]
        inner = mesh.level_axes(mesh.levels()[-1])
        outer = tuple(ref for ref in heads.axes if AxisRef(ref.name) not in inner)
        if not mesh.is_nested or outer == heads.axes or not isinstance(heads.map, Contiguous):
            return cache
        grouped = cache.with_dim(1, outer)
        plans = self._candidates(shape, shared_axes(grouped), grouped)
        return grouped if self._gathers_queries(plans[-1]) else cache

    def _plan(
        self, shape: AttentionShape, shared: tuple[AxisRef, ...], cache: Encoding
    ) -> SequencePlan | None:
        """The plan over as many of the shared axes as pays; ``None``, remarked, if none does."""
        plans = self._candidates(shape, shared, cache)
        largest = plans[-1]
        if self.options.mode != "auto":
            return largest
        op = self.op
        given, whole = encoding(op.query, self.mesh), encoding(op.key, self.mesh)
        dtype = str(cast(AnyTensor, op.query.type).element_type)
        seconds: dict[int, float] = {
            plan.ranks if plan is not None else 1: step_seconds(
                plan, shape, given, whole, self._widths(), dtype, self.target
            )
            for plan in (None, *plans)
        }
        layer = op.parent_op()
        assert isinstance(layer, FuncOp)
        copies = cache_bytes(shape, whole, self._widths().cache)
        budget = self.target.device_memory_bytes * NEGLIGIBLE_MEMORY
        self.step_us = {ranks: _us(found) for ranks, found in seconds.items()}
        fastest = min(seconds, key=lambda ranks: (seconds[ranks], -ranks))
        if copies * self.caches.layers[layer] > budget:
            self.for_memory = seconds[largest.ranks] > seconds[1]
            return largest
        plan = next((plan for plan in plans if plan.ranks == fastest), None)
        if plan is not largest:
            self._decline(
                f"a decode step is estimated at {self.step_us[fastest]} us with positions on "
                f"{counted(fastest, 'device')} and at {self.step_us[largest.ranks]} us on "
                f"{largest.ranks}: the exchange of queries and parts costs more than the shorter "
                "read saves",
                ranks=fastest,
                step_us=self.step_us[fastest],
                all_ranks=largest.ranks,
                all_ranks_step_us=self.step_us[largest.ranks],
                kv_bytes=copies,
            )
        return plan

    def _candidates(
        self, shape: AttentionShape, shared: tuple[AxisRef, ...], cache: Encoding
    ) -> list[SequencePlan]:
        """Plans for every number of devices that the shared axes offer, the largest last; inner
        axes are taken first."""
        op, size = self.op, self.mesh.refs_size(shared)
        plans: list[SequencePlan] = []
        for count in range(2, size + 1):
            axes = self.mesh.trailing_factors(shared, count)[0]
            if size % count or self.mesh.refs_size(axes) != count:
                continue
            plan = shard_sequence(
                shape,
                encoding(op.query, self.mesh),
                cache,
                encoding(op.result, self.mesh),
                axes,
                self.options.map,
                self.options.block or 1,
            )
            plans.append(self._with_owners(plan))
        return plans

    def _with_owners(self, plan: SequencePlan) -> SequencePlan:
        """The plan with the owners of heads that are asked for."""
        output = self.options.output
        if output == "auto":
            output = "scatter" if self.target.engines else "result"
        if output == "result":
            return plan
        heads = plan.shape.heads // self.mesh.refs_size(plan.parts.dims[2].axes)
        elements = 1
        for ref in plan.axes:
            if self.mesh.axis(ref.name).link_class == PE_MESH:
                elements *= self.mesh.ref_size(ref)
        cubes = plan.ranks // elements
        ranks = head_owners(heads, cubes, elements)
        if output == "root":
            ranks = (default_root(cubes, elements),) * heads
        found = with_owners(plan, ranks)
        if found is None:
            self._decline("its heads are not split evenly: they end where the result has them")
            return plan
        return found

    def _gathers_queries(self, plan: SequencePlan) -> bool:
        if self.no_ring:
            return True
        if self.options.mode != "auto":
            return self.options.mode == "queries"
        widths = self._widths()
        queries = plan.query_bytes(widths.activation, widths.partial)
        keys = plan.key_bytes(widths.cache)
        return link_seconds(queries, self.rates) <= link_seconds(keys, self.rates)

    # Keys that go around

    def _rotates_keys(self, shape: AttentionShape, shared: tuple[AxisRef, ...]) -> bool:
        """Whether keys travel, and the kernel passes them on: on machines of cubes, of many
        queries."""
        if self.options.mode != "auto":
            return self.options.mode == "ring"
        is_prompt = shape.query > 1 and bool(self.target.engines)
        if not is_prompt:
            return False
        cache = encoding(self.op.key, self.mesh)
        return not self._gathers_queries(self._candidates(shape, shared, cache)[-1])

    def _ring(self, shape: AttentionShape) -> RingPlan | str:
        return ring_sharding(
            shape,
            encoding(self.op.query, self.mesh),
            encoding(self.op.key, self.mesh),
            encoding(self.op.result, self.mesh),
            self.options.map,
            self.options.block or 0,
            self.options.rows,
        )

    def _rotate(self, ring: RingPlan, appends: Sequence[AppendOp]) -> None:
        """Splits caches and query rows; the cache is put together in front of the attention."""
        op, plan, names = self.op, ring.sequence, self._names()
        self._store(plan, appends)
        op.operands[0] = reshard_before(op, op.query, ring.queries)
        for index, value in ((1, op.key), (2, op.value)):
            op.operands[index] = reshard_before(op, value, plan.gathered)
        wanted = cast(AnyTensor, op.result.type)
        if ring.result != encoding(op.result, self.mesh):
            users = [(use.operation, use.index) for use in op.result.uses]
            set_encoding(op.result, ring.result)
            back = with_location(ReshardOp([op.result], [wanted]), op)
            Rewriter.insert_op(back, InsertPoint.after(op))
            back.outputs[0].name_hint = op.result.name_hint
            for user, index in users:
                user.operands[index] = back.outputs[0]
        widths, rotations = self._widths(), ring.rotations
        sent = ring.sent_bytes(widths.cache)
        rows = ring.queries.dims[1]
        spread = f"lie over {rows}" if rows.axes else "are not split"
        self.sink.remark(
            "sequence-sharding",
            f"{names}: positions are split over {{{axes_text(plan.axes)}}}, and keys and "
            f"values go around {{{axes_text(ring.cubes)}}} in {counted(rotations, 'rotation')}, "
            f"{sent:,} bytes sent by a device; query rows {spread}",
            op,
            declined=False,
            ranks=plan.ranks,
            rotations=rotations,
            key_bytes=sent,
            kv_bytes_before=cache_bytes(plan.shape, plan.gathered, widths.cache),
            kv_bytes=cache_bytes(plan.shape, plan.cache, widths.cache),
            moved="keys",
        )

    # What is written

    def _store(self, plan: SequencePlan, appends: Sequence[AppendOp]) -> None:
        """Splits the caches, and sends new keys and values to their owners."""
        for append in appends:
            state = self.caches.states[append.state.string_value()]
            state.properties["type"] = global_type(cast(AnyTensor, state.type), plan.cache)
            append.operands[0] = self._to_owners(append, plan.new)
            set_encoding(append.result, plan.cache)

    def _to_owners(self, append: AppendOp, wanted: Encoding) -> SSAValue:
        """The new keys or values under their owners' encoding. A reshard that only they need is
        left out, so that a partial sum goes to the owners at once."""
        value = append.input
        source = value.owner
        if (
            isinstance(source, ReshardOp)
            and len(source.inputs) == 1
            and all(use.operation is append for use in value.uses)
        ):
            value = source.inputs[0]
        result = reshard_before(append, value, wanted)
        if isinstance(source, ReshardOp) and value is not append.input:
            append.operands[0] = result
            source.detach()
            source.erase()
        return result

    def _split(self, plan: SequencePlan) -> None:
        """Attention over a device's own positions, and the merge of the parts by the owners."""
        op = self.op
        queries = reshard_before(op, op.query, plan.queries)
        rows: AnyTensor = TensorType(Float32Type(), plan.shape.rows)
        columns: AnyTensor = TensorType(self._partial_type(), plan.shape.columns)
        parts = PartialAttentionOp(
            queries,
            op.key,
            op.value,
            head_dim=plan.shape.head_dim,
            start=plan.shape.start,
            scale=op.scale.value.data,
            causal=plan.shape.causal,
            types=[
                cast(FloatTensor, global_type(rows, plan.part_rows)),
                cast(FloatTensor, global_type(rows, plan.part_rows)),
                cast(FloatTensor, global_type(columns, plan.parts)),
            ],
            window=plan.shape.window,
            keep=plan.shape.keep or None,
        )
        merged = ReshardOp(
            list(parts.results),
            [
                global_type(rows, plan.owner_rows),
                global_type(rows, plan.owner_rows),
                global_type(columns, plan.owners),
            ],
        )
        result = cast(AnyTensor, op.result.type)
        finish = LseFinishOp(
            *merged.outputs,
            head_dim=plan.shape.head_dim,
            type=cast(FloatTensor, global_type(result, plan.owners)),
            sink=self._owned_sink(plan),
        )
        for name, part, whole in zip("mlo", parts.results, merged.outputs, strict=True):
            part.name_hint = whole.name_hint = name
        finish.result.name_hint = op.result.name_hint
        new: list[Operation] = [parts, merged, finish]
        for inserted in new:
            with_location(inserted, op)
            Rewriter.insert_op(inserted, InsertPoint.before(op))
        final = finish.result
        if plan.owners != encoding(op.result, self.mesh):
            back = ReshardOp([final], [result])
            with_location(back, op)
            Rewriter.insert_op(back, InsertPoint.before(op))
            final = back.outputs[0]
            final.name_hint = op.result.name_hint
        op.result.replace_all_uses_with(final)
        op.detach()
        op.erase()

    def _owned_sink(self, plan: SequencePlan) -> SSAValue | None:
        """The sink's logits of the heads that a device owns."""
        if self.op.sink is None:
            return None
        heads = plan.owner_rows.dims[2]
        wanted = Encoding.replicated(self.mesh, 1).with_dim(0, heads.axes, heads.map)
        return reshard_before(self.op, self.op.sink, wanted)

    # What is said

    def _names(self) -> str:
        names = [
            f"@{value.owner.state.string_value()}"
            for value in (self.op.key, self.op.value)
            if isinstance(value.owner, AppendOp)
        ]
        return " and ".join(dict.fromkeys(names)) or "this attention"

    def _decline(self, reason: str, **numbers: int | float | str) -> None:
        over = " over all devices" if numbers.get("ranks", 1) != 1 else ""
        self.sink.remark(
            "sequence-sharding",
            f"{self._names()}: positions are not split{over}: {reason}",
            self.op,
            declined=True,
            **numbers,
        )

    def _report(self, plan: SequencePlan, gathers_queries: bool) -> None:
        widths = self._widths()
        before = cache_bytes(plan.shape, plan.gathered, widths.cache)
        after = cache_bytes(plan.shape, plan.cache, widths.cache)
        replication = plan.gathered.replication
        left = plan.cache.replication
        queries = _total(plan.query_bytes(widths.activation, widths.partial))
        keys = _total(plan.key_bytes(widths.cache))
        dealt = "in stretches"
        if self.options.map == "cyclic":
            dealt = f"by {self.options.block}" if (self.options.block or 1) > 1 else "one by one"
        moved = f"queries are gathered and parts merged, {queries:,} bytes sent by a device"
        other = f"keys and values would be {keys:,}"
        if not gathers_queries:
            moved = f"keys and values are gathered, {keys:,} bytes sent by a device"
            other = f"queries and parts would be {queries}"
        estimates: dict[str, float] = {}
        reason = ""
        if self.step_us:
            estimates = {"step_us_before": self.step_us[1], "step_us": self.step_us[plan.ranks]}
            reason = (
                f"; a decode step is estimated at {self.step_us[plan.ranks]} us instead of "
                f"{self.step_us[1]}"
            )
            if self.for_memory:
                reason += ", which is the price of the memory that copies would take"
        self.sink.remark(
            "sequence-sharding",
            f"{self._names()}: positions are dealt out {dealt} over {{{axes_text(plan.axes)}}}, "
            f"a KV head is stored {counted(left, 'time')} instead of {replication}, {after:,} "
            f"bytes a device and layer instead of {before:,}; {moved} ({other}){reason}",
            self.op,
            declined=False,
            **estimates,
            ranks=plan.ranks,
            replication_before=replication,
            replication_after=left,
            kv_bytes_before=before,
            kv_bytes=after,
            query_bytes=queries,
            key_bytes=keys,
            moved="queries" if gathers_queries else "keys",
        )


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 2)


def _total(sent: LinkBytes) -> int:
    return sum(sent.values())
