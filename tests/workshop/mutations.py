"""Wrong answers to an exercise: those of another kind, and the right answer with something changed."""

from __future__ import annotations

import functools
import itertools
import linecache
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import nn

Answer = tuple[str, Any]
"""What is wrong with it, and the answer."""

STILL_RIGHT = {
    "first.lines": "'.*': (backwards|the last once more)",  # lines in any order
    "tour.write": "returns twice that|another type",  # any function of such a shape
    "capture.recompiles": r"the last once more|\[\d\] (one more|shorter)",  # any three recompiles
    "eager.predict": "returns twice that",  # a factor of 3 is allowed
    "training.accumulate": "returns nothing|another type|a list of it|an object|right the first time only",
    "training.schedule": "right the first time only",  # it is asked once
    "own.lowering": "right the first time only",  # it is asked once
    "own.backend": "right the first time only",
    "build.rule": "right the first time only",  # the first time is the one to refuse
}
"""Mutations of a solution that are right too, by exercise: a pattern of what is wrong with them elsewhere."""


def generic() -> list[Answer]:
    """Answers that are right of no exercise."""
    return [
        ("{}", {}),
        ("[]", []),
        ("0", 0),
        ("-1", -1),
        ("nan", math.nan),
        ("True", True),
        ("'x'", "x"),
        ("None", None),
        ("a function without parameters", lambda: None),
        ("a function that returns nothing", lambda *given, **named: None),
        ("a function that returns 'x'", lambda *given, **named: "x"),
        ("a function that returns what it is given", lambda *given, **named: given[0]),
        ("object()", object()),
        ("a class", type("Nothing", (), {})),
        ("zeros", torch.zeros(1)),
        ("{'a': 1}", {"a": 1}),
        ("[1, None]", [1, None]),
    ]


def mutations(right: Any) -> Iterator[Answer]:
    """Each a small change of the right answer. None equals it."""
    for wrong, answer in _changed(right):
        if not _same(answer, right):
            yield wrong, answer


def _same(one: Any, other: Any) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except (RuntimeError, TypeError, ValueError):  # tensors of several elements
        return False


