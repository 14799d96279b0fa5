"""The passes in order, the strategies as lists of passes with options, and what depends on what.

This module imports no pass: names, levels and dependencies are known at no cost, and a pass is
loaded when it is used.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starc.diagnostics import UsageError, did_you_mean

if TYPE_CHECKING:
    from starc.passes.base import StarcPass

LEVELS: Final = ("nn", "sharding", "collective", "kernel", "isa", "program")
"""The levels of the compiler, from the model to the packed program."""

OptionScalar = int | float | bool | str
OptionValue = OptionScalar | tuple[OptionScalar, ...]


@dataclass(frozen=True)
class PassEntry:
    """A pass's place in the order.

    ``level`` is the level of its output; ``needs`` names the earlier passes without whose
    postcondition it cannot run; ``summary`` is one line for listings.
    """

    name: str
    level: str
    summary: str
    needs: tuple[str, ...] = ()

    @property
    def module_name(self) -> str:
        return f"starc.passes.{self.level}." + self.name.replace("-", "_")


PASSES: Final[tuple[PassEntry, ...]] = (
    PassEntry("verify-model", "nn", "the plan is legal for this model and machine"),
    PassEntry(
        "assign-tensor-parallel",
        "sharding",
        "parameters and states get the encodings of one-dimensional tensor parallelism",
    ),
    PassEntry(
        "propagate-shardings",
        "sharding",
        "every value gets an encoding; conflicts become reshards",
        needs=("assign-tensor-parallel",),
    ),
    PassEntry(
        "shard-attention-sequence",
        "sharding",
        "KV caches are split along the sequence instead of being replicated",
        needs=("propagate-shardings",),
    ),
    PassEntry(
        "orthogonalize-gemms",
        "sharding",
        "the inner level splits another loop of a matrix product than the outer one",
        needs=("propagate-shardings",),
    ),
    PassEntry(
        "sink-norm-scale",
        "sharding",
        "a norm of sharded rows reduces one float a token; its scale sinks below products",
        needs=("propagate-shardings",),
    ),
    PassEntry(
        "compose-reshards",
        "sharding",
        "reshards compose, move below what they commute with, and cancel",
        needs=("propagate-shardings",),
    ),
    PassEntry(
        "interchange-collectives",
        "sharding",
        "an exchange goes before or behind the products beside it, by cost",
        needs=("propagate-shardings",),
    ),
    PassEntry(
        "localize",
        "collective",
        "global shapes become local, reshards become collectives",
        needs=("propagate-shardings",),
    ),
    PassEntry(
        "hierarchical-collectives",
        "collective",
        "collectives over several levels become phases of one level each",
        needs=("localize",),
    ),
    PassEntry(
        "merge-collectives",
        "collective",
        "equal exchanges side by side become one",
        needs=("localize",),
    ),
    PassEntry(
        "select-collective-algorithm",
        "collective",
        "every collective gets its algorithm and transport",
        needs=("localize",),
    ),
    PassEntry(
        "form-kernels",
        "kernel",
        "operations become kernel launches",
        needs=("localize",),
    ),
    PassEntry(
        "fuse-compute-collectives",
        "kernel",
        "products and the collectives around them become one kernel",
        needs=("form-kernels", "select-collective-algorithm"),
    ),
    PassEntry(
        "pipeline-collectives",
        "kernel",
        "the phases of an exchange become one launch that works on parts of the data",
        needs=("form-kernels", "select-collective-algorithm"),
    ),
    PassEntry(
        "assign-queues",
        "kernel",
        "every launch gets its queue",
        needs=("form-kernels",),
    ),
    PassEntry(
        "tile-kernels",
        "kernel",
        "tile sizes, split-K and stages",
        needs=("form-kernels", "select-collective-algorithm"),
    ),
    PassEntry(
        "map-workgroups",
        "kernel",
        "grids and the order of tiles over workgroups",
        needs=("tile-kernels",),
    ),
    PassEntry(
        "plan-memory",
        "kernel",
        "tensors become buffers with layouts and addresses",
        needs=("assign-queues", "map-workgroups"),
    ),
    PassEntry(
        "lower-to-isa",
        "isa",
        "launches become kernels of tile instructions",
        needs=("plan-memory",),
    ),
    PassEntry(
        "schedule-commands",
        "isa",
        "on targets with engines: loops become commands, sweeps of attention get a schedule",
        needs=("lower-to-isa",),
    ),
    PassEntry(
        "pipeline-loops",
        "isa",
        "loops are software pipelined by modulo scheduling",
        needs=("lower-to-isa",),
    ),
    PassEntry(
        "plan-scratch",
        "isa",
        "tiles get offsets in the scratch memory of a compute unit",
        needs=("lower-to-isa",),
    ),
    PassEntry(
        "assign-engines",
        "isa",
        "on targets with engines: kernels become a stream an engine, joined by semaphores",
        needs=("plan-scratch",),
    ),
    PassEntry(
        "verify-schedule",
        "isa",
        "no kernel waits for what cannot happen",
        needs=("lower-to-isa",),
    ),
)


_BY_NAME: Final = {entry.name: entry for entry in PASSES}

LAST_PASS_OF_LEVEL: Final[Mapping[str, str]] = {
    "nn": "verify-model",
    "sharding": "propagate-shardings",
    "collective": "select-collective-algorithm",
    "kernel": "plan-memory",
    "isa": "assign-engines",
    "program": "verify-schedule",
}


@dataclass(frozen=True)
class Strategy:
    """A named plan: passes in order, each with its options."""

    name: str
    summary: str
    passes: tuple[tuple[str, Mapping[str, OptionValue]], ...]


def _plain(*names: str) -> tuple[tuple[str, Mapping[str, OptionValue]], ...]:
    return tuple((name, {}) for name in names)


LOWERING: Final = _plain(
    "assign-queues",
    "tile-kernels",
    "map-workgroups",
    "plan-memory",
    "lower-to-isa",
    "schedule-commands",
    "pipeline-loops",
    "plan-scratch",
    "assign-engines",
    "verify-schedule",
)
"""From launches to instructions: the same for every strategy."""

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "naive": Strategy(
        "naive",
        "one-dimensional tensor parallelism over all devices, flat ring all-reduce",
        (
            *_plain(
                "verify-model",
                "assign-tensor-parallel",
                "propagate-shardings",
                "localize",
                "select-collective-algorithm",
                "form-kernels",
            ),
            *LOWERING,
        ),
    ),
    "hierarchical": Strategy(
        "hierarchical",
        "the naive plan with collectives by levels and algorithms by cost",
        (
            *_plain(
                "verify-model",
                "assign-tensor-parallel",
                "propagate-shardings",
                "localize",
                "hierarchical-collectives",
            ),
            ("select-collective-algorithm", {"algorithm": "auto", "transport": "auto"}),
            *_plain("form-kernels"),
            *LOWERING,
        ),
    ),
    "starscream": Strategy(
        "starscream",
        "caches split along the sequence, products of two levels, one exchange a level",
        (
            *_plain(
                "verify-model",
                "assign-tensor-parallel",
                "propagate-shardings",
                "shard-attention-sequence",
                "compose-reshards",
                "orthogonalize-gemms",
                "compose-reshards",
                "sink-norm-scale",
                "compose-reshards",
                "interchange-collectives",
                "compose-reshards",
                "localize",
                "hierarchical-collectives",
                "merge-collectives",
            ),
            ("select-collective-algorithm", {"algorithm": "auto", "transport": "auto"}),
            *_plain("form-kernels", "fuse-compute-collectives", "pipeline-collectives"),
            *LOWERING,
        ),
    ),
}
DEFAULT_STRATEGY: Final = "starscream"


def entry_of(name: str) -> PassEntry:
    """The entry of a pass. Raises ``UsageError`` for an unknown name."""
    entry = _BY_NAME.get(name)
    if entry is None:
        raise unknown_name("pass", name, tuple(_BY_NAME))
    return entry


def unknown_name(kind: str, name: str, legal: Sequence[str]) -> UsageError:
    """The error for a name that does not exist, with the closest or the legal ones."""
    hint = did_you_mean(name, legal)
    found = f"unknown {kind} '{name}'"
    if hint is not None and hint.startswith("did you mean"):
        found += f" ({hint})"
    plural = {"pass": "passes", "strategy": "strategies", "tax": "taxes"}.get(kind, f"{kind}s")
    return UsageError(f"{found}\n  {plural}: {', '.join(legal)}")


def load_pass(name: str) -> type[StarcPass]:
    """The class of a pass, imported now. Raises ``UsageError`` where its module is not installed,
    as that of a new file is until the next ``make``."""
    from starc.passes.base import StarcPass

    module_name = entry_of(name).module_name
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        text = f"the pass {name} is listed, but there is no {module_name}"
        raise UsageError(f"{text}: a new file is seen after 'make .venv/.tested'") from error
    for value in vars(module).values():
        if inspect.isclass(value) and issubclass(value, StarcPass):
            if getattr(value, "name", None) == name:
                return value
    raise LookupError(f"{module.__name__} defines no pass named {name}")
