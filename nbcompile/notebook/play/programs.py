"""What it takes to run something compiled once more: code and names, never the user's tensors.

A program is remembered with its record. When the explorer asks for a change, :meth:`PlayedProgram.pieces`
looks the values up again, so a name that was deleted meanwhile is gone here too.
"""

from __future__ import annotations

import builtins
import inspect
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from nbcompile.api import Compiled
from nbcompile.compiler.capture.cell_to_function import CellFunction
from nbcompile.errors import PlayError
from nbcompile.notebook.arguments import CellOptions
from nbcompile.notebook.cell.cell_run import UNBOUND, CellPart
from nbcompile.record.compilation import Cell, Compilation, TimedCellPart

AGAIN = "Run the cell again."


@dataclass(frozen=True)
class ProgramPiece:
    """A function of a program with the arguments of a call, as they are now, and their names. ``whole``: it
    is to be one graph. ``numbers`` are parameters that hold a number which changes from call to call."""

    bound: Callable[..., Any]
    arguments: tuple[Any, ...]
    names: tuple[str, ...]
    grad_enabled: bool = True
    whole: bool = False
    numbers: tuple[str, ...] = ()


class PlayedProgram(Protocol):
    """What was compiled: ``train`` if it is measured with its backward pass, ``timed_part`` what of a cell
    that is."""

    cell: Cell | None
    name: str
    options: CellOptions
    train: bool
    timed_part: TimedCellPart | None

    def pieces(self) -> list[ProgramPiece]:
        """Its functions in order, with their arguments. PlayError where one of these is gone."""
        ...


@dataclass(frozen=True)
class Code:
    """One compiled function: what it is made of, and what its arguments were like (``""``: anything)."""

    function: CellFunction
    code_names: tuple[str, ...]
    seen: tuple[str, ...]
    grad_enabled: bool
    whole: bool
    numbers: tuple[str, ...] = ()


class CellProgram:
    """The compiled parts of a cell, or the call of ``%compile f(x)``; ``namespace`` is the session's own."""

    def __init__(
        self,
        codes: Sequence[Code],
        namespace: dict[str, Any],
        cell: Cell | None,
        options: CellOptions,
        train: bool,
        timed_part: TimedCellPart | None = None,
    ) -> None:
        self.codes = tuple(codes)
        self.namespace = namespace
        self.cell, self.name = cell, ""
        self.options, self.train, self.timed_part = options, train, timed_part

    @classmethod
    def of_parts(
        cls,
        parts: Sequence[CellPart],
        namespace: dict[str, Any],
        compilation: Compilation,
        options: CellOptions,
        train: bool,
    ) -> CellProgram:
        """The parts of a cell, or the call, that has run, of its record."""
        codes = [
            Code(
                part.function,
                part.code_names,
                tuple(map(_described, part.arguments)),
                part.grad_enabled,
                part.whole,
                part.numbers,
            )
            for part in parts
        ]
        return cls(codes, namespace, compilation.cell, options, train, compilation.timed_part)

    def pieces(self) -> list[ProgramPiece]:
        return [self._piece(code) for code in self.codes]

    def _piece(self, code: Code) -> ProgramPiece:
        scope = {"__name__": self.namespace.get("__name__", "__main__"), "__builtins__": builtins}
        for name in code.code_names:
            scope[name] = self._value(name)
        parameters = code.function.parameters
        values = []
        for name, seen in zip(parameters, code.seen, strict=True):
            value = UNBOUND if seen == _UNBOUND else self._value(name)
            if seen and seen != _described(value):
                raise PlayError(
                    f"{name} was {seen}, and is {_described(value) or 'no tensor'} now.", advice=AGAIN
                )
            values.append(value)
        return ProgramPiece(
            code.function.bind(scope),
            tuple(values),
            parameters,
            code.grad_enabled,
            code.whole,
            code.numbers,
        )

    def _value(self, name: str) -> Any:
        if name not in self.namespace:
            raise PlayError(f"{name} is gone from the session.", advice=AGAIN)
        return self.namespace[name]


class CallableProgram:
    """What ``nbcompile.compile`` returned, with the arguments of a call; none of it is kept alive."""

    def __init__(self, compiled: Compiled, inputs: Sequence[Any]) -> None:
        recorder = compiled.recorder
        ours = recorder.backend == "nbcompile"
        self._compiled = weakref.ref(compiled)
        self._inputs = [_weak(value) for value in inputs]
        self.cell, self.name = recorder.cell, recorder.name
        self.options = CellOptions(
            backend=recorder.backend,
            mode=recorder.options.mode,
            dynamic=compiled.dynamic,
            options=recorder.options.as_pairs() if ours else (),
        )
        self.train = False
        self.timed_part: TimedCellPart | None = None

    def pieces(self) -> list[ProgramPiece]:
        compiled = self._compiled()
        if compiled is None:
            raise PlayError("the compiled function is gone.", advice="Compile and explore it again.")
        values = tuple(read() for read in self._inputs)
        if any(value is None for value in values):
            raise PlayError("an input is gone: nothing else held it.", advice="Keep the inputs in variables.")
        target = compiled.__wrapped__
        return [ProgramPiece(target, values, _parameter_names(target, len(values)))]


_UNBOUND = "not bound"


def _described(value: Any) -> str:
    """What must be the same for the same code to come out."""
    if value is UNBOUND:
        return _UNBOUND
    if isinstance(value, torch.Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{kind} {list(value.shape)} on {value.device}"
    return f"a {type(value).__qualname__}" if isinstance(value, torch.nn.Module) else ""


def _weak(value: Any) -> Callable[[], Any]:
    if isinstance(value, torch.Tensor | torch.nn.Module):
        return weakref.ref(value)
    return lambda: value


def _parameter_names(target: Callable[..., Any], count: int) -> tuple[str, ...]:
    called = target.forward if isinstance(target, torch.nn.Module) else target
    try:
        names = tuple(inspect.signature(called).parameters)
    except (TypeError, ValueError):  # a builtin
        names = ()
    return (*names, *(f"argument{n}" for n in range(len(names), count)))[:count]
