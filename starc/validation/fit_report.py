"""A calibration as text for a terminal, and as JSON for a script."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from starc.diagnostics import counted
from starc.report.formats import OutputFormat
from starc.targets.names import machine_label
from starc.validation.calibration import Fit

SCHEMA: Final = 1


def fit_json(fit: Fit, target: str, output: str) -> str:
    """Stable keys; errors are fractions, not percent."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "target": target,
        "output": output,
        "constants": [
            {
                "key": constant.key,
                "unit": constant.unit,
                "before": fit.before[constant.key],
                "after": fit.after[constant.key],
                "low": constant.low,
                "high": constant.high,
                "at_bound": at_bound(fit, constant.key),
            }
            for constant in fit.constants
        ],
        "rows": {
            "fitted": len(fit.fitted_cases),
            "held_out": len(fit.held_out_cases),
            "held_out_beyond_search": fit.beyond,
        },
        "errors": {
            "fitted": {"before": dict(fit.fitted_before), "after": dict(fit.fitted_after)},
            "held_out": {"before": dict(fit.held_out_before), "after": dict(fit.held_out_after)},
        },
        "simulations": fit.simulations,
        "ended_by": fit.ended_by,
        "helped": fit.helped,
        "warnings": list(fit.warnings),
    }
    return json.dumps(document, indent=2)


def at_bound(fit: Fit, key: str) -> bool:
    """Whether a constant ended at one of its bounds: the best value may lie beyond it."""
    constant = next(constant for constant in fit.constants if constant.key == key)
    place = constant.place(fit.after[key])
    return not 1e-6 < place < 1 - 1e-6


def fit_text(fit: Fit, target: str, output: str) -> str:
    """Tables of the constants and of the errors."""
    lines = [f"{machine_label(target)}: {counted(len(fit.constants), 'constant')} fitted", ""]
    rows = [("constant", "before", "after", "bounds", "unit", "")]
    for constant in fit.constants:
        rows.append(
            (
                constant.key,
                f"{fit.before[constant.key]:.6g}",
                f"{fit.after[constant.key]:.6g}",
                f"{constant.low:.6g} to {constant.high:.6g}",
                constant.unit,
                "at its bound" if at_bound(fit, constant.key) else "",
            )
        )
    lines += _table(rows)
    lines += ["", "mean absolute error"]
    head = ("class", "fitted rows: before", "after", "held-out rows: before", "after")
    errors: list[tuple[str, ...]] = [head]
    for kind in {**fit.fitted_before, **fit.held_out_before}:
        errors.append(
            (
                kind,
                *(_percent(found, kind) for found in (fit.fitted_before, fit.fitted_after)),
                *(_percent(found, kind) for found in (fit.held_out_before, fit.held_out_after)),
            )
        )
    lines += _table(errors)
    ended = (
        "steps became small"
        if fit.ended_by == "steps"
        else "budget was spent: --budget allows more"
    )
    by_hash = len(fit.held_out_cases) - fit.beyond
    lines += [
        "",
        f"{counted(len(fit.fitted_cases), 'row')} fitted, {len(fit.held_out_cases)} held out: "
        f"{by_hash} by a hash of their parameters"
        + (f", {fit.beyond} more than --rows of a class" if fit.beyond else ""),
        f"{counted(fit.simulations, 'simulation')}; the search ended because the {ended}",
        f"written: {output}",
    ]
    return "\n".join(lines)


def _percent(errors: Mapping[str, float], kind: str) -> str:
    return f"{100 * errors[kind]:.2f} %" if kind in errors else "-"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


FIT_FORMATS: Final[Mapping[OutputFormat, Callable[[Fit, str, str], str]]] = {
    OutputFormat.TEXT: fit_text,
    OutputFormat.JSON: fit_json,
}
"""What prints a fit, given the machine that it starts from and the file that it goes to."""
