"""Every backend and mode on a GPU, side by side: one table, in Markdown.

    python scripts/gpu/backends.py [--only TEXT] [--budget SECONDS] [--json FILE] > docs/gpu-backends.md

Each program is timed in a process of its own, contestants in turns. A cell is the median of one call and its
quartiles, the error against float64 beside eager's, or the reason why there is no time. A backend that is not
installed says what to install.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
CONTESTANTS = (
    "eager", *(f"nbcompile:{mode}" for mode in MODES), *(f"inductor:{mode}" for mode in MODES),
    "cudagraphs", "tensorrt", "xla",
)  # fmt: skip


def transformer(train: bool) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import torch

    from programs import TransformerLayer

    model = TransformerLayer(768, 12).to("cuda", torch.bfloat16).train(train)
    return model, (torch.randn(8, 512, 768, device="cuda", dtype=torch.bfloat16),)


def softmax(train: bool) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import torch

    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16, requires_grad=train)
    return lambda x: torch.softmax(x, -1) * 2, (x,)


def swiglu(train: bool) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import torch
    from torch.nn import functional as F

    made = torch.randn(8192, 16384, device="cuda", dtype=torch.bfloat16, requires_grad=train)

    def fn(x: Any) -> Any:
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up

    return fn, (made,)


def small(train: bool) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Many small operators: what launching costs."""
    import torch
    from torch import nn

    layers = [item for _ in range(8) for item in (nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU())]
    model = nn.Sequential(*layers).cuda().train(train)
    return model, (torch.randn(32, 128, device="cuda"),)


PROGRAMS: dict[str, tuple[Callable[[bool], Any], bool]] = {
    "softmax bf16 8k×8k": (softmax, False),
    "swiglu bf16 8k×16k": (swiglu, False),
    "8 × (linear, layer_norm, gelu) f32 32×128": (small, False),
    "TransformerLayer bf16 8×512×768, forward": (transformer, False),
    "TransformerLayer bf16 8×512×768, training": (transformer, True),
}


def measured(name: str, budget: float) -> dict[str, Any]:
    """What one program gives, in this process."""
    import torch

    from nbcompile.backends.registry import check
    from nbcompile.bench.measure.compare import compare
    from nbcompile.errors import OptionError

    make, train = PROGRAMS[name]
    torch.manual_seed(0)
    fn, inputs = make(train)
    absent: dict[str, str] = {}
    for contestant in CONTESTANTS:
        try:
            check(contestant.partition(":")[0])
        except OptionError as error:
            absent[contestant] = str(error)
    here = [contestant for contestant in CONTESTANTS if contestant not in absent]
    with torch.set_grad_enabled(train):
        record = compare(fn, inputs, here, train=train, budget=budget, progress=_told)
    rows = {}
    for item in record.measurements:
        errors = [a for a in record.accuracy if a.contestant == item.contestant and a.error is not None]
        worst = max(errors, key=lambda a: a.error or 0.0, default=None)
        rows[item.contestant] = {
            "median": item.median, "low": item.quantile(0.25), "high": item.quantile(0.75),
            "cold": item.cold, "reason": item.reason, "kernels": item.kernels, "graphs": item.graphs,
            "error": worst.error if worst else None, "eager_error": worst.eager_error if worst else None,
            "agrees": all(a.agrees for a in errors),
        }  # fmt: skip
    return {
        "rows": rows,
        "absent": absent,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def _told(text: str) -> None:
    print(f"    {text}", file=sys.stderr, flush=True)


def in_own_process(name: str, budget: float, timeout: float) -> dict[str, Any]:
    """:func:`measured` where a crash loses this program only."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        # JAX would take three quarters of the GPU's memory for itself.
        environment = {"NBCOMPILE_CACHE_DIR": folder, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
        command = [sys.executable, __file__, "--one", name, "--budget", str(budget), "--json", str(answer)]
        try:
            done = subprocess.run(command, env=environment, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return {"failed": f"took more than {timeout:.0f} s"}
        if not answer.exists():
            return {"failed": f"ended with status {done.returncode}"}
        found: dict[str, Any] = json.loads(answer.read_text())
        return found


def as_markdown(results: dict[str, Any]) -> str:
    facts = next((item for item in results.values() if "device" in item), {})
    lines = [
        "# Backends and modes on a GPU",
        "",
        f"{facts.get('device', 'no GPU')}, torch {facts.get('torch', '?')}, {time.strftime('%Y-%m-%d')}, "
        "by `scripts/gpu/backends.py`. Median of one call in µs, quartiles in brackets, times eager's speed, "
        "and the error against float64 (beside eager's own).",
    ]
    for name, found in results.items():
        lines += ["", f"## {name}", ""]
        if "failed" in found:
            lines.append(f"Not measured: {found['failed']}.")
            continue
        lines += ["| | µs | × eager | cold compile, s | kernels | error |", "|---|---:|---:|---:|---:|---:|"]
        base = found["rows"]["eager"]["median"]
        for contestant in CONTESTANTS:
            row = found["rows"].get(contestant)
            if row is None or row["median"] is None:
                reason = row["reason"] if row else found["absent"].get(contestant, "not run")
                lines.append(f"| {contestant} | {reason.replace('|', '/')} | | | | |")
                continue
            error = "" if row["error"] is None else f"{row['error']:.1e} ({row['eager_error'] or 0:.1e})"
            cold = "" if row["cold"] is None else f"{row['cold']:.2f}"
            low, middle, high = (row[key] * 1e6 for key in ("low", "median", "high"))
            lines.append(
                f"| {contestant} | {middle:.1f} [{low:.1f}–{high:.1f}] "
                f"| {base / row['median']:.2f} | {cold} | {row['kernels'] or ''} "
                f"| {error}{'' if row['agrees'] else ' **disagrees**'} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[""], help="programs whose names contain one of these")
    parser.add_argument("--budget", type=float, default=4.0, help="seconds of samples a program")
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds that a program may take")
    parser.add_argument("--json", type=Path, help="write what was measured there")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        asked.json.write_text(json.dumps(measured(asked.one, asked.budget)))
        return
    results = {}
    for name in PROGRAMS:
        if any(text in name for text in asked.only):
            print(name, file=sys.stderr, flush=True)
            results[name] = in_own_process(name, asked.budget, asked.timeout)
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1))
    print(as_markdown(results))


if __name__ == "__main__":
    main()
