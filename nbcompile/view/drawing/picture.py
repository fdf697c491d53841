"""A nested drawing as a still picture: every group is as open as the drawing says.

The same arithmetic as the explorer's (labextension/src/explorer/graph/geometry.ts), with rows closer together
and the rows of a tall, slim graph in columns side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import escape

from nbcompile.view.drawing.nesting import Drawing, DrawnGroup
from nbcompile.view.drawing.svg import Picture, Tone, document, on_page, px, text_at, title_width
from nbcompile.view.html.styles import FATES

Point = tuple[float, float]

NODE, LOOP, CLOSED = 24.0, 19.0, 26.0
"""Heights of a node, of a loop in a kernel, and of a closed group."""
GAP, LOOP_GAP = 24.0, 12.0
"""Between the rows of a group, and of a kernel, in pixels."""
TITLE, KERNEL_TITLE, FOOT = 40.0, 27.0, 12.0
"""Of an open group: its title and, but for kernels, the edges that come in below it; and the room below."""
MARGIN = 14.0
GUTTER = 44.0
"""Between columns."""
MAX_COLUMNS = 6
_FATE = {"f": "fused", "l": "library", "b": "fallback", "c": "captured", "x": "break"}
"""What a letter of a drawing's fates stands for; ``x``, of a check alone: its value differs from eager's."""


@dataclass(frozen=True)
class _Row:
    """Where a row of a group stands in the picture; ``x`` is that of the group's left edge."""

    x: float
    top: float
    bottom: float
    column: int = 0


@dataclass(frozen=True)
class _Look:
    """``fill`` and ``line`` are tones; no line: the box's own."""

    fill: str
    line: str
    thick: float
    radius: int
    dashed: bool = False


_LOOKS = {
    "fused": _Look("tint-fused", "", 1.6, 10),
    "library": _Look("", "", 1.6, 4),
    "fallback": _Look("tint-fallback", "", 1.6, 4, True),
    "captured": _Look("", "", 1.6, 4),
    "break": _Look("tint-break", "", 2.2, 4),
    "input": _Look("soft", "line", 1, 10),
}
_GROUP = _Look("", "dim", 1, 10, True)
_LOOP = _Look("loop-fill", "", 1, 4)


def graph_picture(
    drawing: Drawing,
    tone: Tone,
    loops: Sequence[str],
    tips: Mapping[int | str, str],
    *,
    max_height: float,
    max_width: float,
) -> Picture:
    """The drawing with coordinates. ``loops`` are the labels of the nodes of its ``inner`` graph, ``tips``
    tooltips by ref and by kernel. What is taller than ``max_height`` is folded into columns, where these
    stand side by side within ``max_width``. All in pixels."""
    painter = _Painter(drawing, tone, loops, tips)
    if drawing.groups:
        painter.paint(max_height, max_width)
    width, height = math.ceil(painter.width) + 4, math.ceil(painter.height) + 4
    body = "".join((*painter.frames, painter.edges(), *painter.fronts))
    return Picture(document(width, height, 2, body, drawing.description), width, height, drawing.description)


