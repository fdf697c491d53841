"""The Compilation: the one record that every view, table, diff and cache entry reads.

A ``Compilation`` is plain data: strings, numbers and tuples, never a tensor, never a live object. It
round-trips through JSON, has a versioned schema (:func:`json_schema`), and can be read on a machine
that has no torch. Ids are short and stable; links point *upward* only (``origins``: what this was
made from), and the way down is computed by :class:`nbcompile.record.provenance.Links`.

Id conventions::

    g0                      the first graph Dynamo captured in this compilation
    g0.fx.n3                node 3 of its FX graph
    g0.joint.n7             ... of the joint forward/backward graph
    g0.fw.n5  g0.bw.n7      ... of the forward (or inference) and backward ATen graphs
    g0.fw.l4                loop 4 lowered from g0.fw       (graph id g0.fw.loops)
    g0.fw.k0  g0.fw.c1      kernel 0 / library call 1 of its fused program (graph id g0.fw.fused)
    g0.fw.d2                fusion decision 2
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from nbcompile.errors import RecordError
from nbcompile.record.advice.coach import Mend, Price
from nbcompile.record.measured import Accuracy as Accuracy
from nbcompile.record.measured import AutotuneChoice as AutotuneChoice
from nbcompile.record.measured import Measurement as Measurement
from nbcompile.record.measured import TimedCellPart as TimedCellPart
from nbcompile.record.packed import (
    LEFT_OUT,
    check_depth,
    check_schema,
    json_text,
    plain,
    record_of,
    values_of_text,
)
from nbcompile.record.shown import chart_of, explorer_of
from nbcompile.record.watched.walk import DynamoWalk

if TYPE_CHECKING:
    import plotly.graph_objects

SCHEMA = "nbcompile.compilation/1"
MAX_PEERS = 8

Dim = int | str
"""One extent of a shape: a number, or the name of a symbolic size such as ``s0``."""

NodeKind = Literal[
    "input", "constant", "view", "compute", "library", "fallback", "output",  # fx and aten graphs
    "pointwise", "reduction", "scan", "scatter",  # loops
    "kernel",  # fused program
]  # fmt: skip
Stage = Literal["fx", "joint", "forward", "backward", "loops", "fused"]
Execution = Literal["compiled", "interpreted", "eager"]
"""What became of our kernels: they ran, they ran in Triton's interpreter, or they are for a chip that is
not here, and the graphs ran eagerly."""


@dataclass(frozen=True)
class Span:
    """A place in the user's source. ``line`` is 1-based and counts the magic line of a cell.

    ``file`` is empty for the compiled cell itself, else the file (or other cell) it points into.
    Columns are 0-based, end exclusive; ``None`` where Python recorded none.
    """

    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    file: str = ""


@dataclass(frozen=True)
class Node:
    """One node of one stage. ``inputs`` are ids in the same graph, ``origins`` ids one stage up.

    ``spans`` runs from the outermost user frame (the cell) to the innermost. ``text`` is this node's
    line of the graph's text. ``bytes`` is the size of its result, in bytes; ``seconds`` the measured time
    of one run of a kernel or call (fused graphs). ``error`` is the relative error of its value against
    float64, and ``differs`` whether that is more than eager's own explains, in the record of a check.
    """

    id: str
    name: str
    op: str
    kind: NodeKind
    inputs: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    shape: tuple[Dim, ...] | None = None
    dtype: str | None = None
    stride: tuple[Dim, ...] | None = None
    bytes: int = 0
    module: str = ""
    text: str = ""
    note: str = ""  # e.g. why an op is a fallback
    seconds: float | None = None
    error: float | None = None
    differs: bool = False


@dataclass(frozen=True)
class Graph:
    """One stage of one captured graph. ``parent`` is the id of the graph it was made from.

    ``saved`` (forward graphs) lists the nodes kept for the backward pass. ``runs`` (fused graphs): how often
    one call of what was run or timed runs it, as was counted.
    """

    id: str
    stage: Stage
    title: str
    nodes: tuple[Node, ...] = ()
    outputs: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()
    parent: str = ""
    runs: int = 1
    text: str = field(default="", metadata={LEFT_OUT: lambda graph: graph.lines()})
    """As it prints. Where that is its nodes' own lines, JSON leaves it out."""

    def __post_init__(self) -> None:
        if not self.text:
            object.__setattr__(self, "text", self.lines())

    def lines(self) -> str:
        """What its nodes print, a line for each that has a text."""
        return "\n".join(node.text for node in self.nodes if node.text)


@dataclass(frozen=True)
class Guard:
    """A condition Dynamo checks before it reuses a graph."""

    graph: str
    kind: str  # e.g. TENSOR_MATCH
    name: str  # the guarded source, e.g. L['x']
    code: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class GraphBreak:
    """A place where Dynamo had to stop a graph: the cell line, the reason, and what to change."""

    reason: str
    hint: str = ""
    kind: str = ""  # Dynamo's graph-break type
    after_graph: str = ""
    spans: tuple[Span, ...] = ()
    price: Price | None = None
    mend: Mend | None = None


