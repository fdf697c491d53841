"""Benchmark: nbcompile beside Inductor and eager, on the CPU, one command.

    python scripts/bench.py [--quick] [--only TEXT] [--json FILE] [--markdown]

Run time: contestants take turns (A B C A B C), 2 threads, transparent huge pages for all
(``THP_MEM_ALLOC_ENABLE=1``), caches of its own; ratios are taken round by round. Compile time, up to
the first result, on small inputs so that it is not the run that is timed: *cold* in a fresh process
with every cache and the temporary folder empty (Inductor's precompiled header too; imports apart), and
a *new kernel* in this warm process, after a first compile of something else. Both of both contestants.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GOALS = {"run": 1.3, "cold": 20.0, "new kernel": 4.0}
EAGER_SLACK = 1.05


@dataclass
class Row:
    """Measurements of one program. Times in seconds; ``steady`` holds samples by contestant."""

    program: str
    steady: dict[str, list[float]] = field(default_factory=dict)
    cold: dict[str, float] = field(default_factory=dict)
    imports: dict[str, float] = field(default_factory=dict)
    new_kernel: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    note: str = ""

    def time(self, who: str) -> float | None:
        return quantile(self.steady[who], 0.5) if self.steady.get(who) else None

    def ratios(self, slow: str, fast: str) -> list[float]:
        """How many times as fast ``fast`` is, round by round."""
        pairs = zip(self.steady.get(slow, ()), self.steady.get(fast, ()), strict=False)
        return [one / two for one, two in pairs]


def quantile(values: Iterable[float], q: float) -> float:
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def geometric_mean(values: Iterable[float]) -> float | None:
    logs = [math.log(value) for value in values if value > 0]
    return math.exp(sum(logs) / len(logs)) if logs else None


# -- measuring ---------------------------------------------------------------------------------


def compile_with(backend: str, fn: Any, random: bool, ours: str) -> Any:
    import torch

    # Inductor draws its own random numbers inside its kernels; asked to, ours does too.
    options = {"random": "philox"} if random and backend == ours == "nbcompile" else None
    return torch.compile(fn, backend=backend, options=options)


def compiled_graphs() -> int:
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def measure_steady(program: Any, row: Row, arguments: argparse.Namespace) -> None:
    import torch

    from nbcompile.bench.measure.timing import Step, interleaved, quiet

    fn, args = program.build(arguments.quick)
    torch._dynamo.reset()
    leaves = tuple(fn.parameters()) if isinstance(fn, torch.nn.Module) else ()
    eager = Step(fn, args, train=program.train, leaves=leaves)
    calls: dict[str, Callable[[], object]] = {"eager": eager}
    with torch.set_grad_enabled(program.train), quiet(arguments.threads):
        for who in arguments.compilers:
            compiled = compile_with(who, fn, program.random, arguments.ours)
            step, before = eager.with_function(compiled), compiled_graphs()
            try:
                step()
            except Exception as error:  # one contestant's failure is a result of the benchmark
                row.failed[who] = first_line(error)
                continue
            if compiled_graphs() == before:
                row.failed[who] = "ran eager: no graph was captured"
                continue
            calls[who] = step
        row.steady = {
            who: list(samples) for who, samples in interleaved(calls, budget=arguments.budget).items()
        }


def measure_new_kernel(program: Any, row: Row, arguments: argparse.Namespace) -> None:
    """Seconds to the first result of a kernel nobody has compiled: a constant differs each time."""
    import torch

    import programs
    from nbcompile.bench.measure.timing import Step, quiet, timed

    fn, args = program.build(True)
    leaves = tuple(fn.parameters()) if isinstance(fn, torch.nn.Module) else ()
    row.new_kernel = {who: [] for who in arguments.compilers if who not in row.failed}
    with torch.set_grad_enabled(program.train), quiet(arguments.threads):
        for attempt in range(arguments.repeats):
            for who, seconds in row.new_kernel.items():
                torch._dynamo.reset()
                different = programs.varied(fn, 1.5 + attempt / 16 + time.time_ns() % 9973 / 1e9)
                compiled = compile_with(who, different, program.random, arguments.ours)
                seconds.append(timed(Step(compiled, args, train=program.train, leaves=leaves))[0])


def measure_cold(program: Any, row: Row, arguments: argparse.Namespace) -> None:
    from nbcompile.bench.measure.cold import ProgramSpec, in_fresh_process
    from nbcompile.errors import MeasureError

    spec = ProgramSpec(
        str(HERE / "programs.py"), "build", {"name": program.name, "quick": True}, program.train
    )
    for who in arguments.compilers:
        if who in row.failed:
            continue
        options = {"random": "philox"} if program.random and who == "nbcompile" else None
        try:
            times = in_fresh_process(spec, who, options=options, threads=arguments.threads)
        except MeasureError as error:
            row.failed[who] = str(error)
            continue
        row.cold[who], row.imports[who] = times.compile, times.imports


def warm_up(arguments: argparse.Namespace) -> None:
    """First compiles, of something else, so that toolchain checks and imports are behind us."""
    import torch

    for who in arguments.compilers:
        torch._dynamo.reset()
        x = torch.randn(32, 32, requires_grad=True)
        try:
            torch.compile(lambda x: (x.exp() * 3 + x.amax(0)).cumsum(0), backend=who)(x).sum().backward()
        except Exception as error:  # the programs will say the same, each in its row
            print(f"{who}: warm-up failed: {first_line(error)}", file=sys.stderr)


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


# -- printing ----------------------------------------------------------------------------------


def table(header: list[str], lines: list[list[str]], markdown: bool) -> str:
    if markdown:
        rows = [header, ["---", *["---:"] * (len(header) - 1)], *lines]
        return "\n".join("| " + " | ".join(line) + " |" for line in rows)
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in pairs)
        for line in [header, *lines]
        for pairs in [list(enumerate(zip(line, widths, strict=True)))]
    )


def spread(values: list[float], scale: float = 1.0, digits: int = 2) -> str:
    if not values:
        return "-"
    low, middle, high = (quantile(values, q) * scale for q in (0.1, 0.5, 0.9))
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def run_table(rows: list[Row], ours: str, markdown: bool) -> str:
    header = ["run time, ms: median (p10–p90)", "eager", "inductor", ours, f"{ours} vs eager", "vs inductor"]
    lines = [
        [
            row.program + (" *" if row.note else ""),
            *(spread(row.steady.get(who, []), 1e3) for who in ("eager", "inductor", ours)),
            spread(row.ratios("eager", ours)),
            spread(row.ratios("inductor", ours)),
        ]
        for row in rows
    ]
    return table(header, lines, markdown)


def compile_table(rows: list[Row], ours: str, markdown: bool) -> str:
    header = ["compile, s", "cold: inductor", ours, "ratio", "new kernel: inductor", ours, "ratio"]
    lines = []
    for row in rows:
        line = [row.program]
        for times in (row.cold, {who: quantile(v, 0.5) for who, v in row.new_kernel.items() if v}):
            theirs, mine = times.get("inductor"), times.get(ours)
            line += [f"{theirs:.2f}" if theirs else "-", f"{mine:.3f}" if mine else "-"]
            line.append(f"{theirs / mine:.1f}" if theirs and mine else "-")
        lines.append(line)
    return table(header, lines, markdown)


def verdict(rows: list[Row], ours: str) -> list[str]:
    """The means, and every goal missed by name."""
    said = []
    kinds: dict[str, list[float]] = {"run": [], "cold": [], "new kernel": []}
    for row in rows:
        ratios = row.ratios("inductor", ours)
        kinds["run"] += [quantile(ratios, 0.5)] if ratios else []
        if "inductor" in row.cold and ours in row.cold:
            kinds["cold"].append(row.cold["inductor"] / row.cold[ours])
        if row.new_kernel.get("inductor") and row.new_kernel.get(ours):
            theirs, mine = (quantile(row.new_kernel[who], 0.5) for who in ("inductor", ours))
            kinds["new kernel"].append(theirs / mine)
    for kind, ratios in kinds.items():
        mean = geometric_mean(ratios)
        if mean is not None:
            state = "met" if mean >= GOALS[kind] else "not met"
            said.append(
                f"{kind}: geometric mean {mean:.2f} times as fast as Inductor over {len(ratios)} programs, "
                f"from {min(ratios):.2f} to {max(ratios):.2f} (goal {GOALS[kind]:g}: {state})"
            )
    for row in rows:
        eager, mine = row.time("eager"), row.time(ours)
        if eager and mine and mine > EAGER_SLACK * eager:
            said.append(f"slower than eager by {mine / eager - 1:.0%}: {row.program}")
        said += [f"{who} has no time for {row.program}: {why}" for who, why in row.failed.items()]
        said += [f"* {row.program}: {row.note}"] if row.note else []
    imports = {who: [row.imports[who] for row in rows if who in row.imports] for who in ("inductor", ours)}
    said += [
        f"imports before a cold compile, not counted in it: {who} {quantile(v, 0.5):.2f} s"
        for who, v in imports.items()
        if v
    ]
    return said


def report(rows: list[Row], arguments: argparse.Namespace) -> str:
    parts = [caption(arguments), run_table(rows, arguments.ours, arguments.markdown)]
    if any(row.cold or row.new_kernel for row in rows):
        parts.append(compile_table(rows, arguments.ours, arguments.markdown))
    bullet = "- " if arguments.markdown else ""
    parts.append("\n".join(bullet + line for line in verdict(rows, arguments.ours)))
    return "\n\n".join(parts)


def caption(arguments: argparse.Namespace) -> str:
    import torch

    return (
        f"torch {torch.__version__}, Python {platform.python_version()}, {processor()}, "
        f"{arguments.threads} threads, huge pages on{', quick sizes' if arguments.quick else ''}, "
        f"load of the machine at the start {arguments.load:.1f}"
    )


def figures(rows: list[Row], arguments: argparse.Namespace) -> dict[str, Any]:
    """What ``--json`` writes: a table of strings for readme_table.py, the verdict, and all samples."""
    ours = arguments.ours
    columns = ["program", "eager, ms", "Inductor, ms", f"{ours}, ms", "vs Inductor", "cold", "new kernel"]
    table_rows = []
    for row in rows:
        compiled = {who: quantile(times, 0.5) for who, times in row.new_kernel.items() if times}
        table_rows.append(
            [
                row.program,
                *(spread(row.steady.get(who, []), 1e3) for who in ("eager", "inductor", ours)),
                spread(row.ratios("inductor", ours)),
                *(
                    f"{times['inductor']:.2f} s / {times[ours]:.2f} s"
                    if "inductor" in times and ours in times
                    else "-"
                    for times in (row.cold, compiled)
                ),
            ]
        )
    said = f"{caption(arguments)}. Median (p10–p90); compile times are Inductor's / ours."
    return {
        "caption": said,
        "columns": columns,
        "rows": table_rows,
        "verdict": verdict(rows, ours),
        "samples": [asdict(row) for row in rows],
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


# -- the command -------------------------------------------------------------------------------


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="programs whose name contains this")
    parser.add_argument("--quick", action="store_true", help="small sizes, short budget")
    parser.add_argument("--json", type=Path, help="also write all samples to this file")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=float, default=None, help="seconds of samples a program")
    parser.add_argument("--repeats", type=int, default=3, help="new-kernel compiles a contestant")
    parser.add_argument("--no-cold", action="store_true", help="leave out cold compiles (slow)")
    parser.add_argument("--no-compile", action="store_true", help="run time only")
    parser.add_argument("--ours", default="nbcompile", help="the backend to hold against Inductor")
    arguments = parser.parse_args(argv)
    arguments.budget = arguments.budget or (1.0 if arguments.quick else 6.0)
    arguments.load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    arguments.compilers = ["inductor", arguments.ours]
    return arguments


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    wanted = {"THP_MEM_ALLOC_ENABLE": "1", "OMP_NUM_THREADS": str(arguments.threads)}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        # torch's allocator and OpenMP read these once, when they load: start over with them set.
        os.environ.update(wanted)
        os.execv(sys.executable, [sys.executable, str(Path(__file__).resolve()), *argv])
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    import programs
    from nbcompile.bench.measure.cold import cache_environment

    chosen = [
        program
        for program in programs.BENCHMARKS
        if not arguments.only or any(text in program.name for text in arguments.only)
    ]
    with tempfile.TemporaryDirectory(prefix="nbcompile-bench-") as folder:
        os.environ.update(cache_environment(Path(folder)))
        rows = []
        warm_up(arguments)
        for program in chosen:
            print(f"{program.name}…", file=sys.stderr, flush=True)
            row = Row(program.name)
            if program.random:
                row.note = "both compilers draw their own random numbers here (ours: random=philox)"
            measure_steady(program, row, arguments)
            if not arguments.no_compile:
                measure_new_kernel(program, row, arguments)
                if not arguments.no_cold:
                    measure_cold(program, row, arguments)
            rows.append(row)
            if arguments.json:
                arguments.json.parent.mkdir(parents=True, exist_ok=True)
                arguments.json.write_text(json.dumps(figures(rows, arguments), indent=1))
    print(report(rows, arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
