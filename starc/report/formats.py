"""Formats of a report, by name. A new one is a file that renders a ``Report``, a member here and a
row of the table; what renders is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starc.report.model import Report


class OutputFormat(StrEnum):
    """How a command prints what it found."""

    TEXT = "text"
    JSON = "json"


def _text(report: Report, color: bool) -> str:
    from starc.report.text import render_text

    return render_text(report, color=color)


def _json(report: Report, color: bool) -> str:
    from starc.report.model import to_json_text

    return to_json_text(report)


REPORT_FORMATS: Final[Mapping[OutputFormat, Callable[[Report, bool], str]]] = {
    OutputFormat.TEXT: _text,
    OutputFormat.JSON: _json,
}
"""What renders a report, given whether it may carry colours."""
