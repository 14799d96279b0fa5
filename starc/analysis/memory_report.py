"""The memory of a whole model on one partition, from the buffers of its layers."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from starc.core.memory.planning import Holding, MemoryPlan, PlacedBuffer, account_buffers
from starc.dialects import nn
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_buffers import BufferOp
from starc.dialects.kernel_problems import tensor_bytes
from starc.dialects.sharding import encoding_of
from starc.targets.default import MEMORY_UTILIZATION
from starc.targets.target import Target


def memory_plan(
    module: ModuleOp, target: Target, utilization: float = MEMORY_UTILIZATION
) -> MemoryPlan:
    """The memory plan of a module after ``plan-memory``: buffers of a layer kind times the layers
    of that kind. Weights that several kinds use (tied embeddings) are held once a layer of the
    kind that has most. Queues in scratch memory are no part of it."""
    buffers = [op for op in module.body.ops if isinstance(op, BufferOp) and op.memory is None]
    copies = _copies(module)
    query, context = _integer(module, "nn.query", 1), _integer(module, "nn.context", 1)
    local_batch, groups, replication = _integer(module, "nn.batch", 1), 1, 1.0
    for cache in buffers:
        if cache.role.data != "state":
            continue
        local_batch = cache.shape[0]
        encoding = encoding_of(cache.type, module)
        if encoding is not None:
            groups = encoding.ranks(0)
            replication = float(encoding.replication)
    return account_buffers(
        [_placed(buffer, copies) for buffer in buffers],
        capacity_bytes=target.device_memory_bytes,
        utilization=utilization,
        local_batch=local_batch,
        batch_groups=groups,
        context=max(query, context),
        kv_replication=replication,
    )


def _placed(buffer: BufferOp, copies: dict[str, int]) -> PlacedBuffer:
    name = buffer.sym_name.data
    logical = tensor_bytes(buffer.type)
    holding = Holding(name, logical, buffer.bytes.value.data, copies.get(name, 1))
    return PlacedBuffer(holding, buffer.role.data, buffer.address.value.data)


def _copies(module: ModuleOp) -> dict[str, int]:
    """Layers that have their own copy of a buffer: the layers of the kind that uses it."""
    layers: dict[str, int] = {}
    for op in module.body.ops:
        if isinstance(op, nn.StackOp):
            for name, count in op.entries:
                layers[name] = layers.get(name, 0) + count
    copies: dict[str, int] = {}
    for function in module.body.ops:
        if not isinstance(function, FuncOp):
            continue
        count = layers.get(function.sym_name.data, 1)
        for launch in function.walk():
            if isinstance(launch, LaunchOp):
                for name in (*launch.read_names, *launch.written_names):
                    copies[name] = max(copies.get(name, 0), count)
    return copies


def _integer(module: ModuleOp, key: str, default: int) -> int:
    value = getattr(module.attributes.get(key), "value", None)
    return int(value.data) if value is not None else default
