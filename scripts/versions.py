"""Which torch, Triton and Python nbcompile works with: the table of support in README.md.

    python scripts/versions.py [--only TEXT] [--wheel FILE] [--out FILE] [--tests] [--keep FOLDER]
    python scripts/versions.py --table            # from what is there, without running anything

For each row: a new virtual environment, the wheel of this checkout in it as a user installs it
(``pip install nbcompile[jupyter]``, and nothing that only tests need), and the checks of
``versions_checks.py``. ``--tests`` installs pytest afterwards and runs the key test folders too. Each result
is appended to ``out/versions.jsonl``; the newest of a row counts. An interpreter that is not on this machine
leaves its row out, and the table says so.

Needs ``uv`` (``pip install uv``), which links packages from its cache; its own variables (UV_FIND_LINKS,
UV_INDEX ...) say where they come from. An environment takes 2 to 5 GB until it is removed after its row.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

import private_names
from readme_table import insert_between

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BEGIN, END = "<!-- versions: begin -->", "<!-- versions: end -->"
TESTS = (
    "tests/compiler/capture",
    "tests/compiler/runtime/interpreter",
    "tests/compiler/lower/test_refused.py",
)
TEST_PACKAGES = ("pytest", "pytest-timeout", "pytest-xdist", "expecttest", "cloudpickle")
MOST_SECONDS = 1500


@dataclass(frozen=True)
class Row:
    """One environment. ``triton`` empty: whichever pip picks. ``compiler``: whether the PATH has one."""

    python: str
    torch: str
    triton: str = ""
    compiler: bool = True

    @property
    def name(self) -> str:
        parts = [f"torch {self.torch}", f"Triton {self.triton or 'as pip picks it'}", f"Python {self.python}"]
        return ", ".join([*parts, *(() if self.compiler else ("no C compiler",))])


ROWS = (
    Row("3.11", "2.11", "3.6"),
    Row("3.11", "2.12"),
    Row("3.11", "2.13", "3.6"),
    Row("3.11", "2.13"),
    Row("3.11", "2.14"),
    Row("3.13", "2.14"),
    Row("3.11", "2.15", "3.6"),
    Row("3.11", "2.15"),
    Row("3.12", "2.15"),
    Row("3.13", "2.15"),
    Row("3.14", "2.15"),
    Row("3.11", "2.13", compiler=False),
)


class NotHereError(Exception):
    """What a row needs cannot be had on this machine."""


# -- one row --------------------------------------------------------------------------------------


def uv(*arguments: str | Path, **environment: str) -> str:
    """What ``uv`` prints. NotHereError with what it said if it fails."""
    command = [shutil.which("uv") or shutil.which("uv", path=Path(sys.executable).parent) or "uv"]
    done = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **environment}
    )
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if not line.startswith("warning")]
        raise NotHereError((lines or ["uv failed"])[-1].strip(" ╰─▶│×"))
    return done.stdout.strip()


def interpreter(version: str) -> Path:
    """A Python of this minor version on this machine, be it one of pyenv's. NotHereError if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for folder in sorted(pyenv.glob(f"{version}.*")):
        if (python := folder / "bin" / "python").exists():
            return python
    try:
        return Path(uv("python", "find", "--no-python-downloads", "--system", version))
    except NotHereError as error:
        raise NotHereError(f"Python {version} is not on this machine") from error


def installed(row: Row, wheel: Path, folder: Path) -> Path:
    """The interpreter of a new environment for this row, in ``folder``."""
    uv("venv", "--quiet", "--python", interpreter(row.python), folder)
    python = folder / "bin" / "python"
    install = ("pip", "install", "--quiet", "--python", python)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as overrides:
        # a CUDA build of torch requires its own Triton
        chosen = [*([f"triton=={row.triton}.*"] if row.triton else [])]
        overrides.write("\n".join(chosen))
        overrides.flush()
        more = ("--override", overrides.name) if chosen else ()
        uv(*install, *more, f"torch=={row.torch}.*", f"{wheel}[jupyter]", *chosen)
    return python


