"""A function in a Python process of its own: what it returns, or how the process ended.

What may crash, hang or fill the memory, or has to start from nothing, runs here: a cold compile, an exported
file, a case of a suite, a point of a sweep.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

ROOT = str(Path(__file__).parents[2])
"""What a process must have on its path to find this very nbcompile."""

T = TypeVar("T")


class ProcessEndedError(Exception):
    """A process ended, or was ended, without an answer: how, in words."""

    timed_out = False


def in_process(
    function: Callable[..., T],
    *arguments: Any,
    timeout: float | None = None,
    environment: Mapping[str, str] | None = None,
    path: Iterable[str] = (),
) -> T:
    """``function(*arguments)`` in a new Python. Function, arguments and result go through plain pickle.

    timeout:     seconds until the process is ended. environment: variables that it has beside ours.
    path:        folders to import from, beside nbcompile's own and PYTHONPATH.

    ProcessEndedError for a process that raises, dies, or is not done in time. Whatever it started ends with
    it, also where this process is interrupted meanwhile.
    """
    with tempfile.TemporaryDirectory(prefix="nbcompile-process-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "request").write_bytes(pickle.dumps((function, arguments)))
        variables = variables_of(environment or {}, path)
        with open(folder / "stderr", "wb") as stderr:
            # A session of its own: an interrupt of the notebook is ours to pass on, to all it started.
            process = subprocess.Popen(
                [sys.executable, "-m", "nbcompile.bench.processes", name],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            ended = ProcessEndedError(f"took more than {timeout:g} s")
            ended.timed_out = True
            raise ended from None
        finally:
            _end(process)
        result: T = answer_in(folder, code)
        return result


def answer_in(folder: Path, code: int) -> Any:
    """What a process that ended with this status left in ``folder``. ProcessEndedError, with the last line of
    its standard error, where it left none."""
    answer = folder / "answer"
    if code == 0 and answer.exists():
        return pickle.loads(answer.read_bytes())
    said = (folder / "stderr").read_text(errors="replace").strip().splitlines()
    raise ProcessEndedError(how_ended(code, said[-1] if said else ""))


def variables_of(environment: Mapping[str, str], path: Iterable[str] = ()) -> dict[str, str]:
    """The environment of a process: this one's, these, and folders to import from, this nbcompile's first."""
    paths = [ROOT, *path, os.environ.get("PYTHONPATH", "")]
    return {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and what it left running; nothing where all is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def how_ended(code: int, last: str) -> str:
    """How a process ended, from its exit status and the last line that it printed to stderr."""
    if code >= 0:
        return last or f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    memory = ": out of memory, most likely" if name == "SIGKILL" else ""
    return f"killed by {name}{memory}" + (f" ({last})" if last else "")


def _answer(folder: Path) -> None:
    """In the new process: the answer, renamed into place once it is whole."""
    function, arguments = pickle.loads((folder / "request").read_bytes())
    (folder / "partial").write_bytes(pickle.dumps(function(*arguments)))
    (folder / "partial").rename(folder / "answer")


if __name__ == "__main__":
    _answer(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # compilers' own worker processes are not waited for
