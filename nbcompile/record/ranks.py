"""What is known of a cell that ran on several ranks: plain data, one :class:`Compilation` a rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from nbcompile.record.compilation import Compilation, Span
from nbcompile.record.shown import Shown

Parallel = Literal["ddp", "fsdp2", "none"]
PARALLELS: tuple[Parallel, ...] = ("ddp", "fsdp2", "none")


@dataclass(frozen=True)
class Bucket:
    """Parameters whose gradients travel together. ``graph`` is the piece that DDPOptimizer cut for them
    (``g0``; empty for FSDP2, whose unit is a module), ``bytes`` their size, ``span`` the first line of the
    graph's own operations, ``module`` where that stands in the model."""

    index: int
    parameters: tuple[str, ...]
    bytes: int
    collective: Literal["all-reduce", "all-gather and reduce-scatter"]
    graph: str = ""
    module: str = ""
    span: Span | None = None


@dataclass(frozen=True)
class Collective:
    """A kind of collective within one step: how often, and seconds from start to end, added up."""

    name: str
    count: int
    seconds: float


@dataclass(frozen=True)
class Communication:
    """One steady step under torch.profiler, in seconds.

    ``collectives`` is when at least one collective was under way, ``overlapped`` the part of it in which
    compute was too, ``exposed`` the rest. ``about`` says what counted as each.
    """

    step: float
    collectives: float
    overlapped: float
    kinds: tuple[Collective, ...] = ()
    about: str = ""

    @property
    def exposed(self) -> float:
        return self.collectives - self.overlapped


@dataclass(frozen=True)
class RankRecord:
    """One rank. ``steady`` are seconds of one forward (and backward, if the cell had one) of the modules
    that the cell called, ``eager`` the same without compiling; both empty where nothing was measured, for
    ``reason``. ``reducer_bytes`` are DDP's own buckets, in the order that it sends them.
    ``lines``: graph → line of the cell whose call had it compiled."""

    rank: int
    device: str
    compilation: Compilation
    seconds: float = 0.0
    steady: tuple[float, ...] = ()
    eager: tuple[float, ...] = ()
    reason: str = ""
    buckets: tuple[Bucket, ...] = ()
    reducer_bytes: tuple[int, ...] = ()
    communication: Communication | None = None
    lines: dict[str, int] = field(default_factory=dict)
    output: str = ""
    notes: tuple[str, ...] = ()

    @property
    def graphs(self) -> int:
        """How many graphs Dynamo captured."""
        return len(self.compilation.of_stage("fx"))


@dataclass(frozen=True)
class Difference:
    """Where a rank compiled something else than rank 0: ``graph`` by its id, ``line`` of the cell; ``place``
    is where the node itself stands, if that is not in the cell."""

    rank: int
    graph: str
    text: str
    line: int | None = None
    place: Span | None = None


@dataclass(frozen=True)
class RanksResult(Shown):
    """A cell on ``world_size`` ranks. ``engines`` are what the ranks were (ipyparallel or processes),
    ``collectives`` how they talk (gloo, nccl).

    Of rank 0, and no part of the record: ``values`` are the names it bound, ``deleted`` those it deleted, and
    ``shown`` is the value of its last expression (or what the function returned).
    """

    report = "ranks"
    world_size: int
    parallel: Parallel
    engines: str
    collectives: str
    ranks: tuple[RankRecord, ...]
    split: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    deleted: tuple[str, ...] = ()
    shown: Any = field(default=None, compare=False, repr=False)

    @property
    def compilation(self) -> Compilation:
        """Rank 0's."""
        return self.ranks[0].compilation

    @property
    def text(self) -> str:
        """The table of ranks, the buckets and the warnings."""
        return str(self)

    def __repr__(self) -> str:
        return f"<{self.world_size} ranks, {self.parallel} over {self.collectives}>"
