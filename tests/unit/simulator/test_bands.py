"""Parts of a launch that take turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from starc.backend.assembly import ProgramAssembler
from starc.backend.program import Program
from starc.backend.validation import problems
from starc.simulator.core.compiled import interpreted
from starc.simulator.core.launches.placement import number_in_part, part_of
from starc.simulator.state.program_records import LAUNCH_INFO, PART_INFO


def order(grids: list[int], bands: int) -> list[tuple[int, int]]:
    """(part, number within it) of every workgroup of a launch, in the order of dispatch."""
    launches = np.zeros(1, LAUNCH_INFO)
    parts = np.zeros(len(grids), PART_INFO)
    parts["workgroups"] = grids
    parts["first"] = np.cumsum([0, *grids[:-1]])
    launches[0]["workgroups"], launches[0]["parts"] = sum(grids), len(grids)
    launches[0]["bands"] = bands
    state = cast(Any, SimpleNamespace(launches=launches, parts=parts))
    result: list[tuple[int, int]] = []
    for workgroup in range(sum(grids)):
        part = int(interpreted(part_of)(state, 0, workgroup))
        result.append((part, int(interpreted(number_in_part)(state, 0, part, workgroup))))
    return result


def test_parts_follow_each_other_without_bands() -> None:
    assert order([2, 3], 1) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]


def test_parts_take_turns() -> None:
    assert order([2, 4], 2) == [(0, 0), (1, 0), (1, 1), (0, 1), (1, 2), (1, 3)]


@pytest.mark.parametrize("bands", [1, 2, 4, 8])
def test_every_workgroup_starts_once(bands: int) -> None:
    grids = [8, 16, 8]
    found = order(grids, bands)
    assert sorted(found) == [(part, n) for part, grid in enumerate(grids) for n in range(grid)]


def _program(bands: int) -> Program:
    program = ProgramAssembler("bands", {}, (("gpu", 1),))
    rows = [program.add(program.template(name), waves=1) for name in ("a", "b")]
    program.layer("layer")
    program.launch("both", [(rows[0], 4), (rows[1], 8)], bands=bands)
    return program.finish()


def test_bands_divide_the_workgroups_of_every_part() -> None:
    assert not problems(_program(4))
    assert any("8 bands" in text for text in problems(_program(8)))
