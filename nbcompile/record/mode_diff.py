"""What modes change for one program: the records of its compiles, one a mode, and how they differ.

Arithmetic on plain data: :func:`nbcompile.bench.measure.modes.mode_diff` makes it, and
:mod:`nbcompile.view.reports.modes` shows it.
"""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from nbcompile.errors import MeasureError
from nbcompile.record.compilation import Accuracy, AutotuneChoice, Compilation, Kernel, Launched, Measurement
from nbcompile.record.shown import Shown, figure_of

if TYPE_CHECKING:
    import plotly.graph_objects


@dataclass(frozen=True)
class ModeResult:
    """One mode: its record, what it sets by the option's name, its times, and whether CUDA graphs are
    replayed (in words: "yes", or "no" with the reason)."""

    mode: str
    record: Compilation
    options: dict[str, Any] = field(default_factory=dict)
    measurement: Measurement | None = None
    accuracy: tuple[Accuracy, ...] = ()
    replayed: str = ""

    @property
    def chosen(self) -> tuple[AutotuneChoice, ...]:
        """The candidates that autotuning took."""
        return tuple(choice for choice in self.record.autotune if choice.chosen)

    @property
    def told(self) -> bool:
        """Whether the backend told what it compiled to. Without that, nothing is known of its kernels."""
        return bool(self.record.kernels or self.record.of_stage("fused"))

    @property
    def seconds(self) -> float | None:
        """Median time of one call, if its compiled code ran."""
        return self.measurement.median if self.measurement and self.measurement.counts else None


@dataclass(frozen=True)
class KernelDifference:
    """A kernel or library call that two modes do not have alike; ``diff`` is of its sources."""

    name: str
    change: Literal["added", "removed", "other source", "other launch", "other schedule"]
    detail: str = ""
    diff: str = ""


@dataclass(frozen=True)
class ModeDiff(Shown):
    """The same program in several modes of one backend. ``diff["max-autotune"]`` is one mode's result;
    ``diff.kernels("max-autotune")`` what differs from the first mode's kernels."""

    report = "modes"
    function: str
    backend: str
    results: tuple[ModeResult, ...]

    def __getitem__(self, mode: str) -> ModeResult:
        for result in self.results:
            if result.mode == mode:
                return result
        raise MeasureError(f"{mode!r} was not compiled.", advice=f"There are {', '.join(self.modes)}.")

    @property
    def modes(self) -> tuple[str, ...]:
        return tuple(result.mode for result in self.results)

    def options(self) -> dict[str, dict[str, Any]]:
        """Each option that not all modes set alike, with the value that each mode sets."""
        names = dict.fromkeys(name for result in self.results for name in result.options)
        table = {name: {r.mode: r.options[name] for r in self.results if name in r.options} for name in names}
        return {
            name: set_
            for name, set_ in table.items()
            if len(set_) < len(self.results) or len(set(map(repr, set_.values()))) > 1
        }

    def kernels(self, mode: str) -> tuple[KernelDifference, ...]:
        """How the kernels and library calls of ``mode`` differ from the first mode's; none where one of the
        two records does not tell (see :attr:`ModeResult.told`)."""
        first, other = self.results[0], self[mode]
        return kernel_changes(first.record, other.record) if first.told and other.told else ()

    def plot(self) -> plotly.graph_objects.Figure:
        """One call and the compile of each mode, as a plotly figure. MeasureError where none was timed."""
        return figure_of(self)

    def __repr__(self) -> str:
        return f"<{self.function} on {self.backend} in the modes {', '.join(self.modes)}>"


def kernel_changes(before: Compilation, after: Compilation) -> tuple[KernelDifference, ...]:
    """What is not the same in both. Kernels are the same by graph and name, in order where names repeat."""
    old, new = _by_name(before), _by_name(after)
    found = []
    for key in [*old, *(key for key in new if key not in old)]:
        if key not in new:
            found.append(KernelDifference(key[1], "removed", old[key].schedule, _diff(old[key], None)))
        elif key not in old:
            found.append(KernelDifference(key[1], "added", new[key].schedule, _diff(None, new[key])))
        else:
            found += _changes(old[key], new[key])
    return (*found, *_call_changes(before, after))


def _by_name(record: Compilation) -> dict[tuple[str, str, int], Kernel]:
    seen: Counter[tuple[str, str]] = Counter()
    found = {}
    for kernel in record.kernels:
        key = (kernel.graph, kernel.name)
        found[(*key, seen[key])] = kernel
        seen[key] += 1
    return found


def _changes(old: Kernel, new: Kernel) -> list[KernelDifference]:
    diff = _diff(old, new)
    if old.schedule != new.schedule:
        return [KernelDifference(new.name, "other schedule", f"{old.schedule} → {new.schedule}", diff)]
    if diff:
        lines = sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in diff.splitlines())
        return [KernelDifference(new.name, "other source", f"{lines} lines differ", diff)]
    launches = " and ".join(
        f"{_launch_text(a)} → {_launch_text(b)}" for a, b in zip(old.launches, new.launches) if a != b
    )
    return [KernelDifference(new.name, "other launch", launches)] if launches else []


def _launch_text(launched: Launched) -> str:
    constants = ", ".join(f"{name} {value}" for name, value in launched.constants.items())
    return f"{launched.warps} warps, {launched.stages} stages{', ' if constants else ''}{constants}"


def _diff(old: Kernel | None, new: Kernel | None) -> str:
    a, b = (
        next(iter(kernel.sources.values()), "").splitlines() if kernel is not None else []
        for kernel in (old, new)
    )
    return "\n".join(difflib.unified_diff(a, b, "before", "after", lineterm="", n=2))


def _call_changes(before: Compilation, after: Compilation) -> list[KernelDifference]:
    """Library calls that only one has, by operator."""
    old, new = _calls(before), _calls(after)
    gone, come = old - new, new - old
    return [
        *(KernelDifference(f"{op} ×{count}", "removed", "library call") for op, count in gone.items()),
        *(KernelDifference(f"{op} ×{count}", "added", "library call") for op, count in come.items()),
    ]


def _calls(record: Compilation) -> Counter[str]:
    return Counter(node.op for node in record.library_calls)
