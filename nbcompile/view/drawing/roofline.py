"""The roofline of a record: a log-log plot of what kernels reach under what their chip allows, and a table.

Across: operations a byte. Up: operations a second. The sloping roof is the memory's bandwidth, the flat one
the arithmetic rate. A kernel that was timed is a full dot, its height below the roof the share that it
misses; one that was not is a ring where its predicted time puts it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nbcompile.record.compilation import Ceilings, Compilation
from nbcompile.record.roofline import LAUNCH_SECONDS, RooflinePoint, main_ceilings, points
from nbcompile.units import bytes_text, clip, count_text, seconds_text, share_text, significant
from nbcompile.view.drawing.svg import CHARACTER, Picture, Tone, document, px, text_at
from nbcompile.view.facts.facts import chip_text, short_id
from nbcompile.view.reports.report import Section

WIDTH, HEIGHT = 640, 330
LEFT, TOP, RIGHT, BOTTOM = 74.0, 26.0, 624.0, 290.0
NONE = 30.0
"""Room at the left of the plot for kernels that compute nothing: a logarithm has no place for them."""
NEAR = 8.0
"""Dots closer than this share a label, in pixels."""
_MAX_LABELS = 40
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
Bound = Literal["memory", "compute", "launch"]
Rectangle = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Roofline:
    """The kernels of a record under the ceilings of the chip that they are for."""

    ceilings: Ceilings
    points: tuple[RooflinePoint, ...]
    labels: tuple[str, ...]
    """Short ids, one a point."""

    @property
    def longest_first(self) -> list[tuple[RooflinePoint, str]]:
        """Points and their labels by the time that their work takes."""
        pairs = zip(self.points, self.labels, strict=True)
        return sorted(pairs, key=lambda pair: -pair[0].runs * (pair[0].seconds or pair[0].limit_seconds))

    @property
    def title(self) -> str:
        """``NVIDIA H100 SXM (cuda:90), published rates``."""
        chip = "this CPU" if self.ceilings.target == "cpu" else chip_text(self.ceilings.target)
        if self.ceilings.part and self.ceilings.part not in chip:
            chip = f"{clip(self.ceilings.part, 50)} ({self.ceilings.target})"
        return f"{chip}, {self.ceilings.source} rates"

    @property
    def summary(self) -> str:
        """All kernels together against their limit, in one sentence."""
        limit = sum(point.limit_seconds * point.runs for point in self.points)
        words = self._bounds
        timed = [point.seconds * point.runs for point in self.points if point.seconds is not None]
        if timed and len(timed) == len(self.points):
            spent = sum(timed)
            return f"{words}; all together at least {seconds_text(limit)}, measured {seconds_text(spent)}: " \
                   f"{share_text(limit / spent)}"  # fmt: skip
        words += f"; all together at least {seconds_text(limit)}"
        predicted = sum(point.predicted * point.runs for point in self.points)
        return f"{words}, predicted {seconds_text(predicted)}" if predicted > limit else words

    @property
    def _bounds(self) -> str:
        """``2 of 3 kernels bound by memory, 1 by launching``."""
        bounds = [bound(point) for point in self.points]
        words = {"memory": "memory", "compute": "arithmetic", "launch": "launching"}
        (count, word), *rest = ((bounds.count(name), words[name]) for name in words if name in bounds)
        first = f"{count} of {count_text(len(bounds), 'kernel')} bound by {word}"
        return ", ".join([first, *(f"{count} by {word}" for count, word in rest)])

    @property
    def launching(self) -> str:
        """What a predicted time holds beside the limit, in words; empty on the CPU."""
        if self.ceilings.target == "cpu":
            return ""
        return f"predicted: the limit and {seconds_text(LAUNCH_SECONDS)} a launch"


def roofline(compilation: Compilation) -> Roofline | None:
    """``None`` where no kernel's chip has known rates, or none moves or computes anything."""
    ceilings = main_ceilings(compilation)
    found = points(compilation, ceilings) if ceilings is not None else ()
    if ceilings is None or not found:
        return None
    return Roofline(ceilings, found, tuple(short_id(compilation, point.kernel) for point in found))


