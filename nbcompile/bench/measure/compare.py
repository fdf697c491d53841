"""One program through several compilers, side by side: the numbers under a compiled cell.

``compare`` compiles the program with every contestant, each with an identity of its own, checks their
answers against float64, times them in turns, and puts the program's state back as it was.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from nbcompile.backends import registry
from nbcompile.bench.measure.accuracy import RUN, check
from nbcompile.bench.measure.call_times import call_times, with_call_times
from nbcompile.bench.measure.cold import fresh_caches
from nbcompile.bench.measure.memory import held, most_held
from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import Step, interleaved, quiet, timed
from nbcompile.errors import MeasureError, in_one_line
from nbcompile.record.compilation import Accuracy, Compilation, Measurement
from nbcompile.record.environment import detect
from nbcompile.record.recorder import KernelStopwatch
from nbcompile.settings import CompileSettings, keywords_of, made_of

Progress = Callable[[str], None]
DEFAULT_CONTESTANTS = ("eager", "nbcompile", "inductor")


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
    """A compiler, written ``backend`` or ``backend:mode``; ``eager`` is the program as it stands."""

    name: str
    backend: str
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


@dataclass(frozen=True)
class Measuring:
    """What is measured of each contestant, and how long: see :func:`compare`, and for a sweep
    :func:`~nbcompile.bench.sweep.running.sweep`. ``memory`` on a CPU only means something in a process of its
    own."""

    train: bool = False
    budget: float = 2.0
    threads: int | None = None
    cold: bool = True
    accuracy: bool = True
    timing: bool = True
    memory: bool = False
    what: str = ""


@dataclass
class _Entry:
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

    @classmethod
    def of(cls, given: str | Contestant, shared: CompileSettings) -> _Entry:
        """``shared`` holds for all contestants, but for what each says of itself."""
        own = Contestant.parse(given, shared.mode, shared.options) if isinstance(given, str) else given
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


@keywords_of(CompileSettings, Measuring, without=("backend",))
def compare(
    fn: Callable[..., Any],
    inputs: Any = (),
    contestants: Sequence[str | Contestant] = DEFAULT_CONTESTANTS,
    *,
    roots: Mapping[str, Any] | None = None,
    compile: Compile | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Compilation:
    """Hold several compilers' versions of ``fn(*inputs)`` beside each other.

    ``inputs``: a tuple or list of arguments, a mapping of keyword arguments, or one argument.
    ``contestants``: ``backend`` or ``backend:mode`` names, or Contestants. ``train`` adds the backward
    pass of every output that requires grad. ``budget``: seconds of steady-state samples, for all together.
    ``threads``: torch's number of threads meanwhile (default: as it is). ``cold=False`` leaves out
    the compile with empty caches; a program that takes longer than ``budget`` goes without the one
    with full caches, to save runs. ``timing=False`` compares answers and takes no times. ``memory`` also
    measures how much a call of each holds at most (see :class:`nbcompile.record.compilation.Measurement`).
    ``roots``: what else may change and is to be restored. ``mode``, ``options``, ``dynamic``, ``fullgraph``
    and the rest: as for :func:`nbcompile.compile`, of each contestant that they are for.

    Returns nbcompile's record of the program (or the first compiled contestant's), with one
    Measurement a contestant and one Accuracy a contestant and output; what the others' compilers told of
    their kernels is in ``peers``. Everything reachable from
    ``fn``, ``inputs`` and ``roots`` and the random state is afterwards what it was, also after an
    exception or interrupt. A contestant that fails or runs eagerly has no times but a reason.
    Raises what ``fn`` itself raises when run eagerly, and MeasureError, before anything runs, where a
    run would use up what cannot be put back (a generator, an open file).
    """
    asked, how = made_of(settings, CompileSettings, Measuring, without=("backend",))
    return compare_with(fn, inputs, contestants, asked, how, roots=roots, compile=compile, progress=progress)


def compare_with(
    fn: Callable[..., Any],
    inputs: Any,
    contestants: Sequence[str | Contestant],
    settings: CompileSettings,
    how: Measuring,
    *,
    roots: Mapping[str, Any] | None = None,
    compile: Compile | None = None,
    progress: Progress | None = None,
) -> Compilation:
    """:func:`compare`, with what it asks of a compile and of measuring as values. The backend is that of each
    contestant, and so are mode and options, where it names its own."""
    args, kwargs = arguments_of(inputs)
    snapshot = Snapshot({"fn": fn, "inputs": inputs, **(roots or {})})
    if snapshot.unrestorable:
        raise MeasureError(
            f"measuring runs the program again, and nothing can rewind {', '.join(snapshot.unrestorable)}.",
            advice="Take what the program needs from it first, and pass that.",
        )
    leaves = tuple(t for t in snapshot.tensors.values() if t.is_leaf and t.requires_grad)
    eager = Step(fn, args, kwargs, train=how.train, leaves=leaves)
    entries = [_Entry.of(given, settings) for given in contestants]
    if len({entry.contestant.name for entry in entries}) < len(entries):
        raise MeasureError("a contestant is named twice.")
    comparison = _Comparison(eager, entries, snapshot, how, compile or default_compile(), _aloud(progress))
    try:
        with quiet(how.threads, silent=True) as used:
            found, samples, seconds_of = comparison.run()
            label = how.what or ("forward+backward" if how.train else "forward")
            measurements = tuple(
                entry.measurement(label, samples.get(entry.contestant.name, ()), used) for entry in entries
            )
    finally:
        lost = snapshot.restore()
    notes = tuple(f"the autograd history of {name} could not be put back" for name in lost)
    return with_call_times(_record(entries, measurements, found, notes, used), seconds_of)


_WARM: set[tuple[str, str, bool]] = set()
"""Backends whose imports and toolchain checks this process has behind it, on which device, and whether for
training too."""


@dataclass(frozen=True)
class _Comparison:
    """A comparison under way."""

    eager: Step
    entries: list[_Entry]
    snapshot: Snapshot
    how: Measuring
    make: Compile
    tell: Progress

    def run(self) -> tuple[tuple[Accuracy, ...], Mapping[str, tuple[float, ...]], dict[str, float]]:
        """How the answers agree, the steady times of each contestant, and those of our kernels by id."""
        # What eager raises is the program's own affair: let it out before compiling.
        seconds, _ = timed(self.eager)
        slow = seconds > self.how.budget  # then every run counts: as few as possible
        reset = self.snapshot.restore if self.snapshot.changed() else None
        self.snapshot.restore()
        for entry in self.entries:
            if entry.contestant.backend == "eager":
                entry.first = seconds
            self.tell(f"compiling with {entry.contestant.name}…")
            before = self._held_before(entry.contestant.backend) if self.how.memory else None
            self._prepare(entry, slow)
            if before is not None and entry.step is not None and not entry.reason:
                most = most_held(entry.step)
                entry.peak_bytes = max(0, most - before) if most is not None else None
                self.snapshot.restore()
        found = self._check() if self.how.accuracy else ()
        times = self._time(slow, reset) if self.how.timing else ({}, {})
        for entry in self.entries:
            _note_if_eager(entry)
        return found, *times

    def _prepare(self, entry: _Entry, slow: bool) -> None:
        """Compile one contestant: with empty caches, again with full ones, then its first plain call."""
        if entry.contestant.backend == "eager":
            entry.step = self.eager
            return
        cold = self.how.cold and self.how.timing
        warm = self.how.timing and not (cold and slow)

        def compiled_step() -> tuple[CompiledFunction, Step]:
            compiled = self.make(self.eager.fn, **entry.settings.keywords)
            return compiled, self.eager.with_function(compiled)

        def compile_and_run() -> tuple[CompiledFunction, Step]:
            compiled, step = compiled_step()
            step()
            return compiled, step

        try:
            if cold:
                self._warm_process(entry.contestant.backend)
                self.snapshot.restore()
            with fresh_caches() if cold else contextlib.nullcontext():
                if cold:
                    entry.cold, (entry.compiled, entry.step) = timed(compile_and_run)
                    self.snapshot.restore()
                if warm:
                    entry.warm, (entry.compiled, entry.step) = timed(compile_and_run)
                    self.snapshot.restore()
                if entry.step is not None:
                    entry.first, _ = timed(entry.step)
                if not (cold or warm):  # it runs when it is checked
                    entry.compiled, entry.step = compiled_step()
                    return
        except Exception as error:  # a backend's failure is what the comparison is there to show
            entry.reason = in_one_line(error)
        finally:
            self.snapshot.restore()
        _note_if_eager(entry)

    def _warm_process(self, backend: str) -> None:
        """A first compile of something tiny: imports, and Inductor's precompiled header, are no part of
        the cold compile of a kernel."""
        kinds = [tensor.device.type for tensor in self.snapshot.tensors.values()]
        device, train = next((kind for kind in kinds if kind != "cpu"), "cpu"), self.eager.train
        if not {(backend, device, train), (backend, device, True)} & _WARM:
            with torch.inference_mode(False), torch.enable_grad():  # whatever the user has switched off
                x = torch.ones(8, 8, requires_grad=train, device=device)
                out = self.make(lambda x: (x.exp() * 3).sum(0), backend=backend)(x)
                if train:
                    out.sum().backward()
            _WARM.add((backend, device, train))

    def _held_before(self, backend: str) -> int | None:
        """Bytes held before anything of a contestant's own: its imports are behind it."""
        if backend != "eager":
            with contextlib.suppress(Exception):  # it is told where it is compiled for what it is to compile
                self._warm_process(backend)
        return held()

    def _check(self) -> tuple[Accuracy, ...]:
        self.tell("checking against float64…")
        others = {name: step for name, step in self._running().items() if step is not self.eager}
        found = check(self.eager, others, self.snapshot)
        raised = {item.contestant: item.reason for item in found if item.output == RUN}
        for entry in self.entries:
            entry.reason = entry.reason or raised.get(entry.contestant.name, "")
        return found

    def _time(
        self, slow: bool, reset: Callable[[], object] | None
    ) -> tuple[Mapping[str, tuple[float, ...]], dict[str, float]]:
        self.tell("timing…")
        warm_up = 0 if slow else 2
        samples = interleaved(self._running(), budget=self.how.budget, warm_up=warm_up, reset=reset)
        own = _ours(self.entries)
        if own is None or own.compiled is None or own.step is None or own.reason:
            return samples, {}
        self.tell("timing each kernel…")
        budget = self.how.budget / 8
        return samples, call_times(own.step, own.compiled.stopwatches, budget=budget, reset=reset)

    def _running(self) -> dict[str, Step]:
        """What can be called: the steps of the contestants that nothing speaks against, by name."""
        return {e.contestant.name: e.step for e in self.entries if e.step is not None and not e.reason}


