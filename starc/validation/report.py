"""A validation as text for a terminal, and as JSON for a script."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from starc.report.formats import OutputFormat
from starc.targets.names import machine_label
from starc.validation.baselines import BASELINES, SPLIT_AWARE, Baseline
from starc.validation.registry import notes_of
from starc.validation.rows import Row
from starc.validation.summary import MODELS, SIMULATOR, Errors, Validation, describe

SCHEMA: Final = 1
WIDTH: Final = 96
WIDEST: Final = 100
"""Columns of a table of rows."""


def to_json_text(found: Validation) -> str:
    """The report with stable keys; errors are fractions, not percent."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "targets": dict(found.targets),
        "rows": [_row(row) for row in found.rows],
        "groups": [
            {
                "kind": group.kind,
                "group": group.group,
                "rows": group.rows,
                "errors": {name: asdict(errors) for name, errors in group.errors.items()},
            }
            for group in found.groups
        ],
        "baselines": [
            {
                "kind": kind,
                "name": name,
                "constants": dict(baseline.constants),
                "count": len(baseline.constants),
                "fitted_rows": baseline.rows,
            }
            for kind, own in found.baselines.items()
            for name, baseline in own.items()
        ],
        "constants": [
            {"kind": kind, **asdict(constant)}
            for kind, own in found.constants.items()
            for constant in own
        ],
        "duels": [
            {
                "kind": duel.kind,
                "against": SPLIT_AWARE,
                "wins": duel.wins,
                "losses": duel.losses,
                "worst": [_row(row) for row in duel.worst],
            }
            for duel in found.duels
        ],
        "margins": [{**asdict(margin), "held": margin.held} for margin in found.margins],
        "notes": [
            {"file": file, "kind": kind, "text": text}
            for file in dict.fromkeys(row.file for row in found.rows)
            for kind, text in notes_of(file).items()
        ],
        "warnings": list(found.warnings),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _row(row: Row) -> dict[str, Any]:
    return {
        "file": row.file,
        "kind": row.kind,
        "group": row.group,
        "parameters": dict(row.parameters),
        "measured": row.measured,
        "simulated": row.simulated,
        "error": row.error,
        "unit": row.unit,
        "role": row.role,
        "fitted": row.fitted,
        "margin": row.margin,
        "baselines": dict(row.baselines),
    }


def render_text(found: Validation) -> str:
    """Tables of rows by file, then errors, baselines, and where they differ."""
    parts: list[str] = []
    for file in dict.fromkeys(row.file for row in found.rows):
        rows = [row for row in found.rows if row.file == file]
        parts.append(
            f"{file}  on {machine_label(found.targets[file])}\n"
            + _row_table(rows)
            + _notes(file, rows)
        )
    parts.append(_summary(found))
    parts.append(_constants(found))
    parts += [text for text in (_duels(found), _margins(found)) if text]
    return "\n\n".join(parts) + "\n"


def _notes(file: str, rows: Sequence[Row]) -> str:
    """What the model lacks, of the classes that rows are of."""
    kinds = {row.kind for row in rows}
    lines = [
        textwrap.fill(f"{kind}: {text}", WIDTH, initial_indent="  ", subsequent_indent="      ")
        for kind, text in notes_of(file).items()
        if kind in kinds
    ]
    return "".join("\n" + line for line in ["  what the model lacks", *lines]) if lines else ""


