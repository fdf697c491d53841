"""Run the code blocks of a documentation page in order, and say what each printed.

    from docs_run import run_page
    outputs = run_page(Path("docs/quick-start.md"))

``python`` blocks run in one process, as one program would; if a page has ``ipython`` blocks (magics), all of
its blocks run in one IPython shell. A block that begins with a comment that is a file's name (``# suite.py``)
is also written to that file. Of ``console`` blocks, lines ``$ nbcompile …`` are run; everything else in them
is for reading. All of it happens in an empty folder with one thread of torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "out" / "docs-cache"
LANGUAGES = ("python", "ipython", "console")
TIMEOUT = 500  # seconds a page
_FENCE = re.compile(r"^```([\w-]+)\n(.*?)^```$", re.M | re.S)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and where in the page it starts and ends."""

    language: str
    text: str
    start: int
    end: int


class PageError(Exception):
    """A block failed: the page, the block and the end of the traceback."""


def blocks(text: str) -> list[Block]:
    """The blocks of a page that are code to run."""
    found = (Block(match[1], match[2], match.start(), match.end()) for match in _FENCE.finditer(text))
    return [block for block in found if block.language in LANGUAGES]


def run_page(page: Path, *, fresh: bool = False) -> list[str]:
    """What each block printed. What another run of the same code has printed is taken from ``out/docs-cache``
    unless ``fresh``. PageError if a block fails."""
    found = blocks(page.read_text(encoding="utf-8"))
    if not found:
        return []
    kept = CACHE / f"{page.stem}-{_key(found)}.json"
    if kept.exists() and not fresh:
        return list(json.loads(kept.read_text(encoding="utf-8")))
    outputs = _run(page.name, found)
    CACHE.mkdir(parents=True, exist_ok=True)
    for old in CACHE.glob(f"{page.stem}-????????????????.json"):
        old.unlink(missing_ok=True)
    kept.write_text(json.dumps(outputs), encoding="utf-8")
    return outputs


def _run(name: str, found: list[Block]) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="nbcompile-docs-") as folder:
        job, answer = Path(folder, ".job.json"), Path(folder, ".answer.json")
        job.write_text(json.dumps([[block.language, block.text] for block in found]), encoding="utf-8")
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        environment = {
            **os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "100",
            "NBCOMPILE_CACHE_DIR": str(Path(folder, ".cache")), "IPYTHONDIR": str(Path(folder, ".ipython")),
        }  # fmt: skip
        command = [sys.executable, __file__, str(job), str(answer)]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT
        )
        if done.returncode or not answer.exists():
            said = _ANSI.sub("", f"{done.stdout}\n{done.stderr}").strip()
            raise PageError(f"{name}: {said[-4000:]}")
        outputs = json.loads(answer.read_text(encoding="utf-8"))
    return [_ANSI.sub("", text).replace(folder, "/tmp/work").rstrip() for text in outputs]


def _key(found: list[Block]) -> str:
    """Changes with the code of the page, the package and what it stands on."""
    digest = hashlib.sha256()
    for block in found:
        digest.update(f"{block.language}\0{block.text}\0".encode())
    for file in sorted((ROOT / "nbcompile").rglob("*.py")):
        digest.update(file.read_bytes())
    digest.update(f"{sys.version}{metadata.version('torch')}".encode())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()[:16]


# -- in the process of the page -----------------------------------------------------------------------


def _main(job: str, answer: str) -> None:
    import contextlib
    import io
    import linecache

    found = json.loads(Path(job).read_text(encoding="utf-8"))
    names = vars(sys.modules["__main__"])
    shell = None
    if any(language == "ipython" for language, _ in found):
        from IPython.core.interactiveshell import InteractiveShell

        shell = InteractiveShell.instance(user_ns=names, colors="nocolor")
    outputs = []
    for number, (language, text) in enumerate(found):
        named = re.match(r"# (\w[\w-]*\.(?:py|md|txt))\n", text)
        if named:
            Path(named[1]).write_text(text, encoding="utf-8")
        held = io.StringIO()
        with contextlib.redirect_stdout(held):
            if language == "console":
                _console(text)
            elif shell is not None:
                shell.run_cell(text, store_history=True).raise_error()
            else:
                filename = f"<block {number + 1}>"
                linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
                exec(compile(text, filename, "exec"), names)
        outputs.append(held.getvalue())
        print(f"block {number + 1} done", flush=True)
    Path(answer).write_text(json.dumps(outputs), encoding="utf-8")


def _console(text: str) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ nbcompile "):
            import shlex

            words = shlex.split(line[2:], comments=True)
            done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
            print(done.stdout, end="")
            if done.returncode not in (0, 1):  # 1: a regression was found, which may be the point
                raise RuntimeError(f"{line}: {done.stderr}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
