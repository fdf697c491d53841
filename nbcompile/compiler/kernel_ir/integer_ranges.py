"""What is known of integers in a kernel: the least and the greatest value that each can have.

Positions and what is computed from them are int64 in PyTorch, which a GPU does in several instructions each.
Where the range says that 32 bits hold every intermediate result, the arithmetic is done in int32, with the
same results; tests that always come out the same are left out, such as whether an index is negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from nbcompile.compiler.kernel_ir.values import Gathered, Value
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Atom, Axis, FloorDiv, IndexExpr, Mod
from nbcompile.compiler.loop_ir.nodes import Buffer, at_most

Range = tuple[int, int]
LIMITS: dict[torch.dtype, Range] = {torch.bool: (0, 1)} | {
    dtype: (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
}
INT32 = LIMITS[torch.int32]
INT32_LIMIT = 2**31 - 2**24
"""Buffers of fewer elements are reached by int32 positions: blocks and slabs count beyond the last one."""
NARROWED = frozenset(
    "add sub mul neg abs minimum maximum floordiv truncdiv remainder fmod sign bitand bitor bitxor where "
    "eq ne lt le gt ge".split()
)
"""Operations that give the same in int32 where operands and result fit."""

# what two ranges must show for a comparison to hold for all their numbers
_ALWAYS: dict[str, Callable[[Range, Range], bool]] = {
    "lt": lambda a, b: a[1] < b[0],
    "le": lambda a, b: a[1] <= b[0],
    "gt": lambda a, b: a[0] > b[1],
    "ge": lambda a, b: a[0] >= b[1],
    "eq": lambda a, b: a[0] == a[1] == b[0] == b[1],
    "ne": lambda a, b: a[1] < b[0] or b[1] < a[0],
}
_NEVER = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


def fits(span: Range | None, within: Range = INT32) -> bool:
    """Whether a range is known, and lies ``within`` another."""
    return span is not None and within[0] <= span[0] and span[1] <= within[1]


def offsets_fit(group: Group, buffers: Mapping[str, Buffer]) -> bool:
    """Whether every place in every buffer of a group is an int32: where one is not, positions are int64."""
    names = {load.buffer for loop in group.loops for load in loop.reads()}
    names |= {out.name for loop in group.loops for out in loop.outputs}
    names |= {loop.base for loop in group.loops if loop.base}
    touched = [buffers[name] for name in names & buffers.keys()]
    return points_fit(group.nest.axes) and all(buffer.span_most() < INT32_LIMIT for buffer in touched)


def points_fit(axes: Iterable[Axis]) -> bool:
    """Whether an int32 counts the points of a nest so far as data decide how many there are, even where
    nothing has a place for each; guards see to the others."""
    extents = [axis.extent for axis in axes]
    if all(at_most(extent) == extent.hint() for extent in extents):
        return True
    return math.prod(max(at_most(extent), 1) for extent in extents) < INT32_LIMIT


class Ranges:
    """Ranges of the values of one kernel, each found once."""

    def __init__(self) -> None:
        self._known: dict[int, Range | None] = {}

    def of(self, value: Value) -> Range | None:
        """The range of an integer value or a bool; None if there is nothing to say."""
        if value.number not in self._known:
            self._known[value.number] = self._range(value)
        return self._known[value.number]

    def _range(self, value: Value) -> Range | None:
        if value.dtype.is_floating_point:
            return None
        if value.kind == "const":
            return int(value.literal), int(value.literal)
        if value.dtype == torch.bool:
            return 0, 1
        if value.kind == "index":
            return self.place(value.place)
        if value.kind == "guard":
            return _union(self.of(arg) for arg in value.args)
        if value.kind == "op":
            found = self.result(value.op, value.args)
            if fits(found, LIMITS[value.dtype]):
                return found
        return LIMITS[value.dtype] if value.dtype.itemsize < 8 else None

    def result(self, op: str, args: Sequence[Value]) -> Range | None:
        """The range of an operation's result as a whole number, whatever type holds it."""
        if op == "where":
            return _union(self.of(arg) for arg in args[1:])
        found = [self.of(arg) for arg in args]
        known = [span for span in found if span is not None]
        if len(known) < len(found) or not known:
            return None
        first, second = known[0], known[-1]
        if op in _SIMPLE:
            return _SIMPLE[op](first)
        if op in ("add", "sub"):
            other = second if op == "add" else (-second[1], -second[0])
            return first[0] + other[0], first[1] + other[1]
        if op == "mul":
            return _hull(a * b for a in first for b in second)
        if op in ("minimum", "maximum"):
            pick = min if op == "minimum" else max
            return pick(first[0], second[0]), pick(first[1], second[1])
        if op in ("floordiv", "truncdiv") and second[0] > 0 and (op == "floordiv" or first[0] >= 0):
            return _hull(a // b for a in first for b in second)
        if op in ("remainder", "fmod") and second[0] > 0 and (op == "remainder" or first[0] >= 0):
            return 0, second[1] - 1
        if op in ("bitand", "bitor", "bitxor") and min(first[0], second[0]) >= 0:
            return 0, (1 << max(first[1], second[1]).bit_length()) - 1
        return None

    def decided(self, op: str, args: Sequence[Value]) -> bool | None:
        """What a comparison always gives; None if it may be either."""
        if op not in _ALWAYS:
            return None
        first, second = (self.of(arg) for arg in args)
        if first is None or second is None:
            return None
        if _ALWAYS[op](first, second):
            return True
        return False if _ALWAYS[_NEVER[op]](first, second) else None

    def place(self, place: IndexExpr) -> Range | None:
        """The range of an index; None where a size in it is symbolic."""
        low = high = 0
        for mono, coeff in place.terms:
            span: Range = (coeff, coeff)
            for atom in mono:
                other = self._atom(atom)
                if other is None:
                    return None
                span = _hull(a * b for a in span for b in other)
            low, high = low + span[0], high + span[1]
        return low, high

    def _atom(self, atom: Atom) -> Range | None:
        if isinstance(atom, Axis | Gathered):
            extent = (atom.extent if isinstance(atom, Axis) else atom.size).constant
            return None if extent is None else (0, max(extent - 1, 0))
        if isinstance(atom, FloorDiv | Mod):
            top, divisor = self.place(atom.numerator), atom.denominator.constant
            if top is None or not divisor or top[0] < 0:
                return None
            return (top[0] // divisor, top[1] // divisor) if isinstance(atom, FloorDiv) else (0, divisor - 1)
        return None


def is_narrow(place: IndexExpr) -> bool:
    """Whether an int32 is known to hold an index, and what is divided in it. (A sum that comes to more on the
    way to it, and wraps, comes back.)"""
    divided = [atom.numerator for atom in place.atoms() if isinstance(atom, FloorDiv | Mod)]
    return all(fits(Ranges().place(each)) for each in (place, *divided))


_SIMPLE: dict[str, Callable[[Range], Range]] = {
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (max(a[0], -a[1], 0), max(-a[0], a[1])),
    "sign": lambda a: (-1 if a[0] < 0 else int(a[0] > 0), 1 if a[1] > 0 else -int(a[1] < 0)),
    "cast": lambda a: a,
    "floor": lambda a: a,
    "ceil": lambda a: a,
    "trunc": lambda a: a,
}


def in_unit_interval(value: Value) -> bool:
    """Whether a floating-point value lies between 0 and 1, or is NaN, as the exponential of ``-|x|``."""
    if value.op.startswith("round_"):
        return in_unit_interval(value.args[0])
    return value.op == "sigmoid" or (value.op == "exp" and _is_not_positive(value.args[0]))


def _is_not_positive(value: Value) -> bool:
    if value.kind == "const":
        return float(value.literal) <= 0
    if value.op == "neg":
        return value.args[0].op in ("abs", "exp", "sigmoid")
    return value.op == "minimum" and any(_is_not_positive(arg) for arg in value.args)


def _hull(values: Iterable[int]) -> Range:
    found = list(values)
    return min(found), max(found)


def _union(spans: Iterable[Range | None]) -> Range | None:
    found = list(spans)
    known = [end for span in found if span is not None for end in span]
    return (min(known), max(known)) if known and None not in found else None