def _changed(right: Any) -> Iterator[Answer]:
    if isinstance(right, bool):
        yield "the other", not right
    elif isinstance(right, int):
        step = max(1, abs(right) // 10)  # bytes may be off by two in a hundred
        yield from (("more", right + step), ("less", right - step), ("negative", -right))
        yield from (
            ("nan", math.nan),
            ("a truth value", bool(right)),
            ("text", f"{right}"),
            ("nothing", None),
        )
    elif isinstance(right, float):
        yield from (
            ("ten times", right * 10),
            ("a tenth", right / 10),
            ("negative", -right),
            ("nan", math.nan),
        )
        yield from (("infinite", math.inf), ("text", f"{right}"), ("nothing", None))
    elif isinstance(right, str):
        yield from _of_text(right)
    elif isinstance(right, Mapping):
        yield from _of_mapping(right)
    elif isinstance(right, list | tuple | set | frozenset):
        yield from _of_collection(right)
    elif isinstance(right, torch.Tensor):
        yield from (("one more", right + 1), ("float64", right.double()), ("shorter", right[:-1]))
        yield from (("a list", right.tolist()), ("nothing", None))
    elif isinstance(right, type):
        yield from _of_module(right)
    elif type(right).__name__ == "JITFunction":
        yield from _of_kernel(right)
    else:
        assert callable(right), f"no mutation of {right!r}"
        yield from _of_function(right)


def _of_text(right: str) -> Iterator[Answer]:
    yield from (("empty", ""), ("backwards", right[::-1]), ("nothing", None), ("a number", 3))
    lines = right.splitlines()
    if len(lines) < 3:
        yield "a letter more", right + "x"
        return
    for n, line in enumerate(lines):
        if "=" in line and "for" not in line and "float *" not in line:
            yield f"without line {n + 1}", "\n".join([*lines[:n], *lines[n + 1 :]])
    for old, new in (("1000", "999"), (" * ", " + "), ("1000", "1016")):
        if old in right:
            yield f"{new.strip()} for {old.strip()}", right.replace(old, new)


def _of_mapping(right: Mapping[Any, Any]) -> Iterator[Answer]:
    for n, (key, value) in enumerate(right.items()):
        yield f"without {key!r}", {name: each for name, each in right.items() if name != key}
        for wrong, changed in _some(value, n):
            yield f"{key!r}: {wrong}", {**right, key: changed}
    values = list(right.values())
    yield "moved on by one", dict(zip(right, [*values[1:], *values[:1]], strict=True))
    yield "a list of the values", values
    yield "a list of the keys", list(right)


def _some(value: Any, place: int) -> Iterator[Answer]:
    """Changes of one of several values: of the first all, of each other one, another one each time."""
    found = [(wrong, changed) for wrong, changed in _changed(value) if not _same(changed, value)]
    yield from found if place == 0 else found[place % len(found) :][:1]


def _of_collection(right: Collection[Any]) -> Iterator[Answer]:
    kind, items = type(right), list(right)
    yield from (
        ("empty", kind()),
        ("one left out", kind(items[:-1])),
        ("text", str(right)),
        ("a number", len(right)),
    )
    if kind in (list, tuple):
        yield "backwards", kind(items[::-1])
        yield "the last once more", kind([*items, *items[-1:]])
        for n, item in enumerate(items):
            for wrong, each in _some(item, n):
                yield f"[{n}] {wrong}", kind([*items[:n], each, *items[n + 1 :]])
    else:
        yield "one more", kind([*items, "x"])
        yield "a mapping", dict.fromkeys(items, 1)


# Functions -----------------------------------------------------------------------------------------------


def _twice(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_twice(each) for each in value)
    if isinstance(value, Mapping):
        return {name: _twice(each) for name, each in value.items()}
    if callable(value) and not isinstance(value, torch.Tensor | type):
        return _then(value, _twice)
    return value * 2 if isinstance(value, torch.Tensor | int | float) else _raises()


def _double(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_double(each) for each in value)
    if isinstance(value, str):
        return value.encode()
    return value.bool() if isinstance(value, torch.Tensor) else f"{value}"


def _raises(*given: Any, **named: Any) -> Any:
    raise ValueError("not today")


def _then(function: Callable[..., Any], then: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def changed(*given: Any, **named: Any) -> Any:
        return then(function(*given, **named))

    return changed


def _of_function(right: Callable[..., Any]) -> Iterator[Answer]:
    yield "raises", functools.wraps(right)(_raises)
    yield "raises in the end", _then(right, _raises)
    yield "returns nothing", _then(right, lambda value: None)
    yield "returns twice that", _then(right, _twice)
    yield "another type", _then(right, _double)
    yield "a list of it", _then(right, lambda value: [value])
    yield "an object", _then(right, lambda value: object())
    yield "one parameter more", functools.wraps(right)(lambda one, *rest: right(*rest))
    calls = itertools.count()
    yield "right the first time only", _then(right, lambda value: value if next(calls) < 1 else None)


def breaking(right: Callable[..., Any]) -> Callable[..., Any]:
    """The same numbers in more than one graph."""

    def broken(*given: Any) -> Any:
        torch._dynamo.graph_break()
        found = right(*given)
        torch._dynamo.graph_break()
        return found * 1

    return broken


def twice_called(right: Callable[..., Any]) -> Callable[..., Any]:
    """For functions that leave something behind."""

    def twice(*given: Any) -> Any:
        right(*given)
        return right(*given)

    return twice


def _of_module(right: type[nn.Module]) -> Iterator[Answer]:
    def forward(then: Callable[[Any], Any]) -> type[nn.Module]:
        return type("Changed", (right,), {"forward": lambda self, x: then(right.forward(self, x))})

    yield "an instance", right()
    yield "what it inherits from", right.__mro__[1]
    yield "without parameters", type("Empty", (right,), {"__init__": lambda self: nn.Module.__init__(self)})
    yield "cannot be made", type("Raises", (right,), {"__init__": _raises})
    yield "raises", forward(_raises)
    yield "twice that", forward(_twice)
    yield "another type", forward(_double)
    yield "a list", forward(lambda value: [value])
    yield "nothing", forward(lambda value: None)


_numbers = itertools.count()


def _of_kernel(right: Any) -> Iterator[Answer]:
    """A Triton kernel with its text changed."""
    text = right.src
    for old, new in (
        ("mask=mask", "mask=None"), ("at < ", "at <= "), ("tl.load(x", "tl.load(out"), ("out, ", ""),
        ("tl.arange(0, BLOCK)", "tl.arange(0, 100)"), ("tl.program_id(0)", "0"), ("mask = at", "other = at"),
    ):  # fmt: skip
        if old in text:
            yield f"{new} for {old}", _kernel(text.replace(old, new))
    lines = text.rstrip().splitlines()
    yield "nothing stored", _kernel("\n".join([*lines[:-1], "    pass"]))
    yield "no kernel of Triton's", right.fn


def _kernel(text: str) -> Any:
    import triton
    import triton.language as tl

    text = f"@triton.jit\n{text}"
    file = f"<mutation {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"triton": triton, "tl": tl}
    exec(compile(text, file, "exec"), names)
    return next(value for value in names.values() if type(value).__name__ == "JITFunction")
