"""Buffers at addresses clobber each other."""

from __future__ import annotations

import numpy as np
import pytest

from starc.core.sharding.encoding import Axis, Encoding, Mesh
from starc.interpreter.local_semantics import SemanticsError
from starc.interpreter.memory import Extent, PlannedMemory
from starc.interpreter.values import Distributed, placement_of

PLACE = placement_of(Encoding.replicated(Mesh("node", (Axis("gpu", 1),)), 1), (2,))
VALUE = Distributed((np.ones(2),), PLACE)


def memory() -> PlannedMemory:
    extents = (Extent("a", 0, 4096), Extent("b", 4096, 8192), Extent("c", 8192, 4096))
    return PlannedMemory({extent.name: extent for extent in extents})


def test_neighbours_leave_each_other_alone() -> None:
    held = memory()
    held.write("a", VALUE)
    held.write("b", VALUE)
    assert held.read("a") is VALUE


def test_an_overlapping_store_destroys_a_buffer() -> None:
    held = memory()
    held.write("b", VALUE)
    held.write("c", VALUE)
    with pytest.raises(SemanticsError, match="@b is read after @c, which overlaps it, was written"):
        held.read("b")
    with pytest.raises(SemanticsError, match="@c was written over @b"):
        held.require_intact(["b"])
    held.write("b", VALUE)
    assert held.read("b") is VALUE
    with pytest.raises(SemanticsError, match="@c is read after @b"):
        held.read("c")


def test_what_nothing_wrote_cannot_be_read() -> None:
    with pytest.raises(SemanticsError, match="@a is read before it is written"):
        memory().read("a")


def test_a_launch_must_not_write_over_what_it_uses() -> None:
    memory().require_disjoint(["a"], ["a", "b"])
    with pytest.raises(SemanticsError, match="writes @b and uses @c"):
        memory().require_disjoint(["b"], ["a", "c"])
