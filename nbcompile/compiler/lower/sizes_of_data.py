"""Sizes that depend on data, and what a graph does with them: the call that finds one, the checks of it.

torch calls such a size unbacked (``u0``). It is an extent of what a call returns (``nonzero``, a choice by a
mask), or the number that ``item`` reads; ``torch._check`` and torch itself put comparisons of it into the
graph, which raise an error when it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from nbcompile.compiler.loop_ir.index import IndexExpr
from nbcompile.compiler.loop_ir.known_sizes import SIGNS, SizeComparison, sizes_given, sizes_in
from nbcompile.compiler.loop_ir.nodes import (
    REPEATED_DRAW,
    SAVED_DRAW,
    LibraryCall,
    LoopProgram,
    only_size,
)
from nbcompile.compiler.loop_ir.proofs import well_defined
from nbcompile.compiler.lower.builder import Builder
from nbcompile.errors import LoweringError

aten = torch.ops.aten
_COMPARISONS: dict[Any, str] = {function: sign for sign, function in SIGNS.items()}


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


def checked(program: LoopProgram) -> tuple[IndexExpr, ...]:
    """What the checks of a program keep from being negative: those of a size that a call finds, before
    anything else needs it, for only then do they run before whatever relies on them."""
    given = sizes_given(program)
    found: set[str] = set()
    used: set[str] = set()
    facts: list[IndexExpr] = []
    for item in program.statements:
        needed = sizes_in(item) & found
        if isinstance(item, LibraryCall):
            found |= item.tells() - given
            if not any(item.outputs):
                if needed and not needed & used:
                    made = (arg for arg in item.args if isinstance(arg, SizeComparison))
                    facts += [fact for each in made for fact in each.facts() if fact.constant is None]
                continue
        used |= needed
    return well_defined(facts)
