"""Streams of engines compute what the one stream does, and their semaphores are checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from starc.backend.functional import execute
from starc.backend.numerics import Mode
from starc.interpreter.concurrent import ScheduleError, run_isa
from starc.passes.program.pack import pack
from starc.targets.loader import load_target
from tests.unit.interpreter.isa_modules import parse
from tests.unit.interpreter.stream_modules import (
    SCORE_ORDER,
    TRANSFER_ORDER,
    exchange_streams,
    scores_in_line,
    scores_streams,
    transfer_streams,
)

Array = npt.NDArray[Any]
TARGET = load_target("mi300x-cpx", gpus=1)
SCORES = {
    "plain": scores_in_line(composites=False),
    "commands": scores_in_line(),
    "pipelined": scores_in_line(stage=1),
    "streams": scores_streams(),
    "placed": scores_streams(offsets=(0, 64, 192)),
}


def inputs(names: Mapping[str, tuple[int, int]]) -> dict[tuple[int, str], Array]:
    generator = np.random.default_rng(5)
    return {(d, n): generator.normal(size=shape) for d in range(2) for n, shape in names.items()}


SCORE_INPUTS = inputs({"q": (2, 16), "k": (32, 16)})
ROWS = inputs({"x": (6, 8)})


def functional(text: str, given: Mapping[tuple[int, str], Array], mode: Mode = "exact"):
    buffers: list[dict[str, Array]] = [
        {name: values for (owner, name), values in given.items() if owner == device}
        for device in range(2)
    ]
    return execute(pack(parse(text), TARGET), buffers, mode=mode)


def error_of(text: str, given: Mapping[tuple[int, str], Array], seed: int = 0) -> ScheduleError:
    with pytest.raises(ScheduleError) as caught:
        run_isa(parse(text), given, seed=seed)
    return caught.value


@pytest.mark.parametrize("form", SCORES)
def test_every_form_computes_the_same(form: str):
    module = parse(SCORES[form])
    expected = {
        device: 0.5 * SCORE_INPUTS[device, "q"] @ SCORE_INPUTS[device, "k"].T for device in range(2)
    }
    rows = functional(SCORES[form], SCORE_INPUTS)
    for seed in range(6):
        streams = run_isa(module, SCORE_INPUTS, seed=seed)
        for device in range(2):
            np.testing.assert_allclose(streams[device, "y"], expected[device], rtol=1e-12)
            np.testing.assert_array_equal(streams[device, "y"], rows[device]["y"])


def test_typed_results_have_the_same_bits_in_every_form():
    plain = run_isa(parse(SCORES["plain"]), SCORE_INPUTS, mode="typed")
    for form in SCORES:
        rows = functional(SCORES[form], SCORE_INPUTS, "typed")
        streams = run_isa(parse(SCORES[form]), SCORE_INPUTS, seed=3, mode="typed")
        for device in range(2):
            assert rows[device]["y"].tobytes() == plain[device, "y"].tobytes()
            assert streams[device, "y"].tobytes() == plain[device, "y"].tobytes()


@pytest.mark.parametrize("seed", range(6))
def test_elements_exchange_rows_through_queues_in_scratch(seed: int):
    total = ROWS[0, "x"] + ROWS[1, "x"]
    streams = run_isa(parse(exchange_streams()), ROWS, seed=seed)
    rows = functional(exchange_streams(), ROWS)
    for device in range(2):
        np.testing.assert_allclose(streams[device, "y"], total)
        np.testing.assert_array_equal(rows[device]["y"], streams[device, "y"])


@pytest.mark.parametrize("seed", range(6))
def test_branches_on_coordinates_give_elements_their_roles(seed: int):
    streams = run_isa(parse(transfer_streams()), ROWS, seed=seed)
    np.testing.assert_allclose(streams[1, "y"], 2 * ROWS[0, "x"])
    rows = functional(transfer_streams(), ROWS)
    np.testing.assert_array_equal(rows[1]["y"], streams[1, "y"])
    assert "y" not in rows[0]


# Whatever a run shows, a chain of semaphores is missing: every seed finds it.


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("line", SCORE_ORDER)
def test_a_missing_acquire_is_found(line: str, seed: int):
    error = error_of(scores_streams(without=line), SCORE_INPUTS, seed)
    assert error.kind in ("arrival", "recycled", "unwritten")


@pytest.mark.parametrize("line", TRANSFER_ORDER)
def test_a_missing_wait_or_acquire_of_a_transfer_is_found(line: str):
    kinds = {error_of(transfer_streams(without=line), ROWS, seed).kind for seed in range(3)}
    assert kinds <= {"arrival", "recycled", "unwritten", "race"}


def test_a_slot_too_many_is_used_before_it_is_free():
    error = error_of(scores_streams(free=3), SCORE_INPUTS)
    assert error.kind == "recycled"
    assert "overwrites %k slot 0 and does not know of isa.matrix" in str(error)


def test_tiles_that_share_scratch_are_one_place():
    error = error_of(scores_streams(offsets=(0, 64, 96)), SCORE_INPUTS)
    assert error.kind == "recycled"
    assert "which shares scratch with" in str(error)


def test_a_credit_too_many_is_a_race_on_the_queue():
    error = error_of(transfer_streams(credits=3), ROWS)
    assert error.kind == "race"
    assert "@queue of device 1" in str(error)


@pytest.mark.parametrize("line", ["isa.release %k_free", "isa.release %k_full"])
def test_a_missing_release_is_a_deadlock_that_names_the_semaphore(line: str):
    error = error_of(scores_streams(without=line), SCORE_INPUTS)
    assert error.kind == "deadlock"
    assert f"waits for a release of {line.split()[1]}" in str(error)


def test_a_window_beyond_its_tile_is_an_error_of_both_executions():
    text = SCORES["streams"].replace("columns [%i * 4]", "columns [%i * 4 + 1]")
    assert "columns 5..9 of a tile of 8" in str(error_of(text, SCORE_INPUTS))
    with pytest.raises(Exception, match=r"columns 5\.\.9 of a tile of 8"):
        functional(text, SCORE_INPUTS)
