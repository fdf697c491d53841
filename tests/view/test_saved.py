"""Records found again in the files that hold them, and printed in a terminal's colours."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nbcompile import view
from nbcompile.cli import main
from nbcompile.errors import RecordError
from nbcompile.record.compilation import Compilation
from nbcompile.view.coloured import coloured, has_colours
from nbcompile.view.saved import read_saved
from tests.view import fixtures

RECORDS = [fixtures.transformer(), fixtures.with_break()]


def notebook(records: list[Compilation]) -> str:
    cells = [
        {"cell_type": "markdown", "source": "# Title"},
        {"cell_type": "code", "outputs": [{"text": "1"}]},
    ]
    cells += [
        {"outputs": [{"data": {view.MIME: view.payload(record), "text/plain": ""}}]} for record in records
    ]
    return json.dumps({"cells": cells, "nbformat": 4})


@pytest.mark.parametrize("name", ["a.json", "b.json", "c.html", "d.ipynb"])
def test_each_kind_of_file_gives_its_records_back(name: str, tmp_path: Path) -> None:
    one = RECORDS[:1]
    texts = {
        "a.json": (one[0].to_json(), one),
        "b.json": (json.dumps(view.payload(one[0])), one),
        "c.html": (view.to_page(RECORDS, "</script> two"), RECORDS),
        "d.ipynb": (notebook(RECORDS), RECORDS),
    }
    text, records = texts[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_saved(tmp_path / name) == records


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file"),
        ("", "neither a record nor a notebook"),
        ("[" * 100_000, "neither a record nor a notebook"),
        ("{}", "no nbcompile schema line"),
        ("<p>nothing</p>", "holds no record"),
        ('{"cells": 3}', "holds no record"),
        ('{"cells": [3, {"outputs": null}, {"outputs": [4, {"data": 5}]}]}', "holds no record"),
        ('<script type="application/json" id="nbcompile-1">{</script>', "not JSON"),
    ],
)
def test_what_holds_none_is_told(text: str | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    if text is not None:
        file.write_text(text)
    with pytest.raises(RecordError, match=said):
        read_saved(file)


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match="it is not text"):
        read_saved(tmp_path / "x.json")


# -- colours ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [*RECORDS, fixtures.failed()], ids=["transformer", "break", "failed"])
def test_colours_add_nothing_but_colours(record: Compilation) -> None:
    text = view.to_text(record)
    made = coloured(text)
    assert re.sub(r"\x1b\[\d+m", "", made) == text
    assert made.startswith("\x1b[1m") and made.count("\x1b[0m") > 1


def test_marks_have_their_colours() -> None:
    made = coloured(view.to_text(fixtures.with_break()))
    assert "\x1b[31mx\x1b[0m" in made  # the break
    assert "\x1b[32m+\x1b[0m" in coloured(view.to_text(fixtures.transformer()))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "wanted"),
    [
        (_Terminal(), {}, True),
        (_Terminal(), {"NO_COLOR": "1"}, False),
        (_Terminal(), {"NO_COLOR": ""}, True),  # as no-color.org has it
        (_Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_when_there_are_colours(stream: io.StringIO, environment: dict[str, str], wanted: bool) -> None:
    assert has_colours(stream, environment) is wanted


# -- the command --------------------------------------------------------------------------------------


def test_show_prints_the_records_of_a_notebook(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "n.ipynb"
    file.write_text(notebook(RECORDS))
    assert main(["show", str(file)]) == 0
    texts = [view.to_text(record) for record in RECORDS]
    assert capsys.readouterr().out == f"[1]\n{texts[0]}\n[2]\n{texts[1]}"
    assert main(["show", str(file), "--number", "2", "--only", "kernels"]) == 0
    assert capsys.readouterr().out == view.to_text(RECORDS[1], ["kernels"])
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["show", str(file), "--number", "1"]) == 0
    assert capsys.readouterr().out == coloured(texts[0])


def test_show_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "n.ipynb").write_text(notebook(RECORDS))
    page = tmp_path / "page.html"
    assert main(["show", str(tmp_path / "n.ipynb"), "--html", str(page)]) == 0
    assert read_saved(page) == RECORDS and capsys.readouterr().out == ""
    assert main(["show", str(tmp_path / "n.ipynb"), "--html", str(tmp_path / "no" / "page.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_show_refuses_what_it_cannot_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "n.json").write_text(RECORDS[0].to_json())
    assert main(["show", str(tmp_path / "n.json"), "--number", "2"]) == 2
    assert "holds 1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["show", str(tmp_path / "n.json"), "--only", "nothing"])
    assert "none of cell, graph" in capsys.readouterr().err
    assert main(["show", str(tmp_path / "none.json")]) == 2


@pytest.mark.nightly
def test_it_needs_no_torch_and_ends_quietly_where_nobody_reads_on(tmp_path: Path) -> None:
    (tmp_path / "n.ipynb").write_text(notebook(RECORDS * 200))
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"from nbcompile.cli import main; sys.exit(main(['show', {str(tmp_path / 'n.ipynb')!r}]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"[1]\n"
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (141, b"")
