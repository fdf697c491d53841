"""Every architecture of the ``transformers`` package, small and with random weights, through this compiler.

    python scripts/architectures.py [--half 0] [--seconds 3600] [--out rows.jsonl] [--only bert t5] [--both]
    python scripts/architectures.py --device cuda --share 3/24 …    # one of many side by side
    python scripts/architectures.py --summary rows*.jsonl           # what they found together

For each model type of the package, a class with a head and a loss where there is one that runs (else the
base model; with ``--both`` each): its config made small by the names of its fields, weights drawn at random,
inputs made from the names of forward's arguments. Forward and backward run in eager twice, in eager with
float64, and compiled; results and all gradients are compared as ``%%compile --check`` does. Each runs in a
process of its own, so that a crash or a hang is one row. A row ends as one of:

    agrees    an error against float64 at most about twice eager's
    WRONG     results or gradients that are not, while those of aot_eager are
    raises    the compiled model raises, while aot_eager's does not; or a crash, or a hang
    torch     as one of these two, but so is aot_eager; or a hang in which our compiler has no part
    skipped   it cannot be built small by these rules, eager refuses the inputs, or is not deterministic

Needs ``transformers`` importable (no weights, no network). ``--half`` takes one half of the model types, by
a hash of their names, so that the other stays unseen; ``--seconds`` stops in time, and what is left is said.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import hashlib
import json
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from small_models import SEED, Found, find, runs, said, tensors_of

ROOT = Path(__file__).resolve().parent.parent
NEAR = 1e-5
LOOPS = ("pointwise", "reduction", "scan", "scatter")
HEADS_WITH_LOSS = (
    "MASKED_LM", "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SPEECH_SEQ_2_SEQ", "CTC",
    "SEQUENCE_CLASSIFICATION", "IMAGE_CLASSIFICATION", "AUDIO_CLASSIFICATION", "VIDEO_CLASSIFICATION",
    "SEMANTIC_SEGMENTATION", "DEPTH_ESTIMATION", "MASKED_IMAGE_MODELING", "QUESTION_ANSWERING",
    "TOKEN_CLASSIFICATION", "TIME_SERIES_PREDICTION", "MULTIMODAL_LM", "PRETRAINING", "OBJECT_DETECTION",
    "UNIVERSAL_SEGMENTATION", "ZERO_SHOT_IMAGE_CLASSIFICATION", "TEXT_TO_WAVEFORM",
)  # fmt: skip


@dataclass
class Row:
    """What became of one class. ``loops``, ``library`` and ``fallbacks`` are about graphs that our compiler
    took; ``unlowered`` counts the computing nodes of those it left to eager, ``eager`` says why."""

    name: str
    model: str = ""
    status: str = "skipped"
    reason: str = ""
    graphs: int = 0
    eager: dict[str, str] = field(default_factory=dict)
    breaks: list[str] = field(default_factory=list)
    loops: int = 0
    library: dict[str, int] = field(default_factory=dict)
    fallbacks: dict[str, int] = field(default_factory=dict)
    unlowered: int = 0
    compile_seconds: float = 0.0
    seconds: float = 0.0
    parameters: int = 0
    aot_eager: str = ""
    worst: list[str] = field(default_factory=list)

    def line(self) -> str:
        text = f"{self.status:8}{self.model or self.name}: {self.graphs} graphs"
        text += f", {len(self.breaks)} breaks, {self.loops} loops, {sum(self.library.values())} library"
        text += f", {sum(self.fallbacks.values())} fallback"
        if self.fallbacks:
            text += f" ({', '.join(f'{op} ×{n}' for op, n in sorted(self.fallbacks.items()))})"
        text += f", {self.compile_seconds:.1f} s of {self.seconds:.0f}"
        if self.eager:
            text += f"; in eager: {'; '.join(f'{graph}: {why}' for graph, why in self.eager.items())}"
        if self.reason:
            text += f"; {self.reason}"
        return text + (f"; aot_eager {self.aot_eager}" if self.aot_eager else "")


# -- which ---------------------------------------------------------------------------------------


def digest(name: str) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)


def classes() -> dict[str, list[str]]:
    """Names of the classes to try for each model type, those with a loss first, the base model last."""
    from transformers.models.auto import modeling_auto

    heads = [f"MODEL_FOR_{head}_MAPPING_NAMES" for head in HEADS_WITH_LOSS]
    tables = [getattr(modeling_auto, name, {}) for name in heads]
    found: dict[str, list[str]] = {}
    for table in [*tables, modeling_auto.MODEL_MAPPING_NAMES]:
        for kind, names in table.items():
            names = names if isinstance(names, str) else names[0]
            if names not in found.setdefault(kind, []):
                found[kind].append(names)
    return found


# -- compiling and comparing ---------------------------------------------------------------------


def check(row: Row, found: Found) -> None:
    """Compile, compare, and fill the row."""
    import torch

    import nbcompile
    from nbcompile.bench.measure.accuracy import check as accuracy_of
    from nbcompile.bench.measure.state import Snapshot
    from nbcompile.bench.measure.timing import Step

    model, inputs = found.model, found.inputs
    row.parameters = sum(p.numel() for p in model.parameters())
    torch.manual_seed(SEED)
    snapshot = Snapshot({"model": model, "inputs": inputs})
    leaves = tuple(t for t in snapshot.tensors.values() if t.is_leaf and t.requires_grad)

    def program(called: Any) -> Callable[[], dict[str, Any]]:
        return lambda: tensors_of(called(**inputs))

    eager = Step(program(model), train=True, leaves=leaves)
    options = {"cache": False, "verify": False, "random": "eager"}
    compiled = nbcompile.compile(model, backend="nbcompile", options=options)
    accuracy = accuracy_of(eager, {"compiled": eager.with_function(program(compiled))}, snapshot)
    record(row, compiled)
    bad = [item for item in accuracy if not item.agrees]
    if any(item.error is None and item.max_difference is not None for item in bad):  # there is no float64
        near = near_eager(eager, eager.with_function(program(compiled)), snapshot)
        bad = [item for item in bad if item.output not in near or item.error is not None]
        row.reason = "compared with float32 only"
    row.status = "agrees"
    if not bad:
        return
    row.worst = [f"{item.output}: {item.reason}" for item in bad[:12]]
    row.status = "raises" if any(item.output == "(run)" for item in bad) else "WRONG"
    row.reason = f"{len(bad)} of {len(accuracy)} differ; {row.worst[0]}"[:500]
    torch._dynamo.reset()
    theirs = eager.with_function(program(torch.compile(model, backend="aot_eager")))
    also = [item for item in accuracy_of(eager, {"aot_eager": theirs}, snapshot) if not item.agrees]
    row.aot_eager = f"{len(also)} differ; {also[0].output}: {also[0].reason}"[:300] if also else "agrees"
    outputs = {item.output for item in also}
    if all(item.output in outputs for item in bad):
        row.status = "torch"


def there(found: Found, device: str) -> Found:
    """Model and inputs on a device; RuntimeError where eager refuses them there."""
    import torch
    from torch.utils import _pytree

    inputs = _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), found.inputs)
    moved = Found(found.model.to(device), inputs)
    if device != "cpu":
        try:
            runs(moved.model, moved.inputs, times=1)
        except Exception as error:
            raise RuntimeError(f"eager on {device}: {said(error)}") from error
    return moved


def near_eager(eager: Any, step: Any, snapshot: Any) -> set[str]:
    """Results and gradients of a step that are eager's but for rounding, where no float64 says how large that
    is."""
    from nbcompile.bench.measure.accuracy import relative_error

    found = []
    for run in (eager, step):
        snapshot.restore()
        results = {f"output[{name!r}]": value.detach().clone() for name, value in run().items()}
        for name, tensor in snapshot.tensors.items():
            if tensor.is_leaf and tensor.requires_grad and tensor.grad is not None:
                results[f"{name}.grad"] = tensor.grad.clone()
        found.append(results)
    snapshot.restore()
    return {
        name
        for name, one in found[0].items()
        if name in found[1] and relative_error(found[1][name].double(), one.double()) < NEAR
    }


def record(row: Row, compiled: Any) -> None:
    """The counts of a record."""
    recorder, compilation = compiled.recorder, compiled.compilation
    row.graphs = recorder.graph_count
    row.eager = dict(recorder.ran_eagerly)
    row.breaks = [item.reason[:160] for item in compilation.breaks]
    row.compile_seconds = recorder.compile_seconds
    library: collections.Counter[str] = collections.Counter()
    fallbacks: collections.Counter[str] = collections.Counter()
    for graph in compilation.of_stage("loops"):
        for node in graph.nodes:
            row.loops += node.kind in LOOPS
            library[node.op] += node.kind == "library"
            fallbacks[node.op] += node.kind == "fallback"
    lowered = {graph.parent for graph in compilation.of_stage("loops")}
    for graph in (*compilation.of_stage("forward"), *compilation.of_stage("backward")):
        if graph.id not in lowered:
            row.unlowered += sum(node.kind in ("compute", "fallback") for node in graph.nodes)
    row.library, row.fallbacks = dict(+library), dict(+fallbacks)


def work(kind: str, names: list[str], both: bool, device: str, answers: Any, errors: str) -> None:
    """In a process of its own: send the rows of a model type."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(errors, os.O_WRONLY), 2)
    faulthandler.enable()
    import torch

    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    reasons: list[str] = []
    for name in names:
        start = time.perf_counter()
        row = Row(kind, name)
        answers.send(("at", asdict(row)))
        try:
            found = there(find(kind, name), device)
        except RuntimeError as error:
            reasons.append(f"{name}: {error}")
            row.reason = str(error)
        else:
            answers.send(("compiling", asdict(row)))
            try:
                check(row, found)
            except Exception as error:
                row.status, row.reason = "raises", f"the check itself: {said(error)}"
        row.seconds = time.perf_counter() - start
        if row.status != "skipped" or both:
            answers.send(("done", asdict(row)))
            if not both or name == names[-1]:
                return
            torch._dynamo.reset()
    if not both:
        answers.send(("done", asdict(Row(kind, "", "skipped", " || ".join(reasons)[:900]))))


