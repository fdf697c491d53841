"""Rows of odd width, read and written in pieces that the memory likes.

A row of 50257 halves starts at any even address, and Triton then moves two bytes a thread and loads nothing
ahead (asynchronous copies have four bytes at least). Two remedies, each exact whatever a pointer's alignment:

- Such a row is walked from its first line of memory on, in whole blocks without masks; what lies before that
  line and after those blocks is walked at the end, as if it were one piece.
- Where rows start at groups of 16 bytes but end within one, they are read up to the end of that group, if
  this is the buffer's own: a mask that cuts a group costs the whole tile its wide loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nbcompile.compiler.kernel_ir.values import KernelValues, Reduction, gathered, walk_values
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, at_least
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.loop_ir.substitution import substitute
from nbcompile.compiler.schedule.rows import RowSchedule

GROUP = 16  # bytes that a thread moves at most
LINE = 128  # bytes of a line of memory
LEAST_BLOCKS = 4  # whole blocks, or lines, in a row, from which on the rest counts little


@dataclass(frozen=True)
class OddRows:
    """``start``: where a row starts in memory, in elements, ``most`` of them at most; ``line``: how many
    elements (of the smallest type) make a line of memory."""

    start: IndexExpr
    most: IndexExpr
    line: int


def odd_rows(values: KernelValues, plan: RowSchedule, buffers: Mapping[str, Buffer]) -> OddRows | None:
    """The start of walked rows that mostly lie off groups of 16 bytes, all in the same way."""
    if not plan.one_row or len(plan.r) != 1:
        return None
    axis = plan.r[0]
    length, block = axis.extent.constant, plan.configs[0].constants["RBLOCK"]
    if length is None or length < LEAST_BLOCKS * block or any(_in_order(item) for item in values.reductions):
        return None
    roots = [item.value for item in values.reductions] + [item.value for item in values.stores]
    found = list(walk_values(roots))
    if any(value.op == "philox_uniform" for value in found):
        return None  # four at once, where blocks start at multiples of four
    places = [(item.buffer, item.place) for item in values.stores]
    places += [(value.buffer, value.place) for value in found if value.kind == "load"]
    bytes_of: dict[IndexExpr, int] = {}
    least: dict[IndexExpr, int] = {}
    for name, place in dict.fromkeys(places):
        if not gathered(place) and place.coefficient(axis) == 1:
            start, size = place - axis, buffers[name].dtype.itemsize
            bytes_of[start] = bytes_of.get(start, 0) + size
            least[start] = min(least.get(start, size), size)
    if not bytes_of:
        return None
    start = max(bytes_of, key=lambda item: bytes_of[item])
    if bytes_of[start] * 2 < sum(bytes_of.values()):
        return None
    whole = GROUP // least[start]
    if all(coeff % whole == 0 for _, coeff in start.terms) or not _counted(start):
        return None
    line = LINE // least[start]
    if length < LEAST_BLOCKS * line:
        return None
    most = substitute(start, {item: item.extent - 1 for item in start.axes()})
    return OddRows(start, most, line)


def _in_order(item: Reduction) -> bool:
    """Whether a reduction minds in which order a row's points come, or leaves a result for each of them."""
    return item.kind in ("argmax", "argmin") or (item.split and bool(item.place.axes()))


def _counted(start: IndexExpr) -> bool:
    """Whether it is made of axes and numbers alone: nothing that could be negative, or is looked up."""
    return all(coeff > 0 and all(isinstance(atom, Axis) for atom in mono) for mono, coeff in start.terms)


def whole_groups(axis: Axis, buffer: Buffer, place: IndexExpr) -> int | None:
    """Up to where rows along ``axis`` can be read in whole groups, if that is beyond their end: they start at
    groups, and the last one of the last row is still within the buffer."""
    length, size = axis.extent.constant, max(GROUP // buffer.dtype.itemsize, 1)
    if length is None or length % size == 0 or gathered(place) or place.coefficient(axis) != 1:
        return None
    start, end = place - axis, -(-length // size) * size
    if any(coeff % size for _, coeff in start.terms):
        return None
    last = buffer.offset(tuple(extent - 1 for extent in buffer.shape))
    return end if at_least(last, start + (end - 1)) else None
