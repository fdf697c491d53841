"""What the explorer's unit tests take for Python's reading of a payload is Python's reading of it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from nbcompile import view
from nbcompile.record.compilation import Compilation
from nbcompile.record.packed import unpack

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "labextension" / "tests" / "fixtures"
PAYLOADS = sorted(path for path in FOLDER.glob("*.json") if not path.name.endswith(".python.json"))


def _script() -> Any:
    path = ROOT / "scripts" / "explorer_fixtures.py"
    spec = importlib.util.spec_from_file_location("explorer_fixtures", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_and_unpacking_are_as_python_has_them() -> None:
    read = _script().read_by_python(json.loads((FOLDER / "small.json").read_text(encoding="utf-8")))
    kept = json.loads((FOLDER / "small.python.json").read_text(encoding="utf-8"))
    assert read == kept, "run scripts/explorer_fixtures.py"


@pytest.mark.parametrize("path", PAYLOADS, ids=lambda path: path.stem)
def test_payloads_have_the_view_of_today(path: Path) -> None:
    kept = json.loads(path.read_text(encoding="utf-8"))
    made = view.whole(Compilation.from_dict(kept))
    assert json.loads(unpack(kept))["view"].keys() == made["view"].keys(), "run scripts/explorer_fixtures.py"
