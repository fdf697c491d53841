"""What of a cell its times leave out, in words: said wherever a time, a share or a gain is."""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.record.compilation import Compilation, TimedCellPart
from nbcompile.units import count_text, seconds_text

_NOT_TIMED = "not timed"
_PART_NOT_TIMED = "part of it is not timed"
_FEW = 4  # lines that are named


def measured_name(compilation: Compilation) -> str:
    """What a record's times are of, where that is not all of its cell: ``the compiled lines``, ``one pass of
    the loop in line 3 (of 1,000)``; else empty."""
    part = _shown(compilation)
    if part is None:
        return ""
    return _one_pass(part) if _is_single(part) else "the compiled lines"


def left_out(compilation: Compilation) -> str:
    """What is not in its times: ``lines 2, 5 run in Python and are not timed``; empty where there is nothing,
    or the name says it."""
    part = _shown(compilation)
    if part is None:
        return ""
    told = []
    if part.loops and not _is_single(part):
        told.append(f"{_passes(part)} timed")
    shared = _shared(compilation, part)
    for of, lines in (("", [line for line in part.python if line not in shared]), ("part of ", shared)):
        if lines:
            run = "run" if len(lines) > 1 and not of else "runs"
            told.append(f"{of}{_named(lines)} {run} in Python and {'is' if of else _are(lines)} not timed")
    if part.kept:
        told.append(f"{_named(part.kept)} cannot be run again and {_are(part.kept)} not timed")
    return "; ".join(told)


def told_of(compilation: Compilation, text: str) -> str:
    """``text``, a sentence on times, with what these are of and what they leave out."""
    name = measured_name(compilation).removeprefix("the ")
    return "; ".join(filter(None, (f"{name}: {text}" if name else text, left_out(compilation))))


def python_time(compilation: Compilation) -> str:
    """What the lines that Python ran took; empty where there are none."""
    part = _shown(compilation)
    if part is None or part.python_seconds is None or not part.python:
        return ""
    return f"Python took {seconds_text(part.python_seconds)} for the rest when the cell ran"


def line_why(compilation: Compilation, line: int, why: str) -> str:
    """``why``, with what :func:`line_left_out` says of the line: of a loop that comes first, for it is what
    its times hang on, and rows are cut."""
    outside = line_left_out(compilation, line)
    said = (why, outside) if is_left_out(compilation, line) else (outside, why)
    return "; ".join(filter(None, said))


def is_left_out(compilation: Compilation, line: int) -> bool:
    """Whether what Python does at a line, or all of it, is in no time."""
    return line_left_out(compilation, line) in (_NOT_TIMED, _PART_NOT_TIMED)


def line_left_out(compilation: Compilation, line: int) -> str:
    """Of one line: that it is not timed, or how often; empty where it is timed as it ran."""
    part = _shown(compilation)
    if part is None:
        return ""
    if line in part.python or line in part.kept:
        return _PART_NOT_TIMED if line in _shared(compilation, part) else _NOT_TIMED
    passes = next((loop.passes for loop in part.loops if loop.line == line), 0)
    return f"one pass of {passes:,} is timed" if passes else ""


def calls_text(compilation: Compilation, count: int) -> str:
    """``297 calls``; ``297 passes`` where one pass of a loop was timed, ``297 runs of the compiled lines``
    where other lines are not timed."""
    part = _shown(compilation)
    if part is None:
        return count_text(count, "call")
    if _is_single(part):
        return count_text(count, "pass", "passes")
    return count_text(count, "run of the compiled lines", "runs of the compiled lines")


def _shown(compilation: Compilation) -> TimedCellPart | None:
    return compilation.timed_part if compilation.measurements else None


def _shared(compilation: Compilation, part: TimedCellPart) -> list[int]:
    """Lines of which something is timed and something else runs in Python."""
    own = {
        next((span.line for span in node.spans if not span.file), 0)
        for graph in compilation.of_stage("fx") for node in graph.nodes
    }  # fmt: skip
    return [line for line in part.python if line in own and line not in part.kept]


def _is_single(part: TimedCellPart) -> bool:
    return part.single and len(part.loops) == 1


def _one_pass(part: TimedCellPart) -> str:
    loop = part.loops[0]
    return f"one pass of the loop in line {loop.line} (of {loop.passes:,})"


def _passes(part: TimedCellPart) -> str:
    """``one pass of the loop in line 3 (of 1,000) is``; of several loops, ``one pass of each loop is``."""
    if len(part.loops) == 1:
        return f"{_one_pass(part)} is"
    places = _named([loop.line for loop in part.loops])
    return f"one pass each of the loops in {places} is"


def _named(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:_FEW]))
    more = f" and {len(lines) - _FEW:,} more" if len(lines) > _FEW else ""
    return f"line{'s' * (len(lines) > 1)} {shown}{more}"


def _are(lines: Sequence[int]) -> str:
    return "is" if len(lines) == 1 else "are"
