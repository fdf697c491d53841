"""Check CUDA-graph replay on a GPU: right results in every situation that could break it, and what it costs.

    python scripts/check_cuda_graphs.py

Prints a line a check, then the notes that the compiles left, then a table of times; fails if a check does.
Takes about a minute.
"""

from __future__ import annotations

import collections
import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "gpu")]

COUNTS: collections.Counter[str] = collections.Counter()
NOTES: dict[str, None] = {}


def main() -> int:
    """Run every check; the number of those that failed."""
    os.environ["NBCOMPILE_CACHE_DIR"] = tempfile.mkdtemp(prefix="nbcompile-check-")
    import graph_costs
    import torch

    version = f"torch {torch.__version__}, python {sys.version.split()[0]}"
    print(f"{torch.cuda.get_device_name(0)}, {version}")
    torch.set_float32_matmul_precision("highest")
    failed = 0
    for check in CHECKS:
        start = time.perf_counter()
        NOTES.clear()
        COUNTS.clear()
        torch.manual_seed(0)
        try:
            with counted():
                told = check() or ""
            torch.cuda.synchronize()
            said = "ok"
        except Exception as error:  # each check is reported, whatever it raises
            said, told, failed = "FAILED", f"{type(error).__name__}: {error}", failed + 1
        counts = ", ".join(f"{count} {name}" for name, count in sorted(COUNTS.items()))
        seconds = time.perf_counter() - start
        print(f"{check.__name__.replace('_', ' '):38} {said:6} {seconds:5.1f} s  {counts} {told}")
        for note in NOTES:
            print(f"    note: {note}")
    for table in (graph_costs.small_model, graph_costs.large_input):
        table()
    return failed


@contextmanager
def counted() -> Iterator[None]:
    """Count captures, replays and patched nodes."""
    from nbcompile.compiler.runtime.cuda_graphs.driver import CudaDevice, CudaRecording

    kept = CudaDevice.capture, CudaRecording.update, CudaRecording.__init__

    def capture(self: Any, *args: Any) -> Any:
        COUNTS["captures"] += 1
        return kept[0](self, *args)

    def update(self: Any, nodes: Any) -> None:
        COUNTS["patched nodes"] += len(nodes)
        kept[1](self, nodes)

    def init(self: Any, *args: Any) -> None:
        kept[2](self, *args)
        run = self.replay

        def replay() -> None:
            COUNTS["replays"] += 1
            run()

        self.replay = replay

    CudaDevice.capture, CudaRecording.update, CudaRecording.__init__ = capture, update, init
    try:
        yield
    finally:
        CudaDevice.capture, CudaRecording.update, CudaRecording.__init__ = kept


def compiled(fn: Callable[..., Any], **options: Any) -> Any:
    """``fn`` under reduce-overhead; its notes are printed with the check."""
    import nbcompile

    made = nbcompile.compile(fn, mode=options.pop("mode", "reduce-overhead"), **options)
    add = made.recorder.add

    def adding(part: Any) -> None:
        if isinstance(part, str):
            NOTES[part] = None
        add(part)

    made.recorder.add = adding
    return made


def replays(least: int = 1) -> None:
    """Fail where the check was about launches without a graph after all."""
    assert COUNTS["replays"] >= least, f"replayed {COUNTS['replays']} times, expected {least}"


def mlp(width: int = 256, layers: int = 8, dtype: Any = None) -> Any:
    import torch

    parts: list[Any] = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), torch.nn.GELU()]
    return torch.nn.Sequential(*parts).to("cuda", dtype)


def close(got: Any, want: Any, tolerance: float = 1e-4) -> None:
    import torch

    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


# -- results and inputs --------------------------------------------------------------------------------


def held_results() -> None:
    import torch

    model = mlp()
    fast = compiled(model)
    with torch.no_grad():
        x = torch.randn(32, 256, device="cuda")
        kept = []
        for step in range(24):
            x.copy_(torch.full_like(x, step / 24))
            kept.append((fast(x), model(x)))
        for got, want in kept:
            close(got, want)
    replays(2)


def results_of_the_call_before() -> None:
    import torch

    model = mlp()
    fast = compiled(model)
    with torch.no_grad():
        state = want = torch.randn(32, 256, device="cuda")
        for _ in range(16):
            state, want = fast(state), model(want)
            close(state, want)
    replays(8)


def inputs_elsewhere_through_a_library() -> None:
    import torch

    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 3e-2)):
        model = mlp(1024, 4, dtype)
        fast = compiled(model)
        xs = [torch.randn(512, 1024, device="cuda", dtype=dtype) for _ in range(12)]
        with torch.no_grad():
            for x in [*xs, *reversed(xs)]:
                close(fast(x), model(x), tolerance)
    replays(8)