@dataclass(frozen=True)
class LineFate:
    """What became of one statement of the cell, which goes from ``line`` to ``end_line`` (a compound one:
    what it begins with), and why. ``compiled``: it is part of a graph; ``eager``: it ran in Python although
    it may hold tensor work; ``python``: nothing in it is to be compiled; ``unrun``: it was never reached."""

    line: int
    end_line: int
    fate: Literal["compiled", "eager", "python", "unrun"]
    reason: str = ""


BY_FULLGRAPH = "an error with --fullgraph"
"""How it ends what a line did at which a cell of ``--fullgraph`` stopped."""
OWN_COMPILE = "compiled by its own torch.compile"
"""How the reason of a line begins that calls what torch.compile has made: it runs as the user asked there."""


@dataclass(frozen=True)
class Recompile:
    """A guard that failed and so caused another graph for the same code. Its price is that compile."""

    reason: str
    function: str = ""
    graph: str = ""
    spans: tuple[Span, ...] = ()
    price: Price | None = None
    mend: Mend | None = None


@dataclass(frozen=True)
class Decision:
    """One candidate pair of the fusion pass and what became of it. ``bytes_saved`` counts memory
    traffic in bytes: what it saves where accepted, what it would save where refused. ``forceable``: refused
    for its cost only, so that the option ``force_fuse`` would fuse it; ``price`` then is what keeping them
    apart costs, where the cell was timed both ways."""

    id: str
    graph: str  # the fused graph
    producer: str  # loop or library-call id
    consumer: str
    kind: Literal["producer-consumer", "siblings"]
    accepted: bool
    code: str  # short stable name of the rule, e.g. "same-rows"
    reason: str  # one sentence
    bytes_saved: int = 0
    overruled: bool = False  # decided by the user
    forceable: bool = False
    price: Price | None = None


@dataclass(frozen=True)
class LineLink:
    """Generated line ``line`` (1-based, within the kernel's own source) was made for ``origins``
    (loop ids)."""

    line: int
    origins: tuple[str, ...]


@dataclass(frozen=True)
class Launched:
    """One function of a kernel on a GPU: how it is launched and what its compiled code takes.

    ``registers`` are 32-bit, a thread; ``shared_bytes`` a program; ``spill_bytes`` a thread, stored to
    and loaded from local memory. ``None``: not known (the compiler of that chip does not tell)."""

    function: str
    grid: tuple[int, ...]
    constants: dict[str, int]
    warps: int = 0
    stages: int = 0
    registers: int | None = None
    shared_bytes: int | None = None
    spill_bytes: int | None = None


@dataclass(frozen=True)
class Kernel:
    """One generated kernel. ``id`` equals the id of its node in the fused graph.

    ``loops`` are its loops in the order they run, ``recomputed`` those that it computes more than
    once or that another kernel computes too. ``sources`` maps a language (``"c"``, ``"triton"``,
    ``"ptx"`` ...) to text; ``line_map`` is about the first one. Bytes are per call, counted at
    the sizes compiled for (hints where symbolic). ``target`` is the chip it was made for;
    ``predicted_seconds`` its time from bytes and operations at that chip's rates, ``seconds`` a
    measured one. Both are of one run: a call runs it as often as its graph (:attr:`Graph.runs`).
    """

    id: str
    name: str
    graph: str
    loops: tuple[str, ...]
    schedule: str  # e.g. "rows", "pointwise"
    sources: dict[str, str]
    line_map: tuple[LineLink, ...] = ()
    recomputed: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()  # names of buffers
    writes: tuple[str, ...] = ()
    bytes_read: int = 0
    bytes_written: int = 0
    flops: int = 0
    target: str = "cpu"
    launches: tuple[Launched, ...] = ()
    predicted_seconds: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Ceilings:
    """What bounds every kernel on ``target``: bytes per second of memory, operations per second of
    float32 arithmetic and of the matrix units (bf16). ``source``: a datasheet, or measured here."""

    target: str
    bandwidth: float
    float32_rate: float
    matrix_rate: float
    source: Literal["published", "measured"] = "published"
    part: str = ""  # the product
    cache: int = 0  # bytes of the largest cache; 0: not known


@dataclass(frozen=True)
class PassRecord:
    """A step of the pipeline that ran: what it read, what it made (graph ids), and how long."""

    name: str
    before: str
    after: str
    milliseconds: float
    note: str = ""  # e.g. "from cache"


@dataclass(frozen=True)
class Cell:
    """The user's cell as typed, magic line included. ``line_count`` of ``source`` starts at 1."""

    source: str
    filename: str = ""
    execution_count: int | None = None
    body_starts: int = 2  # line number of the first line after the magic


