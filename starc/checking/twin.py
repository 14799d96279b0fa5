"""The shrunk twin of a model: small enough to run on data, with the same structure.

The mesh, the tensor-parallel size, heads and KV heads stay, so that every device does what it does
in the big model. Sizes shrink to small multiples that leave the same remainder in tiles: a
dimension that does not fill its last tile still does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starc.frontend import ModelSummary

TILE: Final = 64
"""Columns of a block of a weight, rows of a key tile: remainders are kept modulo this."""
FEATURE_TILES: Final = 4
KEY_TILES: Final = 8
"""So many tiles that loops over K and over keys run for several steps, and shares are merged."""
HEAD_DIM: Final = 8
SHARD_FEATURES: Final = 32
SHARD_ROWS: Final = 16
QUERY_TILE: Final = 128


@dataclass(frozen=True)
class Twin:
    """What of a model is made smaller: ``settings`` are model parameters, the rest the step."""

    settings: Mapping[str, int]
    batch: int
    context: int
    prompt: int | None

    def changes(self, summary: ModelSummary) -> tuple[str, ...]:
        """``name before -> after`` for everything that differs from the model."""
        pairs = [
            (name, summary.parameters.get(name), value) for name, value in self.settings.items()
        ]
        pairs.append(("batch", summary.batch, self.batch))
        if self.prompt is not None:
            pairs.append(("prompt", summary.query, self.prompt))
        pairs.append(("context", summary.context, self.context))
        return tuple(f"{name} {old} -> {new}" for name, old, new in pairs if old != new)


def shrunk(size: int, step: int, steps: int = 1) -> int:
    """``steps`` tiles of ``step`` and the remainder of ``size``; ``size`` itself if smaller.

    >>> shrunk(8192, 64), shrunk(8200, 64), shrunk(40, 64), shrunk(8200, 64, 4)
    (64, 72, 40, 264)
    """
    return min(size, steps * step + size % step)


def shrink(summary: ModelSummary, tensor_parallel: int, data_parallel: int) -> Twin:
    """The twin of a model on ``tensor_parallel * data_parallel`` devices."""
    sizes = {name: value for name, value in summary.parameters.items() if isinstance(value, int)}
    settings: dict[str, int] = {}
    if "head_dim" in sizes:
        settings["head_dim"] = shrunk(sizes["head_dim"], HEAD_DIM)
    if "hidden" in sizes:
        settings["hidden"] = shrunk(sizes["hidden"], TILE, FEATURE_TILES)
    for name, step in (("ffn", SHARD_FEATURES), ("vocab", SHARD_ROWS)):
        if name in sizes:
            settings[name] = _shrunk_shards(sizes[name], tensor_parallel, step)
    batch = _shrunk_shards(summary.batch, data_parallel, 2)
    if summary.phase == "decode":
        return Twin(settings, batch, shrunk(summary.context, TILE, KEY_TILES), None)
    prompt = min(summary.query, QUERY_TILE + shrunk(summary.query, SHARD_ROWS))
    before = summary.context - summary.query
    return Twin(settings, batch, shrunk(before, TILE) + prompt, prompt)


def _shrunk_shards(size: int, devices: int, step: int) -> int:
    """Shrinks what each of the devices has; what is left over stays left over."""
    return devices * shrunk(size // devices, step) + size % devices
