"""What a participant's file holds, when it is written, and that nothing about it stops an exercise."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nbcompile.errors import OptionError
from nbcompile.workshop import WrongAnswerError, check, exercise, keep_progress
from nbcompile.workshop.judging import returned
from nbcompile.workshop.progress import keeping
from nbcompile.workshop.progress.files import MOST_BYTES, SUFFIX, ProgressError, file_name, read
from nbcompile.workshop.progress.model import MOST_EXERCISES, SCHEMA, Progress
from tests.hostile.texts import TEXTS

ROOT = Path(__file__).resolve().parents[2]


@exercise("test.kept")
def kept(answer: object) -> str:
    if returned(answer() if callable(answer) else answer, "answer") != 42:
        raise WrongAnswerError("It is another number.")
    return "that is it."


@pytest.fixture(autouse=True)
def as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (keeping.FOLDER, keeping.NAME, "JUPYTERHUB_USER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(keeping, "_keeper", None)
    monkeypatch.setattr(keeping, "_stopped", False)
    yield


def only_file(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


# -- when -------------------------------------------------------------------------------------------------


def test_nothing_is_written_unless_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    said = check("test.kept", 42)
    assert said and said.note == "" and list(tmp_path.iterdir()) == []


def test_a_setting_of_the_environment_is_enough_and_can_be_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(keeping.FOLDER, str(tmp_path))
    monkeypatch.setenv(keeping.NAME, "Ada")
    first, second = check("test.kept", 1), check("test.kept", 42)
    assert read(only_file(tmp_path)).participant == "Ada"
    assert "for your instructor; your answers are not" in first.note and second.note == ""
    assert str(tmp_path) in repr(first) and "keep_progress(None)" in first._repr_html_()
    keep_progress(None)
    before = only_file(tmp_path).read_text()
    check("test.kept", 1)
    check("first.cannot", ...)
    assert only_file(tmp_path).read_text() == before


def test_a_name_in_the_environment_that_nobody_can_see_fails_no_exercise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(keeping.FOLDER, str(tmp_path))
    monkeypatch.setenv(keeping.NAME, "\u200b\n")
    assert check("test.kept", 42).passed
    assert read(only_file(tmp_path)).participant.isprintable()


def test_who_somebody_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTERHUB_USER", "grace")
    keep_progress(tmp_path)
    check("test.kept", 42)
    assert only_file(tmp_path).name == f"grace{SUFFIX}"
    keep_progress(tmp_path, "Grace Hopper")
    check("test.kept", 42)
    assert {read(file).participant for file in tmp_path.iterdir()} == {"grace", "Grace Hopper"}
    with pytest.raises(OptionError, match="something to read"):
        keep_progress(tmp_path, " \n ")


# -- what -------------------------------------------------------------------------------------------------


def test_verdicts_attempts_and_times_are_kept_and_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([100.0, 160.0, 220.0, 280.0])
    monkeypatch.setattr(keeping.time, "time", lambda: next(now))
    keep_progress(tmp_path, "ada")
    for answer in (987_654, "a secret", 42, 3):
        check("test.kept", answer)
    assert json.loads(only_file(tmp_path).read_text()) == {
        "schema": SCHEMA,
        "participant": "ada",
        "exercises": {"test.kept": {"attempts": 3, "first": 100.0, "solved": 220.0}},
    }


@pytest.mark.parametrize("answer", [..., {"a": ...}, [1, ...], {"a": {"b": ...}}, lambda: None, lambda: ...])
def test_a_cell_that_is_not_filled_in_is_no_attempt(answer: object, tmp_path: Path) -> None:
    keep_progress(tmp_path, "ada")
    assert not check("test.kept", answer)
    assert list(tmp_path.iterdir()) == []


def test_others_may_read_the_file_as_the_users_mask_says(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        keep_progress(tmp_path, "ada")
        check("test.kept", 42)
    finally:
        os.umask(mask)
    assert only_file(tmp_path).stat().st_mode & 0o777 == 0o644


# -- several kernels --------------------------------------------------------------------------------------

_KERNEL = """
import sys
from nbcompile.workshop.progress import keep_progress
from nbcompile.workshop.progress.keeping import noted
keep_progress(sys.argv[1], "ada")
for _ in range(10):
    assert "not in" not in noted("test.shared", False)
    assert "not in" not in noted("test." + sys.argv[2], True)
