"""How errors are shown."""

from __future__ import annotations

from xdsl.dialects.builtin import (
    ArrayAttr,
    CallSiteLoc,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)

from starc.diagnostics import (
    Diagnostic,
    InputError,
    Location,
    did_you_mean,
    render,
    render_error,
    suggestion,
)
from starc.dialects.locations import location_of

SOURCES = {"a.sa": "first\n\tsecond line\nthird"}


def test_a_diagnostic_with_its_line_and_caret() -> None:
    diagnostic = Diagnostic("wrong", Location("a.sa", 1, 3), hint="right")
    assert render([diagnostic], SOURCES) == (
        "a.sa:1:3: error: wrong\n  first\n    ^\n  hint: right"
    )


def test_tabs_before_the_caret_are_kept() -> None:
    shown = render([Diagnostic("wrong", Location("a.sa", 2, 4))], SOURCES)
    assert shown == "a.sa:2:4: error: wrong\n  \tsecond line\n  \t  ^"


def test_a_caret_at_the_end_of_a_line() -> None:
    shown = render([Diagnostic("wrong", Location("a.sa", 3, 6))], SOURCES)
    assert shown.splitlines()[-1] == "  " + " " * 5 + "^"


def test_a_place_that_the_text_does_not_have() -> None:
    assert render([Diagnostic("wrong", Location("a.sa", 9, 1))], SOURCES) == (
        "a.sa:9:1: error: wrong"
    )
    assert render([Diagnostic("wrong", Location("b.sa", 1, 1))], SOURCES) == (
        "b.sa:1:1: error: wrong"
    )


def test_a_long_line_is_cut_around_the_caret() -> None:
    text = "x" * 500 + "!" + "y" * 500
    _, line, caret = render([Diagnostic("wrong", Location("c", 1, 501))], {"c": text}).split("\n")
    assert len(line) <= 102
    assert line[caret.index("^")] == "!"


def test_control_characters_do_not_reach_the_terminal() -> None:
    shown = render([Diagnostic("wrong", Location("c", 1, 2))], {"c": "a\x1b[31mb"})
    assert "\x1b" not in shown


def test_keys_and_severities() -> None:
    diagnostics = [Diagnostic("wrong", key="--set heads"), Diagnostic("odd", severity="warning")]
    assert render(diagnostics, {}) == "error: --set heads: wrong\nwarning: odd"


def test_an_input_error_holds_all_diagnostics_and_sources() -> None:
    first, second = Diagnostic("one", Location("a.sa", 1, 1)), Diagnostic("two")
    error = InputError([first, second], SOURCES)
    assert error.diagnostics == (first, second)
    assert render_error(error) == "a.sa:1:1: error: one\n  first\n  ^\nerror: two"
    assert InputError(second).diagnostics == (second,)


def test_suggestions_for_misspelt_names() -> None:
    names = ["hidden", "heads", "kv_heads"]
    assert suggestion("hiden", names) == "did you mean 'hidden'?"
    assert suggestion("zzz", names) is None
    assert did_you_mean("zzz", names) == "known: heads, hidden, kv_heads"
    assert did_you_mean("zzz", []) is None


def test_the_location_of_an_operation() -> None:
    place = FileLineColLoc(StringAttr("a.sa"), IntAttr(3), IntAttr(7))
    module = ModuleOp([])
    assert location_of(module) is None
    for location in (
        place,
        NameLoc(StringAttr("x"), place),
        CallSiteLoc(place, UnknownLoc()),
        FusedLoc(ArrayAttr([UnknownLoc(), place]), NoneAttr()),
    ):
        module.location = location
        assert location_of(module) == Location("a.sa", 3, 7)


def test_a_severity_that_the_reader_has_from_elsewhere() -> None:
    found = (
        Diagnostic("no such axis", Location("m.toml", 3, 1), hint="known: gpu"),
        Diagnostic("nor this one", severity="note"),
    )
    text = render_error(InputError(found), severity=False)
    assert text == "m.toml:3:1: no such axis\n  hint: known: gpu\nnote: nor this one"
    assert Diagnostic("error: is a word", key="k").text(severity=False) == "k: error: is a word"
