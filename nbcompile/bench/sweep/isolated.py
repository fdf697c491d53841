"""A point in a process of its own: a crash, a time limit, or memory that runs out loses that point only."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nbcompile.bench.measure.compare import Measuring
from nbcompile.bench.sweep.grid import Point
from nbcompile.bench.sweep.point import Outcome, run_point
from nbcompile.bench.sweep.store import outcome_from, outcome_to
from nbcompile.settings import CompileSettings

_ROOT = str(Path(__file__).parents[3])  # so that the other process finds this very nbcompile


def run_isolated(
    program: bytes,
    point: Point,
    settings: CompileSettings,
    measuring: Measuring,
    timeout: float | None = None,
) -> Outcome:
    """Measure a point in a new Python, with this one's folders to import from. ``program`` is packed
    (:func:`nbcompile.bench.sweep.workers.packed`). An interrupt ends the process."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="nbcompile-point-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "request").write_bytes(pickle.dumps((program, point, settings, measuring)))
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([_ROOT, *filter(None, sys.path)])
        threads = point.get("threads") or measuring.threads
        if threads is not None:
            environment["OMP_NUM_THREADS"] = environment["TORCHINDUCTOR_COMPILE_THREADS"] = str(threads)
        with open(folder / "stderr", "wb") as stderr:
            # A session of its own: an interrupt of the notebook is ours to pass on, to all it started.
            process = subprocess.Popen(
                [sys.executable, "-m", "nbcompile.bench.sweep.isolated", name],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            return Outcome("timeout", f"took more than {timeout:g} s", None, time.perf_counter() - begun)
        finally:
            _end(process)
        answer = folder / "answer"
        if code == 0 and answer.exists():
            found = outcome_from(json.loads(answer.read_bytes()))
            return Outcome(found.status, found.reason, found.record, time.perf_counter() - begun)
        said = (folder / "stderr").read_text(errors="replace").strip().splitlines()
        return Outcome("crashed", _why(code, said), None, time.perf_counter() - begun)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and what it left running; nothing where all is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _why(code: int, said: list[str]) -> str:
    last = said[-1] if said else ""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        memory = ": out of memory, most likely" if name == "SIGKILL" else ""
        return f"killed by {name}{memory}" + (f" ({last})" if last else "")
    return last or f"exit status {code}"


def _answer(folder: Path) -> None:
    from nbcompile.bench.sweep.workers import unpacked

    program, point, settings, measuring = pickle.loads((folder / "request").read_bytes())
    outcome = run_point(unpacked(program), point, settings, measuring)
    partial = folder / "partial"
    partial.write_text(json.dumps(outcome_to(outcome)))
    partial.rename(folder / "answer")


if __name__ == "__main__":
    _answer(Path(sys.argv[1]))
