"""The fields of a record, found by walking its classes; and values with one of them changed."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

Sort = Literal["text", "number", "whole", "truth", "word", "any"]
Change = Callable[[Any, int, int], Any]
"""Of a value, its place among all of its kind in the record, and how many of these there are."""

REFERENCES = frozenset({
    "Compilation.id", "Graph.id", "Graph.outputs", "Graph.saved", "Graph.parent", "Node.id", "Node.inputs",
    "Node.origins", "Guard.graph", "GraphBreak.after_graph", "Recompile.graph", "Decision.id",
    "Decision.graph", "Decision.producer", "Decision.consumer", "Kernel.id", "Kernel.graph", "Kernel.loops",
    "Kernel.recomputed",
    "Kernel.reads", "Kernel.writes", "LineLink.origins", "PassRecord.before", "PassRecord.after",
    "DynamoWalk.graph", "WalkStep.made", "WalkStep.dropped", "AutotuneChoice.kernel", "Since.record",
})  # fmt: skip
"""Texts that name a part of the record."""
SCENE_REFERENCES = frozenset({
    "SceneLine.calls", "Call.id", "Call.graph", "Drawing.graph", "Drawing.inner", "DrawnGroup.id",
    "KernelCode.kernel", "ScenePoint.kernel", "Scene.file",
})  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A field of a class of the record, and what is in it: in a tuple, its items; in a dictionary, its keys
    (``of_keys``) or values."""

    kind: str
    field: str
    sort: Sort
    many: bool = False
    of_keys: bool = False

    def __str__(self) -> str:
        return f"{self.kind}.{self.field}{' keys' if self.of_keys else ''}"

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.field}"


def classes(root: type) -> list[type]:
    """The classes that a record is made of, each once."""
    found: dict[type, None] = {}

    def visit(hint: Any) -> None:
        if dataclasses.is_dataclass(hint) and isinstance(hint, type) and hint not in found:
            found[hint] = None
            for each in typing.get_type_hints(hint).values():
                visit(each)
        for each in typing.get_args(hint):
            visit(each)

    visit(root)
    return list(found)


def places(root: type) -> list[Place]:
    """Every field of every class that holds a text, a number, a truth or one of a few words."""
    return [
        place
        for kind in classes(root)
        for name, hint in typing.get_type_hints(kind).items()
        for place in _of(kind.__name__, name, hint, False)
    ]


def _of(kind: str, name: str, hint: Any, many: bool) -> Iterator[Place]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        yield Place(kind, name, "word", many)
    elif origin is tuple:
        yield from _of(kind, name, args[0], True)
    elif origin is dict:
        yield Place(kind, name, "text", True, True)
        yield from _of(kind, name, args[1], True)
    elif origin in (typing.Union, types.UnionType):
        for each in args:
            yield from _of(kind, name, each, many)
    elif hint in _SORTS:
        yield Place(kind, name, _SORTS[hint], many)


_SORTS: dict[Any, Sort] = {str: "text", int: "whole", float: "number", bool: "truth", Any: "any"}


def changed(values: Any, root: type, place: Place, change: Change) -> Any:
    """A copy of JSON values of ``root`` with every value of one field changed. A tuple's items are changed
    each; an empty one gets one item, and what is left out is put in."""
    count = [0]
    total = _count(values, root, place)

    def visit(value: Any, hint: Any) -> Any:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if isinstance(value, list) and origin is tuple:
            return [visit(each, args[0]) for each in value]
        if isinstance(value, dict) and origin is dict:
            return {key: visit(each, args[1]) for key, each in value.items()}
        if origin in (typing.Union, types.UnionType):
            known = next((each for each in args if dataclasses.is_dataclass(each)), None)
            known = known or next((each for each in args if typing.get_origin(each) is tuple), None)
            return visit(value, known) if known else value
        if not (dataclasses.is_dataclass(hint) and isinstance(value, dict)):
            return value
        hints = typing.get_type_hints(hint)
        out = {key: visit(each, hints.get(key)) for key, each in value.items()}
        if hint.__name__ == place.kind:
            at, count[0] = count[0], count[0] + 1
            out[place.field] = _put(out.get(place.field), place, lambda old: change(old, at, total))
        return out

    return visit(values, root)


def _put(old: Any, place: Place, change: Callable[[Any], Any]) -> Any:
    if place.of_keys:
        return {change(key): each for key, each in (old or {"": 1}).items()}
    if isinstance(old, dict) and place.many:
        return {key: change(each) for key, each in old.items()}
    if place.many:
        return _nested(old, change) if old else [change(None)]
    return change(old)


def _nested(old: Any, change: Callable[[Any], Any]) -> Any:
    return [_nested(each, change) if isinstance(each, list) else change(each) for each in old]


def _count(values: Any, root: type, place: Place) -> int:
    found = 0
    kinds = {kind.__name__: set(typing.get_type_hints(kind)) for kind in classes(root)}
    wanted = kinds.get(place.kind, set())
    stack = [values]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            found += bool(wanted) and set(value) == wanted
            stack += value.values()
        elif isinstance(value, list):
            stack += value
    return max(found, 1)
