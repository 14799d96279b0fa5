"""Which kernel body executes which kind of launch: one row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from starc.dialects.kernel_kinds import LaunchKind
from starc.kernel_bodies.attention.launch import attention_facts, lower_attention
from starc.kernel_bodies.body import Template
from starc.kernel_bodies.collectives.launch import collective_facts, lower_collective
from starc.kernel_bodies.context import LaunchContext
from starc.kernel_bodies.gemm.launch import gemm_facts, lower_gemm
from starc.kernel_bodies.rows.appends import lower_append
from starc.kernel_bodies.rows.elementwise import lower_elementwise
from starc.kernel_bodies.rows.embeddings import lower_embedding
from starc.kernel_bodies.rows.norms import lower_norm


def _no_facts(context: LaunchContext) -> Mapping[str, int | str]:
    del context
    return {}


@dataclass(frozen=True)
class KernelBody:
    """``lower`` writes the templates of a launch, in groups: all of a group run together, and a
    group starts when the one before has ended. ``facts`` are the extents that decide the time, for
    reports."""

    lower: Callable[[LaunchContext], list[list[Template]]]
    facts: Callable[[LaunchContext], Mapping[str, int | str]] = _no_facts


KERNEL_BODIES: Final[Mapping[LaunchKind, KernelBody]] = {
    LaunchKind.GEMM: KernelBody(lower_gemm, gemm_facts),
    LaunchKind.ATTENTION: KernelBody(lower_attention, attention_facts),
    LaunchKind.NORM: KernelBody(lower_norm),
    LaunchKind.ELEMENTWISE: KernelBody(lower_elementwise),
    LaunchKind.APPEND: KernelBody(lower_append),
    LaunchKind.EMBEDDING: KernelBody(lower_embedding),
    LaunchKind.COLLECTIVE: KernelBody(lower_collective, collective_facts),
}