def bound(point: RooflinePoint) -> Bound:
    """What a kernel's time goes to: the ceiling that it meets first, or ``launch`` where launching it takes
    longer than its work at that ceiling."""
    return "launch" if point.predicted > 2 * point.limit_seconds else point.bound


HEADS = ("kernel", "moves", "computes", "flop a byte", "bound by", "limit", "predicted", "measured",
         "of the limit")  # fmt: skip


def table(roof: Roofline, most: int, name_width: int = 40) -> Section:
    """The figures of at most ``most`` kernels in words, the longest first, under those of :data:`HEADS` that
    say something; names are cut at ``name_width`` characters."""
    rows = [
        (
            clip(f"{label} {point.name}", name_width),
            bytes_text(point.bytes),
            quantity(point.flops, "flop") if point.flops else "–",
            significant(point.intensity, 2) if point.bytes and point.flops else "–",
            bound(point),
            seconds_text(point.limit_seconds),
            seconds_text(point.predicted if point.predicted != point.limit_seconds else None),
            seconds_text(point.seconds),
            share_text(point.share, "") if point.share is not None else "–",
        )
        for point, label in roof.longest_first
    ]
    told = [n for n in range(len(HEADS)) if any(row[n] != "–" for row in rows)]
    shown = tuple(tuple(row[n] for n in told) for row in rows[:most])
    heads = tuple(HEADS[n] for n in told)
    return Section(heads=heads, rows=shown, right=range(1, len(HEADS)), dense=True, more=len(rows) - most)


def quantity(value: float, unit: str) -> str:
    """``66.9 Tflop/s``, ``16.8 Mflop``: three digits and a prefix."""
    for size, prefix in _PREFIXES:
        if abs(value) >= size * 0.9995:
            return f"{significant(value / size)} {prefix}{unit}"
    return f"{significant(value)} {unit}"


# -- the plot ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Axes:
    """Logarithmic axes: decades ``x0`` to ``x1`` of operations a byte, ``y0`` to ``y1`` of operations a
    second, in the plot's rectangle."""

    x0: float
    x1: float
    y0: float
    y1: float
    left: float

    def x(self, intensity: float) -> float:
        return self.left + (math.log10(intensity) - self.x0) / (self.x1 - self.x0) * (RIGHT - self.left)

    def y(self, rate: float) -> float:
        return BOTTOM - (math.log10(rate) - self.y0) / (self.y1 - self.y0) * (BOTTOM - TOP)


@dataclass(frozen=True)
class _Dot:
    x: float
    y: float
    full: bool
    labels: tuple[str, ...]
    below: bool = False
    """Whether its place is below the frame."""


def roofline_picture(roof: Roofline, tone: Tone) -> Picture:
    """The plot; ``tone`` turns a style name into a colour of the medium."""
    rate = _rate(roof)
    axes = _axes(roof, rate)
    # The longest first: theirs are the labels that find a place.
    dots = _merged([_dot(point, label, axes, roof.ceilings, rate) for point, label in roof.longest_first])
    lines, taken = _roofs(roof, axes, tone)
    out = [*_grid(axes, tone, any(not point.flops for point in roof.points), taken), *lines]
    taken += [(dot.x - 6, dot.y - 6, dot.x + 6, dot.y + 6) for dot in dots]
    places = _placed(dots, taken)
    for dot, place in zip(dots, places, strict=True):
        mark = _down if dot.below else _circle
        out.append(mark(dot.x, dot.y, 4 if len(dot.labels) == 1 else 5.5, dot.full, tone))
        if place is not None:
            out.append(_label(dot, place, tone))
    out += _legend(roof, tone, sum(1 for place in places if place is None))
    if any(dot.below for dot in dots):
        out.append(_down(LEFT + 4, BOTTOM + 30, 4, any(dot.below and dot.full for dot in dots), tone))
        out.append(text_at(LEFT + 14, BOTTOM + 33, "lower still: mostly launching", tone("dim"), "start", 10))
    words = f"roofline, {roof.title}: {roof.summary}"
    return Picture(document(WIDTH, HEIGHT, 0, "".join(out), words), WIDTH, HEIGHT, clip(words, 300))


