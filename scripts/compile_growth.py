"""How the time to compile grows with a program, ours beside Inductor's: docs/compile-time.md.

    python scripts/compile_growth.py [--family NAME …] [--sizes N …] [--compiler NAME …] [--timeout S]
                                     [--repeats N] [--json FILE] [--html FILE] [--png FILE] [--markdown]

Families: training of N transformer blocks, chains of N pointwise operators, N independent reductions, and
state-space models (a scan in chunks, as Mamba-2 writes it in torch) of N layers. Each figure is the time of
the first call, backward included, in a fresh process with empty caches, which has compiled a line of
another program before; ``aot_eager`` is what torch takes before any backend has a part in it (Dynamo and
AOTAutograd). Sizes go up until a compiler has taken longer than ``--timeout``. ``exponent``: the slope of a
straight line through the logarithms, of the sizes from a fourth of the largest on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMPILERS = ("nbcompile", "inductor", "aot_eager")
SIZES = {
    "blocks": (1, 2, 4, 8, 16, 32, 64),
    "chain": (50, 200, 500, 1000, 2000, 5000),
    "reductions": (10, 50, 200, 500, 1000, 2000),
    "state space": (1, 2, 4, 8),
}
PROGRAM = """
import sys, time
import torch, torch.nn as nn, torch.nn.functional as F
import torch._dynamo, torch._inductor.compile_fx, torch._functorch.aot_autograd
import nbcompile.backends.nbcompile as ours
ours.register()
family, compiler, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.manual_seed(0)
y = torch.ones(3, requires_grad=True)
torch.compile(lambda y: (y * 2).sum(), backend=compiler)(y).backward()
training = False
if family == "blocks":
    training = True
    model = nn.Sequential(
        *(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0) for _ in range(size))
    )
    given = (torch.randn(2, 16, 64),)
elif family == "chain":
    names = ("sin", "cos", "tanh", "sigmoid", "relu", "abs")
    def model(x, y):
        for n in range(size):
            x = getattr(torch, names[n % len(names)])(x) + y if n % 2 else x * y
        return x
    given = (torch.rand(64, 64), torch.rand(64, 64))
elif family == "reductions":
    def model(*items):
        return [(item * n).sum(n % 2) for n, item in enumerate(items)]
    given = tuple(torch.rand(8, 12) for _ in range(size))
else:
    training = True
    class Mixer(nn.Module):
        heads, width, state, chunk = 4, 16, 8, 16
        def __init__(self):
            super().__init__()
            inner = self.heads * self.width
            self.norm = nn.LayerNorm(inner)
            self.project = nn.Linear(inner, 2 * inner + 2 * self.state + self.heads)
            self.conv = nn.Conv1d(inner + 2 * self.state, inner + 2 * self.state, 4, padding=3,
                                  groups=inner + 2 * self.state)
            self.decay = nn.Parameter(torch.rand(self.heads))
            self.out = nn.Linear(inner, inner)
        def segments(self, x):
            size = x.size(-1)
            wide = x[..., None].expand(*x.shape, size)
            mask = torch.tril(torch.ones(size, size, dtype=torch.bool), -1)
            sums = torch.cumsum(wide.masked_fill(~mask, 0), -2)
            return sums.masked_fill(~torch.tril(torch.ones(size, size, dtype=torch.bool)), -torch.inf)
        def forward(self, x):
            batch, length, inner = x.shape
            gate, rest, step = self.project(self.norm(x)).split(
                [inner, inner + 2 * self.state, self.heads], -1
            )
            rest = F.silu(self.conv(rest.transpose(1, 2))[..., :length].transpose(1, 2))
            value, key, query = rest.split([inner, self.state, self.state], -1)
            step = F.softplus(step)
            chunks = length // self.chunk
            value = value.view(batch, chunks, self.chunk, self.heads, self.width)
            key, query = (t.view(batch, chunks, self.chunk, self.state) for t in (key, query))
            step = step.view(batch, chunks, self.chunk, self.heads)
            decay = (-self.decay.exp() * step).permute(0, 3, 1, 2)
            total = decay.cumsum(-1)
            value = value * step[..., None]
            within = torch.exp(self.segments(decay))
            first = torch.einsum("bcln,bcsn,bhcls,bcshp->bclhp", query, key, within, value)
            left = torch.exp(total[..., -1:] - total)
            states = torch.einsum("bcln,bhcl,bclhp->bchpn", key, left, value)
            states = torch.cat([torch.zeros_like(states[:, :1]), states], 1)
            between = torch.exp(self.segments(F.pad(total[..., -1], (1, 0))))
            states = torch.einsum("bhzc,bchpn->bzhpn", between, states)[:, :-1]
            second = torch.einsum("bcln,bchpn,bhcl->bclhp", query, states, torch.exp(total))
            return x + self.out((first + second).reshape(batch, length, inner) * F.silu(gate))
    model = nn.Sequential(*(Mixer() for _ in range(size)))
    given = (torch.randn(2, 64, 64),)
start = time.perf_counter()
found = torch.compile(model, backend=compiler)(*given)
if training:
    found.square().mean().backward()