def run(row: Row, wheel: Path, keep: Path | None, tests: bool) -> dict[str, Any]:
    """The row's result: what was installed, and of each check whether it passed and what it said."""
    found: dict[str, Any] = {
        "row": row.name,
        "machine": f"{platform.system()} {platform.machine()}",
        "date": datetime.date.today().isoformat(),
        "versions": {},
        "checks": [],
    }
    folder = Path(tempfile.mkdtemp(prefix="versions-", dir=keep))
    try:
        python = installed(row, wheel, folder / "environment")
        for line in _checks(row, python, folder):
            found["versions"].update(line.pop("versions", {}))
            if line:
                found["checks"].append(line)
        if tests and row.compiler:
            found["checks"] += _tests(python, folder)
    except NotHereError as error:
        found["left_out"] = str(error)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _environment(folder: Path) -> dict[str, str]:
    """Nothing of this checkout, and caches of the row's own."""
    own = {
        name: str(folder / name.lower()) for name in ("NBCOMPILE_CACHE_DIR", "IPYTHONDIR", "TRITON_CACHE_DIR")
    }
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "NBCOMPILE_CC")}
    return {**kept, **own, "OMP_NUM_THREADS": "1"}


def _checks(row: Row, python: Path, folder: Path) -> Iterator[dict[str, Any]]:
    work = folder / "work"
    work.mkdir()
    for file in ("versions_checks.py", "programs.py", "private_names.py"):
        shutil.copy(HERE / file, work)
    (work / "private_names.json").write_text(json.dumps(list(private_names.used())), encoding="utf-8")
    environment = _environment(folder)
    command: list[Any] = [python, "versions_checks.py"]
    if row.compiler:
        command += ["--notebooks", ROOT / "notebooks"]
    else:
        environment["PATH"] = str(python.parent)
        command += ["--no-compiler"]
    done = subprocess.run(
        command, cwd=work, env=environment, capture_output=True, text=True, timeout=MOST_SECONDS
    )
    yield from (json.loads(line) for line in done.stdout.splitlines())
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        yield {"check": "all", "passed": False, "said": f"the process ended with {done.returncode}: {last}"}


def _tests(python: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """The key tests of this checkout, against the package that is installed there."""
    uv("pip", "install", "--quiet", "--python", python, *TEST_PACKAGES)
    copied = folder / "checkout"
    copied.mkdir()
    for name in ("tests", "scripts", "corpus", "notebooks", "docs"):
        (copied / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "pyproject.toml", copied)
    for each in TESTS:
        done = subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", each],
            cwd=copied, env=_environment(folder), capture_output=True, text=True, timeout=MOST_SECONDS,
        )  # fmt: skip
        last = [
            line
            for line in done.stdout.splitlines()
            if " in " in line and (" passed" in line or " failed" in line)
        ]
        yield {
            "check": each,
            "passed": not done.returncode,
            "said": (last or ["pytest did not run"])[-1].strip("= "),
        }


# -- the table ------------------------------------------------------------------------------------


