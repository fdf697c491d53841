"""The record that is made hostile: realistic, linked, and with something of every class that there is."""

from __future__ import annotations

import dataclasses
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from nbcompile import view
from nbcompile.record.compilation import Compilation
from nbcompile.view.scene import Scene, scene
from tests.view import fixtures
from tests.view.fixtures_hostile import hostile

_WALK = Path(__file__).parents[2] / "labextension" / "tests" / "fixtures" / "walk.json"


@lru_cache(maxsize=1)
def record() -> Compilation:
    """A transformer's record, with what it lacks from others."""
    broken, every = fixtures.with_break(), hostile(text="plain")
    walks = Compilation.from_json(_WALK.read_text(encoding="utf-8")).walks
    short = tuple(dataclasses.replace(walk, steps=walk.steps[:60]) for walk in walks[:1])
    peer = dataclasses.replace(fixtures.with_break(), id="peer", backend="inductor")
    lacking: dict[str, Any] = {
        field.name: getattr(every, field.name)
        for field in dataclasses.fields(Compilation)
        if not getattr(fixtures.transformer(), field.name)
    }
    lacking |= {"walks": short, "peers": (peer,), "from_cache": False, "options": {"no_fuse": "a:b"}}
    lacking["breaks"] = tuple(
        dataclasses.replace(each, spans=broken.breaks[0].spans) for each in every.breaks
    )
    return fixtures.transformer(**lacking)


@lru_cache(maxsize=1)
def _text() -> str:
    return json.dumps(dataclasses.asdict(record()))


def values() -> dict[str, Any]:
    """Its JSON values, written out in full: nothing is left out."""
    found: dict[str, Any] = json.loads(_text())
    return found


@lru_cache(maxsize=1)
def _scene_text() -> str:
    found = scene(record())
    return json.dumps(dataclasses.asdict(found))


def scene_values() -> dict[str, Any]:
    """What Python works out for it, in full: a record of a stranger's may hold what Python never would."""
    found: dict[str, Any] = json.loads(_scene_text())
    return found


def whole() -> dict[str, Any]:
    """The payload's values: the record, and what the explorer shows beside it."""
    return view.whole(record())


ROOTS: dict[str, type] = {"record": Compilation, "scene": Scene}
