"""Gathers by an index computed of positions alone: ``x[(arange(n) + 1) % n]`` is read by a formula."""

from __future__ import annotations

from functools import reduce
from operator import add, mul, sub

import torch

from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.loop_ir.index import IndexExpr, floordiv, index, mod
from nbcompile.compiler.loop_ir.proofs import proves

_PLAIN = {"add": add, "sub": sub, "mul": mul}


def place_of(value: Value, size: IndexExpr) -> IndexExpr | None:
    """The index that ``value`` is as an expression of axes and sizes, if it is surely in ``[0, size)``; None
    if it depends on data, or that cannot be shown."""
    found = _expression(value)
    if found is None or not (proves(found) and proves(size - 1 - found)):
        return None
    return found


def _expression(value: Value) -> IndexExpr | None:
    """The integer that ``value`` is; None where its type might not hold what is computed."""
    if value.dtype not in (torch.int64, torch.int32):
        return None
    found = _computed(value)
    if found is None or value.dtype == torch.int64:
        return found
    kind = torch.iinfo(value.dtype)  # what wraps around is another number in a wider type
    return found if proves(kind.max - found) and proves(found - kind.min) else None


def _computed(value: Value) -> IndexExpr | None:
    if value.kind == "const":
        return index(int(value.literal))
    if value.kind == "index":
        return value.place
    if value.kind != "op" or value.op not in (*_PLAIN, "cast", "neg", "remainder", "floordiv"):
        return None
    given = [_expression(item) for item in value.args]
    parts = [item for item in given if item is not None]
    if len(parts) < len(given):
        return None
    if value.op in _PLAIN:
        return reduce(_PLAIN[value.op], parts)
    if value.op == "cast":
        return parts[0]
    if value.op == "neg":
        return -parts[0]
    divisor = parts[1].constant
    if divisor is None or divisor <= 0:
        return None
    # what is added or multiplied beyond int64 comes back modulo a power of two, a quotient of it does not
    if not proves(torch.iinfo(torch.int64).max - divisor - parts[0]):
        return None
    # C's quotients are Python's of what is not negative
    if proves(parts[0]):
        return mod(parts[0], parts[1]) if value.op == "remainder" else floordiv(parts[0], parts[1])
    if value.op == "remainder" and proves(parts[0] + divisor):
        return mod(parts[0] + divisor, parts[1])
    return None
