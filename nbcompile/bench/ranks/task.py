"""What goes to a rank and what it answers: plain values, so that plain pickle carries them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nbcompile.record.ranks import Parallel, RankRecord
from nbcompile.settings import CompileSettings

Device = Literal["cpu", "cuda"]
SHOWN = "__shown__"
"""Under this name comes back the value of a program's last expression."""


@dataclass(frozen=True)
class RankCell:
    """Where a program comes from: a cell by its file name, with what the session defines of it by itself
    (``defined``: imports, functions and classes)."""

    filename: str
    execution_count: int | None = None
    defined: tuple[str, ...] = ()


@dataclass(frozen=True)
class RankTask:
    """One cell for every rank.

    ``names`` is what :func:`transfer.pack_names` made of the session's names; ``group`` names the process
    group, which is made anew when it changes; ``store`` is its rendezvous file. ``timeout`` is in seconds;
    just before it is over a rank writes where it is to the file ``traces`` + its number. ``number`` is the
    task's own.
    """

    source: str
    cell: RankCell
    names: bytes
    group: str
    store: str
    world_size: int
    device: Device
    timeout: float
    traces: str
    number: int
    settings: CompileSettings
    parallel: Parallel = "ddp"
    split: tuple[str, ...] = ()
    bucket_mb: float | None = None
    measure: bool = True
    path: tuple[str, ...] = ()
    lines: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """An exception on a rank: its type and text, the cell's line, the traceback, and when (epoch seconds)."""

    kind: str
    message: str
    line: int | None
    traceback: str
    time: float


@dataclass(frozen=True)
class Reply:
    """What a rank answers: its record and, of rank 0, the packed values; or what went wrong.
    ``sums``: module → sum of its parameters, where each rank holds all of them."""

    rank: int
    record: RankRecord | None = None
    values: bytes = b""
    failure: Failure | None = None
    output: str = ""
    notes: tuple[str, ...] = ()
    sums: dict[str, float] = field(default_factory=dict)
