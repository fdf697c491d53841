"""Where Dynamo is followed instruction by instruction: all of its private names that a walk needs.

They are in place while somebody watches, and only then: a compile that is not watched runs torch's own code.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import CodeType
from typing import Any, Protocol

import torch._dynamo
from torch._dynamo import convert_frame, exc

_lock = threading.Lock()
_watchers = 0
_undo: list[Callable[[], None]] = []


class Follower(Protocol):
    """Who is told of a walk."""

    def begins(self, translator: Any) -> None:
        """``translator`` is about to follow the instruction at its pointer."""

    def ends(self, translator: Any, error: BaseException | None, goes_on: bool) -> None:
        """It has, or ``error`` came of it; ``goes_on``: the function has further instructions."""

    def made(self, node: Any) -> None:
        """An FX node was made."""

    def wrote(self, code: CodeType) -> None:
        """The function walked through last is replaced by this."""

    def fails(self, error: Exception) -> None:
        """One of the others raised ``error``: this torch is another than was thought."""


def missing() -> str:
    """Why this torch cannot be watched; empty if it can."""
    translator = _translator()
    lacks = [name for name in ("step",) if not hasattr(translator, name)]
    lacks += [] if hasattr(_tracer(), "create_node") else ["create_node"]
    return f"torch {torch.__version__} has no {lacks[0]} in Dynamo to watch" if lacks else ""


def install(follower: Callable[[], Follower | None]) -> None:
    """Tell whom ``follower`` names, at each step of each thread, until :func:`remove` was called as often."""
    global _watchers
    with _lock:
        _watchers += 1
        if _watchers > 1:
            return
        _undo.append(_replace(_translator(), "step", functools.partial(_watched_step, follower)))
        _undo.append(_replace(_tracer(), "create_node", functools.partial(_watched_node, follower)))

        def hook(code: CodeType, new_code: CodeType) -> None:
            if (told := follower()) is not None:
                _tell(told, told.wrote, new_code)

        if hasattr(convert_frame, "register_bytecode_hook"):
            register: Any = convert_frame.register_bytecode_hook
            _undo.append(register(hook).remove)


def remove() -> None:
    """Put Dynamo back as it was, once nobody watches."""
    global _watchers
    with _lock:
        _watchers -= 1
        while not _watchers and _undo:
            _undo.pop()()


def instruction_of(translator: Any) -> Any:
    """What is followed next, with ``opname``, ``argval``, ``offset`` and ``positions``; None at the end."""
    place = translator.instruction_pointer
    return None if place is None else translator.instructions[place]


def compile_id() -> str:
    """Dynamo's name of what it compiles: ``"0/0"`` is the first graph of function 0; empty where unknown."""
    from torch._guards import CompileContext

    try:
        found = CompileContext.current_compile_id()
    except (AttributeError, AssertionError):
        return ""
    return str(found) if found is not None else ""


def break_in(error: BaseException | None) -> BaseException | None:
    """The graph break that an error is, or that led to it; None if none did."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, exc.Unsupported | exc.UserError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def is_restart(error: BaseException) -> bool:
    """Whether Dynamo begins the function again for it."""
    return isinstance(error, exc.RestartAnalysis)


def is_of_a_break(error: BaseException) -> bool:
    """Whether it is the restart by which a graph break is placed."""
    return isinstance(error, getattr(exc, "SpeculationRestartAnalysis", ()))


def is_of_dynamo(error: BaseException) -> bool:
    """Whether Dynamo gives up on the function by it, rather than something going wrong."""
    return isinstance(error, exc.Unsupported | exc.UserError | exc.SkipFrame)


def _translator() -> Any:
    from torch._dynamo import symbolic_convert

    return getattr(symbolic_convert, "InstructionTranslatorBase", None)


def _tracer() -> Any:
    from torch._dynamo import output_graph

    return getattr(output_graph, "SubgraphTracer", None)


def _replace(owner: Any, name: str, made: Callable[[Any], Any]) -> Callable[[], None]:
    original = vars(owner)[name]
    setattr(owner, name, made(original))
    return lambda: setattr(owner, name, original)


def _tell(told: Follower, what: Callable[..., None], *arguments: Any) -> None:
    """Nothing that goes wrong in watching may reach Dynamo: it would take it for an error of the program."""
    try:
        what(*arguments)
    except Exception as error:
        told.fails(error)


def _watched_step(follower: Callable[[], Follower | None], original: Any) -> Any:
    @functools.wraps(original)
    def step(self: Any) -> bool:
        told = follower()
        if told is None:
            return bool(original(self))
        _tell(told, told.begins, self)
        try:
            goes_on = original(self)
        except BaseException as error:
            _tell(told, told.ends, self, error, False)
            raise
        _tell(told, told.ends, self, None, bool(goes_on))
        return bool(goes_on)

    return step


def _watched_node(follower: Callable[[], Follower | None], original: Any) -> Any:
    @functools.wraps(original)
    def create_node(self: Any, *args: Any, **kwargs: Any) -> Any:
        node = original(self, *args, **kwargs)
        if (told := follower()) is not None:
            _tell(told, told.made, node)
        return node

    return create_node
