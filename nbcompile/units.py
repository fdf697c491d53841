"""Numbers as a person reads them: bytes, seconds, counts, ratios, shapes; clipping of long text, and texts
without what steers a terminal or turns a line round.

Every function returns plain text of bounded length; nothing here escapes HTML.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal

_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def fixed(value: float, places: int) -> str:
    """``value`` with ``places`` decimals. A number as it is read, 1.145, is rounded, not the binary one
    behind it: so does a browser, and the two must not show different digits."""
    return f"{Decimal(repr(float(value))):,.{places}f}"


def significant(value: float, digits: int = 3) -> str:
    """``value`` with ``digits`` significant digits and no exponent: 138, 13.8, 0.98."""
    if not math.isfinite(value):
        return "?"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = fixed(value, min(places, 12))
    return text.rstrip("0").rstrip(".") if "." in text else text


def finite(value: float | None) -> float | None:
    """``value``, or ``None`` for what JSON has no number for."""
    return value if value is not None and math.isfinite(value) else None


def bytes_text(count: float) -> str:
    """A number of bytes, decimal units: ``2.1 MB``."""
    value = float(count)
    for unit in _BYTES[:-1]:
        if abs(value) < 999.5:
            return f"{significant(value, 3 if unit != 'B' else 4)} {unit}"
        value /= 1000.0
    return f"{significant(value)} {_BYTES[-1]}"


def seconds_text(seconds: float | None) -> str:
    """A time in seconds with a fitting unit: ``0.98 ms``. An en dash where it was not measured."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds == 0:
        return "0 s"
    if abs(seconds) < 0.5e-9:
        return "<1 ns"
    for size, unit in _SECONDS:
        if abs(seconds) >= size * 0.9995 or (unit == "s" and abs(seconds) >= 0.0995):
            return f"{significant(seconds / size)} {unit}"
    return f"{significant(seconds / 1e-9)} ns"


def milliseconds_text(milliseconds: float) -> str:
    """A time in milliseconds, rounded for a strip of figures: ``61 ms``, ``0.4 ms``, ``2.1 s``."""
    if not math.isfinite(milliseconds):
        return "–"
    if milliseconds >= 1000:
        return f"{significant(milliseconds / 1000, 2)} s"
    if milliseconds >= 10:
        return f"{milliseconds:.0f} ms"
    return f"{significant(milliseconds, 2 if milliseconds >= 1 else 1)} ms"


def count_text(count: int, one: str, many: str = "") -> str:
    """``1 graph``, ``2 graphs``, ``1,240 more``."""
    return f"{count:,} {one if count == 1 else (many or one + 's')}"


def share_text(share: float, of: str = " of the limit") -> str:
    """``86% of the limit``. Nothing is over a limit: what seems so is at it, or reads a cache."""
    return "at its limit, or cached" if share > 1.05 else f"{percent_text(min(1.0, share))}{of}"


def ratio_text(ratio: float) -> str:
    """``2.3×``, ``0.83×``, ``12×``, ``1,200×``: two significant digits are what a timing supports."""
    if not math.isfinite(ratio):
        return "?×"
    if ratio >= 9.95 or ratio < 1:
        return f"{significant(float(f'{Decimal(repr(float(ratio))):.2g}'), 2)}×"
    return f"{fixed(ratio, 1)}×"


def times_text(ratio: float) -> str:
    """How many times as large an error is: ``3.1``, and ``more than 1,000`` where a number says no more."""
    return f"{ratio:.1f}" if ratio <= 1000 else "more than 1,000"


def speed_text(ratio: float) -> str:
    """How many times as fast: two decimals near one, where they decide, else as :func:`ratio_text`."""
    return f"{fixed(ratio, 2)}×" if 0.85 <= ratio < 1.195 else ratio_text(ratio)


def percent_text(share: float) -> str:
    """A share of 0 to 1 as ``12%``; ``<1%`` for a little, so that it does not read as nothing."""
    return "<1%" if 0 < share <= 0.005 else f"{fixed(share * 100, 0)}%"


def error_text(error: float | None) -> str:
    """A relative error: ``3.1e-07``, ``0`` if exact, an en dash if there is none."""
    if error is None or not math.isfinite(error):
        return "–"
    return "0" if error == 0 else f"{error:.1e}"


_DTYPES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64",
    "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool", "complex64": "c64",
}  # fmt: skip


def shape_text(dtype: str | None, shape: Sequence[int | str] | None) -> str:
    """``f32[16,64,512]``; a symbolic size keeps its name; empty where neither is known."""
    if shape is None and not dtype:
        return ""
    short = (dtype or "").removeprefix("torch.")
    inside = "" if shape is None else "[" + ",".join(clip(str(size), 16) for size in shape[:8]) + "]"
    return _DTYPES.get(short, clip(short, 16)) + inside


def clip(text: str, width: int) -> str:
    """``text`` on one line, at most ``width`` characters, an ellipsis where it was cut."""
    flat = " ".join(text[: 4 * width + 64].split())
    if len(flat) <= width and len(text) <= 4 * width + 64:
        return flat
    return flat[: max(1, width - 1)] + "…"


def clip_middle(text: str, width: int) -> str:
    """As :func:`clip`, but cut before the last third: names of one family differ at their end."""
    flat = clip(text, 4 * width + 64)
    tail = width // 3
    return flat if len(flat) <= width else flat[: width - 1 - tail] + "…" + flat[-tail:]


def wrap(text: str, width: int, lines: int = 3) -> list[str]:
    """``text`` broken at spaces into at most ``lines`` lines of at most ``width`` characters, an ellipsis
    where it was cut."""
    words = clip(text, width * lines).split(" ")
    out = [""]
    for word in words:
        while len(word) > width:
            room = width - len(out[-1]) - (1 if out[-1] else 0)
            if room <= 0:
                out.append("")
                continue
            out[-1] += (" " if out[-1] else "") + word[:room]
            word = word[room:]
        if len(out[-1]) + len(word) + 1 > width and out[-1]:
            out.append(word)
        else:
            out[-1] += (" " if out[-1] else "") + word
    if len(out) > lines:
        out[lines - 1] = out[lines - 1][: width - 1].rstrip() + "…"
    return out[:lines]


def printable(text: str) -> str:
    """Without lone surrogates and control characters, which neither UTF-8 nor a browser can carry. What turns
    the direction of writing is written out, ``‹U+202E›``: code must not read otherwise than it runs."""
    return _TURNS.sub(lambda found: f"‹U+{ord(found.group()):04X}›", _UNPRINTABLE.sub("\ufffd", text))


_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def plain_line(text: str) -> str:
    """Without control characters and line ends: a record must not move the cursor of a reader's terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == " " else "·" for c in text)