def _rate(roof: Roofline) -> float:
    """The highest flat roof that counts for any of these kernels."""
    matrix = any(point.matrix for point in roof.points) and roof.ceilings.matrix_rate
    return max(roof.ceilings.float32_rate, roof.ceilings.matrix_rate if matrix else 0.0)


def _axes(roof: Roofline, rate: float) -> _Axes:
    """Half decades around the dots and the ridge."""
    bandwidth = roof.ceilings.bandwidth
    seen = [point.intensity for point in roof.points if point.flops and point.bytes]
    ridge = rate / bandwidth
    x0 = math.floor(2 * math.log10(min([*seen, ridge, 1.0])) - 0.5) / 2
    x1 = math.ceil(2 * math.log10(max([*seen, ridge])) + 0.8) / 2
    # What does little but being launched may be far below: it sits on the lower edge, as a triangle, and
    # leaves the height to the kernels that matter, if there are any.
    tall = [point for point in roof.points if bound(point) != "launch"] or roof.points
    start = bandwidth * 10.0**x0
    heights = [_height(point, start) for point in tall if point.bytes]
    y1 = math.log10(rate) + 0.35  # room for the roof's label
    y0 = math.floor(2 * math.log10(min([*heights, start])) - 0.2) / 2
    left = LEFT + (NONE if any(not point.flops for point in roof.points) else 0.0)
    return _Axes(x0, x1, y0, y1, left)


def _height(point: RooflinePoint, start: float) -> float:
    """Operations a second; of a kernel without any, as far below the ``start`` of the roof as it stays below
    the bandwidth."""
    seconds = point.seconds or point.predicted
    if not point.flops:
        return start * min(1.0, point.limit_seconds / seconds)
    return point.flops / seconds


def _grid(axes: _Axes, tone: Tone, none: bool, taken: Sequence[Rectangle]) -> Iterator[str]:
    """Frame, decades and their names; lines across end before a label at the right, which is in ``taken``."""
    line = tone("line")
    path = [f"M{px(LEFT)} {px(TOP)}V{px(BOTTOM)}H{px(RIGHT)}"]
    step = 2 if axes.y1 - axes.y0 > 9 else 1
    for decade in range(math.ceil(axes.y0), math.floor(axes.y1) + 1, step):
        y = axes.y(10.0**decade)
        ends = (left for left, top, right, bottom in taken if right == RIGHT and top < y < bottom)
        path.append(f"M{px(LEFT)} {px(y)}H{px(min(ends, default=RIGHT))}")
        yield text_at(LEFT - 7, y + 4, quantity(10.0**decade, ""), tone("dim"), "end", 10)
    for decade in range(math.ceil(axes.x0), math.floor(axes.x1) + 1):
        x = axes.x(10.0**decade)
        path.append(f"M{px(x)} {px(TOP)}V{px(BOTTOM)}")
        yield text_at(x, BOTTOM + 15, significant(10.0**decade, 1), tone("dim"), "middle", 10)
    if none:
        yield text_at(LEFT + 8, BOTTOM + 15, "0", tone("dim"), "middle", 10)
    yield f'<path d="{"".join(path)}" fill="none" stroke="{line}"/>'
    yield text_at((LEFT + RIGHT) / 2, BOTTOM + 33, "operations a byte (flop/B)", tone("dim"), "middle", 10)
    yield text_at(8, TOP - 10, "operations a second (flop/s)", tone("dim"), "start", 10)


