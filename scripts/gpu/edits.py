"""An edited cell: seconds from a changed function of five operations to its first result, in a process
that has compiled before.

    python scripts/gpu/edits.py [--contestants NAMES]

Each time another constant and another mix of operations, so that nobody finds the kernel in a cache.
"""

from __future__ import annotations

import linecache
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import runner
import torch
from contestants import OURS, PEER, compile_with, empty_caches, warm_up
from gpu_timing import summary, synchronize
from runner import Run, say

CONTESTANTS = (OURS, PEER)
ITEM = "edited cell of five operations, first result"
SHAPE = (4096, 4096)
_STEPS = (
    "torch.relu({x}) * {c}", "{x} + y * {c}", "torch.sigmoid({x} - {c})", "torch.tanh({x}) + y",
    "{x} * torch.exp(-y * {c})", "torch.maximum({x}, y * {c})", "{x} / (1 + y.abs())",
)  # fmt: skip


def cell(draw: random.Random, number: int) -> Callable[..., torch.Tensor]:
    """A function of five operations, as a notebook would have it: with a source of its own."""
    steps = [step.format(x="x", c=f"{draw.uniform(0.5, 2):.4f}") for step in draw.sample(_STEPS, 4)]
    body = "".join(f"    x = {step}\n" for step in steps)
    text = f"def cell(x, y):\n{body}    return torch.softmax(x, dim=-1)\n"
    name = f"<edited cell {number} {draw.random()}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict[str, Any] = {"torch": torch}
    exec(compile(text, name, "exec"), names)
    made: Callable[..., torch.Tensor] = names["cell"]
    return made


def measure(run: Run) -> None:
    shape = (64, 64) if run.arguments.tiny else SHAPE
    x, y = (torch.randn(shape, device=run.device) for _ in range(2))
    samples: dict[str, list[float]] = {}
    draw = random.Random(0)
    for number in range(3 if run.arguments.quick else 7):
        fn = cell(draw, number)
        for name in run.arguments.contestants:
            synchronize(run.device)
            begun = time.perf_counter()
            contestant = compile_with(name, fn)
            if run.attempt(ITEM, name, lambda c=contestant: c.fn(x, y)) is None:
                continue
            synchronize(run.device)
            seconds = time.perf_counter() - begun
            if reason := contestant.why_eager():
                run.failed(ITEM, name, reason)
                continue
            samples.setdefault(name, []).append(seconds)
    times = {name: summary(values) for name, values in samples.items()}
    run.write("steady", item=ITEM, times=times)
    said = [f"{name} {each['median']:.3f} s" for name, each in times.items()]
    say(f"{ITEM}: {', '.join(said)}")


def main(argv: Sequence[str] | None = None) -> int:
    run = runner.start("edits", __doc__ or "", argv, CONTESTANTS)
    if run.arguments.list:
        say(ITEM)
        return 0
    runner.describe_machine(run)
    empty_caches()
    warm_up([name for name in run.arguments.contestants if name != "eager"], run.device)
    for item in run.items([ITEM]):
        run.attempt(item, "all", lambda: measure(run))
    return runner.finish(run)


if __name__ == "__main__":
    sys.exit(main())
