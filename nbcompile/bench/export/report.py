"""What came of an export: is it equal, what does it cost, and when is it better than compiling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nbcompile.bench.export.program import NamedDim
from nbcompile.bench.measure.timing import break_even
from nbcompile.record.compilation import Accuracy, Compilation, Measurement
from nbcompile.record.diff import innermost
from nbcompile.record.matching import RecordedProgram
from nbcompile.units import bytes_text, clip, count_text, error_text, seconds_text
from nbcompile.view.reports.report import Section, to_html, to_text

_SAME = 1.1  # times closer than this are called the same


@dataclass(frozen=True)
class Check:
    """The file's answer at one size, against eager and float64. ``error``: why there is none."""

    sizes: str  # "as exported", "batch=16"
    accuracy: tuple[Accuracy, ...] = ()
    error: str = ""

    @property
    def agrees(self) -> bool:
        return not self.error and all(item.agrees for item in self.accuracy)


@dataclass(frozen=True)
class ExportReport:
    """A file made by :func:`nbcompile.export`, as a fresh process found it, beside the same program compiled.

    ``bytes`` is its size on disk. Seconds: ``export`` to capture the program, ``build`` to write the file
    (and compile it, of an AOTInductor package); in a fresh process, ``load`` of the file, the ``first`` call,
    ``steady`` samples of a call. ``compilation`` is the record of the program compiled in this process
    instead, where eager, each compiler and the file (as :attr:`contestant`, loaded here) took turns; ``None``
    if no compiler was asked for. Imports count on no side.
    """

    path: str
    package: str
    bytes: int
    dims: tuple[NamedDim, ...]
    device: str
    threads: int
    export: float
    build: float
    load: float
    first: float
    steady: tuple[float, ...]
    checks: tuple[Check, ...]
    compilation: Compilation | None = None

    @property
    def agrees(self) -> bool:
        """Whether the fresh process gave what eager gives, at every size that was tried."""
        return all(check.agrees for check in self.checks)

    @property
    def median(self) -> float | None:
        """Seconds of one steady call of the file."""
        return Measurement("forward", "exported", steady=self.steady).median

    @property
    def contestant(self) -> str:
        """What the file is called in :attr:`compilation`."""
        return contestant_of(self.package)

    @property
    def in_turns(self) -> tuple[Measurement, ...]:
        """The times in :attr:`compilation`."""
        return self.compilation.measurements if self.compilation is not None else ()

    def compiled(self) -> Iterator[Measurement]:
        """The compilers' times, of those that ran compiled code."""
        for item in self.in_turns:
            if item.ran_compiled and item.median is not None and item.contestant != self.contestant:
                yield item

    # -- in words -------------------------------------------------------------------------------------

    def advice(self) -> str:
        """When to export this program and when to compile it, with its own figures."""
        if not self.agrees:
            return "Do not use this file: it does not do what the program does."
        said = [self._against(item) for item in self.compiled()]
        if not any(said):
            return "Compile it too (compilers=...) to see which pays off when."
        return " ".join(filter(None, [self._against_eager(), *said]))

    def _steady(self, contestant: str) -> float | None:
        """Seconds of a call. Beside another's it only counts where they took turns."""
        return next((item.median for item in self.in_turns if item.contestant == contestant), None)

    def _against_eager(self) -> str:
        steady, eager, start = self._steady(self.contestant), self._steady("eager"), self.load + self.first
        if steady is None or eager is None:
            return ""
        calls = f"a call takes {seconds_text(steady)}, eager's {seconds_text(eager)}"
        if eager <= steady * _SAME:
            compiled = [item.median for item in self.compiled() if item.median is not None]
            if all(eager <= other * _SAME for other in compiled):
                return f"Against eager: nothing is faster, a file only does without the source ({calls})."
            return f"Against eager: the file is no faster ({calls})."
        number = break_even(start, eager, steady) or 0
        times = count_text(max(round(float(f"{number:.2g}")), 1), "call")
        return f"Against eager: {calls}, which pays for {seconds_text(start)} of start after about {times}."

    def _against(self, other: Measurement) -> str:
        steady, start = self._steady(self.contestant), self.load + self.first
        costs = [seconds for seconds in (other.cold, other.warm) if seconds is not None]
        if steady is None or other.median is None or not costs:
            return ""
        name, compiled = other.contestant, other.median
        cold = " and ".join(
            f"{seconds_text(seconds)} with {caches} caches"
            for seconds, caches in ((other.cold, "empty"), (other.warm, "full"))
            if seconds is not None
        )
        begin = f"a new process has its first result after {seconds_text(start)}, where {name} takes {cold}"
        calls = f"a call takes {seconds_text(steady)}, {name}'s {seconds_text(compiled)}"
        if start > min(costs):
            if steady * _SAME < compiled:
                return f"Against {name}: export for speed ({calls}), not for a quick start ({begin})."
            return f"Against {name}: compile; {begin}, and {calls}."
        if steady <= compiled * _SAME:
            return f"Against {name}: export; {begin}, and {calls}."
        number = break_even(max(costs) - start, steady, compiled)
        times = f"about {float(f'{number:.2g}'):,.0f} calls" if number is not None else "many calls"
        choice = f"export for a process of fewer than {times}, compile beyond"
        return f"Against {name}: {choice}; {begin}, and {calls}."

    def freedom(self) -> tuple[tuple[str, str, str], ...]:
        """(what, exported, compiled): what each leaves open."""
        sizes = [f"{d.parameter}[{d.axis}] = {d.name} {_range(d)}".strip() for d in self.dims]
        rows = [("sizes", "; ".join(sizes) or "only those exported with", "any: others compile again")]
        rows.append(("device", self.device, "any: others compile again"))
        rows.append(("Python source", "not needed", "needed, and may still be changed"))
        effects = "; ".join(self._effects())
        rows.append(("prints, other effects", effects or "none seen", "happen at each call"))
        if self.package == "aoti":
            rows.append(("a compiler at run time", "not needed", "needed unless its cache is full"))
            rows.append(("gradients", "no", "yes"))
        return tuple(rows)

    def _effects(self) -> Iterator[str]:
        """What Dynamo stops at and torch.export ran once, while it traced."""
        if self.compilation is None:
            return
        program = RecordedProgram(self.compilation)
        for item in self.compilation.breaks[:4]:
            line = innermost(program, item.spans)[1]
            place = f"line {line}: " if line else ""
            yield f"{place}{clip(item.reason, 100).rstrip('.')} (ran once, on export)"

    def rows(self) -> tuple[tuple[str, ...], ...]:
        """A table: its head, the file, and each compiler. A dash is what was not measured."""
        head = ("", "ready after (load or compile)", "first call", "a call")
        times = (self.load, self.first, self.median)
        out = [head, (f"{self.contestant}, fresh process", *map(seconds_text, times))]
        for item in self.in_turns:
            if item.contestant == "eager":
                ready = "at once"
            elif not item.ran_compiled:
                ready = item.reason
            else:
                ready = f"{seconds_text(item.cold)} (full caches: {seconds_text(item.warm)})"
            if item.contestant == self.contestant:
                ready = f"{seconds_text(item.warm)}, with a call"
            out.append(
                (f"{item.contestant}, here", ready, seconds_text(item.first), seconds_text(item.median))
            )
        return tuple(out)

    def verdicts(self) -> tuple[str, ...]:
        """One line a size that was checked."""
        return tuple(_verdict(check) for check in self.checks)

    def summary(self) -> str:
        built = f"exported in {seconds_text(self.export)}, written in {seconds_text(self.build)}"
        threads = f"times on {count_text(self.threads, 'thread')}, imports aside"
        return f"{self.path}: {self.package}, {bytes_text(self.bytes)}, {built}; {threads}"

    def sections(self) -> list[Section]:
        """What was checked, what it costs, what each leaves open, and when to use which."""
        head, *rows = self.rows()
        return [
            Section("", (), tuple((line,) for line in self.verdicts())),
            Section("", head, tuple(rows)),
            Section("", ("", "compiled", "exported"), tuple((a, c, b) for a, b, c in self.freedom())),
            Section("", (), ((self.advice(),),)),
        ]

    def __str__(self) -> str:
        return to_text(self.summary(), self.sections())

    def to_html(self) -> str:
        """The same as HTML without scripts or style sheets."""
        return to_html(self.summary(), self.sections())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.to_html(), "text/plain": str(self)}


def contestant_of(package: str) -> str:
    """What a file of this package is called among compilers."""
    return f"{package} file"


def _verdict(check: Check) -> str:
    if check.error:
        return f"{check.sizes}: fails in a fresh process: {check.error}"
    wrong = [f"{item.output}: {item.reason}" for item in check.accuracy if not item.agrees]
    if wrong:
        return f"{check.sizes}: NOT what eager gives: {'; '.join(wrong)}"
    errors = [item.error for item in check.accuracy if item.error is not None]
    error = f", error {error_text(max(errors))}" if errors else ""
    return f"{check.sizes}: equal to eager in a fresh process{error}"


def _range(dim: NamedDim) -> str:
    if dim.low is None and dim.high is None:
        return ""
    return f"from {dim.low if dim.low is not None else 2} to {dim.high if dim.high is not None else 'any'}"
