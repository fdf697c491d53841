"""The instructor's sheet: what it adds up, how it shows itself, and what it makes of strangers' files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nbcompile.cli import main
from nbcompile.errors import OptionError
from nbcompile.workshop import class_sheet
from nbcompile.workshop.progress import sheet as sheets
from nbcompile.workshop.progress.curriculum import NOTEBOOKS
from nbcompile.workshop.progress.files import ProgressError, file_name
from nbcompile.workshop.progress.model import Progress
from nbcompile.workshop.progress.page import MOST_COLUMNS
from tests.hostile.texts import MARK, TEXTS
from tests.workshop.contexts import NOTEBOOKS as FOLDER
from tests.workshop.contexts import exercises_of

ROOT = Path(__file__).resolve().parents[2]
START = datetime(2026, 9, 1, 9, tzinfo=UTC).timestamp()


def write(folder: Path, name: str, **verdicts: str) -> Progress:
    """A participant's file: of each exercise its verdicts, ``x`` for wrong and ``v`` for right. In
    its name ``__`` stands for the dot."""
    made = Progress(name)
    for exercise, said in verdicts.items():
        for n, each in enumerate(said):
            made = made.after(exercise.replace("__", "."), each == "v", START + 60 * n)
    (folder / file_name(name)).write_text(json.dumps(made.to_dict()))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three participants of two notebooks."""
    write(tmp_path, "Ada", tour__counts="v", tour__bytes="xv", tour__write="v", fusion__pairs="xxx")
    write(tmp_path, "bob", tour__counts="x", fusion__pairs="x", fusion__speedup="v")
    write(tmp_path, "Cy", fusion__pairs="xxv")
    return tmp_path


def test_the_notebooks_are_those_that_there_are() -> None:
    guide = (ROOT / "docs" / "instructor-guide.md").read_text(encoding="utf-8")
    sources = sorted(FOLDER.glob("*.py"))
    assert [each.exercises for each in NOTEBOOKS] == [tuple(exercises_of(source)) for source in sources]
    for notebook, source in zip(NOTEBOOKS, sources, strict=True):
        assert source.name.startswith(notebook.number)
        assert f"| {notebook.number} {notebook.title}" in guide
        assert len(notebook.exercises) <= MOST_COLUMNS


def test_what_it_adds_up(folder: Path) -> None:
    sheet = class_sheet(folder, title="Tuesday")
    assert [each.name for each in sheet.participants] == ["Ada", "bob", "Cy"]
    assert [each.number for each in sheet.begun] == ["00", "06"]
    pairs = sheet.tally("fusion.pairs")
    assert (pairs.tried, pairs.solved, pairs.open, pairs.attempts) == (3, 1, 2, 7)
    assert [each.exercise for each in sheet.stuck()] == ["fusion.pairs", "tour.counts"]
    assert [sheet.solved_in(each) for each in sheet.begun] == [3, 2]
    assert sheet.summary() == "3 participants, 2 notebooks begun, 5 of 24 exercises solved"


def test_a_table_of_ones_own(folder: Path) -> None:
    rows = class_sheet(folder).rows()
    assert len(rows) == 3 * 8
    assert rows[1] == {
        "participant": "Ada", "notebook": "00", "exercise": "tour.bytes", "state": "solved", "attempts": 2,
        "first": datetime(2026, 9, 1, 9, tzinfo=UTC), "solved": datetime(2026, 9, 1, 9, 1, tzinfo=UTC),
    }  # fmt: skip
    assert {row["state"] for row in rows} == {"solved", "tried", "not yet"}


def test_of_two_exercises_that_as_many_are_stuck_in_the_one_with_more_attempts_is_first(
    tmp_path: Path,
) -> None:
    write(tmp_path, "a", tour__counts="x", tour__bytes="xx", fusion__pairs="v")
    assert [each.exercise for each in class_sheet(tmp_path).stuck()] == ["tour.bytes", "tour.counts"]
    assert class_sheet(tmp_path).stuck(1)[0].attempts == 2


def test_in_a_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["class", str(folder), "--title", "Tuesday"]) == 0
    said = capsys.readouterr().out
    assert said == str(class_sheet(folder, title="Tuesday"))
    lines = [line.rstrip() for line in said.splitlines()]
    assert lines[0] == "Tuesday: 3 participants, 2 notebooks begun, 5 of 24 exercises solved"
    assert "  fusion.pairs  2 of the 3 who tried are not done, 2.3 attempts each  06 Fusion" in lines
    assert re.search(r"\n  Ada +3/3 +0/5\n", said) and re.search(r"\n  all of it solved +1/3 +0/3\n", said)
    assert re.search(r"\n  Ada +✓ +✓2 +✓\n", said) and re.search(r"\n  Ada +· +3× +· +· +·\n", said)
    assert "06 Fusion: 2 of 15 solved" in lines and max(map(len, lines)) <= 120


def test_of_some_notebooks_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["class", str(folder), "--only", "00"]) == 0
    said = capsys.readouterr().out
    assert "fusion" not in said and "5 of 9" not in said and "3 of 9 exercises solved" in said
    assert class_sheet(folder, only=("11",)).summary().endswith("nobody has tried an exercise yet")
    assert main(["class", str(folder), "--only", "00,x"]) == 2
    assert "There is no notebook x. There are 00, 01" in capsys.readouterr().err
    with pytest.raises(OptionError):
        class_sheet(folder, only=("18",))


