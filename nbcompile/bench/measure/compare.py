"""One program through several compilers, side by side: the numbers under a compiled cell.

``compare`` compiles the program with every contestant, each with an identity of its own, checks their
answers against float64, times them in turns, and puts the program's state back as it was.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from nbcompile.backends.base import BackendArgument
from nbcompile.bench.measure.accuracy import RUN, check
from nbcompile.bench.measure.call_times import CallTimes, call_times, with_call_times
from nbcompile.bench.measure.cold import fresh_caches
from nbcompile.bench.measure.contestant import (
    Compile,
    CompiledFunction,
    Entrant,
    Kept,
    Made,
    Named,
    check_names,
    note_if_eager,
)
from nbcompile.bench.measure.memory import held, most_held
from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import SAMPLE_SECONDS, Step, interleaved, quiet, timed
from nbcompile.errors import MeasureError, in_one_line
from nbcompile.options import check_count, check_seconds
from nbcompile.record.compilation import Accuracy, Compilation, Measurement
from nbcompile.record.environment import detect
from nbcompile.record.measured import RAISED
from nbcompile.settings import CompileSettings, keywords_of, made_of

Progress = Callable[[str], None]
Grown = Callable[[Callable[[], Compilation], bool], object]
"""Given what makes the record of all that is measured so far, and whether a stage of measuring is over."""


@dataclass(frozen=True)
class Audience:
    """Who is told how a comparison goes on: ``progress`` what is being done, ``grown`` whenever there is more
    to show. ``kept`` is what an earlier comparison of the same program compiled; it is filled by this one."""

    progress: Progress | None = None
    grown: Grown | None = None
    kept: Kept = field(default_factory=dict)


NO_GRADIENT = "nothing here needs a gradient: the forward pass alone was timed, there is no backward to it"
"""Of a program that was to be measured with its backward pass."""
DEFAULT_CONTESTANTS = ("eager", "nbcompile", "inductor")


@dataclass(frozen=True)
class Measuring:
    """What is measured of each contestant, and how long, and ``what`` that is called unless it has a backward
    pass: see :func:`compare`, and for a sweep
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

    def __post_init__(self) -> None:
        check_seconds("budget", self.budget)
        if self.threads is not None:
            check_count("threads", self.threads)


