"""Every operator and module torch knows, through a backend: which agree with eager, which are native loops.

    python scripts/opdb.py [--dtypes float32 …] [--gradients] [--every] [--database module_db] [--device cuda]
        [--backend nbcompile] [--limit N] [--only TEXT] [--json FILE]

Takes each entry of torch's own database of operators (or modules), its first sample (or every one), compiles
a function that calls it, and compares results, what is left in the inputs, and gradients with eager under
the same seed: by ``torch.testing.assert_close`` with its default tolerances, and where that fails by the
errors of both against float64. Workers run the entries in separate processes, so a crash or a hang loses
one entry and no more. Every sample ends as one of the following, and an entry as the worst of its samples:

    agree         same results; said apart where no compiled code ran, as Dynamo captures no graph of it
    disagree      other values, shapes or dtypes
    error         compiling or running it raised, crashed or hung
    no sample     torch gives no sample of that dtype on that device
    both raise    eager raises, and so does the compiled function: there is nothing to compare
    uninitialised an op that returns whatever the memory holds: right dtype, shape and strides

With ``--bare-random`` random ops are called without torch's own seeding wrapper, at which Dynamo breaks
the graph, so that the backend sees them; the seed is then set once, before the call.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from opdb_cases import Asked, Entry, describe, entries, results, verdict

ROOT = Path(__file__).resolve().parent.parent
BATCH = 40  # entries a worker is given at a time: memory and Dynamo's state stay small
WORST = ("error", "disagree", "both raise", "uninitialised", "agree", "no sample")


@dataclass
class Outcome:
    """What became of one entry. ``nodes`` counts forward graph nodes by kind: compute, library...;
    ``samples`` counts its samples by status."""

    name: str
    status: str
    reason: str = ""
    nodes: dict[str, int] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)  # ops that are not native loops, with the note
    seconds: float = 0.0
    ran_compiled: bool = True
    samples: dict[str, int] = field(default_factory=dict)


# -- in a worker -------------------------------------------------------------------------------


def work(backend: str, asked: Asked, places: list[int], answers: Path) -> None:
    """Test the entries at ``places``; JSON lines before each, while it goes on, and after it."""
    warnings.simplefilter("ignore")
    import logging

    import torch

    logging.getLogger("torch").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    # Convolutions in float32 proper: another layout is another algorithm, and TF32 rounds each its own way.
    torch.backends.cudnn.allow_tf32 = False
    table = entries(asked)
    with answers.open("a", buffering=1) as out:
        parent = os.getppid()
        for place in places:
            if os.getppid() != parent:
                return  # nobody reads the answers any more
            started = time.perf_counter()

            def say(so_far: Outcome, place: int = place) -> None:
                print(json.dumps({"at": place, "outcome": asdict(so_far)}), file=out)

            outcome = test(table[place], backend, asked, say)
            outcome.seconds = time.perf_counter() - started
            print(json.dumps({"done": place, "outcome": asdict(outcome)}), file=out)


def test(entry: Entry, backend: str, asked: Asked, say: Callable[[Outcome], None]) -> Outcome:
    import torch

    outcome = Outcome(f"{entry.name} {asked.dtype}", "no sample")
    try:
        say(outcome)
        for number, case in enumerate(entry.cases()):
            if number and not asked.every:
                break
            torch._dynamo.reset()
            compile_it, record = compiler(backend)
            expected = results(case, lambda program: program)
            got = results(case, compile_it)
            status, reason = verdict(
                entry.name,
                got,
                expected,
                lambda case=case: results(case, lambda program: program, torch.float64),
                lambda case=case: results(case, lambda program: program),
            )
            note(outcome, number, status, reason, record())
            say(outcome)
    except Exception as error:  # the database's own: there is no sample, or no more of them
        outcome.reason = outcome.reason or describe(error)
    return outcome


def note(outcome: Outcome, number: int, status: str, reason: str, record: tuple[Any, bool, str]) -> None:
    """Add what became of one more sample."""
    graphs, ran, why = record
    outcome.samples[status] = outcome.samples.get(status, 0) + 1
    if number == 0 or WORST.index(status) < WORST.index(outcome.status):
        outcome.status, outcome.reason = status, f"sample {number}: {reason}" if number and reason else reason
    if not ran:
        outcome.ran_compiled = False
        outcome.reason = "; ".join(filter(None, dict.fromkeys([outcome.reason, why])))
    count_nodes(outcome, graphs)


def compiler(backend: str) -> tuple[Callable[[Any], Any], Callable[[], tuple[Any, bool, str]]]:
    """What compiles a program, and a function that gives (graphs of the record, ran compiled, why not)."""
    import torch

    made: list[Any] = []
    if backend == "nbcompile":
        import nbcompile

        def ours(program: Any) -> Any:
            made.append(nbcompile.compile(program, backend=backend, options={"random": "eager"}))
            return made[-1]

        def record() -> tuple[Any, bool, str]:
            if not made:
                return (), True, ""
            return made[-1].compilation.graphs, made[-1].ran_compiled, made[-1].eager_reason or ""

        return ours, record
    from torch._dynamo.utils import counters

    counters.clear()
    return lambda program: torch.compile(program, backend=backend), lambda: (
        (),
        counters["stats"]["unique_graphs"] > 0,
        "no graph was captured",
    )


def count_nodes(outcome: Outcome, graphs: Any) -> None:
    """Counts by kind over forward graphs; those of a graph that was not lowered are all fallbacks."""
    lowered = {graph.parent for graph in graphs if graph.stage == "loops"}
    for graph in graphs:
        if graph.stage != "forward":
            continue
        for node in graph.nodes:
            kind, why = node.kind, node.note
            if graph.id not in lowered and kind in ("compute", "library"):
                kind, why = "fallback", "its graph was not lowered"
            outcome.nodes[kind] = outcome.nodes.get(kind, 0) + 1
            if kind in ("library", "fallback"):
                outcome.foreign.append(f"{node.op} ({kind}{': ' + why if why else ''})")


# -- the parent --------------------------------------------------------------------------------


class Worker:
    """A process on one batch; told apart by its answers file."""

    def __init__(self, how: dict[str, Any], places: list[int], folder: Path, number: int) -> None:
        self.places = places
        self.answers = folder / f"answers-{number}.jsonl"
        self.answers.touch()
        self.done: dict[int, Outcome] = {}
        self.current: tuple[int, Outcome] | None = None
        self.since = time.monotonic()
        self._read = 0
        self.errors = (folder / f"errors-{number}.txt").open("w")
        request = json.dumps({**how, "places": places, "answers": str(self.answers)})
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--worker", request],
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
        )

    def poll(self) -> None:
        with self.answers.open() as lines:
            lines.seek(self._read)
            text = lines.read()
        complete = text[: text.rfind("\n") + 1]
        self._read += len(complete.encode())
        for line in complete.splitlines():
            message = json.loads(line)
            self.since = time.monotonic()
            outcome = Outcome(**message["outcome"])
            if "at" in message:
                self.current = (message["at"], outcome)
            else:
                self.done[message["done"]], self.current = outcome, None

    def left(self) -> list[int]:
        return [place for place in self.places if place not in self.done]


def run_all(
    how: dict[str, Any], places: list[int], workers: int, timeout: float, until: float = math.inf
) -> dict[int, Outcome]:
    """The outcomes by place; no worker starts or goes on after ``until``, by the monotonic clock."""
    size = min(BATCH, max(1, len(places) // (8 * workers)))
    batches = [places[i : i + size] for i in range(0, len(places), size)]
    outcomes: dict[int, Outcome] = {}
    running: list[Worker] = []
    started = 0
    with tempfile.TemporaryDirectory(prefix="nbcompile-opdb-") as folder:
        for name in ("NBCOMPILE_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
            os.environ[name] = str(Path(folder) / name.lower())
        try:
            while batches or running:
                if time.monotonic() > until:
                    for worker in running:
                        worker.poll()
                        outcomes.update(worker.done)
                    break
                while batches and len(running) < workers:
                    running.append(Worker(how, batches.pop(0), Path(folder), started))
                    started += 1
                time.sleep(0.2)
                for worker in list(running):
                    ended = worker.process.poll() is not None
                    worker.poll()
                    hung = not ended and time.monotonic() - worker.since > timeout
                    if hung:
                        worker.process.kill()
                        worker.process.wait()
                        worker.poll()
                    if ended or hung:
                        running.remove(worker)
                        retire(worker, hung, timeout, outcomes, batches)
                show_progress(len(outcomes) + sum(len(w.done) for w in running), len(places))
        finally:
            for worker in running:
                worker.process.kill()
    return outcomes


def retire(
    worker: Worker, hung: bool, timeout: float, outcomes: dict[int, Outcome], batches: list[list[int]]
) -> None:
    """Take a finished worker's outcomes; what it was at when it died is an error, the rest goes on."""
    outcomes.update(worker.done)
    worker.errors.close()
    left = worker.left()
    if not left:
        return
    place, outcome = worker.current or (left[0], Outcome(f"entry {left[0]}", "error"))
    why = f"no answer in {timeout:.0f} s" if hung else f"the process died ({worker.process.returncode})"
    tail = Path(worker.errors.name).read_text(errors="replace").strip().splitlines()[-1:]
    outcome.samples["error"] = outcome.samples.get("error", 0) + 1
    outcomes[place] = replace(outcome, status="error", reason=" ".join([why, *tail])[:240])
    rest = [p for p in left if p != place]
    if rest:
        batches.insert(0, rest)


