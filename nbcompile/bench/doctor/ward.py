"""A process for each trial, without the seconds that starting one takes: one process imports what all need
and is forked for each. Where there is no fork, each is a new Python
(:func:`nbcompile.bench.processes.in_process`).

The forked process is good for all that ours is: no thread has been started before the fork.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from nbcompile.bench.processes import ProcessEndedError, answer_in, in_process, variables_of

T = TypeVar("T")
_IMPORTS = (
    "nbcompile.api",
    "nbcompile.bench.doctor.trial",
    "nbcompile.compiler.capture.function_to_fx",
    "nbcompile.compiler.compile_graph",
    "torch._inductor.compile_fx",
    "torch._inductor.codegen.cpp",
    "torch._inductor.codecache",
)
_FEW = 4  # cores, where a pool of compiling processes costs more than it gives
_START = 120.0


class Ward:
    """Runs functions in processes of their own, one at a time. A context: all is gone when it is left."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="nbcompile-ward-", ignore_cleanup_errors=True)
        self._server: subprocess.Popen[bytes] | None = None
        self._count = 0

    def __enter__(self) -> Ward:
        if sys.platform == "linux":
            self._server = self._started()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            _kill(self._server.pid)
            _closed(self._server)
        self._folder.cleanup()

    def run(self, function: Callable[..., T], *arguments: Any, timeout: float) -> T:
        """``function(*arguments)`` in a process; function, arguments and result go through plain pickle.
        ProcessEndedError for one that raises, dies, or is not done after ``timeout`` seconds."""
        if self._server is None:
            return in_process(
                function, *arguments, timeout=timeout, path=sys.path, environment=_environment()
            )
        self._count += 1
        folder = Path(self._folder.name) / str(self._count)
        folder.mkdir()
        (folder / "request").write_bytes(pickle.dumps((function, arguments)))
        if self._server.poll() is not None:
            _closed(self._server)
            self._server = self._started()
        result: T = answer_in(folder, self._forked(self._server, folder, timeout))
        return result

    def _started(self) -> subprocess.Popen[bytes]:
        # A session of its own: an interrupt of the notebook is ours to pass on.
        return subprocess.Popen(
            [sys.executable, "-m", "nbcompile.bench.doctor.ward"],
            env=variables_of(_environment(), sys.path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _forked(self, server: subprocess.Popen[bytes], folder: Path, timeout: float) -> int:
        """The exit status of a fork that answers what ``folder`` asks."""
        assert server.stdin is not None and server.stdout is not None
        try:
            server.stdin.write(f"{folder}\n".encode())
            server.stdin.flush()
        except OSError as error:
            raise ProcessEndedError("the process that starts the others is gone") from error
        pid = int(_line(server.stdout, _START))
        try:
            return int(_line(server.stdout, timeout))
        except TimeoutError:
            ended = ProcessEndedError(f"took more than {timeout:.0f} s")
            ended.timed_out = True
            _kill(pid)
            _line(server.stdout, _START)
            raise ended from None
        except BaseException:  # nobody knows what it would answer next
            _kill(pid)
            _kill(server.pid)
            server.wait()
            raise


def _closed(server: subprocess.Popen[bytes]) -> None:
    """Wait for a process that has been ended, and close what led to it."""
    server.wait()
    for pipe in (server.stdin, server.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was written to it has nowhere to go
                pipe.close()


def _environment() -> dict[str, str]:
    found = {"TORCH_WARM_POOL": "0", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    if (os.cpu_count() or 1) <= _FEW:
        found["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    return found


def _line(stream: IO[bytes], timeout: float) -> bytes:
    """The next line of a stream. TimeoutError if it does not come in time, ProcessEndedError if none
    comes."""
    end, text = time.monotonic() + timeout, b""
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([stream], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise TimeoutError
        one = os.read(stream.fileno(), 1)
        if not one:
            raise ProcessEndedError("the process that starts the others is gone")
        text += one
    return text


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


# -- in the process that is forked -----------------------------------------------------------------


def _serve(requests: Iterator[bytes], answers: IO[bytes]) -> None:
    for line in requests:
        pid = os.fork()
        if pid == 0:
            _child(Path(line.decode().rstrip("\n")))
        # Both do it, for whoever is first: the parent may have to kill the group at once.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        answers.write(b"%d\n" % pid)
        answers.flush()
        _, status = os.waitpid(pid, 0)
        _kill(pid)  # what it left running
        answers.write(b"%d\n" % os.waitstatus_to_exitcode(status))
        answers.flush()


def _child(folder: Path) -> None:
    """Answer, and end: nothing of the server's own is gone through on the way out."""
    code = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        errors = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT)
        nothing = os.open(os.devnull, os.O_RDWR)
        for made, kept in ((nothing, 0), (nothing, 1), (errors, 2)):
            os.dup2(made, kept)
        function, arguments = pickle.loads((folder / "request").read_bytes())
        (folder / "partial").write_bytes(pickle.dumps(function(*arguments)))
        (folder / "partial").rename(folder / "answer")
        code = 0
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


if __name__ == "__main__":
    import importlib

    for _name in _IMPORTS:
        importlib.import_module(_name)
    # What imports and compilers print must not be taken for an answer.
    _answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _serve(iter(sys.stdin.buffer.readline, b""), _answers)
