"""Drawings and timing bars as SVG text. In a notebook it travels as ``<img>``, in the page it is inline.

An SVG inside ``<img>`` sees neither the page's style sheet nor its theme, so every colour is written out
there; see :mod:`nbcompile.view.html.styles` for why one tone then serves both themes.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import escape

from nbcompile.record.compilation import Measurement
from nbcompile.units import clip, seconds_text
from nbcompile.view.drawing.drawing import Box, Drawing
from nbcompile.view.drawing.layout import Layout, lay_out
from nbcompile.view.html.styles import FATES, SANS

Tone = Callable[[str], str]
ROW = 22.0
MAX_INNER_WIDTH = 380.0
CHARACTER = 6.4
"""Width of an average character at 11 px in the widest of the fonts, in pixels."""
BOLD = 7.2
"""The same in bold: a kernel's title in DejaVu Sans, measured in Chromium."""


@dataclass(frozen=True)
class Picture:
    """One SVG: its text, its size in pixels, and what it shows in words."""

    svg: str
    width: int
    height: int
    description: str

    def data_uri(self) -> str:
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode()


@dataclass(frozen=True)
class _Inner:
    """The layout inside a box; ``across`` if it runs from left to right."""

    layout: Layout
    across: bool


def graph_picture(
    drawing: Drawing, tone: Tone, *, max_width: float, max_height: float, fold_width: float = 0.0
) -> Picture:
    """The drawing with coordinates; wide layers wrap and tall slim graphs fold into columns."""
    inner = {box.id: _inner_layout(box) for box in drawing.boxes if box.inner}
    sizes = {box.id: _size(box, inner.get(box.id)) for box in drawing.boxes}
    gap = 24 if len(drawing.boxes) <= 40 else 16
    outer = lay_out(sizes, drawing.edges, gap_x=16, gap_y=gap, max_width=max_width, max_height=max_height,
                    fold_width=fold_width or max_width)  # fmt: skip
    parts = [_edges(outer, tone, arrows=True)]
    for box in drawing.boxes:
        x, y = outer.places[box.id]
        parts.append(_box(box, x, y, *sizes[box.id], inner.get(box.id), tone))
    width, height = math.ceil(outer.width) + 4, math.ceil(outer.height) + 4
    return Picture(
        document(width, height, 2, "".join(parts), drawing.description), width, height, drawing.description
    )


def _inner_layout(box: Box) -> _Inner:
    """Loops in the order they run from left to right if that is short enough, else downwards."""
    sizes = {item.id: (label_width(item.label), ROW - 3) for item in box.inner}
    if box.inner_edges and len(sizes) <= 14:
        turned = {name: (h, w) for name, (w, h) in sizes.items()}
        across = lay_out(turned, box.inner_edges, gap_x=7, gap_y=12, max_width=150)
        if across.height <= MAX_INNER_WIDTH:
            places = {name: (y, x) for name, (x, y) in across.places.items()}
            routes = {edge: tuple((y, x) for x, y in route) for edge, route in across.routes.items()}
            return _Inner(Layout(across.height, across.width, places, routes), True)
        down = lay_out(sizes, box.inner_edges, gap_x=9, gap_y=12, max_width=MAX_INNER_WIDTH)
        if down.height <= 240:
            return _Inner(down, False)
    # Too many to connect legibly, or nothing to connect: in rows, in order.
    places, x, y, width = {}, 0.0, 0.0, 0.0
    for name, (w, h) in sizes.items():
        if x and x + w > MAX_INNER_WIDTH:
            x, y = 0.0, y + h + 6
        places[name] = (x, y)
        x += w + 8
        width = max(width, x - 8)
    return _Inner(Layout(width, y + ROW - 3, places, {}), False)


def label_width(label: str, padding: float = 16.0) -> float:
    """Width of a box with this text, in pixels."""
    return max(30.0, len(label) * CHARACTER + padding)


def title_width(label: str, note: str, character: float = BOLD) -> float:
    """Width of a title, bold unless ``character`` says otherwise, with a note beside it, in pixels."""
    return len(label) * character + (len(note) * (CHARACTER - 0.6) + (14 if note else 0))


def _size(box: Box, held: _Inner | None) -> tuple[float, float]:
    inner = held.layout if held else None
    title = title_width(box.label, box.note, BOLD if inner else CHARACTER)
    if inner is None:
        return max(40.0, title + 20), 26.0 if box.fate != "input" else 20.0
    more = 16.0 if box.more else 0.0
    return max(title + 24, inner.width + 24), inner.height + 36 + more


