"""What devices hold of a buffer: the counts of the encoding's own indices, in compact form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.extents import LogicalExtents, Rotation, of_encoding
from starc.core.sharding.encoding import Axis, Encoding, Mesh
from starc.core.sharding.mesh import AxisRef
from starc.core.sharding.shard_map import Cyclic, Offsets, ShardMap, Zigzag

MESH = Mesh("node", (Axis("gpu", 3), Axis("xcd", 2)))
GPU, XCD = AxisRef("gpu"), AxisRef("xcd")


@st.composite
def encodings(draw: st.DrawFn) -> tuple[Encoding, tuple[int, ...]]:
    shape = (draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(1, 30)))
    first, last = draw(st.sampled_from([((GPU,), (XCD,)), ((), (GPU, XCD)), ((XCD,), (GPU,))]))
    maps: list[ShardMap] = [
        Cyclic(1),
        Cyclic(draw(st.integers(1, 3)), draw(st.integers(0, 1)), by=0),
        Zigzag(),
        Offsets((*(min(5 * i, shape[2]) for i in range(MESH.refs_size(last))), shape[2])),
    ]
    encoding = Encoding.replicated(MESH, 3).with_dim(0, first)
    chosen = draw(st.sampled_from([None, *maps]))
    return (
        encoding.with_dim(2, last, chosen) if chosen is not None else encoding.with_dim(2, last),
        shape,
    )


@given(encodings())
def test_extents_are_the_counts_of_the_indices(case: tuple[Encoding, tuple[int, ...]]) -> None:
    encoding, shape = case
    physical = encoding.local_shape(shape)
    extents = of_encoding(encoding, shape)
    for device, coords in enumerate(MESH.devices()):
        held = extents.device(device) if extents is not None else None
        for dim in range(3):
            indices = encoding.indices(dim, shape, coords)
            if encoding.rotated_by(dim) is None:
                count = physical[dim] if held is None else held.shape[dim]
                assert count == len(indices)
                continue
            counts = tuple(int(count) for count in np.sum(indices >= 0, axis=1))
            if held is None or not held.rows:
                assert set(counts) <= {physical[dim]}
            else:
                assert (held.dim, held.by, held.rows) == (dim, 0, counts)
    if extents is not None:
        assert extents.problems(physical, MESH.size) == []


def test_fewer_rows_than_ranks_leave_devices_empty() -> None:
    extents = of_encoding(Encoding.replicated(MESH, 2).with_dim(0, (GPU, XCD)), (4, 8))
    assert extents is not None
    assert [extents.device(device).is_empty for device in range(6)] == [False] * 4 + [True] * 2


def test_one_new_token_a_request_lies_on_one_rank() -> None:
    rows = Encoding.replicated(MESH, 3).with_dim(1, (XCD,), Cyclic(1, offset=1, by=0))
    extents = of_encoding(rows, (4, 1, 8))
    assert extents is not None
    assert extents.shapes == ((4, 1, 8),) * 6
    assert extents.device(0).rows == (0, 1, 0, 1)
    assert extents.device(1).rows == (1, 0, 1, 0)


TURNED = Rotation(1, 0, 1, 0, 2, 5, (0, 1), ((0, 1),), (0, 0))


@pytest.mark.parametrize(
    ("extents", "problem"),
    [
        (LogicalExtents(((1, 1),)), "of 1 devices"),
        (LogicalExtents(((1,), (1,))), "of 1 dimensions"),
        (LogicalExtents(((1, 4), (2, 2))), "exceed the shape"),
        (LogicalExtents(((2, 3), (-1, 3))), "exceed the shape"),
        (LogicalExtents(((1, 3), (2, 3)), TURNED), "as many rows"),
        (LogicalExtents(((2, 3), (2, 3)), Rotation(1, 1, 1, 0, 2, 5, (0, 1), (), ())), "turn|rot"),
        (
            LogicalExtents(((2, 3), (2, 3)), Rotation(1, 0, 1, 0, 2, 9, (0, 1), ((0, 1),), (0, 0))),
            "room",
        ),
        (
            LogicalExtents(((2, 3), (2, 3)), Rotation(1, 0, 0, 0, 2, 5, (0, 1), ((0, 1),), (0, 0))),
            "no blocks",
        ),
        (
            LogicalExtents(((2, 3), (2, 3)), Rotation(1, 0, 1, 0, 2, 5, (0,), ((0, 1),), (0, 0))),
            "every device",
        ),
        (
            LogicalExtents(((2, 3), (2, 3)), Rotation(1, 0, 1, 0, 2, 5, (0, 1), ((0, 1),), (0, 7))),
            "do not exist",
        ),
    ],
)
def test_extents_that_fit_no_buffer(extents: LogicalExtents, problem: str) -> None:
    (text,) = extents.problems((2, 3), 2)
    assert any(part in text for part in problem.split("|"))
    assert LogicalExtents(((2, 3), (2, 3)), TURNED).problems((2, 3), 2) == []
