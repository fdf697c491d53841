"""Ten wrong answers to an exercise, drawn near the right one: a value off by a little, a key left out, two
values exchanged, one element of a result changed; among them one that is no answer and one that is another
exercise's. The same ones each time, by the exercise's name."""

from __future__ import annotations

import functools
import math
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tests.workshop.mutations import STILL_RIGHT, Answer, mutations

TOLERANCE = {
    "eager.overhead": 2.0, "eager.predict": 3.0, "fusion.speedup": 2.0, "worth.break_even": 2.0,
    "eager.bytes": 1.02, "reductions.bytes": 1.02, "first.read": 1.02,
    "tour.bytes": 1.05, "own.saved": 1.05, "modes.copy": 1.06,
}  # fmt: skip
"""By what factor a number may be off, where an exercise allows for it in its text."""
ALSO_RIGHT = {
    "first.lines": r"'.*': (exchanged|once more).*",  # lines in any order
    "tour.write": "result: .*",  # any function of such a shape
    "capture.recompiles": r"\[\d\]: (.*element.*|shorter)|exchanged.*|once more.*",  # any three recompiles
    "training.accumulate": "result: .*",  # what it leaves behind is judged
    "worth.lengths": "result: .* more|argument: .*",  # any size that several lengths share
    "shapes.serve": "result: last .*",  # padding
    "eager.predict": "argument: .*",  # one operation less is within the factor
    "export.dims": r".*: letter.*",  # names are the reader's
}
"""Changes that leave an answer right, by exercise, beside those of ``STILL_RIGHT``: a pattern."""
NO_ANSWERS: list[Answer] = [
    ("nothing", None), ("the placeholder", ...), ("{}", {}), ("[]", []), ("''", ""), ("nan", math.nan),
]  # fmt: skip
ELSEWHERE: dict[str, Any] = {
    "autograd.writes": {"fx": 5, "aten": 2},
    "autograd.recomputed": {"relu", "div", "sin"},
    "fusion.speedup": 5.5,
    "loops.order": {"x + 1": "ij", "x.t() * 2": "ji", "x.permute(2, 0, 1) - 1": "jki"},
    "worth.bottleneck": "sort",
    "modes.replay": [[3, 3], [3, 3], [7, 7]],
    "codegen.offset": lambda i, j: 152 + 3 * i + 30 * j,
    "eager.intensity": lambda m, k, n: 2 * m * k * n / (4 * (m * k + k * n + m * n)),
}
"""Answers that are right of one exercise each."""


def drawn(name: str, right: Any, count: int = 10) -> list[Answer]:
    """So many wrong answers to the exercise ``name``, each with what is wrong with it."""
    chance = random.Random(name)
    other = chance.choice([each for each in ELSEWHERE if _foreign(name, each, right)])
    found = [chance.choice(NO_ANSWERS), (f"the answer to {other}", ELSEWHERE[other])]
    seen: set[str] = set()
    for _ in range(300):
        if len(found) == count:
            break
        wrong, answer = near(right, chance, TOLERANCE.get(name, 1.0))
        kept = any(re.fullmatch(table.get(name, "(?!)"), wrong) for table in (STILL_RIGHT, ALSO_RIGHT))
        if wrong not in seen and not kept:
            seen.add(wrong)
            found.append((wrong, answer))
    # Near a mapping of one truth value there are not ten.
    further = [each for each in ELSEWHERE if each != other and _foreign(name, each, right)]
    found += [(f"the answer to {each}", ELSEWHERE[each]) for each in further[: count - len(found)]]
    assert len(found) == count, f"only {len(found)} wrong answers near {right!r}"
    chance.shuffle(found)
    return found


def _foreign(name: str, other: str, right: Any) -> bool:
    both = isinstance(right, int | float) and isinstance(ELSEWHERE[other], int | float)
    return name != other and not (both and 0.2 < ELSEWHERE[other] / (right or 1) < 5)


