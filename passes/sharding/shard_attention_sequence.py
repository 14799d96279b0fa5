"""``shard-attention-sequence``: one copy of the KV cache, its positions dealt out to devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from xdsl.dialects.builtin import ModuleOp

from starc.analysis.attention_choice import (
    AttentionChooser,
    HeadOwners,
    Refusal,
    Travels,
    Wanted,
)
from starc.analysis.reencoding import layers_of
from starc.analysis.sharding_rules import module_mesh
from starc.core.sharding.mesh import Mesh
from starc.core.sharding.ring_sharding import ROWS, RingPlan
from starc.diagnostics import Diagnostic, InputError
from starc.dialects.nn import AttentionOp
from starc.passes.base import OptionValues, RemarkSink, StarcPass
from starc.passes.sharding.attention.remarks import AttentionRemarks
from starc.passes.sharding.attention.rewriting import (
    gather_keys,
    rotate_keys,
    split_attention,
    store_split,
)
from starc.passes.sharding.attention.sites import Caches, partial_type, site_of
from starc.targets.target import Target

MODES: Final = tuple(Travels)
PARTIALS: Final = ("auto", "bf16", "f32")
MAPS: Final = ("cyclic", "contiguous")
OUTPUTS: Final = tuple(HeadOwners)


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
        mesh, caches = module_mesh(module), Caches.of(module)
        for layer in layers_of(module):
            for op in list(layer.body.block.ops):
                if isinstance(op, AttentionOp):
                    self._run_on(op, mesh, caches, target, sink)

    output: str = "auto"
    """Who finishes which heads: ``result`` (as the result has them), ``root`` (one device of a
    group, at the center of its cubes, has all), ``scatter`` (each head has one owner, over cubes
    and their elements), or ``auto``: ``scatter`` on machines of cubes, else ``result``."""

    def _check_options(self, target: Target) -> None:
        """Raises ``InputError`` with everything that is wrong with the options."""
        able = (
            MODES if target.engines else tuple(mode for mode in MODES if mode is not Travels.RING)
        )
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

    def _run_on(
        self, op: AttentionOp, mesh: Mesh, caches: Caches, target: Target, sink: RemarkSink
    ) -> None:
        remarks = AttentionRemarks.on(op, sink)
        appends = caches.appends_of(op, mesh)
        if isinstance(appends, str):
            remarks.refuse(Refusal(appends))
            return
        partial = partial_type(op, self.partial, target)
        site = site_of(op, mesh, caches, partial)
        wanted = Wanted(
            Travels(self.mode), HeadOwners(self.output), self.map, self.rows, self.block
        )
        chooser = AttentionChooser(site, wanted, target)
        choice = chooser.choose()
        for refusal in chooser.refusals:
            remarks.refuse(refusal)
        if choice is None:
            return
        if isinstance(choice, RingPlan):
            store_split(choice.sequence, appends, caches)
            rotate_keys(op, choice)
            remarks.rotate(choice, site.widths)
            return
        remarks.split(choice, site.widths, wanted)
        store_split(choice.plan, appends, caches)
        if choice.gathers_queries:
            split_attention(op, choice.plan, partial)
            return
        if wanted.owners not in (HeadOwners.AUTO, HeadOwners.RESULT):
            remarks.owners_are_ignored(wanted.owners)
        gather_keys(op, choice.plan)
