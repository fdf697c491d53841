"""nbcompile beside Inductor and eager on programs that nobody tuned for (programs.py, snippets.py, users/,
strangers/, newcomers/, guests/, nets.py).

    python scripts/cpu/run.py [--snippets | --users | --strangers | --newcomers | --guests | --nets]
                              [--half 0] [--only NAME ...] [--json FILE] [--dynamic] [--autotune]
                              [--wrapper]

Contestants take turns, in another order each round: the one after a call that streams through memory finds
its inputs gone from the cache, the one after a short call finds them there. Two threads, huge pages for all
(``THP_MEM_ALLOC_ENABLE=1``), no gradients but those that a program takes itself. Ours is called through
``nbcompile.compile``, Inductor through ``torch.compile``, as their users do; ``--entry`` calls ours through
``torch.compile(backend="nbcompile")``. ``--autotune`` adds Inductor with max-autotune and freezing,
``--wrapper`` Inductor with ``cpp_wrapper``, ``--dynamic`` has symbolic sizes. ``--half`` takes one half of
the programs, so that the other stays unseen until the last measurement. A result that differs by more
than rounding from eager, or does not come, is said, and counts as no time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

SMALL = 1e-3
"""Seconds that Inductor takes for what counts as small."""


def contestants(arguments: argparse.Namespace, f: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    import torch

    import nbcompile

    sizes: dict[str, Any] = {"dynamic": True} if arguments.dynamic else {}
    entry = torch.compile(f, backend="nbcompile", **sizes) if arguments.entry else None
    found = {
        "eager": f,
        "inductor": torch.compile(f, **sizes),
        "nbcompile": entry or nbcompile.compile(f, **sizes),
    }
    if arguments.autotune:
        found["autotuned"] = torch.compile(f, options={"max_autotune": True, "freezing": True}, **sizes)
    if arguments.wrapper:
        found["cpp_wrapper"] = torch.compile(f, options={"cpp_wrapper": True}, **sizes)
    return found


def corpus(arguments: argparse.Namespace) -> ModuleType:
    """The module that has the programs asked for: their names in ``PROGRAMS``, and ``build``."""
    import guests
    import nets
    import newcomers
    import snippets
    import strangers
    import users

    import programs

    chosen = {
        "users": users,
        "strangers": strangers,
        "newcomers": newcomers,
        "guests": guests,
        "snippets": snippets,
        "nets": nets,
    }
    return next((module for name, module in chosen.items() if getattr(arguments, name)), programs)


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Medians in seconds by contestant, and what differed."""
    import torch
    from torch.utils._pytree import tree_leaves

    torch._dynamo.reset()
    f, args = corpus(arguments).build(name)
    calls = contestants(arguments, f)
    row: dict[str, Any] = {"program": name, "seconds": {}, "failed": {}}
    expected = tree_leaves(f(*args))
    for who, call in list(calls.items()):
        try:
            with patience(arguments.patience):
                found = tree_leaves([call(*args) for _ in range(3)][-1])
            for one, other in zip(found, expected, strict=True):
                near = 3e-2 if one.dtype.itemsize == 2 else 2e-3
                torch.testing.assert_close(one, other, rtol=near, atol=near)
        except Exception as error:  # a contestant's failure is a result
            row["failed"][who] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"[:200]
            del calls[who]
    samples: dict[str, list[float]] = {who: [] for who in calls}
    many = {who: max(1, int(1e-3 / once(call, args))) for who, call in calls.items()}
    order, started = random.Random(0), time.perf_counter()
    while len(samples["eager"]) < 11 or time.perf_counter() - started < arguments.budget:
        for who, call in order.sample(list(calls.items()), len(calls)):
            samples[who].append(once(call, args, many[who]))
        if len(samples["eager"]) >= 301:
            break
    for who, values in samples.items():
        row["seconds"][who] = statistics.median(values)
    # round by round, so that what slows the machine slows both
    row["spread"] = {
        who: statistics.quantiles([a / b for a, b in zip(values, samples["nbcompile"], strict=True)], n=10)
        for who, values in samples.items()
        if "nbcompile" in samples
    }
    return row


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raises TimeoutError within it after so long."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer in {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def once(call: Callable[..., Any], args: tuple[Any, ...], times: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call(*args)
    return (time.perf_counter() - start) / times


def mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def ratio(row: dict[str, Any], who: str) -> float | None:
    """How many times as fast as ``who`` ours is: the median of the rounds."""
    deciles = row["spread"].get(who)
    return deciles[4] if deciles else None


def line(row: dict[str, Any]) -> str:
    parts = [f"{row['program']:24s}"]
    for who, seconds in row["seconds"].items():
        parts.append(f"{who} {seconds * 1e6:9.1f}")
    for who in row["seconds"]:
        found = ratio(row, who)
        if who != "nbcompile" and found:
            low, high = row["spread"][who][0], row["spread"][who][-1]
            parts.append(f"| {who} {found:.2f} ({low:.2f}-{high:.2f})")
    return "  ".join(parts + [f"{who} FAILED: {why}" for who, why in row["failed"].items()])


def summary(rows: list[dict[str, Any]]) -> list[str]:
    said = []
    for who in sorted({who for row in rows for who in row["spread"]} - {"nbcompile"}):
        held = {row["program"]: (ratio(row, who), row["seconds"][who]) for row in rows if ratio(row, who)}
        small = [found for found, seconds in held.values() if seconds < SMALL]
        all_of_them = [found for found, _ in held.values()]
        worse = {name: found for name, (found, _) in held.items() if found < 0.95}
        said.append(
            f"over {who}: geomean {mean(all_of_them):.2f} of {len(held)}, small ones {mean(small):.2f} of "
            f"{len(small)}; under 0.95: {len(worse)}: "
            + ", ".join(f"{name} {found:.2f}" for name, found in sorted(worse.items(), key=lambda x: x[1]))
        )
    return said


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--half", type=int, choices=(0, 1))
    parser.add_argument("--issue", action="store_true", help="the 31 of issue 18 alone")
    parser.add_argument("--snippets", action="store_true", help="single operators instead (snippets.py)")
    parser.add_argument("--users", action="store_true", help="programs of a stranger's instead (users/)")
    parser.add_argument("--strangers", action="store_true", help="or of another's (strangers/)")
    parser.add_argument("--newcomers", action="store_true", help="or of a third's (newcomers/)")
    parser.add_argument("--guests", action="store_true", help="or of a fourth's (guests/)")
    parser.add_argument("--nets", action="store_true", help="or convolution nets (nets.py)")
    parser.add_argument("--budget", type=float, default=1.5, help="seconds of samples a program")
    parser.add_argument("--patience", type=float, default=120, help="seconds to a contestant's first results")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--entry", action="store_true", help='ours by torch.compile(backend="nbcompile")')
    parser.add_argument("--dynamic", action="store_true", help="symbolic sizes, for all")
    parser.add_argument("--autotune", action="store_true")
    parser.add_argument("--wrapper", action="store_true")
    parser.add_argument("--json", type=Path, help="also write every row, as JSON lines")
    arguments = parser.parse_args()
    import torch

    from programs import ISSUE

    torch.set_num_threads(arguments.threads)
    source = corpus(arguments)
    names = list(source.PROGRAMS)[: ISSUE if arguments.issue else None]
    names = [name for name in names if not arguments.only or name in arguments.only]
    names = [name for name in names if arguments.half is None or source.half(name) == arguments.half]
    training = getattr(source, "TRAIN_LOSS", ())
    if not hasattr(source, "GRADIENTS_WITHIN"):
        names = [name for name in names if name not in training]
    print(f"torch {torch.__version__}, {arguments.threads} threads, load {os.getloadavg()[0]:.1f}; µs")
    rows = []
    for name in names:
        with torch.set_grad_enabled(name in training):
            rows.append(measure(name, arguments))
        print(line(rows[-1]), flush=True)
    print("\n".join(summary(rows)))
    if arguments.json:
        arguments.json.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