def _box(box: Box, x: float, y: float, w: float, h: float, held: _Inner | None, tone: Tone) -> str:
    inner = held.layout if held else None
    radius = 10 if box.fate in ("fused", "input", "group") else 4
    line = tone(box.fate) if box.fate in FATES else tone("line" if box.fate == "input" else "dim")
    fill = {"fused": tone("tint-fused"), "fallback": tone("tint-fallback"), "break": tone("tint-break"),
            "input": tone("soft")}.get(box.fate, "none")  # fmt: skip
    shape = f'<rect x="{px(x)}" y="{px(y)}" width="{px(w)}" height="{px(h)}" rx="{radius}"'
    dash = ' stroke-dasharray="4 3"' if box.fate in ("group", "fallback") else ""
    thick = "1" if box.fate in ("input", "group") else "1.6"
    out = [f'{shape} fill="{fill}" stroke="{line}" stroke-width="{thick}"{dash}/>']
    ink = tone("ink") if box.fate in ("input", "group", "captured") else _ink(box.fate, tone)
    if inner is None:
        if box.note:
            out.append(text_at(x + 10, y + h / 2 + 4, box.label, ink))
            out.append(text_at(x + w - 10, y + h / 2 + 4, box.note, tone("dim"), "end", 10))
        else:
            out.append(text_at(x + w / 2, y + h / 2 + 4, box.label, ink, "middle"))
    else:
        strong = tone(box.fate) if box.fate in FATES else tone("dim")
        out.append(text_at(x + 10, y + 16, box.label, strong, weight=600))
        if box.note:
            out.append(text_at(x + w - 10, y + 16, box.note, tone("dim"), "end", 10))
        left, top = x + (w - inner.width) / 2, y + 25
        arrows = _edges(inner, tone, across=held is not None and held.across)
        ink = tone("loop-ink")
        place = f"translate({px(left)} {px(top)})"
        out.append(f'<g transform="{place}" fill="{ink}" text-anchor="middle">{arrows}')
        for item in box.inner:
            out.append(_loop(item, *inner.places[item.id], tone))
        out.append("</g>")
        if box.more:
            out.append(text_at(x + w / 2, y + h - 8, f"… {box.more:,} more", tone("dim"), "middle", 10))
    detail = _tooltip(box.detail, tone)
    return f"<g>{detail}{''.join(out)}</g>" if detail else "".join(out)


def _ink(fate: str, tone: Tone) -> str:
    """Labels in a box: in the page ordinary ink, in ``<img>`` the box's own tone, which reads anywhere."""
    return tone("ink") if _on_page(tone) else tone(fate)


def _loop(item: Box, x: float, y: float, tone: Tone) -> str:
    w, h = label_width(item.label), ROW - 3
    colour = tone(item.fate) if item.fate in FATES else tone("fused")
    # Solid chips with white letters are legible on any page; on our own page they may be outlines.
    fill = tone("loop-fill") if _on_page(tone) else colour
    detail = _tooltip(item.detail, tone)
    line = f' stroke="{colour}"' if fill != colour else ""
    # The label's colour and anchor are those of the group around the loops.
    drawn = (
        f'<rect x="{px(x)}" y="{px(y)}" width="{px(w)}" height="{px(h)}" rx="4" fill="{fill}"{line}/>'
        f'<text x="{px(x + w / 2)}" y="{px(y + h / 2 + 4)}">{escape(item.label)}</text>'
    )
    return f"<g>{detail}{drawn}</g>" if detail else drawn


def px(value: float) -> str:
    """A coordinate, to a tenth of a pixel, as short as it goes."""
    return f"{value:.1f}".removesuffix(".0")


def _on_page(tone: Tone) -> bool:
    return tone("ink").startswith("var(")


def _tooltip(detail: str, tone: Tone) -> str:
    """None in ``<img>``, where no browser shows them."""
    return f"<title>{escape(detail)}</title>" if detail and _on_page(tone) else ""


