"""Many programs: workers in processes of their own, what they say, and the summary."""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import functools
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from tests.fuzz.program import Program

BATCH = 250  # programs of one process: what Dynamo and the C libraries keep stays small


# -- in a worker ------------------------------------------------------------------------------------


def work(request: dict[str, Any]) -> int:
    """Check the seeds of a request; a JSON line on standard output before and after each."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what programs print must not come between
    from tests.fuzz.check import prepare

    target = _target(request)
    prepare(target)
    target.compiler()  # a compiler that cannot be imported is no program's fault
    parent = os.getppid()
    for number, item in enumerate(request["work"]):
        if os.getppid() != parent:
            return 1
        print(json.dumps({"start": item["seed"]}), file=out)
        drawn = functools.partial(print, json.dumps({"drawn": item["seed"]}), file=out)
        found = outcome(item, request, target, drawn)
        if found["status"] == "no program" and number:  # what ran before may have left torch in a bad way
            os._exit(POISONED)
        print(json.dumps({"done": item["seed"], **found}), file=out)
        if found.get("poisoned"):
            os._exit(POISONED)
    return 0


def _target(request: dict[str, Any]) -> Any:
    from tests.fuzz.check import Target

    return Target(
        request["target"],
        tuple(tuple(pair.split("=", 1)) for pair in request["option"]),
        request["backend"],
        request["fallbacks"],
    )


def outcome(
    item: dict[str, Any], request: dict[str, Any], target: Any, drawn: Callable[[], None]
) -> dict[str, Any]:
    """What came of one seed, as plain data. ``drawn`` is called when there is a program."""
    from tests.fuzz.check import EagerDiesError, check, without_us
    from tests.fuzz.draw import draw
    from tests.fuzz.reduce import reduce

    try:
        program = Program.from_json(item["program"]) if item.get("program") else draw(item["seed"])
    except Exception as error:  # the generator's own fault
        return {"status": "no program", "note": "".join(traceback.format_exception_only(error)).strip()[:300]}
    drawn()
    if item.get("once"):  # in another worker; if torch alone dies or hangs as well, so does this one
        without_us(program, target)
        item = {**item, "died": item["once"]}
        if not request["reduce"]:
            return {"status": "failure", "program": program.to_json(), **item["died"]}
    if item.get("died"):  # in another worker
        seconds = request["reduce_seconds"]
        small = reduce(program, functools.partial(dies, target=target, patience=request["timeout"]), seconds)
        return {"status": "failure", "program": program.to_json(), "reduced": small.to_json(), **item["died"]}
    try:
        verdict = check(program, target)
    except EagerDiesError:
        return {"status": "torch", "torch": ["eager dies"], "poisoned": True}
    except torch.AcceleratorError:
        traceback.print_exc()
        os._exit(POISONED)  # another worker takes this one's place
    except Exception as error:
        return {"status": "fuzzer", "note": traceback.format_exc()[-900:], "kinds": [type(error).__name__]}
    found: dict[str, Any] = {
        "status": "failure" if verdict.failures else "torch" if verdict.torch else "fine",
        "kinds": list(dict.fromkeys(item.kind for item in verdict.failures)),
        "torch": sorted({item.kind for item in verdict.torch}),
        "differences": [str(item) for item in verdict.failures],
        "steps": len(program.steps),
        "graphs": verdict.graphs,
        "eager": verdict.eager,
        "refused": verdict.refused,
        "seconds": verdict.seconds,
        "ops": [step.op for step in program.steps],
    }
    if verdict.failures:
        found["program"] = program.to_json()
        if request["reduce"]:
            found["reduced"] = reduced(
                program, verdict.failures[0].kind, target, request["reduce_seconds"]
            ).to_json()
    elif request.get("torch"):
        new = [item.kind for item in verdict.torch if item.kind not in KNOWN]
        KNOWN.update(new)
        found["theirs"] = {
            kind: reduced(program, kind, target, request["reduce_seconds"], theirs=True).to_json()
            for kind in new
        }
    return found


POISONED = 86
"""The exit status of a worker in which nothing works any more, as where its GPU has met an error."""
KNOWN: set[str] = set()
"""Kinds of torch's own differences that this process has reduced."""