"""


def test_kernels_of_one_participant_lose_no_verdict_of_each_other(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _KERNEL, str(tmp_path)]
    running = [subprocess.Popen([*command, f"own{n}"], cwd=ROOT) for n in range(4)]
    assert [each.wait(60) for each in running] == [0] * 4
    found = read(only_file(tmp_path)).exercises
    assert found["test.shared"].attempts == 40
    assert {name for name, each in found.items() if each.solved} == {f"test.own{n}" for n in range(4)}


def test_a_disk_without_locks_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    assert keeping._fcntl is not None
    monkeypatch.setattr(keeping._fcntl, "flock", refuses)
    keep_progress(tmp_path, "ada")
    check("test.kept", 42)
    assert read(only_file(tmp_path)).exercises["test.kept"].solved
    monkeypatch.setattr(keeping, "_fcntl", None)
    check("test.kept", 42)


def test_a_lock_that_somebody_keeps_is_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_LOCK_SECONDS", 0.05)
    assert keeping._fcntl is not None
    held = os.open(tmp_path, os.O_RDONLY)
    try:
        keeping._fcntl.flock(held, keeping._fcntl.LOCK_EX)
        keep_progress(tmp_path, "ada")
        assert check("test.kept", 42)
    finally:
        os.close(held)
    assert read(only_file(tmp_path)).exercises["test.kept"].solved


# -- folders that fail ------------------------------------------------------------------------------------


def test_a_folder_that_is_gone_is_told_once_and_made_up_for(tmp_path: Path) -> None:
    folder = tmp_path / "share"
    keep_progress(folder, "ada")
    said = [check("test.kept", answer) for answer in (1, 2)]
    assert not any(said) and "No such file or directory. The exercises go on" in said[0].note
    assert said[1].note == ""
    folder.mkdir()
    assert check("test.kept", 42)
    assert read(only_file(folder)).exercises["test.kept"].attempts == 3


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_progress(tmp_path, "ada")
    check("test.kept", 1)
    before = only_file(tmp_path).read_text()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(keeping.os, "fsync", full)
        said = check("test.kept", 42)
    assert said and "No space left on device" in said.note
    assert only_file(tmp_path).read_text() == before, "and nothing half written beside it"


def test_a_folder_that_may_not_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(keeping.os, "replace", refused)  # root may write anywhere
    keep_progress(tmp_path, "ada")
    said = check("test.kept", 42)
    assert said and "Permission denied" in said.note and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["", "{}", '{"schema": "nbcompile.progress/2"}', "my thesis"])
def test_a_file_that_is_not_its_own_is_left_alone(there: str, tmp_path: Path) -> None:
    (tmp_path / file_name("ada")).write_text(there)
    keep_progress(tmp_path, "ada")
    said = check("test.kept", 42)
    assert said and "Your progress is not in" in said.note
    assert only_file(tmp_path).read_text() == there


def test_a_link_in_the_folder_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    (tmp_path / "private").write_text("my thesis")
    (tmp_path / "share" / file_name("ada")).symlink_to(tmp_path / "private")
    keep_progress(tmp_path / "share", "ada")
    assert "it is a link" in check("test.kept", 42).note
    assert (tmp_path / "private").read_text() == "my thesis"


def test_a_loop_that_asks_for_ever_fills_no_disk(tmp_path: Path) -> None:
    whole = Progress("ada")
    for n in range(MOST_EXERCISES):
        whole = whole.after(f"test.{n:0>60}", True, 1.79e9)
    file = tmp_path / file_name("ada")
    file.write_text(json.dumps(whole.to_dict(), indent=1))
    keep_progress(tmp_path, "ada")
    assert "not in" not in check("test.kept", 42).note
    assert len(read(file).exercises) == MOST_EXERCISES and file.stat().st_size < MOST_BYTES


# -- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [*TEXTS.values(), "..", ".", "/etc/passwd", "con", "a" * 500, "☃", "Ada/../Bob"]
)
def test_no_name_leaves_the_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "share"
    folder.mkdir()
    assert re.fullmatch(r"[a-z0-9-]{1,60}\.progress\.json", file_name(name))
    keep_progress(folder, name)
    check("test.kept", 42)
    assert only_file(tmp_path) == folder and only_file(folder).name.endswith(SUFFIX)
    assert read(only_file(folder)).participant.isprintable()


def test_two_names_are_two_files() -> None:
    names = ["ada", "Ada", "ada ", "a d a", "ada/", "adä", "☃", "☂", ""]
    assert len({file_name(name) for name in names}) == len(names)


# -- files of strangers -----------------------------------------------------------------------------------


def good() -> dict[str, object]:
    return Progress("ada").after("fusion.pairs", True, 1.79e9).to_dict()


def entry(**changed: object) -> dict[str, object]:
    return {**good(), "exercises": {"fusion.pairs": {"attempts": 1, "first": 1.0, "solved": None, **changed}}}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (3, "it has no schema line"),
        ([], "it has no schema line"),
        ({**good(), "schema": "nbcompile.progress/9"}, "it says nbcompile.progress/9"),
        ({**good(), "participant": ""}, "field participant"),
        ({**good(), "participant": "a" * 81}, "field participant"),
        ({**good(), "participant": None}, "field participant"),
        ({**good(), "exercises": [1]}, "field exercises"),
        ({**good(), "exercises": {f"{n}": {} for n in range(501)}}, "field exercises"),
        ({**good(), "exercises": {"a" * 81: entry()["exercises"]}}, "field exercises"),
        (entry(attempts=0), "attempts"),
        (entry(attempts=1e6), "attempts"),
        (entry(attempts="many"), "attempts"),
        (entry(first=-1), "first"),
        (entry(solved=1e12), "solved"),
        ({"schema": SCHEMA}, "field participant"),
    ],
)
def test_a_value_that_is_not_what_it_should_be_is_named(data: object, says: str, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text(json.dumps(data))
    with pytest.raises(ProgressError, match=re.escape(says)):
        read(file)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda file: file.write_bytes(b"\x00\xff"), "not JSON"),
        (lambda file: file.write_text("[" * 100_000), "not JSON"),
        (lambda file: file.write_text('{"a": NaN}'), "not JSON"),
        (lambda file: file.write_text(" " * (MOST_BYTES + 1)), "more than"),
        (lambda file: file.mkdir(), "cannot be read|no plain file"),
        (lambda file: os.mkfifo(file), "no plain file"),
        (lambda file: file.symlink_to("/dev/zero"), "a link"),
        (lambda file: None, "cannot be read"),
    ],
)
def test_what_is_no_file_of_this_kind_is_refused_at_once(
    made: Callable[[Path], object], says: str, tmp_path: Path
) -> None:
    made(tmp_path / "x")
    with pytest.raises(ProgressError, match=says):
        read(tmp_path / "x")
