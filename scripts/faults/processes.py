"""Several processes at once, and processes that are killed: whoever is left gives the right numbers."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kinds import kind
from lab import Lab, LostError, Report, answers, differs, entries, program, use, whole

import nbcompile
from nbcompile.compiler.runtime import scratch


@kind("processes", "eight compile the same at once", 12)
def eight(lab: Lab) -> None:
    """each gets the right numbers, and the cache is whole"""
    started = [lab.start(lambda: use(1 + lab.number)) for _ in range(8)]
    for each in started:
        assert each.wait().must().compiled
    whole(lab.root)
    found = lab.session(lambda: use(1 + lab.number)).must()
    assert not any("made anew" in line for line in found.said)


@kind("processes", "eight compile the same, and every entry is damaged meanwhile", 10)
def eight_damaged(lab: Lab) -> None:
    """each gets the right numbers"""
    lab.fill()
    over = threading.Event()

    def damage() -> None:
        while not over.wait(0.01):
            for entry in entries(lab.root):
                for file in list(entry.glob("*")):
                    try:
                        os.truncate(file, lab.random.randrange(200))
                    except OSError:
                        continue

    started = [lab.start(lambda: use(0)) for _ in range(8)]
    thread = threading.Thread(target=damage)
    thread.start()
    try:
        found = [each.wait() for each in started]
    finally:
        over.set()
        thread.join()
    for each in found:
        each.must()
    lab.session(lambda: use(0)).must()
    assert lab.session(lambda: use(0)).must().compiled


@kind("processes", "eight write while the size is over its limit", 10)
def eight_small(lab: Lab) -> None:
    """each gets the right numbers"""

    def work() -> Report:
        from nbcompile.compiler.runtime.cache import DiskCache

        DiskCache.shared().limit = 40_000
        return use(lab.number % 3)

    for each in [lab.start(work) for _ in range(8)]:
        each.wait().must()


def _kill(lab: Lab, most: float) -> None:
    work = lab.start(lambda: use(1 + lab.number))
    found = work.kill(lab.random.random() * most)
    if found.how not in ("killed", "right"):
        raise LostError(f"{found.how}: {found.detail}")
    assert lab.session(lambda: use(1 + lab.number)).must().compiled
    for entry in entries(lab.root):
        if not (entry / "manifest.json").exists():
            raise LostError(f"{entry} is half written")
    left = [each for each in (lab.home / "tmp").iterdir() if each.name.startswith(scratch.PREFIX)]
    if left:  # the next session has removed what the killed one left, and then its own
        raise LostError(f"{left} is left")


@kind("processes", "kill -9 at any moment of a compile", 100)
def killed(lab: Lab) -> None:
    """the next session compiles, finds nothing half written, and removes what was left of temporary files"""
    _kill(lab, 0.9)


@kind("processes", "kill -9 while the cache is written", 30)
def killed_writing(lab: Lab) -> None:
    """nothing half written is ever found"""
    from nbcompile.compiler.runtime.cache import DiskCache, key

    def work() -> Report:
        for turn in range(100_000):
            DiskCache(lab.root).put(key(turn), {"a": key(turn).encode() * 200, "b": bytes(1000)})
        return {}

    found = lab.start(work).kill(0.1 + lab.random.random() * 0.1)
    assert found.how == "killed", found
    if not entries(lab.root):
        raise LostError("nothing was written before it was killed")
    for entry in entries(lab.root):
        whole_entry = DiskCache(lab.root).peek(entry.name)
        if whole_entry is None or whole_entry.read("a") != entry.name.encode() * 200:
            raise LostError(f"{entry} is half written")
    assert lab.session(lambda: use(1)).must().compiled


@kind("processes", "a fork after a compile", 50)
def forked(lab: Lab) -> None:
    """the child calls what is compiled, and compiles what is new"""

    def work() -> Report:
        number = 1 + lab.number % 10
        made = nbcompile.compile(program(number))
        expected = answers(program(number), number)
        wrong = differs(answers(made, number), expected)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                again = differs(answers(made, number), expected) or use(20 + lab.number % 10).get("wrong", "")
                code = 3 if again else 0
            finally:
                os._exit(code)
        wrong = wrong or differs(answers(made, number), expected)
        status = os.waitpid(child, 0)[1]
        return {"wrong": wrong or (f"the child ended with {status}" if status else "")}

    lab.session(work, seconds=60.0).must()


@kind("processes", "a fork while other threads compile and call", 25)
def forked_busy(lab: Lab) -> None:
    """the child waits for none of them"""

    def work() -> Report:
        made = nbcompile.compile(program(3))
        expected = answers(program(3), 3)
        answers(made, 3)
        over = threading.Event()

        def call() -> str:
            while not over.is_set():
                if wrong := differs(answers(made, 3), expected):
                    return wrong
            return ""

        with ThreadPoolExecutor(3) as threads:
            calls = [threads.submit(call) for _ in range(2)]
            compiles = threads.submit(use, 30 + lab.number)
            time.sleep(lab.random.random() * 0.3)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    code = 3 if differs(answers(made, 3), expected) else 0
                finally:
                    os._exit(code)
            status = _ended(child, 30.0)
            over.set()
            wrong = next(filter(None, (each.result() for each in calls)), "")
            wrong = wrong or compiles.result().get("wrong", "")
        return {"wrong": wrong or (f"the child ended with {status}" if status else "")}

    lab.session(work, seconds=90.0).must()


def _ended(child: int, seconds: float) -> int | str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "no end: it hangs"


@kind("processes", "Ctrl-C in a terminal: every process of the group is interrupted", 25)
def group(lab: Lab) -> None:
    """an interrupt, and compiled when called again: the C compiler is not the one that was meant"""

    def work() -> Report:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = threading.Timer(lab.random.random() * 0.5, lambda: os.killpg(0, signal.SIGINT))
        made = nbcompile.compile(program(1 + lab.number))
        expected = answers(program(1 + lab.number), 1 + lab.number)
        interrupted = False
        timer.start()
        try:
            answers(made, 1 + lab.number)
            timer.join()
        except KeyboardInterrupt:
            interrupted = True
        timer.join()
        wrong = differs(answers(made, 1 + lab.number), expected)
        said = [] if made.ran_compiled else [made.eager_reason]
        return {"wrong": wrong, "compiled": made.ran_compiled, "said": said, "seen": {"stopped": interrupted}}

    found = lab.session(work).must()
    if not found.compiled:
        raise LostError(f"eager for good: {found.said}")


@kind("processes", "a temporary folder that is emptied while a session lives", 15)
def emptied_temporary(lab: Lab) -> None:
    """made again"""
    import shutil

    def work() -> Report:
        first = use(1 + lab.number)
        shutil.rmtree(tempfile.gettempdir())
        if lab.number % 2:
            Path(os.environ["TMPDIR"]).mkdir()
        second = use(40 + lab.number)
        return {**second, "wrong": first.get("wrong", second.get("wrong", ""))}

    found = lab.session(work).must()
    if not found.compiled and not any("eager" in each for each in found.said):
        raise LostError(f"nothing was said: {found.said}")
