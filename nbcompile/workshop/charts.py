"""Small line charts for the workshop's notebooks: plain SVG, saved with the notebook, no library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import escape

COLOURS = ("#0b6bcb", "#c2410c", "#15803d", "#7c3aed")
"""Each is legible on white; a series has a dash pattern of its own too."""
_DASHES = ("", "6 4", "2 3", "8 3 2 3")
_WIDTH, _HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 20, 14, 46

Line = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """A finished picture. It shows itself as the result of a notebook's cell."""

    svg: str
    says: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return self.says


def log_log(
    lines: Mapping[str, Line],
    *,
    x: str,
    y: str,
    points: Mapping[str, tuple[float, float]] | None = None,
) -> Chart:
    """``lines`` on two logarithmic axes, named below; ``points`` are single ones, each with its name.

    ``x`` and ``y`` title the axes. ValueError where a value is not above zero, or there is none at all.
    """
    points = points or {}
    places = [place for line in lines.values() for place in line] + list(points.values())
    if not places or min(min(place) for place in places) <= 0:
        raise ValueError("a logarithmic chart wants values above zero")
    across = _Axis.over([place[0] for place in places], _LEFT, _WIDTH - _RIGHT)
    up = _Axis.over([place[1] for place in places], _HEIGHT - _BOTTOM, _TOP)
    parts = [*_grid(across, up), *_titles(x, y)]
    for i, (name, line) in enumerate(lines.items()):
        colour, dash = COLOURS[i % len(COLOURS)], _DASHES[i % len(_DASHES)]
        corners = " ".join(f"{across.at(a):.1f},{up.at(b):.1f}" for a, b in line)
        parts.append(
            f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="2"'
            f' stroke-dasharray="{dash}"/>'
        )
        row = _TOP + 16 + 18 * i
        parts.append(f'<line x1="{_LEFT + 12}" x2="{_LEFT + 44}" y1="{row - 4}" y2="{row - 4}" '
                     f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')  # fmt: skip
        parts.append(f'<text x="{_LEFT + 50}" y="{row}" fill="{colour}">{escape(name)}</text>')
    for name, (a, b) in points.items():
        right = across.at(a) < _WIDTH * 0.7
        parts.append(f'<circle cx="{across.at(a):.1f}" cy="{up.at(b):.1f}" r="4" fill="{COLOURS[1]}"/>')
        parts.append(
            f'<text x="{across.at(a) + (9 if right else -9):.1f}" y="{up.at(b) + 16:.1f}" '
            f'text-anchor="{"start" if right else "end"}" fill="#333333">{escape(name)}</text>'
        )
    style = "font-family:sans-serif;font-size:12px;background:#ffffff"
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" style="{style}">'
        f"<title>{escape(y)} against {escape(x)}</title>"
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>{"".join(parts)}</svg>'
    )
    return Chart(svg, f"chart of {y} against {x}: {', '.join([*lines, *points])}")


@dataclass(frozen=True)
class _Axis:
    """From ``low`` to ``high``, powers of ten, on pixels ``start`` to ``end``."""

    low: int
    high: int
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> _Axis:
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return cls(low, max(high, low + 1), start, end)

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    @property
    def decades(self) -> list[int]:
        return list(range(self.low, self.high + 1))


def _grid(across: _Axis, up: _Axis) -> list[str]:
    parts = []
    for decade in across.decades:
        place = across.at(10.0**decade)
        parts.append(_rule(place, up.start, place, up.end))
        parts.append(_label(place, up.start + 16, "middle", decade))
    for decade in up.decades:
        place = up.at(10.0**decade)
        parts.append(_rule(across.start, place, across.end, place))
        parts.append(_label(across.start - 6, place + 4, "end", decade))
    return parts


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#e2e2e2"/>'


_NAMED = {-2: "0.01", -1: "0.1", 0: "1", 1: "10", 2: "100", 3: "1,000"}


def _label(x: float, y: float, anchor: str, decade: int) -> str:
    text = _NAMED.get(decade) or f'10<tspan dy="-5" font-size="9">{decade}</tspan>'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#555555">{text}</text>'


def _titles(x: str, y: str) -> list[str]:
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    return [
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 10}" text-anchor="middle" fill="#333333">'
        f"{escape(x)}</text>",
        f'<text x="16" y="{middle}" text-anchor="middle" fill="#333333" '
        f'transform="rotate(-90 16 {middle})">{escape(y)}</text>',
    ]
