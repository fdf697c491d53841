"""The programs of run.py's sets, given what they were not written for: are the numbers eager's?

    python scripts/cpu/variants.py [--sets users,nets] [--only NAME ...] [--variants dynamic,gradients]
                                   [--jobs N] [--seconds S] [--out FILE]

Each program is compiled by ours and held against eager and float64 (:func:`nbcompile.compare`, without times)
with symbolic sizes, with gradients of all that can have one, with its tensors in another floating type,
transposed in memory, starting at an odd place of their memory, and with NaN, infinities, both zeros, and very
large and small numbers among its inputs. A variant that eager itself refuses is left out and counted.
Workers are processes: one that dies or hangs is a result of its program.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parent))
sys.path.insert(1, str(HERE.parents[2]))

SETS = ("programs", "snippets", "users", "strangers", "newcomers", "guests", "nets")
SPECIAL = (float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-42, 1e30, -1e-30)


def plain(args: Any) -> Any:
    return args


def _floats(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    def changed(leaf: Any) -> Any:
        floating = isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel()
        return change(leaf.detach()) if floating else leaf

    return lambda args: _pytree.tree_map(changed, args)


def _transposed(x: torch.Tensor) -> torch.Tensor:
    if x.dim() < 2:
        return x.repeat_interleave(2, 0)[::2] if x.dim() else x
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def _offset(x: torch.Tensor) -> torch.Tensor:
    memory = torch.empty(x.numel() + 1, dtype=x.dtype)
    return memory[1:].view(x.shape).copy_(x)


def _with_special(x: torch.Tensor) -> torch.Tensor:
    made = x.clone().contiguous()
    flat = made.view(-1)
    for place, value in enumerate(SPECIAL):
        flat[(place * 7919 + 3) % flat.numel()] = value
    return made


VARIANTS: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "dynamic": (plain, {"dynamic": True}),
    "gradients": (_floats(lambda x: x.clone().requires_grad_()), {"train": True}),
    "bfloat16": (_floats(lambda x: x.bfloat16()), {}),
    "float64": (_floats(lambda x: x.double()), {}),
    "transposed": (_floats(_transposed), {}),
    "offset": (_floats(_offset), {}),
    "special": (_floats(_with_special), {}),
}


def checked(module: str, name: str, variant: str) -> dict[str, Any]:
    """A case: what ``differs`` from eager as lines of text, or why eager itself ``refused``."""
    import nbcompile
    from nbcompile.bench.measure.contestant import Contestant
    from nbcompile.bench.measure.timing import Step

    torch.manual_seed(0)
    torch._dynamo.reset()
    f, args = import_module(module).build(name)
    change, settings = VARIANTS[variant]
    row: dict[str, Any] = {"set": module, "program": name, "variant": variant, "differs": []}
    args = change(args)
    dynamic = settings.get("dynamic")
    with torch.set_grad_enabled(bool(settings.get("train"))):
        try:
            Step(f, args, train=bool(settings.get("train")))()
        except Exception as error:
            return {**row, "refused": f"{type(error).__name__}: {str(error)[:100]}"}
        record = nbcompile.compare(
            f, args, ("eager", Contestant("nbcompile", "nbcompile")), timing=False, cold=False,
            train=bool(settings.get("train")), **({"dynamic": dynamic} if dynamic else {}),
        )  # fmt: skip
    row["eager"] = [note[:200] for note in record.notes if "runs eagerly" in note]
    row["differs"] = [f"{each.output}: {each.reason}" for each in record.accuracy if not each.agrees]
    row["differs"] += [m.reason for m in record.measurements if m.contestant == "nbcompile" and m.reason]
    row["compared"] = len(record.accuracy)
    return row


def work(cases: list[list[str]], limit: float) -> None:
    """In a worker: a JSON line for each case."""
    from run import patience

    for case in cases:
        print(json.dumps({"begins": case}), flush=True)
        begun = time.monotonic()
        try:
            with patience(limit):
                row = checked(*case)
        except BaseException as error:  # whatever comes is the case's result
            row = dict(zip(("set", "program", "variant"), case)) | {
                "differs": [f"{type(error).__name__}: {error}"[:300]]
            }
        print(json.dumps({**row, "seconds": round(time.monotonic() - begun, 1)}), flush=True)


def worker(cases: list[list[str]], limit: float) -> Iterator[dict[str, Any]]:
    """Rows of these cases, from processes that are started anew where one dies."""
    left = list(cases)
    while left:
        command = [sys.executable, str(HERE), "--work", json.dumps(left), "--limit", str(limit)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            running: list[str] | None = None
            for line in process.stdout:
                if not line.startswith("{"):
                    continue
                row = json.loads(line)
                if "begins" in row:
                    running = row["begins"]
                    left.remove(running)
                else:
                    running = None
                    yield row
        if running is not None:
            yield dict(zip(("set", "program", "variant"), running)) | {
                "differs": [f"died: {process.returncode}"]
            }
        elif left:  # it did not get as far as the first
            yield {"set": "", "program": "", "variant": "", "differs": ["a worker does not start"]}
            return


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for one case")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no case after so long")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        work(json.loads(asked.work), asked.limit)
        return 0
    return spread(asked)


def spread(asked: argparse.Namespace) -> int:
    import concurrent.futures
    import threading

    cases = [
        [module, name, variant]
        for variant in asked.variants.split(",")
        for module in asked.sets.split(",")
        for name in import_module(module).PROGRAMS
        if not asked.only or name in asked.only
    ]
    until, lock, rows = time.monotonic() + asked.seconds, threading.Lock(), []

    def run(case: list[list[str]]) -> None:
        if time.monotonic() > until:
            return
        for row in worker(case, asked.limit):
            with lock:
                rows.append(row)
                if row["differs"]:
                    print(json.dumps(row)[:600], flush=True)
                if asked.out:
                    with asked.out.open("a") as file:
                        file.write(json.dumps(row) + "\n")

    size = max(1, min(8, len(cases) // asked.jobs))
    pieces = [cases[start : start + size] for start in range(0, len(cases), size)]
    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(run, pieces))
    print(f"{len(rows)} of {len(cases)} cases; left out by eager: {sum('refused' in row for row in rows)}")
    for variant, count in collections.Counter(row["variant"] for row in rows if row["differs"]).items():
        print(f"  {variant}: {count} differ")
    eagerly = [row for row in rows if row.get("eager")]
    print(f"  with a graph that ran eagerly: {len(eagerly)}")
    return int(any(row["differs"] for row in rows))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
