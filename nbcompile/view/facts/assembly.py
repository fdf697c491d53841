"""What a compiler's output says, without what it says to other programs.

Triton's intermediate texts carry debug information, encodings and symbol tables: half of their length and
nothing to read. The record keeps the texts whole; views show a :class:`Listing`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

TITLES: dict[str, tuple[str, str]] = {
    "c": ("C", ""),
    "cpp": ("C++", ""),
    "triton": ("Triton", ""),
    "ttir": ("Triton IR", "operations on whole tiles"),
    "ttgir": ("Triton GPU IR", "tiles with layouts: which thread holds which element"),
    "llir": ("LLVM IR", "what one thread does"),
    "ptx": ("PTX", "NVIDIA's portable assembly"),
    "sass": ("SASS", "what the chip runs"),
    "amdgcn": ("AMDGCN", "what the chip runs"),
    "hlo": ("HLO", "what XLA optimised it to"),
}
"""Languages of a kernel's sources in the order that one is made from the other, and a word on each."""

Place = tuple[str, int]
"""(function, line counted from its ``def``) of the Triton source; in machine code (file, line) of the C."""
Cut = tuple[int, int]
"""Columns from, to (exclusive)."""


@dataclass(frozen=True)
class Row:
    """A line worth reading: its number in the whole text, from 0, the columns to leave out, and the place in
    the source that it was made for."""

    number: int
    text: str
    cuts: tuple[Cut, ...] = ()
    place: Place | None = None

    @property
    def shown(self) -> str:
        """The text without its cuts."""
        ends = [0, *(end for _, end in self.cuts)]
        starts = [*(start for start, _ in self.cuts), len(self.text)]
        kept = "".join(self.text[a:b] for a, b in zip(ends, starts, strict=True))
        return kept.rstrip().replace("\t", "  ")


@dataclass(frozen=True)
class Listing:
    """The lines worth reading of one text."""

    rows: tuple[Row, ...]
    left_out: str = ""  # what is not shown, in words

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(row.shown for row in self.rows)


def listing(language: str, text: str) -> Listing:
    """The reading form of one of a kernel's sources; texts of other languages come back whole."""
    rows = [Row(n, line) for n, line in enumerate(text.rstrip().split("\n"))]
    reader = _READERS.get(language)
    return reader(rows) if reader else Listing(tuple(rows))


_DEF = re.compile(r"^\s*def (\w+)\(")


def source_lines(read: Listing, source: str) -> list[int]:
    """For each row the line of the Triton text ``source``, from 1, that it was made for; 0: it tells none."""
    found = ((n, _DEF.match(line)) for n, line in enumerate(source.split("\n"), start=1))
    defs = {match.group(1): n for n, match in found if match}
    return [
        defs[row.place[0]] + row.place[1] if row.place and row.place[0] in defs else 0 for row in read.rows
    ]


def _cut(row: Row, pattern: re.Pattern[str], place: Place | None = None) -> Row:
    return Row(row.number, row.text, tuple(match.span() for match in pattern.finditer(row.text)), place)


