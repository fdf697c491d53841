"""What a session goes through: interrupts, threads, little memory, edited kernels, many cells."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from kinds import kind
from lab import Lab, LostError, Report, answers, differs, program, use

import nbcompile
from nbcompile.compiler.attempt import Attempt
from nbcompile.errors import EditError


def _interrupted(work: Callable[[], object], after: float) -> bool:
    """Run ``work`` and interrupt it after so many seconds. Whether it was."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    try:
        signal.setitimer(signal.ITIMER_REAL, max(after, 1e-4))
        work()
    except KeyboardInterrupt:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    return False


@kind("session", "an interrupt at any moment of a compile", 60)
def interrupted_compile(lab: Lab) -> None:
    """the next call compiles, and so does the next session"""
    number = 1 + lab.number

    def work() -> Report:
        made = nbcompile.compile(program(number))
        expected = answers(program(number), number)
        stopped = _interrupted(lambda: answers(made, number), lab.random.random() * 0.35)
        wrong = differs(answers(made, number), expected)
        said = [] if made.ran_compiled else [made.eager_reason]
        return {"wrong": wrong, "said": said, "compiled": made.ran_compiled, "seen": {"stopped": stopped}}

    if not lab.session(work).must().compiled:
        raise LostError("eager for good")
    assert lab.session(lambda: use(number)).must().compiled


@kind("session", "an interrupt at any moment of measuring", 40)
def interrupted_measuring(lab: Lab) -> None:
    """what the runs had changed is put back, bit for bit"""

    def work() -> Report:
        counts: dict[str, Any] = {"calls": 0}
        x = torch.randn(64, 16)

        def step(x: torch.Tensor) -> torch.Tensor:
            counts["calls"] += 1
            x.mul_(1.5).add_(1.0)
            return x.sin().sum()

        before, state = x.clone(), torch.get_rng_state()

        def measure() -> None:
            nbcompile.compare(step, (x,), ("eager", "nbcompile"), budget=0.1, cold=False)

        stopped = _interrupted(measure, lab.random.random() * 0.6)
        same = torch.equal(x, before) and counts == {"calls": 0} and torch.equal(state, torch.get_rng_state())
        return {
            "wrong": "" if same else f"x or {counts} are not what they were",
            "seen": {"stopped": stopped},
        }

    lab.session(work).must()


def _shell() -> Any:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "nbcompile")
    shell.run_cell("%config NbCompile.cold = False\n%config NbCompile.bench_seconds = 0.1")
    shell.run_cell("import torch")
    return shell


@kind("session", "an interrupt at any moment of a compiled cell", 30)
def interrupted_cell(lab: Lab) -> None:
    """an interrupt; the cell run again gives the right numbers, and no statement is done by half"""

    def work() -> Report:
        shell = _shell()
        shell.run_cell("x = torch.arange(12.0).reshape(3, 4); n = 0")
        head, body = (
            "%%compile --compare eager,nbcompile",
            "n = n + 1\ny = (x * FACTOR).softmax(-1)\nz = y.sum(0)",
        )
        cell = f"{head}\n{body}".replace("FACTOR", str(lab.number + 2))
        _interrupted(lambda: shell.run_cell(cell), lab.random.random() * 1.2)
        names = shell.user_ns
        if names["n"] not in (0, 1) or not torch.equal(names["x"], torch.arange(12.0).reshape(3, 4)):
            return {"wrong": f"n is {names['n']}, or x has changed"}
        shell.run_cell(cell.replace("compile ", "compile --no-bench "))
        expected = (names["x"] * (lab.number + 2)).softmax(-1)
        return {"wrong": differs([names["y"], names["z"]], [expected, expected.sum(0)])}

    lab.session(work).must()


@kind("session", "eight threads call one function 10,000 times each while another compiles", 1)
def eighty_thousand(lab: Lab) -> None:
    """every result is right"""
    lab.session(lambda: _calls(lab, 10_000), seconds=600.0).must()


@kind("session", "eight threads call one function while another compiles", 12)
def threads(lab: Lab) -> None:
    """every result is right"""
    lab.session(lambda: _calls(lab, 300)).must()


