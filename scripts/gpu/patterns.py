"""What programs of torch do to tensors between their products, forward and backward, on a GPU: ours beside
Inductor's.

    python scripts/gpu/patterns.py [--set first|second|all] [--only NAME ...] [--kernels]

Each function is compiled for fixed sizes by both, with its gradients where an argument has one, and timed by
turns: events around one call, behind a kernel that keeps the GPU waiting until all is enqueued (a forward and
a backward pass take the host half a millisecond), and after a write of 300 MB that empties the L2 cache.
Results are held against eager's. Those of the first set were looked at while kernels were mended; the second
was written before it was timed once. ``--kernels`` lists the kernels of what is slower.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gpu_timing import cold_by_turns
from more_pattern_programs import SECOND
from pattern_programs import FIRST, Pattern
from symbolic import compiled

from nbcompile.backends.nbcompile import register

BACKENDS = ("inductor", "nbcompile")


def as_tuple(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def step(call: Callable[..., Any], pattern: Pattern) -> Callable[[], list[Tensor]]:
    """One forward pass, and the backward pass of what has gradients."""
    learned = [each for each in pattern.args if isinstance(each, Tensor) and each.requires_grad]

    def run() -> list[Tensor]:
        outputs = as_tuple(call(*pattern.args))
        if not learned:
            return list(outputs)
        with_gradients = [each for each in outputs if each.requires_grad]
        return [*outputs, *torch.autograd.grad(with_gradients, learned, pattern.gradients(with_gradients))]

    return run


def error(got: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference, in units of the largest number of its tensor."""
    worst = 0.0
    for a, b in zip(got, expected, strict=True):
        scale = b.double().abs().max().item() + 1e-9
        worst = max(worst, (a.double() - b.double()).abs().max().item() / scale)
    return worst


def kernels(call: Callable[[], Any]) -> list[tuple[str, float]]:
    """Name and microseconds of each kernel of a call."""
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        call()
        torch.cuda.synchronize()
    found = [item for item in profile.events() if item.device_type == torch.autograd.DeviceType.CUDA]
    return [(item.name[:60], round(item.time_range.elapsed_us(), 1)) for item in found]


def measured(name: str, pattern: Pattern, rounds: int, with_kernels: bool) -> float:
    """How many times as fast as Inductor's ours is; prints a line."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    pattern.prepare()
    calls = [
        step(pattern.fn, pattern),
        *(step(compiled(pattern.fn, item, False), pattern) for item in BACKENDS),
    ]
    expected, *results = [call() for call in calls]
    errors = [error(each, expected) if pattern.is_repeatable else 0.0 for each in results]
    for call in calls:
        call()
    eager, inductor, ours = (each * 1e6 for each in cold_by_turns(calls, rounds))
    print(
        f"{name:26} eager {eager:7.1f}  inductor {inductor:7.1f}  nbcompile {ours:7.1f}"
        f"  | {inductor / ours:.2f}   errors {errors[0]:.0e}, {errors[1]:.0e}",
        flush=True,
    )
    if with_kernels and inductor / ours < 1:
        for backend, call in zip(BACKENDS, calls[1:], strict=True):
            print(f"    {backend}: {kernels(call)}")
    return inductor / ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--set", choices=("first", "second", "all"), default="all")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--kernels", action="store_true")
    asked = parser.parse_args()
    register()
    patterns = {"first": FIRST, "second": SECOND, "all": FIRST | SECOND}[asked.set]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; microseconds")
    found = []
    for name in asked.only or patterns:
        found.append(measured(name, patterns[name], asked.rounds, asked.kernels))
    print(
        f"over Inductor: geomean {statistics.geometric_mean(found):.2f} of {len(found)}; "
        f"below 0.95: {sum(item < 0.95 for item in found)}, the least {min(found):.2f}"
    )


if __name__ == "__main__":
    main()
