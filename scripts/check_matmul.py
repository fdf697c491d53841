"""Matrix products of ours against ATen's, on a GPU: is each right, which way is chosen, how fast is it.

    python scripts/check_matmul.py [word ...]

Each case is run eagerly, in the default mode (ATen's product, kernels of ours for the rest) and under
``max-autotune-no-cudagraphs`` (both ways measured; the first call, the one that searches, and then the
steady ones). A table of milliseconds and TFLOP/s, for each case the candidates that were fastest of each
template, and what the record says of the epilogue. With words, only cases whose name holds one. Last, what
no search tries: warp-specialized kernels, in a process of their own with a time limit, as they may hang.
Takes some 100 seconds; fails if a result is wrong or if the choice is slower than the default by over 3 %.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

SLOWER = 1.03
SPECIALIZED = "--specialized"
SPECIALIZED_SECONDS = 40
SPECIALIZED_CASE = "linear gelu 8192×4096×4096"
ROUNDS = 12


def main() -> int:
    """Run every case; the number of those that failed."""
    os.environ["NBCOMPILE_CACHE_DIR"] = tempfile.mkdtemp(prefix="nbcompile-check-")
    import torch
    import triton

    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, triton {triton.__version__}")
    head = ("case", "eager ms", "default", "ours", "TFLOP/s", "default", "ours", "search s", "chosen")
    print("{:<34} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}  {}".format(*head))
    failed = 0
    wanted = [word for word in sys.argv[1:] if word != SPECIALIZED]
    if SPECIALIZED in sys.argv:
        specialize()
    for name, fn, inputs, flops in cases():
        if not wanted or any(word in name for word in wanted):
            failed += one(name, fn, inputs, flops)
            torch.cuda.empty_cache()
    if SPECIALIZED in sys.argv:
        return failed
    if not wanted:
        command = [sys.executable, __file__, SPECIALIZED, SPECIALIZED_CASE]
        try:
            subprocess.run(command, timeout=SPECIALIZED_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            print(f"warp-specialized kernels: nothing after {SPECIALIZED_SECONDS} s, they hang")
    print(f"{failed} failed" if failed else "all is well")
    return failed


def specialize() -> None:
    """Let the persistent template be tried with warps that only load."""
    from nbcompile.compiler.schedule import products
    from nbcompile.compiler.stages import Config

    def configs(*_: Any) -> tuple[Config, ...]:
        names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "FLATTEN", "WARP_SPECIALIZE", "PROGRAMS")
        return tuple(
            Config(dict(zip(names, (m, n, 64, 8, 0, 1, 1), strict=True)), 4, stages)
            for m, n, stages in ((128, 128, 4), (128, 128, 3), (128, 256, 3), (128, 256, 2), (256, 128, 3))
        )

    setattr(products, "persistent_configs", configs)  # noqa: B010


def cases() -> list[tuple[str, Callable[..., Any], Callable[[], list[Any]], float]]:
    """(name, function, its inputs, operations of its products)."""
    import torch

    F = torch.nn.functional
    bf16, f16, f32 = torch.bfloat16, torch.float16, torch.float32

    def made(*shapes: tuple[int, ...], dtype: torch.dtype = bf16) -> Callable[[], list[Any]]:
        return lambda: [torch.randn(shape, device="cuda", dtype=dtype) * 0.25 for shape in shapes]

    def linear(act: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, w, b: act(F.linear(x, w, b))

    def gate(x: Any, w: Any, v: Any) -> Any:
        return F.silu(F.linear(x, w)) * F.linear(x, v)

    def kept(x: Any, w: Any, b: Any) -> Any:
        y = F.linear(x, w, b)
        return y, F.gelu(y)

    def scores(q: Any, k: Any) -> Any:
        return torch.bmm(q, k.transpose(1, 2)) * 0.125 + 1.0

    def product(m: int, n: int, k: int, batch: int = 1) -> float:
        return 2.0 * m * n * k * batch

    def tanh_gelu(x: Any) -> Any:
        return F.gelu(x, approximate="tanh")

    big = made((8192, 4096), (4096, 4096), (4096,))
    return [
        ("mm 4096³ bf16", torch.mm, made((4096, 4096), (4096, 4096)), product(4096, 4096, 4096)),
        ("mm of w.t() 8192³ bf16", lambda x, w: x @ w.t(), made((8192, 8192), (8192, 8192)),
         product(8192, 8192, 8192)),
        ("linear gelu 8192×4096×4096", linear(F.gelu), big, product(8192, 4096, 4096)),
        ("linear gelu tanh 8192×16384×4096", linear(tanh_gelu), made((8192, 4096), (16384, 4096), (16384,)),
         product(8192, 16384, 4096)),
        ("linear relu² 8192×4096×1024", linear(lambda y: F.relu(y).square()),
         made((8192, 1024), (4096, 1024), (4096,)), product(8192, 4096, 1024)),
        ("linear residual 8192×4096×4096", lambda x, w, b, r: F.linear(x, w, b) + r,
         made((8192, 4096), (4096, 4096), (4096,), (8192, 4096)), product(8192, 4096, 4096)),
        ("linear kept + gelu 8192×4096×4096", kept, big, product(8192, 4096, 4096)),
        ("gate 8192×11008×4096", gate, made((8192, 4096), (11008, 4096), (11008, 4096)),
         2 * product(8192, 11008, 4096)),
        ("weight gradient 4096×4096×8192", lambda x, y: (x.t() @ y).float(),
         made((8192, 4096), (8192, 4096)), product(4096, 4096, 8192)),
        ("ragged 4100×4088×4104 relu", linear(F.relu), made((4100, 4104), (4088, 4104), (4088,)),
         product(4100, 4088, 4104)),
        ("odd 4097×4095×4099 relu", linear(F.relu), made((4097, 4099), (4095, 4099), (4095,)),
         product(4097, 4095, 4099)),
        ("few rows 16×11008×4096 silu", linear(F.silu), made((16, 4096), (11008, 4096), (11008,)),
         product(16, 11008, 4096)),
        ("small 512×512×512 gelu", linear(F.gelu), made((512, 512), (512, 512), (512,)),
         product(512, 512, 512)),
        ("bmm 128×1024×1024×64 scaled", scores, made((128, 1024, 64), (128, 1024, 64)),
         product(1024, 1024, 64, 128)),
        ("linear gelu f16 4096³", linear(F.gelu), made((4096, 4096), (4096, 4096), (4096,), dtype=f16),
         product(4096, 4096, 4096)),
        ("linear gelu tf32 4096³", with_tf32(linear(F.gelu)),
         made((4096, 4096), (4096, 4096), (4096,), dtype=f32), product(4096, 4096, 4096)),
        ("linear gelu f32 2048³", linear(F.gelu), made((2048, 2048), (2048, 2048), (2048,), dtype=f32),
         product(2048, 2048, 2048)),
    ]  # fmt: skip


def with_tf32(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, marked to be measured with float32 matrices multiplied in tf32."""
    fn.tf32 = True  # type: ignore[attr-defined]
    return fn


