"""Sizes that depend on data, and what a graph does with them: the call that finds one, the checks of it.

torch calls such a size unbacked (``u0``). It is an extent of what a call returns (``nonzero``, a choice by a
mask), or the number that ``item`` reads; ``torch._check`` and torch itself put comparisons of it into the
graph, which raise an error when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from nbcompile.compiler.loop_ir.computed_sizes import PythonNumber, only_size, python_text
from nbcompile.compiler.loop_ir.expr import SIGNS, SizeComparison, SizeNumber
from nbcompile.compiler.loop_ir.index import IndexExpr
from nbcompile.compiler.loop_ir.known_sizes import sizes_given, sizes_in
from nbcompile.compiler.loop_ir.nodes import (
    REPEATED_DRAW,
    SAVED_DRAW,
    LibraryCall,
    LoopProgram,
    View,
)
from nbcompile.compiler.loop_ir.proofs import proves, well_defined
from nbcompile.compiler.lower.builder import Builder
from nbcompile.errors import LoweringError, SymbolicSizeError

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
    if isinstance(fake, torch.SymBool) and target in _COMPARISONS and _are_sizes(args):
        left, right = map(builder.size, args)
        return SizeComparison(left, _COMPARISONS[target], right)
    if target is torch.sym_not and isinstance(args[0], SizeComparison):
        return args[0].negated()
    number = _as_number(builder, fake)
    if target is aten._local_scalar_dense.default and isinstance(number, IndexExpr | PythonNumber):
        _ask(builder, target, args, number, truth=isinstance(fake, torch.SymBool))
    return number


def _are_sizes(args: Sequence[Any]) -> bool:
    return all(isinstance(item, int | torch.SymInt | IndexExpr) for item in args)


def _as_number(builder: Builder, fake: Any) -> IndexExpr | SizeNumber | PythonNumber:
    """A symbolic number as kernels compute it, else as Python does before what needs it is called."""
    try:
        return builder.number(fake)
    except SymbolicSizeError:
        return builder.sizes.python(fake.node.expr, fake.node.shape_env)


def _ask(
    builder: Builder, target: Any, args: Sequence[Any], number: IndexExpr | PythonNumber, *, truth: bool
) -> None:
    """Call an operator that returns ``number``, which depends on data; ``truth``: whether something holds."""
    if isinstance(number, PythonNumber):
        # a bool is u0 == 1, and Python's True is 1
        told = len(number.needs) == 1 and not number.parts
        name = next(iter(number.needs)) if told and (truth or number.formula in number.needs) else ""
    else:
        size = only_size(number)
        name = size.text if size is not None else ""
    if not name:
        raise LoweringError(f"{target} returns {number}, which is more than one size")
    builder.call(target, args, result=(), reason="a number that depends on data")
    call = builder.statements.pop()
    assert isinstance(call, LibraryCall)
    builder.statements.append(replace(call, number=name))


SLICE_END = 2**63 - 1
"""What torch writes for the end of a slice that has none."""


def clipped(b: Builder, bound: Any, extent: IndexExpr) -> IndexExpr:
    """A bound of a slice, as Python takes it: from the end if it is negative, and within ``extent``."""
    at = extent if bound is None else b.size(bound)
    if at.constant is not None and at.constant >= SLICE_END:
        return extent
    facts = b.sizes.facts()
    if proves(at, facts) and proves(extent - at, facts):
        return at
    text, end = python_text(at), python_text(extent)
    formula = f"max(0, min({text} if {text} >= 0 else {text} + {end}, {end}))"
    hint = at.hint() if at.hint() >= 0 else at.hint() + extent.hint()
    return b.sizes.within(formula, (at, extent), extent, hint)


def tell_place(builder: Builder, node: fx.Node, values: Mapping[fx.Node, Any]) -> None:
    """Where in its storage a view begins, if that is a size of its own: a bound that depends on data made
    it."""
    fake, source = node.meta.get("val"), node.args[0] if node.args else None
    if not isinstance(fake, torch.Tensor) or not isinstance(source, fx.Node):
        return
    if not builder.sizes.is_untold(fake.storage_offset()):
        return
    base, made = values.get(source), values[node]
    given = source.meta["val"]
    before = builder.size(given.storage_offset())
    if isinstance(base, View) and isinstance(made, View) and base.buffer == made.buffer:
        whole, part = base.strided(), made.strided()
        if whole is not None and part is not None:
            builder.sizes.tell(fake.storage_offset(), before + part[1] - whole[1])
    elif node.target in (aten.slice.Tensor, aten.select.int):
        dim: Any
        dim, at = (values[each] if isinstance(each, fx.Node) else each for each in node.args[1:3])
        start = clipped(builder, at, builder.size(given.shape[dim]))
        builder.sizes.tell(fake.storage_offset(), before + start * builder.sizes.strides(given)[dim])


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
