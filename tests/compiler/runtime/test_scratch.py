"""Temporary folders go with their process, also if it was killed; libraries are loaded from copies."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nbcompile.compiler.runtime import scratch
from nbcompile.compiler.runtime.c.toolchain import find_toolchain

_CODE = (
    "import sys, time; from nbcompile.compiler.runtime import scratch\n"
    "print(scratch.own(), flush=True); (scratch.own() / 'a').write_text('x'); time.sleep(float(sys.argv[1]))"
)


def _process(place: Path, seconds: float) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", _CODE, str(seconds)], env={**os.environ, "TMPDIR": str(place)},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_goes_with_the_next(tmp_path: Path) -> None:
    dead, left = _process(tmp_path, 60)
    alive, used = _process(tmp_path, 60)
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    assert left.parent == tmp_path and left.exists()
    ended, own = _process(tmp_path, 0)
    assert ended.wait() == 0 and not own.exists()
    assert not left.exists() and used.exists()
    alive.kill()
    alive.wait()


def test_a_child_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = scratch.own()
    assert own == scratch.own() and own.parent == tmp_path
    child = os.fork()
    if child == 0:
        os._exit(0 if scratch.own() != own else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_library_may_be_written_to_while_it_is_loaded(tmp_path: Path) -> None:
    place = tmp_path / "a.so"
    for number in (1, 2):
        find_toolchain().compile(f"int number(void) {{ return {number}; }}", place)
        library = scratch.opened(place)
        os.truncate(place, 0)
        assert library.number() == number  # the second is not the first again, for lying in its place
    assert isinstance(library, ctypes.CDLL) and not list(scratch.own().glob("*.so"))
