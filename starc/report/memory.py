"""What a whole model occupies of a partition, from the buffers of its program.

A program has one set of addresses per kind of layer. A model has ``count`` instances of a kind,
each with weights and states of its own, while activations and communication buffers are reused from
layer to layer.
"""

from __future__ import annotations

import re
from math import prod

from starc.backend.program import BufferInfo, Program, Role
from starc.core.memory.planning import Holding, MemoryPlan, PlacedBuffer, account_buffers
from starc.report.metadata import Metadata
from starc.report.model import MemoryReport, ParametersReport
from starc.units import size

_GLOBAL = re.compile(r"global = \[([\d, ]*)\]")


def global_shape(buffer: BufferInfo) -> tuple[int, ...]:
    """The shape of the tensor that the buffers of all devices make up."""
    match = _GLOBAL.search(buffer.type_text)
    if match is None:
        return buffer.shape
    return tuple(int(extent) for extent in match[1].split(",") if extent.strip())


def layer_of(buffer: BufferInfo) -> str:
    """The kind of layer that a parameter or state belongs to: ``decoder`` of ``decoder.q``."""
    return buffer.name.split(".", 1)[0]


def memory_plan(program: Program) -> MemoryPlan:
    """The memory of the fullest partition."""
    work = Metadata.of(program)
    counts = {layer.name: layer.count for layer in program.layers}
    states = [buffer for buffer in program.buffers if buffer.role is Role.STATE]
    devices = prod(size for _, size in program.mesh)
    stored = sum(prod(buffer.shape) * counts.get(layer_of(buffer), 1) for buffer in states)
    needed = sum(prod(global_shape(buffer)) * counts.get(layer_of(buffer), 1) for buffer in states)

    buffers = [
        PlacedBuffer(
            Holding(
                buffer.name,
                prod(buffer.shape) * buffer.dtype.bytes,
                buffer.bytes,
                counts.get(layer_of(buffer), 1),
            ),
            buffer.role.name.lower(),
            buffer.address,
        )
        for buffer in program.buffers
        if not buffer.memory  # queues lie in scratch memory
    ]
    return account_buffers(
        buffers,
        capacity_bytes=program.target["device_memory_bytes"],
        utilization=work.gpu_memory_utilization,
        local_batch=-(-work.batch // work.data_parallel(devices)),
        batch_groups=work.data_parallel(devices),
        context=work.context,
        kv_replication=stored * devices / needed if needed else 1.0,
    )


def memory_report(plan: MemoryPlan) -> MemoryReport:
    """The memory section of the report."""
    return MemoryReport(
        capacity_bytes=plan.capacity_bytes,
        usable_bytes=plan.usable_bytes,
        peak_bytes=plan.peak_bytes,
        weights_bytes=plan.weights_bytes,
        kv_bytes=plan.kv_bytes,
        activations_bytes=plan.activations_bytes,
        communication_bytes=plan.communication_bytes,
        padding_bytes=plan.padding_bytes,
        kv_replication=plan.kv_replication,
        kv_tokens=plan.kv_tokens,
        max_batch=plan.max_batch,
        fits=plan.fits,
    )


def misfit(plan: MemoryPlan) -> str:
    """One sentence about a model that does not fit: by how much, and what would."""
    would = f"batch {plan.max_batch:,} would fit" if plan.max_batch else "no batch fits"
    return (
        f"the model does not fit: {size(plan.peak_bytes)} of {size(plan.usable_bytes)} usable in "
        f"the fullest partition, {size(plan.excess_bytes)} too much; {would} at this context"
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
