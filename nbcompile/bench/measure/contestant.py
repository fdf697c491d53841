"""Who takes part in a comparison, and how far each has come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from nbcompile.backends import registry
from nbcompile.backends.base import Backend, BackendArgument
from nbcompile.bench.measure.timing import Step
from nbcompile.errors import MeasureError
from nbcompile.record.compilation import Compilation, Measurement
from nbcompile.record.recorder import KernelStopwatch
from nbcompile.settings import CompileSettings


class CompiledFunction(Protocol):
    """What :func:`nbcompile.compile` returns, as far as measuring needs it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    @property
    def compilation(self) -> Compilation: ...
    @property
    def ran_compiled(self) -> bool: ...
    @property
    def eager_reason(self) -> str | None: ...
    @property
    def stopwatches(self) -> Mapping[str, KernelStopwatch]: ...


Compile = Callable[..., CompiledFunction]


@dataclass(frozen=True)
class Contestant:
    """A compiler, written ``backend`` or ``backend:mode``, or a backend of the user's own; ``eager`` is the
    program as it stands."""

    name: str
    backend: BackendArgument
    mode: str | None = None
    options: Mapping[str, Any] | None = None

    @classmethod
    def parse(
        cls, text: str, mode: str | None = None, options: Mapping[str, Any] | None = None
    ) -> Contestant:
        """``mode`` holds where the text names none and the backend has it, ``options`` for nbcompile only
        (they are its own)."""
        backend, _, own_mode = text.strip().partition(":")
        if not backend:
            raise MeasureError(f"{text!r} names no backend.", advice="Write backend or backend:mode.")
        known = registry.backends().get(backend)
        chosen = own_mode or (mode if known is not None and mode in known.modes else None)
        return cls(text.strip(), backend, chosen, options if backend == "nbcompile" else None)


Named = str | Contestant | BackendArgument
"""A contestant as it is given: by name, or a function or Backend as ``nbcompile.compile`` takes it."""


def check_names(given: Sequence[Named], any_name: bool = False) -> None:
    """MeasureError unless ``given`` is a list with something in it, OptionError for a name that no backend
    has, but where ``any_name`` will do. One that is not installed is no error: the comparison says so."""
    if isinstance(given, str | Contestant | Backend) or callable(given):
        shown = repr(given) if isinstance(given, str) else "one"
        raise MeasureError(
            f"contestants are a list, and this is {shown}.",
            advice='Write ("eager", "nbcompile"), for example.',
        )
    if not given:
        raise MeasureError("no contestant is named.", advice='Write ("eager", "nbcompile"), for example.')
    for each in given:
        name = Contestant.parse(each).backend if isinstance(each, str) else ""
        if isinstance(name, str) and name and not any_name and name not in registry.names():
            registry.check(name)


@dataclass
class Entrant:
    """A contestant under way: its compiled function, its step, its times."""

    contestant: Contestant
    settings: CompileSettings
    step: Step | None = None
    compiled: CompiledFunction | None = None
    cold: float | None = None
    warm: float | None = None
    first: float | None = None
    peak_bytes: int | None = None
    reason: str = ""
    once: bool = False  # it takes long to compile, and was not compiled again for the sake of a time

    @classmethod
    def of(cls, given: Named, shared: CompileSettings) -> Entrant:
        """``shared`` holds for all contestants, but for what each says of itself."""
        if isinstance(given, str):
            own = Contestant.parse(given, shared.mode, shared.options)
        elif isinstance(given, Contestant):
            own = given
        else:
            own = Contestant(replace(shared, backend=given).backend_name, given)
        return cls(own, replace(shared, backend=own.backend, mode=own.mode, options=own.options))

    def measurement(self, what: str, steady: tuple[float, ...], threads: int) -> Measurement:
        record = self.compiled.compilation if self.compiled is not None else None
        ran = not self.reason
        return Measurement(
            what=what,
            contestant=self.contestant.name,
            mode=self.contestant.mode or "default",
            cold=self.cold if ran else None,
            warm=self.warm if ran else None,
            first=self.first if ran else None,
            steady=tuple(float(f"{seconds:.4g}") for seconds in steady) if ran else (),
            ran_compiled=ran and self.contestant.backend != "eager",
            reason=self.reason,
            threads=threads,
            graphs=len(record.of_stage("fx")) if record else 0,
            breaks=len(record.breaks) if record else 0,
            kernels=(len(record.kernels) or None) if record else None,
            recompiles=len(record.recompiles) if record else 0,
            peak_bytes=self.peak_bytes if ran else None,
        )


@dataclass(frozen=True)
class Made:
    """A contestant as it was compiled once, with what that took."""

    compiled: CompiledFunction
    cold: float | None
    warm: float | None
    once: bool = False


Kept = dict[str, Made]
"""What was compiled, by the names of the contestants."""


def note_if_eager(entry: Entrant) -> None:
    """Give a contestant that ran nothing of its own the reason."""
    if entry.compiled is not None and not entry.reason and not entry.compiled.ran_compiled:
        entry.reason = f"ran eager: {entry.compiled.eager_reason or 'no graph was captured'}"