def _calls(lab: Lab, count: int) -> Report:
    made = nbcompile.compile(program(1))
    i = torch.tensor([3, 0, 11])
    given = [(torch.randn(12, 17), i, torch.randn(17)) for _ in range(8)]
    expected = [program(1)(*each) for each in given]
    if lab.number % 2:
        made(*given[0])  # else all eight meet the first compile
    compiled: list[int] = []
    over = threading.Event()

    def call(place: int) -> str:
        for turn in range(count):
            if wrong := differs(made(*given[place]), expected[place]):
                return f"thread {place}, call {turn}: {wrong}"
        return ""

    def compile_more() -> str:
        while not over.is_set():
            if wrong := use(2 + len(compiled)).get("wrong"):
                return str(wrong)
            compiled.append(1)
        return ""

    with ThreadPoolExecutor(9) as pool:
        other = pool.submit(compile_more)
        found = [pool.submit(call, place) for place in range(8)]
        wrong = next(filter(None, (each.result() for each in found)), "")
        over.set()
        wrong = wrong or other.result()
    return {"wrong": wrong, "seen": {"compiled": len(compiled)}}


@kind("session", "threads of which some pass an index out of range", 15)
def bad_indices(lab: Lab) -> None:
    """an IndexError in these, in each of their calls, and in no other"""

    def work() -> Report:
        def gathered(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            return (x.sin() * 2)[i]

        made = nbcompile.compile(gathered)
        x, good, bad = torch.randn(1 << 16), torch.arange(1 << 16), torch.arange(1 << 16)
        bad[lab.random.randrange(1 << 16)] = 1 << 20
        expected = gathered(x, good)
        made(x, good)

        def call(place: int) -> str:
            for _ in range(60):
                try:
                    found = made(x, bad if place % 2 else good)
                except IndexError:
                    if place % 2:
                        continue
                    return "an IndexError that is another thread's"
                if place % 2:
                    return "no IndexError, and wrong numbers"
                if wrong := differs([found], [expected]):
                    return wrong
            return ""

        with ThreadPoolExecutor(8) as pool:
            return {"wrong": next(filter(None, pool.map(call, range(8))), "")}

    lab.session(work).must()


@kind("session", "a compiled function that is called within itself", 20)
def within(lab: Lab) -> None:
    """right, by a signal's handler, a finalizer, a hook of autograd, or another compiled function"""

    def work() -> Report:
        number = 1 + lab.number % 5
        made, expected = nbcompile.compile(program(number)), answers(program(number), number)
        inner: list[str] = []

        def again(*_: object) -> None:
            inner.append(differs(answers(made, number), expected))

        def outer() -> None:
            way = lab.number % 4
            if way == 0:
                signal.signal(
                    signal.SIGALRM, lambda *_: (again(), signal.setitimer(signal.ITIMER_REAL, 0.001))
                )
                signal.setitimer(signal.ITIMER_REAL, 0.001)
                for _ in range(60):
                    inner.append(differs(answers(made, number), expected))
                signal.signal(signal.SIGALRM, signal.SIG_IGN)
            elif way == 1:
                for _ in range(20):
                    held = type("Held", (), {"__del__": again})()
                    inner.append(differs(answers(made, number), expected))
                    del held
            elif way == 2:
                x = torch.randn(12, 17, requires_grad=True)
                x.register_hook(again)
                made(x, torch.tensor([1]), torch.randn(17))[1].sum().backward()
            else:
                twice = nbcompile.compile(lambda x, i, w: made(made(x, i, w)[1] + x[:3], i % 3, w))
                x, i, w = torch.randn(12, 17), torch.tensor([3, 0, 11]), torch.randn(17)
                plain = program(number)
                inner.append(differs(twice(x, i, w), plain(plain(x, i, w)[1] + x[:3], i % 3, w)))

        outer()
        return {"wrong": next(filter(None, inner), "") or ("" if inner else "it was never called")}

    lab.session(work).must()


@kind("session", "twenty tasks of asyncio in turns, and cells that await", 12)
def tasks(lab: Lab) -> None:
    """every result is right"""

    def work() -> Report:
        number = 1 + lab.number % 5
        made, expected = nbcompile.compile(program(number)), answers(program(number), number)

        async def task() -> str:
            for _ in range(10):
                if wrong := differs(answers(made, number), expected):
                    return wrong
                await asyncio.sleep(0)
            return ""

        async def all_tasks() -> list[str]:
            return list(await asyncio.gather(*(task() for _ in range(20))))

        wrong = next(filter(None, asyncio.run(all_tasks())), "")
        shell = _shell()
        shell.run_cell("import asyncio\nx = torch.ones(3)")
        shell.run_cell("%%compile --no-bench\ny = x + 1\nawait asyncio.sleep(0.001)\nz = y * 2")
        return {"wrong": wrong or differs([shell.user_ns["z"]], [torch.full((3,), 4.0)])}

    lab.session(work).must()


@kind("session", "variables too big to be copied for measuring", 12)
def big(lab: Lab) -> None:
    """the cell runs; it is not measured, and says so with the numbers"""

    def work() -> Report:
        shell = _shell()
        shell.run_cell("big = torch.ones(64 << 20); w = torch.ones(4)")
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), used + (400 << 20)))
        shell.run_cell("%%compile --into record\nz = (big[:4] * w).sin()")
        names = shell.user_ns
        wrong = differs([names["z"]], [torch.ones(4).sin()]) or (
            "" if names["big"].mean() == 1 else "big changed"
        )
        return {"wrong": wrong, "said": list(names["record"].notes)}

    lab.session(work).must("would be copied")


