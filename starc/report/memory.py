"""What a whole model occupies of a partition, from the buffers of its program.

A program has one set of addresses per kind of layer. A model has ``count`` instances of a kind,
each with weights and states of its own, while activations and communication buffers are reused from
layer to layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from starc.backend.program import BufferInfo, Program, Role
from starc.report.model import MemoryReport, ParametersReport

_GLOBAL = re.compile(r"global = \[([\d, ]*)\]")


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of one partition for the whole model, and the KV cache of the whole node.

    ``kv_token_bytes`` are a partition's bytes of one token of one of its sequences; 0 without a
    cache.
    """

    weights: int
    kv: int
    activations: int
    communication: int
    kv_stored: int
    kv_needed: int
    kv_tokens: int

    @property
    def peak(self) -> int:
        return self.weights + self.kv + self.activations + self.communication


def global_shape(buffer: BufferInfo) -> tuple[int, ...]:
    """The shape of the tensor that the buffers of all devices make up."""
    match = _GLOBAL.search(buffer.type_text)
    if match is None:
        return buffer.shape
    return tuple(int(extent) for extent in match[1].split(",") if extent.strip())


def layer_of(buffer: BufferInfo) -> str:
    """The kind of layer that a parameter or state belongs to: ``decoder`` of ``decoder.q``."""
    return buffer.name.split(".", 1)[0]


def memory_use(program: Program) -> MemoryUse:
    """Adds up the buffers of a program for all instances of its layers."""
    counts = {layer.name: layer.count for layer in program.layers}
    devices = prod(size for _, size in program.mesh)
    weights = kv = kv_stored = kv_needed = kv_tokens = 0
    for buffer in program.buffers:
        count = counts.get(layer_of(buffer), 1)
        if buffer.role is Role.WEIGHT:
            weights += count * buffer.bytes
        elif buffer.role is Role.STATE:
            kv += count * buffer.bytes
            kv_stored += count * prod(buffer.shape) * buffer.dtype.bytes * devices
            kv_needed += count * prod(global_shape(buffer)) * buffer.dtype.bytes
            # [batch, kv_head, position, head_dim]: tokens of the sequences of this partition.
            kv_tokens = max(kv_tokens, buffer.shape[0] * buffer.shape[2])
    return MemoryUse(
        weights,
        kv,
        _union_bytes(program.buffers, (Role.ACTIVATION, Role.INPUT, Role.OUTPUT)),
        _union_bytes(program.buffers, (Role.COMMUNICATION,)),
        kv_stored,
        kv_needed,
        kv_tokens,
    )


def _union_bytes(buffers: Iterable[BufferInfo], roles: tuple[Role, ...]) -> int:
    """Bytes of the addresses that buffers of some roles occupy; lifetimes may share them."""
    total = end = 0
    spans = sorted(
        (buffer.address, buffer.address + buffer.bytes)
        for buffer in buffers
        if buffer.role in roles
    )
    for first, last in spans:
        total += max(0, last - max(first, end))
        end = max(end, last)
    return total


def memory_report(
    use: MemoryUse, capacity: int, utilization: float, batch: int, data_parallel: int
) -> MemoryReport:
    """The memory section. ``max_batch`` scales KV cache, activations and communication with the
    sequences of a partition; a batch that is spread over data-parallel groups counts as a whole."""
    usable = int(capacity * utilization)
    groups = min(data_parallel, batch)
    local_batch = max(1, batch // groups)
    per_sequence = (use.peak - use.weights) / local_batch
    free = usable - use.weights
    local_max = int(free // per_sequence) if per_sequence and free > 0 else 0
    if use.peak <= usable:
        local_max = max(local_max, local_batch)
    token_bytes = use.kv / use.kv_tokens if use.kv_tokens else 0
    room = usable - (use.peak - use.kv)
    return MemoryReport(
        capacity_bytes=capacity,
        usable_bytes=usable,
        peak_bytes=use.peak,
        weights_bytes=use.weights,
        kv_bytes=use.kv,
        activations_bytes=use.activations,
        communication_bytes=use.communication,
        kv_replication=use.kv_stored / use.kv_needed if use.kv_needed else 1.0,
        kv_tokens=max(0, int(room // token_bytes)) if token_bytes else 0,
        max_batch=local_max * groups,
        fits=use.peak <= usable,
    )


def parameters_report(program: Program, kind: str) -> ParametersReport:
    """Parameters of the whole model, and of one layer of a kind, each counted once."""
    counts = {layer.name: layer.count for layer in program.layers}
    total = per_layer = 0
    for buffer in program.buffers:
        if buffer.role is Role.WEIGHT:
            elements = prod(global_shape(buffer))
            total += counts.get(layer_of(buffer), 1) * elements
            if layer_of(buffer) == kind:
                per_layer += elements
    return ParametersReport(total, per_layer)