def inputs_elsewhere_through_our_kernels() -> None:
    import torch

    def f(x: Any, y: Any) -> Any:
        rows = torch.softmax(x * 2 + y, -1)
        return rows, rows.sum(0), (x + 1).amax(0)

    fast = compiled(f)
    xs = [torch.randn(2048, 1024, device="cuda") for _ in range(8)]
    for n in range(24):
        x, y = xs[n % 8], xs[(3 * n + 1) % 8]
        for got, want in zip(fast(x, y), f(x, y), strict=True):
            close(got, want, 1e-3)
    replays(12)
    assert COUNTS["patched nodes"], "no address was patched"
    assert COUNTS["captures"] <= 6, "captured again and again"


def slices_and_offsets() -> None:
    import torch

    def f(x: Any) -> Any:
        return torch.softmax(x, -1), (x * x).sum(0)

    fast = compiled(f)
    base = torch.randn(64, 256, 1024, device="cuda")
    odd = torch.randn(64 * 256 * 1024 + 3, device="cuda")
    for n in range(24):
        x = base[n] if n % 3 else odd[n % 4 : n % 4 + 256 * 1024].view(256, 1024)
        for got, want in zip(fast(x), f(x), strict=True):
            close(got, want, 1e-3)
    replays(6)


def copies_inside_the_graph() -> None:
    import torch

    def f(x: Any, y: Any) -> Any:
        both = torch.cat([x, y]).contiguous()
        return both.clone(), torch.sort(x, -1).values, y @ y.t()

    fast = compiled(f)
    xs = [torch.randn(256, 512, device="cuda") for _ in range(8)]
    for n in range(20):
        x, y = xs[n % 8], xs[(n + 3) % 8]
        for got, want in zip(fast(x, y), f(x, y), strict=True):
            close(got, want, 1e-3)


def overwritten_inputs() -> None:
    import torch

    def f(x: Any, y: Any) -> Any:
        x.add_(y)
        return (x @ y).sum(0), torch.softmax(x, 0)

    fast = compiled(f)
    buffers = [torch.randn(512, 512, device="cuda") for _ in range(5)]
    mirror = [item.clone() for item in buffers]
    y = torch.randn(512, 512, device="cuda")
    for n in range(20):
        got, want = fast(buffers[n % 5], y), f(mirror[n % 5], y)
        for one, other in zip(got, want, strict=True):
            close(one, other, 1e-3)
        close(buffers[n % 5], mirror[n % 5])
    replays(8)


# -- training ------------------------------------------------------------------------------------------


def pair_of_models(**options: Any) -> tuple[Any, Any, Any]:
    import copy

    model = mlp(**options)
    twin = copy.deepcopy(model)
    return model, twin, compiled(model)


def training_with_an_optimizer() -> None:
    import torch

    model, twin, fast = pair_of_models(layers=4)
    steps = [torch.optim.AdamW(item.parameters(), lr=1e-3, foreach=True) for item in (model, twin)]
    losses: list[Any] = []
    for n in range(20):
        x = torch.randn(64, 256, device="cuda")  # at another address now and then
        pads = torch.empty(n * 1000, device="cuda")
        for run, optimizer in ((fast, steps[0]), (twin, steps[1])):
            loss = (run(x) ** 2).mean()
            optimizer.zero_grad(set_to_none=n % 2 == 0)
            loss.backward()
            optimizer.step()
            losses.append(loss)
        del pads
    for got, want in zip(losses[::2], losses[1::2], strict=True):
        close(got, want, 1e-3)
    replays(16)


def losses_inside_the_graph_are_held() -> None:
    import torch

    model = mlp(layers=4)

    def loss_of(x: Any) -> Any:
        return (model(x) ** 2).mean()

    fast = compiled(loss_of)
    x = torch.randn(64, 256, device="cuda")
    kept = []
    for n in range(24):
        x.fill_(n / 24)
        loss = fast(x)
        loss.backward()
        kept.append((loss.detach(), loss_of(x).detach()))
    for got, want in kept:
        close(got, want)
    replays(20)


def accumulated_gradients() -> None:
    import torch

    model, twin, fast = pair_of_models(layers=4)
    for _ in range(4):
        for run in (fast, twin):
            for part in range(4):
                torch.manual_seed(part)
                run(torch.randn(64, 256, device="cuda")).square().sum().backward()
        for one, other in zip(model.parameters(), twin.parameters(), strict=True):
            close(one.grad, other.grad, 1e-2)
        model.zero_grad()
        twin.zero_grad()
    replays(8)


