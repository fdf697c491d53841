"""What all pictures are made of, as SVG text, and the bars of times.

In a notebook a picture travels as ``<img>``, in the page it is inline.

An SVG inside ``<img>`` sees neither the page's style sheet nor its theme, so every colour is written out
there; see :mod:`nbcompile.view.html.styles` for why one tone then serves both themes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import escape

from nbcompile.record.compilation import Measurement
from nbcompile.units import clip, seconds_text
from nbcompile.view.html.styles import SANS

Tone = Callable[[str], str]
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


def label_width(label: str, padding: float = 16.0) -> float:
    """Width of a box with this text, in pixels."""
    return max(30.0, len(label) * CHARACTER + padding)


def title_width(label: str, note: str, character: float = BOLD) -> float:
    """Width of a title, bold unless ``character`` says otherwise, with a note beside it, in pixels."""
    return len(label) * character + (len(note) * (CHARACTER - 0.6) + (14 if note else 0))


def px(value: float) -> str:
    """A coordinate, to a tenth of a pixel, as short as it goes."""
    return f"{value:.1f}".removesuffix(".0")


def on_page(tone: Tone) -> bool:
    """Whether the picture is inline in our page, which has the colours as variables, or in an ``<img>``."""
    return tone("ink").startswith("var(")


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
