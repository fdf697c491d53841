"""Where faults are tried: sessions that are forked from one process, which has imported all and compiled
nothing of theirs, a folder for each trial, and the program that is to give the right numbers whatever comes.

A trial is lost if a session crashes or hangs, if its numbers are wrong, if it raises what is not one of our
own errors, or if nothing is said where something of the user's was given up.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._dynamo

import nbcompile
from nbcompile.backends import nbcompile as backend
from nbcompile.compiler.runtime import cache as disk
from nbcompile.compiler.runtime.c import calls, toolchain
from nbcompile.compiler.runtime.cache import DiskCache
from nbcompile.errors import NbcompileError

NOBODY = 65534
"""Whom files of "another user" belong to, and who runs where root would be let through."""
SECONDS = 120.0
"""What a session may take before it counts as hanging: the machine may be busy."""


class LostError(AssertionError):
    """A trial was lost."""


class CannotTry(Exception):  # noqa: N818
    """This machine cannot provoke the fault."""


@dataclass(frozen=True)
class Outcome:
    """How a session ended: ``right``, ``wrong``, ``error`` (one of ours), ``raised`` (any other),
    ``crashed``, ``hung`` or ``killed`` (by the trial). ``said``: notes, warnings of the log, reasons to run
    eagerly."""

    how: str
    detail: str = ""
    said: tuple[str, ...] = ()
    compiled: bool = False
    seen: Mapping[str, Any] = field(default_factory=dict)

    @property
    def survived(self) -> bool:
        return self.how == "right"

    def must(self, what: str = "", *, error: bool = False) -> Outcome:
        """LostError unless it was right (or, if ``error``, an error of ours), and one of ``what``, parts of
        sentences between bars, was said, if given."""
        if not (self.survived or (error and self.how == "error")):
            raise LostError(f"{self.how}: {self.detail} (said: {self.said})")
        told = " ".join((*self.said, self.detail))
        if what and not any(each in told for each in what.split("|")):
            raise LostError(f"nothing was said of {what!r}: {told!r}")
        return self


def program(number: int = 0) -> Callable[..., Any]:
    """A program with kernels of its own for each number: a softmax, an index that is checked, a product."""
    factor = 1.0 + number / 8

    def cell(x: torch.Tensor, i: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.softmax(x * factor, -1)[i]
        return y.sum(-1), (y * w).relu()

    return cell


def inputs(number: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(number)
    x, w = torch.randn(12, 17, generator=generator), torch.randn(17, generator=generator)
    return x.requires_grad_(number == 0), torch.tensor([3, 0, 11]), w


def answers(function: Callable[..., Any], number: int = 0) -> list[torch.Tensor]:
    """Results, and the gradient of program 0."""
    x, i, w = inputs(number)
    one, two = function(x, i, w)
    if not x.requires_grad:
        return [one, two]
    (one.square().sum() + two.sum()).backward()
    assert x.grad is not None
    return [one.detach(), two.detach(), x.grad]


def differs(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> str:
    pairs = zip(found, expected, strict=True)
    return next((f"off by {float((a - b).abs().max()):.3g}" for a, b in pairs
                 if not torch.allclose(a, b, rtol=1e-4, atol=1e-5)), "")  # fmt: skip


Report = dict[str, Any]


DOORS = ("torch", "ours")


_turn: list[tuple[str, ...]] = [DOORS]


def use(number: int = 0, doors: Sequence[str] = ()) -> Report:
    """What a user does: the program by ``torch.compile`` or by ``nbcompile.compile``, in turn from trial to
    trial unless ``doors`` says by which, its numbers held to eager's."""
    said: list[str] = []
    expected, compiled, heard = answers(program(number), number), [], len(HEARD.lines)
    for door in doors or _turn[0]:
        made: Any = program(number)
        made = torch.compile(made, backend="nbcompile") if door == "torch" else nbcompile.compile(made)
        if wrong := differs(answers(made, number), expected):
            return {"wrong": f"by {door}: {wrong}", "said": said}
        if door == "ours":
            said += [*made.recorder.compilation().notes, *filter(None, [made.eager_reason])]
            compiled.append(made.ran_compiled)
    eager = any("runs eagerly" in line for line in HEARD.lines[heard:])
    return {"said": said, "compiled": all(compiled) and not eager}


class Lab:
    """One trial: ``home`` is its folder, ``root`` the cache in it, ``random`` draws the same for each
    number."""

    def __init__(self, home: Path, number: int, filled: Path) -> None:
        self.home, self.number, self.filled = home, number, filled
        self.root = home / "cache"
        self.random = random.Random(number)
        _turn[0] = (DOORS[number % 2],)

    def fill(self) -> Path:
        """A cache that has all of program 0, as a session left it."""
        shutil.copytree(self.filled, self.root, symlinks=True, copy_function=shutil.copy2)
        return self.root

    def session(self, work: Callable[[], Report | None] = use, **how: Any) -> Outcome:
        """Run ``work`` as a process of its own would; see :meth:`start`."""
        return self.start(work, **how).wait()

    def start(
        self, work: Callable[[], Report | None] = use, *, uid: int | None = None,
        environment: Mapping[str, str | None] | None = None, before: Callable[[], None] | None = None,
        seconds: float = SECONDS,
    ) -> Session:  # fmt: skip
        """Fork a session. ``before`` prepares it (limits, mounts); ``uid``: who runs it; ``environment``:
        None removes a variable."""
        handle, place = tempfile.mkstemp(prefix="outcome-", dir=self.home)
        os.close(handle)
        if uid is not None:
            self._give(uid, Path(place))
        child = os.fork()
        if child == 0:
            _child(work, Path(place), self, uid, environment or {}, before)
        return Session(child, Path(place), seconds)

    def _give(self, uid: int, place: Path) -> None:
        if os.geteuid() != 0:
            raise CannotTry("only root can run as another user")
        os.chown(place, uid, uid)
        for top in (self.home, *self.home.rglob("*")):
            os.lchown(top, uid, uid)


