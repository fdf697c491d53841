"""The wheel as a user meets it, on a machine with only Python: `make clean-install`.

    python scripts/clean_install.py [--wheel FILE] [--out FOLDER]

A new environment, `pip install` of the wheel with [jupyter]; then JupyterLab from there, a notebook with
`%load_ext nbcompile` and `%%compile` in it, opened in Chromium and run, until the explorer is on the screen.
Once as it is, and once without a C compiler, without Node and without a GPU: then the cell runs eagerly, its
numbers are the same, and the explorer says what is missing. Prints a table of seconds; pictures go to
``--out``.

Chromium and playwright are this environment's; nothing of this checkout is seen by the other.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import check_machine
import release

ROOT = Path(__file__).resolve().parent.parent
CELLS = (
    "%load_ext nbcompile",
    "import torch\ntorch.manual_seed(0)\nx, w = torch.randn(64, 32), torch.randn(32, 16)",
    "%%compile --no-bench --into record\nz = torch.softmax(x @ w, -1) * 2",
    "right = torch.allclose(z, torch.softmax(x @ w, -1) * 2)\n"
    "print('kernels:', len(record.kernels), 'numbers right:', right)",
)
LAB = (
    "--no-browser", "--allow-root", "--ip=127.0.0.1", "--IdentityProvider.token=",
    "--ServerApp.port_retries=200",
    "--ServerApp.disable_check_xsrf=True", "--LabApp.expose_app_in_browser=True",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
)  # fmt: skip
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
)
FOLDERS = (
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
    "IPYTHONDIR",
    "NBCOMPILE_CACHE_DIR",
)
IDLE = "() => jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
Seconds = dict[str, float]


class CleanInstallError(Exception):
    """What a user would have met."""


def environment(home: Path, python: Path, bare: bool) -> dict[str, str]:
    """Of a user who has nothing but Python; ``bare``: the PATH has no compiler and no Node."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JUPYTER", "NBCOMPILE", "PYTHON"))
    }
    own = {name: str(home / name.lower()) for name in FOLDERS}
    path = str(python.parent) if bare else os.pathsep.join([str(python.parent), os.environ["PATH"]])
    hidden = {"CUDA_VISIBLE_DEVICES": "", "CC": ""} if bare else {}
    return {**kept, **own, **hidden, "PATH": path, "JUPYTER_PREFER_ENV_PATH": "1", "OMP_NUM_THREADS": "1"}


def notebook(folder: Path) -> Path:
    """The notebook of CELLS, as nbformat 4.5 has it."""
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{n}",
            "source": source,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for n, source in enumerate(CELLS)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path = folder / "first.ipynb"
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(whole), encoding="utf-8")
    return path


@contextlib.contextmanager
def lab(python: Path, home: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """JupyterLab of that environment, serving ``home``; its address."""
    log = home / "server.log"
    with log.open("wb") as file:
        command = [python, "-m", "jupyterlab", *LAB, f"--ServerApp.root_dir={home}"]
        process = subprocess.Popen(
            list(map(str, command)), cwd=home, env=dict(variables), stdout=file, stderr=file
        )
    try:
        note = Path(variables["JUPYTER_RUNTIME_DIR"]) / f"jpserver-{process.pid}.json"
        until = time.monotonic() + 120
        while True:
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                address = str(json.loads(note.read_text())["url"]).rstrip("/")
                break
            if process.poll() is not None or time.monotonic() > until:
                raise CleanInstallError(
                    f"JupyterLab did not start:\n{log.read_text(errors='replace')[-3000:]}"
                )
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def in_browser(address: str, name: str, picture: Path) -> tuple[str, Seconds]:
    """Open the notebook, run all of it, wait for the explorer; what it says, and the seconds of each step."""
    from playwright.sync_api import sync_playwright

    took: Seconds = {}
    with sync_playwright() as playwright:
        found = check_machine.chromium() or None
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            page = browser.new_page(viewport={"width": 1180, "height": 1100})
            begun = time.monotonic()
            page.goto(f"{address}/lab/tree/{name}")
            page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=120_000)
            page.wait_for_function(IDLE, timeout=120_000)
            took["JupyterLab opens"], begun = time.monotonic() - begun, time.monotonic()
            page.evaluate("() => { void jupyterapp.commands.execute('notebook:run-all-cells'); return 1; }")
            page.wait_for_selector(".jp-OutputArea .nbc", timeout=240_000)
            took["%load_ext, torch, %%compile, the explorer"] = time.monotonic() - begun
            try:
                page.wait_for_selector("text=/numbers right: (True|False)/", timeout=60_000)
            finally:
                page.screenshot(path=picture, full_page=True)
            return page.locator(".jp-Notebook").inner_text(), took
        finally:
            browser.close()


def meet(python: Path, bare: bool, out: Path) -> Seconds:
    """One run. CleanInstallError if it does not go as a user expects."""
    with tempfile.TemporaryDirectory(prefix="nbcompile-user-") as temporary:
        home = Path(temporary)
        variables = environment(home, python, bare)
        path = notebook(home)
        begun = time.monotonic()
        with lab(python, home, variables) as address:
            started = time.monotonic() - begun
            said, took = in_browser(address, path.name, out / f"clean-install{'-bare' if bare else ''}.png")
    judge(said, bare)
    return {"JupyterLab starts": started, **took}


def judge(said: str, bare: bool) -> None:
    """Whether the screen says what it should. CleanInstallError if not."""
    wanted = ["kernels: 0", "no C compiler was found"] if bare else ["kernels: 1"]
    for each in (*wanted, "numbers right: True"):
        if each not in said:
            raise CleanInstallError(f"{each!r} is not on the screen:\n{said[-2000:]}")


def table(rows: list[tuple[str, Seconds]]) -> str:
    """Markdown: a line a step."""
    lines = ["| | step | seconds |", "| --- | --- | ---: |"]
    lines += [f"| {name} | {step} | {seconds:.1f} |" for name, took in rows for step, seconds in took.items()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="instead of this checkout's, built anew")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "clean-install")
    asked: Any = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="nbcompile-clean-") as temporary:
            wheel = asked.wheel or release.build(Path(temporary) / "dist")[1]
            begun = time.monotonic()
            python = release.install(wheel.resolve(), Path(temporary) / "environment", "jupyter")
            rows = [("a new environment", {"pip install nbcompile[jupyter]": time.monotonic() - begun})]
            print(table(rows), flush=True)
            for name, bare in (("as it is", False), ("no C compiler, no Node, no GPU", True)):
                rows.append((name, meet(python, bare, asked.out)))
                print("\n".join(table(rows[-1:]).splitlines()[2:]), flush=True)
    except (CleanInstallError, release.ReleaseError) as error:
        print(f"A user would have met this: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