def two_forwards_before_a_backward() -> None:
    import torch

    model, twin, fast = pair_of_models(layers=4)
    x, y = (torch.randn(64, 256, device="cuda") for _ in range(2))
    for _ in range(8):
        for run in (fast, twin):
            (run(x).square().sum() + run(y).sum()).backward()
        for one, other in zip(model.parameters(), twin.parameters(), strict=True):
            close(one.grad, other.grad, 1e-2)
        model.zero_grad()
        twin.zero_grad()
    replays(8)


def dropout_draws_anew() -> None:
    import torch

    def f(x: Any) -> Any:
        return torch.nn.functional.dropout(x * 1.5 + 1, 0.25) @ weight

    weight = torch.eye(512, device="cuda")
    fast = compiled(f)
    x = torch.rand(512, 512, device="cuda", requires_grad=True)
    seen = []
    for _ in range(12):
        y = fast(x)
        y.sum().backward()
        zeros = y == 0
        assert abs(zeros.float().mean().item() - 0.25) < 0.02
        grad = x.grad
        assert grad is not None and torch.equal(grad == 0, zeros), "another mask in the backward"
        x.grad = None
        seen.append(zeros)
        x.data = torch.rand_like(x)
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(seen)), "the same mask again"
    replays(6)
    results = []
    for _ in range(2):
        torch.manual_seed(7)
        results.append(fast(x).detach())
    assert torch.equal(*results), "the same seed gave other numbers"


# -- sizes, streams, failures --------------------------------------------------------------------------


def sizes_that_change() -> None:
    import torch

    def f(x: Any) -> Any:
        return torch.softmax(x, -1), (x * 2).sum(0)

    fast = compiled(f, dynamic=True)
    for n in range(60):
        x = torch.randn(100 + 10 * (n % 6), 128, device="cuda")
        for got, want in zip(fast(x), f(x), strict=True):
            close(got, want, 1e-3)
    replays(12)


def streams_and_threads() -> None:
    import torch

    model = mlp()
    fast = compiled(model)
    wrong = []
    with torch.no_grad():
        x = torch.randn(32, 256, device="cuda")
        for _ in range(4):
            fast(x)

    def work(seed: int) -> None:
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            generator = torch.Generator("cuda").manual_seed(seed)
            for _ in range(20):
                x = torch.randn(32, 256, device="cuda", generator=generator)
                if not torch.allclose(fast(x), model(x), rtol=1e-3, atol=1e-4):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    replays(10)


def a_capture_that_fails_leaves_torch_well() -> None:
    import torch

    from nbcompile.compiler.runtime.cuda_graphs.driver import CudaDevice
    from nbcompile.errors import LaunchError

    machine = CudaDevice(torch.device("cuda", 0))
    x = torch.rand(100, device="cuda")
    try:
        machine.capture(lambda args: torch.rand(9, device="cuda") if args[0].sum().item() else None, [x])
    except LaunchError as error:
        print(f"    ({error.message})")
    else:
        raise AssertionError("a capture with a synchronization did not fail")
    assert torch.rand(1000, device="cuda").unique().numel() > 900  # the generator is not capturing
    torch.empty(1 << 20, device="cuda").zero_()
    recording, (y, z) = machine.capture(lambda args: (args[0] * 2, torch.rand(100, device="cuda")), [x])
    recording.replay()
    before = z.clone()
    recording.replay()
    close(y, x * 2)
    assert not torch.equal(before, z)


def inside_somebody_elses_graph() -> None:
    import torch

    model = mlp()
    fast = compiled(model)
    with torch.no_grad():
        x = torch.randn(32, 256, device="cuda")
        for _ in range(4):
            fast(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = fast(x)
        for n in range(4):
            x.fill_(n / 4)
            graph.replay()
            fast(torch.randn(32, 256, device="cuda"))
            close(y, model(x))


CHECKS = (
    held_results, results_of_the_call_before, inputs_elsewhere_through_a_library,
    inputs_elsewhere_through_our_kernels, slices_and_offsets, copies_inside_the_graph, overwritten_inputs,
    training_with_an_optimizer, losses_inside_the_graph_are_held, accumulated_gradients,
    two_forwards_before_a_backward, dropout_draws_anew, sizes_that_change, streams_and_threads,
    a_capture_that_fails_leaves_torch_well, inside_somebody_elses_graph,
)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