def _edited(lab: Lab, line: str) -> Report:
    """An edited kernel with this line at its beginning (``OUT``: its last argument that is a pointer)."""
    from nbcompile.compiler.runtime.edit import trial

    def softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * (2 + lab.number), -1) + 1

    x = torch.randn(24, 50)
    made = nbcompile.compile(softmax)
    expected = made(x)
    kernel = made.compilation.kernels[0]
    text = kernel.sources["c"]
    start = text.rindex("\nvoid ") if "\nvoid " in text else text.index("void ")
    head = text[start : text.index("{", start)]
    out = head.rstrip(" )\n").rpartition("*")[2].strip()
    place = text.index("{", start) + 1
    attempt = Attempt([(kernel.id, text[:place] + line.replace("OUT", out) + text[place:])])
    with mock.patch.object(trial.outcome, "__defaults__", (1.0,)):
        try:
            nbcompile.compile(softmax, compile_aten=attempt.compile_aten)(x)
            attempt.check()
            said = ""
        except EditError as error:
            said = str(error)
    wrong = differs([made(x), softmax(x)], [expected, expected])
    return {"wrong": wrong, "said": [said], "seen": {"line": line}}


@kind("session", "an edited kernel that writes or reads out of bounds", 25)
def out_of_bounds(lab: Lab) -> None:
    """tried apart, refused, and said; the session lives and its numbers stay"""
    far = lab.random.choice((1200, 1 << 14, 1 << 22, 1 << 30, -1, -8, -4096, -(1 << 24)))
    write = f"((volatile float *)OUT)[{far}L] = 7;"
    read = f"volatile float got = ((volatile float *)OUT)[{far if far > 0 else 9 * far}L * 8];"
    line = read if far in (1 << 22, 1 << 30, -(1 << 24)) and lab.number % 2 else write
    lab.session(lambda: _edited(lab, line)).must("crashed|writes before the start")


@kind("session", "an edited kernel that never ends", 10)
def never_ending(lab: Lab) -> None:
    """tried apart, given up, and said"""
    lab.session(lambda: _edited(lab, "for (volatile long n = 0;; n++) {}")).must("did not end")


@kind("session", "an edited kernel that divides by zero, aborts or overflows the stack", 12)
def aborting(lab: Lab) -> None:
    """tried apart, refused, and said"""
    lines = ("__builtin_trap();", "volatile long zero = 0; volatile long n = 7 / zero; (void)n;",
             "volatile char all[1L << 33]; all[0] = 1; all[(1L << 33) - 1] = 1;")  # fmt: skip
    lab.session(lambda: _edited(lab, lines[lab.number % 3])).must("crashed")


@kind("session", "two hundred compiled cells in one session", 1)
def many_cells(lab: Lab) -> None:
    """no growth from the hundredth on: objects, threads, open files, temporary files"""

    def work() -> Report:
        shell = _shell()
        shell.run_cell("x = torch.randn(8, 8)")
        counts = []
        for turn in range(200):
            shell.run_cell(
                f"%%compile --no-bench\ny = (x * {turn % 7 + 2}).softmax(-1).sum()", store_history=False
            )
            if turn in (99, 199):
                gc.collect()
                tensors = sum(isinstance(each, torch.Tensor) for each in gc.get_objects())
                counts.append((threading.active_count(), len(os.listdir("/proc/self/fd")), tensors,
                               len(os.listdir(os.environ["TMPDIR"]))))  # fmt: skip
        return {"wrong": "" if _no_more(*counts) else f"{counts}", "seen": {"counts": counts}}

    lab.session(work, seconds=600.0).must()


def _no_more(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    return all(two <= one + 8 for one, two in zip(before, after, strict=True))
