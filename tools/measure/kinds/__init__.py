"""The kinds of measurement, one module each, and the table of all of them."""

from __future__ import annotations

from kinds import (
    attention_decode,
    attention_prefill,
    bank_page,
    collectives,
    gemm,
    launches,
    micro,
    norm,
    streams,
)
from kinds.kind import Kind

KINDS: dict[str, Kind] = {
    kind.name: kind
    for module in (
        launches,
        micro,
        attention_decode,
        gemm,
        attention_prefill,
        norm,
        streams,
        bank_page,
        collectives,
    )
    for kind in module.KINDS
}
