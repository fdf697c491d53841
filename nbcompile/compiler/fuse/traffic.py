"""Bytes that a kernel reads and writes: what its loops reach, each element of a tensor once.

A slice, rows that are gathered, or the part of an input that is overwritten are a few of a tensor's elements:
by whole tensors a kernel would seem to run hundreds of times as fast as memory allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from nbcompile.compiler.fuse.alignment import place_of
from nbcompile.compiler.loop_ir.expr import Expr, Guarded, Load
from nbcompile.compiler.loop_ir.fused import Binding, Group
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Buffer, Loop
from nbcompile.compiler.loop_ir.substitution import substitute

Bounds = tuple[tuple[IndexExpr, IndexExpr, IndexExpr], ...]


def bytes_read(group: Group, buffers: Mapping[str, Buffer]) -> dict[str, int]:
    """The bytes that a kernel reads of each buffer that it does not make itself, at the hints."""
    points: dict[str, dict[tuple[IndexExpr, ...], int]] = {}
    for load, places, bounds in _reached(group):
        if load.buffer not in points:
            points[load.buffer] = {}
        reached = _points(places, bounds)
        points[load.buffer][places] = max(reached, points[load.buffer].get(places, 0))
    found = {name: _bytes(buffers[name], sum(each.values())) for name, each in points.items()}
    for loop in group.loops:
        if loop.base and loop.base not in {out.name for each in group.loops for out in each.outputs}:
            own = _written(loop, group) if group.in_place.get(loop.name) == loop.base else None
            reads = loop.mode not in (None, "set") or own is None
            found[loop.base] = _bytes(buffers[loop.base], own) if reads else found.get(loop.base, 0)
    return found


def bytes_written(group: Group, buffers: Mapping[str, Buffer]) -> int:
    """The bytes that a kernel leaves in memory, at the hints."""
    makers = {out.name: loop for loop in group.loops for out in loop.outputs}
    return sum(_bytes(buffers[name], _written(makers[name], group)) for name in group.stored)


def _bytes(buffer: Buffer, points: int | None) -> int:
    whole = buffer.bytes_hint()
    return whole if points is None else min(whole, points * buffer.dtype.itemsize)


def _written(loop: Loop, group: Group) -> int | None:
    """How many elements a loop changes of what it overwrites in place; None for all."""
    old = group.in_place.get(loop.name)
    if old is None:
        return None
    if loop.kind == "scatter":
        return loop.points() if loop.base == old else None
    total, body = 0, loop.body
    where = tuple(index(axis) for axis in loop.axes)
    while isinstance(body, Guarded):
        total += _points(where, body.bounds)
        body = body.outside
    return total if isinstance(body, Load) and body.buffer == old and body.index == where else None


def _reached(group: Group) -> Iterator[tuple[Load, tuple[IndexExpr, ...], Bounds]]:
    """What a kernel loads from outside of it: where, in the axes of its nest, and within which guards. What
    is computed where it is read loads there."""
    makers = {out.name: loop for loop in group.loops for out in loop.outputs}
    pending: list[tuple[Loop, Binding, Bounds]] = [
        (loop, group.bindings[loop.id], ()) for loop in group.loops if loop.id in group.bindings
    ]
    seen: set[tuple[str, tuple[IndexExpr, ...], Bounds]] = set()
    while pending:
        loop, binding, around = pending.pop()
        old = group.in_place.get(loop.name, "")
        for load, own in _loads(loop, old):
            places = place_of(load, binding)
            # the innermost guard's: with all around it, a chain of parts has as many ways as it has subsets
            bounds = tuple(_within(bound, binding) for bound in own) or around
            maker = makers.get(load.buffer)
            if maker is None:
                yield load, places, bounds
            elif maker.kind == "pointwise" and (maker.id, places, bounds) not in seen:
                seen.add((maker.id, places, bounds))
                pending.append((maker, dict(zip(maker.kept, places, strict=True)), bounds))


def _within(
    bound: tuple[IndexExpr, IndexExpr, IndexExpr], binding: Binding
) -> tuple[IndexExpr, IndexExpr, IndexExpr]:
    item, low, high = (substitute(each, binding) for each in bound)
    return item, low, high


def _loads(loop: Loop, overwritten: str) -> Iterator[tuple[Load, Bounds]]:
    """Every load of a loop with the guards around it; not what a part of an input is put back with."""
    if not loop.is_guarded:
        yield from ((load, ()) for load in loop.reads())
        return
    where = tuple(index(axis) for axis in loop.axes)
    pending: list[tuple[Expr, Bounds]] = [(loop.body, ())]
    while pending:
        expr, bounds = pending.pop()
        if isinstance(expr, Load):
            if bounds or expr.buffer != overwritten or expr.index != where or expr is loop.body:
                yield expr, bounds
        elif isinstance(expr, Guarded):
            pending += [(expr.inside, expr.bounds), (expr.outside, bounds)]
        else:
            pending += [(child, bounds) for child in expr.children()]
    targets = {load for place in loop.target or () for load in _inside(place)}
    yield from ((load, ()) for load in loop.reads() if load in targets)


def _inside(place: IndexExpr) -> Iterator[Load]:
    for atom in place.atoms():
        value = getattr(atom, "value", None)
        if isinstance(value, Expr):
            yield from (part for part in value.walk() if isinstance(part, Load))


def _points(places: Sequence[IndexExpr], bounds: Bounds) -> int:
    """How many points an index takes, at the hints: those of its axes, as far as guards let them go."""
    axes: set[Axis] = set()
    for place in places:
        axes |= set(place.axes())
    extents = {axis: axis.extent.hint() for axis in axes}
    for item, low, high in bounds:
        axis = item.axis
        if axis in extents:
            extents[axis] = min(extents[axis], max(0, (high - low).hint()))
    return math.prod(extents.values())
