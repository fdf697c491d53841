"""Every operator torch knows, through a backend: which agree with eager, and which are native loops.

    python scripts/opdb.py [--backend nbcompile] [--limit N] [--only TEXT] [--json FILE]

Takes each float32 entry of torch's own operator database (``op_db``), its first sample on the CPU,
compiles a function that calls it, and compares with eager under the same seed (dtype, shape, and values
by ``torch.testing.assert_close`` with its default tolerances). Workers run the operators in separate
processes, so a crash or a hang loses one operator and no more. Every entry ends as one of:

    agree         same results; said apart where no compiled code ran, as Dynamo captures no graph of it
    disagree      other values, shapes or dtypes
    error         compiling or running it raised, crashed or hung
    no sample     torch gives no float32 CPU sample
    both raise    eager raises, and so does the compiled function: there is nothing to compare
    uninitialised an op that returns whatever the memory holds: right dtype, shape and strides

With ``--bare-random`` random ops are called without torch's own seeding wrapper, at which Dynamo breaks
the graph, so that the backend sees them; the seed is then set once, before the call.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SEED = 1234
UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
BATCH = 40  # entries a worker is given at a time: memory and Dynamo's state stay small


@dataclass
class Outcome:
    """What became of one entry. ``nodes`` counts forward graph nodes by kind: compute, library..."""

    name: str
    status: str
    reason: str = ""
    nodes: dict[str, int] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)  # ops that are not native loops, with the note
    seconds: float = 0.0
    ran_compiled: bool = True


# -- in a worker -------------------------------------------------------------------------------


def entries(bare_random: bool = False) -> list[Any]:
    import torch
    from torch.testing._internal import common_methods_invocations as database
    from torch.testing._internal.common_methods_invocations import op_db

    if bare_random:
        database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    return [op for op in op_db if torch.float32 in op.dtypes]


def entry_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def work(backend: str, places: list[int], answers: Path, bare_random: bool) -> None:
    """Test the entries at ``places``; one JSON line before and one after each."""
    warnings.simplefilter("ignore")
    import logging

    import torch

    logging.getLogger("torch").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    table = entries(bare_random)
    with answers.open("a", buffering=1) as out:
        parent = os.getppid()
        for place in places:
            if os.getppid() != parent:
                return  # nobody reads the answers any more
            print(json.dumps({"start": place, "name": entry_name(table[place])}), file=out)
            started = time.perf_counter()
            outcome = test(table[place], backend)
            outcome.seconds = time.perf_counter() - started
            print(json.dumps({"done": place, "outcome": asdict(outcome)}), file=out)


def test(op: Any, backend: str) -> Outcome:
    import torch

    name = entry_name(op)
    try:
        torch.manual_seed(SEED)
        sample = next(iter(op.sample_inputs("cpu", torch.float32, requires_grad=False)))
    except Exception as error:  # StopIteration too: there is no sample
        return Outcome(name, "no sample", describe(error))

    def program(given: Any, args: Any, kwargs: Any) -> Any:
        return op.op(given, *args, **kwargs)

    expected = call(program, sample)
    torch._dynamo.reset()
    compiled, record = compiled_with(backend, program)
    got = call(compiled, sample)
    outcome = Outcome(name, *verdict(name, expected, got))
    graphs, ran, why = record()
    outcome.ran_compiled = ran
    if not ran:
        outcome.reason = "; ".join(filter(None, [outcome.reason, why]))
    count_nodes(outcome, graphs)
    return outcome


def call(program: Any, sample: Any) -> Any:
    """The results on copies of the sample, under the seed; or the exception."""
    import torch

    given, args, kwargs = copied((sample.input, sample.args, sample.kwargs))
    torch.manual_seed(SEED)
    try:
        return program(given, args, kwargs)
    except Exception as error:
        return error


def copied(value: Any) -> Any:
    import torch
    from torch.utils import _pytree

    def copy(leaf: Any) -> Any:
        return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf

    return _pytree.tree_map(copy, value)


def compiled_with(backend: str, program: Any) -> tuple[Any, Any]:
    """The compiled function, and a function that gives (graphs of the record, ran compiled, why not)."""
    import torch

    if backend == "nbcompile":
        import nbcompile

        compiled: Any = nbcompile.compile(program, backend=backend)
        return compiled, lambda: (
            compiled.compilation.graphs,
            compiled.ran_compiled,
            compiled.eager_reason or "",
        )
    from torch._dynamo.utils import counters

    counters.clear()
    return torch.compile(program, backend=backend), lambda: (
        (),
        counters["stats"]["unique_graphs"] > 0,
        "no graph was captured",
    )


def verdict(name: str, expected: Any, got: Any) -> tuple[str, str]:
    if isinstance(expected, Exception):
        if isinstance(got, Exception):
            return "both raise", describe(expected)
        return "disagree", f"eager raises {describe(expected)}"
    if isinstance(got, Exception):
        return "error", describe(got)
    if name in UNINITIALISED:
        same = (got.dtype, got.shape, got.stride()) == (expected.dtype, expected.shape, expected.stride())
        return ("uninitialised", "") if same else ("disagree", "dtype, shape or strides")
    found = difference(got, expected)
    return ("disagree", found) if found else ("agree", "")


def difference(got: Any, expected: Any) -> str:
    """Empty if equal within torch's default tolerances, else the reason in one line."""
    import torch
    from torch.utils import _pytree

    ours, shape = _pytree.tree_flatten(got)
    theirs, wanted = _pytree.tree_flatten(expected)
    if shape != wanted and len(ours) != len(theirs):
        return f"{len(ours)} results, eager has {len(theirs)}"
    for one, two in zip(ours, theirs):
        if isinstance(two, torch.Tensor):
            try:
                torch.testing.assert_close(one, two, equal_nan=True)
            except (AssertionError, TypeError, ValueError, RuntimeError) as error:
                return describe(error)
        elif type(one) is not type(two) or (one != two and one == one):
            return f"{one!r}, eager has {two!r}"
    return ""


