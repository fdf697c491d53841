"""``nbcompile.doctor``: what could make a call faster here, measured, checked and ranked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch

from nbcompile.api import plain
from nbcompile.bench.doctor.candidates import compilers, suggestions
from nbcompile.bench.doctor.examination import Examination
from nbcompile.bench.doctor.patient import Patient, Surroundings
from nbcompile.bench.doctor.switches import BUDGET, Switch
from nbcompile.bench.doctor.ward import Ward
from nbcompile.errors import MeasureError
from nbcompile.options import check_seconds
from nbcompile.record.advice.doctor import DoctorReport, DoctorRow, NotTried, RowStatus
from nbcompile.record.compilation import Compilation
from nbcompile.record.provenance import Links
from nbcompile.settings import CompileSettings, keywords_of, settings_given
from nbcompile.units import count_text
from nbcompile.view.facts.facts import facts
from nbcompile.view.facts.why import why

_ORDER: tuple[RowStatus, ...] = ("pays", "level", "slower", "differs", "failed", "crashed", "timeout")


@keywords_of(CompileSettings, without=("name", "disable", "shapes_spec", "dynamic_shapes"))
def doctor(
    fn: Callable[..., Any],
    *args: Any,
    budget: float = BUDGET,
    train: bool = False,
    optimizer: torch.optim.Optimizer | None = None,
    edits: Sequence[Switch] = (),
    without: Collection[str] = (),
    progress: Callable[[str], None] | None = None,
    **settings: Any,
) -> DoctorReport:
    """Try what could make ``fn(*args)`` faster, and rank what pays.

    Backends and their modes, bfloat16, channels last, one thread, overruled fusion decisions, symbolic sizes,
    a compiled optimizer, a larger batch: each alone, then those that pay together. Each is measured by turns
    with the present state, which the settings say (``backend``, ``mode``, ...: as for
    :func:`nbcompile.compile`), in a process of its own, on a copy, and is checked against float64. What does
    not pay, fails, crashes or hangs is listed as that. Only what is measured faster, with a 99 % interval
    above 1, and measured again at the end, is recommended.

    One argument that is a tuple holds the arguments, as in :func:`nbcompile.compare`: ``doctor(f, (x, y))``
    is of ``f(x, y)``, and ``doctor(f, ((x, y),))`` of ``f((x, y))``.

    ``budget``: seconds for all of it; what there is no time for is listed too. ``train`` adds the backward
    pass, ``optimizer`` its step after that. ``edits``: other sources to try, made by
    :func:`nbcompile.bench.doctor.candidates.edited`. ``without``: names of switches, axes (``"threads"``),
    backends or modes that are not tried. ``progress`` is called with what is being done. An interrupt does
    not raise: what was found by then comes back.

    Raises OptionError for a budget that is no time, and MeasureError where the program cannot be sent to
    another process or does not run there.
    """
    check_seconds("budget", budget)
    target = plain(fn)
    if len(args) == 1 and isinstance(args[0], tuple):
        (args,) = args
    _check_arguments(target, args)
    patient = Patient(target, args, {}, train or optimizer is not None, optimizer, _names(target))
    asked = settings_given("doctor", settings)
    return examined(patient, asked, budget, progress or (lambda text: None), edits, without=without)


def examined(
    patient: Patient,
    present: CompileSettings,
    budget: float,
    progress: Callable[[str], None],
    edits: Sequence[Switch] = (),
    name: str = "",
    without: Collection[str] = (),
) -> DoctorReport:
    """:func:`doctor` of a program that is a value, held against ``present``."""
    here = Surroundings.here()
    present.check()
    data = patient.packed()
    name = name or str(getattr(patient.fn, "__qualname__", type(patient.fn).__qualname__))
    interrupted = False
    wanted: tuple[Switch, ...] = ()
    with Ward() as ward:
        exam = Examination(data, present, here, ward, budget, progress)
        try:
            known = compilers(present, "cpu", patient.train).switches
            eager = next((switch for switch in known if switch.backend == "eager"), None)
            record = exam.describe(eager)
            found = suggestions(patient, present, here, record, mended=bool(edits))
            wanted = (*edits, *(switch for switch in found.switches if not _is_without(switch, without)))
            exam.left += found.left
            exam.left += [NotTried(each, "it was not to be tried") for each in without]
            exam.alone(wanted)
            exam.together(wanted)
            exam.verify()
        except KeyboardInterrupt:
            interrupted = True
        seconds = exam.spent
    return DoctorReport(
        function=name,
        present=_described(present),
        present_seconds=_seconds_of(exam.record),
        rows=_ranked(exam.rows.values()),
        left=_left(exam, wanted, interrupted),
        why=why(exam.record, facts(exam.record, Links(exam.record))).text if exam.record else "",
        seconds=seconds,
        budget=budget,
        interrupted=interrupted,
    )


def _check_arguments(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """What cannot be called so is told at once, not after a process was started for it."""
    try:
        signature = inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    except (TypeError, ValueError):  # a builtin
        return
    try:
        signature.bind(*args)
    except TypeError as error:
        name = getattr(fn, "__qualname__", type(fn).__qualname__)
        given = count_text(len(args), "argument")
        raise MeasureError(
            f"{name} does not take the {given} that the doctor was given: {error}.",
            advice="doctor(f, x, y) and doctor(f, (x, y)) both examine f(x, y).",
        ) from error


def _names(fn: Callable[..., Any]) -> tuple[str, ...]:
    """What the arguments are called, as far as it can be told."""
    try:
        return tuple(inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn).parameters)
    except (TypeError, ValueError):  # a builtin
        return ()


def _is_without(switch: Switch, without: Collection[str]) -> bool:
    return bool({switch.name, switch.axis, switch.backend, switch.mode} & set(without))


def _described(present: CompileSettings) -> str:
    told = present.backend_name
    if present.mode not in (None, "default"):
        told += f", {present.mode}"
    more = [f"{name}={value}" for name, value in (present.options or {}).items() if name != "fallback_random"]
    if present.dynamic is not None:
        more.append(f"dynamic={present.dynamic}")
    return f"{told} ({', '.join(more)})" if more else told


def _ranked(rows: Iterable[DoctorRow]) -> tuple[DoctorRow, ...]:
    """What was measured once comes after what was measured again, however fast it was."""

    def place(row: DoctorRow) -> tuple[int, bool, float]:
        once = row.status == "pays" and not row.verified
        return _ORDER.index(row.status), once, -(row.speedup or 0.0)

    return tuple(sorted(rows, key=place))


def _seconds_of(record: Compilation | None) -> float | None:
    """A call of the present state: the last measurement of its record, which has eager's before it."""
    return record.measurements[-1].median if record is not None and record.measurements else None


def _left(exam: Examination, wanted: Sequence[Switch], interrupted: bool) -> tuple[NotTried, ...]:
    """What was put aside, and which of those wanted never had a turn."""
    left = list(exam.left)
    tried = {switch for on in exam.rows for switch in on.switches}
    told = {each.name for each in left}
    for switch in wanted:
        if switch in tried or switch.name in told:
            continue
        why = "it was stopped before that" if interrupted else f"it is an option of {switch.only}"
        left.append(NotTried(switch.name, why if interrupted else f"{why}, which did not pay here"))
    return tuple(dict.fromkeys(left))
