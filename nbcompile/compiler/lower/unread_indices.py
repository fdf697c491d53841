"""Indices that pick from what is equal wherever they point: a dimension of extent 1, expanded, or filled with
one value. Nothing that a kernel reads depends on them, so it would not look at them, and one out of range
would go unnoticed, where eager raises IndexError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nbcompile.compiler.loop_ir.expr import Expr, Indirect, Load
from nbcompile.compiler.loop_ir.index import ZERO, Axis, Index, index
from nbcompile.compiler.loop_ir.nodes import Loop, View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.errors import LoweringError

_DEEPEST = 16  # loops that read one another; of longer chains each is taken to depend on its indices


def picked(b: Builder, x: View, where: Sequence[Index]) -> Expr:
    """Element ``where`` of ``x``. LoweringError on a CPU, where indices are checked, if nothing that is read
    depends on one of them."""
    element = b.element(x, where)
    gathers = {atom for place in where for atom in index(place).atoms() if isinstance(atom, Indirect)}
    if gathers and not b.options.chip.is_gpu:
        makers = {out.name: item for item in b.statements if isinstance(item, Loop) for out in item.outputs}
        places = x.at(tuple(ZERO if n.constant == 1 else at for n, at in zip(x.shape, where, strict=True)))
        read = {atom for n in _dimensions(x, makers) for atom in places[n].atoms()}
        if gathers - read:
            raise LoweringError("what its indices pick is equal everywhere, and nobody would check them")
    return element


def _dimensions(x: View, makers: Mapping[str, Loop]) -> set[int]:
    """The dimensions of the buffer of ``x`` along which its elements may differ."""
    maker = makers.get(x.buffer.name)
    if maker is not None:
        return _of_loop(maker, makers, _DEEPEST)
    return {n for n, stride in enumerate(x.buffer.strides) if stride != ZERO}


def _of_loop(loop: Loop, makers: Mapping[str, Loop], deep: int) -> set[int]:
    if loop.kind != "pointwise" or not deep:
        return set(range(len(loop.kept)))
    axes = _axes(loop.body, makers, deep - 1)
    return {n for n, axis in enumerate(loop.kept) if axis in axes}


def _axes(body: Expr, makers: Mapping[str, Loop], deep: int) -> set[Axis]:
    found: set[Axis] = set()
    for node in body.walk():
        if isinstance(node, Load):
            maker = makers.get(node.buffer)
            read = range(len(node.index)) if maker is None else _of_loop(maker, makers, deep)
            found |= {axis for n in read for axis in node.index[n].axes()}
        else:
            found |= {axis for item in node.indices() for axis in item.axes()}
    return found
