"""`make release` and `make clean-install`: what they refuse, and (by night) all of both."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.from_scripts import SCRIPTS, load

ROOT = SCRIPTS.parent
release, clean_install = load("release"), load("clean_install")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository that is ready to be released."""
    (tmp_path / "labextension").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    for name in ("package.json", "package-lock.json"):
        (tmp_path / "labextension" / name).write_text('{"version": "1.2.3"}')
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3, 2026-11-26\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")


def test_a_checkout_that_is_ready(checkout: Path) -> None:
    assert list(release.still_to_do(checkout)) == []


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("labextension/package.json", '{"version": "1.2.2"}', "package.json says version 1.2.2"),
        ("labextension/package-lock.json", '{"version": "1.2.2"}', "package-lock.json says version 1.2.2"),
        ("CITATION.cff", "version: 1.2.4\n", "CITATION.cff says version 1.2.4"),
        ("CHANGELOG.md", "## 1.2.2, 2026-01-01\n", "no section of 1.2.3"),
        ("CHANGELOG.md", "## 1.2.3, not released yet\n", "is to say the day"),
    ],
)
def test_what_is_still_to_be_done(checkout: Path, file: str, text: str, said: str) -> None:
    (checkout / file).write_text(text)
    commit(checkout)
    (line,) = release.still_to_do(checkout)
    assert said in line


def test_neither_changes_nor_an_older_tag_are_passed_over(checkout: Path) -> None:
    (checkout / "new.txt").touch()
    assert list(release.still_to_do(checkout)) == ["there are changes that are not committed"]
    commit(checkout)
    git(checkout, "tag", "v1.2.3")
    assert list(release.still_to_do(checkout)) == ["the tag v1.2.3 is there already"]


def test_nothing_is_tagged_that_is_not_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(release, "still_to_do", lambda: iter(["a thing"]))
    monkeypatch.setattr(release, "build", lambda out: pytest.fail("built all the same"))
    with pytest.raises(release.ReleaseError, match="a thing"):
        release.release(tmp_path, installed=False, tag=True)


def test_the_script_pushes_nothing() -> None:
    source = (SCRIPTS / "release.py").read_text(encoding="utf-8")
    told = [line for line in source.splitlines() if "push" in line or "upload" in line]
    assert told and all("run(" not in line and (line[0] != " " or "print(" in line) for line in told), told


def _wheel(folder: Path, **extra: str) -> Path:
    path = folder / "nbcompile-1.2.3-py3-none-any.whl"
    own = {"name": "@a/b", "versionInfo": "1.0.0", "licenseId": "MIT", "extractedText": "MIT"}
    folder_of_it = {**own, "name": "jsx-runtime", "extractedText": ""}
    lab = {"packages": [own, folder_of_it]}
    files = {
        release.NOTICES: f"{'-' * 9}\nc 2.0.0 (ISC)\n\nterms\n",
        f"data/{release.OF_LAB}": json.dumps(lab),
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, **extra}.items():
            archive.writestr(name, text)
    return path


def test_the_bundled_packages_are_components(tmp_path: Path) -> None:
    one, other = release.bundled(_wheel(tmp_path))
    assert (one["purl"], other["purl"]) == ("pkg:npm/%40a/b@1.0.0", "pkg:npm/c@2.0.0")
    assert other["licenses"] == [{"license": {"id": "ISC"}}]


def test_a_wheel_without_notices_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "run", lambda *command: "")
    with pytest.raises(release.ReleaseError, match=r"has no nbcompile/py\.typed"):
        release.check(tmp_path, _wheel(tmp_path))
    monkeypatch.setattr(release, "LARGEST", 10)
    with pytest.raises(release.ReleaseError, match="at most 10"):
        release.check(tmp_path, _wheel(tmp_path))


# -- the clean environment ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "bare", "missing"),
    [
        ("kernels: 1 numbers right: True", False, ""),
        ("kernels: 0 numbers right: True", False, "kernels: 1"),
        ("kernels: 1 numbers right: False", False, "numbers right: True"),
        ("no C compiler was found. kernels: 0 numbers right: True", True, ""),
        ("kernels: 0 numbers right: True", True, "no C compiler was found"),
        ("no C compiler was found. kernels: 1 numbers right: True", True, "kernels: 0"),
    ],
)
def test_what_a_user_should_see(said: str, bare: bool, missing: str) -> None:
    if not missing:
        clean_install.judge(said, bare)
        return
    with pytest.raises(clean_install.CleanInstallError, match=f"'{missing}' is not on the screen"):
        clean_install.judge(said, bare)


def test_the_bare_machine_has_no_compiler_and_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("NBCOMPILE_CC", "gcc")
    made = clean_install.environment(tmp_path, tmp_path / "bin" / "python", bare=True)
    assert made["PATH"] == str(tmp_path / "bin") and made["CUDA_VISIBLE_DEVICES"] == ""
    assert not {"PYTHONPATH", "NBCOMPILE_CC"} & set(made)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_release_is_made_and_checked(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "release.py"), "--out", str(tmp_path / "dist")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"SBOM of \d+ components", done.stdout) and "would be tagged" in done.stdout
    (bill,) = (tmp_path / "dist").glob("*.cdx.json")
    document = json.loads(bill.read_text())
    assert {"torch", "numpy", "pydantic"} <= {each["name"] for each in document["components"]}
    assert {"preact", "@codemirror/view"} <= {
        each["name"] for each in document["metadata"]["component"]["components"]
    }


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_clean_install_shows_the_explorer(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "clean_install.py"), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the explorer") == 2
