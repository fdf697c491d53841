"""Check autotuning on a GPU: five kernels, searched for, then found by another process.

    python scripts/check_autotune.py

Prints every candidate with its time, what the search gained over the first choice (both measured again,
in turns), and whether results and inputs are what they should be before, during and after it. Fails if a
check does. Takes about a minute.
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

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "gpu")]

MODE = "max-autotune-no-cudagraphs"
SECONDS = 12.0
SHOWN = 12


def cases() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """What is searched for: (function, inputs)."""
    import torch
    import torch.nn.functional as F

    def draw(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(shape, device="cuda", dtype=dtype)

    def update(p: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return p.mul_(0.999).sub_(g, alpha=0.01)

    half, single = torch.bfloat16, torch.float32
    torch.manual_seed(0)
    return {
        "softmax": (lambda x: torch.softmax(x, -1), (draw(16_384, 8192, dtype=half),)),
        "layer_norm": (
            lambda x, w, b: F.layer_norm(x, (4096,), w, b),
            (draw(32_768, 4096, dtype=half), draw(4096, dtype=half), draw(4096, dtype=half)),
        ),
        "column sums": (lambda x: x.sum(0), (draw(16_384, 8192, dtype=single),)),
        "transposed add": (
            lambda x, y: x.t() + y,
            (draw(8192, 8192, dtype=single), draw(8192, 8192, dtype=single)),
        ),
        "update in place": (update, (draw(1 << 26, dtype=single), draw(1 << 26, dtype=single))),
    }


def main() -> int:
    """Run every check; the number of those that failed."""
    again = "again" in sys.argv
    if not again:
        os.environ["NBCOMPILE_CACHE_DIR"] = tempfile.mkdtemp(prefix="nbcompile-check-")
    import torch

    failed = 0
    if not again:
        print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}")
    for name, (fn, inputs) in cases().items():
        failed += check(name, fn, inputs, again)
        torch.cuda.empty_cache()
    if not again:
        print("\nanother process, the same cache")
        run = subprocess.run([sys.executable, __file__, "again"], check=False)
        failed += run.returncode
        print(f"\n{failed} checks failed" if failed else "\nall checks passed")
    return failed


def check(name: str, fn: Callable[..., Any], inputs: tuple[Any, ...], again: bool) -> int:
    """Three calls of one function, beside the same without autotuning; 1 if something is wrong."""
    import torch
    from gpu_timing import interleaved

    import nbcompile

    problems: list[str] = []
    told: list[str] = []
    tuned = nbcompile.compile(fn, mode=MODE, options={"autotune_seconds": SECONDS}, progress=told.append)
    plain = nbcompile.compile(fn)
    spent = []
    for number in range(3):
        mine, theirs = [item.clone() for item in inputs], [item.clone() for item in inputs]
        begun = time.perf_counter()
        got = tuned(*mine)
        torch.cuda.synchronize()
        spent.append(time.perf_counter() - begun)
        want = fn(*theirs)
        for what, one, two in (("result", got, want), *zip(("input",) * 9, mine, theirs, strict=False)):
            off = float((one.float() - two.float()).norm() / two.float().norm())
            if not off < (1e-2 if one.dtype == torch.bfloat16 else 1e-5):
                problems.append(f"call {number + 1}: {what} is off by {off:.1e}")
        if tuned.eager_reason:
            problems.append(f"call {number + 1}: {tuned.eager_reason}")
        del mine, theirs, got, want
    choices = tuned.compilation.autotune
    cached = [item for item in choices if "from cache" in item.note]
    searches = [text for text in told if text.startswith("autotuning")]
    if not choices or not any(item.chosen and item.seconds for item in choices):
        problems.append("no candidate was chosen")
    if again and (searches or len(cached) != len(choices)):
        problems.append("searched again")
    if not again and not searches:
        problems.append("nothing was searched for")
    if any(kernel.seconds is None for kernel in tuned.compilation.kernels):
        problems.append("a kernel has no measured time")
    plain(*inputs)
    calls = {"first choice": lambda: plain(*inputs), "winner": lambda: tuned(*inputs)}
    samples = interleaved(calls, "cuda", budget=0.5, kernels=True)
    before, after = (sorted(values)[len(values) // 2] for values in samples.values())
    calls_took = ", ".join(f"{item * 1e3:.0f}" for item in spent)
    print(
        f"\n{name}: calls of {calls_took} ms, {len(choices)} candidates; "
        f"{before * 1e6:.1f} µs before, {after * 1e6:.1f} µs with the winners ({before / after:.3f})"
    )
    if after > 1.03 * before:
        problems.append("the winners are slower than the first choice")
    for kernel in dict.fromkeys(item.kernel for item in choices) if not again else ():
        rows = sorted((c for c in choices if c.kernel == kernel), key=lambda c: c.seconds or 1.0)
        for item in [row for n, row in enumerate(rows) if n < SHOWN or row.chosen]:
            mark, seconds = "✓" if item.chosen else " ", f"{(item.seconds or 0) * 1e6:9.2f} µs"
            print(f"  {mark} {seconds if item.seconds else '         none'}  {item.candidate:60} {item.note}")
    for text in (*tuned.compilation.notes, *problems):
        print(f"  ! {text}")
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