_MLIR_LOC = re.compile(r" loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_MLIR_REFERENCE = re.compile(r'(#loc\d*)\b|"([^"]*)":(\d+):\d+')
_MLIR_NAMED = re.compile(r"(#loc\d*) = (.*)")
_MLIR_FUNCTION = re.compile(r"\s*tt\.func .*?@(\w+)\(")


def _mlir(rows: Sequence[Row]) -> Listing:
    """Without locations, whose text is a third of it."""
    out: list[Row] = []
    for part in _parts(rows, "#loc = "):
        named = {found.group(1): found.group(2) for row in part if (found := _MLIR_NAMED.match(row.text))}
        function, start = "", ("", 0)
        for row in part:
            if row.text.startswith("#loc"):
                continue
            locations = _MLIR_LOC.findall(row.text)
            at = _mlir_place(locations[-1], named) if locations else None
            if entry := _MLIR_FUNCTION.match(row.text):
                function, start = entry.group(1), at or ("", 0)
            ours = at is not None and at[0] == start[0] and at[1] >= start[1]
            out.append(_cut(row, _MLIR_LOC, (function, at[1] - start[1]) if at and ours else None))
    return Listing(_squeezed(out), left_out="locations")


def _mlir_place(text: str, named: Mapping[str, str]) -> tuple[str, int] | None:
    """(file, line) of a location. Of an inlined one the outermost, which is ours: it is named last."""
    for _ in range(64):
        found = _MLIR_REFERENCE.findall(text)
        if not found:
            return None
        name, file, line = found[-1]
        if not name:
            return file, _number(line)
        text = named.get(name, "")
    return None


_DEBUG = re.compile(r",? !dbg !\d+")
_LLVM_NOISE = ("!", "attributes #", "declare ", "; Function Attrs", "source_filename", "; ModuleID")
_LLVM_FUNCTION = re.compile(r"define .*?@(\w+)\(")
_LLVM_NODE = re.compile(
    r"!(\d+) = (?:distinct )?!DI(?:Location|Subprogram)\(.*?\bline: (\d+)(?:.*?inlinedAt: !(\d+))?"
)
_LLVM_AT = re.compile(r"!dbg !(\d+)")


def _llvm(rows: Sequence[Row]) -> Listing:
    """Without metadata, attributes and declarations, which follow the functions."""
    out: list[Row] = []
    for part in _parts(rows, "; ModuleID"):
        nodes = {found.group(1): (_number(found.group(2)), found.group(3)) for row in part
                 if row.text.startswith("!") and (found := _LLVM_NODE.match(row.text))}  # fmt: skip
        function, start = "", 0
        for row in part:
            if row.text.startswith(_LLVM_NOISE):
                continue
            found = _LLVM_AT.search(row.text)
            line = _llvm_line(found.group(1), nodes) if found else 0
            if entry := _LLVM_FUNCTION.match(row.text):
                function, start = entry.group(1), line
            out.append(_cut(row, _DEBUG, (function, line - start) if start and line >= start else None))
    return Listing(_squeezed(out), left_out="debug information, attributes and declarations")


def _llvm_line(node: str | None, nodes: Mapping[str, tuple[int, str | None]]) -> int:
    """The line of a location; of an inlined one that of the outermost, which is ours."""
    line = 0
    for _ in range(64):
        if node is None or node not in nodes:
            break
        line, node = nodes[node]
    return line


_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+\d+")
_AT = re.compile(r":(\d+)(?::\d+)?\s*\]?(?=[\s\]]*$)")
_ENTRY = re.compile(r"\s*(?:\.visible )?\.entry\s+(\w+)\(?|\s*\.type\s+(\w+),@function")
_NOISE = re.compile(
    r"\s*(?:\$L__(?:tmp\d+|func_)|\.L(?:tmp\d+:|func_)|\.file\s|\.cfi_"
    r"|//\s*(?:$|Generated by|@|\.globl|(?:begin|end) inline asm))"
)
"""Labels for debuggers, and comments that say nothing."""


def _assembly(section: Callable[[str], bool]) -> Callable[[Sequence[Row]], Listing]:
    """A reader of PTX or AMDGCN. ``section(line)`` tells whether a line starts what is not code."""

    def read(rows: Sequence[Row]) -> Listing:
        out: list[Row] = []
        function, start, here = "", 0, 0
        hidden = False
        for row in rows:
            line = row.text
            if entry := _ENTRY.match(line):
                function, start, here, hidden = entry.group(1) or entry.group(2), 0, 0, False
            hidden = hidden or section(line)
            if hidden or _NOISE.match(line) or not line.strip():
                continue
            if found := _LOC.match(line):
                # A comment names the innermost place, then in brackets where that is inlined: ours is last.
                outer = _AT.search(line)
                number = _number(outer.group(1) if outer else found.group(2))
                start = start or number  # the first is that of the def
                here = number if number >= start else here
                continue
            code = start and line.strip() not in ("{", "}", ")")
            out.append(Row(row.number, line, (), (function, here - start) if code else None))
        return Listing(tuple(out), "debug information")

    return read


_FILE = re.compile(r'\s*\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"')
_LABEL = re.compile(r'"?([\w.$@]+)"?:\s*(?:[#;@/].*)?$')
_WORD = re.compile(r"[\w.$@]+")
_COMMENT = re.compile(r"\s*(?:#|;|@|//)")
_PADDING = re.compile(r"(?<=\S  )\s+(?=#|;|//)|(?<=:)\s+(?:#|;|//).*")
"""What clang puts before a comment, and what it says of a label: for other programs, or for its authors."""
_INLINED = re.compile(r"([^\s:@\[]+):(\d+)(?::\d+)?\s*\]")


def machine_code(text: str, file: str) -> Listing:
    """The functions that a C compiler made of ``file`` (with ``-S -g1``): instructions, and the labels that
    they name. By the directives that gcc and clang print for every processor."""
    rows = [Row(n, line) for n, line in enumerate(text.split("\n"))]
    ours = {found.group(1) for row in rows if (found := _FILE.match(row.text)) and found.group(2) == file}
    kept = [row for body in _functions(rows) for row in _instructions(body, file, ours)]
    named = {word for row in kept if not _LABEL.match(row.text) for word in _WORD.findall(row.text)}
    out = [
        row for row in kept
        if row.place is None or not (label := _LABEL.match(row.text)) or label.group(1) in named
    ]  # fmt: skip
    return Listing(tuple(out), "directives and data")


def _functions(rows: Iterable[Row]) -> list[list[Row]]:
    """The lines of each function, its name first."""
    bodies: list[list[Row]] = []
    head: list[Row] = []  # gcc and clang put labels of their own between the name and the first directive
    inside = False
    for row in rows:
        if row.text.strip().startswith(".cfi_startproc"):
            bodies.append(head)
            inside = True
        elif row.text.strip().startswith(".cfi_endproc"):
            head, inside = [], False
        elif inside:
            bodies[-1].append(row)
        elif _LABEL.match(row.text) or _LOC.match(row.text):
            head.append(row)
        elif row.text.strip().startswith((".type", ".globl")):
            head = []
    return bodies


def _instructions(body: Sequence[Row], file: str, ours: Container[str]) -> list[Row]:
    """The instructions and labels of a function; none of one that is not of ``file``, whose numbers are
    ``ours``. The name has no place."""
    out: list[Row] = []
    here = -1
    for row in body:
        if found := _LOC.match(row.text):
            # clang's comment names where that is inlined, ours last; without one it is where we were.
            outer = [_number(line) for name, line in _INLINED.findall(row.text) if name == file]
            if outer:
                here = outer[-1]
            elif found.group(1) in ours:
                here = _number(found.group(2))
        elif not row.text.strip() or _COMMENT.match(row.text):
            continue
        elif _LABEL.match(row.text):
            out.append(_cut(row, _PADDING, (file, max(here, 0)) if out else None))
        elif not row.text.lstrip().startswith("."):
            out.append(_cut(row, _PADDING, (file, max(here, 0))))
    return out if here >= 0 else []


_SASS_NOISE = re.compile(
    r"\s*/\*(?: 0x)[0-9a-f]+ \*/\s*$|^\s*/\*(?=[0-9a-f]+\*/)|(?<=[0-9a-f])\*/\s*?(?=(?:  )?\S)"
)
"""Instructions' bits, and what stands around their addresses."""
_SASS_FUNCTION = re.compile(r"\s*\.text\.(\w+):")
_SASS_PLACE = re.compile(r'"([^"]*)", line (\d+)')


def _sass(rows: Sequence[Row]) -> Listing:
    """Without the instructions' bits."""
    out: list[Row] = []
    function, start = "", ("", 0)
    place: Place | None = None
    for row in rows:
        line = row.text.strip()
        if entry := _SASS_FUNCTION.match(line):
            function, start, place = entry.group(1), ("", 0), None
        if line.startswith("//## File"):
            found = _SASS_PLACE.findall(line)
            if found:
                file, number = found[-1][0], _number(found[-1][1])
                start = start if start[1] else (file, number)  # the first is that of the def
                place = (function, number - start[1]) if file == start[0] and number >= start[1] else None
            continue
        cut = _cut(row, _SASS_NOISE, place)
        if cut.shown.strip() and not line.startswith((".headerflags", "....")):
            out.append(cut)
    return Listing(tuple(out), left_out="encodings")


def _number(text: str) -> int:
    """A line number; 0 for one that no file has."""
    return int(text) if len(text) < 10 else 0


def _parts(rows: Iterable[Row], first: str) -> list[list[Row]]:
    """A kernel of several functions has a text of each, which starts with ``first`` and has its own names."""
    parts: list[list[Row]] = [[]]
    for row in rows:
        if row.text.startswith(first):
            parts.append([])
        parts[-1].append(row)
    return parts


def _squeezed(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Without empty lines at either end or after another."""
    kept = [row for n, row in enumerate(rows) if row.shown or (n and rows[n - 1].shown)]
    while kept and not kept[-1].shown:
        kept.pop()
    return tuple(kept)


_READERS: dict[str, Callable[[Sequence[Row]], Listing]] = {
    "ttir": _mlir,
    "ttgir": _mlir,
    "llir": _llvm,
    "ptx": _assembly(lambda line: line.lstrip().startswith(".section")),
    "amdgcn": _assembly(lambda line: line.lstrip().startswith((".section", ".amdgpu_metadata"))),
    "sass": _sass,
}
