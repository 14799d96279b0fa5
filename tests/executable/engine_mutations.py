"""Ways to break the passes of machines with engines."""

from __future__ import annotations

from typing import Final

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

from starc.dialects import isa
from tests.executable.cases import Case
from tests.executable.mutations import Mutation

CUBES: Final = Case(
    "deep", (("sip", 1), ("group", 1), ("cube", 2), ("pe", 1)), "decode", batch=1, context=300
)


def too_few_slots(module: ModuleOp) -> None:
    """Scores of the next tile of keys overwrite those that are in use."""
    for op in module.walk():
        if isinstance(op, isa.AllocOp) and op.tile.name_hint == "s":
            op.slots = IntegerAttr(1, i64)


def softmax_too_early(module: ModuleOp) -> None:
    """The softmax of a tile runs in the trip of its scores, before they are scaled."""
    for op in module.walk():
        if isinstance(op, isa.VectorOp) and op.attributes.get("stage") == IntegerAttr(1, i64):
            op.attributes.pop("stage")


def merge_too_early(module: ModuleOp) -> None:
    """The product of a tile is added in the trip before it is there."""
    for op in module.walk():
        if isinstance(op, isa.VectorOp) and op.function.data in ("add", "rescale"):
            if "stage" in op.attributes:
                op.attributes["stage"] = IntegerAttr(0, i64)


def _semaphores(module: ModuleOp, name: str) -> list[isa.SemaphoreOp]:
    return [
        op
        for op in module.walk()
        if isinstance(op, isa.SemaphoreOp) and (op.semaphore.name_hint or "").startswith(name)
    ]


def drop_acquires(module: ModuleOp) -> None:
    """Products start before their tiles have arrived."""
    for op in _semaphores(module, "dma_to_gemm"):
        for use in list(op.semaphore.uses):
            if isinstance(use.operation, isa.AcquireOp):
                use.operation.detach()
                use.operation.erase()


def drop_a_release(module: ModuleOp) -> None:
    """Nobody tells that a tile has arrived."""
    (*_, op) = _semaphores(module, "dma_to_gemm")
    for use in list(op.semaphore.uses):
        if isinstance(use.operation, isa.ReleaseOp):
            use.operation.detach()
            use.operation.erase()


def one_credit_too_many(module: ModuleOp) -> None:
    """Loads overwrite a slot that is being read."""
    for op in _semaphores(module, "gemm_to_dma"):
        op.initial = IntegerAttr(op.initial.value.data + 1, i64)


MUTATIONS: Final = (
    Mutation("schedule-commands", "too-few-slots", too_few_slots, case=CUBES),
    Mutation("schedule-commands", "softmax-too-early", softmax_too_early, case=CUBES),
    Mutation("schedule-commands", "merge-too-early", merge_too_early, case=CUBES),
    Mutation("assign-engines", "drops-acquires", drop_acquires, case=CUBES),
    Mutation("assign-engines", "drops-a-release", drop_a_release, case=CUBES, message="deadlock"),
    Mutation("assign-engines", "one-credit-too-many", one_credit_too_many, case=CUBES),
)