print("seconds", time.perf_counter() - start)
"""


def measured(family: str, compiler: str, size: int, timeout: float) -> float | None:
    """Seconds to the first result; None where it takes longer than ``timeout`` or fails."""
    with tempfile.TemporaryDirectory(prefix="nbcompile-growth-") as folder:
        caches = {
            "NBCOMPILE_CACHE_DIR": f"{folder}/ours",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "PYTHONPATH": str(ROOT),
        }
        try:
            run = subprocess.run(
                [sys.executable, "-c", PROGRAM, family, compiler, str(size)],
                env={**os.environ, **caches},
                capture_output=True,
                text=True,
                timeout=timeout + 60,
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            return None
    told = [line.split()[1] for line in run.stdout.splitlines() if line.startswith("seconds ")]
    if not told:
        print(f"{family} {size} by {compiler}: {run.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return float(told[0]) if told else None


def exponent(times: dict[int, float]) -> float | None:
    """The slope of log time over log size by least squares, from a fourth of the largest size on."""
    points = [(math.log(n), math.log(t)) for n, t in times.items() if n * 4 >= max(times)]
    if len(points) < 2:
        return None
    centre = [statistics.fmean(values) for values in zip(*points, strict=True)]
    across = sum((x - centre[0]) ** 2 for x, _ in points)
    return sum((x - centre[0]) * (y - centre[1]) for x, y in points) / across


def measure(family: str, sizes: Sequence[int], arguments: Any) -> dict[str, dict[int, float]]:
    """Median seconds by compiler and size."""
    found: dict[str, dict[int, float]] = {compiler: {} for compiler in arguments.compiler}
    over: set[str] = set()
    for size in sizes:
        for compiler in arguments.compiler:
            if compiler in over:
                continue
            times = [measured(family, compiler, size, arguments.timeout) for _ in range(arguments.repeats)]
            if any(time is None for time in times):
                over.add(compiler)
                continue
            found[compiler][size] = statistics.median(time for time in times if time is not None)
            print(f"{family} {size}: {compiler} {found[compiler][size]:.2f} s", file=sys.stderr)
            if found[compiler][size] > arguments.timeout:
                over.add(compiler)
    return found


def markdown(results: dict[str, dict[str, dict[int, float]]]) -> str:
    """A table a family."""
    parts = []
    for family, found in results.items():
        sizes = sorted({size for times in found.values() for size in times})
        rows = [
            f"| {family} | " + " | ".join(map(str, sizes)) + " | exponent |",
            "|---" * (len(sizes) + 2) + "|",
        ]
        for compiler, times in found.items():
            slope = exponent(times)
            cells = [f"{times[n]:.2f} s" if n in times else "–" for n in sizes]
            cells.append("–" if slope is None else f"{slope:.2f}")
            rows.append(f"| {compiler} | {' | '.join(cells)} |")
        if {"nbcompile", "inductor"} <= set(found):
            shares = [
                f"{found['nbcompile'][n] / found['inductor'][n]:.2f}"
                if n in found["nbcompile"] and n in found["inductor"]
                else "–"
                for n in sizes
            ]
            rows.append("| ours / Inductor's | " + " | ".join(shares) + " | |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def figure(results: dict[str, dict[str, dict[int, float]]]) -> Any:
    """Time over size, both logarithmic, a panel a family."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    colours = dict(zip(COMPILERS, ("#2563eb", "#ea580c", "#6b7280"), strict=True))
    made = make_subplots(1, len(results), subplot_titles=list(results), horizontal_spacing=0.06)
    for column, found in enumerate(results.values(), 1):
        for compiler, times in found.items():
            line = go.Scatter(
                x=list(times), y=list(times.values()), name=compiler, legendgroup=compiler,
                showlegend=column == 1, mode="lines+markers", line={"color": colours.get(compiler)},
            )  # fmt: skip
            made.add_trace(line, 1, column)
        sizes = sorted({size for times in found.values() for size in times})
        made.update_xaxes(type="log", tickvals=sizes, ticktext=[str(n) for n in sizes], col=column)
    seconds = [0.3, 1, 3, 10, 30, 100, 300]
    made.update_yaxes(type="log", tickvals=seconds, ticktext=[f"{n} s" for n in seconds])
    margin = {"l": 50, "r": 20, "t": 40, "b": 40}
    made.update_layout(template="plotly_white", width=330 * len(results), height=360, margin=margin)
    return made


def photograph(chart: Any, path: Path) -> None:
    """A picture of a chart, taken by Chromium."""
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(ROOT / "scripts"))
    from check_machine import chromium

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium() or None)
        size = {"width": chart.layout.width + 20, "height": chart.layout.height + 20}
        page = browser.new_page(viewport=size, device_scale_factor=2)
        page.set_content(chart.to_html(include_plotlyjs=True, config={"displayModeBar": False}))
        page.wait_for_selector(".main-svg")
        page.screenshot(path=path)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--sizes", nargs="+", type=int)
    parser.add_argument("--compiler", nargs="+", choices=COMPILERS, default=list(COMPILERS))
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="what was measured, or adds to")
    parser.add_argument("--html", type=Path, metavar="FILE", help="a chart of it")
    parser.add_argument("--png", type=Path, metavar="FILE", help="a picture of that; needs Playwright")
    parser.add_argument("--markdown", action="store_true", help="print what --json holds; measure nothing")
    arguments = parser.parse_args()
    results: dict[str, dict[str, dict[int, float]]] = {}
    if arguments.json and arguments.json.exists():
        for family, found in json.loads(arguments.json.read_text()).items():
            results[family] = {c: {int(n): t for n, t in times.items()} for c, times in found.items()}
    for family in () if arguments.markdown else arguments.family:
        for compiler, times in measure(family, arguments.sizes or SIZES[family], arguments).items():
            results.setdefault(family, {}).setdefault(compiler, {}).update(times)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    print(markdown(results))
    if arguments.html:
        figure(results).write_html(arguments.html, include_plotlyjs="cdn")
    if arguments.png:
        photograph(figure(results), arguments.png)


if __name__ == "__main__":
    main()
