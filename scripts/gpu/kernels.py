"""Kernels at the limit of the memory: share of copy bandwidth, cold compile time, error against float64.

    python scripts/gpu/kernels.py [--only NAMES] [--contestants NAMES] [--budget SECONDS] [--quick]

Steady times are the GPU's own (CUDA events around calls already queued), contestants in turns. For a
backward kernel only the backward pass is timed. Cold compiles are in fresh processes with empty caches.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import cold
import runner
import torch
from contestants import OURS, PEER, PEER_MAX, Contestant, compile_with
from gpu_timing import in_turn, input_sets, interleaved, summary
from items import Backward, Maker, copies, in_float64, keep_buffers, with_gradients
from kernel_list import BY_NAME, KERNELS, Kernel
from runner import Run, say

CONTESTANTS = ("eager", OURS, PEER, PEER_MAX)


def arguments_of(kernel: Kernel, device: str, tiny: bool, seed: int = 0) -> tuple[Any, ...]:
    args = kernel.inputs(Maker(device, tiny, seed))
    return with_gradients(args) if kernel.backward else args


def program(name: str, device: str, tiny: bool) -> tuple[Any, Any]:
    """What cold.py asks for: the function, and what the first result of it takes."""
    kernel = BY_NAME[name]
    args = arguments_of(kernel, device, tiny)
    if kernel.backward:
        keep_buffers()
        return kernel.fn, lambda compiled: Backward(compiled, args)()

    def first(compiled: Any) -> Any:
        with torch.no_grad():
            return compiled(*args)

    return kernel.fn, first


def measure(kernel: Kernel, run: Run, machine: dict[str, Any]) -> None:
    """Compile for everyone, check everyone, then time everyone in turns; one record."""
    tiny = run.arguments.tiny
    sets = input_sets(lambda seed: arguments_of(kernel, run.device, tiny, seed), run.device)
    reference = None if kernel.error else reference_of(kernel, sets[0])
    ready: dict[str, list[Any]] = {}
    errors: dict[str, float] = {}
    notes: dict[str, Any] = {}
    fewest = 0
    for name in run.arguments.contestants:
        contestant = compile_with(name, kernel.fn)
        made = run.attempt(kernel.name, name, lambda c=contestant: checked(kernel, c, sets, reference))
        if made is None:
            continue
        if reason := contestant.why_eager():
            run.failed(kernel.name, name, reason)
            continue
        ready[name], errors[name], fewest = made
        notes[name] = contestant.facts()
    calls = {name: in_turn(prepared) for name, prepared in ready.items()}
    budget = 0.15 if run.arguments.quick else 0.5
    with torch.set_grad_enabled(kernel.backward):
        samples = interleaved(calls, run.device, budget=budget, kernels=True)
    times = {name: summary(values) for name, values in samples.items()}
    limit = fewest / machine["copy_bandwidth"]
    run.write(
        "steady", item=kernel.name, times=times, bytes=fewest, limit=limit, errors=errors, goal=kernel.goal,
        backward=kernel.backward, notes=notes,
    )  # fmt: skip
    shares = [
        f"{name} {limit / each['median']:.2f} ({each['median'] * 1e6:.0f} µs, error {errors[name]:.1e})"
        for name, each in times.items()
    ]
    say(f"{kernel.name}: {', '.join(shares)}")


def reference_of(kernel: Kernel, args: tuple[Any, ...]) -> Any:
    """The results in float64."""
    wide = in_float64(args)
    if kernel.backward:
        backward = Backward(kernel.fn, wide)
        narrow = Backward(kernel.fn, args)
        backward.cotangents = [each.to(torch.float64) for each in narrow.cotangents]
        return list(backward())
    with torch.no_grad():
        return kernel.results(wide, kernel.fn(*wide))


def checked(
    kernel: Kernel, contestant: Contestant, sets: list[tuple[Any, ...]], reference: Any
) -> tuple[list[Any], float, int]:
    """What is called for each set of inputs, the error of the first, and the fewest bytes."""
    if kernel.backward:
        keep_buffers()
        prepared: list[Any] = [Backward(contestant.fn, args) for args in sets]
        results = prepared[0]()
        error = kernel.error_of(list(results), sets[0], reference)
        return prepared, error, kernel.bytes(sets[0], results)
    with torch.no_grad():
        args = copies(sets[0]) if kernel.mutates else sets[0]
        returned = contestant.fn(*args)
        error = kernel.error_of(kernel.results(args, returned), args, reference)
        fewest = kernel.bytes(args, returned)
        return [functools.partial(contestant.fn, *args) for args in sets], error, fewest


def main(argv: Sequence[str] | None = None) -> int:
    run = runner.start("kernels", __doc__ or "", argv, CONTESTANTS)
    names = [kernel.name for kernel in KERNELS]
    if run.arguments.list:
        say("\n".join(names))
        return 0
    torch.backends.cuda.matmul.allow_tf32 = False
    machine = runner.describe_machine(run)
    for name in run.items(names):
        run.attempt(name, "all", lambda name=name: measure(BY_NAME[name], run, machine))
    if not run.arguments.no_cold:
        cold.measure(run, "kernels", names)
    return runner.finish(run)


if __name__ == "__main__":
    sys.exit(main())
