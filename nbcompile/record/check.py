"""What a check of a backend found: the first stage that is wrong, the operator, the smallest cell of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from nbcompile.record.compilation import Compilation, Span
from nbcompile.record.shown import Shown

Went = Literal["agrees", "differs", "raises", "not run"]
"""How a run went beside eager's: its numbers agree with float64 as eager's do, or not, or it raised."""


@dataclass(frozen=True)
class CheckedStage:
    """One stage of the way from the function to what the backend runs, tried as a backend of its own.

    ``error`` is the largest relative error of its outputs, gradients and changed tensors against float64,
    ``eager_error`` eager's of the same one; None where there is no float64 run. ``reason`` says why it does
    not agree, ``note`` what is to be known if it does (a graph that ran eagerly).
    """

    name: str
    meaning: str
    went: Went
    error: float | None = None
    eager_error: float | None = None
    output: str = ""
    reason: str = ""
    note: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class NodeError:
    """The error of one node of a captured graph, ``id`` in the record, computed by the wrong stage from the
    graph's own inputs: what is wrong before it is in it."""

    id: str
    name: str
    op: str
    went: Went
    error: float | None
    eager_error: float | None
    line: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class MinimalCell:
    """The smallest program that shows it: ``inputs`` is run first, as it stands, then ``text``, a cell.

    ``chosen`` says how the inputs were chosen. ``shows``: it was run as printed, and shows the same; else
    ``said`` has why not.
    """

    inputs: str
    text: str
    chosen: str
    shows: bool
    said: str = ""

    def __str__(self) -> str:
        return f"{self.inputs.rstrip()}\n\n{self.text.rstrip()}\n"


@dataclass(frozen=True)
class CheckReport(Shown):
    """How a backend's results compare with eager's, stage by stage and node by node.

    ``stage`` is the first that is wrong, ``went`` how; ``operator`` the operator that is (several, joined by
    `` + ``, where only together), ``within`` the operator of the program that it is part of, ``part`` whether
    it is wrong in forward or backward. ``line`` is that of the user's cell (or of ``spans[0].file``).
    ``record`` is of the captured program, its nodes with their errors.
    """

    report: ClassVar[str] = "check"

    function: str
    backend: str
    stages: tuple[CheckedStage, ...]
    stage: str = ""
    went: Went = "agrees"
    operator: str = ""
    within: str = ""
    part: str = ""
    reason: str = ""
    spans: tuple[Span, ...] = ()
    source: str = ""
    cell: MinimalCell | None = None
    nodes: tuple[NodeError, ...] = ()
    record: Compilation | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether nothing wrong was found."""
        return self.went == "agrees"

    @property
    def line(self) -> int | None:
        """The line of the operator: of the cell, or of the file that its first span names."""
        return self.spans[0].line if self.spans else None
