"""What a trace says, as frozen values: compilations with their artifacts, and where each lies in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from nbcompile.traces.reading.lines import PayloadPlace

CompileStatus = Literal["ok", "restarted", "empty", "failed", "unfinished"]
"""``restarted``: compiled, after Dynamo began anew (a graph break, for one). ``empty``: nothing in it to
compile. ``unfinished``: the trace has no metrics of it, so nobody knows how it ended."""
CacheState = Literal["hit", "miss", "bypass"]

_LIBRARIES = ("/site-packages/", "/dist-packages/", "\\site-packages\\", "<frozen ")
OUTSIDE = "-/-"
"""The id of what belongs to no compilation."""


@dataclass(frozen=True)
class TraceFrame:
    """A place on a stack. ``code`` is its line of source, where the trace has it."""

    file: str
    line: int
    function: str
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True)
class TraceArtifact:
    """Something of one compilation that can be looked at. ``number`` is its place in the order of the trace,
    ``name`` what torch calls it, ``label`` more of it (a file's name, a link). ``digest`` is the hash of what
    it says, addresses and device numbers aside: equal on two ranks that did the same."""

    number: int
    name: str
    place: PayloadPlace
    attempt: int = 0
    label: str = ""
    digest: str = ""


@dataclass(frozen=True)
class CacheEvent:
    """A cache that was asked. ``saved`` are the seconds that a hit saved, by torch's own account."""

    cache: str
    state: CacheState
    key: str = ""
    saved: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class CompileFailure:
    """Why a compilation ended without code: the exception, and the user's line where that is known."""

    type: str
    reason: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class ShapeFact:
    """Something learnt of symbolic sizes: a size made a symbol, a symbol made a number (specialized), a guard
    added. ``text`` says it, ``stack`` is the user's."""

    kind: Literal["symbol", "specialization", "guard", "unbacked", "real tensor"]
    text: str
    stack: tuple[TraceFrame, ...] = ()
    framework: tuple[TraceFrame, ...] = ()


@dataclass(frozen=True)
class TracedCompile:
    """One compilation: ``id`` as torch writes it (``0/1``, ``!0/1/0`` under compiled autograd); what has the
    same id again, after a reset, ends in ``#2``. ``metrics`` are torch's own, configurations left out.

    Seconds are ``None`` where the trace has none. ``breaks`` counts the graph breaks that it reports.
    """

    id: str
    status: CompileStatus
    function: str = ""
    file: str = ""
    line: int = 0
    attempts: int = 1
    stack: tuple[TraceFrame, ...] = ()
    artifacts: tuple[TraceArtifact, ...] = ()
    metrics: dict[str, Any] = field(default_factory=dict)
    backward_metrics: dict[str, Any] = field(default_factory=dict)
    restarts: tuple[str, ...] = ()
    failure: CompileFailure | None = None
    caches: tuple[CacheEvent, ...] = ()
    recompiles: tuple[str, ...] = ()
    breaks: int = 0
    shapes: tuple[ShapeFact, ...] = ()

    @property
    def seconds(self) -> float | None:
        """Of the whole compilation, its backward included where that was compiled apart."""
        parts = [self.metrics.get("entire_frame_compile_time_s"), self.backward_metrics.get("duration_us")]
        known = [part * scale for part, scale in zip(parts, (1.0, 1e-6)) if isinstance(part, int | float)]
        return sum(known) if known else None

    @property
    def caller(self) -> TraceFrame | None:
        """The innermost frame of its stack that is no library's."""
        own = [frame for frame in self.stack if not any(part in frame.file for part in _LIBRARIES)]
        return own[-1] if own else None

    @property
    def backend_seconds(self) -> float | None:
        """Of what Dynamo called its backend for: AOTAutograd, and the compiler behind it."""
        return self._metric("backend_compile_time_s")

    @property
    def inductor_seconds(self) -> float | None:
        return self._metric("inductor_compile_time_s")

    @property
    def graph_ops(self) -> int | None:
        found = self.metrics.get("graph_op_count")
        return found if isinstance(found, int) else None

    @property
    def guards(self) -> int | None:
        found = self.metrics.get("guard_count")
        return found if isinstance(found, int) else None

    @property
    def cache_text(self) -> str:
        """``aotautograd miss, fx graph hit``: each cache once, with how often where that is more."""
        counted: dict[str, int] = {}
        for event in self.caches:
            text = f"{event.cache} {event.state}"
            counted[text] = counted.get(text, 0) + 1
        return ", ".join(f"{text} ×{n}" if n > 1 else text for text, n in counted.items())

    def named(self, *names: str) -> tuple[TraceArtifact, ...]:
        """Its artifacts of these names, in order."""
        return tuple(each for each in self.artifacts if each.name in names)

    def _metric(self, name: str) -> float | None:
        found = [m.get(name) for m in (self.metrics, self.backward_metrics)]
        known = [value for value in found if isinstance(value, int | float)]
        return float(sum(known)) if known else None


class TimedPart(NamedTuple):
    """A stretch of compile time: seconds since the trace's first event, and how deep it lies in others."""

    name: str
    begins: float
    ends: float
    depth: int
    compile: str
    thread: int


@dataclass(frozen=True)
class TraceIndex:
    """All that one file says, but for the payloads. ``unread`` says what could not be read and how often,
    ``unknown`` the kinds of records that this reader does not know, which are listed nonetheless."""

    compiles: tuple[TracedCompile, ...] = ()
    outside: tuple[TraceArtifact, ...] = ()
    parts: tuple[TimedPart, ...] = ()
    events: int = 0
    parts_left_out: int = 0
    rank: int | None = None
    torch: str = ""
    records: int = 0
    size: int = 0
    damaged: int = 0
    unread: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
