"""A suite: a Python file whose functions marked with ``@nbcompile.case`` each make one program to compile.

::

    import torch, nbcompile

    @nbcompile.case(rows=[64, 4096])
    def softmax(rows):
        x = torch.randn(rows, 512)
        return lambda x: torch.softmax(x, -1) * 2, (x,)

    @nbcompile.case(train=True)
    def layer():
        model = torch.nn.Linear(64, 64)
        return model, (torch.randn(8, 64),), (torch.randn(9, 64),)   # called again at another size
"""

from __future__ import annotations

import fnmatch
import importlib.util
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nbcompile.errors import SuiteError

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class SuiteSettings:
    """How a suite is run. ``budget``: seconds of samples of one case in one process; ``repeat``: processes a
    case; ``timeout``: seconds one process may take; ``only``: patterns of names between commas."""

    backend: str = "nbcompile"
    mode: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    budget: float = 1.0
    repeat: int = 3
    only: str = ""
    timeout: float = 600.0


@dataclass(frozen=True)
class SuiteCase:
    """One program of a suite: ``factory(**parameters)`` returns a function or module, its inputs (as
    :func:`nbcompile.compare` takes them), and any further inputs it is called with once compiled."""

    name: str
    factory: Callable[..., Any]
    parameters: dict[str, Any] = field(default_factory=dict)
    train: bool = False
    dynamic: bool | None = None

    def make(self) -> tuple[Callable[..., Any], Any, tuple[Any, ...]]:
        """The program, its inputs, and further inputs. SuiteError if the factory returned something else."""
        made = self.factory(**self.parameters)
        if not isinstance(made, tuple) or len(made) < 2 or not callable(made[0]):
            raise SuiteError(
                f"case {self.name} returned {type(made).__name__}, not a function and its inputs.",
                line=self.factory.__code__.co_firstlineno,
                advice="End it with: return fn, (x, y)",
            )
        return made[0], made[1], made[2:]


def case(
    function: F | None = None,
    /,
    *,
    train: bool = False,
    dynamic: bool | None = None,
    **parameters: Sequence[Any],
) -> Any:
    """Mark a function as a case of a suite (see :mod:`nbcompile.bench.regressions.suite`).

    ``train`` adds the backward pass; ``dynamic`` is torch.compile's. Each further keyword is a parameter of
    the function with the values it takes: one case for each combination, named ``name[rows=64]``. The random
    seed is 0 whenever the function is called.
    """

    if function is not None and not callable(function):
        raise SuiteError(
            f"a case is a function, and this is {type(function).__name__}.",
            advice="Write @nbcompile.case above it, or @nbcompile.case(rows=[8, 64]) for several sizes.",
        )

    def mark(marked: F) -> F:
        grid = [dict(zip(parameters, values)) for values in itertools.product(*parameters.values())]
        cases = []
        for chosen in grid:
            inside = ",".join(f"{name}={value}" for name, value in chosen.items())
            name = f"{marked.__name__}[{inside}]" if inside else marked.__name__
            cases.append(SuiteCase(name, marked, chosen, train, dynamic))
        marked.__nbcompile_cases__ = tuple(cases)  # type: ignore[attr-defined]
        return marked

    return mark(function) if function is not None else mark


def load(file: str | Path) -> tuple[SuiteCase, ...]:
    """The cases of a suite, in the order of the file; its folder can be imported from. SuiteError if it is no
    file, cannot be run or has no case."""
    path = Path(file).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise SuiteError(f"{file} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # anything may be wrong in a user's file
        line = _line_in(error, path)
        raise SuiteError(f"{path.name} cannot be run: {type(error).__name__}: {error}", line=line) from error
    found = [each for value in vars(module).values() for each in getattr(value, "__nbcompile_cases__", ())]
    if not found:
        raise SuiteError(f"{path.name} has no case.", advice="Mark a function with @nbcompile.case.")
    return tuple(found)


def chosen(names: Sequence[str], only: str) -> list[str]:
    """The names that ``only`` (patterns with ``*``, between commas) picks: whole, or without parameters."""
    patterns = [pattern.strip() for pattern in only.split(",") if pattern.strip()]
    if not patterns:
        return list(names)
    # Brackets in a name are no character classes.
    return [
        name
        for name in names
        if any(
            name == p or fnmatch.fnmatchcase(name, p.replace("[", "[[]")) or name.split("[")[0] == p
            for p in patterns
        )
    ]


def _line_in(error: BaseException, path: Path) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
