"""Which values of a tile stand inside guards, and which of those may be made outside of them.

What is the same along the dimensions that the guards around it vary along (a row's value that only some
columns want) is made once for the others too: as a row's value, it is far smaller than the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from nbcompile.compiler.codegen.triton.dims import Scope
from nbcompile.compiler.kernel_ir.integer_ranges import Ranges, fits
from nbcompile.compiler.kernel_ir.values import Gathered, Value, gathered, walk_values
from nbcompile.compiler.loop_ir.index import Axis
from nbcompile.compiler.loop_ir.nodes import Buffer

Place = Callable[[Iterable[Axis]], frozenset[int]]
"""The dimensions of a tile that axes lie in."""
Around = frozenset[int] | None
"""The dimensions that the guards around a value vary along; None: one is the same for all of a tile."""


def needed(
    dims_of: Place, buffers: Mapping[str, Buffer], roots: Sequence[Value], scope: Scope
) -> tuple[list[Value], set[int]]:
    """(values below ``roots`` that are not in scope, inputs first; those made outside of every guard)."""
    order: dict[int, Value] = {}
    certain: set[int] = set()
    outside: Around = frozenset()
    stack = [(root, outside, False) for root in reversed(roots)]
    while stack:
        value, around, ready = stack.pop()
        if value.number in scope:
            continue
        if ready:
            order.setdefault(value.number, value)
            continue
        if around and _is_apart(dims_of, buffers, value, around):
            around = outside
        sure = around == outside
        if value.number in order and (value.number in certain or not sure):
            continue
        if sure:
            certain.add(value.number)
        stack.append((value, around, True))
        inner = _within(dims_of, value, around) if value.kind == "guard" else around
        for child in reversed(value.inputs()):
            stack.append((child, inner if child in value.args else around, False))
    return list(order.values()), certain


def varies_along(guard: Value) -> set[Axis]:
    """The axes that a guard's test depends on."""
    axes: set[Axis] = set()
    for item, low, high in guard.bounds:
        axes |= item.axes() | low.axes() | high.axes()
        for atom in item.atoms():
            if isinstance(atom, Gathered):
                axes |= atom.value.axes
    return axes


def _within(dims_of: Place, guard: Value, around: Around) -> Around:
    """What is around the two sides of a guard."""
    dims = dims_of(varies_along(guard))
    return around | dims if dims and around is not None else None


def _is_apart(dims_of: Place, buffers: Mapping[str, Buffer], value: Value, around: frozenset[int]) -> bool:
    """Whether a value is the same along those dimensions, and may be read wherever it is asked for."""
    dims = dims_of(value.axes)
    if value.kind not in ("load", "op") or not dims or dims & around:
        return False
    ranges, below = Ranges(), walk_values([value])
    for item in below:
        if item.kind == "guard" or gathered(item.place):
            return False
        if item.kind == "load":
            buffer = buffers[item.buffer]
            inside = (0, buffer.span_most() - 1)
            static = all(extent.constant is not None for extent in (*buffer.shape, *buffer.strides))
            if not static or not fits(ranges.place(item.place), inside):
                return False
    return True
