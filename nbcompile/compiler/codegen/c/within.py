"""Loops over blocks of an axis, and the innermost loop over the points of one."""

from __future__ import annotations

from nbcompile.compiler.codegen.c.nests import Lanes, Nests
from nbcompile.compiler.loop_ir.index import Axis
from nbcompile.compiler.loop_ir.versions import Part


class Within(Lanes):
    """The points of a block along ``axis``, ``side`` of them or fewer, from ``low`` to before ``high``."""

    def __init__(self, nests: Nests, axis: Axis, low: str, high: str, side: int) -> None:
        super().__init__(nests, axis)
        self.low, self.high, self.most = low, high, side

    def open(self, piece: tuple[int, int] | None = None, part: Part | None = None) -> None:
        """The loop over the points, or those in ``piece`` of the axis."""
        low, high = self.low, self.high
        if piece is not None and piece[0] > 0:
            low = f"({piece[0]} > {low} ? {piece[0]} : {low})"
        if piece is not None and piece[1] != self.axis.extent.constant:
            high = f"({piece[1]} < {high} ? {piece[1]} : {high})"
        self.nests.for_(self.axis, part=part, between=(low, high))


def open_blocks(nests: Nests, axis: Axis, side: int) -> str:
    """Open the loop over blocks; the name of where one begins."""
    low = nests.fresh(f"{nests.axis_names[axis.text]}_block")
    nests.out.open(f"for (long {low} = 0; {low} < {nests.extent(axis)}; {low} += {side})", axes=(axis,))
    return low


def within(nests: Nests, axis: Axis, low: str, side: int) -> Within:
    """The points of the block that begins at ``low``; where it ends is declared if they do not all end
    alike."""
    extent = axis.extent.constant
    if extent is not None and extent % side == 0:
        return Within(nests, axis, low, f"{low} + {side}", side)
    high, text = nests.fresh(f"{nests.axis_names[axis.text]}_end"), nests.extent(axis)
    nests.out.add(f"const long {high} = {low} + {side} < {text} ? {low} + {side} : {text};")
    return Within(nests, axis, low, high, side)
