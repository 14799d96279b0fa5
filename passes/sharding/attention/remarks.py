"""What is said of an attention whose positions are split, or are not."""

from __future__ import annotations

from dataclasses import dataclass

from starc.analysis.attention_choice import Refusal, SplitPositions, Wanted
from starc.analysis.attention_cost import Widths
from starc.core.sharding.attention_sharding import cache_bytes
from starc.core.sharding.mesh import axes_text
from starc.core.sharding.ring_sharding import RingPlan
from starc.diagnostics import counted
from starc.dialects.nn import AppendOp, AttentionOp
from starc.passes.base import RemarkSink

SPLIT = "sequence-sharding"


@dataclass(frozen=True)
class AttentionRemarks:
    """The remarks on one attention; all of ``sequence-sharding``."""

    op: AttentionOp
    names: str
    sink: RemarkSink

    @classmethod
    def on(cls, op: AttentionOp, sink: RemarkSink) -> AttentionRemarks:
        """Named after its caches."""
        names = [
            f"@{value.owner.state.string_value()}"
            for value in (op.key, op.value)
            if isinstance(value.owner, AppendOp)
        ]
        return cls(op, " and ".join(dict.fromkeys(names)) or "this attention", sink)

    def refuse(self, refusal: Refusal) -> None:
        over = " over all devices" if refusal.numbers.get("ranks", 1) != 1 else ""
        self.sink.remark(
            SPLIT,
            f"{self.names}: positions are not split{over}: {refusal.reason}",
            self.op,
            declined=True,
            **refusal.numbers,
        )

    def owners_are_ignored(self, owners: str) -> None:
        self.sink.remark(
            SPLIT,
            f"{self.names}: output={owners} changes nothing: keys travel, "
            "not queries, and heads end where the result has them",
            self.op,
            declined=True,
        )

    def rotate(self, ring: RingPlan, widths: Widths) -> None:
        plan, rotations = ring.sequence, ring.rotations
        sent = ring.sent_bytes(widths.cache)
        rows = ring.queries.dims[1]
        spread = f"lie over {rows}" if rows.axes else "are not split"
        self.sink.remark(
            SPLIT,
            f"{self.names}: positions are split over {{{axes_text(plan.axes)}}}, and keys and "
            f"values go around {{{axes_text(ring.cubes)}}} in {counted(rotations, 'rotation')}, "
            f"{sent:,} bytes sent by a device; query rows {spread}",
            self.op,
            declined=False,
            ranks=plan.ranks,
            rotations=rotations,
            key_bytes=sent,
            kv_bytes_before=cache_bytes(plan.shape, plan.gathered, widths.cache),
            kv_bytes=cache_bytes(plan.shape, plan.cache, widths.cache),
            moved="keys",
        )

    def split(self, choice: SplitPositions, widths: Widths, wanted: Wanted) -> None:
        plan = choice.plan
        before = cache_bytes(plan.shape, plan.gathered, widths.cache)
        after = cache_bytes(plan.shape, plan.cache, widths.cache)
        replication = plan.gathered.replication
        left = plan.cache.replication
        queries = sum(plan.query_bytes(widths.activation, widths.partial).values())
        keys = sum(plan.key_bytes(widths.cache).values())
        moved = f"queries are gathered and parts merged, {queries:,} bytes sent by a device"
        other = f"keys and values would be {keys:,}"
        if not choice.gathers_queries:
            moved = f"keys and values are gathered, {keys:,} bytes sent by a device"
            other = f"queries and parts would be {queries}"
        estimates: dict[str, float] = {}
        if choice.step_us:
            estimates["step_us_before"] = choice.step_us[1]
            estimates["step_us"] = choice.step_us[plan.ranks]
        self.sink.remark(
            SPLIT,
            f"{self.names}: positions are dealt out {_dealt(wanted)} over "
            f"{{{axes_text(plan.axes)}}}, a KV head is stored {counted(left, 'time')} instead of "
            f"{replication}, {after:,} bytes a device and layer instead of {before:,}; {moved} "
            f"({other}){_reason(choice)}",
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
            moved="queries" if choice.gathers_queries else "keys",
        )


def _dealt(wanted: Wanted) -> str:
    if wanted.map_name != "cyclic":
        return "in stretches"
    return f"by {wanted.block}" if (wanted.block or 1) > 1 else "one by one"


def _reason(choice: SplitPositions) -> str:
    if not choice.step_us:
        return ""
    price = ", which is the price of the memory that copies would take"
    return (
        f"; a decode step is estimated at {choice.step_us[choice.plan.ranks]} us instead of "
        f"{choice.step_us[1]}" + (price if choice.for_memory else "")
    )
