"""What Binder builds: the files agree with the project, and what they install runs the notebooks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BINDER = ROOT / "binder"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(*command: str, cwd: Path, path: str = "") -> str:
    environment = {**os.environ, "PATH": os.pathsep.join(filter(None, [path, os.environ["PATH"]]))}
    environment |= {"PIP_RETRIES": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_the_versions_are_those_of_the_constraints() -> None:
    pinned = dict(re.findall(r"^(\w+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    wanted = dict(re.findall(r"^(\w+)==(\S+)$", (BINDER / "requirements.txt").read_text(), re.M))
    assert wanted == {"torch": f"{pinned['torch']}+cpu", "triton": pinned["triton"]}
    (low,) = re.findall(r"[\d.]+", PROJECT["requires-python"])[:1]
    (runtime,) = re.findall(r"^python-([\d.]+)$", (BINDER / "runtime.txt").read_text(), re.M)
    assert [int(part) for part in runtime.split(".")] >= [int(part) for part in low.split(".")]
    assert "'.[jupyter]'" in (BINDER / "postBuild").read_text()
    assert os.access(BINDER / "postBuild", os.X_OK)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository's files as Binder has them: those that git has or would take."""
    folder = tmp_path_factory.mktemp("binder") / "nbcompile"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def venv(folder: Path) -> Path:
    run(sys.executable, "-m", "venv", str(folder), cwd=folder.parent)
    return folder / "bin"


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_repo2docker_understands_the_folder(checkout: Path, tmp_path: Path) -> None:
    """As far as it goes without Docker: it chooses how to build, and writes down each step."""
    tools = venv(tmp_path / "tools")
    run(str(tools / "pip"), "install", "-qq", "jupyter-repo2docker", cwd=tmp_path)
    command = [str(tools / "jupyter-repo2docker"), "--no-build", "--debug", str(checkout)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-3000:]
    assert "gcc" in said and "binder/requirements.txt" in said and "./binder/postBuild" in said


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_what_it_installs_runs_the_notebooks(checkout: Path, tmp_path: Path) -> None:
    """Its steps in a new environment, then a notebook there; the folder's own tests are not needed for it."""
    tools = venv(tmp_path / "image")
    run(str(tools / "pip"), "install", "-qq", "-r", "binder/requirements.txt", cwd=checkout)
    said = run("./binder/postBuild", cwd=checkout, path=str(tools))
    assert "nbcompile" in said
    python = str(tools / "python")
    home = run(python, "-c", "import nbcompile; print(nbcompile.__file__)", cwd=tmp_path)
    assert Path(home).is_relative_to(tmp_path / "image")
    for notebook in ("00-tour", "01-first-compile"):
        command = (python, "scripts/demo.py", f"notebooks/{notebook}.ipynb", "--out", str(tmp_path / "out"))
        run(*command, cwd=checkout, path=str(tools))
        assert (tmp_path / "out" / f"{notebook}.html").exists()
