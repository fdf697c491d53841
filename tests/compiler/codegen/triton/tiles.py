"""Printers of tiles of groups made by hand, with nothing printed yet: what the tests of this folder read."""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.compiler.codegen.triton.dims import Dim
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis
from nbcompile.compiler.loop_ir.nodes import Buffer
from tests.compiler.schedule.cut import work_by_hand


def dims_of(*axes: Axis, masks: str = "") -> list[Dim]:
    """A dimension for each axis, called as the axis is; those in ``masks`` have lanes beyond the end."""
    blocks = ["YBLOCK", "XBLOCK"][-len(axes) :] if axes else []
    return [
        Dim((axis,), axis.name, block, place, mask=f"{axis.name}_in" if axis.name in masks.split() else "")
        for place, (axis, block) in enumerate(zip(axes, blocks, strict=True))
    ]


def tiles(
    made: Group, *inputs: Buffer, dims: Sequence[Dim] | None = None, masks: str = "",
    kind: type[TilePrinter] = TilePrinter,
) -> TilePrinter:  # fmt: skip
    """A printer whose tiles go along ``dims``, or have a dimension for each axis of the nest."""
    work = work_by_hand(made, *inputs)
    axes = work.values.nest.axes
    own = dims_of(*axes, masks=masks) if dims is None else list(dims)
    return kind(work.values, work.buffers, TritonWriter(), own, {axis.text: axis.name for axis in axes})


def stored(p: TilePrinter) -> list[str]:
    """The statements that make and store all that a group does."""
    scope = p.define([item.value for item in p.values.stores], {})
    for item in p.values.stores:
        p.store(item, scope)
    return [line.strip() for line in p.out.text]
