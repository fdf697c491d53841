"""Which parts of two records are the same part, though lines have moved and names are numbered anew.

Nodes of the FX graph are matched by what they do and the lines of source that they come from, those of each
later stage by what they were made from, and kernels by the loops that they hold. It is arithmetic on records:
nothing here needs torch. The explorer does the same in ``labextension/src/explorer/compare/match.ts``.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from nbcompile.record.compilation import Compilation, Node, Span

ORDER = ("fx", "joint", "forward", "backward", "loops")
"""Stages in the order they are made: each is matched by the ones before it."""

Token = int
"""Stands for a node in both records: equal where the nodes are the same work."""

_ALIKE = 0.5  # share of two lines that is the same, from which one is taken for the other, edited


@dataclass(frozen=True)
class RecordedProgram:
    """A record with the source that it came from. ``root``: the folder that file names are told relative to;
    ``sources``: the text of files, by their relative names (``""`` is the cell)."""

    record: Compilation
    root: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    def file(self, span: Span) -> str:
        """The span's file, relative to ``root`` where it lies below; empty for a cell."""
        path = PurePath(span.file)
        return (
            path.relative_to(self.root).as_posix()
            if self.root and path.is_relative_to(self.root)
            else span.file
        )

    def source(self, file: str) -> str | None:
        """The text of a file by its relative name, where the record or its bench kept it."""
        if not file and self.record.cell is not None:
            return self.record.cell.source
        return self.sources.get(file)


class RecordMatching:
    """Tokens of the nodes of two records."""

    def __init__(self, before: RecordedProgram, after: RecordedProgram) -> None:
        self._lines: dict[str, Mapping[int, int] | None] = {}
        self._sides = (before, after)
        self._numbers: dict[Hashable, Token] = {}
        self.before = self._tokens(before, moved=True)
        self.after = self._tokens(after, moved=False)

    def place(self, spans: tuple[Span, ...], *, of_before: bool) -> Hashable:
        """Where this is in the source of the later record, from the outermost frame to the innermost."""
        program = self._sides[0 if of_before else 1]
        return tuple(self._line(program.file(span), span.line, of_before) for span in spans)

    def _line(self, file: str, line: int, moved: bool) -> Hashable:
        if not moved:
            return file, line
        if file not in self._lines:
            one, two = (side.source(file) for side in self._sides)
            self._lines[file] = None if one is None or two is None else line_map(one, two)
        known = self._lines[file]
        return (file, line) if known is None else (file, known.get(line, -line))

    def _tokens(self, program: RecordedProgram, moved: bool) -> dict[str, Token]:
        tokens: dict[str, Token] = {}
        seen: Counter[Hashable] = Counter()
        for stage in ORDER:
            for graph in program.record.graphs:
                for node in graph.nodes if graph.stage == stage else ():
                    about = (stage, *self._about(node, tokens, moved))
                    key = (about, seen[about])  # two nodes that are alike: by their order
                    seen[about] += 1
                    tokens[node.id] = self._numbers.setdefault(key, len(self._numbers))
        return tokens

    def _about(self, node: Node, tokens: Mapping[str, Token], moved: bool) -> tuple[Hashable, ...]:
        if node.kind in ("input", "output"):
            return (node.kind, node.name)
        parents = tuple(sorted({tokens[id] for id in node.origins if id in tokens}))
        if parents:
            return (node.op, node.kind, parents)
        return (node.op, node.kind, self.place(node.spans, of_before=moved))


def line_map(before: str, after: str) -> dict[int, int]:
    """Which line of ``after`` each line of ``before`` became, both from 1: equal lines first; between these,
    a line that is mostly the same counts as edited. Lines that are gone are left out. Of texts that differ in
    more than :data:`MAX_COMPARED` lines only what is before and behind these is told, and a line is not held
    against more than :data:`MAX_LIKELY` others."""
    one, two = ([line.rstrip()[:MAX_WIDTH] for line in text.splitlines()] for text in (before, after))
    start = _alike(one, two)
    end = _alike(one[start:][::-1], two[start:][::-1])
    out = {n: n for n in range(1, start + 1)}
    out |= {len(one) - n: len(two) - n for n in range(end)}
    one, two = one[start : len(one) - end], two[start : len(two) - end]
    if max(len(one), len(two)) > MAX_COMPARED:
        return out
    for tag, a, a_end, b, b_end in _opcodes(one, two):
        if tag == "equal":
            out.update({start + a + i + 1: start + b + i + 1 for i in range(a_end - a)})
        elif tag == "replace":
            for line in range(a, a_end):
                likely = [
                    (difflib.SequenceMatcher(None, one[line], two[to]).ratio(), -to)
                    for to in range(b, min(b_end, b + MAX_LIKELY))
                ]
                best, to = max(likely, default=(0.0, 0))
                if best > _ALIKE:
                    out[start + line + 1] = start + 1 - to
                    b = 1 - to
    return out


MAX_COMPARED, MAX_LIKELY, MAX_WIDTH = 1_000, 40, 400


def _alike(one: Sequence[str], two: Sequence[str]) -> int:
    """How many lines at the start are the same."""
    return next((n for n, (a, b) in enumerate(zip(one, two)) if a != b), min(len(one), len(two)))


def _opcodes(one: list[str], two: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """Without lines that a long text repeats, which take time by the square of their number."""
    return difflib.SequenceMatcher(None, one, two, autojunk=len(two) >= 200).get_opcodes()