def _roofs(roof: Roofline, axes: _Axes, tone: Tone) -> tuple[list[str], list[Rectangle]]:
    """The roofs with their values, and where labels of dots must not go."""
    ceilings, ink = roof.ceilings, tone("ink")
    flat = {"float32": ceilings.float32_rate}
    if any(point.matrix for point in roof.points) and ceilings.matrix_rate:
        flat["bf16 matrix units"] = ceilings.matrix_rate
    if ceilings.target == "cpu":
        flat = {"float32": ceilings.float32_rate}
    top = max(flat.values())
    start = (axes.left, axes.y(ceilings.bandwidth * 10.0**axes.x0))
    ridge = (axes.x(top / ceilings.bandwidth), axes.y(top))
    path = [f"M{px(start[0])} {px(start[1])}L{px(ridge[0])} {px(ridge[1])}"]
    if axes.left > LEFT:
        path.append(f"M{px(LEFT)} {px(start[1])}H{px(LEFT + NONE - 10)}")
    out: list[str] = []
    taken: list[Rectangle] = []
    for name, rate in flat.items():
        x, y = axes.x(rate / ceilings.bandwidth), axes.y(rate)
        path.append(f"M{px(x)} {px(y)}H{px(RIGHT)}")
        label = f"{quantity(rate, 'flop/s')} {name}"
        out.append(text_at(RIGHT - 4, y - 6, label, ink, "end", 10))
        taken.append((RIGHT - 4 - len(label) * CHARACTER, y - 16, RIGHT, y + 3))
    slope = math.atan2(ridge[1] - start[1], ridge[0] - start[0])
    label = f"{bytes_text(ceilings.bandwidth)}/s memory"
    half = len(label) * CHARACTER / 2
    # Above the roof, where no dot can be, low enough to stay clear of the legend.
    mx, my = start[0] + 0.4 * (ridge[0] - start[0]), start[1] + 0.4 * (ridge[1] - start[1])
    turn = f"translate({px(mx)} {px(my)}) rotate({math.degrees(slope):.1f})"
    out.append(f'<g transform="{turn}">{text_at(0, -9, label, ink, "middle", 10)}</g>')
    for part in range(-5, 6):
        x, y = mx + part / 5 * half * math.cos(slope), my + part / 5 * half * math.sin(slope)
        taken.append((x - 8, y - 22, x + 8, y))
    out.insert(0, f'<path d="{"".join(path)}" fill="none" stroke="{ink}" stroke-width="1.6"/>')
    # The slope itself, in small steps: a label across it would be hard to read.
    for part in range(60):
        x = start[0] + part / 60 * (ridge[0] - start[0])
        y = start[1] + part / 60 * (ridge[1] - start[1])
        taken.append((x - 2, y - 3, x + 2, y + 3))
    return out, taken


def _dot(point: RooflinePoint, label: str, axes: _Axes, ceilings: Ceilings, rate: float) -> _Dot:
    height = _height(point, ceilings.bandwidth * 10.0**axes.x0)
    if not point.flops:
        x, y = LEFT + 9, axes.y(height)
    elif not point.bytes:
        x, y = RIGHT, axes.y(min(rate, height))
    else:
        x, y = axes.x(point.intensity), axes.y(height)
    # What is measured beyond the frame (data in a cache) sits on its edge.
    place = min(max(x, LEFT), RIGHT), min(max(y, TOP), BOTTOM)
    return _Dot(*place, point.seconds is not None, (label,), y > BOTTOM)


def _merged(dots: Sequence[_Dot]) -> list[_Dot]:
    """Dots that would cover each other become one, at the place of the first."""
    out: list[_Dot] = []
    for dot in dots:
        near = next(
            (n for n, other in enumerate(out) if (other.full, other.below) == (dot.full, dot.below)
             and math.hypot(other.x - dot.x, other.y - dot.y) < NEAR), None
        )  # fmt: skip
        if near is None:
            out.append(dot)
        else:
            held = out[near]
            out[near] = replace(held, labels=(*held.labels, *dot.labels))
    return out


