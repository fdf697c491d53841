"""One point of a sweep, measured: eager and the backend side by side, in this process."""

from __future__ import annotations

import copy
import dataclasses
import gc
import inspect
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.utils import _pytree

from nbcompile.bench.measure.compare import Measuring, compare_with
from nbcompile.bench.measure.contestant import Contestant
from nbcompile.bench.sweep.grid import Point
from nbcompile.errors import MeasureError, OptionError, in_one_line
from nbcompile.record.compilation import Compilation
from nbcompile.settings import CompileSettings

Status = Literal[
    "ok",  # measured, and the results agree
    "differs",  # measured, and they do not
    "eager",  # the backend did not compile it, or not all of it
    "failed",  # the program or the compiler raised
    "skipped",  # makes no sense: the backend has no such mode or option
    "crashed",  # the process died
    "timeout",
    "lost",  # its worker died with it, twice; it is run again when the sweep is resumed
    "not run",  # the sweep was interrupted
]
_ONE = threading.Lock()  # of the points in one process: threads, caches and counts of memory are a process's


@dataclass(frozen=True)
class SweepProgram:
    """What a sweep runs: ``fn(*make_inputs(...))``; ``fn=None``: ``make_inputs`` returns ``(fn, inputs)``."""

    fn: Callable[..., Any] | None
    make_inputs: Callable[..., Any]


@dataclass(frozen=True)
class Outcome:
    """What became of a point: ``record`` where there is one, ``seconds`` that it took in all."""

    status: Status
    reason: str = ""
    record: Compilation | None = field(default=None, repr=False)
    seconds: float = 0.0


class Heap:
    """Keeps the garbage collector from going through a process's compilers before every measurement: what is
    left after the first point of a backend stays out of its way until :meth:`release`."""

    def __init__(self) -> None:
        self._settled: set[str] = set()
        self._free = gc.get_freeze_count() == 0  # else unfreezing would thaw someone else's objects

    def settle(self, backend: str) -> None:
        """A point of this backend is over."""
        if self._free and backend not in self._settled:
            self._settled.add(backend)
            gc.collect()
            gc.freeze()

    def release(self) -> None:
        """Everything is the collector's again; what the last points left behind goes now."""
        if self._free:
            gc.unfreeze()
        gc.collect()


def run_point(
    program: SweepProgram,
    point: Point,
    settings: CompileSettings,
    measuring: Measuring,
    compile: Callable[..., Any] | None = None,
) -> Outcome:
    """Measure a point here. Whatever it raises, but for an interrupt, is its outcome."""
    begun = time.perf_counter()
    with _ONE:
        try:
            status, reason, record = _measured(program, point, settings, measuring, compile)
        except OptionError as error:
            status, reason, record = "skipped", str(error), None
        except Exception as error:
            status, reason, record = "failed", in_one_line(error), None
        except SystemExit as error:
            status, reason, record = "failed", f"SystemExit: {error.code}", None
    return Outcome(status, reason, record, time.perf_counter() - begun)


def check_keys(make: Callable[..., Any], keys: Iterable[str]) -> None:
    """OptionError where a function that makes inputs cannot be given these by name, or is none."""
    if not callable(make):
        raise OptionError(
            f"inputs of a sweep come from a function that makes them, not from {type(make).__name__}.",
            advice="Give lambda: x, or a function whose parameters the grid names.",
        )
    parameters = inspect.signature(make).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    unknown = [] if takes_all else [key for key in dict.fromkeys(keys) if key not in parameters]
    if unknown:
        raise OptionError(
            f"{', '.join(unknown)}: the function that makes the inputs has no such parameter.",
            advice=f"Its parameters: {', '.join(parameters) or 'none'}.",
        )


def inputs_of(program: SweepProgram, point: Point) -> tuple[Callable[..., Any], Any]:
    """The function of a point and its inputs, in the type and on the device that the point names.

    ``make_inputs`` gets ``dtype`` (a ``torch.dtype``) and ``device`` if it has parameters of these names,
    else its floating tensors and modules are converted. Modules are copied before. Random numbers are drawn
    with the same seed at every point; the session's own generator does not move.
    """
    arguments = point.arguments
    kind = getattr(torch, point.get("dtype")) if point.get("dtype") else None
    device = torch.device(point.get("device")) if point.get("device") else None
    known = inspect.signature(program.make_inputs).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    given: dict[str, Any] = {"dtype": kind, "device": device}
    taken = {key for key, value in given.items() if value is not None and (key in known or takes_all)}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = program.make_inputs(**arguments, **{key: given[key] for key in taken})
    fn = program.fn
    if fn is None:
        if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
            raise MeasureError(
                "without a function, make_inputs is to return (function, inputs).",
                advice="Give compare the function, or return both.",
            )
        fn, made = made
    here = device if "device" not in taken else None
    left = kind if "dtype" not in taken else None
    # The function is not make_inputs' to convert, unless that made it.
    fn = _converted(fn, *((kind, device) if program.fn is not None else (left, here)))
    return fn, _pytree.tree_map(lambda leaf: _converted(leaf, left, here), made)


def _converted(value: Any, kind: torch.dtype | None, device: torch.device | None) -> Any:
    if kind is None and device is None:
        return value
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).to(dtype=kind, device=device)
    if not isinstance(value, torch.Tensor):
        return value
    made = value.detach().to(dtype=kind if value.is_floating_point() else None, device=device)
    return made.requires_grad_() if value.requires_grad else made


def _measured(
    program: SweepProgram,
    point: Point,
    settings: CompileSettings,
    measuring: Measuring,
    compile: Callable[..., Any] | None,
) -> tuple[Status, str, Compilation]:
    backend = point.backend
    settings.check()
    fn, inputs = inputs_of(program, point)
    contestants = [Contestant("eager", "eager")]
    if backend != "eager":
        options = settings.drawing_as_eager().options
        contestants.append(Contestant(backend, backend, settings.mode, dict(options or {}) or None))
    here = dataclasses.replace(
        measuring,
        threads=point.get("threads") or measuring.threads,
        memory=measuring.memory or str(point.get("device")).startswith("cuda"),
    )
    record = compare_with(fn, inputs, contestants, settings, here, compile=compile)
    measured = record.measurements[-1]
    if not measured.counts:
        silent = measured.reason.startswith("ran eager")
        return ("eager" if silent else "failed"), measured.reason, record
    worst = next((item for item in record.accuracy if not item.agrees), None)
    if worst is not None:
        return "differs", f"{worst.output}: {worst.reason}", record
    return "ok", "", record