# -- the parent ----------------------------------------------------------------------------------


def rows_of(kind: str, names: list[str], both: bool, device: str, timeout: float) -> list[Row]:
    """Rows of one model type, tried in a process of its own."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    rows: list[Row] = []
    at, stage, hung = Row(kind), "", False
    start = time.monotonic()
    with tempfile.NamedTemporaryFile("r", prefix="nbcompile-architectures-", errors="replace") as errors:
        process = fork.Process(target=work, args=(kind, names, both, device, theirs, errors.name))
        process.start()
        theirs.close()
        while True:
            left = timeout - (time.monotonic() - start)
            if left <= 0 or not ours.poll(left):
                hung = True
                break
            try:
                stage, answer = ours.recv()
            except EOFError:
                break
            at = Row(**answer)
            if stage == "done":
                rows.append(at)
        if hung and process.pid is not None:
            os.kill(process.pid, signal.SIGABRT)  # it says where it is
            process.join(5)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.join()
        said_last = errors.read().partition("Fatal Python error")[2]  # of all threads: backward has its own
    if stage != "done":
        frames = [line.strip() for line in said_last.splitlines() if line.startswith("  File")]
        why = f"no answer in {timeout:.0f} s" if hung else f"the process died ({process.exitcode})"
        ours_too = not hung or any("/nbcompile/compiler/" in frame for frame in frames)
        at.status = ("raises" if ours_too else "torch") if stage == "compiling" else "skipped"
        ours = [frame for frame in frames if "/nbcompile/compiler/" in frame]
        at.reason = " ".join([why if stage == "compiling" else f"eager: {why}", *(ours or frames)[:4]])
        at.seconds = time.monotonic() - start
        rows.append(at)
    return rows


def summary(rows: list[Row], left: int) -> str:
    ran = [row for row in rows if row.status != "skipped"]
    counts = collections.Counter(row.status for row in rows)
    lines = [
        f"{counts['agrees']} of {len(ran)} agree; "
        + ", ".join(f"{count} {status}" for status, count in counts.most_common())
        + (f"; {left} model types not reached" if left else "")
    ]
    graphs = sum(row.graphs for row in ran)
    why = collections.Counter(reason[:200] for row in ran for reason in row.eager.values())
    lines.append(f"{graphs} graphs, {sum(row.eager != {} for row in ran)} rows with a part in eager")
    lines += [f"  {count} in eager: {reason}" for reason, count in why.most_common()]
    loops, unlowered = sum(row.loops for row in ran), sum(row.unlowered for row in ran)
    fallbacks: collections.Counter[str] = collections.Counter()
    library: collections.Counter[str] = collections.Counter()
    for row in ran:
        fallbacks.update(row.fallbacks)
        library.update(row.library)
    every = loops + unlowered + sum(fallbacks.values())
    if every:
        lines.append(
            f"native: {loops} of {every} computing nodes ({loops / every:.2%}), "
            f"{sum(fallbacks.values())} fallbacks, {unlowered} in graphs left to eager; "
            f"{sum(library.values())} library calls"
        )
    lines.append("fallbacks: " + ", ".join(f"{op} ×{count}" for op, count in fallbacks.most_common()))
    lines.append("library: " + ", ".join(f"{op} ×{count}" for op, count in library.most_common()))
    breaks = collections.Counter(reason for row in ran for reason in row.breaks)
    lines += [f"  {count} breaks: {reason}" for reason, count in breaks.most_common(20)]
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these model types")
    parser.add_argument("--half", type=int, choices=(0, 1), help="half of the model types")
    parser.add_argument("--both", action="store_true", help="every class of a model type, not only the first")
    parser.add_argument("--share", default="0/1", metavar="K/N", help="every Nth of them, from the Kth on")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="where they run")
    parser.add_argument("--summary", type=Path, nargs="+", help="of rows written before, and nothing else")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of the first")
    parser.add_argument("--seconds", type=float, help="start none after so many seconds")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a model type may take")
    parser.add_argument("--out", type=Path, help="also write every row to this file, as JSON lines")
    arguments = parser.parse_args(argv)
    if arguments.summary:
        lines = [line for path in arguments.summary for line in path.read_text().splitlines()]
        rows = [Row(**json.loads(line)) for line in lines]
        print("\n".join(row.line() for row in rows if row.status not in ("agrees", "skipped")))
        print(summary(rows, 0))
        return 0
    for name in ("OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HF_HUB_OFFLINE"):
        os.environ.setdefault(name, "1" if name != "TOKENIZERS_PARALLELISM" else "false")
    sys.path.insert(0, str(ROOT))
    warnings.simplefilter("ignore")
    import torch
    import transformers

    import nbcompile.compiler.compile_graph  # noqa: F401  (once, for all that are forked)

    logging.getLogger("torch").setLevel(logging.CRITICAL)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    every = classes()
    kinds = sorted(every, key=digest)
    if arguments.half is not None:
        kinds = [kind for kind in kinds if digest(kind) // 2 % 2 == arguments.half]
    if arguments.only:
        kinds = [kind for kind in arguments.only if kind in every]
    place, shares = (int(number) for number in arguments.share.split("/"))
    kinds = kinds[arguments.skip :][place::shares]
    start, rows, reached = time.monotonic(), [], 0
    for kind in kinds:
        if arguments.seconds and time.monotonic() - start > arguments.seconds:
            break
        reached += 1
        for row in rows_of(kind, every[kind], arguments.both, arguments.device, arguments.timeout):
            rows.append(row)
            print(row.line(), flush=True)
            if arguments.out:
                with arguments.out.open("a") as out:
                    print(json.dumps(asdict(row)), file=out)
    print(summary(rows, len(kinds) - reached))
    return 1 if any(row.status in ("WRONG", "raises") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
