"""How long a second process waits for a training step: what the first has compiled lies in the caches.

    python scripts/warm_process.py [--blocks N …] [--repeats N] [--only NAME …]

For each number of transformer blocks and each compiler a fresh process compiles and runs one training step
with empty caches (cold), and others do so again with the caches as they are then (warm), compilers by turns.
Noted is the time from before torch.compile's first call to after backward. Imports are apart: each process
has compiled one line of another program before. ``first`` is a warm process that has not, with all that it
imports and looks up once, but for what is imported for both before (torch, Dynamo, AOTAutograd, Inductor).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPILERS = ("nbcompile", "inductor")
PROGRAM = """
import sys, time
import torch, torch.nn as nn
import torch._dynamo, torch._inductor.compile_fx, torch._functorch.aot_autograd
import nbcompile
import nbcompile.backends.nbcompile as ours
ours.register()
compiler, blocks, before, profile = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "before", sys.argv[4]
torch.manual_seed(0)
if before:
    y = torch.ones(3, requires_grad=True)
    torch.compile(lambda y: (y * 2).sum(), backend=compiler)(y).backward()
    torch._dynamo.utils.counters.clear()
def block():
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
model = nn.Sequential(*(block() for _ in range(blocks)))
x = torch.randn(2, 16, 64)
def step():
    loss = compiled(x).square().mean()
    loss.backward()
if profile:
    import cProfile
    profiler = cProfile.Profile()
    profiler.enable()
start, used = time.perf_counter(), time.process_time()
compiled = torch.compile(model, backend=compiler)
step()
spent, used = time.perf_counter() - start, time.process_time() - used
if profile:
    profiler.disable()
    profiler.dump_stats(profile)
counters = torch._dynamo.utils.counters["aot_autograd"]
named = {name.removeprefix("autograd_cache_"): n for name, n in counters.items() if "cache" in name}
told = ",".join(f"{name}={n}" for name, n in named.items())
print("seconds", spent, used, told or "-")
"""


def seconds(
    compiler: str, blocks: int, folder: Path, before: bool = True, profile: str = ""
) -> tuple[float, float, str]:
    """What one fresh process takes with the caches in ``folder``, of the clock and of its own processor time,
    and what AOTAutograd's counters say."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, compiler, str(blocks), "before" if before else "", profile],
        capture_output=True, text=True, check=False,
        env={
            **os.environ,
            "NBCOMPILE_CACHE_DIR": str(folder / "nbcompile"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "PYTHONPATH": str(ROOT),
        },
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    _, spent, used, told = next(line for line in done.stdout.splitlines() if line[:7] == "seconds").split()
    return float(spent), float(used), told


def measured(blocks: int, repeats: int, compilers: tuple[str, ...]) -> None:
    """Print a line for each compiler: the medians of cold and of warm processes."""
    cold, warm, used, first = (defaultdict[str, list[float]](list) for _ in range(4))
    said = {}
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        for turn in range(repeats):
            for compiler in compilers:
                folder = Path(name) / f"{compiler}{turn}"
                cold[compiler].append(seconds(compiler, blocks, folder)[0])
            for compiler in compilers:
                folder = Path(name) / f"{compiler}{turn}"
                spent, processor, said[compiler] = seconds(compiler, blocks, folder)
                warm[compiler].append(spent)
                used[compiler].append(processor)
                first[compiler].append(seconds(compiler, blocks, folder, before=False)[0])
    for compiler in compilers:
        a, b, c, d = (statistics.median(each[compiler]) for each in (cold, warm, used, first))
        told = f"cold {a:7.2f} s  warm {b:6.3f} s (processor {c:6.3f})  first {d:6.3f} s  {said[compiler]}"
        print(f"{blocks:3} blocks  {compiler:10} {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=COMPILERS, default=COMPILERS)
    parser.add_argument("--profile", metavar="FILE", help="of one warm process, for pstats, and no times")
    given = parser.parse_args()
    if given.profile:
        with tempfile.TemporaryDirectory(prefix="warm-") as folder:
            for profile in ("", given.profile):
                print(seconds(given.only[0], given.blocks[0], Path(folder), profile=profile))
        return
    for blocks in given.blocks:
        measured(blocks, given.repeats, tuple(given.only))


if __name__ == "__main__":
    main()
