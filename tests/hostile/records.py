"""Hostile records, made one by one from the classes of a record: each a file that a stranger could send.

A name says what is wrong with it: ``text Node.name``, ``link Node.inputs in a circle``, ``number Span.line
-1``, ``packed ...``, ``size ...``, ``scene ...``. Those of the scene are for the explorer alone: Python works
out its own.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from nbcompile.record.compilation import SCHEMA, Compilation
from nbcompile.view.scene import Scene
from tests.hostile import base
from tests.hostile.fields import REFERENCES, SCENE_REFERENCES, Place, changed, places
from tests.hostile.packed import PACKED
from tests.hostile.sizes import SIZES
from tests.hostile.texts import ALL, LONG, TEXTS

FIXED = frozenset({"Compilation.schema", "Scene.schema"})
"""Not a stranger's to choose: another schema is refused, and :mod:`tests.hostile.packed` does that."""


@dataclass(frozen=True)
class Hostile:
    """A file that was made to do harm. ``make`` gives its text."""

    name: str
    make: Callable[[], str]

    def __str__(self) -> str:
        return self.name


BAD_LINKS: dict[str, Callable[[list[str], int, int], str]] = {
    "to nothing": lambda ids, at, of: "g9.nothing.n0",
    "to itself": lambda ids, at, of: ids[at % len(ids)],
    "in a circle": lambda ids, at, of: ids[(at + 1) % len(ids)],
    "all to one": lambda ids, at, of: ids[0],
    "__proto__": lambda ids, at, of: "__proto__",
    "constructor": lambda ids, at, of: "constructor",
    "toString": lambda ids, at, of: "toString",
    "hasOwnProperty": lambda ids, at, of: "hasOwnProperty",
    "empty": lambda ids, at, of: "",
    "-1": lambda ids, at, of: "-1",
    "NaN": lambda ids, at, of: "NaN",
    "9e999": lambda ids, at, of: "9e999",
}
BAD_NUMBERS: dict[str, Any] = {
    "-1": -1, "0": 0, "2^31": 2**31, "2^53+1": 2**53 + 1, "2^63": 2**63,
    "10^300": 10**300, "10^4000": 10**4000,
    "-10^300": -(10**300), "1e99": 1e99, "-1e99": -1e99, "1e308": 1e308, "-1e308": -1e308, "5e-324": 5e-324,
    "NaN": float("nan"),
    "Infinity": float("inf"), "-Infinity": float("-inf"), "1.5": 1.5,
}  # fmt: skip
_OF_WHOLES = ("-1", "0", "2^31", "2^53+1", "2^63", "10^300", "10^4000", "-10^300")
_OF_NUMBERS = (
    "-1",
    "0",
    "1e99",
    "-1e99",
    "10^300",
    "1e308",
    "-1e308",
    "5e-324",
    "NaN",
    "Infinity",
    "-Infinity",
    "10^4000",
)


@lru_cache(maxsize=1)
def all_records() -> dict[str, Hostile]:
    """Every one, by name."""
    made = [
        *_texts("text", Compilation, _record_file), *_links("link", Compilation, REFERENCES, _record_file),
        *_numbers("number", Compilation, _record_file), *_everywhere(),
        *(Hostile(f"packed {name}", make) for name, make in PACKED.items()),
        *(Hostile(f"size {name}", make) for name, make in SIZES.items()),
    ]  # fmt: skip
    return {each.name: each for each in made}


@lru_cache(maxsize=1)
def scene_records() -> dict[str, Hostile]:
    """Those whose record is well and whose scene is not."""
    made = [
        *_texts("scene text", Scene, _scene_file), *_numbers("scene number", Scene, _scene_file),
        *_links("scene link", Scene, SCENE_REFERENCES, _scene_file),
    ]  # fmt: skip
    return {each.name: each for each in made}


Filed = Callable[[Any], str]


def packed_text(text: str, schema: str = SCHEMA) -> str:
    """JSON text as a payload holds it."""
    deflate = base64.b64encode(zlib.compress(text.encode(), 1)).decode()
    return json.dumps({"schema": schema, "id": "x", "title": "a stranger's", "deflate": deflate})


def _record_file(values: Any) -> str:
    """Every other one packed, so that both ways in are tried."""
    text = json.dumps(values)
    return packed_text(text) if len(text) % 2 else text


