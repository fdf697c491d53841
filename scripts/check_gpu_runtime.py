"""Check the run time of Triton kernels on a GPU, and measure what a launch and a cold compile cost.

    python scripts/check_gpu_runtime.py

Hand-written kernels are compiled by our own run time and launched by our own launcher; their numbers are
compared with torch's. Prints one line a check, then a table of times; fails if a check does. Takes some
20 seconds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

TRANSPOSE = """

@triton.jit
def transpose(x, y, n, m, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (i[:, None] < n) & (j[None, :] < m)
    tile = tl.load(x + i[:, None] * m + j[None, :], inside, other=0.0)
    turned = (j[:, None] < m) & (i[None, :] < n)
    tl.store(y + j[:, None] * n + i[None, :], tl.trans(tile), turned)


@triton.jit
def tiny(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n) + 1.0, i < n)
"""


def main() -> int:
    """Run every check; the number of those that failed."""
    os.environ["NBCOMPILE_CACHE_DIR"] = tempfile.mkdtemp(prefix="nbcompile-check-")
    if len(sys.argv) > 1 and sys.argv[1] == "cold":
        return cold(early="early" in sys.argv)
    import torch
    import triton

    name = torch.cuda.get_device_name(0)
    print(f"{name}, torch {torch.__version__}, triton {triton.__version__}, python {sys.version.split()[0]}")
    bench = Bench()
    failed = 0
    for check in (
        numbers, large_shared_memory, unaligned, sizes_of_any_kind, empty_grid, streams_and_threads,
        in_a_graph, together, refused, without_a_compiler,
    ):  # fmt: skip
        start = time.perf_counter()
        try:
            check(bench)
            torch.cuda.synchronize()
            said = "ok"
        except Exception as error:  # each check is reported, whatever it raises
            said, failed = f"FAILED: {type(error).__name__}: {error}", failed + 1
        print(f"{check.__name__.replace('_', ' '):24} {said}   {time.perf_counter() - start:.2f} s")
    overhead(bench)
    for mode in ((), ("early",)):
        subprocess.run([sys.executable, __file__, "cold", *mode], check=False)
    return failed


class Bench:
    """The kernels, compiled for the device that is here."""

    def __init__(self) -> None:
        import torch

        from nbcompile import targets
        from nbcompile.compiler.runtime.gpu.build import build
        from nbcompile.compiler.runtime.gpu.launch import launchers
        from nbcompile.compiler.stages import Argument, Config, Launch
        from tests.compiler.runtime.gpu.samples import LAUNCHES, TEXT, sample

        size = Argument("n", "i32", hint=1024)
        pair = (Argument("x", "*fp32"), Argument("y", "*fp32", ours=True))
        self.launches = {
            **LAUNCHES,
            "transpose": Launch(
                "transpose", "k", (*pair, size, Argument("m", "i32", hint=512)),
                ("cdiv(n, BLOCK)", "cdiv(m, BLOCK)"), (Config({"BLOCK": 128}, warps=8),),
            ),
            "tiny": Launch("tiny", "k", (*pair, size), ("cdiv(n, BLOCK)",), (Config({"BLOCK": 1024}),)),
        }  # fmt: skip
        self.chip = targets.of_device(0)
        self.device = torch.device("cuda", 0)
        self.source = sample(text=TEXT + TRANSPOSE, launches=tuple(self.launches.values()))
        self.built = build(self.source, self.chip)
        self.call = launchers(self.source, self.built, self.chip, self.device)


def numbers(bench: Bench) -> None:
    import torch

    x = torch.randn(100_000, device="cuda").bfloat16()
    y = torch.empty_like(x)
    bench.call["pointwise"](x, y, x.numel())
    expected = torch.nn.functional.silu(x.double()) * 2 + x.double().tanh()
    torch.testing.assert_close(y.double(), expected, rtol=1e-2, atol=1e-2)
    x = torch.randn(3000, 3000, device="cuda").bfloat16()
    y = torch.empty_like(x)
    bench.call["softmax"](x, y, 3000)
    torch.testing.assert_close(y.double(), x.double().softmax(-1), rtol=1e-2, atol=1e-6)
    total = torch.empty(3000, device="cuda")
    bench.call["row_sum"](x.half(), total, 3000)
    torch.testing.assert_close(total, x.half().float().sum(1), rtol=1e-4, atol=1e-2)


def large_shared_memory(bench: Bench) -> None:
    import torch

    assert bench.built["transpose"].shared_bytes > 48 << 10, bench.built["transpose"].shared_bytes
    x = torch.randn(1000, 777, device="cuda")
    y = torch.empty(777, 1000, device="cuda")
    bench.call["transpose"](x, y, 1000, 777)
    assert torch.equal(y, x.t())


def unaligned(bench: Bench) -> None:
    import torch

    x = torch.randn(1025, device="cuda")
    for shift in (1, 2, 3, 4):
        y = torch.zeros(1030, device="cuda")
        bench.call["tiny"](x[1:], y[shift : shift + 1024], 1024)
        assert torch.equal(y[shift : shift + 1024], x[1:] + 1)
        assert y[:shift].count_nonzero() == 0 and y[shift + 1024 :].count_nonzero() == 0


def sizes_of_any_kind(bench: Bench) -> None:
    import torch

    x = torch.randn(5000, device="cuda")
    for size in (1, 15, 16, 17, 1000, 1024, 1025, 4999):
        y = torch.zeros(5000, device="cuda")
        bench.call["tiny"](x, y, size)
        assert torch.equal(y[:size], x[:size] + 1) and y[size:].count_nonzero() == 0


def empty_grid(bench: Bench) -> None:
    import torch

    x = torch.empty(0, device="cuda")
    bench.call["tiny"](x, x, 0)


def streams_and_threads(bench: Bench) -> None:
    import torch

    x, y = torch.randn(1 << 24, device="cuda"), torch.zeros(1 << 24, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        bench.call["tiny"](x, y, x.numel())
    assert not stream.query(), "it was not put on the current stream"
    stream.synchronize()
    assert torch.equal(y, x + 1)
    y.zero_()
    torch.cuda.synchronize()
    thread = threading.Thread(target=bench.call["tiny"], args=(x, y, x.numel()))  # has no context as yet
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert torch.equal(y, x + 1)


def in_a_graph(bench: Bench) -> None:
    import torch

    x, y = torch.randn(4096, device="cuda"), torch.zeros(4096, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bench.call["tiny"](x, y, 4096)
    x.copy_(torch.ones_like(x))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, torch.full_like(y, 2))


def together(bench: Bench) -> None:
    import torch

    from nbcompile.compiler.runtime.gpu.launch import resident_programs
    from nbcompile.errors import LaunchError

    most = resident_programs(bench.built["whole_sum"], bench.chip, bench.device)
    print(f"    {most} programs of whole_sum fit at once")
    for programs, fits in ((most, True), (most + 1, False)):
        x = torch.rand(programs * 128, device="cuda")
        y, done = torch.zeros(1, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
        expected = x / x.sum()
        try:
            bench.call["whole_sum"](x, y, done, x.numel())
        except LaunchError as error:
            assert not fits, error
            assert "COOPERATIVE_LAUNCH_TOO_LARGE" in str(error), error
        else:
            assert fits, "the driver took more programs than fit"
            torch.testing.assert_close(x, expected, rtol=1e-4, atol=0)


def refused(bench: Bench) -> None:
    import torch

    from nbcompile.errors import LaunchError

    x = torch.empty(16, device="cuda")
    for args, says in (((x,), "takes 3 arguments"), ((x, x, 1 << 40), "does not hold")):
        try:
            bench.call["tiny"](*args)
        except LaunchError as error:
            assert says in str(error), error
        else:
            raise AssertionError(f"{args} was taken")


def without_a_compiler(bench: Bench) -> None:
    import torch

    call = python_launchers(bench)
    x, y = torch.randn(1000, device="cuda"), torch.zeros(1000, device="cuda")
    call["tiny"](x, y, 1000)
    assert torch.equal(y, x + 1)


def python_launchers(bench: Bench) -> Any:
    """What a machine without a C compiler gets."""
    from nbcompile.compiler.runtime.gpu import launch as triton_launch

    native, triton_launch.native_launcher = triton_launch.native_launcher, lambda: None  # type: ignore[assignment]
    try:
        return triton_launch.launchers(bench.source, bench.built, bench.chip, bench.device)
    finally:
        triton_launch.native_launcher = native


def overhead(bench: Bench) -> None:
    """Host time of a launch, in microseconds: the median of bursts that the queue can hold."""
    import torch

    from nbcompile.compiler.runtime.gpu.compile import load_file

    x, y = torch.zeros(1024, device="cuda"), torch.zeros(1024, device="cuda")
    ours, plain = bench.call["tiny"], python_launchers(bench)["tiny"]
    kernel = load_file(bench.source.source).tiny
    contestants: dict[str, Callable[[], object]] = {
        "our launcher": lambda: ours(x, y, 1024),
        "our launcher, no C compiler": lambda: plain(x, y, 1024),
        "triton kernel[grid](...)": lambda: kernel[(1,)](x, y, 1024, BLOCK=1024),
        "torch.add(x, 1, out=y)": lambda: torch.add(x, 1, out=y),
        "x + 1": lambda: x + 1,
        "nothing": lambda: None,
    }
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(30):
        for name, call in contestants.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(200):
                call()
            samples[name].append((time.perf_counter() - start) / 200 * 1e6)
    print(f"\n{'one launch, host time':32} median µs   least µs")
    for name, times in samples.items():
        print(f"{name:32} {statistics.median(times):9.2f} {min(times):10.2f}")


def cold(early: bool) -> int:
    """Eight kernels in a fresh process with an empty cache: seconds to the last cubin."""
    import torch

    from nbcompile.compiler.runtime.gpu import build as triton_build
    from nbcompile.compiler.stages import Config
    from nbcompile.options import Options
    from nbcompile.record.recorder import Recorder
    from nbcompile.targets import parse
    from tests.compiler.runtime.gpu.samples import LAUNCHES, sample

    facts = torch.cuda.get_device_properties(0)
    chip = parse(f"cuda:{facts.major}{facts.minor}")
    if early:
        triton_build.prestart(chip)
        time.sleep(1.0)  # what capture would take
    options = Options()
    source = sample(*LAUNCHES)
    chosen = {
        "pointwise": Config({"BLOCK": 2048}, warps=8), "softmax": Config({"BLOCK": 8192}, warps=16),
        "row_sum": Config({"BLOCK": 1024}), "whole_sum": Config({"BLOCK": 512}),
    }  # fmt: skip
    start = time.perf_counter()
    first = triton_build.find_or_build(source, chip, options, Recorder(options))
    second = triton_build.find_or_build(source, chip, options, Recorder(options), chosen)
    first.built()
    second.built()
    spent = time.perf_counter() - start
    start = time.perf_counter()
    triton_build.find_or_build(source, chip, options, Recorder(options)).built()
    warm = time.perf_counter() - start
    print(
        f"8 kernels cold, {os.cpu_count()} cores{', Triton started early' if early else ''}: {spent:.3f} s; "
        f"4 of them from the cache: {warm * 1e3:.1f} ms"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