def _note_if_eager(entry: _Entry) -> None:
    if entry.compiled is not None and not entry.reason and not entry.compiled.ran_compiled:
        entry.reason = f"ran eager: {entry.compiled.eager_reason or 'no graph was captured'}"


def _record(
    entries: list[_Entry],
    measurements: tuple[Measurement, ...],
    found: tuple[Accuracy, ...],
    notes: tuple[str, ...],
    threads: int,
) -> Compilation:
    compiled = [entry for entry in entries if entry.compiled is not None]
    own = _ours(entries)
    chosen = own.compiled if own is not None else next((entry.compiled for entry in compiled), None)
    if chosen is not None:
        record = chosen.compilation
    else:
        record = Compilation(id="comparison", backend="eager", environment=detect())
    environment = replace(record.environment, threads=threads)
    others = [
        (entry.contestant.name, _compilation(entry))
        for entry in compiled
        if entry.compiled is not chosen and not entry.reason
    ]
    peers = tuple(
        replace(peer, measurements=measurements, accuracy=found) for _, peer in others if peer.kernels
    )
    # Of a contestant without kernels nothing can be shown, but why that is so can be said.
    notes += tuple(f"{name}: {note}" for name, peer in others if not peer.kernels for note in peer.notes)
    return replace(
        record,
        environment=environment,
        measurements=measurements,
        accuracy=found,
        notes=record.notes + notes,
        peers=peers,
    )


def _compilation(entry: _Entry) -> Compilation:
    assert entry.compiled is not None
    return entry.compiled.compilation


def _ours(entries: list[_Entry]) -> _Entry | None:
    """The first contestant that is nbcompile and could be compiled."""
    return next((e for e in entries if e.contestant.backend == "nbcompile" and e.compiled is not None), None)


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of ``inputs`` as :func:`compare` takes them."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    return (inputs,), {}


def default_compile() -> Compile:
    """What compiles where nobody says otherwise: :func:`nbcompile.compile`."""
    from nbcompile import api  # here, since the API's own module offers compare

    return api.compile


def _aloud(progress: Progress | None) -> Progress:
    """``progress`` with today's stdout and stderr, also while the programs' own output is off."""
    out, err = sys.stdout, sys.stderr

    def tell(text: str) -> None:
        if progress is not None:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                progress(text)

    return tell
