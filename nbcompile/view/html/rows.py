"""What the model of the HTML view is made of: shown parts of lists, texts with line numbers, and caps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, TypeVar

from markupsafe import Markup

T = TypeVar("T")
S = TypeVar("S", str, Markup)


@dataclass(frozen=True)
class Caps:
    """How much of a record is shown. ``width`` is characters a line, the rest counts."""

    rows: int = 200
    kernels: int = 40
    code_lines: int = 300
    text_lines: int = 200
    cell_lines: int = 300
    pictures: int = 6
    boxes: int = 300
    width: int = 400
    graphs: int = 8
    artifact_lines: int = 400

    def shrunk(self, factor: float) -> Caps:
        """A ``factor`` of each, but never less than a view needs to be of use."""
        least = Caps(6, 3, 20, 20, 30, 1, 30, 100, 1, 20)
        sizes = zip(astuple(self), astuple(least), strict=True)
        return Caps(*(max(few, int(size * factor)) for size, few in sizes))


@dataclass(frozen=True)
class Excerpt:
    """The shown part of a list, and how many are not shown."""

    items: Sequence[Any]
    more: int = 0


@dataclass(frozen=True)
class NumberedText:
    """A text with line numbers; ``gutter`` names the cell lines that each line serves, or other lines,
    in the words of ``about``."""

    lines: Sequence[Markup]
    gutter: Sequence[str] = ()
    more: int = 0
    about: str = ""

    @property
    def numbers(self) -> str:
        return "\n".join(str(number) for number in range(1, len(self.lines) + 1))

    @property
    def gutter_text(self) -> str:
        return first_line_kept("\n".join(self.gutter))

    @property
    def code(self) -> Markup:
        return first_line_kept(Markup("\n").join(self.lines))


def first_line_kept(text: S) -> S:
    """``text`` for a ``<pre>``, where HTML drops a line break that comes first: all lines would move up."""
    return text.__class__("\u00a0") + text if text.startswith("\n") else text


def take(items: Iterable[T], limit: int) -> Excerpt:
    """The first ``limit`` items; a remainder of one or two is not worth leaving out."""
    held = list(items)
    if len(held) <= limit + 2:
        return Excerpt(held)
    return Excerpt(held[:limit], len(held) - limit)


def lines_label(lines: Sequence[int]) -> str:
    """``3``, ``3,7``, ``3–7``: at most nine characters."""
    if not lines:
        return ""
    if len(lines) > 1 and lines[-1] - lines[0] == len(lines) - 1:
        return f"{lines[0]}–{lines[-1]}"
    text = ",".join(str(line) for line in lines)
    return text if len(text) <= 9 else f"{lines[0]}…{lines[-1]}"


def clip_line(line: str, width: int) -> str:
    """One line of code cut at ``width`` characters; its indentation stays."""
    return line if len(line) <= width else line[: width - 1] + "…"