def show_progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {total}", end="", file=sys.stderr, flush=True)


def report(backend: str, outcomes: list[Outcome]) -> str:
    counts = collections.Counter(outcome.status for outcome in outcomes)
    eager = sum(outcome.status == "agree" and not outcome.ran_compiled for outcome in outcomes)
    lines = [
        f"{backend}: {counts['agree']} of {len(outcomes)} agree with eager ({eager} ran no compiled code)"
    ]
    lines.append("  " + ", ".join(f"{count} {status}" for status, count in counts.most_common()))
    samples: collections.Counter[str] = collections.Counter()
    for outcome in outcomes:
        samples.update(outcome.samples)
    good, ran = samples["agree"] + samples["uninitialised"], sum(samples.values()) - samples["both raise"]
    lines.append(
        f"samples: {good} of {ran} that eager runs: "
        + ", ".join(f"{count} {status}" for status, count in samples.most_common())
    )
    nodes: collections.Counter[str] = collections.Counter()
    for outcome in outcomes:
        nodes.update(outcome.nodes)
    native = nodes["compute"]
    foreign = nodes["library"] + nodes["fallback"]
    if native + foreign:
        lines.append(
            f"compute ops that are native loops: {native} of {native + foreign} "
            f"({native / (native + foreign):.1%}); {nodes['library']} library calls, "
            f"{nodes['fallback']} fallbacks, {nodes['view']} views"
        )
        ops = collections.Counter(op for outcome in outcomes for op in outcome.foreign)
        lines.append("not native: " + "; ".join(f"{op} ×{count}" for op, count in ops.most_common()))
    for outcome in outcomes:
        if outcome.status != "agree":
            many = f" ({outcome.samples.get(outcome.status, 0)} of {sum(outcome.samples.values())} samples)"
            lines.append(f"  {outcome.status:10} {outcome.name}{many}: {outcome.reason}")
        elif not outcome.ran_compiled:
            lines.append(f"  ran eager  {outcome.name}: {outcome.reason}")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    if argv[:1] == ["--worker"]:
        request = json.loads(argv[1])
        sys.path.insert(0, str(ROOT))
        work(request["backend"], Asked(**request["asked"]), request["places"], Path(request["answers"]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--backend", default="nbcompile")
    parser.add_argument("--database", default="op_db", choices=("op_db", "module_db"))
    parser.add_argument("--dtypes", nargs="+", default=["float32"], metavar="NAME")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--gradients", action="store_true", help="compare gradients too")
    parser.add_argument("--every", action="store_true", help="every sample, not only the first")
    parser.add_argument("--limit", type=int, help="every k-th entry, so that this many remain")
    parser.add_argument("--only", action="append", default=[], help="entries whose name contains this")
    parser.add_argument("--json", type=Path, help="also write every outcome to this file")
    parser.add_argument("--bare-random", action="store_true", help="see above")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so many seconds")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds an entry may take")
    arguments = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    start, left = time.monotonic(), 0
    outcomes: list[Outcome] = []
    for dtype in arguments.dtypes:
        asked = Asked(
            arguments.database,
            dtype,
            arguments.device,
            arguments.gradients,
            arguments.every,
            arguments.bare_random,
        )
        names = [entry.name for entry in entries(asked)]
        places = [
            place
            for place, name in enumerate(names)
            if not arguments.only or any(text in name for text in arguments.only)
        ]
        if arguments.limit and arguments.limit < len(places):
            places = [places[i * len(places) // arguments.limit] for i in range(arguments.limit)]
        random.Random(0).shuffle(places)  # what is not reached in time is any of them
        how = {"backend": arguments.backend, "asked": asdict(asked)}
        found = run_all(how, places, arguments.workers, arguments.timeout, start + arguments.seconds)
        left += len(places) - len(found)
        outcomes += [found[place] for place in sorted(found)]
    print(report(arguments.backend, outcomes))
    print(f"{time.monotonic() - start:.0f} s" + (f"; {left} entries not reached" if left else ""))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
