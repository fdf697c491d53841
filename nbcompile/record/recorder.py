"""The recorder: every step of a compile hands it what it did, and it makes the Compilation.

A recorder is an argument, never global. It only appends to lists, so it is cheap enough to sit on the
compile path of every ``torch.compile(backend="nbcompile")``; nothing is computed until somebody asks
for :meth:`Recorder.compilation`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, get_args

from nbcompile import targets
from nbcompile.errors import RecordError
from nbcompile.options import Options
from nbcompile.record.compilation import (
    Accuracy,
    AutotuneChoice,
    Cell,
    Compilation,
    Decision,
    Environment,
    Execution,
    Graph,
    GraphBreak,
    Guard,
    Kernel,
    Launched,
    LineLink,
    Measurement,
    Node,
    PassRecord,
    Recompile,
    Span,
)
from nbcompile.record.pairs import pairs_not_there
from nbcompile.record.watched.walk import DynamoWalk

Part = (
    Graph
    | Guard
    | GraphBreak
    | Recompile
    | Decision
    | Kernel
    | PassRecord
    | AutotuneChoice
    | Measurement
    | Accuracy
    | DynamoWalk
    | str
)

_FIELD: dict[type, str] = {
    Graph: "graphs",
    Guard: "guards",
    GraphBreak: "breaks",
    Recompile: "recompiles",
    Decision: "decisions",
    Kernel: "kernels",
    PassRecord: "passes",
    AutotuneChoice: "autotune",
    Measurement: "measurements",
    Accuracy: "accuracy",
    DynamoWalk: "walks",
    str: "notes",
}
assert set(_FIELD) == set(get_args(Part)), "every part has a field of Compilation"

# What one AtenGraph's compile leaves behind, and so what the disk cache keeps beside its binary.
_CACHED: dict[str, type] = {
    "graphs": Graph,
    "decisions": Decision,
    "kernels": Kernel,
    "autotune": AutotuneChoice,
}
_NESTED: dict[str, type] = {"nodes": Node, "spans": Span, "line_map": LineLink, "launches": Launched}


class KernelStopwatch(Protocol):
    """Times each kernel and library call of one graph while ``running``: a mapping a run from the id of the
    kernel or call to seconds."""

    running: bool
    laps: list[dict[str, float]]


class Recorder:
    """Collects the parts of one Compilation.

    ``progress`` is called with one short sentence a step; it must not raise. ``environment`` and
    ``execution`` may be replaced by the step that knows more (which C compiler, which flags).
    """

    def __init__(
        self,
        options: Options,
        backend: str = "nbcompile",
        cell: Cell | None = None,
        progress: Callable[[str], None] | None = None,
        name: str = "",
        mode: str | None = None,
        on_eager: Callable[[str], None] | None = None,
    ) -> None:
        self.options = options
        self.mode = mode or options.mode
        self.backend = backend
        self.cell = cell
        self.name = name
        self.environment: Environment | None = None
        self.execution: Execution | None = None
        self.from_cache: set[str] = set()  # graph ids whose binaries came from the cache
        self.ran_eagerly: dict[str, str] = {}  # graph ids that our compiler gave up on, and why
        self.gave_up: dict[str, type[Exception]] = {}  # of these, what kind of error was met
        self.sources: dict[str, dict[str, Node]] = {}  # graph id → its input nodes by Dynamo's source name
        self.stopwatches: dict[str, KernelStopwatch] = {}  # of the graphs that run our code, by their ids
        self.capture_started: float | None = None  # when Dynamo began the present graph, perf_counter()
        self.on_leaving: Callable[[], None] | None = None  # told when a graph is left to eager
        self._progress = progress
        self._on_eager = on_eager
        self._graph_count = 0
        self._parts: dict[str, list[Any]] = {field: [] for field in _FIELD.values()}

    def next_graph_id(self) -> str:
        """``g0``, ``g1``, ... in the order Dynamo captures."""
        number = self._graph_count
        self._graph_count += 1
        return f"g{number}"

    @property
    def graph_count(self) -> int:
        """How many graphs Dynamo captured so far."""
        return self._graph_count

    def leave_to_eager(
        self, graph: str, reason: str, advice: str = "", error: Exception | None = None
    ) -> None:
        """Keep why a graph runs as it is; tell whoever asked for it (``on_eager``) that, and what to do."""
        self.ran_eagerly[graph] = reason
        if error is not None:
            self.gave_up[graph] = type(error)
        if self.on_leaving is not None:
            self.on_leaving()
        if self._on_eager is not None:
            self._on_eager(f"{reason}. {advice}" if advice else reason)

    def leave_call_to_eager(self, graph: str, reason: str) -> None:
        """Note that a call of a compiled graph ran as the graph is, and why; tell whoever asked, once."""
        note = f"graph {graph}: a call ran eagerly: {reason}"
        if note not in self._parts["notes"] and self._on_eager is not None:
            self._on_eager(f"for one call: {reason}")
        self.add(note)

    def add(self, part: Part) -> None:
        """Append one part; a string is a note. The same note is kept once. TypeError for others."""
        field = _FIELD.get(type(part))
        if field is None:
            raise TypeError(f"a recorder takes parts of a Compilation, not {type(part).__name__}")
        if field == "notes" and part in self._parts["notes"]:
            return
        self._parts[field].append(part)

    def extend(self, parts: Iterable[Part]) -> None:
        """:meth:`add` each."""
        for part in parts:
            self.add(part)

    def change_kernels(self, change: Callable[[Kernel], Kernel]) -> None:
        """Replace each kernel so far by what ``change`` makes of it (it becomes known later how a kernel is
        launched than what it is)."""
        self._parts["kernels"] = [change(kernel) for kernel in self._parts["kernels"]]

    def parts(self, kind: type[Any]) -> tuple[Any, ...]:
        """Everything of one record type so far, in the order it was added."""
        return tuple(self._parts[_FIELD[kind]])

    @contextmanager
    def step(self, name: str, before: str = "", after: str = "") -> Iterator[list[str]]:
        """Time the body and append a PassRecord, also where it raises. Its note is what the body puts into
        the list that it is given, and the error."""
        said: list[str] = []
        start = time.perf_counter()
        try:
            yield said
        except BaseException as error:
            said.append(type(error).__name__)
            raise
        finally:
            spent = (time.perf_counter() - start) * 1e3
            self._parts["passes"].append(PassRecord(name, before, after, spent, "; ".join(said)))

    def progress(self, text: str) -> None:
        """Tell the user what is going on, in a few words."""
        if self._progress is not None:
            self._progress(text)

    # -- what the disk cache stores beside a binary --------------------------------------------

    def part(self, prefix: str) -> dict[str, Any]:
        """What compiling the AtenGraph ``prefix`` (``"g0.fw"``) added below it, as JSON-able data:
        its loop and fused graphs, decisions, kernels and autotuning."""
        rows = {f: [_plain(i) for i in self._parts[f] if _is_below(f, i, prefix)] for f in _CACHED}
        return {"prefix": prefix, **rows}

    def load_part(self, data: Mapping[str, Any], prefix: str | None = None) -> None:
        """Add again what :meth:`part` gave, exactly, for the AtenGraph ``prefix`` (by default the one
        it was made from): ids are renamed, the rest is untouched. RecordError if it is not a part."""
        try:
            old = data["prefix"]
            new = old if prefix is None else prefix
            if not isinstance(old, str):
                raise TypeError("prefix")
            made = {
                field: [_build(cls, row, old, new) for row in data[field]] for field, cls in _CACHED.items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"the stored record is damaged: {error!r}") from error
        for field, rows in made.items():
            self._parts[field].extend(rows)

    def drop_part(self, prefix: str) -> None:
        """Forget what :meth:`part` would give: the compile of that graph failed half-way. Of one of Dynamo's
        (``"g0"``) all is forgotten but the graph itself, as it was captured."""
        captured = f"{prefix}.fx"
        for field in _CACHED:
            self._parts[field] = [
                item
                for item in self._parts[field]
                if not _is_below(field, item, prefix) or getattr(item, "id", "") == captured
            ]

    # -- the result ---------------------------------------------------------------------------

    @property
    def compile_seconds(self) -> float:
        """Seconds of all steps together."""
        return float(sum(item.milliseconds for item in self._parts["passes"])) / 1e3

    def compilation(self, **extra: Any) -> Compilation:
        """The record so far. ``extra`` replaces fields, e.g. ``measurements=``."""
        if self.environment is None:
            from nbcompile.record.environment import detect

            self.environment = detect()
        compiled = [graph.id for graph in self._parts["graphs"] if graph.stage in ("forward", "backward")]
        fields: dict[str, Any] = {
            "id": self._identity(),
            "backend": self.backend,
            "mode": self.mode,
            "options": _plain(self.options.to_dict()),
            "environment": self.environment,
            "cell": self.cell,
            "compile_seconds": self.compile_seconds,
            "execution": self.execution or self._execution(),
            "from_cache": bool(compiled) and self.from_cache.issuperset(compiled),
            **{field: tuple(rows) for field, rows in self._parts.items()},
        }
        if self.backend == "nbcompile" and self.options.fuse:
            fields["notes"] += tuple(pairs_not_there(self.options, fields["graphs"]))
        fields["passes"] = tuple(sorted(self._parts["passes"], key=_place))
        return Compilation(**{**fields, **extra})

    def _execution(self) -> Execution:
        if self.options.interpret:
            return "interpreted"
        return "compiled" if targets.is_here(self.options.target) else "eager"

    def _identity(self) -> str:
        # Same cell, backend and options: same id, so that a warm record equals the cold one.
        source = self.cell.source if self.cell is not None else self.name
        options = {**self.options.to_dict(), "mode": self.mode}
        what = json.dumps([source, self.backend, options], default=str, sort_keys=True)
        return hashlib.sha256(what.encode()).hexdigest()[:12]


def _is_below(field: str, item: Any, prefix: str) -> bool:
    """Whether a part of this field came of compiling the AtenGraph ``prefix``."""
    key = {"graphs": "id", "autotune": "kernel"}.get(field, "graph")
    return str(getattr(item, key)).startswith(prefix + ".")


def _place(step: PassRecord) -> tuple[str, int, int]:
    """Steps in the order of the pipeline, graph by graph: AOTAutograd ends after what it calls, and building
    whenever the compiler does."""
    graph, *form = (step.before or step.after).split(".")
    if step.name == "capture":
        return graph, 0, 0
    if step.after.endswith(".fx"):
        return graph, 0, 1
    if step.name == "autograd":
        return graph, 0, 3
    if step.before == step.after and len(form) == 1:  # of an ATen graph, as it was traced
        return graph, 0, 2
    return graph, 1 + ("bw" in form), 1 if step.before.endswith(".source") else 0


def _plain(value: Any) -> Any:
    """Dataclasses to dicts and tuples to lists; faster than dataclasses.asdict, which copies deeply."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return {key: _plain(item) for key, item in vars(value).items()}


# Fields that hold ids, of a node, graph, loop, kernel or decision.
_ID_FIELDS = frozenset(
    ("id", "graph", "parent", "producer", "consumer", "kernel")
    + ("inputs", "origins", "outputs", "saved", "loops", "recomputed")
)


def _build(cls: type, row: Mapping[str, Any], old: str, new: str) -> Any:
    values: dict[str, Any] = {}
    for key, value in row.items():
        if key in _NESTED:
            value = tuple(_build(_NESTED[key], item, old, new) for item in value)
        elif isinstance(value, list):
            value = tuple(value)
        if old != new and key in _ID_FIELDS:
            value = _renamed(value, old, new)
        values[key] = value
    return cls(**values)


def _renamed(value: Any, old: str, new: str) -> Any:
    if isinstance(value, tuple):
        return tuple(_renamed(item, old, new) for item in value)
    if value == old or (isinstance(value, str) and value.startswith(old + ".")):
        return new + value[len(old) :]
    return value
