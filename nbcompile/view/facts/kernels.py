"""One generated kernel as the HTML view shows it: its facts, how it is launched, and its texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nbcompile.record.compilation import Compilation, Kernel, Launched
from nbcompile.record.roofline import RooflinePoint
from nbcompile.units import bytes_text, clip, count_text, seconds_text, share_text
from nbcompile.view.facts.assembly import TITLES, listing, source_lines
from nbcompile.view.facts.facts import Call
from nbcompile.view.html.highlight import highlight_lines
from nbcompile.view.html.rows import Caps, NumberedText, clip_line, lines_label, take
from nbcompile.view.html.styles import Styler

ARTIFACT_CHARACTERS = 100_000
"""What the compiler's texts of all kernels together may take in a view: the record has them whole."""
Lines = Callable[[str], tuple[int, ...]]


def launch_facts(launched: Launched, shown_name: bool = False) -> list[tuple[str, bool]]:
    """How a function is launched and what it takes, a few words each; True where that is bad news."""
    sizes = list(launched.grid[:3])
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    grid = " × ".join(f"{size:,}" for size in sizes) or "1"
    facts = [(clip(launched.function, 60), False)] if shown_name else []
    facts.append((f"grid {grid}", False))
    constants = ", ".join(f"{name}={value}" for name, value in list(launched.constants.items())[:12])
    facts += [(clip(constants, 160), False)] if constants else []
    facts += [(count_text(launched.warps, "warp"), False)] if launched.warps else []
    facts += [(count_text(launched.stages, "stage"), False)] if launched.stages > 1 else []
    if launched.registers is not None:
        facts.append((f"{count_text(launched.registers, 'register')} a thread", False))
    if launched.shared_bytes is not None:
        shared = bytes_text(launched.shared_bytes) if launched.shared_bytes else "no"
        facts.append((f"{shared} shared memory", False))
    if launched.spill_bytes is not None:
        spilled = launched.spill_bytes
        facts.append((f"spills {bytes_text(spilled)} a thread", True) if spilled else ("no spills", False))
    return facts


def time_facts(point: RooflinePoint | None) -> str:
    """``measured 6 µs, 86% of the limit``, or where nothing was measured ``predicted 7.2 µs``; on the CPU,
    where no launch is added to the limit, ``at least 7.2 µs``."""
    if point is None:
        return ""
    if point.seconds is not None and point.share is not None:
        each = f" a run, of {point.runs:,}" if point.runs > 1 else ""
        return f"measured {seconds_text(point.seconds)}{each}, {share_text(point.share)}"
    if point.predicted == point.limit_seconds:
        return f"at least {seconds_text(point.limit_seconds)}"
    return f"predicted {seconds_text(point.predicted)}"


def call_size(call: Call) -> str:
    """What a call's share is the part of: its measured time, else its bytes."""
    return bytes_text(call.bytes) if call.seconds is None else seconds_text(call.seconds)


def runs_text(call: Call) -> str:
    """``, 3 runs together``, beside the size of a kernel or call that runs more than once."""
    return f", {call.runs:,} runs together" if call.runs > 1 else ""


def spilled_bytes(kernel: Kernel) -> int:
    """Bytes a thread that the worst of its functions spills."""
    return max((launched.spill_bytes or 0 for launched in kernel.launches), default=0)


def artifact_lines(record: Compilation, caps: Caps) -> int:
    """How many lines of each of the compiler's texts to show, so that all fit their budget together."""
    limit = caps.artifact_lines
    texts = [
        listing(language, text).lines
        for kernel in record.kernels[: caps.kernels + 2]
        for language, text in list(kernel.sources.items())[1:]
    ]
    lengths = [[min(len(line), caps.width) + 1 for line in lines[: caps.artifact_lines]] for lines in texts]
    while limit > 12 and sum(sum(each[:limit]) for each in lengths) > ARTIFACT_CHARACTERS:
        limit = limit * 3 // 4
    return limit


class Sources:
    """Makes what the template prints of kernels' texts. ``lines`` gives the cell lines of an id,
    ``limit`` is :func:`artifact_lines`."""

    def __init__(self, css: Styler, caps: Caps, lines: Lines, limit: int) -> None:
        self.css, self.caps, self.lines, self.limit = css, caps, lines, limit

    def of(self, kernel: Kernel) -> list[dict[str, Any]]:
        """The texts of a kernel, the one it was printed as first, then what was made from it, in order."""
        if not kernel.sources:
            return []
        order = list(TITLES)
        first, *rest = kernel.sources
        rest.sort(key=lambda name: order.index(name) if name in order else len(order))
        out = [self._first(kernel, first)]
        return out + [self._artifact(name, kernel.sources[name], kernel.sources[first]) for name in rest[:8]]

    def _first(self, kernel: Kernel, language: str) -> dict[str, Any]:
        serves: dict[int, set[int]] = {}
        for link in kernel.line_map:
            serves.setdefault(link.line, set()).update(line for id in link.origins for line in self.lines(id))
        text = kernel.sources[language]
        lines = text.rstrip().split("\n")
        code = self._text(lines, language, self.caps.code_lines)
        labels = [lines_label(sorted(serves.get(n, ()))) for n in range(1, len(code.lines) + 1)]
        shown = NumberedText(code.lines, labels if any(labels) else (), code.more)
        return _entry(language, text, shown, len(lines))

    def _artifact(self, language: str, text: str, first: str) -> dict[str, Any]:
        read = listing(language, text)
        code = self._text(read.lines, language, self.limit)
        labels = _changes(source_lines(read, first))[: len(code.lines)]
        shown = NumberedText(code.lines, labels if any(labels) else (), code.more, "line of the source above")
        return _entry(language, text, shown, len(read.lines), read.left_out)

    def _text(self, lines: Sequence[str], language: str, limit: int) -> NumberedText:
        shown = take(lines, limit)
        body = "\n".join(clip_line(line, self.caps.width) for line in shown.items)
        return NumberedText(highlight_lines(body, language, self.css), (), shown.more)


def _entry(language: str, text: str, shown: NumberedText, count: int, left_out: str = "") -> dict[str, Any]:
    title, about = TITLES.get(language, (clip(language, 20), ""))
    whole = f"the record has all of it, {bytes_text(len(text))}"
    note = f"{left_out} left out: {whole}" if left_out else (whole if shown.more else "")
    return {"language": language, "title": title, "about": about, "text": shown,
            "size": count_text(count, "line"), "note": note}  # fmt: skip


def _changes(numbers: Sequence[int]) -> list[str]:
    """Each number where it is another than the last one told; 0 tells none."""
    out, last = [], 0
    for number in numbers:
        out.append(str(number) if number and number != last else "")
        last = number or last
    return out
