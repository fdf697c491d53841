"""Dynamo's walk through a function's bytecode, where it was watched: what it met, and what it made of it.

A :class:`DynamoWalk` is one attempt at one function. Instructions and words stand in tables, and a
:class:`WalkStep` says what it changed, so that 20,000 steps pack into less than 300 kB; :func:`states` plays
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Ended = Literal["returned", "break", "restart", "stopped", "raised"]
"""How an attempt ended: at the function's end; at a graph break, after which Python goes on; to begin again
from the top; without a graph, for good; in an error of the program."""


@dataclass(frozen=True)
class WalkCode:
    """A function that was walked through. ``file`` is empty for the cell; ``text`` are its lines from
    ``first_line`` on, empty for the cell's own."""

    name: str
    file: str = ""
    first_line: int = 1
    text: str = ""


@dataclass(frozen=True)
class WalkInstruction:
    """An instruction of ``code`` (its place in the walk's ``codes``). Lines are 1-based, columns 0-based
    in characters, end exclusive; 0 and ``None`` where Python recorded none."""

    code: int
    offset: int
    name: str
    argument: str = ""
    line: int = 0
    column: int | None = None
    end_line: int = 0
    end_column: int | None = None


@dataclass(frozen=True)
class WalkStep:
    """One instruction, followed. ``at`` is its place in ``instructions``, ``depth`` that of inlined calls.

    The stack after it, of its own frame, is the first ``kept`` values of the one before, then ``pushed``;
    ``stored`` has by turns a local's name and its new value, -1 once it is gone. All are places in ``words``.
    ``made`` are ids of the nodes that came of it, ``dropped`` names of nodes that are in no graph in the end.
    ``said`` is what there is to say of it in words, ``broke``: that the graph ends or the walk is given up.
    """

    at: int
    depth: int = 0
    kept: int = 0
    pushed: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()
    made: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    said: str = ""
    broke: bool = False


@dataclass(frozen=True)
class Rewritten:
    """The bytecode that Dynamo wrote in the function's place: as ``dis`` lists it with a remark a line, and
    ``python``, the same as Python text, or ``why_not``."""

    listing: str
    python: str = ""
    why_not: str = ""


@dataclass(frozen=True)
class DynamoWalk:
    """One attempt at one function, ``frame`` (Dynamo's number). ``graph`` is the id of the graph that it
    made, ``reason`` why it ended, ``cut`` says what was left out."""

    frame: str
    attempt: int
    ended: Ended
    codes: tuple[WalkCode, ...]
    instructions: tuple[WalkInstruction, ...] = ()
    words: tuple[str, ...] = ()
    steps: tuple[WalkStep, ...] = ()
    graph: str = ""
    reason: str = ""
    rewritten: Rewritten | None = None
    cut: str = ""


@dataclass(frozen=True)
class WalkState:
    """The symbolic stack, its top last, and the locals of the frame of a step, after it."""

    stack: tuple[str, ...]
    locals: dict[str, str]


def states(walk: DynamoWalk) -> Iterator[WalkState]:
    """What each step of a walk left, in order."""
    frames: dict[int, tuple[list[int], dict[int, int]]] = {}
    word = walk.words
    for step in walk.steps:
        for depth in [depth for depth in frames if depth > step.depth]:
            del frames[depth]
        stack, held = frames.setdefault(step.depth, ([], {}))
        stack[step.kept :] = step.pushed
        for name, value in zip(step.stored[::2], step.stored[1::2], strict=True):
            if value < 0:
                held.pop(name, None)
            else:
                held[name] = value
        yield WalkState(tuple(word[n] for n in stack), {word[n]: word[v] for n, v in held.items()})
