"""One call and all that can be seen of it: results, inputs afterwards, what it printed, the lines it ran."""

from __future__ import annotations

import contextlib
import dis
import io
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from nbcompile.bench.captures.frameworks import Framework
from nbcompile.bench.captures.ways import reason_of
from nbcompile.bench.measure.code_objects import codes
from nbcompile.compiler.capture.torch_log import unprinted

_MOST_LINES = 100_000
_TOLERANCE = {torch.float64: 1e-7, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True)
class CallOutcome:
    """``values`` are the leaves of the result as torch tensors and plain values, ``inputs`` those of the
    arguments after the call; ``error`` what it raised instead; ``path`` the lines of the user's file in the
    order they ran, where that was asked for."""

    values: tuple[Any, ...] = ()
    inputs: tuple[Any, ...] = ()
    printed: str = ""
    error: str = ""
    path: tuple[int, ...] = ()


def run(
    call: Callable[..., Any],
    framework: Framework,
    args: tuple[Any, ...],
    *,
    file: str = "",
    trace: bool = False,
) -> CallOutcome:
    """Call with copies of ``args``. Nothing reaches the screen; an exception is an outcome."""
    out, path = io.StringIO(), list[int]()
    try:
        own = framework.arguments(args)
        with silent(out), lines_of(file, path) if trace else contextlib.nullcontext():
            result = call(*own)
        return CallOutcome(
            tuple(framework.values(result)), tuple(framework.values(own)), out.getvalue(), path=tuple(path)
        )
    except Exception as error:
        return CallOutcome(printed=out.getvalue(), error=reason_of(error, file)[0], path=tuple(path))


@contextlib.contextmanager
def silent(out: io.StringIO | None = None) -> Iterator[list[warnings.WarningMessage]]:
    """Prints go to ``out``, stderr nowhere, warnings to the list that is yielded."""
    with (
        contextlib.redirect_stdout(io.StringIO() if out is None else out),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(record=True) as seen,
        unprinted(),
    ):
        warnings.simplefilter("always")
        yield seen


@contextlib.contextmanager
def lines_of(file: str, path: list[int]) -> Iterator[None]:
    """Adds to ``path`` each line of ``file`` as it runs, up to 100,000."""

    def local(frame: types.FrameType, event: str, arg: Any) -> Any:
        if event == "line" and len(path) < _MOST_LINES:
            path.append(frame.f_lineno)
        return local

    def entered(frame: types.FrameType, event: str, arg: Any) -> Any:
        return local if frame.f_code.co_filename == file else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        yield
    finally:
        sys.settrace(before)


def lines_in(code: types.CodeType) -> set[int]:
    """The lines of a function's body that can run."""
    return {
        line
        for inner in codes(code)
        for _, line in dis.findlinestarts(inner)
        if line is not None and (line != inner.co_firstlineno or inner.co_name in ("<lambda>", "<listcomp>"))
    }


def other_path(one: tuple[int, ...], other: tuple[int, ...]) -> str:
    """Where two paths part, in words; empty if they are the same."""
    if one == other:
        return ""
    for a, b in zip(one, other):
        if a != b:
            return f"line {b} runs, not {a}"
    return f"{len(other)} lines run, not {len(one)}"


def difference(expected: tuple[Any, ...], got: tuple[Any, ...], *, dtypes: bool = True) -> str:
    """How results differ, with values; empty if they agree to rounding."""
    if len(expected) != len(got):
        return f"eager returns {len(expected)} values, this {len(got)}"
    for one, other in zip(expected, got):
        found = _leaf_difference(one, other, dtypes)
        if found:
            return found
    return ""


def _leaf_difference(one: Any, other: Any, dtypes: bool) -> str:
    numbers = isinstance(one, torch.Tensor), isinstance(other, torch.Tensor)
    if not any(numbers):
        return "" if one == other or (one != one and other != other) else f"eager {one!r}, here {other!r}"
    if not all(numbers):  # a number in Python may be a 0-dimensional array elsewhere
        one, other = (torch.as_tensor(value) if isinstance(value, bool | int | float) else value
                      for value in (one, other))  # fmt: skip
        dtypes = False
        if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
            return f"eager {one!r}, here {other!r}"
    if one.shape != other.shape:
        return f"eager shape {tuple(one.shape)}, here {tuple(other.shape)}"
    if dtypes and one.dtype != other.dtype:
        return f"eager {_dtype(one)}, here {_dtype(other)}"
    return _value_difference(one, other)


def _value_difference(one: torch.Tensor, other: torch.Tensor) -> str:
    rough = max(_TOLERANCE.get(tensor.dtype, 1e-4) for tensor in (one, other))
    kind = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
    a, b = one.detach().cpu().to(kind), other.detach().cpu().to(kind)
    near = torch.isclose(a, b, rtol=rough, atol=rough, equal_nan=True)
    if bool(near.all()):
        return ""
    place = tuple((~near).nonzero()[0].tolist())
    where = f" at {list(place)}" if place else ""
    return f"eager {a[place].item():.5g}, here {b[place].item():.5g}{where}"


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
