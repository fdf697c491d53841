"""Proofs that an integer that a kernel computes lies in a range: what :mod:`value_ranges` claims, shown in
another way."""

from __future__ import annotations

from collections.abc import Callable

import torch

from nbcompile.codegen.values import Value
from nbcompile.loop_ir.index import ZERO, IndexExpr, index
from nbcompile.loop_ir.proofs import Facts, inside, outside, proves

_CONDITIONS: dict[str, Callable[[IndexExpr, IndexExpr], IndexExpr]] = {
    "lt": lambda a, b: b - a - 1,
    "le": lambda a, b: b - a,
    "gt": lambda a, b: a - b - 1,
    "ge": lambda a, b: a - b,
}


def lies_within(value: Value, size: IndexExpr, facts: Facts = ()) -> bool:
    """Whether ``0 <= value < size`` wherever ``facts`` hold."""
    return _bounded(value, ZERO, 1, facts) and _bounded(value, size - 1, -1, facts)


def _bounded(value: Value, bound: IndexExpr, sign: int, facts: Facts) -> bool:
    """Whether ``value >= bound`` (``sign`` 1) or ``value <= bound`` (-1)."""
    known = as_index(value, facts)
    if known is not None and proves((known - bound) * sign, facts):
        return True
    if value.kind == "guard":
        cases = [inside(value.bounds)], outside(value.bounds)
        return all(
            _bounded(arg, bound, sign, (*facts, *more))
            for arg, each in zip(value.args, cases, strict=True)
            for more in each
        )
    if value.op == "where":
        yes, no = _condition(value.args[0], facts)
        return _bounded(value.args[1], bound, sign, yes) and _bounded(value.args[2], bound, sign, no)
    if value.op in ("maximum", "minimum"):
        either = (value.op == "maximum") == (sign == 1)
        return (any if either else all)(_bounded(arg, bound, sign, facts) for arg in value.args)
    if value.op == "cast" and not value.args[0].dtype.is_floating_point:
        limits = _limits(value.dtype)
        fits = value.dtype.itemsize > value.args[0].dtype.itemsize or value.dtype == value.args[0].dtype
        fits = fits or all(_bounded(value.args[0], index(limits[n]), 1 - 2 * n, facts) for n in (0, 1))
        return fits and _bounded(value.args[0], bound, sign, facts)
    low, high = _span(value, facts)
    end = low if sign == 1 else high
    return end is not None and proves((end - bound) * sign, facts)


def _span(value: Value, facts: Facts) -> tuple[IndexExpr | None, IndexExpr | None]:
    """The least and the greatest number that an operation, or a type, can give."""
    if value.op == "remainder":
        divisor = as_index(value.args[1], facts)
        if divisor is not None and proves(divisor - 1, facts):
            return ZERO, divisor - 1
    if value.dtype == torch.bool or value.dtype.itemsize < 8:
        least, most = _limits(value.dtype)
        return index(least), index(most)
    return None, None


def as_index(value: Value, facts: Facts) -> IndexExpr | None:
    """An integer as an index expression, if it is computed from positions and numbers alone; None too where
    it might not fit its type."""
    if value.dtype.is_floating_point or value.dtype == torch.bool:
        return None
    made = _made(value, facts)
    if made is None or value.dtype == torch.int64:
        return made
    least, most = _limits(value.dtype)
    return made if proves(made - least, facts) and proves(most - made, facts) else None


def _made(value: Value, facts: Facts) -> IndexExpr | None:
    if value.kind == "const":
        return index(int(value.literal))
    if value.kind == "index":
        return value.place
    if value.kind != "op" or not 1 <= len(value.args) <= 2:
        return None
    parts = [as_index(arg, facts) for arg in value.args]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    first, second = known[0], known[-1]
    match value.op:
        case "cast":
            return first
        case "neg":
            return -first
        case "add":
            return first + second
        case "sub":
            return first - second
        case "mul":
            return first * second
        case "floordiv" | "truncdiv" | "remainder" | "fmod":
            if proves(second - 1, facts) and proves(first, facts):
                return first % second if value.op in ("remainder", "fmod") else first // second
    return None


def _condition(value: Value, facts: Facts) -> tuple[Facts, Facts]:
    """What is known where a condition holds, and where it does not."""
    make = _CONDITIONS.get(value.op)
    if make is not None and not value.args[0].dtype.is_floating_point:
        left, right = (as_index(arg, facts) for arg in value.args)
        if left is not None and right is not None:
            fact = make(left, right)
            return (*facts, fact), (*facts, -fact - 1)
    return facts, facts


def _limits(dtype: torch.dtype) -> tuple[int, int]:
    if dtype == torch.bool:
        return 0, 1
    info = torch.iinfo(dtype)
    return info.min, info.max