@dataclass(frozen=True)
class Since:
    """What has changed since the run of the cell before this one: ``record`` is that one's id, ``title`` what
    it was called, ``changes`` a few words each."""

    record: str
    title: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Environment:
    """Where the compile happened."""

    nbcompile: str = ""
    python: str = ""
    torch: str = ""
    triton: str = ""
    platform: str = ""
    processor: str = ""
    device: str = "cpu"
    threads: int = 0
    compiler: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compilation:
    """Everything that is known about one compile. See the module's docstring for ids and links."""

    id: str
    backend: str = "nbcompile"
    mode: str = "default"
    options: dict[str, Any] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment)
    cell: Cell | None = None
    graphs: tuple[Graph, ...] = ()
    guards: tuple[Guard, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    lines: tuple[LineFate, ...] = ()  # of the cell, in order: every statement
    recompiles: tuple[Recompile, ...] = ()
    decisions: tuple[Decision, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    passes: tuple[PassRecord, ...] = ()
    walks: tuple[DynamoWalk, ...] = ()  # of Dynamo, where they were watched, in order
    measurements: tuple[Measurement, ...] = ()
    timed_part: TimedCellPart | None = None  # what of the cell was measured, where that is not all of it
    accuracy: tuple[Accuracy, ...] = ()
    autotune: tuple[AutotuneChoice, ...] = ()
    ceilings: tuple[Ceilings, ...] = ()  # measured; a published one is in nbcompile.targets
    notes: tuple[str, ...] = ()  # what did not go as asked, one sentence each
    compile_seconds: float = 0.0
    from_cache: bool = False
    execution: Execution = "compiled"
    since: Since | None = None
    peers: tuple[Compilation, ...] = ()  # other backends' records of the same program, without peers
    schema: str = SCHEMA

    def graph(self, id: str) -> Graph:
        """The graph with this id; KeyError if there is none."""
        for graph in self.graphs:
            if graph.id == id:
                return graph
        raise KeyError(id)

    def of_stage(self, stage: Stage) -> tuple[Graph, ...]:
        """The graphs of one stage; of ``"fx"``, those that Dynamo captured."""
        return tuple(graph for graph in self.graphs if graph.stage == stage)

    @property
    def fused_nodes(self) -> tuple[Node, ...]:
        """What runs, of all graphs: kernels, calls into libraries, and their inputs."""
        return tuple(node for graph in self.of_stage("fused") for node in graph.nodes)

    @property
    def runs(self) -> dict[str, int]:
        """By the ids of fused graphs, how often one call of what was run or timed runs each."""
        return {graph.id: max(1, graph.runs) for graph in self.of_stage("fused")}

    @property
    def library_calls(self) -> tuple[Node, ...]:
        """The calls into PyTorch's libraries, between the kernels."""
        return tuple(node for node in self.fused_nodes if node.kind in ("library", "fallback"))

    def plot(self, chart: str = "", what: str = "") -> plotly.graph_objects.Figure:
        """A plotly figure: ``times``, ``samples``, ``payoff``, ``calls``, ``roofline`` or ``errors``, by
        default the first that the record has anything for, of ``what`` was timed (``forward``, ``cell``).
        MeasureError where there is nothing to draw, or plotly is not installed."""
        return chart_of(self, chart, what)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """What a notebook shows of it: the explorer."""
        return explorer_of(self)

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON values, in the form of :func:`json_schema`: defaults are left out, non-finite
        numbers become ``None``. :func:`nbcompile.record.packed.pack` makes a quarter of its size of it."""
        return {"schema": self.schema, **plain(self)}

    def to_json(self, indent: int | None = None) -> str:
        """:meth:`to_dict` as JSON text, which any program reads."""
        return json_text(self.to_dict(), indent)

    @classmethod
    def from_json(cls, text: str | bytes) -> Compilation:
        """Read and validate a record, packed or not. RecordError if it is not one, or of a newer schema."""
        return cls.from_dict(values_of_text(text))

    @classmethod
    def from_dict(cls, data: Any) -> Compilation:
        """Like :meth:`from_json`, from already parsed JSON."""
        check_schema(data.get("schema") if isinstance(data, dict) else None, SCHEMA)
        found: Compilation = record_of(cls, data)
        check_schema(found.schema, SCHEMA)
        if len(found.peers) > MAX_PEERS or any(peer.peers for peer in found.peers):
            raise RecordError("this record has too many peers")
        for each in (found, *found.peers):
            check_depth(each.options)
        return found


def json_schema() -> dict[str, Any]:
    """The JSON schema of :meth:`Compilation.to_json` (draft 2020-12), derived from the classes above."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(Compilation).json_schema()
    schema = {**schema["$defs"].pop("Compilation"), "$defs": schema["$defs"]}
    schema["properties"]["peers"] = {
        "type": "array", "items": {"$ref": "#"}, "maxItems": MAX_PEERS, "default": [],
        "description": "what other backends made of the same program; they have no peers themselves",
    }  # fmt: skip
    schema["description"] += _PACKED
    schema["$id"] = SCHEMA
    schema["title"] = "Compilation"
    return schema


_PACKED = """

Notebooks, pages and files of `%%compile --save` hold it packed, as `{"schema", "id", "title", "deflate"}`:
`deflate` is this JSON in zlib's format, in base64; it is read as the record itself is."""
