"""Whatever the text: a model or an ``InputError``, never another exception, and soon."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from starc.diagnostics import InputError, render_error
from tests.unit.frontend.models import TINY, load

PIECES = [
    *TINY.replace("\n", " \n ").split(" "),
    *"model layer stack phase return causal sink bf16 x h { } ( ) , = + - * / 16k 1e-5 0".split(),
    '"',
    '"name"',
    "\n",
    "#",
    "%",
    "\u00e9",
    "\r\n",
    "\f",
]


def accepted_or_refused(text: str) -> None:
    try:
        load(text)
    except InputError as error:
        assert error.diagnostics
        for diagnostic in error.diagnostics:
            location = diagnostic.location
            assert location is not None
            assert 1 <= location.line <= text.count("\n") + 1
        assert render_error(error)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(TINY)), st.integers(0, 12), st.sampled_from(PIECES)),
        min_size=1,
        max_size=4,
    )
)
def test_a_model_with_pieces_cut_out_and_put_in(edits: list[tuple[int, int, str]]) -> None:
    text = TINY
    for position, length, piece in edits:
        text = text[:position] + piece + text[position + length :]
    accepted_or_refused(text)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_pieces_in_any_order(pieces: list[str]) -> None:
    accepted_or_refused(" ".join(pieces))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    accepted_or_refused(text)


def test_a_large_file_is_refused_soon() -> None:
    begin = time.monotonic()
    accepted_or_refused("a = b\n" * (16 * 2**20 // 6))
    assert time.monotonic() - begin < 10


def test_a_file_of_errors_reports_the_first_twenty() -> None:
    try:
        load("model {\n" + "a = = 1\n" * 1000 + "}\n")
    except InputError as error:
        assert len(error.diagnostics) == 20
    else:
        raise AssertionError