@dataclass(frozen=True)
class _Place:
    """Where a label starts or ends, and whether a line leads to it."""

    x: float
    y: float
    anchor: str
    far: bool


def _placed(dots: Sequence[_Dot], taken: Iterable[Rectangle]) -> list[_Place | None]:
    """A free place for each dot's label, beside it or a little off; ``None`` where there is none."""
    busy = list(taken)
    out: list[_Place | None] = []
    for dot in dots[:_MAX_LABELS]:
        width = len(_words(dot)) * CHARACTER
        found = None
        for place in _candidates(dot):
            left = place.x if place.anchor == "start" else place.x - width
            box = (left - 1, place.y - 9, left + width + 1, place.y + 2)
            inside = box[0] >= LEFT and box[2] <= RIGHT + 12 and box[1] >= TOP and box[3] <= BOTTOM
            if inside and not any(_overlap(box, other) for other in busy):
                found = place
                busy.append(box)
                break
        out.append(found)
    return out + [None] * (len(dots) - len(out))


def _candidates(dot: _Dot) -> Iterator[_Place]:
    """Beside the dot; else a little off, below, since above it is the roof."""
    beside = ((1.0, 0.0), (0.8, 0.8), (0.8, -0.8), (-1.0, 0.0), (-0.8, 0.8), (-0.8, -0.8))
    below = ((0.7, 0.7), (-0.7, 0.7), (1.0, 0.2), (-1.0, 0.3), (0.4, 0.9), (-0.4, 0.9))
    for reach, far, ways in ((9.0, False, beside), (22.0, True, below), (36.0, True, below)):
        for dx, dy in ways:
            yield _Place(dot.x + dx * reach, dot.y + dy * reach + 4, "start" if dx > 0 else "end", far)


def _overlap(a: Rectangle, b: Rectangle) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _words(dot: _Dot) -> str:
    """At most three names; the table below has all."""
    more = f" +{len(dot.labels) - 2}" if len(dot.labels) > 3 else ""
    return ", ".join(dot.labels[: 2 if more else 3]) + more


def _label(dot: _Dot, place: _Place, tone: Tone) -> str:
    line = ""
    if place.far:
        line = (
            f'<path d="M{px(dot.x)} {px(dot.y)}L{px(place.x)} {px(place.y - 4)}" stroke="{tone("dim")}"'
            ' stroke-width="0.8"/>'
        )
    return line + text_at(place.x, place.y, _words(dot), tone("ink"), place.anchor, 10)


def _legend(roof: Roofline, tone: Tone, unlabelled: int) -> Iterator[str]:
    right, y = RIGHT, TOP - 10
    predicted = roof.launching or "its limit: not measured"
    kinds = {True: "measured", False: predicted}
    for full in sorted({point.seconds is not None for point in roof.points}):
        right -= len(kinds[full]) * CHARACTER * 10 / 11 + 10
        yield _circle(right, y - 4, 4, full, tone)
        yield text_at(right + 10, y, kinds[full], tone("dim"), "start", 10)
        right -= 14
    if unlabelled:
        words = f"{count_text(unlabelled, 'dot')} unnamed: see the table"
        yield text_at(RIGHT, BOTTOM + 33, words, tone("dim"), "end", 10)


def _circle(x: float, y: float, radius: float, full: bool, tone: Tone) -> str:
    colour = tone("fused")
    fill = colour if full else "none"
    return (
        f'<circle cx="{px(x)}" cy="{px(y)}" r="{radius}" fill="{fill}" stroke="{colour}" stroke-width="1.6"/>'
    )


def _down(x: float, y: float, radius: float, full: bool, tone: Tone) -> str:
    """A triangle that points down: what it stands for is below."""
    colour = tone("fused")
    path = f"M{px(x - radius)} {px(y - radius)}H{px(x + radius)}L{px(x)} {px(y + radius)}Z"
    return f'<path d="{path}" fill="{colour if full else "none"}" stroke="{colour}" stroke-width="1.6"/>'
