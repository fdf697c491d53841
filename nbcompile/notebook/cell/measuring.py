"""After a cell has run: the same compiled parts again, timed against other compilers, all state restored."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch._dynamo
from torch.utils._pytree import tree_leaves

from nbcompile.api import Compiled
from nbcompile.bench.measure.call_times import same_calls, with_backward, with_call_times, with_runs
from nbcompile.bench.measure.compare import NO_GRADIENT, Audience, Measuring, compare_with
from nbcompile.bench.measure.contestant import Contestant, Kept
from nbcompile.bench.measure.modes import mode_diff
from nbcompile.bench.measure.roofline import ceilings_of
from nbcompile.compiler.capture.python_reasons import CALLS_BACKWARD, EAGER_BACKWARD
from nbcompile.errors import MeasureError, NbcompileError, in_one_line
from nbcompile.notebook.arguments import CellOptions
from nbcompile.notebook.cell.cell_run import CellPart, CellRun
from nbcompile.notebook.cell.compiling import settings_of
from nbcompile.notebook.cell.harmless import refuse_hooks, which_may_act
from nbcompile.notebook.cell.planning import BY_JAX
from nbcompile.notebook.cell.surroundings import capturing_values
from nbcompile.notebook.cell.timed_part import (
    in_names,
    is_of_filled,
    part_name,
    reads_gradients,
    timed_part,
    told_of_changes,
    unchanged,
    which_read,
    why_not_again,
    without_backward,
)
from nbcompile.record.compilation import Cell, Compilation, Kernel, Measurement
from nbcompile.record.measured import NOT_TIMED
from nbcompile.record.mode_diff import ModeDiff
from nbcompile.settings import CompileSettings

if TYPE_CHECKING:
    from nbcompile.backends.xla.jitted import JittedProgram


class Watching(Protocol):
    """Who is told how measuring goes on: what is being done, and of each record that says more than the last
    (what makes it, and whether a stage is over)."""

    def progress(self, text: str) -> None: ...
    def grown(self, make: Callable[[], Compilation], over: bool) -> object: ...


class Told:
    """Tells ``progress`` what is being done, and nobody of records."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self.progress = progress

    def grown(self, make: Callable[[], Compilation], over: bool) -> None:
        pass


class Runnable(Protocol):
    """A function of a program with the arguments of its call."""

    @property
    def bound(self) -> Callable[..., Any]: ...
    @property
    def arguments(self) -> tuple[Any, ...]: ...
    @property
    def grad_enabled(self) -> bool: ...


# A part with breaks runs code that is not in any graph. Where all that broke it is one of these, running
# it again cannot reach anything outside the process (what it prints is swallowed).
_HARMLESS = (
    "data-dependent",
    "Data-dependent",
    "item()",
    "tolist()",
    "print",
    "Tensor.backward",
    "logging",
    "warnings",
)


def wanted(compilation: Compilation, options: CellOptions) -> bool:
    """Whether there is anything to measure: never what ran eagerly because its chip is not here; what the
    interpreter ran is compared with eager whether or not times are asked for."""
    if compilation.execution == "eager":
        return False
    return options.bench or compilation.execution == "interpreted"


def to_be_measured(
    run: CellRun, compilation: Compilation, options: CellOptions
) -> tuple[Compilation, list[CellPart], bool]:
    """The record of a cell that has run, with what of it times are of; its parts that can be run again; and
    whether they are with their backward pass."""
    train = has_backward(run, options)
    parts = repeatable(run, compilation, train=train)
    if wanted(compilation, options):
        parts = unchanged(run, parts)
    elif options.train and parts:
        compilation = with_notes(compilation, without_backward(run, compilation, parts))
    part = timed_part(run, parts, train=train) if parts else None
    return with_runs(dataclasses.replace(compilation, timed_part=part), _graphs_run(parts)), parts, train


def measure_cell(
    run: CellRun, compilation: Compilation, options: CellOptions, watching: Watching, kept: Kept | None = None
) -> Compilation:
    """Time the parts of a cell, one after the other as one program, and add the times to its record.

    Statements that Python ran between the parts are not in it: their effects (prints, files, optimizer
    steps) are not ours to repeat, and the record's ``timed_part`` says which they are. Each part is called
    with the arguments of its first call, on values as they are now. MeasureError is turned into a note; an
    interrupt leaves all state restored. ``kept``: the peers of this cell, as they were compiled when it ran
    before (see :func:`peers_key`).
    """
    train = has_backward(run, options)
    parts = unchanged(run, repeatable(run, compilation, train=train))
    notes = not_again([part for part in run.parts.values() if part not in parts], run.namespace, train=train)
    return measure_parts(
        parts, with_notes(compilation, notes), options, watching, train=train,
        what=part_name(compilation.timed_part), kept=kept, again=lambda error: why_not_again(parts, error),
    )  # fmt: skip