@dataclass
class Session:
    """A session under way."""

    process: int
    place: Path
    seconds: float

    def wait(self, killed: bool = False) -> Outcome:
        """Until it has ended. ``killed``: the trial has killed it."""
        end = time.monotonic() + self.seconds
        while True:
            done, status = os.waitpid(self.process, os.WNOHANG)
            if done:
                break
            if time.monotonic() > end:
                os.kill(self.process, signal.SIGKILL)
                os.waitpid(self.process, 0)
                return Outcome("hung", f"not over after {self.seconds:.0f} s")
            time.sleep(0.004)
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            return Outcome("killed" if killed and name == "SIGKILL" else "crashed", name)
        try:
            told = json.loads(self.place.read_text())
        except ValueError:
            return Outcome("crashed", f"ended with status {status} and told nothing")
        return Outcome(**{**told, "said": tuple(told["said"])})

    def kill(self, after: float) -> Outcome:
        """``kill -9`` after so many seconds, unless it is over by then."""
        time.sleep(after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        return self.wait(killed=True)


def _child(
    work: Callable[[], Report | None], place: Path, lab: Lab, uid: int | None,
    environment: Mapping[str, str | None], before: Callable[[], None] | None,
) -> None:  # fmt: skip
    """In the forked process: never returns."""
    result = os.open(place, os.O_WRONLY)
    log = os.open(lab.home / f"log-{os.getpid()}", os.O_WRONLY | os.O_CREAT, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    told: dict[str, Any] = {"how": "raised", "detail": "", "said": []}
    try:
        HEARD.lines.clear()
        fresh(lab, environment)
        logging.getLogger("nbcompile").addHandler(HEARD)
        if before is not None:
            before()
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        report = work() or {}
        wrong = report.get("wrong", "")
        told = {"how": "wrong" if wrong else "right", "detail": wrong, "said": report.get("said", []),
                "compiled": report.get("compiled", False), "seen": report.get("seen", {})}  # fmt: skip
    except BaseException as error:
        traceback.print_exc()
        ours = isinstance(error, NbcompileError)
        lines = traceback.format_exception(error)[-3:]
        told |= {"how": "error" if ours else "raised", "detail": "".join(lines)[-900:]}
    told["said"] = [*told["said"], *HEARD.lines]
    os.write(result, json.dumps(told).encode())
    with contextlib.suppress(BaseException):  # as a process that ends: what it has registered to clear away
        import atexit

        atexit._run_exitfuncs()
    os._exit(0)


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


HEARD = _Heard()
"""What the log of this session has said."""


def fresh(lab: Lab, environment: Mapping[str, str | None]) -> None:
    """As a process that has compiled nothing, with the trial's own folders."""
    (lab.home / "tmp").mkdir(exist_ok=True)
    given = {"NBCOMPILE_CACHE_DIR": str(lab.root), "TMPDIR": str(lab.home / "tmp"), "HOME": str(lab.home)}
    for name, value in {**given, **environment}.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    tempfile.tempdir = None
    torch._dynamo.reset()
    calls.native_caller.cache_clear()
    toolchain._find.cache_clear()
    disk._shared.cache_clear()
    backend._warn.cache_clear()
    torch.set_num_threads(1)


def warm_up(folder: Path) -> Path:
    """Import and start all that a session uses, in this process, and fill a cache by program 0 in another."""
    backend.register()
    os.environ["NBCOMPILE_CACHE_DIR"] = str(folder / "warm-up")
    # How fast kernels are is not tried here, and their compiler takes most of the time.
    toolchain._COMMON = tuple(flag if flag != "-O3" else "-O0" for flag in toolchain._COMMON)
    logging.getLogger("nbcompile").setLevel(logging.WARNING)
    assert "wrong" not in use(977, DOORS)
    filled = Lab(folder / "filled", 0, folder)
    filled.home.mkdir()
    filled.session(lambda: use(0, DOORS)).must()
    if len(entries(filled.root)) < 5:
        raise SystemExit(f"a cache has but {entries(filled.root)}")
    gc.collect()
    gc.freeze()  # a forked session shares what it does not touch
    return filled.root


def entries(root: Path) -> list[Path]:
    """The folders of a cache's entries."""
    return sorted(root.glob("[0-9a-f][0-9a-f]/*"))


def files(root: Path) -> list[Path]:
    """Every file of every entry."""
    return [file for entry in entries(root) for file in sorted(entry.iterdir())]


def whole(root: Path) -> None:
    """LostError if an entry of a cache is not what was written, or something half written is left."""
    for entry in entries(root):
        if DiskCache(root).peek(entry.name) is None:
            raise LostError(f"{entry} is not whole")
    if left := list(root.glob(".partial-*")):
        raise LostError(f"{left} is left")


@contextlib.contextmanager
def folder_of_trials() -> Iterator[Path]:
    """Where trials have their folders: readable by others, whose sessions run there."""
    made = Path(tempfile.mkdtemp(prefix="nbcompile-faults-"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        for each in [made, *made.rglob("*")]:
            if each.is_dir() and not each.is_symlink():
                with contextlib.suppress(OSError):
                    each.chmod(0o700)
        shutil.rmtree(made, ignore_errors=True)
