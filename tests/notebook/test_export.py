"""``%compile --export FILE.pt2 f(x)``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.nightly import few
from tests.notebook.conftest import Notebook

SETUP = """
def scaled(a, k=2):
    y = a.exp()
    return y * k

def decides(a):
    return a if a.sum() > 0 else -a

x = torch.ones(4, 4)
"""


def test_a_call_is_exported_with_the_names_of_its_inputs(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The file is run in tests/bench/export; here it is about what is asked for.
    asked: dict[str, Any] = {}

    def exported(fn: Any, inputs: Any, path: str, **settings: Any) -> str:
        asked.update(settings, fn=fn, inputs=inputs, path=path)
        return "the report"

    monkeypatch.setattr("nbcompile.notebook.exports.export", exported)
    notebook.fresh(SETUP)
    path = tmp_path / "m.pt2"
    line = f"--no-bench --export {path} --dynamic-dim x[0]=batch:2:64 --dynamic-dim a[1]=n scaled(x, k=3)"
    outcome = notebook.run(f"report = %compile {line}")
    assert (outcome.error, outcome.namespace["report"]) == ("", "the report")
    assert asked["fn"] is outcome.namespace["scaled"] and asked["inputs"][0] is outcome.namespace["x"]
    assert (asked["kwargs"], asked["path"], asked["compilers"]) == ({"k": 3}, str(path), ())
    assert asked["dynamic"] == {"a": {0: ("batch", 2, 64), 1: "n"}}


@few(3)
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%compile --export {0}/m.pt2 scaled", "--export wants a call, for its inputs"),
        ("%compile --export {0}/m.txt scaled(x)", "the name must end in .pt2"),
        (
            "%compile --export {0}/m.pt2 --dynamic-dim x scaled(x)",
            "--dynamic-dim 'x' is no dynamic dimension",
        ),
        (
            "%compile --export {0}/m.pt2 --dynamic-dim z[0]=n scaled(x)",
            "there is no tensor 'z' among the inputs",
        ),
        (
            "%compile --export {0}/m.pt2 decides(x)",
            "`return a if a.sum() > 0 else -a`: Python decides by a value",
        ),
        ("%compile --package aoti scaled(x)", "--dynamic-dim and --package go with --export"),
        ("%compile --export {0}/m.pt2 --into r scaled(x)", "--export has a report for its result"),
        ("%%compile --export {0}/m.pt2\ny = scaled(x)", "--export is for a call"),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    notebook: Notebook, tmp_path: Path, line: str, says: str
) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run(line.format(tmp_path))
    assert outcome.error.startswith("UsageError: ") and says in outcome.error
    assert list(tmp_path.iterdir()) == []
