"""What CUDA-graph replay costs, in tables: a small model, a large input, one patched address."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def microseconds(call: Callable[[], Any], repeats: int = 100, rounds: int = 7) -> float:
    """Median over rounds of one call's time, the device included."""
    import torch

    for _ in range(12):
        call()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / repeats * 1e6)
    return statistics.median(times)


def contestants(fn: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    import torch

    import nbcompile

    return {
        "eager": fn,
        "nbcompile default": nbcompile.compile(fn, mode="default"),
        "nbcompile reduce-overhead": nbcompile.compile(fn, mode="reduce-overhead"),
        "inductor reduce-overhead": torch.compile(fn, mode="reduce-overhead"),
    }


def small_model() -> None:
    """Eight layers of 256, batch 32: µs a call, with the input in one place, in sixteen, and a training
    step."""
    import torch

    parts = [layer for _ in range(8) for layer in (torch.nn.Linear(256, 256), torch.nn.GELU())]
    model = torch.nn.Sequential(*parts).cuda()
    xs = [torch.randn(32, 256, device="cuda") for _ in range(16)]
    print(f"\n{'small model, µs a call':28} {'same input':>11} {'16 inputs':>10} {'training':>9}")
    for name, run in contestants(model).items():
        with torch.no_grad():
            same = microseconds(lambda run=run: run(xs[0]))
            turn = iter(range(1 << 30))
            many = microseconds(lambda run=run, turn=turn: run(xs[next(turn) % 16]))

        def step(run: Any = run) -> None:
            run(xs[0]).sum().backward()
            model.zero_grad()

        training = microseconds(step, repeats=30)
        print(f"{name:28} {same:11.1f} {many:10.1f} {training:9.1f}")
        torch.compiler.reset()


def large_input() -> None:
    """A gigabyte in one of two places: ms a call. A copy of it would be seen."""
    import torch

    def f(x: Any) -> Any:
        return (x * 2 + 1).relu().sum(0), x.amax()

    xs = [torch.randn(16384, 16384, device="cuda") for _ in range(2)]
    copy = microseconds(lambda: xs[0].clone(), repeats=5, rounds=5)
    print(f"\n{'1 GB input, ms a call':28} {'same input':>11} {'2 inputs':>10}   (a copy: {copy / 1e3:.3f})")
    with torch.no_grad():
        for name, run in contestants(f).items():
            same = microseconds(lambda run=run: run(xs[0]), repeats=5, rounds=5)
            turn = iter(range(1 << 30))
            many = microseconds(lambda run=run, turn=turn: run(xs[next(turn) % 2]), repeats=6, rounds=5)
            print(f"{name:28} {same / 1e3:11.3f} {many / 1e3:10.3f}")
            torch.compiler.reset()
    print(f"\na patched node and a small copy: {patch_cost()}")


def patch_cost() -> str:
    """µs of changing the address of one kernel's argument, and of copying 32 KB instead."""
    import torch

    from nbcompile.compiler.runtime.cuda_graphs.driver import CudaDevice

    machine = CudaDevice(torch.device("cuda", 0))
    x, y = (torch.rand(8192, device="cuda") for _ in range(2))
    recording, kept = machine.capture(lambda args: [args[0] + n for n in range(20)], [x])
    nodes = recording.nodes()
    replay = microseconds(recording.replay)
    one = microseconds(lambda: (recording.update(nodes[:1]), recording.replay()))
    ten = microseconds(lambda: (recording.update(nodes[:10]), recording.replay()))
    copied = microseconds(lambda: (y.copy_(x), recording.replay()))
    del kept
    return (
        f"replay of 20 kernels {replay:.1f} µs; with 1 node patched {one:.1f}, 10 nodes {ten:.1f}; "
        f"with one copy {copied:.1f}"
    )
