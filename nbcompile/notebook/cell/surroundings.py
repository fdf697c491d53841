"""What a compiled part runs in: Dynamo's settings, torch's log, random state that can be rewound, and what
dicts and objects hold before it."""

from __future__ import annotations

import logging
import random
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
import torch._dynamo
import torch.compiler.config
from torch.utils._pytree import tree_leaves

from nbcompile.bench.measure.code_objects import is_users_class, names_in
from nbcompile.compiler.capture.listening import active_session
from nbcompile.compiler.capture.torch_log import unprinted, was_asked_for

# A frame that fails to compile runs eagerly, and numpy stays numpy, with its own random numbers.
DYNAMO: AbstractContextManager[Any] = torch._dynamo.config.patch(suppress_errors=True, trace_numpy=False)

_config: Any = torch.compiler.config


class RandomState:
    """torch's and Python's random state as of now, to rewind what a failed part drew. (A part that is
    one graph has drawn nothing from numpy.)"""

    def __init__(self, *, python: bool = True) -> None:
        self.torch = torch.default_generator.get_state()
        self.python = random.getstate() if python else None  # slow to take
        self.cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]

    def restore(self) -> None:
        torch.default_generator.set_state(self.torch)
        if self.python is not None:
            random.setstate(self.python)
        if self.cuda is not None:
            torch.cuda.set_rng_state_all(self.cuda)

    def python_moved(self) -> bool:
        """Whether Python's generator has drawn since."""
        return self.python is not None and random.getstate() != self.python


def changing(numbers: tuple[str, ...]) -> AbstractContextManager[Any]:
    """Tell Dynamo that these parameters change from call to call, so that it compiles them once."""
    if not numbers or not hasattr(_config, "dynamic_sources"):
        return nullcontext()
    patched: AbstractContextManager[Any] = _config.patch(
        dynamic_sources=",".join(f"L[{name!r}]" for name in numbers)
    )
    return patched


def capturing_values(whole: bool) -> AbstractContextManager[Any]:
    """Compile anew what the cell has as ``whole`` graphs, with the values of tensors in them. One graph has
    them unasked; a function that may break, as what is timed is one, breaks at each, and in a loop is not
    compiled at all."""
    if not whole:
        return nullcontext()
    patched: AbstractContextManager[Any] = torch._dynamo.config.patch(
        capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True
    )
    return patched


class _Told(logging.Filter):
    """Drops torch's warning, ten lines at each call, that a recompile limit is reached: where a cell runs its
    record says so."""

    def filter(self, record: logging.LogRecord) -> bool:
        session = active_session()
        limit = record.getMessage().startswith("torch._dynamo hit config.")
        told = limit and session is not None and bool(session.cell_file)
        return not told or was_asked_for(record)


_TOLD = _Told()


def leave_limits_to_the_record() -> None:
    """From now on torch's log does not repeat what the record of a cell says. A part that is called again
    may compile too, and nothing is to be done around each of its calls."""
    logging.getLogger("torch._dynamo.convert_frame").addFilter(_TOLD)  # once, however often


@contextmanager
def quiet_compile() -> Iterator[None]:
    """What torch prints unasked about a compile stays unprinted: the record says it, in one line each."""
    with warnings.catch_warnings(), DYNAMO, unprinted(asked_for=True):
        warnings.filterwarnings("ignore", module=r"torch\._(dynamo|inductor|functorch)")
        yield


@dataclass(frozen=True)
class _Place:
    """A dict, or an object's attributes, and the keys that held something."""

    name: str
    entries: dict[Any, Any]
    keys: frozenset[Any]
    is_object: bool

    def path(self, key: Any) -> str:
        return f"{self.name}.{key}" if self.is_object else f"{self.name}[{key!r}]"


Filled = dict[tuple[str, ...], tuple[str, ...]]
"""By the places where one thing was put, which results are it."""


class HeldKeys:
    """Which keys the dicts and objects hold that ``roots`` lead to, by the paths of a
    :class:`~nbcompile.bench.measure.state.Snapshot`."""

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self._places: list[_Place] = []
        self._seen: set[int] = set()
        self._left = _MOST_HELD
        waiting = deque(roots.items())
        while waiting and self._left > 0:
            waiting += self._look(*waiting.popleft())

    def filled(self, results: Iterable[tuple[str, Any]]) -> Filled:
        """Where there is a tensor by now and was nothing, or None, and which of the ``results`` it is."""
        named = list(results)
        paths: dict[int, list[str]] = {}
        values: dict[int, Any] = {}
        for place in self._places if self._left > 0 else ():
            for key, value in place.entries.items():
                plain = isinstance(key, str | int | tuple)
                if plain and key not in place.keys and any(map(torch.is_tensor, tree_leaves(value))):
                    paths.setdefault(id(value), []).append(place.path(key))
                    values[id(value)] = value
        return {
            tuple(places): tuple(name for name, each in named if each is values[which])
            for which, places in paths.items()
        }

    def _look(self, name: str, value: Any) -> Iterable[tuple[str, Any]]:
        if id(value) in self._seen or isinstance(value, torch.Tensor):
            return []
        self._seen.add(id(value))
        if isinstance(value, FunctionType):
            return _globals_and_cells(value) if value.__globals__.get("__name__") == "__main__" else []
        if isinstance(value, list | tuple):
            self._left -= len(value)
            return [(f"{name}[{at}]", item) for at, item in enumerate(value)] if self._left > 0 else []
        if isinstance(value, dict):
            return self._entries(name, value, is_object=False)
        if isinstance(value, torch.nn.Module):  # its parts are called as its attributes are
            own = vars(value)
            parts = [own[part] for part in _PARTS if isinstance(own.get(part), dict)]
            plain = self._entries(name, own, is_object=True)
            found = [each for part in parts for each in self._entries(name, part, is_object=True)]
            return [*(each for each in plain if not any(each[1] is part for part in parts)), *found]
        if is_users_class(type(value)):
            with suppress(AttributeError):  # it may have slots alone
                return self._entries(name, object.__getattribute__(value, "__dict__"), is_object=True)
        return []

    def _entries(self, name: str, entries: dict[Any, Any], *, is_object: bool) -> list[tuple[str, Any]]:
        self._left -= len(entries)
        if self._left <= 0:
            return []
        keys = frozenset(key for key, item in entries.items() if item is not None)
        place = _Place(name, entries, keys, is_object)
        self._places.append(place)
        return [(place.path(key), item) for key, item in entries.items() if not isinstance(item, _ATOMS)]


_MOST_HELD = 20_000
"""Entries, beyond which it is not looked what a part fills."""
_ATOMS = (int, float, str, bytes, torch.Tensor, type(None))
_PARTS = ("_parameters", "_buffers", "_modules")


def _globals_and_cells(function: FunctionType) -> Iterable[tuple[str, Any]]:
    """What a function may reach by no argument."""
    scope, code = function.__globals__, function.__code__
    for name in names_in(code):
        if name in scope:
            yield name, scope[name]
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # Python's way to say that a cell is empty
            yield name, cell.cell_contents
