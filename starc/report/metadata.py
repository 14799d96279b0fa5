"""What a program says about its origin, so that a report needs nothing else."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from starc.backend.program import Program
from starc.targets.default import MEMORY_UTILIZATION


@dataclass(frozen=True)
class Metadata:
    """The model, the step and the plan that a program was compiled for. ``defaults`` are the
    options that were chosen for the user, ``changes`` what was asked for beside the strategy."""

    model: str
    strategy: str = ""
    phase: str = "decode"
    batch: int = 1
    query: int = 1
    context: int = 1
    dtype: str = "bf16"
    kv_cache_dtype: str = "bf16"
    tensor_parallel: int = 1
    layers: int = 0
    gpu_memory_utilization: float = MEMORY_UTILIZATION
    defaults: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    def data_parallel(self, devices: int) -> int:
        """Groups of devices that serve different sequences."""
        return max(1, devices // self.tensor_parallel)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a program file."""
        lists = {"defaults": list(self.defaults), "changes": list(self.changes)}
        return {**dataclasses.asdict(self), **lists}

    @classmethod
    def of(cls, program: Program) -> Metadata:
        """The metadata of a program; one that has none gets a single sequence."""
        known = {field.name for field in dataclasses.fields(cls)}
        values = {key: value for key, value in program.metadata.items() if key in known}
        for name in ("defaults", "changes"):
            values[name] = tuple(values.get(name, ()))
        values.setdefault("model", program.name)
        values.setdefault("layers", sum(layer.count for layer in program.layers))
        return cls(**values)
