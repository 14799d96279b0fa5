"""Cutting tensors by encodings and putting them together again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.sharding.encoding import Axis, AxisRef, Encoding, Mesh
from starc.core.sharding.shard_map import CONTIGUOUS, Cyclic, ShardMap, Zigzag
from starc.interpreter.local_semantics import SemanticsError
from starc.interpreter.values import (
    Distributed,
    assemble,
    check_replicas,
    distribute,
    placement_of,
    reshard,
)

MESH = Mesh("node", (Axis("gpu", 2), Axis("xcd", 4)))
GPU, XCD = AxisRef("gpu"), AxisRef("xcd")
MAJOR, MINOR = AxisRef("xcd", 1, 2), AxisRef("xcd", 2, 2)
AXES = [(), (GPU,), (XCD,), (GPU, XCD), (XCD, GPU), (MAJOR,), (GPU, MINOR)]


@st.composite
def encodings(draw: st.DrawFn) -> Encoding:
    """Two dimensions, each over some axes that the other does not use."""
    first = draw(st.sampled_from(AXES))
    names = {axis.name for axis in first}
    second = draw(st.sampled_from([a for a in AXES if not names & {axis.name for axis in a}]))
    maps: list[ShardMap] = [CONTIGUOUS, Cyclic(1), Cyclic(2), Zigzag()]
    encoding = Encoding.replicated(MESH, 2).with_dim(0, first, draw(st.sampled_from(maps)))
    return encoding.with_dim(1, second, draw(st.sampled_from(maps)))


@given(encodings(), st.integers(1, 17), st.integers(1, 17))
def test_cut_and_assembled_is_the_tensor(encoding: Encoding, rows: int, columns: int) -> None:
    values = np.arange(rows * columns, dtype=np.float64).reshape(rows, columns)
    cut = distribute(values, placement_of(encoding, values.shape))
    check_replicas(cut)
    assert np.array_equal(assemble(cut), values)


@given(encodings(), encodings(), st.integers(1, 17), st.integers(1, 17))
def test_reshard_gives_what_a_cut_would(
    before: Encoding, after: Encoding, rows: int, columns: int
) -> None:
    values = np.arange(rows * columns, dtype=np.float64).reshape(rows, columns)
    source = distribute(values, placement_of(before, values.shape))
    target = placement_of(after, values.shape)
    (moved,) = reshard((source,), (target,))
    for left, right in zip(moved.parts, distribute(values, target).parts, strict=True):
        assert np.array_equal(left, right)


def test_contributions_of_a_partial_are_summed() -> None:
    encoding = Encoding.replicated(MESH, 1).with_partial("sum", (GPU,))
    parts = tuple(np.full(3, 1.0 if device < 4 else 10.0) for device in range(8))
    value = Distributed(parts, placement_of(encoding, (3,)))
    check_replicas(value)
    assert assemble(value).tolist() == [11.0, 11.0, 11.0]


def test_a_reshard_keeps_the_partial_that_its_target_has() -> None:
    both = Encoding.replicated(MESH, 1).with_partial("sum", (GPU, XCD))
    over_gpu = Encoding.replicated(MESH, 1).with_partial("sum", (GPU,))
    parts = tuple(np.full(1, float(10 ** (device // 4))) for device in range(8))
    source = Distributed(parts, placement_of(both, (1,)))
    (moved,) = reshard((source,), (placement_of(over_gpu, (1,)),))
    assert [part.tolist() for part in moved.parts] == [[4.0]] * 4 + [[40.0]] * 4


def test_components_of_an_lse_partial_are_combined_together() -> None:
    encoding = Encoding.replicated(MESH, 1).with_partial("lse", (GPU, XCD))
    place = placement_of(encoding, (1,))
    scores = np.arange(8.0)
    m = Distributed(tuple(np.array([score]) for score in scores), place)
    total = Distributed((np.ones(1),) * 8, place)
    output = Distributed(tuple(np.array([float(device)]) for device in range(8)), place)
    whole = placement_of(Encoding.replicated(MESH, 1), (1,))
    m_all, l_all, o_all = reshard((m, total, output), (whole,) * 3)
    weights = np.exp(scores - 7.0)
    assert m_all.parts[0] == 7.0
    assert np.allclose(l_all.parts[3], weights.sum())
    assert np.allclose(o_all.parts[5], weights @ np.arange(8.0))


def test_replicas_that_differ_are_an_error() -> None:
    place = placement_of(Encoding.replicated(MESH, 1).with_dim(0, (GPU,)), (2,))
    parts = [np.array([float(device // 4)]) for device in range(8)]
    parts[5] = np.array([9.0])
    with pytest.raises(SemanticsError, match="devices 4 and 5 hold replicas that differ by 8"):
        check_replicas(Distributed(tuple(parts), place))


def test_a_part_of_another_shape_is_an_error() -> None:
    place = placement_of(Encoding.replicated(MESH, 1), (2,))
    with pytest.raises(SemanticsError, match=r"device 0 holds an array of shape \(3,\)"):
        check_replicas(Distributed((np.zeros(3),) * 8, place))
