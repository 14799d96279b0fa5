"""Whatever the text: a model or an ``InputError``, never another exception, and soon."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from starc.diagnostics import InputError, render_error
from tests.unit.frontend.models import TINY, load

PIECES = [
    *TINY.replace("\n", " \n ").split(" "),
    *"model layer stack phase return causal bf16 x h { } ( ) , = + - * / 16k 1e-5 0".split(),
    '"',
    '"name"',
    "\n",
    "#",
    "%",
    "\u00e9",
    "\r\n",
    "\f",
]


def refusal(text: str) -> InputError | None:
    """The error with which a text is refused, if it is."""
    try:
        load(text)
    except InputError as error:
        return error
    return None


def accepted_or_refused(text: str) -> None:
    error = refusal(text)
    if error is None:
        return
    assert error.diagnostics
    assert render_error(error)
    for diagnostic in error.diagnostics:
        assert diagnostic.location is not None
        assert 1 <= diagnostic.location.line <= text.count("\n") + 1


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
    error = refusal("model {\n" + "a = = 1\n" * 1000 + "}\n")
    assert error is not None
    assert len(error.diagnostics) == 20