@keywords_of(CompileSettings, Measuring, without=("backend",))
def compare(
    fn: Callable[..., Any],
    inputs: Any = (),
    contestants: Sequence[Named] = DEFAULT_CONTESTANTS,
    *,
    roots: Mapping[str, Any] | None = None,
    compile: Compile | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Compilation:
    """Hold several compilers' versions of ``fn(*inputs)`` beside each other.

    ``inputs``: a tuple or list of arguments, a mapping of keyword arguments, or one argument.
    ``contestants``: ``backend`` or ``backend:mode`` names, functions and Backends as
    :func:`nbcompile.compile` takes them, or Contestants. ``train`` adds the backward
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
    Raises what ``fn`` itself raises when run eagerly, and before anything runs OptionError for a name that no
    backend has and for a budget that is no time, and MeasureError where a run would use up what cannot be put
    back (a generator, an open file).
    """
    asked, how = made_of(settings, CompileSettings, Measuring, without=("backend",))
    check_names(contestants, any_name=compile is not None)
    return compare_with(
        fn, inputs, contestants, asked, how, roots=roots, compile=compile, audience=Audience(progress)
    )


def compare_with(
    fn: Callable[..., Any],
    inputs: Any,
    contestants: Sequence[Named],
    settings: CompileSettings,
    how: Measuring,
    *,
    roots: Mapping[str, Any] | None = None,
    compile: Compile | None = None,
    audience: Audience | None = None,
) -> Compilation:
    """:func:`compare`, with what it asks of a compile and of measuring as values. The backend is that of each
    contestant, and so are mode and options, where it names its own. ``audience`` is told how
    it goes on."""
    args, kwargs = arguments_of(inputs)
    snapshot = Snapshot({"fn": fn, "inputs": inputs, **(roots or {})})
    if snapshot.unrestorable:
        raise MeasureError(
            f"measuring runs the program again, and nothing can rewind {', '.join(snapshot.unrestorable)}.",
            advice="Take what the program needs from it first, and pass that.",
        )
    leaves = tuple(t for t in snapshot.tensors.values() if t.is_leaf and t.requires_grad)
    eager = Step(fn, args, kwargs, train=how.train, leaves=leaves)
    entries = [Entrant.of(given, settings) for given in contestants]
    if len({entry.contestant.name for entry in entries}) < len(entries):
        raise MeasureError("a contestant is named twice.")
    audience = audience or Audience()
    grown = audience.grown

    def record(taken: _Taken, notes: tuple[str, ...] = ()) -> Compilation:
        label = "forward+backward" if eager.went_back else how.what or "forward"
        done = [entry for entry in entries if entry.contestant.name in taken.entered]
        measurements = tuple(
            entry.measurement(label, taken.samples.get(entry.contestant.name, ()), used) for entry in done
        )
        return with_call_times(_record(done, measurements, taken.accuracy, notes, used), taken.calls)

    comparison = _Comparison(
        eager, entries, snapshot, how, compile or default_compile(), _aloud(audience.progress),
        _aloud(None if grown is None else lambda shown: grown(partial(record, shown[0]), shown[1])),
        audience.kept, watched=grown is not None,
    )  # fmt: skip
    lost: tuple[str, ...] | None = None
    try:
        try:
            with quiet(how.threads, silent=True) as used:
                taken = comparison.run()
        finally:
            lost = snapshot.restore()
    finally:
        if lost is None:  # an interrupt came between the run and putting back what it changed
            lost = snapshot.restore()
    told = [NO_GRADIENT] if how.train and not eager.went_back else []
    told += [f"the autograd history of {name} could not be put back" for name in lost]
    if once := [entry.contestant.name for entry in entries if entry.once]:
        told.append(
            f"{', '.join(once)}: over {_LONG:.0f} s to compile, so not done with both empty and full caches"
        )
    return record(taken, tuple(told))


_QUICK = ("eager", "nbcompile")
"""Backends whose compile is not worth waiting for before anything is shown."""
_FIRST = 0.3
"""Their part of the time for samples, before the others are there."""

_LONG = 10.0
"""Seconds of a compile that somebody waits for, from which on it is not made again with other caches."""

_WARM: set[tuple[BackendArgument, str, bool]] = set()
"""Backends whose imports and toolchain checks this process has behind it, on which device, and whether for
training too."""


@dataclass(frozen=True)
class _Taken:
    """What is measured so far, of the contestants that have ``entered``: how the answers agree, steady times
    by contestant, and those of our kernels."""

    entered: tuple[str, ...] = ()
    accuracy: tuple[Accuracy, ...] = ()
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    calls: CallTimes = field(default_factory=CallTimes)


@dataclass(frozen=True)
class _Resetting:
    """How a program that changes its state is sampled: what goes before each sample, and how many seconds of
    calls are one; 0: a single call."""

    reset: Callable[[], object] | None
    lasting: float = SAMPLE_SECONDS


@dataclass(frozen=True)
class _Comparison:
    """A comparison under way. Eager and our compiler are measured first, and shown: others may take a hundred
    times as long to compile. Then all are timed in turns."""

    eager: Step
    entries: list[Entrant]
    snapshot: Snapshot
    how: Measuring
    make: Compile
    tell: Progress
    show: Callable[[tuple[_Taken, bool]], object]
    kept: Kept
    watched: bool = False

    def run(self) -> _Taken:
        # What eager raises is the program's own affair: let it out before compiling.
        seconds, _ = timed(self.eager)
        slow = seconds > self.how.budget  # then every run counts: as few as possible
        reset = self.snapshot.restore if self.snapshot.changed() else None
        # Each call of a program that counts is another one to Dynamo: its samples are single calls.
        lasting = 0.0 if not slow and self.snapshot.moves_on(self.eager) else SAMPLE_SECONDS
        self.snapshot.restore()
        quick = [entry for entry in self.entries if entry.contestant.backend in _QUICK]
        later = [entry for entry in self.entries if entry not in quick]
        apart = any(entry.contestant.name not in self.kept for entry in later) and any(
            entry.contestant.backend != "eager" for entry in quick
        )
        taken = _Taken()
        for entries in (quick, later) if apart else (self.entries,):
            for entry in entries:
                if entry.contestant.backend == "eager":
                    entry.first = seconds
                self._enter(entry, slow)
            taken = replace(taken, entered=(*taken.entered, *(each.contestant.name for each in entries)))
            if self.how.accuracy:
                taken = replace(taken, accuracy=(*taken.accuracy, *self._check(entries)))
            if self.how.timing:
                taken = self._time(entries, taken, slow, _Resetting(reset, lasting))
            self.snapshot.restore()
            for entry in entries:
                note_if_eager(entry)
            self._cool(entries, taken, slow)
            if entries is quick:
                self.tell(f"compiling with {later[0].contestant.name}")
                self.show((taken, True))
        for entry in self.entries:
            if entry.compiled is not None and not entry.reason:
                self.kept[entry.contestant.name] = Made(entry.compiled, entry.cold, entry.warm, entry.once)
        return taken

    def _cool(self, entries: Sequence[Entrant], taken: _Taken, slow: bool) -> None:
        """The compiles with empty caches that were put off until there are times to look at."""
        for entry in entries:
            if not self._is_soon(entry) or entry.cold is not None or entry.reason or entry.once:
                continue
            self.tell(f"compiling with {entry.contestant.name}, its caches empty")
            self.show((taken, True))
            try:
                self._warm_process(entry.contestant.backend)
                self.snapshot.restore()
                with fresh_caches():
                    entry.cold, _ = timed(partial(self._compiled_and_run, entry))
                    if entry.warm is None and not slow and entry.cold < self.how.budget:
                        self.snapshot.restore()
                        entry.warm, _ = timed(partial(self._compiled_and_run, entry))
            except Exception as error:  # it compiled a moment ago
                entry.reason = RAISED + in_one_line(error)
            finally:
                self.snapshot.restore()

    def _is_soon(self, entry: Entrant) -> bool:
        """Whether somebody waits for its times, who sees how long it compiles only after them."""
        cold = self.how.cold and self.how.timing
        return self.watched and cold and entry.contestant.backend in _QUICK and entry.step is not self.eager

    def _enter(self, entry: Entrant, slow: bool) -> None:
        if entry.contestant.backend != "eager" and entry.contestant.name not in self.kept:
            self.tell(f"compiling with {entry.contestant.name}")
        before = self._held_before(entry.contestant.backend) if self.how.memory else None
        self._prepare(entry, slow)
        if before is not None and entry.step is not None and not entry.reason:
            most = most_held(entry.step)
            entry.peak_bytes = max(0, most - before) if most is not None else None
            self.snapshot.restore()

    def _prepare(self, entry: Entrant, slow: bool) -> None:
        """Compile one contestant: with empty caches, again with full ones, then its first plain call."""
        if entry.contestant.backend == "eager":
            entry.step = self.eager
            return
        cold = self.how.cold and self.how.timing and not self._is_soon(entry)
        warm = self.how.timing and not (cold and slow)
        known = self.kept.get(entry.contestant.name)
        compile_and_run = partial(self._compiled_and_run, entry)
        try:
            if known is not None:  # the same program, compiled before: its code is there
                entry.cold, entry.warm, entry.compiled = known.cold, known.warm, known.compiled
                entry.once = known.once
                entry.step = self.eager.with_function(known.compiled)
                entry.first, _ = timed(entry.step)
                return
            if cold:
                self._warm_process(entry.contestant.backend)
                self.snapshot.restore()
            with fresh_caches() if cold else contextlib.nullcontext():
                if cold:
                    entry.cold, (entry.compiled, entry.step) = timed(compile_and_run)
                    entry.once = self.watched and entry.cold > _LONG
                    self.snapshot.restore()
                if warm and not entry.once:
                    entry.warm, (entry.compiled, entry.step) = timed(compile_and_run)
                    entry.once = self.watched and entry.warm > _LONG
                    self.snapshot.restore()
                    if self._is_soon(entry) and not entry.compiled.compilation.from_cache:
                        entry.warm = None  # not all of it was there
                if entry.step is not None:
                    entry.first, _ = timed(entry.step)
                if not (cold or warm):  # it runs when it is checked
                    entry.compiled, entry.step = self._compiled_step(entry)
                    return
        except Exception as error:  # a backend's failure is what the comparison is there to show
            entry.reason = RAISED + in_one_line(error)
        finally:
            self.snapshot.restore()
        note_if_eager(entry)

    def _compiled_step(self, entry: Entrant) -> tuple[CompiledFunction, Step]:
        compiled = self.make(self.eager.fn, **entry.settings.keywords)
        return compiled, self.eager.with_function(compiled)

    def _compiled_and_run(self, entry: Entrant) -> tuple[CompiledFunction, Step]:
        compiled, step = self._compiled_step(entry)
        step()
        return compiled, step

    def _warm_process(self, backend: BackendArgument) -> None:
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

    def _held_before(self, backend: BackendArgument) -> int | None:
        """Bytes held before anything of a contestant's own: its imports are behind it."""
        if backend != "eager":
            with contextlib.suppress(Exception):  # it is told where it is compiled for what it is to compile
                self._warm_process(backend)
        return held()

    def _check(self, entries: Sequence[Entrant]) -> tuple[Accuracy, ...]:
        self.tell("checking against float64")
        others = {name: step for name, step in self._running(entries).items() if step is not self.eager}
        found = check(self.eager, others, self.snapshot) if others else ()
        stale = {item.contestant for item in found if not item.agrees} & self.kept.keys()
        if stale:  # it may be of a program that looks the same and is another
            for entry in entries:
                if entry.contestant.name in stale:
                    del self.kept[entry.contestant.name]
                    entry.cold = entry.warm = None
                    self._enter(entry, slow=False)
            return self._check(entries)
        raised = {item.contestant: RAISED + item.reason for item in found if item.output == RUN}
        for entry in entries:
            entry.reason = entry.reason or raised.get(entry.contestant.name, "")
        return found

    def _time(self, entries: Sequence[Entrant], taken: _Taken, slow: bool, each: _Resetting) -> _Taken:
        """With the times of ``entries``, and new ones of those before them, which share the machine's moods
        with these; of a slow program the old ones have to do."""
        running = self._running(entries if slow else self.entries)
        self.tell(f"timing {', '.join(running)}")
        known = taken.samples

        def so_far(samples: Mapping[str, tuple[float, ...]]) -> _Taken:
            return replace(taken, samples={**known, **samples})

        share = 1.0 if len(entries) == len(self.entries) else _FIRST if not known else 1.0 - _FIRST
        budget = self.how.budget * share
        samples = interleaved(
            running, budget=budget, warm_up=0 if slow else 2, reset=each.reset,
            sample_seconds=each.lasting, look=lambda samples: self.show((so_far(samples), False)),
        )  # fmt: skip
        taken = so_far(samples)
        own = _ours(self.entries)
        if own is None or own.compiled is None or own.step is None or own.reason or taken.calls.seconds:
            return taken
        self.tell("timing each kernel")
        calls = call_times(own.step, own.compiled.stopwatches, budget=self.how.budget / 8, reset=each.reset)
        return replace(taken, calls=calls)

    def _running(self, entries: Sequence[Entrant]) -> dict[str, Step]:
        """What can be called: the steps of the contestants that nothing speaks against, by name."""
        return {e.contestant.name: e.step for e in entries if e.step is not None and not e.reason}


def _record(
    entries: list[Entrant],
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


def _compilation(entry: Entrant) -> Compilation:
    assert entry.compiled is not None
    return entry.compiled.compilation


def _ours(entries: list[Entrant]) -> Entrant | None:
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


def _aloud(function: Callable[[Any], object] | None) -> Callable[[Any], None]:
    """``function`` with today's stdout and stderr, also while the programs' own output is off."""
    out, err = sys.stdout, sys.stderr

    def tell(value: Any) -> None:
        if function is not None:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                function(value)

    return tell
