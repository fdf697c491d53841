"""Seven backends, twelve programs, this machine's CPU: docs/backends.md.

    python scripts/backends_table.py [--only TEXT] [--backends a,b] [--budget SECONDS] [--out FILE]

Each program has a process of its own, in which its contestants take turns; where that dies, each backend
gets one, and only the one that dies is lost. A cell is a time, its ratio to eager and the error against
float64, or the reason why there is none.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BACKENDS = ("nbcompile", "inductor", "aot_eager", "onnxrt", "openvino", "tvm", "xla")
THREADS = 2
MOST_SECONDS = 600  # a program's, all backends together


# -- in the process of one program ----------------------------------------------------------------


def measured(program: str, backends: list[str], budget: float) -> dict[str, Any]:
    """What ``nbcompile.compare`` finds, by contestant, as JSON values."""
    import torch

    import bench_programs
    import nbcompile

    fn, args = bench_programs.build(program)
    with torch.no_grad():
        record = nbcompile.compare(
            fn, args, ("eager", *backends), cold=False, threads=THREADS, budget=budget * (len(backends) + 1)
        )
    found: dict[str, Any] = {}
    for item in record.measurements:
        errors = [
            accuracy.eager_error if item.contestant == "eager" else accuracy.error
            for accuracy in record.accuracy
            if item.contestant in ("eager", accuracy.contestant)
        ]
        known = [error for error in errors if error is not None]
        found[item.contestant] = {
            "reason": item.reason,
            "times": [item.quantile(q) for q in (0.1, 0.5, 0.9)],
            "warm": item.warm,
            "error": max(known, default=None),
            "disagrees": [
                accuracy.reason or accuracy.output
                for accuracy in record.accuracy
                if accuracy.contestant == item.contestant and not accuracy.agrees
            ],
        }
    return found


# -- over all of them -----------------------------------------------------------------------------


def in_own_process(program: str, backends: list[str], budget: float) -> dict[str, Any] | str:
    """What :func:`measured` returns, or why the process ended without."""
    command = [sys.executable, __file__, "--one", program, "--backends", ",".join(backends)]
    # TVM's and OpenMP's threads would otherwise wait for their next call on the cores of the next contestant.
    quiet = {"TVM_THREAD_POOL_SPIN_COUNT": "0", "OMP_WAIT_POLICY": "PASSIVE"}
    try:
        done = subprocess.run(
            [*command, "--budget", str(budget)],
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            env={**os.environ, **quiet},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"took more than {MOST_SECONDS} s"
    if done.returncode < 0:
        return f"the process died of signal {-done.returncode}"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"the process ended with {done.returncode}"])[-1]
    return json.loads(done.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]


def row(program: str, backends: list[str], budget: float) -> dict[str, Any]:
    together = in_own_process(program, backends, budget)
    if isinstance(together, dict):
        return together
    found: dict[str, Any] = {}
    for backend in backends:
        alone = in_own_process(program, [backend], budget)
        found.update(alone if isinstance(alone, dict) else {backend: {"reason": alone}})
    return found


def cell(of: dict[str, Any], eager: dict[str, Any] | None) -> str:
    """``1.23 (1.20–1.31) ms, 2.1×, 3e-07``, or the reason in brief."""
    if of.get("reason"):
        return str(of["reason"]).partition(". ")[0].replace("|", "\\|")
    low, middle, high = (f"{seconds * 1e3:.2f}" for seconds in of["times"])
    ratio = f", {eager['times'][1] / of['times'][1]:.2f}×" if eager is not None else ""
    error = f", {of['error']:.0e}" if of["error"] else ", exact"
    wrong = f" **disagrees: {'; '.join(of['disagrees'])}**" if of["disagrees"] else ""
    return f"{middle} ({low}–{high}){ratio}{error}{wrong}"


PAGE = """# Every backend, side by side

Twelve programs (`scripts/bench_programs.py`) through {count} backends, inference in float32, by
`nbcompile.compare`: median of interleaved calls in milliseconds (10th to 90th percentile), how many times as
fast as eager, and the relative error of the worst output against float64. Where there is no time, the cell
has the reason. TVM's kernels have the plain schedule of `nbcompile/backends/engines/tvm_schedules.py`;
nothing was tuned. Written by `make backends-table`; none of it is typed in by hand.

{machine}

{table}

Programs that ran, wholly compiled: {ran}.
"""


def page(rows: dict[str, dict[str, Any]], backends: list[str]) -> str:
    lines = [["program", "eager", *backends], ["---"] * (len(backends) + 2)]
    for program, found in rows.items():
        eager = found.get("eager")
        first = cell(eager, None) if eager else "-"
        lines.append([program, first, *(cell(found[name], eager) for name in backends)])
    ran = {name: sum(not found[name].get("reason") for found in rows.values()) for name in backends}
    return PAGE.format(
        count=len(backends),
        machine=machine(),
        table="\n".join(f"| {' | '.join(line)} |" for line in lines),
        ran=", ".join(f"{name} {count} of {len(rows)}" for name, count in ran.items()),
    )


def machine() -> str:
    from nbcompile.backends.registry import backends
    from nbcompile.record.environment import detect

    here = detect()
    packages = {name for backend in backends().values() for name in backend.packages}
    versions = [f"torch {here.torch}"]
    for name in sorted(packages):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return (
        f"{datetime.date.today().isoformat()}, {here.processor}, {os.cpu_count()} cores, {THREADS} threads, "
        f"{here.platform}; {', '.join(versions)}. Load average at the end {os.getloadavg()[1]:.1f}: above "
        f"{THREADS}, others were at work, and the times are longer than they need be."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="programs whose name has this text")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--budget", type=float, default=0.5, help="seconds of samples a contestant")
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "backends.md")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    backends = arguments.backends.split(",")
    if arguments.one:
        print(json.dumps(measured(arguments.one, backends, arguments.budget)))
        return
    import bench_programs

    rows: dict[str, dict[str, Any]] = {}
    for program in bench_programs.TWELVE:
        if arguments.only not in program.name:
            continue
        found = rows[program.name] = row(program.name, backends, arguments.budget)
        arguments.out.write_text(page(rows, backends), encoding="utf-8")  # what there is so far
        eager = found.get("eager")
        print(
            program.name,
            *(f"  {name}: {cell(of, eager)}" for name, of in found.items()),
            sep="\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