def not_again(
    left: Iterable[CellPart], namespace: Mapping[str, Any], *, train: bool, done: str = "timed"
) -> list[str]:
    """Why these parts of a cell are not ``done``: not in its times, say."""
    notes = told_of_changes(left, done)
    left = [part for part in left if not part.changed]
    steps = [part for part in left if _has_no_gradients(part)]
    reading = [part for part in left if train and part not in steps and reads_gradients(part.members)]
    notes += [
        f"Not {done}: the step of line {line}, whose gradients are gone by now."
        for line in sorted(part.function.first_line for part in steps)
    ]
    if reading:
        notes.append(f"Not {done}: {which_read(reading)}, and what is {done} starts without any.")
    for part in left:
        if part not in steps and part not in reading:
            acts = which_may_act([member.node for member in part.members], namespace)
            line = part.function.first_line
            notes.append(f"Not {done}: the part at line {line}: what {acts} does may not be put back.")
    return notes


def measure_jitted_cell(
    programs: Sequence[JittedProgram], compilation: Compilation, options: CellOptions, watching: Watching
) -> Compilation:
    """Time the jitted functions that a cell called, once each, and add the times to its record: they are the
    functions', whatever else the cell does."""
    from nbcompile.bench.measure.jitted import measure_jitted

    name = "jitted functions"
    found = measure_jitted(
        programs, options.bench_seconds, what=name, cold=options.cold, progress=watching.progress
    )
    kernels = {} if compilation.measurements else {name: len(compilation.kernels)}
    if len(programs) > 1:
        kernels |= {each.name: len(_kernels_of(each.name, compilation)) for each in programs}
    timed = dataclasses.replace(
        compilation,
        measurements=(
            *compilation.measurements,
            *(
                dataclasses.replace(
                    each, kernels=kernels.get(each.what), threads=compilation.environment.threads
                )
                for each in found.measurements
            ),
        ),
        accuracy=(*compilation.accuracy, *found.accuracy),
        ceilings=compilation.ceilings or (ceilings_of(compilation) if found.measurements else ()),
    )
    return with_notes(timed, list(found.notes))


def _kernels_of(name: str, compilation: Compilation) -> list[Kernel]:
    return [kernel for kernel in compilation.kernels if kernel.id.startswith(f"{name}.")]


def peers_key(run: CellRun, compilation: Compilation, options: CellOptions) -> Hashable:
    """What tells a cell from another: its text, what it is compiled with, the shapes, dtypes and devices of
    its tensors, and by identity all else that it is given and every function and class of the session, which
    it may call. A cell that is the same again need not be compiled again to be timed. The key keeps what it
    names: else another object might come to lie at its address, and Dynamo's guards go by addresses too."""
    source = compilation.cell.source if compilation.cell is not None else ""
    given = [_kind_of(leaf) for part in run.parts.values() for leaf in tree_leaves(part.arguments)]
    called = [_Same(each) for each in run.namespace.values() if isinstance(each, FunctionType | type)]
    return source, options, tuple(given), tuple(called)


