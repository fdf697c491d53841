"""Which ranks compiled something else than most, by content, and where their texts part."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nbcompile.traces.ranks import RankCompile, RankSummary
from nbcompile.traces.reading.digests import COMPARED, same_everywhere
from nbcompile.traces.reading.values import TraceArtifact, TracedCompile
from nbcompile.units import clip, count_text

_ORDER = ("compiled", "status", "recompile reason", *dict.fromkeys(COMPARED.values()), "caches")
"""What comes first explains what follows: another graph has other kernels."""
_IN_WORDS = frozenset(("compiled", "status", "caches"))
_AROUND, _LONGEST = 2, 40


Readable = tuple[Sequence[TracedCompile], Callable[[TraceArtifact], str]]
"""A rank's compilations, and what gives the text of an artifact of one."""


@dataclass(frozen=True)
class Divergence:
    """Ranks that agree with each other, but not with most: in ``what`` of a compilation. ``usual`` and
    ``found`` say both in words where they are words. ``like`` is a rank that did as most did.
    ``explained``: it may follow from something that they differ in before: of the same compilation, or the
    same of an earlier one of this function."""

    ranks: tuple[str, ...]
    compile: str
    function: str
    what: str
    like: str
    most: int
    usual: str = ""
    found: str = ""
    explained: bool = False

    def __str__(self) -> str:
        text = f"{ranks_text(self.ranks)}: {self.what} of {self.compile} ({self.function})"
        if self.what == "compiled":
            text = f"{ranks_text(self.ranks)}: {self.compile} ({self.function}) {self.found}"
        elif self.found:
            text += f": {self.found}"
        usual = f" ({self.usual})" if self.usual else ""
        return f"{text}; otherwise on {count_text(self.most, 'rank')}, as on {ranks_text([self.like])}{usual}"


def divergences(named: Mapping[str, RankSummary]) -> tuple[Divergence, ...]:
    """All there are, the earliest compilation first. ``named``: the ranks that could be read."""
    tables = {name: {each.id: each for each in rank.compiles} for name, rank in named.items()}
    order: dict[str, RankCompile] = {}
    # In the order of the rank that compiled most; what only others have comes after.
    for table in sorted(tables.values(), key=len, reverse=True):
        order = {**order, **{id: each for id, each in table.items() if id not in order}}
    found: list[Divergence] = []
    before: set[tuple[str, str, str]] = set()  # a rank, and what it differed in
    for id, example in order.items():
        rows = {name: _marks(table.get(id)) for name, table in tables.items()}
        for what in _ORDER:
            made = _differing(rows, what, id, example.function, before)
            found += made
            differ = {name for each in made for name in each.ranks}
            before |= {(name, id, "") for name in differ}
            before |= {(name, example.function, what) for name in differ}
    return tuple(found)


def diverging_ranks(found: Sequence[Divergence]) -> tuple[str, ...]:
    """The ranks that differ in anything, but for caches: who compiles first fills these."""
    return tuple(dict.fromkeys(name for each in found if each.what != "caches" for name in each.ranks))


def _marks(compile: RankCompile | None) -> dict[str, str]:
    if compile is None:
        return {"compiled": "not compiled"}
    return {"compiled": "compiled", "status": compile.status, **dict(compile.marks)}


def _differing(
    rows: Mapping[str, Mapping[str, str]],
    what: str,
    id: str,
    function: str,
    before: set[tuple[str, str, str]],
) -> list[Divergence]:
    groups: dict[str, list[str]] = {}
    for name, marks in rows.items():
        # One that has none of it at all differs in "compiled".
        if what == "compiled" or marks["compiled"] == "compiled":
            groups.setdefault(marks.get(what, ""), []).append(name)
    if len(groups) < 2:
        return []
    # The largest; of equal ones that of the first rank.
    usual = max(groups, key=lambda value: len(groups[value]))
    words = what in _IN_WORDS
    return [
        Divergence(
            tuple(names),
            id,
            function,
            what,
            groups[usual][0],
            len(groups[usual]),
            (usual or "none") if words else "",
            (value or "none") if words else ("none there" if not value else ""),
            all((name, id, "") in before or (name, function, what) in before for name in names),
        )
        for value, names in groups.items()
        if value != usual
    ]


def first_difference(divergence: Divergence, usual: Readable, there: Readable) -> str:
    """The first lines in which two ranks' texts part, as a diff; empty where it is no text that differs."""
    names = [name for name, what in COMPARED.items() if what == divergence.what]
    texts = [_texts(trace, divergence.compile, names) for trace in (usual, there)]
    for name in dict.fromkeys([*texts[0], *texts[1]]):
        before, after = (each.get(name, []) for each in texts)
        for number in range(max(len(before), len(after))):
            pair = [each[number] if number < len(each) else "" for each in (before, after)]
            if pair[0] != pair[1]:
                return _diff(pair[0], pair[1], name)
    return ""


def _texts(trace: Readable, id: str, names: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    compiles, read = trace
    for traced in compiles:
        if traced.id != id:
            continue
        for artifact in traced.artifacts:
            key = next((name for name in names if artifact.name.startswith(name)), "")
            if key:
                found.setdefault(key, []).append(same_everywhere(key, read(artifact)))
    return found


def _diff(usual: str, there: str, name: str) -> str:
    """Around the first difference: two lines before it, and what it is, at most 40 lines."""
    before, after = usual.splitlines(), there.splitlines()
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    begin = max(0, same - _AROUND)
    # Of long texts the rest need not be gone through.
    window = [lines[begin : same + 200] for lines in (before, after)]
    lines = list(difflib.unified_diff(window[0], window[1], lineterm="", n=_AROUND))
    hunks = [number for number, line in enumerate(lines) if line.startswith("@@")]
    end = hunks[1] if len(hunks) > 1 else len(lines)
    shown = [clip(line, 400) if len(line) > 400 else line for line in lines[2:end][1:][:_LONGEST]]
    return "\n".join((f"{name}, line {same + 1}", *shown))


def ranks_text(names: Sequence[str]) -> str:
    """``rank 3``, ``ranks 0–3, 7`` and, of many, how many more."""
    numbers = sorted(int(name) for name in names if name.isdigit())
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(first) if first == last else f"{first}–{last}" for first, last in runs]
    shown += [name for name in names if not name.isdigit()]
    more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
    return f"{'rank' if len(names) == 1 else 'ranks'} {', '.join(shown[:8])}{more}"