class _Painter:
    """Paints the groups of a drawing, the outer ones first: frames lie under edges, edges under boxes."""

    def __init__(
        self, drawing: Drawing, tone: Tone, loops: Sequence[str], tips: Mapping[int | str, str]
    ) -> None:
        self.drawing, self.tone, self.loops, self.tips = drawing, tone, loops, tips
        self.frames: list[str] = []
        self.fronts: list[str] = []
        self.lines: list[str] = []
        self.width = self.height = 0.0
        self.heights = [CLOSED] * len(drawing.groups)
        for at in range(len(drawing.groups) - 1, -1, -1):  # inner groups come after those around them
            group = drawing.groups[at]
            if group.rows:
                title, _, gap = _spaces(group)
                rows = [self._tallest(group, row) for row in group.rows]
                self.heights[at] = title + sum(rows) + gap * (len(rows) - 1) + (FOOT if at else 0.0)

    def _tallest(self, group: DrawnGroup, row: Sequence[int]) -> float:
        return max(self._height(group, ref) for ref in row[::3])

    def _height(self, group: DrawnGroup, ref: int) -> float:
        return self.heights[-ref] if ref < 0 else _spaces(group)[1]

    def paint(self, max_height: float, max_width: float) -> None:
        """All of it: the rows of the whole in columns, then what is in them."""
        root = self.drawing.groups[0]
        tall = [self._tallest(root, row) for row in root.rows]
        columns = _columns(root, tall, self.heights[0], max_height, max_width)
        margin = MARGIN if len(columns) > 1 else 0.0
        rows: list[_Row] = []
        gutters: list[float] = []
        for number, (first, last) in enumerate(columns):
            low, high = _extent(root, first, last)
            left, y = (gutters[-1] + GUTTER / 2 if gutters else 0.0), margin
            for height in tall[first:last]:
                rows.append(_Row(left - low, y, y + height, number))
                y += height + GAP
            self.width = left + high - low
            gutters.append(self.width + GUTTER / 2)
            self.height = max(self.height, y - GAP + margin)
        self._group(0, rows, 0.0, self.height, gutters)

    def _group(
        self, at: int, rows: Sequence[_Row], top: float, bottom: float, gutters: Sequence[float] = ()
    ) -> None:
        group = self.drawing.groups[at]
        items: list[tuple[int, float, float, bool]] = []  # row, top, bottom, whether edges go on in it
        inside: list[tuple[int, float, float]] = []  # group, left, top
        for number, (row, packed) in enumerate(zip(rows, group.rows, strict=True)):
            for ref, x, width in zip(packed[::3], packed[1::3], packed[2::3], strict=True):
                height = self._height(group, ref)
                y = (row.top + row.bottom - height) / 2
                left = row.x + x - width / 2
                held = self.drawing.groups[-ref] if ref < 0 else None
                # What leads into an open group goes on in it; kernels are read as a whole.
                goes_on = held is not None and bool(held.rows) and held.kind != "kernel"
                items.append((number, y, y + height, goes_on))
                if held is None:
                    self._node(ref, left, y, width, height)
                else:
                    self._title(held, left, y, width, height)
                    inside += [(-ref, left, y)] if held.rows else []
        ends = (_Row(rows[0].x, top, top), _Row(rows[-1].x, bottom, bottom, rows[-1].column))
        for _, source, target, *xs in group.edges:
            self._edge(group, xs, source, target, items, (*rows, ends[1], ends[0]), gutters)
        for number, left, upper in inside:
            held = self.drawing.groups[number]
            title, _, gap = _spaces(held)
            placed, y = [], upper + title
            for packed in held.rows:
                height = self._tallest(held, packed)
                placed.append(_Row(left, y, y + height))
                y += height + gap
            self._group(number, placed, upper, upper + self.heights[number])

    def _edge(
        self,
        group: DrawnGroup,
        xs: Sequence[int],
        source: int,
        target: int,
        items: Sequence[tuple[int, float, float, bool]],
        rows: Sequence[_Row],
        gutters: Sequence[float],
    ) -> None:
        """``rows`` ends with the lower border and the upper one, which has the number -1."""
        first = items[source][0] if source >= 0 else -1
        last = items[target][0] if target >= 0 else len(rows) - 2
        points: list[Point] = []
        # What comes in at the top passes under the title.
        under = CLOSED if source < 0 and xs[0] < title_width(group.label, "") + 16 else 0.0
        for x, number in zip(xs, range(first, last + 1), strict=True):
            row, before = rows[number], rows[number - 1] if number > first else None
            here = row.x + x
            if before is not None and before.column != row.column:
                gutter, low = gutters[row.column - 1], self.height
                points += [(points[-1][0], low), (gutter, low), (gutter, 0.0), (here, 0.0)]
            if number > first:
                points.append((here, row.top))
            if number == last and target >= 0:
                points.append((here, items[target][1]))
            if number == first and source >= 0:
                points.append((here, items[source][2]))
            if number < last:
                points.append((here, row.bottom + (under if number < 0 else 0.0)))
        self.lines.append(_path(points) + ("m-3-5l3 5 3-5" if target >= 0 and not items[target][3] else ""))

    def edges(self) -> str:
        """All of them, in one element."""
        if not self.lines:
            return ""
        line = self.tone("dim")
        return (
            f'<path d="{"".join(self.lines)}" fill="none" stroke="{line}" stroke-width="1" opacity="0.75"/>'
        )

    def _node(self, ref: int, x: float, y: float, width: float, height: float) -> None:
        """A node, or a loop in a kernel: solid with white letters, which reads on any page."""
        loop = ref >= len(self.drawing.labels)
        fate = "fused" if loop else _FATE.get(self.drawing.fates[ref], "input")
        label = self.loops[ref - len(self.drawing.labels)] if loop else self.drawing.labels[ref]
        look = _LOOP if loop else _LOOKS[fate]
        ink = self.tone("loop-ink") if loop else self._ink(fate)
        shape = self._rect(look, self.tone(look.line or fate), x, y, width, height)
        words = text_at(x + width / 2, y + height / 2 + 4, label, ink, "middle")
        self.fronts.append(self._told(ref, shape + words))

    def _title(self, group: DrawnGroup, x: float, y: float, width: float, height: float) -> None:
        """A group as its frame and its title: of a closed one that is all."""
        fused = group.kind == "kernel" or (group.fate == "fused" and not group.rows)
        look = _LOOKS["fused"] if fused else _GROUP
        colour = self.tone(group.fate if group.fate in FATES and not group.rows else look.line or "fused")
        middle = y + (height if not group.rows else CLOSED) / 2 + 4
        label = text_at(x + 10, middle, group.label, self.tone("fused" if fused else "dim"), weight=600)
        note = text_at(x + width - 10, middle, group.note, self.tone("dim"), "end", 10) if group.note else ""
        shape = self._rect(look, colour, x, y, width, height)
        drawn = self._told(group.id, shape + label + note)
        (self.frames if group.rows else self.fronts).append(drawn)

    def _rect(self, look: _Look, line: str, x: float, y: float, width: float, height: float) -> str:
        fill = self.tone(look.fill) if look.fill else "none"
        dash = ' stroke-dasharray="4 3"' if look.dashed else ""
        return (
            f'<rect x="{px(x)}" y="{px(y)}" width="{px(width)}" height="{px(height)}" rx="{look.radius}"'
            f' fill="{fill}" stroke="{line}" stroke-width="{look.thick}"{dash}/>'
        )

    def _ink(self, fate: str) -> str:
        """In the page ordinary ink, in ``<img>`` the box's own tone, which reads anywhere."""
        return self.tone("ink" if on_page(self.tone) or fate not in FATES else fate)

    def _told(self, key: int | str, drawn: str) -> str:
        """With its tooltip: none in ``<img>``, where no browser shows them."""
        tip = self.tips.get(key, "") if on_page(self.tone) else ""
        return f"<g><title>{escape(tip)}</title>{drawn}</g>" if tip else drawn