def _scene_file(values: Any) -> str:
    return packed_text(json.dumps({**json.loads(json.dumps(base.record().to_dict())), "view": values}))


def _base(root: type) -> dict[str, Any]:
    return base.values() if root is Compilation else base.scene_values()


def _texts(sort: str, root: type, filed: Filed) -> Iterator[Hostile]:
    for place in places(root):
        if place.sort not in ("text", "any") or place.name in FIXED:
            continue

        def make(place: Place = place) -> str:
            return filed(changed(_base(root), root, place, lambda old, at, of: f"{old or ''}{ALL}"))

        def long(place: Place = place) -> str:
            return filed(
                changed(_base(root), root, place, lambda old, at, of: LONG if at == 0 else old or "")
            )

        yield Hostile(f"{sort} {place}", make)
        yield Hostile(f"{sort} {place} long", long)


def _links(sort: str, root: type, known: frozenset[str], filed: Filed) -> Iterator[Hostile]:
    for place in places(root):
        if place.name not in known:
            continue
        for bad, to in BAD_LINKS.items():

            def make(place: Place = place, to: Callable[[list[str], int, int], str] = to) -> str:
                ids = _ids(place)
                return filed(changed(_base(root), root, place, lambda old, at, of: to(ids, at, of)))

            yield Hostile(f"{sort} {place} {bad}", make)


@lru_cache(maxsize=64)
def _ids(place: Place) -> list[str]:
    """Ids of the same kind as the class has itself, in the order of the record, or those of all nodes."""
    record = base.record()
    kinds: dict[str, list[str]] = {
        "Graph": [graph.id for graph in record.graphs],
        "Kernel": [kernel.id for kernel in record.kernels],
        "Decision": [each.id for each in record.decisions],
    }
    return kinds.get(place.kind) or [node.id for graph in record.graphs for node in graph.nodes]


def _numbers(sort: str, root: type, filed: Filed) -> Iterator[Hostile]:
    for place in places(root):
        if place.sort not in ("whole", "number"):
            continue
        for bad in _OF_WHOLES if place.sort == "whole" else _OF_NUMBERS:

            def make(place: Place = place, bad: str = bad) -> str:
                return filed(changed(_base(root), root, place, lambda old, at, of: BAD_NUMBERS[bad]))

            yield Hostile(f"{sort} {place} {bad}", make)


def _everywhere() -> Iterator[Hostile]:
    """One text in every field that holds texts."""
    for name, text in {**TEXTS, "everything": ALL}.items():

        def make(text: str = text) -> str:
            values = base.values()
            for place in places(Compilation):
                if place.sort == "text" and place.name not in REFERENCES | FIXED:
                    values = changed(values, Compilation, place, lambda old, at, of: f"{old or ''}{text}")
            return _record_file(values)

        yield Hostile(f"everywhere {name}", make)


@lru_cache(maxsize=1)
def chosen() -> tuple[str, ...]:
    """Names of those that are tried one by one, in Python and in a browser: all texts, packings, sizes, and
    of each field of links and numbers one, in turns. :func:`everything` has the rest too."""
    names = list(all_records())
    whole = [name for name in names if name.split()[0] in ("packed", "size", "everywhere")]
    texts = [name for name in names if name.startswith("text ") and not name.endswith(" long")]
    long = [name for name in names if name.startswith("text ") and name.endswith(" long")][::6]
    return (*whole, *texts, *long, *_in_turns("link "), *_in_turns("number "))


@lru_cache(maxsize=1)
def chosen_scenes() -> tuple[str, ...]:
    """The same of scenes, for the browser."""
    texts = [
        name for name in scene_records() if name.startswith("scene text ") and not name.endswith(" long")
    ]
    return (*texts, *_in_turns("scene link "), *_in_turns("scene number "))


def everything() -> dict[str, Hostile]:
    """Every hostile record there is."""
    return {**all_records(), **scene_records()}


def _in_turns(start: str) -> list[str]:
    """Of each field one name: of the first the first, of the second the second, and round."""
    fields: dict[str, list[str]] = {}
    for name in everything():
        if name.startswith(start):
            fields.setdefault(name.removeprefix(start).split()[0], []).append(name)
    return [names[at % len(names)] for at, names in enumerate(fields.values())]
