"""Linear + cross_entropy, forward and backward: time and peak memory.

    python scripts/gpu/linear_cross_entropy.py [--contestants NAMES] [--quick]

bf16, 8k tokens of width 4096, a vocabulary of 128k: the logits alone are 2 GiB. Peak memory is all that
is allocated at once during a step, the inputs and the weight included.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import cold
import runner
import torch
import torch.nn.functional as F
from contestants import OURS, PEER, compile_with, reset
from gpu_timing import interleaved, relative_error, summary, synchronize
from items import Maker, in_float64
from runner import Run, say

CONTESTANTS = ("eager", OURS, "nbcompile-max", PEER)
ITEM = "linear + cross_entropy bf16 8k×4k×128k"


def loss_of(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(x, weight), target)


class Step:
    """Loss and the gradients of input and weight."""

    def __init__(self, fn: Any, args: tuple[torch.Tensor, ...]) -> None:
        self.fn, self.args = fn, args

    def __call__(self) -> tuple[torch.Tensor, ...]:
        loss = self.fn(*self.args)
        return (loss.detach(), *torch.autograd.grad(loss, self.args[:2]))


def arguments(device: str, tiny: bool) -> tuple[torch.Tensor, ...]:
    make = Maker(device, tiny)
    width, vocabulary, tokens = 4096, 128 << 10, 8 << 10
    x = make.randn(tokens, width, dtype=torch.bfloat16).requires_grad_()
    weight = (make.randn(vocabulary, width, dtype=torch.bfloat16) * width**-0.5).requires_grad_()
    return x, weight, make.integers(vocabulary, tokens)


def program(item: str, device: str, tiny: bool) -> tuple[Any, Any]:
    """What cold.py asks for."""
    del item
    args = arguments(device, tiny)
    return loss_of, lambda compiled: Step(compiled, args)()


def peak(step: Step, device: str) -> int:
    """Bytes allocated at most during one step."""
    if device != "cuda":
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def measure(run: Run) -> None:
    args = arguments(run.device, run.arguments.tiny)
    errors: dict[str, float] = {}
    memory: dict[str, int] = {}
    calls: dict[str, Step] = {}
    notes: dict[str, Any] = {}
    results: dict[str, tuple[torch.Tensor, ...]] = {}
    for name in run.arguments.contestants:
        contestant = compile_with(name, loss_of)
        step = Step(contestant.fn, args)
        made = run.attempt(ITEM, name, lambda step=step: tuple(each.cpu() for each in step()))
        if made is None:
            continue
        synchronize(run.device)
        if reason := contestant.why_eager():
            run.failed(ITEM, name, reason)
            continue
        # No result may stay on the GPU: it would count in the next one's peak.
        results[name], calls[name], notes[name] = made, step, contestant.facts()
        memory[name] = peak(step, run.device)
    samples = interleaved(dict(calls), run.device, budget=1.0 if run.arguments.quick else 3.0)
    reference = [each.cpu() for each in Step(loss_of, in_float64(args))()]
    for name, got in results.items():
        errors[name] = relative_error(got, reference)
    times = {name: summary(values) for name, values in samples.items()}
    run.write("steady", item=ITEM, times=times, memory=memory, errors=errors, notes=notes)
    for name, each in times.items():
        say(
            f"{ITEM}: {name} {each['median'] * 1e3:.2f} ms, peak {memory[name] / 2**30:.2f} GiB, "
            f"error {errors[name]:.1e}"
        )


def main(argv: Sequence[str] | None = None) -> int:
    run = runner.start("linear_cross_entropy", __doc__ or "", argv, CONTESTANTS)
    if run.arguments.list:
        say(ITEM)
        return 0
    runner.describe_machine(run)
    for item in run.items([ITEM]):
        run.attempt(item, "all", lambda: measure(run))
        reset()
    if not run.arguments.no_cold:
        cold.measure(run, "linear_cross_entropy", [ITEM])
    return runner.finish(run)


if __name__ == "__main__":
    sys.exit(main())
