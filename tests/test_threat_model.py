"""docs/threat-model.md names a test in every line, and each is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "threat-model.md"
_NAMED = re.compile(r"`((?:tests|labextension/tests)/[\w/.]+\.(?:py|tsx?))::([^`]+)`")


def rows(text: str) -> list[str]:
    """The lines of the table, without its head."""
    return [line for line in text.splitlines() if line.startswith("|")][2:]


def missing(text: str) -> list[str]:
    """What the page names that is not there."""
    return [f"{file}::{name}" for file, name in _NAMED.findall(text) if not _there(ROOT / file, name)]


def _there(file: Path, name: str) -> bool:
    if not file.is_file():
        return False
    source = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        tree = ast.walk(ast.parse(source))
        return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree)
    return re.search(rf"\b(?:it|test)\('{re.escape(name)}'", source) is not None


def test_every_line_has_a_test_and_every_test_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(rows(text)) >= 15
    assert [row for row in rows(text) if not _NAMED.search(row.rsplit("|", 2)[1])] == []
    assert missing(text) == []
    assert len(text.splitlines()) < 80, "one page"


@pytest.mark.parametrize(
    "named",
    [
        "`tests/test_threat_model.py::test_that_is_not_there`",
        "`tests/no_file.py::test_x`",
        "`labextension/tests/record.test.ts::no such words`",
    ],
)
def test_a_test_that_is_not_there_is_told(named: str) -> None:
    assert len(missing(f"| a | b | {named} |")) == 1
