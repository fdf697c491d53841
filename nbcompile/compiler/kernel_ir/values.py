"""What one kernel computes, as a graph of values: each distinct scalar once. Data; what makes it of loops is
``group_to_values.py``. Half types are float32 here: only loads, stores and explicit casts know of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch

from nbcompile.compiler.loop_ir.expr import Number
from nbcompile.compiler.loop_ir.fused import Group, Nest
from nbcompile.compiler.loop_ir.index import ZERO, Atom, Axis, IndexExpr
from nbcompile.compiler.loop_ir.nodes import Loop


class Gathered(Atom):
    """A scalar value used inside an index, meant to be in ``[0, size)``; ``sure``: it always is."""

    __slots__ = ("size", "sure", "value")

    def __init__(self, value: Value, size: IndexExpr, sure: bool = False) -> None:
        self.value, self.size, self.sure = value, size, sure
        super().__init__(f"@{value.number}<{size}", value, sure)


@dataclass(frozen=True, eq=False)
class Value:
    """One scalar of the kernel. ``kind`` is const, load, index, op, guard, reduced or scan (``op`` says which
    scan, its argument is what is scanned, ``literal`` which output it is).

    place:    a load's offset in its buffer, or the number that an index is; ``index`` the same for each
              dimension of a load's buffer.
    axes:     axes of the nest it depends on; reductions: outputs of row reductions it depends on.
    origin:   loop it was made for.
    """

    number: int
    kind: str
    dtype: torch.dtype  # type in a register
    args: tuple[Value, ...] = ()
    op: str = ""
    literal: Number = 0
    buffer: str = ""
    place: IndexExpr = ZERO
    index: tuple[IndexExpr, ...] = ()
    bounds: tuple[tuple[IndexExpr, IndexExpr, IndexExpr], ...] = ()
    axes: frozenset[Axis] = frozenset()
    reductions: frozenset[str] = frozenset()
    origin: str = ""

    def inputs(self) -> tuple[Value, ...]:
        """Every value this one needs, those inside its indices included."""
        return self._inputs

    @cached_property
    def _inputs(self) -> tuple[Value, ...]:  # each part of a nest walks over all that it needs
        found = list(self.args)
        for place in (self.place, *(item for bound in self.bounds for item in bound)):
            found += gathered(place)
        return tuple(found)


def gathered(place: IndexExpr) -> list[Value]:
    """The values used inside an index."""
    return [atom.value for atom in sorted(place.atoms(), key=lambda a: a.text) if isinstance(atom, Gathered)]


@dataclass(frozen=True)
class Reduction:
    """An accumulation over the inner axes (row) or over the rows (split)."""

    loop: Loop
    value: Value
    kind: str
    output: str  # buffer name, and the name of its result
    split: bool
    place: IndexExpr  # offset of the output, over the kept axes
    index: tuple[IndexExpr, ...]  # the same for each of its dimensions
    position: Value | None = None  # argmax, argmin: the position counted
    mean: str = ""  # second half of welford: the output that holds the mean


@dataclass(frozen=True)
class Store:
    """``buffer[place] = value``."""

    loop: Loop
    buffer: str  # the memory written: an input's name for a mutation
    place: IndexExpr
    value: Value
    last: bool = False  # after every read of the memory it overwrites
    index: tuple[IndexExpr, ...] = ()  # the place for each dimension of the buffer


@dataclass(frozen=True)
class KernelValues:
    """All work of one group, resolved."""

    group: Group
    nest: Nest
    reductions: tuple[Reduction, ...]
    stores: tuple[Store, ...]
    names: Mapping[int, str]  # value number → name of the loop output it is
    ways: Mapping[int, Iterable[tuple[IndexExpr, ...]]] = field(default_factory=dict)  # to index each load

    @property
    def roots(self) -> tuple[Value, ...]:
        """What every reduction takes and every store writes."""
        return (*(item.value for item in self.reductions), *(item.value for item in self.stores))

    @property
    def needed(self) -> tuple[Value, ...]:
        """The same and the positions of extremes."""
        positions = (item.position for item in self.reductions)
        return (*self.roots, *(item for item in positions if item is not None))


def walk_values(roots: Iterable[Value]) -> list[Value]:
    """Every value the roots need, inputs before users."""
    order: dict[int, Value] = {}
    stack = [(value, False) for value in reversed(list(roots))]
    while stack:
        value, ready = stack.pop()
        if value.number in order:
            continue
        if ready:
            order[value.number] = value
            continue
        stack.append((value, True))
        stack += [(item, False) for item in reversed(value.inputs()) if item.number not in order]
    return list(order.values())