def _edges(layout: Layout, tone: Tone, *, arrows: bool = False, across: bool = False) -> str:
    paths = []
    for points in layout.routes.values():
        x, y = points[0]
        d = [f"M{x:.0f} {y:.0f}"]
        for px, py in points[1:]:
            if abs(px - x) < 0.5:
                d.append(f"V{py:.0f}")
            elif abs(py - y) < 0.5:
                d.append(f"H{px:.0f}")
            elif across:
                middle = (x + px) / 2
                d.append(f"C{middle:.0f} {y:.0f} {middle:.0f} {py:.0f} {px:.0f} {py:.0f}")
            else:
                middle = (y + py) / 2
                d.append(f"C{x:.0f} {middle:.0f} {px:.0f} {middle:.0f} {px:.0f} {py:.0f}")
            x, y = px, py
        paths.append("".join(d))
        if arrows:
            paths.append("m-3-5l3 5 3-5")
    if not paths:
        return ""
    return f'<path d="{"".join(paths)}" fill="none" stroke="{tone("dim")}" stroke-width="1" opacity="0.75"/>'


def text_at(
    x: float, y: float, text: str, fill: str, anchor: str = "start", size: int = 11, weight: int = 400
) -> str:
    """One line of text, escaped, its baseline at ``y`` pixels."""
    place = f' text-anchor="{anchor}"' if anchor != "start" else ""
    strong = f' font-weight="{weight}"' if weight != 400 else ""
    large = f' font-size="{size}"' if size != 11 else ""
    return f'<text x="{px(x)}" y="{px(y)}" fill="{fill}"{large}{place}{strong}>{escape(text)}</text>'


# XML 1.0 has no way to write most control characters, nor lone surrogates.
_NOT_XML = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def document(width: int, height: int, pad: int, body: str, description: str) -> str:
    """The whole picture, of ``width`` by ``height`` pixels, without what XML cannot hold."""
    clean, title = _NOT_XML.sub("·", body), escape(_NOT_XML.sub("·", description))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img"'
        f' viewBox="{-pad} {-pad} {width} {height}" font-family="{SANS}" font-size="11">'
        f"<title>{title}</title>{clean}</svg>"
    )


def timing_picture(rows: Sequence[tuple[Measurement, str]], ours: str, tone: Tone) -> Picture:
    """Bars of median call times with whiskers from p10 to p90, one a contestant; ``rows`` pairs a
    measurement with a short note (compile time, or why it has no time)."""
    left = min(130.0, max(60.0, max(len(_name(m)) for m, _ in rows) * CHARACTER + 14))
    room, width = 170.0, int(left + 170 + 190)
    longest = max((m.quantile(0.9) or 0.0 for m, _ in rows), default=0.0) or 1.0
    parts = []
    for index, (measurement, note) in enumerate(rows):
        y = 4 + index * 28.0
        mine = measurement.contestant == ours
        parts.append(
            text_at(left - 8, y + 13, _name(measurement), tone("ink"), "end", weight=600 if mine else 400)
        )
        median, low, high = (measurement.quantile(q) for q in (0.5, 0.1, 0.9))
        if median is None or low is None or high is None:
            parts.append(text_at(left, y + 13, clip(note or "not measured", 54), tone("dim")))
            continue
        colour = (
            tone("fused") if mine else tone("bar-eager" if measurement.contestant == "eager" else "library")
        )
        scale = room / longest
        parts.append(
            f'<rect x="{px(left)}" y="{px(y + 1)}" width="{px(max(1.5, median * scale))}" height="16" rx="2"'
            f' fill="{colour}"/>'
        )
        a, b, m = left + low * scale, left + high * scale, y + 9
        parts.append(
            f'<path d="M{px(a)} {m}H{px(b)}M{px(a)} {m - 4}V{m + 4}M{px(b)} {m - 4}V{m + 4}" fill="none"'
            f' stroke="{tone("ink")}"/>'
        )
        text = f"{seconds_text(median)}{' · ' + note if note else ''}"
        parts.append(text_at(max(b, left + median * scale) + 8, y + 13, clip(text, 30), tone("ink")))
    height = len(rows) * 28 + 4
    words = "; ".join(f"{_name(m)} {seconds_text(m.median)}" for m, _ in rows)
    said = f"median time of one call: {words}"
    return Picture(document(width, height, 0, "".join(parts), said), width, height, clip(said, 300))


def _name(measurement: Measurement) -> str:
    mode = "" if measurement.mode in ("", "default") else f" {measurement.mode}"
    return clip(f"{measurement.contestant}{mode}", 20)
