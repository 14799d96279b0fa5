"""Values as devices hold them, for launches of a test's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from starc.core.sharding.encoding import Axis, AxisRef, DimSharding, Encoding, Mesh
from starc.core.sharding.shard_map import CONTIGUOUS, ShardMap

Array = npt.NDArray[Any]


def node(mesh: tuple[int, int]) -> Mesh:
    return Mesh(
        "node", (Axis("gpu", mesh[0], "outer", "xgmi"), Axis("xcd", mesh[1], "inner", "usr"))
    )


def split(
    mesh: tuple[int, int], rank: int, dim: int, axes: Sequence[str], how: ShardMap = CONTIGUOUS
) -> Encoding:
    """The encoding of a value of which one dimension is split over axes."""
    whole = Encoding.replicated(node(mesh), rank)
    dims = list(whole.dims)
    dims[dim] = DimSharding(tuple(AxisRef(name) for name in axes), how)
    return Encoding(whole.mesh, tuple(dims))


def type_text(encoding: Encoding, shape: Sequence[int], element: str = "bf16") -> str:
    """What stands between the brackets of a local tensor type."""
    local = "x".join(str(extent) for extent in encoding.local_shape(shape))
    whole = ", ".join(str(extent) for extent in shape)
    dims = ", ".join(str(dim) for dim in encoding.dims)
    return f"{local}x{element}, #sharding.of<@node, [{dims}], global = [{whole}]>"


def held(values: Array, encoding: Encoding, dim: int) -> list[Array]:
    """What each device holds of a value of which ``dim`` is split, by rows of dimension 0 where
    its map is rotated; slots that hold nothing are NaN."""
    parts: list[Array] = []
    for coords in encoding.mesh.devices():
        part = np.full(encoding.local_shape(values.shape), np.nan)
        indices = encoding.indices(dim, values.shape, coords)
        for row in range(values.shape[0]):
            own = indices[row] if indices.ndim == 2 else indices
            own = own[own >= 0]
            moved, target = np.moveaxis(values[row], dim - 1, 0), np.moveaxis(part[row], dim - 1, 0)
            target[: len(own)] = moved[own]
        parts.append(part)
    return parts
