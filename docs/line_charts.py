"""Line charts as small SVG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log2, log10
from pathlib import Path
from typing import Final

COLOURS: Final = ("#1b5e9e", "#c8511b", "#2c8a4b", "#8a3ea6", "#7a6a2a", "#555555", "#c02a5a")
WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 66, 170, 34, 48

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """Lines over an axis of powers of two, or of values as they are."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Points]
    log_x: bool = True
    log_y: bool = True

    def write(self, path: Path) -> None:
        path.write_text(self.svg(), encoding="utf-8")

    def svg(self) -> str:
        xs = [x for line in self.lines.values() for x, _ in line]
        ys = [y for line in self.lines.values() for _, y in line]
        low, high = (min(ys), max(ys)) if self.log_y else (0.0, max(ys) * 1.05)
        if self.log_y:
            low, high = low / 1.15, high * 1.15

        def across(x: float) -> float:
            first, last = min(xs), max(xs)
            share = (
                log2(x / first) / log2(last / first) if self.log_x else (x - first) / (last - first)
            )
            return LEFT + share * (WIDTH - LEFT - RIGHT)

        def up(y: float) -> float:
            share = log10(y / low) / log10(high / low) if self.log_y else (y - low) / (high - low)
            return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="11">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            f'<text x="{LEFT}" y="18" font-size="13" font-weight="bold">{_text(self.title)}</text>',
        ]
        for y in _ticks(low, high, self.log_y):
            parts.append(
                f'<path d="M{LEFT} {up(y):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>'
                f'<text x="{LEFT - 6}" y="{up(y) + 4:.1f}" text-anchor="end">{_number(y)}</text>'
            )
        for x in sorted(set(xs)):
            parts.append(
                f'<path d="M{across(x):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eeeeee"/>'
                f'<text x="{across(x):.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">'
                f"{_number(x)}</text>"
            )
        parts.append(
            f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">'
            f"{_text(self.x)}</text>"
            f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" '
            f'transform="rotate(-90 14 {HEIGHT / 2})">{_text(self.y)}</text>'
        )
        for number, (name, points) in enumerate(self.lines.items()):
            colour = COLOURS[number % len(COLOURS)]
            dash = ' stroke-dasharray="5 3"' if number >= len(COLOURS) else ""
            path = "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in points)
            y = TOP + 8 + 17 * number
            parts.append(
                f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
                f'<path d="M{WIDTH - RIGHT + 10} {y}h18" stroke="{colour}" stroke-width="2"{dash}/>'
                f'<text x="{WIDTH - RIGHT + 33}" y="{y + 4}">{_text(name)}</text>'
            )
            parts += [
                f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="2.5" fill="{colour}"/>'
                for x, y in points
            ]
        return "\n".join([*parts, "</svg>"]) + "\n"


def _ticks(low: float, high: float, log: bool) -> list[float]:
    if not log:
        step = 10 ** floor(log10(high - low))
        while (high - low) / step < 4:
            step /= 2
        return [step * n for n in range(ceil(low / step), floor(high / step) + 1)]
    steps = [
        m * 10.0**e for e in range(floor(log10(low)), ceil(log10(high)) + 1) for m in (1, 2, 5)
    ]
    return [step for step in steps if low <= step <= high]


def _number(value: float) -> str:
    if value >= 1024 and value % 1024 == 0:
        return f"{value / 1024:g}k"
    return f"{value:g}"


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