def table(results: Sequence[dict[str, Any]], bounds: str) -> str:
    """Markdown: a row an environment, a column a check. What failed is spelled out below."""
    newest = {each["row"]: each for each in results}
    rows = [(row, newest[row.name]) for row in ROWS if row.name in newest]
    names = list(dict.fromkeys(c["check"] for _, found in rows for c in found["checks"]))
    lines = [
        f"| torch | Triton | Python | {' | '.join(f'`{n}`' if n[0] in '%-' else n for n in names)} |",
        "|---|---|---|" + "---|" * len(names),
    ]
    failures, missing = [], []
    for row, found in rows:
        if reason := found.get("left_out"):
            missing.append(f"- {row.name}: not tried, {reason}.")
            continue
        by_name = {each["check"]: each for each in found["checks"]}
        cells = [_mark(by_name.get(name)) for name in names]
        has = found["versions"]
        python = has.get("python", row.python) + ("" if row.compiler else ", no C compiler")
        lines.append(
            f"| {has.get('torch', row.torch)} | {has.get('triton', '-')} | {python} | {' | '.join(cells)} |"
        )
        failures += [f"- {row.name}, {c['check']}: {c['said']}" for c in found["checks"] if not c["passed"]]
    machine = " and ".join(sorted({found["machine"] for _, found in rows}))
    date = max((found["date"] for _, found in rows), default="")
    intro = (
        f"By `scripts/versions.py`, {date}, on {machine}: the wheel with `[jupyter]` alone, in its own "
        f"environment for each row; the bounds are {bounds}. ✓ passed, ✗ failed, · not asked there."
    )
    notes = [
        "- Torch 2.11 tells the line of a graph break, not its columns; the record says no more than that.",
        "- macOS with gcc or clang should work; it is not tested by us. Windows is not supported.",
        "- JupyterLite is not: there is no torch in a browser.",
    ]
    return "\n".join([intro, "", *lines, "", *failures, *missing, *notes])


def _mark(check: dict[str, Any] | None) -> str:
    return "·" if check is None else "✓" if check["passed"] else "✗"


def bounds() -> str:
    """The versions that pyproject.toml allows, in words."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]["triton"]
    wanted = [Requirement(text) for text in (*project["dependencies"], *extras)]
    said = [f"`{each.name}{each.specifier}`" for each in wanted if each.name in ("torch", "triton")]
    return ", ".join([*said, f"Python `{project['requires-python']}`"])


def check_bounds() -> None:
    """ValueError for a row that pyproject.toml does not allow, or a bound that no row tries."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    torch = next(r for r in map(Requirement, project["dependencies"]) if r.name == "torch").specifier
    tried = sorted({Version(row.torch) for row in ROWS})
    outside = [str(each) for each in tried if each not in torch]
    lowest = [Version(each.version) for each in torch if each.operator == ">="]
    if outside or lowest != tried[:1]:
        raise ValueError(f"rows {[str(each) for each in tried]} and torch{torch} do not go together")


def built(folder: Path) -> Path:
    """The wheel of this checkout."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", folder, ROOT]
    subprocess.run(list(map(str, command)), check=True)
    (wheel,) = folder.glob("nbcompile-*.whl")
    return wheel


def _results(file: Path) -> list[dict[str, Any]]:
    return (
        [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name has this text")
    parser.add_argument("--wheel", type=Path, help="instead of this checkout's, built anew")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "versions.jsonl")
    parser.add_argument("--tests", action="store_true", help="the key test folders too (3 minutes a row)")
    parser.add_argument("--keep", type=Path, help="make the environments here, and leave them")
    parser.add_argument("--table", action="store_true", help="run nothing; write README.md's table")
    asked = parser.parse_args()
    check_bounds()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    failed = False
    if not asked.table:
        with tempfile.TemporaryDirectory() as temporary:
            wheel = (asked.wheel or built(Path(temporary))).resolve()
            for row in (row for row in ROWS if asked.only in row.name):
                print(row.name, flush=True)
                found = run(row, wheel, asked.keep, asked.tests)
                with asked.out.open("a", encoding="utf-8") as out:
                    print(json.dumps(found), file=out)
                for each in found["checks"]:
                    print(
                        f"  {'ok    ' if each['passed'] else 'FAILED'} {each['check']}: {each['said']}",
                        flush=True,
                    )
                    failed = failed or not each["passed"]
                if reason := found.get("left_out"):
                    print(f"  left out: {reason}", flush=True)
    readme = ROOT / "README.md"
    text = insert_between(
        readme.read_text(encoding="utf-8"), table(_results(asked.out), bounds()), BEGIN, END
    )
    readme.write_text(text, encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