class _Same:
    """An object, equal to itself alone."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


def _kind_of(value: Any) -> Hashable:
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.stride(), str(value.device), value.requires_grad
    if isinstance(value, torch.nn.Module):
        return _Same(value), value.training
    return (type(value), value) if isinstance(value, int | float | str | bool | None) else _Same(value)


def left_to_python(run: CellRun, compilation: Compilation, options: CellOptions) -> Compilation:
    """The record of a cell of which no part was compiled: why not, where its times would be."""
    left = {statement.line: statement.reason for statement in run.prepared.effects}
    first = {number: members[0].line for number, members in run.prepared.runs.items()}
    left |= {first[number]: reason for number, reason in run.left.items() if number in first}
    told = "\n".join(compilation.notes)
    said = {BY_JAX} if told else set()  # by the note that names what computes
    left = {line: reason for line, reason in left.items() if reason not in told and reason not in said}
    python = [
        f"line {line}: {reason.replace(CALLS_BACKWARD, EAGER_BACKWARD)}"
        for line, reason in sorted(left.items())
    ]
    if run.disabled:
        python = [run.disabled]
    notes = [*compilation.notes, *python] or ["nothing in it computes with tensors"]
    shown = notes[0].replace(" ran eagerly", "", 1)
    reason = shown if len(notes) == 1 else f"{shown} (and {len(notes) - 1} more)"
    nothing = Measurement("cell", options.backend, options.mode, ran_compiled=False, reason=reason)
    return dataclasses.replace(compilation, notes=tuple(notes), measurements=(nothing,))


def repeatable(run: CellRun, compilation: Compilation, *, train: bool) -> list[CellPart]:
    """The parts of a cell, in order, that can be run again. ``train``: with their backward pass at the end of
    a call, so that none has gradients to read."""
    return [
        part
        for _, part in sorted(run.parts.items())
        if _can_repeat(part, compilation, run.namespace) and not (train and reads_gradients(part.members))
    ]


def measure_parts(
    parts: Sequence[Runnable],
    compilation: Compilation,
    options: CellOptions,
    watching: Watching,
    *,
    train: bool,
    what: str = "cell",
    kept: Kept | None = None,
    again: Callable[[str], str] = "run again, the call raises {}".format,
) -> Compilation:
    """Time these, one after the other as one program, which is ``what`` unless backward runs too, and add the
    times to the record; without ``options.bench`` only compare the results with eager's. ``again`` says of an
    error why there are no times."""
    if not parts:
        return compilation
    fn, arguments = as_program(parts)
    ran = _graphs_run(parts)

    def grown(make: Callable[[], Compilation], over: bool) -> None:
        watching.grown(lambda: _joined(compilation, in_names(make(), parts), options, ran), over)

    try:
        if train:
            _refuse_hooks(parts)
        audience = Audience(watching.progress, grown, {} if kept is None else kept)
        with capturing_values(_whole(parts)):
            timed = _compare(fn, arguments, compilation, options, train, what, audience)
    except MeasureError as error:
        return with_notes(compilation, [str(error)])
    except Exception as error:
        # It ran in the cell and fails here: the values have moved on since its first call.
        return with_notes(compilation, [f"Not timed: {again(in_one_line(error)).rstrip('.')}."])
    return _joined(compilation, in_names(timed, parts), options, ran)


def _graphs_run(parts: Sequence[Runnable]) -> list[str]:
    """The graphs that parts of a cell ran, one after the other."""
    return [graph for part in parts if isinstance(part, CellPart) for graph in part.graphs]


def _refuse_hooks(parts: Sequence[Runnable]) -> None:
    """MeasureError where backward calls a function that acts outside, with the cell's own name for it."""
    roots: dict[str, Any] = {}
    for number, part in enumerate(parts):
        names = part.function.parameters if isinstance(part, CellPart) else ()
        given = names if len(names) == len(part.arguments) else map(str, range(len(part.arguments)))
        roots |= {f"the function {number}": part.bound, **dict(zip(given, part.arguments, strict=True))}
    refuse_hooks(roots)


def _whole(parts: Sequence[Runnable]) -> bool:
    """Whether each is one graph where it ran."""
    return all(getattr(part, "whole", False) for part in parts)


def _compare(
    fn: Callable[..., Any],
    arguments: tuple[Any, ...],
    compilation: Compilation,
    options: CellOptions,
    train: bool,
    what: str,
    audience: Audience,
) -> Compilation:
    timing = compilation.execution == "compiled" and options.bench
    return compare_with(
        fn,
        arguments,
        [_contestant(name, options) for name in (options.compare if timing else (options.backend,))],
        dataclasses.replace(settings_of(options, "nbcompile"), fullgraph=False),
        Measuring(
            train,
            options.bench_seconds,
            cold=options.cold,
            timing=timing,
            what=what,
        ),
        compile=functools.partial(_compile, cell=compilation.cell),
        audience=audience,
    )


def _contestant(name: str, options: CellOptions) -> str | Contestant:
    """One of ``--compare``; the cell's own backend has the cell's mode and options."""
    if name != options.backend:
        return name
    own = settings_of(options)
    return Contestant(name, name, own.mode, own.options)