def reduced(program: Program, kind: str, target: Any, seconds: float, theirs: bool = False) -> Program:
    """The smallest program found with a failure of this kind; with a difference that is torch's, if
    ``theirs``."""
    from tests.fuzz.check import check
    from tests.fuzz.reduce import reduce

    def fails(candidate: Program) -> bool:
        try:
            verdict = check(candidate, target)
            return kind in ([item.kind for item in verdict.torch] if theirs else verdict.kinds)
        except Exception:  # no program at all
            return False

    return reduce(program, fails, seconds)


def dies(program: Program, target: Any, patience: float) -> bool:
    """Whether checking a program ends its process, or does not end: tried in a forked one."""
    from tests.fuzz.check import check

    child = os.fork()
    if not child:
        with contextlib.suppress(Exception):
            check(program, target)
        os._exit(0)
    end = time.monotonic() + patience
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


# -- the parent -------------------------------------------------------------------------------------


class Worker:
    """A process with a batch of seeds."""

    def __init__(self, script: Path, request: dict[str, Any], folder: Path, number: int) -> None:
        self.work = request["work"]
        self.answers = folder / f"answers-{number}.jsonl"
        self.messages = folder / f"errors-{number}.txt"
        asked = folder / f"request-{number}.json"  # longer than a command line may be
        asked.write_text(json.dumps(request))
        self.done: dict[int, dict[str, Any]] = {}
        self.current: int | None = None
        self.drawn = False  # the present program: until then only eager is at work
        self.since = time.monotonic()
        self._read = 0
        with self.answers.open("w") as out, self.messages.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(script), "--worker", str(asked)], stdout=out, stderr=errors
            )

    def poll(self) -> list[dict[str, Any]]:
        """What it has said since."""
        with self.answers.open() as lines:
            lines.seek(self._read)
            text = lines.read()
        whole = text[: text.rfind("\n") + 1]
        self._read += len(whole.encode())
        found = []
        for line in whole.splitlines():
            message = json.loads(line)
            self.since = time.monotonic()
            if "start" in message:
                self.current, self.drawn = message["start"], False
            elif "drawn" in message:
                self.drawn = True
            else:
                self.done[message["done"]] = message
                self.current = None
                found.append(message)
        return found

    def left(self) -> list[dict[str, Any]]:
        return [item for item in self.work if item["seed"] not in self.done and item["seed"] != self.current]

    def last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.messages.read_text(errors="replace").splitlines()
            told = [line for line in lines if "ERROR:" in line or "runtime error" in line or "    #" in line]
            return " | ".join((told or lines[-3:])[:8])[:900]
        return ""


