"""Proofs that an integer that a kernel computes lies in a range: what :mod:`integer_ranges` claims, shown in
another way.

A value is taken apart into cases, each an index expression and what is known where the value is that: an
absolute value, for one, is its argument where that is not negative, else the opposite.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import torch

from nbcompile.compiler.kernel_ir.integer_ranges import LIMITS
from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.loop_ir.index import Atom, IndexExpr, index
from nbcompile.compiler.loop_ir.proofs import Facts, impossible, inside, outside, proves

Case = tuple[IndexExpr, Facts]
MOST_CASES = 32
FEW_CASES = 8
"""Of more it is asked whether they can be at all."""


class _Any(Atom):
    """What of an integer is not known: a number in ``[0, size)``."""

    __slots__ = ("size",)

    def __init__(self, value: Value, size: IndexExpr) -> None:
        self.size = size
        super().__init__(f"?{value.number}")


def _any(value: Value, size: IndexExpr) -> IndexExpr:
    return IndexExpr({(_Any(value, size),): 1})


def lies_within(value: Value, size: IndexExpr, facts: Facts = ()) -> bool:
    """Whether ``0 <= value < size`` wherever ``facts`` hold."""
    cases = cases_of(value, facts)
    return cases is not None and all(_holds(e, f) and _holds(size - 1 - e, f) for e, f in cases)


def cases_of(value: Value, facts: Facts = ()) -> list[Case] | None:
    """What an integer may be, and where; None if nothing is known of it."""
    if value.dtype not in LIMITS:
        return None
    found = _taken_apart(value, facts)
    if found and len(found) > FEW_CASES:
        found = [case for case in found if not impossible(case[1])] or found[:1]
    least, most = LIMITS[value.dtype]
    if (
        found
        and len(found) <= MOST_CASES
        and all(_holds(e - least, f) and _holds(most - e, f) for e, f in found)
    ):
        return found
    if value.dtype == torch.int64:
        return None
    return [(_any(value, index(most - least + 1)) + least, facts)]


def _holds(goal: IndexExpr, facts: Facts) -> bool:
    return proves(goal, facts) or impossible(facts)


def _taken_apart(value: Value, facts: Facts) -> list[Case] | None:
    if value.kind == "const":
        return [(index(int(value.literal)), facts)]
    if value.kind == "index":
        return [(value.place, facts)]
    if value.kind == "guard":
        sides = ((value.args[0], [inside(value.bounds)]), (value.args[1], outside(value.bounds)))
        return _joined(cases_of(arg, (*facts, *more)) for arg, known in sides for more in known)
    if value.op == "where":
        yes, no = _condition(value.args[0], facts)
        return _joined([cases_of(value.args[1], yes), cases_of(value.args[2], no)])
    if value.kind != "op" or value.dtype == torch.bool:
        return None
    if value.op == "remainder":  # whatever it is the remainder of
        divisors = cases_of(value.args[1], facts)
        if divisors is None or not all(_holds(each - 1, known) for each, known in divisors):
            return None
        return [(_any(value, each), known) for each, known in divisors]
    given = [cases_of(arg, facts) for arg in value.args]
    known = [cases for cases in given if cases is not None]
    if len(known) < len(given):
        return None
    combined = (
        _result(
            value, tuple(e for e, _ in chosen), tuple(dict.fromkeys(f for _, each in chosen for f in each))
        )
        for chosen in product(*known)
    )
    return _joined(combined)


def _joined(parts: Iterable[list[Case] | None]) -> list[Case] | None:
    """All cases of all parts; None if something is not known of one."""
    found: list[Case] = []
    for part in parts:
        if part is None:
            return None
        found += part
    return found


def _result(value: Value, args: tuple[IndexExpr, ...], facts: Facts) -> list[Case] | None:
    """What an operation makes of numbers that are ``args``."""
    first, second = args[0], args[-1]
    match value.op:
        case "cast" | "floor" | "ceil" | "trunc":
            return [(first, facts)]
        case "sign":
            return [(_any(value, index(3)) - 1, facts)]
        case "bitand" if proves(first, facts) and proves(second, facts):
            found = _any(value, first + 1)
            return [(found, (*facts, second - found))]
        case "bitor" | "bitxor" if proves(first, facts) and proves(second, facts):
            return [(_any(value, first + second + 1), facts)]
        case "neg":
            return [(-first, facts)]
        case "add":
            return [(first + second, facts)]
        case "sub":
            return [(first - second, facts)]
        case "mul":
            return [(first * second, facts)]
        case "abs":
            return [(first, (*facts, first)), (-first, (*facts, -first - 1))]
        case "maximum":
            return [(first, (*facts, first - second)), (second, (*facts, second - first))]
        case "minimum":
            return [(first, (*facts, second - first)), (second, (*facts, first - second))]
        case "floordiv" | "truncdiv" if proves(second - 1, facts) and proves(first, facts):
            return [(first // second, facts)]
    return None


def _condition(value: Value, facts: Facts) -> tuple[Facts, Facts]:
    """What is known where a condition holds, and where it does not."""
    if value.op not in ("lt", "le", "gt", "ge"):
        return facts, facts
    sides = [cases_of(arg, facts) for arg in value.args]
    if any(side is None or len(side) != 1 for side in sides):
        return facts, facts
    (left, _), (right, _) = (side[0] for side in sides if side)
    if value.op in ("gt", "le"):
        left, right = right, left
    below = right - left - 1  # left < right
    yes, no = (*facts, below), (*facts, -below - 1)
    return (yes, no) if value.op in ("lt", "gt") else (no, yes)