def near(right: Any, chance: random.Random, tolerance: float = 1.0) -> Answer:
    """A value a little beside ``right``, and in words what was changed."""
    if isinstance(right, bool):
        return "the other", not right
    if isinstance(right, int | float):
        return _number(right, chance, tolerance)
    if isinstance(right, str) and "\n" not in right.strip():
        return _word(right, chance)
    if isinstance(right, str):
        return _text(right, chance)
    if isinstance(right, Mapping):
        return _mapping(right, chance, tolerance)
    if isinstance(right, list | tuple | set | frozenset):
        return _collection(right, chance, tolerance)
    if isinstance(right, torch.Tensor):
        return _tensor(right, chance)
    if right is None:
        return "a sentence", "because"
    if callable(right) and not isinstance(right, type) and type(right).__name__ != "JITFunction":
        return _function(right, chance, tolerance)
    return chance.choice(list(mutations(right)))


def _number(right: float, chance: random.Random, tolerance: float) -> Answer:
    if isinstance(right, int) and tolerance == 1.0:
        step, more = chance.randint(1, 3), chance.random() < 0.5
        return f"{step} {'more' if more else 'less'}", right + (step if more else -step)
    # The right answer may itself be off by the tolerance, to the same side.
    factor = 1.05 * max(tolerance, 1.06) ** 2 * chance.uniform(1, 2)
    return (f"{factor:.3f} times", right * factor) if chance.random() < 0.5 else (
        f"{1 / factor:.3f} times", right / factor
    )  # fmt: skip


def _word(right: str, chance: random.Random) -> Answer:
    place = chance.randrange(len(right))
    if chance.random() < 0.5:
        return f"letter {place} left out", right[:place] + right[place + 1 :]
    return f"letter {place} twice", right[:place] + right[place] + right[place:]


def _text(right: str, chance: random.Random) -> Answer:
    """A program with a letter of a name left out, so that it is another one; or a mutation."""
    if chance.random() < 0.5:
        return chance.choice([each for each in mutations(right) if isinstance(each[1], str)])
    # Names of one letter would leave a gap, and words in a comment mean nothing.
    names = list(re.finditer(r"(?m)^(?!.*//)(?!.*#).*?\b([a-z_]{3,})\b", right))
    start, end = chance.choice(names).span(1)
    place = chance.randrange(start, end)
    return f"{right[start:end]!r} without a letter at {place}", right[:place] + right[place + 1 :]


def _mapping(right: Mapping[Any, Any], chance: random.Random, tolerance: float) -> Answer:
    key = chance.choice(list(right))
    others = [other for other in right if _differ(right[other], right[key])]
    kind = chance.choice(("value", "value", "value", "another's", "another's", "without", "more", "renamed"))
    if kind == "another's" and others:
        other = chance.choice(others)
        if chance.random() < 0.5:
            return f"{key!r} as {other!r}", {**right, key: right[other]}
        return f"exchanged {key!r} and {other!r}", {**right, key: right[other], other: right[key]}
    if kind == "without":
        return f"without {key!r}", {each: value for each, value in right.items() if each != key}
    if kind == "more":
        return "a key more", {**right, "more": right[key]}
    if kind == "renamed":
        name = f"{key}_" if isinstance(key, str) else f"{key}"
        return f"{key!r} renamed", {name if each == key else each: value for each, value in right.items()}
    blank = chance.random() < 0.15
    wrong, value = chance.choice(NO_ANSWERS[:2]) if blank else near(right[key], chance, tolerance)
    return f"{key!r}: {wrong}", {**right, key: value}


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, int | float | str | tuple | list | set | frozenset):
        return type(one) is type(other) and bool(one != other)
    return callable(one) and callable(other) and one is not other