def run(arguments: argparse.Namespace, script: Path, folder: Path) -> int:
    """Check all seeds; 0 if nothing failed."""
    tally = Tally(arguments)
    source = _work(arguments)
    end = time.monotonic() + arguments.seconds if arguments.seconds else None
    waiting: list[list[dict[str, Any]]] = []
    running: list[Worker] = []
    number = 0
    batch = BATCH if arguments.target != "cuda" else 60
    base = {
        "target": arguments.target,
        "option": arguments.option,
        "backend": arguments.backend,
        "fallbacks": arguments.fallbacks,
        "timeout": min(arguments.timeout, 60.0),
        "torch": bool(arguments.torch),
        "reduce": arguments.reduce,
        "reduce_seconds": arguments.reduce_seconds,
    }
    try:
        while True:
            out_of_time = end is not None and time.monotonic() > end
            while len(running) < arguments.jobs and not out_of_time:
                items = waiting.pop() if waiting else list(itertools.islice(source, _share(arguments, batch)))
                if not items:
                    break
                running.append(Worker(script, {**base, "work": items}, folder, number))
                number += 1
            if not running or out_of_time:
                break
            time.sleep(0.1)
            for worker in list(running):
                ended = worker.process.poll() is not None
                for message in worker.poll():
                    tally.add(message)
                patience = arguments.timeout + (arguments.reduce_seconds * 1.5 if arguments.reduce else 0)
                hung = not ended and time.monotonic() - worker.since > patience
                if ended or hung:
                    if hung:
                        worker.process.kill()
                        worker.process.wait()
                    running.remove(worker)
                    if worker.current is not None:
                        waiting += _settled(worker, hung, arguments.reduce, tally)
                    elif worker.process.returncode not in (0, POISONED):
                        tally.add({"done": -1, "status": "fuzzer", "note": worker.last_words(), "kinds": []})
                        if not worker.done:  # nor would another
                            raise SystemExit(f"a worker could not begin: {worker.last_words()}")
                        continue
                    if worker.left():
                        waiting.append(worker.left())
    except KeyboardInterrupt:
        pass
    finally:
        for worker in running:
            worker.process.kill()
    print(tally.summary())
    return 1 if tally.statuses["failure"] or tally.statuses["fuzzer"] else 0


def _settled(worker: Worker, hung: bool, reduce: bool, tally: Tally) -> list[list[dict[str, Any]]]:
    """Tell of the program at which a worker ended; work that is left to do for it."""
    item = next(item for item in worker.work if item["seed"] == worker.current)
    if not worker.drawn and worker.done and worker.process.returncode == POISONED:
        return [[item]]
    if not worker.drawn and not hung:
        tally.add({"done": worker.current, "status": "torch", "torch": ["eager dies"]})
        return []
    died = _death(worker, hung)
    if item.get("once"):
        tally.add({"done": worker.current, "status": "torch", "torch": died["kinds"]})
        return []
    if not item.get("died"):
        return [[{**item, "once": died}]]
    tally.add({"done": worker.current, "status": "failure", **died})
    return []


def _death(worker: Worker, hung: bool) -> dict[str, Any]:
    """What is said of a program whose worker ended, or had to be ended."""
    what = "hang" if hung else f"crash {worker.process.returncode}"
    return {"kinds": [what], "differences": [f"{what}: {worker.last_words()}"]}