def _spaces(group: DrawnGroup) -> tuple[float, float, float]:
    """Of an open group: height of its title (the whole has none) and of a node in it, gap between rows."""
    if group.kind == "kernel":
        return KERNEL_TITLE, LOOP, LOOP_GAP
    return (0.0 if group.kind == "root" else TITLE), NODE, GAP


def _columns(
    root: DrawnGroup, tall: Sequence[float], total: float, max_height: float, max_width: float
) -> list[tuple[int, int]]:
    """Ranges of rows, one a column: as many columns of about equal height as fit side by side."""
    for count in range(min(MAX_COLUMNS, math.ceil(total / max_height)), 1, -1):
        cuts, y = [0], 0.0
        for number, height in enumerate(tall):
            if y + height / 2 > total * len(cuts) / count and len(cuts) < count and number > cuts[-1]:
                cuts.append(number)
            y += height + GAP
        columns = list(pairwise([*cuts, len(tall)]))
        longest = max(sum(tall[first:last]) + GAP * (last - first - 1) for first, last in columns)
        if longest > 1.5 * total / count:
            continue
        widths = [high - low for low, high in (_extent(root, *column) for column in columns)]
        if sum(widths) + GUTTER * (len(widths) - 1) <= max_width:
            return columns
    return [(0, len(tall))]


def _extent(root: DrawnGroup, first: int, last: int) -> tuple[float, float]:
    """Left and right edge of these rows, edges that pass included."""
    place = [number for number, row in enumerate(root.rows) for _ in row[::3]]
    low, high = [], []
    for row in root.rows[first:last]:
        low += [x - width / 2 for x, width in zip(row[1::3], row[2::3], strict=True)]
        high += [x + width / 2 for x, width in zip(row[1::3], row[2::3], strict=True)]
    for _, source, _, *xs in root.edges:
        start = place[source] if source >= 0 else -1
        passed = xs[max(0, first - start) : max(0, last - start)]
        low += passed
        high += passed
    return min(low), max(high)


def _path(points: Sequence[Point]) -> str:
    """Straight where one coordinate stays, else a curve that starts and ends straight down."""
    out = [f"M{points[0][0]:.0f} {points[0][1]:.0f}"]
    for (x, y), (to_x, to_y) in pairwise(points):
        if abs(to_x - x) < 0.5:
            out.append(f"V{to_y:.0f}" if abs(to_y - y) >= 0.5 else "")
        elif abs(to_y - y) < 0.5:
            out.append(f"H{to_x:.0f}")
        else:
            half = (y + to_y) / 2
            out.append(f"C{x:.0f} {half:.0f} {to_x:.0f} {half:.0f} {to_x:.0f} {to_y:.0f}")
    return "".join(out)