def test_a_page_of_its_own(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "out.html"
    assert main(["class", str(folder), "--html", str(page)]) == 0
    assert capsys.readouterr().out == ""
    text = page.read_text(encoding="utf-8")
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    assert not re.search(r"<script|src=|href=|url\(|@import", text), "nothing is loaded"
    assert 'title="Ada, tour.bytes: solved after 2 attempts, 1 minute">✓2<' in text
    assert 'title="bob, tour.counts: 1 attempt, not solved yet">1×<' in text
    assert main(["class", str(folder), "--html", str(tmp_path / "no" / "x.html")]) == 2


def test_wide_tables_are_several(tmp_path: Path) -> None:
    write(tmp_path, "a", **{each.exercises[0].replace(".", "__"): "v" for each in NOTEBOOKS})
    page = class_sheet(tmp_path).to_page()
    assert page.count("<table>") == 4 and page.count('class="exercise') == 83


def test_in_a_notebook(folder: Path) -> None:
    shown = class_sheet(folder)._repr_mimebundle_()
    assert shown["text/plain"] == str(class_sheet(folder))
    assert "<details" in shown["text/html"] and "<style" not in shown["text/html"]
    assert "fusion.pairs" in shown["text/html"]


def test_it_is_read_without_torch(folder: Path) -> None:
    code = "import sys; from nbcompile.cli import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    command = [sys.executable, "-c", code, "class", str(folder)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and run.stdout == str(class_sheet(folder)), run.stderr


# -- strangers --------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_read_is_left_out_and_named(folder: Path) -> None:
    (folder / "cut.progress.json").write_text('{"schema": ')
    (folder / "huge.progress.json").write_text(" " * 1_000_000)
    (folder / "link.progress.json").symlink_to("/etc/passwd")
    (folder / f"{MARK}\x1b[2J.progress.json").write_text("{}")
    (folder / "notes.txt").write_text("not asked about")
    (folder / ".hidden.progress.json").write_text("half written")
    sheet = class_sheet(folder)
    assert len(sheet.participants) == 3
    reasons = {each.name: each.reason for each in sheet.skipped}
    assert "not JSON" in reasons["cut.progress.json"] and "more than" in reasons["huge.progress.json"]
    assert "a link" in reasons["link.progress.json"] and len(reasons) == 4
    for text in (str(sheet), sheet.to_page(), sheet._repr_mimebundle_()["text/html"]):
        assert "huge.progress.json is left out: it has more than 200,000 bytes" in text
        assert "\x1b" not in text and "root:" not in text


def test_what_participants_call_themselves_is_text(tmp_path: Path) -> None:
    hostile = [name for name in TEXTS.values() if "\ud800" not in name]
    for number, name in enumerate(hostile):
        data = Progress(name[:80]).after("fusion.pairs", False, START).after(name[:80], True, START)
        (tmp_path / f"{number}.progress.json").write_text(json.dumps(data.to_dict()))
    sheet = class_sheet(tmp_path, title=TEXTS["an end of everything"])
    assert len(sheet.participants) == len(hostile) and not sheet.skipped
    for markup in (sheet.to_page(), sheet._repr_mimebundle_()["text/html"]):
        assert not re.search(rf"<[^>]*{MARK}[^>\"']*>|<(script|img|svg|iframe)", markup)
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", markup)
    assert all(line.isprintable() for line in str(sheet).split("\n"))


def test_a_lone_surrogate_is_refused_or_shown(tmp_path: Path) -> None:
    text = json.dumps(Progress("x").to_dict()).replace('"x"', '"\\ud800"')
    (tmp_path / "x.progress.json").write_text(text)
    class_sheet(tmp_path).to_page().encode("utf-8")


def test_who_writes_anothers_name_into_a_file_is_told_apart(folder: Path) -> None:
    (folder / "eve.progress.json").write_text((folder / file_name("Ada")).read_text())
    names = [each.name for each in class_sheet(folder).participants]
    assert names == ["Ada", "Ada (eve.progress.json)", "bob", "Cy"]


def test_exercises_of_no_notebook_are_in_no_table(folder: Path) -> None:
    write(folder, "dan", **{f"mine__{n}": "v" for n in range(200)})
    sheet = class_sheet(folder)
    assert [each.number for each in sheet.begun] == ["00", "06"] and len(sheet.unknown) == 200
    assert "200 exercises of no notebook of the workshop: mine.0, mine.1" in str(sheet)
    assert len(sheet.to_page()) < 40_000


def test_of_very_many_files_some_are_not_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheets, "MOST_FILES", 2)
    sheet = class_sheet(folder)
    assert len(sheet.participants) == 2 and "1 further file were not looked at" in str(sheet)


def test_a_folder_without_files_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["class", str(tmp_path)]) == 2
    assert "NBCOMPILE_CLASS_FOLDER" in capsys.readouterr().err
    with pytest.raises(ProgressError, match="No such file"):
        class_sheet(tmp_path / "none")
