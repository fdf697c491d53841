"""Indices that pick from what is equal wherever they point: a dimension of extent 1, expanded, or filled with
one value. Nothing that a kernel reads depends on them, so it would not look at them, and one out of range
would go unnoticed, where eager raises IndexError."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nbcompile.compiler.loop_ir.expr import Expr, Indirect, Load
from nbcompile.compiler.loop_ir.index import ZERO, Axis, Index, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Loop, View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.errors import LoweringError

_UNCHECKED = "what its indices pick is equal everywhere, and nobody would check them"
_DEEPEST = 16  # loops that read one another; of longer chains each is taken to depend on its indices


def picked(b: Builder, x: View, where: Sequence[Index]) -> Expr:
    """Element ``where`` of ``x``. LoweringError on a CPU, where indices are checked, if nothing that is read
    depends on one of them."""
    element = b.element(x, where)
    gathers = _gathers(where)
    if gathers and not b.options.chip.is_gpu:
        load = next(node for node in element.walk() if isinstance(node, Load))
        dimensions = {n for n, stride in enumerate(x.buffer.strides) if stride != ZERO}
        if x.buffer.role == "temporary":
            dimensions = _Differing(b).of(x.buffer.name, len(load.index), _DEEPEST)
        if gathers - {atom for n in dimensions for atom in load.index[n].atoms()}:
            raise LoweringError(_UNCHECKED)
    return element


def only(b: Builder, x: View, where: IndexExpr) -> Expr:
    """The element of ``x``, a 0-d tensor, which eager takes for one of one element: ``where`` is its index.
    LoweringError as from :func:`picked`."""
    require_checked(b, where)
    return b.element(x, ())


def require_checked(b: Builder, where: IndexExpr) -> None:
    """LoweringError on a CPU if ``where``, of which no kernel will read anything, depends on data."""
    if _gathers([where]) and not b.options.chip.is_gpu:
        raise LoweringError(_UNCHECKED)


def _gathers(where: Sequence[Index]) -> set[Indirect]:
    return {atom for place in where for atom in index(place).atoms() if isinstance(atom, Indirect)}


@dataclass
class _Differing:
    """The dimensions of tensors along which their elements may differ."""

    builder: Builder
    known: dict[str, set[int]] = field(default_factory=dict)

    def of(self, buffer: str, rank: int, deep: int) -> set[int]:
        if buffer not in self.known:
            loop = self._maker(buffer)
            if loop is None or not deep:
                self.known[buffer] = set(range(rank))
            else:
                axes = self._axes(loop.body, deep - 1)
                self.known[buffer] = {n for n, axis in enumerate(loop.kept) if axis in axes}
        return self.known[buffer]

    def _maker(self, buffer: str) -> Loop | None:
        """The loop that would be computed where the tensor is read: of others it is in memory."""
        for item in reversed(self.builder.statements):
            if any(out is not None and out.name == buffer for out in item.outputs):
                return item if isinstance(item, Loop) and item.kind == "pointwise" else None
        return None

    def _axes(self, body: Expr, deep: int) -> set[Axis]:
        found: set[Axis] = set()
        for node in body.walk():
            places = node.indices()
            if isinstance(node, Load):
                places = tuple(places[n] for n in self.of(node.buffer, len(places), deep))
            found |= {axis for item in places for axis in item.axes()}
        return found
