"""A sensitivity as text for a terminal, and as JSON for a script."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from starc.diagnostics import counted
from starc.report.formats import OutputFormat
from starc.validation.sensitivity import NOTICED, Effect, Report, Sensitivity, describe

SCHEMA: Final = 1


def reports_json(reports: Sequence[Report]) -> str:
    """Stable keys; changes and errors are fractions, not percent; times in seconds."""
    document = {"schema": SCHEMA, "sensitivity": [_report(report) for report in reports]}
    return json.dumps(document, indent=2)


def _report(report: Report) -> dict[str, Any]:
    return {
        "target": report.target,
        "cases": [
            {"file": case.file, "kind": case.kind, "parameters": dict(case.parameters)}
            for case in report.cases
        ],
        "error": report.error,
        "layers_s": dict(report.layers),
        "ratios": dict(report.ratios),
        "numbers": [
            {
                "key": item.swept.key,
                "value": item.swept.value,
                "unit": item.swept.unit,
                "kind": item.swept.kind,
                "range": "file" if item.swept.ranged else "30 %",
                "size": item.size,
                "flips": item.flips,
                "low": _end(item.low, item.swept.low),
                "high": _end(item.high, item.swept.high),
            }
            for item in report.numbers
        ],
    }


def _end(effect: Effect | str, value: float) -> dict[str, Any]:
    if isinstance(effect, str):
        return {"value": value, "problem": effect}
    return {
        "value": effect.value,
        "mean_change": effect.mean,
        "largest_change": effect.largest,
        "largest_case": effect.largest_case,
        "error": effect.error,
        "layers": dict(effect.layers),
        "ratios": dict(effect.ratios),
        "flips": list(effect.flips),
    }


def reports_text(reports: Sequence[Report]) -> str:
    """A table a machine, the number that changes most first."""
    return "\n\n".join(_text(report) for report in reports)


def _text(report: Report) -> str:
    modes, ratios = list(report.layers), list(report.ratios)
    lines = [f"what {report.target} hangs on: every assumed number and every range, one at a time"]
    shown = [f"{mode} {1e6 * seconds:.2f} us" for mode, seconds in report.layers.items()]
    shown += [f"{name} {ratio:.3f}" for name, ratio in report.ratios.items()]
    lines += [f"a layer unmoved: {', '.join(shown)}", ""]
    head = ["number", "value", "moved to", "cases", "most", "error", *modes, *ratios, ""]
    rows = [head]
    quiet: list[str] = []
    for item in report.numbers:
        if item.size < NOTICED and not any(isinstance(e, str) for e in (item.low, item.high)):
            quiet.append(item.swept.key)
            continue
        rows += _rows(item, modes, ratios)
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.append("")
    if quiet:
        lines.append(f"no change of {100 * NOTICED:g} %: {', '.join(quiet)}")
    flipped = [item.swept.key for item in report.numbers if item.flips]
    lines.append(
        f"conclusions that flip: by {', '.join(flipped)}"
        if flipped
        else "no conclusion flips"
        if ratios
        else "one mode: no conclusion to flip"
    )
    lines += [
        f"cases: mean change of {counted(len(report.cases), 'row')}; most: that of the row that "
        "changes most;",
        "error: mean absolute error of these rows; *: 30 % up or down, the file has no range",
        "rows:",
        *(f"  {describe(case)}" for case in report.cases),
    ]
    return "\n".join(lines)


def _rows(item: Sensitivity, modes: Sequence[str], ratios: Sequence[str]) -> list[list[str]]:
    rows: list[list[str]] = []
    for bound, effect in ((item.swept.low, item.low), (item.swept.high, item.high)):
        first = not rows
        star = "" if item.swept.ranged else "*"
        start = [item.swept.key, f"{item.swept.value:.5g}"] if first else ["", ""]
        start.append(f"{bound:.5g}{star}")
        if isinstance(effect, str):
            empty = ["-"] * (3 + len(modes) + len(ratios))
            rows.append([*start, *empty, f"no such machine: {effect}"])
            continue
        rows.append(
            [
                *start,
                _percent(effect.mean),
                _percent(effect.largest),
                "-" if effect.error is None else f"{100 * effect.error:.1f} %",
                *(_percent(effect.layers[mode]) for mode in modes),
                *(f"{effect.ratios[name]:.3f}" for name in ratios),
                "FLIPS" if effect.flips else "",
            ]
        )
    return rows


def _percent(change: float) -> str:
    return "0" if abs(change) < NOTICED else f"{100 * change:+.1f} %"


SENSITIVITY_FORMATS: Final[Mapping[OutputFormat, Callable[[Sequence[Report]], str]]] = {
    OutputFormat.TEXT: reports_text,
    OutputFormat.JSON: reports_json,
}