def _share(arguments: argparse.Namespace, batch: int) -> int:
    """How many seeds a worker is given: fewer where there would not be enough for all."""
    if arguments.again or not arguments.seconds:
        first, last = _bounds(arguments)
        return max(1, min(batch, -(-(last - first) // arguments.jobs))) if last else batch
    return batch


def _bounds(arguments: argparse.Namespace) -> tuple[int, int]:
    first, _, last = (arguments.seeds or "0:").partition(":")
    endless = arguments.seconds and not last
    return int(first or 0), 0 if endless else int(last) if last else int(first or 0) + arguments.count


def _work(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if arguments.again:
        for number, line in enumerate(arguments.again.read_text().splitlines()):
            message = json.loads(line)
            text = message.get("reduced") or message.get("program")
            if text:
                yield {"seed": number, "program": text}
        return
    first, last = _bounds(arguments)
    for seed in range(first, last) if last else itertools.count(first):
        yield {"seed": seed}


class Tally:
    """Counts what workers say, and prints failures as they come."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.start = time.monotonic()
        self.statuses: collections.Counter[str] = collections.Counter()
        self.kinds: collections.Counter[str] = collections.Counter()
        self.torch: collections.Counter[str] = collections.Counter()
        self.eager: collections.Counter[str] = collections.Counter()
        self.signatures: dict[str, list[int]] = {}
        self.programs = self.steps = self.graphs = self.uncaptured = self.fell_back = self.refused = 0
        self.ops: set[str] = set()

    def add(self, message: dict[str, Any]) -> None:
        self.programs += message["status"] != "no program"
        self.statuses[message["status"]] += 1
        self.kinds.update(message.get("kinds", ()) if message["status"] == "failure" else ())
        self.torch.update(message.get("torch", ()))
        self.steps += message.get("steps", 0)
        self.ops.update(message.get("ops", ()))
        self.graphs += message.get("graphs", 0)
        self.uncaptured += message.get("graphs") == 0
        self.fell_back += bool(message.get("eager"))
        self.refused += bool(message.get("refused"))
        for kind, program in message.get("theirs", {}).items():
            self._keep_theirs(kind, Program.from_json(program))
        self.eager.update(reason[:110] for reason in message.get("eager", ()))
        if message["status"] in ("failure", "fuzzer", "no program"):
            self._tell(message)

    def _tell(self, message: dict[str, Any]) -> None:
        said = message.get("differences") or [message.get("note", "")]
        print(f"seed {message['done']} (program {self.programs}): {'; '.join(said[:3])[:600]}", flush=True)
        if message.get("reduced"):
            program = Program.from_json(message["reduced"])
            signature = f"{message['kinds'][0]}: {', '.join(sorted({step.op for step in program.steps}))}"
            first = signature not in self.signatures
            self.signatures.setdefault(signature, []).append(message["done"])
            if first:
                print(described(program), flush=True)
                if self.arguments.write:
                    from tests.fuzz.write import write_test

                    print(f"  written to {write_test(program, message, self.arguments.target)}", flush=True)
        if self.arguments.out is not None:
            with self.arguments.out.open("a") as out:
                print(json.dumps(message), file=out)

    def _keep_theirs(self, kind: str, program: Program) -> None:
        """Into the list of what torch itself does otherwise, unless a program as small is there."""
        path: Path = self.arguments.torch
        kept = json.loads(path.read_text()) if path.exists() else {}
        if kind not in kept or len(program.to_json()) < len(json.dumps(kept[kind], sort_keys=True)):
            kept[kind] = json.loads(program.to_json())
            path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")

    def summary(self) -> str:
        spent = time.monotonic() - self.start
        lines = [
            f"{self.programs} programs of {self.steps} operations ({len(self.ops)} kinds), "
            f"{self.graphs} graphs, in {spent:.0f} s",
            f"  {self.statuses['failure']} failures",
            *[f"  {none} seeds of which no program came" for none in (self.statuses["no program"],) if none],
            f"  {self.statuses['torch']} with differences that are torch's own",
            f"  {self.uncaptured} without a graph, {self.fell_back} where a graph ran eagerly, "
            f"{self.refused} that eager refused",
        ]
        for title, counter in (
            ("failures", self.kinds),
            ("torch's own", self.torch),
            ("ran eagerly", self.eager),
        ):
            lines += [f"  {title}: {count:5d} {kind}" for kind, count in counter.most_common(30)]
        lines += [
            f"  reduced: {len(seeds):4d} {name}, seeds {seeds[:5]}" for name, seeds in self.signatures.items()
        ]
        return "\n".join(lines)


def described(program: Program) -> str:
    """A program as it is read: what makes its arguments, itself, and how it is called."""
    facts = {"mode": program.mode, "dynamic": program.dynamic}
    facts |= {"captures": True} if program.captures else {}
    facts |= {"autocast": program.autocast} if program.autocast else {}
    text = program.inputs_source() + program.source() + f"# {facts}, sizes {list(program.sizes)}"
    return "\n".join("    " + line for line in text.splitlines())


def show(arguments: argparse.Namespace) -> int:
    """One seed, in this process."""
    from tests.fuzz.check import check, prepare
    from tests.fuzz.draw import draw

    target = _target(vars(arguments))
    prepare(target)
    program = draw(arguments.show)
    print(described(program))
    verdict = check(program, target)
    print(dataclasses.asdict(verdict))
    if verdict.failures and arguments.reduce:
        print(described(reduced(program, verdict.failures[0].kind, target, arguments.reduce_seconds)))
    return 1 if verdict.failures else 0
