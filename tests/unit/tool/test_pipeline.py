"""The order of passes and what cannot be left out."""

import pytest

from starc.diagnostics import UsageError
from starc.passes.pipeline import LAST_PASS_OF_LEVEL, LEVELS, PASSES
from starc.passes.selection import PassSpec, plan_passes


def names(specs: tuple[PassSpec, ...]) -> list[str]:
    return [spec.name for spec in specs]


def test_needs_name_earlier_passes() -> None:
    seen: set[str] = set()
    for entry in PASSES:
        assert seen.issuperset(entry.needs), entry.name
        seen.add(entry.name)


@pytest.mark.parametrize("level", LEVELS)
def test_levels_end_with_their_last_pass(level: str) -> None:
    assert names(plan_passes("naive", compile_to=level))[-1] == LAST_PASS_OF_LEVEL[level]


def test_options_reach_the_pass() -> None:
    specs = plan_passes("naive", options={"assign-tensor-parallel": {"tp": 8}})
    assert str(specs[1]) == "assign-tensor-parallel{tp=8}"


@pytest.mark.parametrize(
    ("disabled", "user"),
    [("localize", "select-collective-algorithm"), ("plan-scratch", "assign-engines"),
     ("assign-engines", "pack"), ("assign-queues", "plan-memory")],
)  # fmt: skip
def test_a_needed_pass_cannot_be_disabled(disabled: str, user: str) -> None:
    with pytest.raises(UsageError, match=f"'{disabled}' cannot be disabled: '{user}' needs"):
        plan_passes("naive", disable=[disabled])


def test_an_unneeded_pass_can_be_disabled() -> None:
    assert "pipeline-loops" not in names(plan_passes("naive", disable=["pipeline-loops"]))
    # What a level does not reach is not needed.
    assert "assign-queues" not in names(
        plan_passes("naive", disable=["assign-queues"], compile_to="collective")
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plan_passes("naiv"), "unknown strategy 'naiv' \\(did you mean 'naive'\\?\\)"),
        (lambda: plan_passes("naive", compile_to="isaa"), "unknown level 'isaa'.*'isa'"),
        (lambda: plan_passes("naive", disable=["x"]), "unknown pass 'x'"),
    ],
)
def test_unknown_names(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(UsageError, match=message):
        call()
