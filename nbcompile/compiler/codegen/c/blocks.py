"""Points in square blocks, where some tensors lie along one axis and others along another.

A block of what lies across is first copied, along its own memory, into a small array in the order in which
the points are walked: each line of memory is read once, whole, where walking the points row by row would read
a line for every element, and again for the next row once the cache has let it go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbcompile.compiler.codegen.c.kernel import Scope, memory_type
from nbcompile.compiler.codegen.c.nests import Nests, PointWork
from nbcompile.compiler.codegen.c.within import Within, open_blocks, within
from nbcompile.compiler.kernel_ir.values import Gathered, Value
from nbcompile.compiler.loop_ir.index import ONE, Axis

SIDES = (256, 128, 64, 32, 16)
ROWS = 16  # about a line of memory: the fewer rows are written at once, the fewer pages are
ROWS_OF_HALVES = 32
CACHE_BYTES = 48 << 10  # of all blocks together
LEAST = 8  # points along either axis
NEAR_BYTES = 1 << 10
_TILES = {4: ("across", 16), 8: ("across_wide", 4)}
"""By the bytes of an element: the helper that copies a square of them in registers, and its side."""


@dataclass(frozen=True)
class Across:
    """The ``loads`` whose memory lies along ``axis``: blocks of ``rows`` points along that, ``side``
    along the last axis."""

    axis: Axis
    loads: tuple[Value, ...]
    side: int
    rows: int


def lying_across(nests: Nests, work: PointWork, outer: Sequence[Axis], last: Axis) -> Across | None:
    """What lies along another axis than ``last``, and is read at every point; None where nothing does, or
    where there is not enough of it."""
    if last.extent.hint() < LEAST:
        return None
    order, certain = nests.needed(work.roots, {}, {})
    loads = [value for value in order if value.kind == "load" and value.number in certain]
    best: list[Value] = []
    along: Axis | None = None
    for axis in outer:
        found = [value for value in loads if _lies(value, axis, last)]
        if len(found) > len(best) and axis.extent.hint() >= LEAST:
            best, along = found, axis
    if along is None:
        return None
    row = sum(nests.buffers[value.buffer].dtype.itemsize for value in best)
    # memory that is read nearly in its order needs no wide blocks
    most = 64 if all(_bytes_apart(nests, value, last) <= NEAR_BYTES for value in best) else SIDES[0]
    halves = any(nests.buffers[value.buffer].dtype.itemsize == 2 for value in best)
    rows = ROWS_OF_HALVES if halves else ROWS
    side = next((side for side in SIDES if side <= most and side * rows * row <= CACHE_BYTES), None)
    return None if side is None else Across(along, tuple(best), side, rows)


def _bytes_apart(nests: Nests, value: Value, axis: Axis) -> int:
    """Between neighbours of a load along ``axis``."""
    step = value.place.coefficient(axis)
    return abs((step or ONE).hint()) * nests.buffers[value.buffer].dtype.itemsize


def _lies(value: Value, axis: Axis, last: Axis) -> bool:
    """Whether neighbours of a load along ``axis`` lie side by side, and those along ``last`` apart."""
    if any(isinstance(atom, Gathered) for atom in value.place.atoms()):
        return False
    step = value.place.coefficient(last)
    return value.place.coefficient(axis) == ONE and step is not None and step != 0 and step != ONE


def print_blocks(
    nests: Nests, work: PointWork, outer: Sequence[Axis], last: Axis, across: Across, pragma: str
) -> None:
    """Print the nest, ``pragma`` before its loops: those over ``outer`` and two over blocks."""
    if pragma:
        nests.out.add(pragma)
    around = [axis for axis in outer if axis is not across.axis]
    for axis in around:
        nests.for_(axis)
    # blocks follow each other along the memory that is copied: what of a line one leaves, the next one takes
    sides = {last: across.side, across.axis: across.rows}
    lows = {axis: open_blocks(nests, axis, side) for axis, side in sides.items()}
    lanes, rows = (within(nests, axis, low, sides[axis]) for axis, low in lows.items())
    scope: Scope = {}
    for value in across.loads:
        scope = _copied(nests, value, scope, rows, lanes, across)
    rows.open()
    nests.innermost(lanes, work, nests.hoist(work.values, frozenset((last,)), scope))
    nests.out.close()
    for _ in (*lows, *around):
        nests.out.close()


def _copied(nests: Nests, value: Value, scope: Scope, rows: Within, lanes: Within, across: Across) -> Scope:
    """Copy a block of a load's memory; the scope with the load as an element of the copy."""
    buffer = nests.buffers[value.buffer]
    block, kind = nests.fresh(f"{value.buffer}_block"), memory_type(buffer)
    i, j = (nests.axis_names[item.axis.text] for item in (rows, lanes))
    tile = _TILES.get(buffer.dtype.itemsize)
    # a row more than a power of two long, so that the elements of a column do not share a place in the cache
    width = across.side if tile else across.side + 1
    element = f"({i} - {rows.low})*{width} + {j} - {lanes.low}"
    nests.out.add(f"{kind} {block}[{across.rows * width}];", [value.origin])
    memory = nests.memory(value.buffer, write=False)
    place = nests.place(value.place, scope)
    if tile:
        helper, count = tile
        for item, at in ((lanes, j), (rows, i)):
            nests.out.open(
                f"for (long {at} = {item.low}; {at} < {item.high}; {at} += {count})", axes=(item.axis,)
            )
        step = value.place.coefficient(lanes.axis)
        assert step is not None  # or it would not lie across
        called = nests.writer.helper(helper, buffer.dtype)
        left = f"{rows.high} - {i}, {lanes.high} - {j}"
        line = (
            f"{called}({memory} + {place}, {nests.place(step, scope)}, {block} + {element}, {width}, {left});"
        )
    else:
        lanes.open()
        rows.open()
        line = f"{block}[{element}] = {memory}[{place}];"
    nests.out.touch(value.buffer, value.place)
    nests.out.add(line, [value.origin])
    nests.out.close()
    nests.out.close()
    return {**scope, value.number: nests.loaded(f"{block}[{element}]", buffer.dtype, value.dtype)}