def one(name: str, fn: Callable[..., Any], inputs: Callable[[], list[Any]], flops: float) -> int:
    """One case: a line of the table, the best candidates, the decision; whether it failed."""
    import torch

    import nbcompile

    torch.backends.cuda.matmul.allow_tf32 = hasattr(fn, "tf32")
    generator = torch.cuda.default_generators[0]
    generator.manual_seed(0)
    args = inputs()
    expected = fn(*args)
    default = nbcompile.compile(fn, fullgraph=True)
    ours = nbcompile.compile(fn, mode="max-autotune-no-cudagraphs", fullgraph=True)
    default(*args)
    begun = time.perf_counter()
    wrong = difference(ours(*args), expected)
    first = time.perf_counter() - begun
    torch.cuda.synchronize()
    wrong = wrong or difference(ours(*args), expected)
    torch.cuda.synchronize()
    search = time.perf_counter() - begun - first
    wrong = wrong or difference(ours(*args), expected)
    seconds = interleaved([lambda: fn(*args), lambda: default(*args), lambda: ours(*args)])
    record = ours.compilation
    chosen = [item.candidate for item in record.autotune if item.chosen]
    rates = [flops / item / 1e12 for item in seconds]
    print(
        f"{name:<34} {seconds[0] * 1e3:8.3f} {seconds[1] * 1e3:8.3f} {seconds[2] * 1e3:8.3f} "
        f"{rates[0]:8.0f} {rates[1]:8.0f} {rates[2]:8.0f} {search:8.1f}  {'; '.join(chosen)}"
    )
    show(record)
    if not ours.ran_compiled:
        wrong = wrong or f"it ran eagerly: {ours.eager_reason}"
    slow = seconds[2] > SLOWER * seconds[1]
    if wrong:
        print(f"    FAILED: {wrong}")
    if slow:
        print(f"    FAILED: {seconds[2] / seconds[1]:.2f} times the default's time")
    return int(bool(wrong) or slow)


def show(record: Any) -> None:
    """The fastest of each template, what went wrong, and the decisions about products."""
    for kernel in dict.fromkeys(item.kernel for item in record.autotune):
        tried = [item for item in record.autotune if item.kernel == kernel]
        timed = sorted((item for item in tried if item.seconds is not None), key=lambda item: item.seconds)
        for way in dict.fromkeys(item.candidate.partition(":")[0] for item in timed):
            best = [item for item in timed if item.candidate.partition(":")[0] == way][:2]
            told = ", ".join(f"{item.candidate} {item.seconds * 1e6:,.0f} µs {item.note}" for item in best)
            print(f"      {told}")
        notes: dict[str, int] = {}
        for item in tried:
            if item.seconds is None:
                notes[item.note] = notes.get(item.note, 0) + 1
        for note, count in notes.items():
            print(f"      {count} without a time: {note}")
    for item in record.decisions:
        if item.code in ("measured", "epilogue"):
            print(f"      {item.reason}")
    for note in record.notes:
        print(f"      note: {note}")


def difference(got: Any, expected: Any) -> str:
    """What is wrong with results; empty if they are eager's but for rounding."""
    pairs = zip(*(item if isinstance(item, tuple) else (item,) for item in (got, expected)), strict=True)
    for mine, theirs in pairs:
        a, b = mine.double(), theirs.double()
        error = float((a - b).norm() / b.norm())
        if not error < 1e-2:
            return f"differs from eager by {error:.1e}"
    return ""


def interleaved(calls: list[Callable[[], Any]]) -> list[float]:
    """Median seconds of each call on the GPU, taking turns."""
    import torch

    samples: list[list[float]] = [[] for _ in calls]
    event: Any = torch.cuda.Event
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for _ in range(ROUNDS):
        for place, call in enumerate(calls):
            start, stop = event(enable_timing=True), event(enable_timing=True)
            flush.zero_()
            start.record()
            call()
            stop.record()
            stop.synchronize()
            samples[place].append(start.elapsed_time(stop) / 1e3)
    return [sorted(item)[len(item) // 2] for item in samples]


if __name__ == "__main__":
    sys.exit(main())
