"""The dimensions of a tile, and what masks its loads."""

from __future__ import annotations

from dataclasses import dataclass

from nbcompile.compiler.codegen.triton.tile_expression import TileExpression
from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, product

Scope = dict[int, TileExpression]
"""Values that have a name (or a text) here: value number → expression."""


@dataclass
class Dim:
    """One dimension of the tile: ``axes`` counted as one. ``place`` is its dimension in the tile's shape;
    None if it is one number for the program. ``mask`` names the lanes that exist (empty: all do);
    ``cut``: these are all below the extent. ``first`` tests whether the program is the first one along it
    (empty: nobody asks)."""

    axes: tuple[Axis, ...]
    name: str
    block: str
    place: int | None
    mask: str = ""
    cut: bool = False
    first: str = ""

    @property
    def extent(self) -> IndexExpr:
        return product(axis.extent for axis in self.axes)

    def inner(self, number: int) -> IndexExpr:
        """The points of one step of axis ``number``."""
        return product(axis.extent for axis in self.axes[number + 1 :])


@dataclass(frozen=True)
class Condition:
    """A condition that loads stand under, as they write it in their masks, and the dimensions it varies
    along."""

    mask: str
    dims: frozenset[int]


@dataclass(frozen=True)
class Chosen:
    """A load whose place depends on conditions: ``start``, plus the text ``rest`` which varies along
    ``dims``."""

    load: Value
    start: IndexExpr
    rest: str
    dims: frozenset[int]