def number(value: float) -> str:
    """Four significant digits, as plain as they go."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e7 or size < 1e-3:
        return f"{value:.3e}"
    digits = max(0, 3 - _exponent(size))
    return f"{value:,.{digits}f}"


def _exponent(size: float) -> int:
    from math import floor, log10

    return floor(log10(size))


def percent(value: float) -> str:
    """A signed error in percent."""
    return f"{100 * value:+.1f} %"


def table(header: Sequence[str], lines: Sequence[Sequence[str]], left: Sequence[int] = ()) -> str:
    """Columns side by side, numbers to the right; columns of ``left`` to the left."""
    widths = [max(len(row[i]) for row in (header, *lines)) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return ("  " + "  ".join(cells)).rstrip()

    return "\n".join([line(header), *(line(row) for row in lines)])


def _row_table(rows: Sequence[Row]) -> str:
    # What a file says of its rows' roles and margins stands in the last column.
    names = [
        name
        for name in dict.fromkeys(name for row in rows for name in row.parameters)
        if name not in ("role", "margin")
    ]
    unit = rows[0].unit if len({row.unit for row in rows}) == 1 else None
    header = [
        *names,
        *([f"measured {unit}"] if unit else ["measured", "unit"]),
        "simulated",
        "error",
        "role (margin)" if any(row.margin is not None for row in rows) else "role",
    ]
    lines: list[list[str]] = []
    for row in rows:
        margin = f" ({100 * row.margin:.0f} %)" if row.margin is not None else ""
        lines.append(
            [
                *(_cell(row.parameters.get(name, "")) for name in names),
                number(row.measured),
                *([] if unit else [row.unit]),
                number(row.simulated),
                percent(row.error),
                row.role + margin,
            ]
        )
    texts = [
        i
        for i, name in enumerate(names)
        if any(isinstance(row.parameters.get(name), str) for row in rows)
    ]
    if not unit:
        texts.append(len(names) + 1)
    return table(header, _narrow(header, lines, texts), (*texts, len(header) - 1))


def _cell(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _narrow(
    header: Sequence[str], lines: Sequence[Sequence[str]], texts: Sequence[int]
) -> list[list[str]]:
    """Wraps the cells of the widest columns of text until the table has ``WIDEST`` columns; none is
    wider than 32. Words are broken only where it takes that."""
    widths = [max(len(row[i]) for row in (header, *lines)) for i in range(len(header))]
    words = {
        i: max(len(word) for row in (header, *lines) for word in ("", *_words(row[i])))
        for i in texts
    }
    least = {i: min(words[i], 32) for i in texts}
    for i in texts:
        widths[i] = min(widths[i], 32)
    while sum(widths) + 2 * len(widths) > WIDEST:
        wide = [i for i in texts if widths[i] > least[i]]
        wide = wide or [i for i in texts if widths[i] > max(8, len(header[i]))]
        if not wide:
            break
        widths[max(wide, key=lambda i: widths[i])] -= 1
    found: list[list[str]] = []
    for line in lines:
        cells = [_packed(cell, widths[i]) if i in texts else [cell] for i, cell in enumerate(line)]
        rows = max(map(len, cells))
        found += [[cell[k] if k < len(cell) else "" for cell in cells] for k in range(rows)]
    return found


def _words(cell: str) -> list[str]:
    """Where a cell may be broken: behind spaces and slashes, and in 16x16."""
    return re.split(r"(?<=[ /])|(?<=\dx)(?=\d)", cell)


def _packed(cell: str, width: int) -> list[str]:
    found = [""]
    for word in _words(cell):
        if found[-1] and len(found[-1] + word.rstrip()) > width:
            found.append("")
        found[-1] += word
    whole = [line.rstrip() for line in found]
    return [line[k : k + width] for line in whole for k in range(0, max(1, len(line)), width)]


def _summary(found: Validation) -> str:
    header = ["class", "group", "rows", "", "mean", "median", "max", "bias", "corr.", "model"]
    lines: list[list[str]] = []
    for group in found.groups:
        for name in MODELS:
            if name in group.errors:
                first = name == SIMULATOR
                lines.append(
                    [
                        group.kind if first else "",
                        group.group if first else "",
                        str(group.errors[name].rows) if first else "",
                        group.rows if first else "",
                        *_error_cells(group.errors[name]),
                        name,
                    ]
                )
    lines = _narrow(header, lines, (0, 1))
    return "errors (absolute, but for the bias)\n" + table(header, lines, (0, 1, 3, 9))


def _error_cells(errors: Errors) -> list[str]:
    return [
        f"{100 * errors.mean:.1f} %",
        f"{100 * errors.median:.1f} %",
        f"{100 * errors.largest:.1f} %",
        percent(errors.bias),
        "-" if errors.correlation is None else f"{errors.correlation:.3f}",
    ]


def _constants(found: Validation) -> str:
    lines = ["constants fitted to measurements"]
    for kind in dict.fromkeys(row.kind for row in found.rows):
        own = found.constants.get(kind, ())
        names = ", ".join(f"{item.key} = {number(item.value)} {item.unit}" for item in own)
        lines += _wrapped(f"{kind}: simulator {len(own)}" + (f": {names}" if names else ""))
        for name in BASELINES:
            baseline = found.baselines.get(kind, {}).get(name)
            if baseline is not None:
                lines += _wrapped(f"{kind}: {name} {_formula(baseline)}")
    return "\n".join(lines)


_UNITS: Final[Mapping[str, tuple[float, str]]] = {
    "bandwidth": (1e3, "GB/s"),
    "workgroup_rate": (1e3, "GB/s"),
    "matrix_rate": (1e6, "TFLOP/s"),
}


def _formula(baseline: Baseline) -> str:
    parts: list[str] = []
    for name, value in baseline.constants.items():
        scale, unit = _UNITS.get(name, (1.0, "us"))
        parts.append(f"{name.removesuffix('_us')} {number(value / scale)} {unit}")
    return f"{len(parts)} (refit on {baseline.rows} rows): " + ", ".join(parts)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="      ")


def _duels(found: Validation) -> str:
    lines: list[str] = []
    for duel in found.duels:
        lines.append(
            f"  {duel.kind}: nearer than the split-aware roofline in {duel.wins} tests, "
            f"farther in {duel.losses}" + ("; by most in" if duel.worst else "")
        )
        for row in duel.worst:
            against = percent(row.baseline_error(SPLIT_AWARE))
            text = f"{describe(row)}: {percent(row.error)} against {against}"
            lines += textwrap.wrap(text, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
    return (
        "\n".join(["simulator against the split-aware roofline, row by row", *lines])
        if lines
        else ""
    )


def _margins(found: Validation) -> str:
    broken = [margin for margin in found.margins if not margin.held]
    if not found.margins:
        return ""
    lines: list[str] = []
    for margin in broken:
        text = f"{margin.what}: {100 * margin.found:.1f} % of at most {100 * margin.limit:.0f} %"
        lines += _wrapped(text)
    head = f"margins: {len(found.margins) - len(broken)} of {len(found.margins)} held"
    return "\n".join([head + ("; broken:" if broken else ""), *lines])


VALIDATION_FORMATS: Final[Mapping[OutputFormat, Callable[[Validation], str]]] = {
    OutputFormat.TEXT: render_text,
    OutputFormat.JSON: to_json_text,
}