def count_nodes(outcome: Outcome, graphs: Any) -> None:
    """Counts by kind over forward graphs; those of a graph that was not lowered are all fallbacks."""
    lowered = {graph.parent for graph in graphs if graph.stage == "loops"}
    for graph in graphs:
        if graph.stage != "forward":
            continue
        for node in graph.nodes:
            kind, note = node.kind, node.note
            if graph.id not in lowered and kind in ("compute", "library"):
                kind, note = "fallback", "its graph was not lowered"
            outcome.nodes[kind] = outcome.nodes.get(kind, 0) + 1
            if kind in ("library", "fallback"):
                outcome.foreign.append(f"{node.op} ({kind}{': ' + note if note else ''})")


def describe(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"[:240]


# -- the parent --------------------------------------------------------------------------------


class Worker:
    """A process on one batch; told apart by its answers file."""

    def __init__(self, how: dict[str, Any], places: list[int], folder: Path, number: int) -> None:
        self.places = places
        self.answers = folder / f"answers-{number}.jsonl"
        self.answers.touch()
        self.done: dict[int, Outcome] = {}
        self.current: tuple[int, str] | None = None
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
            if "start" in message:
                self.current = (message["start"], message["name"])
            else:
                self.done[message["done"]] = Outcome(**message["outcome"])
                self.current = None

    def left(self) -> list[int]:
        return [place for place in self.places if place not in self.done]


def run_all(how: dict[str, Any], places: list[int], workers: int, timeout: float) -> dict[int, Outcome]:
    batches = [places[i : i + BATCH] for i in range(0, len(places), BATCH)]
    outcomes: dict[int, Outcome] = {}
    running: list[Worker] = []
    started = 0
    with tempfile.TemporaryDirectory(prefix="nbcompile-opdb-") as folder:
        for name in ("NBCOMPILE_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
            os.environ[name] = str(Path(folder) / name.lower())
        try:
            while batches or running:
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
    place, name = worker.current or (left[0], f"entry {left[0]}")
    why = f"no answer in {timeout:.0f} s" if hung else f"the process died ({worker.process.returncode})"
    tail = Path(worker.errors.name).read_text(errors="replace").strip().splitlines()[-1:]
    outcomes[place] = Outcome(name, "error", " ".join([why, *tail])[:240])
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
            lines.append(f"  {outcome.status:10} {outcome.name}: {outcome.reason}")
        elif not outcome.ran_compiled:
            lines.append(f"  ran eager  {outcome.name}: {outcome.reason}")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    if argv[:1] == ["--worker"]:
        request = json.loads(argv[1])
        sys.path.insert(0, str(ROOT))
        work(request["backend"], request["places"], Path(request["answers"]), request["bare_random"])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--backend", default="nbcompile")
    parser.add_argument("--limit", type=int, help="every k-th entry, so that this many remain")
    parser.add_argument("--only", action="append", default=[], help="entries whose name contains this")
    parser.add_argument("--json", type=Path, help="also write every outcome to this file")
    parser.add_argument("--bare-random", action="store_true", help="see above")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds an entry may take")
    arguments = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    table = entries()
    places = [
        place
        for place, op in enumerate(table)
        if not arguments.only or any(text in entry_name(op) for text in arguments.only)
    ]
    if arguments.limit and arguments.limit < len(places):
        places = [places[i * len(places) // arguments.limit] for i in range(arguments.limit)]
    start = time.monotonic()
    how = {"backend": arguments.backend, "bare_random": arguments.bare_random}
    found = run_all(how, places, arguments.workers, arguments.timeout)
    outcomes = [found[place] for place in sorted(found)]
    print(report(arguments.backend, outcomes))
    print(f"{time.monotonic() - start:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
