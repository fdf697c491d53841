"""Cold compiles: seconds to the first result in a fresh process whose cache folders are empty.

Imports, the device's context and the making of inputs come before the clock starts, for everyone alike.
As they take many seconds each, the next processes do theirs while one is being timed (a few at a time,
where the machine has the cores). A program is one that ``<module>.program(item, device, tiny)`` returns:
the function, and what takes the compiled function to its first result.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from contestants import COMPILERS, OURS, PEER, compile_with, first_line, own_caches
from runner import Run, say

TIMEOUT = 240.0
# What a backend imports on its first compile.
_IMPORTS = {
    "nbcompile": (
        "nbcompile.backends.nbcompile", "nbcompile.compiler.capture.function_to_fx",
        "nbcompile.compiler.compile_graph", "triton", "triton.compiler.compiler",
    ),
    "inductor": (
        "torch._inductor.compile_fx", "torch._inductor.codegen.triton", "torch._inductor.codegen.cpp",
        "torch._inductor.codecache", "torch._inductor.async_compile", "triton", "triton.compiler.compiler",
    ),
}  # fmt: skip


class Process:
    """A fresh Python that has imported everything and waits to be told to compile."""

    def __init__(self, module: str, item: str, contestant: str, device: str, tiny: bool) -> None:
        self.item, self.contestant = item, contestant
        self.folder = Path(tempfile.mkdtemp(prefix="nbcompile-cold-"))
        (self.folder / "tmp").mkdir()
        environment = {**os.environ, "TMPDIR": str(self.folder / "tmp")}
        request = json.dumps(
            {"module": module, "item": item, "contestant": contestant, "device": device, "tiny": tiny,
             "folder": str(self.folder)}
        )  # fmt: skip
        self.errors = (self.folder / "stderr").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, __file__, request], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
        )  # fmt: skip

    def answer(self) -> dict[str, Any]:
        """Let it go; ``{"seconds": ...}`` or ``{"reason": ...}``."""
        try:
            output, _ = self.process.communicate("go\n", timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            self.close()
            return {"reason": f"took more than {TIMEOUT:.0f} s"}
        for line in reversed(output.splitlines()):
            if line.startswith("{"):
                return dict(json.loads(line))
        self.errors.seek(0)
        last = (self.errors.read().strip().splitlines() or [f"exit status {self.process.returncode}"])[-1]
        return {"reason": last[:300]}

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def measure(run: Run, module: str, items: Iterable[str], *, budget: float | None = None) -> None:
    """A ``cold`` record for each item and compiler asked for; nothing new after ``budget`` seconds (by
    default, what is left of the run's)."""
    wanted = [name for name in (OURS, PEER) if name in run.arguments.contestants]
    pairs = deque((item, name) for item in items if run.wants(item) for name in wanted)
    ahead = max(1, min(5, (os.cpu_count() or 1) // 3))
    waiting: deque[Process] = deque()
    begun, seconds = time.perf_counter(), run.left() if budget is None else min(budget, run.left())
    try:
        while pairs or waiting:
            if time.perf_counter() - begun > seconds:
                say(f"cold compiles: budget spent, {len(pairs) + len(waiting)} left out")
                run.write("left-out", cold=[*((one.item, one.contestant) for one in waiting), *pairs])
                return
            while pairs and len(waiting) < ahead:
                item, name = pairs.popleft()
                waiting.append(Process(module, item, name, run.device, run.arguments.tiny))
            one = waiting.popleft()
            answer = one.answer()
            one.close()
            run.write("cold", item=one.item, contestant=one.contestant, **answer)
            what = f"{answer['seconds']:.2f} s" if "seconds" in answer else answer["reason"]
            say(f"cold compile of {one.item}: {one.contestant} {what}")
    finally:
        for one in waiting:
            one.close()


def _child(request: dict[str, Any]) -> dict[str, Any]:
    own_caches(Path(request["folder"]))
    import torch
    from gpu_timing import synchronize

    importlib.import_module("torch._functorch.aot_autograd")
    for name in _IMPORTS[COMPILERS[request["contestant"]][0]]:
        try:
            importlib.import_module(name)
        except ImportError:  # Triton, on a machine without it
            continue
    device = request["device"]
    torch.zeros(1, device=device).add_(1)
    module = importlib.import_module(request["module"])
    sys.stdin.readline()
    fn, first = module.program(request["item"], device, request["tiny"])
    synchronize(device)
    begun = time.perf_counter()
    contestant = compile_with(request["contestant"], fn)
    first(contestant.fn)
    synchronize(device)
    seconds = time.perf_counter() - begun
    reason = contestant.why_eager()
    return {"reason": reason} if reason else {"seconds": seconds}


if __name__ == "__main__":
    try:
        answered = _child(json.loads(sys.argv[1]))
    except Exception as error:  # the parent writes it down as this contestant's result
        answered = {"reason": first_line(error)}
    print(json.dumps(answered), flush=True)
