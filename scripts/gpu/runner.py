"""What every program of the GPU benchmark shares: its arguments, its budget, its JSON lines.

Results are appended to ``$OUT/gpu-<script>.jsonl`` (or ``out/``) as they come, so that a run cut short
keeps what it measured. The first record of a run says on which machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contestants import NAMES, ROOT, first_line, own_caches, reset


def out_folder() -> Path:
    folder = Path(os.environ.get("OUT") or ROOT / "out")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass
class Run:
    """One run of one script: which items and contestants, for how long, and where results go."""

    script: str
    arguments: argparse.Namespace
    path: Path
    begun: float = field(default_factory=time.perf_counter)
    failures: int = 0

    @property
    def device(self) -> str:
        return str(self.arguments.device)

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.begun

    def left(self) -> float:
        """Seconds of the budget that are left."""
        return float(self.arguments.budget) - self.spent

    def write(self, kind: str, **values: Any) -> None:
        """Append one record and print nothing; ``kind`` is ``machine``, ``steady``, ``cold``, ..."""
        line = json.dumps({"script": self.script, "kind": kind, **values}, default=str)
        with self.path.open("a") as file:
            file.write(line + "\n")

    def wants(self, name: str) -> bool:
        only = self.arguments.only
        return not only or any(text in name for text in only)

    def items(self, names: Iterable[str]) -> Iterator[str]:
        """The names asked for, until the budget is spent; says what it leaves out."""
        wanted = [name for name in names if self.wants(name)]
        for place, name in enumerate(wanted):
            if self.left() <= 0:
                say(f"budget of {self.arguments.budget:.0f} s spent: {', '.join(wanted[place:])} left out")
                self.write("left-out", items=wanted[place:])
                return
            reset()
            yield name

    def attempt(self, item: str, contestant: str, work: Callable[[], Any]) -> Any:
        """``work()``, or ``None`` with the error printed and written, so that the rest goes on."""
        try:
            return work()
        except Exception as error:  # one contestant's failure is a result
            self.failed(item, contestant, first_line(error))
            return None

    def failed(self, item: str, contestant: str, reason: str) -> None:
        self.failures += contestant.startswith("nbcompile")
        say(f"  {item}: {contestant} failed: {reason}")
        self.write("failure", item=item, contestant=contestant, reason=reason)


def say(text: str) -> None:
    print(text, flush=True)


def start(
    script: str,
    description: str,
    argv: Sequence[str] | None,
    contestants: Sequence[str],
    *,
    budget: float = 540.0,
    extra: Callable[[argparse.ArgumentParser], None] | None = None,
) -> Run:
    """Parse the arguments, give every compiler caches of its own, and write the machine's record."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[], help="items whose name contains one of these")
    parser.add_argument("--contestants", nargs="*", default=list(contestants), choices=NAMES)
    parser.add_argument("--budget", type=float, default=budget, help="seconds: no new item after that")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: to see that it runs at all")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--keep-caches", action="store_true", help="use the caches as they are")
    parser.add_argument("--no-cold", action="store_true", help="no cold compiles")
    parser.add_argument("--no-table", action="store_true", help="only write the records")
    parser.add_argument("--list", action="store_true", help="list the items and stop")
    if extra is not None:
        extra(parser)
    arguments = parser.parse_args(argv)
    if not arguments.keep_caches:
        own_caches()
    return Run(script, arguments, out_folder() / f"gpu-{script}.jsonl")


def finish(run: Run) -> int:
    """Print the table of this script's records; the exit status of the script."""
    from table import report

    if not run.arguments.no_table:
        say("\n" + report(read(run.path)))
    return 0


def describe_machine(run: Run) -> dict[str, Any]:
    """Measure this machine's ceilings and write them; call once, before the first item."""
    import torch
    from gpu_timing import copy_bandwidth, launch_floor

    tiny = run.arguments.tiny or run.device == "cpu"
    facts = {
        "device": torch.cuda.get_device_name() if run.device == "cuda" else platform.processor() or "cpu",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "command": " ".join(sys.argv),
        "copy_bandwidth": copy_bandwidth(run.device, 1 << 20 if tiny else 1 << 31),
        "launch_floor": launch_floor(run.device),
        "tiny": run.arguments.tiny,
    }
    try:
        import triton

        facts["triton"] = triton.__version__
    except ImportError:
        facts["triton"] = ""
    run.write("machine", **facts)
    say(
        f"{facts['device']}, torch {facts['torch']}, Triton {facts['triton'] or 'none'}: copies "
        f"{facts['copy_bandwidth'] / 1e9:.0f} GB/s, launch to launch {facts['launch_floor'] * 1e6:.1f} µs"
    )
    return facts


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a file of JSON lines; a last line cut short is left out."""
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records
