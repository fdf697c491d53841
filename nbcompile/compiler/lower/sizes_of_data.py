"""Sizes that depend on data, and what a graph does with them: the call that finds one, the checks of it.

torch calls such a size unbacked (``u0``). It is an extent of what a call returns (``nonzero``, a choice by a
mask), or the number that ``item`` reads; ``torch._check`` and torch itself put comparisons of it into the
graph, which raise an error when it runs.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from nbcompile.compiler.loop_ir.index import IndexExpr
from nbcompile.compiler.loop_ir.known_sizes import SizeComparison
from nbcompile.compiler.loop_ir.nodes import (
    REPEATED_DRAW,
    SAVED_DRAW,
    LibraryCall,
    Statement,
    only_size,
)
from nbcompile.compiler.loop_ir.proofs import well_defined
from nbcompile.compiler.lower.builder import Builder
from nbcompile.errors import LoweringError

aten = torch.ops.aten
_COMPARISONS: dict[Any, str] = {
    operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">",
    operator.ge: ">=",
}  # fmt: skip


def called_as_it_is(target: Any, fake: Any) -> str:
    """Why an operator that no loop could stand for is called; empty for any other."""
    if getattr(target, "__name__", "") == "with_effects":
        # torch keeps calls with side effects (the error checks of linalg) in order by threading a token
        return "torch orders its effects"
    if target is aten._assert_scalar.default:
        return "a check of sizes that the graph makes"
    if isinstance(target, torch._ops.HigherOrderOperator) and fake is not None:
        repeated = str(target) in (SAVED_DRAW, REPEATED_DRAW)
        return "a draw that backward repeats" if repeated else "it calls graphs, each compiled by itself"
    return ""


def number_of(builder: Builder, target: Any, args: Any, fake: Any) -> Any:
    """A symbolic number or a comparison of two, as the graph computes it from ``args``."""
    if isinstance(fake, torch.SymBool) and target in _COMPARISONS:
        left, right = map(builder.size, args)
        return SizeComparison(left, _COMPARISONS[target], right)
    if target is torch.sym_not and isinstance(args[0], SizeComparison):
        return args[0].negated()
    number = builder.number(fake)
    if target is aten._local_scalar_dense.default and isinstance(number, IndexExpr):
        _ask(builder, target, args, number)
    return number


def _ask(builder: Builder, target: Any, args: Sequence[Any], number: IndexExpr) -> None:
    """Call an operator that returns ``number``, which depends on data."""
    size = only_size(number)
    if size is None:
        raise LoweringError(f"{target} returns {number}, which is more than one size")
    builder.call(target, args, result=(), reason="a number that depends on data")
    call = builder.statements.pop()
    assert isinstance(call, LibraryCall)
    builder.statements.append(replace(call, number=size.text))


def checked(statements: Sequence[Statement]) -> tuple[IndexExpr, ...]:
    """What the checks of a program keep from being negative."""
    calls = [item for item in statements if isinstance(item, LibraryCall)]
    made = [arg for item in calls for arg in item.args if isinstance(arg, SizeComparison)]
    return well_defined(fact for item in made for fact in item.facts() if fact.constant is None)
