"""XLA's textual HLO, read: computations, their instructions, and where the metadata says each comes from.

The grammar is that of XLA's own printer (``xla/hlo/parser``): one instruction a line,
``[ROOT] %name = shape opcode(operands), attribute=value, ...``.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

_BITS = {"pred": 8, "token": 0, "opaque": 0, "bf16": 16}
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([0-9,<=]*)\]")
_COMMENT = re.compile(r"/\*.*?\*/")
_OPENING, _CLOSING = "([{", ")]}"
_CALLED = ("calls", "to_apply", "body", "condition", "branch_computations", "called_computations")


@dataclass(frozen=True)
class Instruction:
    """One instruction. ``operands`` are names in its computation; of a constant and a parameter, what stands
    between the parentheses is ``literal``. ``line`` is its place in the computation's text, from 0."""

    name: str
    opcode: str
    shape: str
    operands: tuple[str, ...]
    attributes: Mapping[str, str]
    literal: str = ""
    root: bool = False
    line: int = 0
    text: str = ""

    @property
    def arrays(self) -> list[tuple[str, tuple[int, ...]]]:
        """(element type, extents) of the result, or of each part of a tuple."""
        return [
            (kind, tuple(int(n.lstrip("<=")) for n in dims.split(",") if n))
            for kind, dims in _ARRAY.findall(self.shape)
        ]

    @property
    def elements(self) -> int:
        return sum(math.prod(dims) for _, dims in self.arrays)

    @property
    def bytes(self) -> int:
        return sum(math.prod(dims) * bits_of(kind) // 8 for kind, dims in self.arrays)

    @property
    def op_name(self) -> str:
        """The path of scopes that its metadata carries, ``jit(f)/scope/primitive``; empty if none."""
        found = re.search(r'op_name="((?:[^"\\]|\\.)*)"', self.attributes.get("metadata", ""))
        return found.group(1) if found else ""

    @property
    def called(self) -> tuple[str, ...]:
        """Names of the computations that it calls."""
        given = " ".join(self.attributes.get(key, "") for key in _CALLED)
        return tuple(re.findall(r"%([\w.\-]+)", given))


@dataclass(frozen=True)
class Computation:
    name: str
    instructions: tuple[Instruction, ...]
    text: str
    entry: bool = False

    @cached_property
    def root(self) -> Instruction:
        return next((each for each in self.instructions if each.root), self.instructions[-1])


@dataclass(frozen=True)
class HloModule:
    """Its computations by name."""

    computations: Mapping[str, Computation]

    @property
    def entry(self) -> Computation:
        return next(each for each in self.computations.values() if each.entry)


def bits_of(kind: str) -> int:
    """Bits of an element: of ``f32`` 32, of ``f8e4m3fn`` 8, of ``pred`` a byte."""
    if kind in _BITS:
        return _BITS[kind]
    found = re.match(r"[a-z]+(\d+)", kind)
    return int(found.group(1)) if found else 0


def parse(text: str) -> HloModule:
    """Read a module's text. ValueError for what is no HLO."""
    found: dict[str, Computation] = {}
    header: str | None = None
    body: list[str] = []
    for line in text.splitlines():
        if header is None:
            if line.endswith("{") and "->" in line and not line.startswith((" ", "HloModule")):
                header, body = line, []
        elif line.startswith("}"):
            made = _computation(header, body)
            found[made.name] = made
            header = None
        else:
            body.append(line)
    if not any(each.entry for each in found.values()):
        raise ValueError("no ENTRY computation in this HLO")
    return HloModule(found)


def _computation(header: str, body: list[str]) -> Computation:
    words = header.split()
    entry = words[0] == "ENTRY"
    name = words[1 if entry else 0].lstrip("%").partition("(")[0]
    instructions = tuple(
        _instruction(line, number) for number, line in enumerate(body, start=1) if " = " in line
    )
    return Computation(name, instructions, "\n".join((header, *body, "}")), entry)


def _instruction(line: str, number: int) -> Instruction:
    text = _COMMENT.sub("", line).strip()
    root = text.startswith("ROOT ")
    name, _, rest = text.removeprefix("ROOT ").partition(" = ")
    end = _end(rest, 0) if rest.startswith("(") else rest.index(" ")
    shape, rest = rest[:end], rest[end:].lstrip()
    start = rest.index("(")
    opcode = rest[:start]
    end = _end(rest, start)
    inside = rest[start + 1 : end - 1]
    literal = opcode in ("constant", "parameter")
    attributes = dict(_attributes(rest[end:]))
    operands = () if literal else tuple(p.split()[-1].lstrip("%") for p in _parts(inside) if p.strip())
    return Instruction(
        name.lstrip("%"), opcode, shape, operands, attributes, inside if literal else "", root, number,
        line.strip(),
    )  # fmt: skip


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    for part in _parts(text):
        key, equals, value = part.strip().partition("=")
        if equals:
            yield key, value


def _outside_quotes(text: str, start: int = 0) -> Iterator[tuple[int, str, int]]:
    """Place and letter of what is not quoted, and how many brackets are open behind it."""
    depth, quoted = 0, False
    for place in range(start, len(text)):
        letter = text[place]
        if letter == '"' and text[place - 1 : place] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (letter in _OPENING) - (letter in _CLOSING)
            yield place, letter, depth


def _parts(text: str) -> list[str]:
    """Split at the commas outside of brackets and quotes."""
    commas = [place for place, letter, depth in _outside_quotes(text) if letter == "," and not depth]
    return [text[start + 1 : end] for start, end in itertools.pairwise((-1, *commas, len(text)))]


def _end(text: str, start: int) -> int:
    """Behind the bracket that closes the one at ``start``. ValueError if none does."""
    for place, letter, depth in _outside_quotes(text, start):
        if letter in _CLOSING and not depth:
            return place + 1
    raise ValueError(f"unbalanced brackets in HLO: {text[:80]}")
