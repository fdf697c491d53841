"""How long a newcomer waits: from nothing to the first compiled cell, step by step.

    python scripts/newcomer.py [--source URL_OR_PATH] [--keep FOLDER]

Clones the repository into a new folder, sets up with the Makefile's own targets (pip's and npm's caches are
new and empty, so that everything is fetched), and runs a three-line cell in a fresh process with empty
caches. Prints a Markdown table; what depends on the network is marked.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CELL = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("%load_ext nbcompile\\nimport torch\\nx, w = torch.randn(512, 128), torch.randn(128, 256)")
import time
start = time.perf_counter()
done = shell.run_cell("%%compile {flags} --into first\\ny = x @ w\\ntorch.softmax(y, -1) * 2")
done.raise_error()
assert shell.user_ns["first"].kernels, "nothing was compiled"
print("seconds", time.perf_counter() - start)
"""


def steps(source: str) -> list[tuple[str, list[str], bool]]:
    """(what, command, whether it waits for the network), run one after the other in the clone's folder."""
    python = ".venv/bin/python"
    return [
        ("git clone", ["git", "clone", "--quiet", source, "."], True),
        ("a venv and torch", ["make", ".venv/.torch"], True),
        ("nbcompile and Jupyter", ["make", ".venv/.jupyter"], True),
        ("the explorer: npm ci, types, bundle", ["make", "explorer"], True),
        ("first cell, kernels and decisions", [python, "-c", CELL.format(flags="--no-bench")], False),
        ("first cell, timed beside Inductor", [python, "-c", CELL.format(flags="")], False),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--source", default=str(ROOT), help="what to clone; else this checkout's HEAD")
    parser.add_argument("--keep", help="work in this new folder, and leave it")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as temporary:
        folder = Path(asked.keep or temporary) / "nbcompile"
        folder.mkdir(parents=True)
        caches = {name: f"{temporary}/{name.lower()}" for name in ("PIP_CACHE_DIR", "NPM_CONFIG_CACHE")}
        own = {name: f"{temporary}/{name.lower()}" for name in ("NBCOMPILE_CACHE_DIR", "IPYTHONDIR")}
        own["TORCHINDUCTOR_CACHE_DIR"] = f"{temporary}/inductor"
        environment = {**os.environ, **caches, **own}
        print("| step | seconds | |\n| --- | ---: | --- |")
        total = 0.0
        for what, command, network in steps(asked.source):
            start = time.perf_counter()
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            seconds = time.perf_counter() - start
            total += seconds
            print(f"| {what} | {seconds:.1f} | {'fetches' if network else ''} |", flush=True)
            if done.returncode:
                print(f"{done.stdout}\n{done.stderr}", file=sys.stderr)
                return 1
        print(f"| in all | {total:.1f} | |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