def as_program(parts: Sequence[Runnable]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The parts as one function of all their arguments."""
    if len(parts) == 1 and parts[0].grad_enabled:
        return parts[0].bound, parts[0].arguments
    functions = [(part.bound, len(part.arguments), part.grad_enabled) for part in parts]

    def cell(*arguments: Any) -> Any:
        results, start = [], 0
        for function, count, grad in functions:
            torch._dynamo.graph_break()  # as in the cell, where Python runs between the parts
            with torch.set_grad_enabled(grad):
                results.append(function(*arguments[start : start + count]))
            start += count
        return results

    return cell, tuple(value for part in parts for value in part.arguments)


def _compile(fn: Callable[..., Any], *, cell: Cell | None, **asked: Any) -> Compiled:
    """``nbcompile.compile`` for a contestant: each must draw the random numbers that eager draws."""
    return Compiled(fn, CompileSettings(**asked).drawing_as_eager(), cell=cell)


def modes_of_parts(
    parts: Sequence[Runnable], options: CellOptions, progress: Callable[[str], None], *, train: bool
) -> ModeDiff:
    """What ran, as one program, in the cell's mode and in those of ``--mode-diff``."""
    with capturing_values(_whole(parts)):
        found = mode_diff(
            *as_program(parts),
            (options.mode, *options.mode_diff),
            backend=options.backend,
            options=settings_of(options).options,
            train=train,
            dynamic=options.dynamic,
            timing=options.bench,
            budget=options.bench_seconds,
            progress=progress,
        )
    return dataclasses.replace(found, function=_called(parts))


def _called(parts: Sequence[Runnable]) -> str:
    """What users call this program: our functions have names of ours."""
    return "The cell" if all(isinstance(part, CellPart) and part.members for part in parts) else "The call"


def modes_of_cell(
    parts: Sequence[CellPart],
    compilation: Compilation,
    options: CellOptions,
    progress: Callable[[str], None],
    *,
    train: bool,
) -> tuple[Compilation, ModeDiff | None]:
    """:func:`modes_of_parts` of a cell, and its record: with a note where they cannot be run again."""
    try:
        return compilation, modes_of_parts(parts, options, progress, train=train)
    except NbcompileError as error:
        told = str(error)
    except Exception as error:
        told = why_not_again(parts, in_one_line(error))
    return with_notes(compilation, [f"Modes are not compared: {told.rstrip('.')}."]), None


def has_backward(run: CellRun, options: CellOptions) -> bool:
    """Whether the cell runs backward, so that it is to be measured with it."""
    return options.train or any("backward" in left.reason for left in run.prepared.effects)


def _has_no_gradients(part: CellPart) -> bool:
    """Whether it is the step of an optimizer that has nothing to do, as after ``zero_grad()``."""
    optimizers = [each for each in part.arguments if isinstance(each, torch.optim.Optimizer)]
    groups = [group for each in optimizers for group in each.param_groups]
    return bool(optimizers) and all(item.grad is None for group in groups for item in group["params"])


def _can_repeat(part: CellPart, compilation: Compilation, namespace: Mapping[str, Any]) -> bool:
    if _has_no_gradients(part):
        return False
    if part.whole:
        return True
    first, last = part.function.first_line, part.function.last_line
    inside = [
        found
        for found in compilation.breaks
        if any(first <= span.line <= last and not span.file for span in found.spans[:1])
    ]
    known = all(any(word in f"{found.kind} {found.reason}" for word in _HARMLESS) for found in inside)
    return known or not which_may_act([member.node for member in part.members], namespace)


def _joined(
    compilation: Compilation, timed: Compilation, options: CellOptions, ran: Sequence[str]
) -> Compilation:
    known = set(compilation.notes)
    interpreted = compilation.execution == "interpreted" or not options.bench
    # The interpreter's times say nothing; that it did not run does, and then nothing was compared.
    failed = tuple(m for m in timed.measurements if not m.counts)
    measured = failed if interpreted else tuple(_of_timing(m, compilation) for m in timed.measurements)
    compilation = with_backward(compilation, timed)
    joined = dataclasses.replace(
        with_call_times(compilation, same_calls(compilation, timed, ran)),
        environment=dataclasses.replace(compilation.environment, threads=timed.environment.threads),
        measurements=measured,
        accuracy=() if interpreted and failed else timed.accuracy,
        ceilings=() if interpreted else ceilings_of(compilation),
        notes=compilation.notes + tuple(note for note in timed.notes if note not in known and _matters(note)),
    )
    return dataclasses.replace(joined, peers=() if interpreted else _peers(joined, timed))


def _of_timing(measured: Measurement, compilation: Compilation) -> Measurement:
    """Where a cell ran compiled and what was compiled anew for its times did not, that is why there are none:
    nothing is to be said of the cell by it."""
    ours = measured.contestant == compilation.backend
    if measured.counts or not ours or not any(line.fate == "compiled" for line in compilation.lines):
        return measured
    return dataclasses.replace(measured, reason=f"{NOT_TIMED}: {measured.reason.removeprefix('ran eager: ')}")


def _matters(note: str) -> bool:
    """Whether a note of the runs that were timed is news beside those of the cell's own run."""
    return note == NO_GRADIENT or "history" in note or is_of_filled(note)


def _peers(compilation: Compilation, timed: Compilation) -> tuple[Compilation, ...]:
    """What the other contestants made of the cell, of those that tell."""
    own = (compilation.backend, compilation.mode)
    return tuple(
        dataclasses.replace(
            each,
            peers=(),
            environment=compilation.environment,
            timed_part=compilation.timed_part,
            measurements=compilation.measurements,
            accuracy=compilation.accuracy,
            ceilings=compilation.ceilings,
        )
        for each in (timed, *timed.peers)
        if (each.backend, each.mode) != own and each.kernels
    )


def with_notes(compilation: Compilation, notes: list[str]) -> Compilation:
    """A record that says these too."""
    return dataclasses.replace(compilation, notes=(*compilation.notes, *notes)) if notes else compilation