def _collection(right: Any, chance: random.Random, tolerance: float) -> Answer:
    kind, items = type(right), list(right) if isinstance(right, list | tuple) else sorted(right)
    if not items:
        return "one item", kind(["more"])
    place, other = chance.randrange(len(items)), chance.randrange(len(items))
    what = chance.choice(("item", "item", "item", "without", "more", "exchanged"))
    if what == "without":
        return f"without [{place}]", kind([*items[:place], *items[place + 1 :]])
    if what == "exchanged" and isinstance(right, list | tuple) and _differ(items[place], items[other]):
        both = {place: items[other], other: items[place]}
        return f"exchanged [{place}] and [{other}]", kind([both.get(n, each) for n, each in enumerate(items)])
    if what == "more" and isinstance(right, list | tuple):
        return f"once more [{place}]", kind([*items[: place + 1], *items[place:]])
    blank = chance.random() < 0.15
    wrong, item = ("nothing", None) if blank else near(items[place], chance, tolerance)
    return f"[{place}]: {wrong}", kind([*items[:place], item, *items[place + 1 :]])


def _tensor(right: torch.Tensor, chance: random.Random) -> Answer:
    kind = chance.choice(("first", "last", "nan", "shorter", "dtype"))
    if kind == "dtype":
        other = torch.float64 if right.dtype != torch.float64 else torch.float32
        return "another dtype", right.to(other)
    if kind == "shorter" and right.dim():
        return "shorter", right[:-1]
    place = -1 if kind == "last" else 0
    what = f"the {'last' if place else 'first'} element {'nan' if kind == 'nan' else 'changed'}"
    return what, _element(right, place, math.nan if kind == "nan" else 1)


def _function(right: Callable[..., Any], chance: random.Random, tolerance: float) -> Answer:
    kind = chance.choice(("result", "result", "result", "result", "argument", "returned", "dots", "other"))
    if kind == "other":
        return chance.choice(list(mutations(right)))
    if kind == "dots":
        return "returns ...", functools.wraps(right)(lambda *given, **named: ...)
    place = chance.choice((0, -1))
    word = "last" if place else "first"
    if kind == "returned":
        return f"returns its {word} argument", functools.wraps(right)(lambda *given, **named: given[place])
    if kind == "argument":
        return f"argument: {word} less", functools.wraps(right)(lambda *given: right(*_less(given, place)))
    how = chance.choice(("more", "less", "nan"))

    @functools.wraps(right)
    def beside(*given: Any, **named: Any) -> Any:
        return _beside(right(*given, **named), how, place, tolerance)

    return f"result: {word} {how}", beside


def _less(given: tuple[Any, ...], place: int) -> list[Any]:
    """The arguments, a whole number one less and a list an item shorter: of what there is first."""
    for n, each in enumerate(given):
        if type(each) is int:
            return [*given[:n], each - 1, *given[n + 1 :]]
        if isinstance(each, list | tuple) and each:
            return [*given[:n], each[1:] if place == 0 else each[:-1], *given[n + 1 :]]
    raise ValueError("there is nothing to take away")


def _beside(value: Any, how: str, place: int, tolerance: float) -> Any:
    """What a function returned, one number in it changed. A sentence becomes None, and None one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        factor = 1.05 * tolerance**2 * 1.2
        changed = value + (1 if how == "more" else -1)
        if tolerance > 1:
            changed = value * factor if how == "more" else value / factor
        return math.nan if how == "nan" else changed
    if isinstance(value, list | tuple) and value:
        items = list(value)
        items[place] = _beside(items[place], how, place, tolerance)
        return type(value)(items)
    if isinstance(value, Mapping) and value:
        key = list(value)[place]
        return {**value, key: _beside(value[key], how, place, tolerance)}
    if isinstance(value, torch.Tensor):
        return _element(value, place, {"more": 1, "less": -1, "nan": math.nan}[how])
    return "because" if value is None else None


def _element(right: torch.Tensor, place: int, by: float) -> torch.Tensor:
    flat = right.reshape(-1)
    among = torch.arange(flat.numel(), device=flat.device) == place % flat.numel()
    return torch.where(among, ~flat if right.dtype is torch.bool else flat + by, flat).reshape(right.shape)
