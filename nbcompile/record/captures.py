"""What became of one function under every way of capturing it: plain data, read without torch.

``nbcompile.captures`` (:mod:`nbcompile.bench.captures.captures`) makes a :class:`Captures`, and
:mod:`nbcompile.view.reports.captures` shows it.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from nbcompile.errors import MeasureError
from nbcompile.record.shown import Shown

if TYPE_CHECKING:
    import pandas

Verdict = Literal["silently wrong", "raises", "recompiles", "right", "not probed"]
SEVERITY: tuple[Verdict, ...] = ("silently wrong", "raises", "recompiles", "right", "not probed")
"""The verdicts, worst first. ``recompiles``: the answer is right, after another capture."""

PROBES = {
    "values": "other values of the same shapes: Python control flow that depends on data",
    "sizes": "other sizes",
    "numbers": "other Python numbers as arguments",
    "closure": "numbers and tensors that the function reads from around it, changed between calls",
    "effects": "prints, and changes of Python objects around the function, over three calls",
    "random": "random numbers: three calls must not draw the same ones",
    "mutation": "inputs that the function changes in place",
    "dtype": "inputs of another dtype",
}
"""Name of each probe, and what it changes between capture and call."""


@dataclass(frozen=True)
class Case:
    """One thing that was changed, and what the captured function then did. ``evidence`` has the values."""

    what: str
    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Finding:
    """All cases of one probe (a key of :data:`PROBES`) for one way."""

    probe: str
    cases: tuple[Case, ...]

    @property
    def worst(self) -> Case:
        return min(self.cases, key=lambda case: SEVERITY.index(case.verdict))

    @property
    def verdict(self) -> Verdict:
        return self.worst.verdict

    @property
    def evidence(self) -> str:
        """Of the worst case, with what was changed."""
        worst = self.worst
        return f"{worst.what}: {worst.evidence}" if worst.what else worst.evidence


@dataclass(frozen=True)
class Capture:
    """One way of capturing the function.

    ``captured``: as one graph, in pieces with Python between, not at all, or the way could not be tried
    (``absent``: not installed, or no port of the function). ``reason`` says why, ``line`` where in the user's
    file. ``nodes`` counts operations. ``capture_seconds``: from handing the function over until its first
    result. ``call_seconds``: samples of one call, taken in turns with eager, only of a way whose own graph
    ran and agrees with eager on the inputs given. ``notes``: what it warned of meanwhile, and
    why there is no time.
    """

    way: str
    title: str
    captured: Literal["whole", "in pieces", "no", "absent"]
    reason: str = ""
    line: int | None = None
    graphs: tuple[tuple[str, str], ...] = ()
    nodes: int | None = None
    capture_seconds: float | None = None
    call_seconds: tuple[float, ...] = ()
    agrees: bool | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float | None:
        """Median time of one call."""
        return statistics.median(self.call_seconds) if self.call_seconds else None

    @property
    def text(self) -> str:
        """Its graphs as text, each under its title."""
        return "\n".join(f"# {title}\n{text.rstrip()}\n" for title, text in self.graphs)

    def __getitem__(self, probe: str) -> Finding:
        """The finding of a probe; MeasureError if it was not run."""
        for finding in self.findings:
            if finding.probe == probe:
                return finding
        raise MeasureError(
            f"{self.way} has no finding {probe!r}.",
            advice=f"It has {', '.join(finding.probe for finding in self.findings) or 'none'}.",
        )

    @property
    def baked_in(self) -> tuple[Finding, ...]:
        """What it silently gets wrong once that changes."""
        return tuple(finding for finding in self.findings if finding.verdict == "silently wrong")


@dataclass(frozen=True)
class Captures(Shown):
    """One function under every way that was tried. ``result["trace"]`` is one way, ``print(result)`` all.

    ``eager_seconds``: samples of one eager call. ``unprobed``: what no probe reached, one sentence each.
    """

    report = "captures"
    function: str
    source: str
    first_line: int
    captures: tuple[Capture, ...]
    eager_seconds: tuple[float, ...] = ()
    unprobed: tuple[str, ...] = ()
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    def __getitem__(self, way: str) -> Capture:
        for capture in self.captures:
            if capture.way == way:
                return capture
        raise MeasureError(
            f"{way!r} was not tried.", advice=f"Tried: {', '.join(found.way for found in self.captures)}."
        )

    @property
    def seconds(self) -> float | None:
        """Median time of one eager call."""
        return statistics.median(self.eager_seconds) if self.eager_seconds else None

    def rows(self) -> list[dict[str, Any]]:
        """One row a way: verdicts by probe, times in seconds."""
        return [
            {
                "way": found.way,
                "captured": found.captured,
                "reason": found.reason,
                "line": found.line,
                "nodes": found.nodes,
                "capture_seconds": found.capture_seconds,
                "call_seconds": found.seconds,
                **dict.fromkeys(PROBES),
                **{finding.probe: finding.verdict for finding in found.findings},
            }
            for found in self.captures
        ]

    def table(self) -> pandas.DataFrame:
        """:meth:`rows` as a table. MeasureError without pandas."""
        try:
            import pandas
        except ImportError as error:
            raise MeasureError(
                "a table needs pandas, which is not installed.",
                advice="Run: pip install pandas; or use rows().",
            ) from error
        return pandas.DataFrame(self.rows()).set_index("way")

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def as_text(self) -> str:
        """The table, then what each way bakes in, with the evidence."""
        return str(self)

    def __repr__(self) -> str:
        ways = ", ".join(found.way for found in self.captures)
        return f"<captures of {self.function}: {ways}>"
