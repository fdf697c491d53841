"""A scatter on a GPU: one function writes the base, a second combines the values in by atomics.

What has no atomic operation (half types, small integers) is added up in a wider workspace, which a third
function rounds into the output.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from nbcompile.compiler.codegen.triton.block_printers import PointsPrinter
from nbcompile.compiler.codegen.triton.dims import Dim
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.nests import TritonNest
from nbcompile.compiler.codegen.triton.tile_expression import TileExpression
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.kernel_ir.group_to_values import resolver_of
from nbcompile.compiler.kernel_ir.values import Store, Value, gathered
from nbcompile.compiler.loop_ir.expr import Load, compute_dtype
from nbcompile.compiler.loop_ir.index import ONE, ZERO, Axis, IndexExpr, index, product
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.schedule.listed_axes import ListedAxes, ListedLanes
from nbcompile.compiler.schedule.listed_rows import ListedRows
from nbcompile.compiler.schedule.scatters import Scatter
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.schedule.small_tables import SmallTable
from nbcompile.compiler.stages import Config


class ScatteredNest(TritonNest):
    """What is said of a scatter, however it is done."""

    plan: Scatter | SmallTable | ListedRows | ListedAxes | ListedLanes

    def __init__(
        self, work: Work, plan: Scatter | SmallTable | ListedRows | ListedAxes | ListedLanes,
        writer: TritonWriter,
    ) -> None:  # fmt: skip
        super().__init__(work, plan, writer)
        self.loop, self.out = plan.scattered.loop, plan.scattered.out
        self.value, self.targets = plan.scattered.value, plan.scattered.targets
        self.names = plan.scattered.names
        self.multiprocessors = work.target.multiprocessors

    def places_of(self, buffer: Buffer) -> tuple[tuple[Axis, ...], tuple[IndexExpr, ...]]:
        """Axes over all elements of a buffer, and the indices that they stand for."""
        axes = tuple(Axis(f"c{n}", extent) for n, extent in enumerate(buffer.shape) if extent != ONE)
        free = iter(axes)
        return axes, tuple(ZERO if extent == ONE else index(next(free)) for extent in buffer.shape)

    def base_at(
        self, kept: tuple[IndexExpr, ...], source: Buffer | None = None
    ) -> tuple[Value, Mapping[int, str]]:
        """An element of the base (or of ``source``), computed where a loop of this group makes it, and what
        values are called."""
        source = source or self.buffers[self.loop.base or ""]
        resolver = resolver_of(self.group, self.values.nest, self.buffers)
        resolver.origin = self.loop.id
        return resolver.value(Load(source.name, kept, source.dtype), {}), resolver.names


class ScatterNest(ScatteredNest):
    """A scatter point by point."""

    plan: Scatter

    def write(self) -> None:
        memory = self.buffers[self.group.in_place.get(self.out.name, self.out.name)]
        if memory.name == self.loop.base:
            self._combine(memory)
            return
        if self.plan.wide is not None:
            memory = Buffer(f"{self.out.name}_wide", self.out.shape, self.out.strides, self.plan.wide)
            self.buffers[memory.name] = memory
            self.workspaces.append(memory)
        self._copy(f"{self.symbol}_base", self.buffers[self.loop.base or ""], memory)
        self._combine(memory)
        if memory is not self.out:
            self._copy(f"{self.symbol}_round", memory, self.out)

    def _copy(self, name: str, source: Buffer, target: Buffer) -> None:
        """``target = source``, computing the source where it is a loop of this group."""
        axes, kept = self.places_of(target)
        value, names = self.base_at(kept, source)
        letters = {axis.text: f"c{n}" for n, axis in enumerate(axes)}
        dim = Dim(axes, letters[axes[0].text] if len(axes) == 1 else "point", "XBLOCK", 0)
        configs = (self.plan.copied,) if axes else (Config({}, 1),)
        p = PointsPrinter(self.values, self.buffers, self.writer, [dim] if axes else [], letters)
        p.names = names
        grid = ["1"]
        if axes:
            grid = [f"cdiv({self.size(p, dim.extent)}, XBLOCK)"]
            p.out.add(f"start = {self.program(p, 0)} * XBLOCK")
            self.declare(p, dim, "start", configs)
        scope = p.define([value], {})
        p.store(Store(self.loop, target.name, target.offset(kept), value), scope)
        self.add(name, p, grid, configs)

    def _combine(self, memory: Buffer) -> None:
        """One atomic operation (or a store) a point."""
        loop = self.loop
        value = self.value
        place = memory.offset(self.targets)
        axes = self.values.nest.axes
        configs = self.plan.configs
        p: TilePrinter
        if axes:
            dim = Dim(axes, self.variable(axes, "point"), "XBLOCK", 0)
            p = PointsPrinter(self.values, self.buffers, self.writer, [dim], self.letters)
            grid = [f"cdiv({self.size(p, product(axis.extent for axis in axes))}, XBLOCK)"]
            p.names = self.names
            p.out.add(f"start = {self.program(p, 0)} * XBLOCK")
            self.declare(p, dim, "start", configs)
        else:
            p, grid, configs = self.printer([]), ["1"], (Config({}, 1),)
            p.names = self.names
        scope = p.define([value, *gathered(place)], {})
        # each point takes part, also where the place is one for all of them
        lanes = frozenset({0}) if axes else frozenset()
        where, mask = p.element(memory.name, place, scope, (), write=True, beyond=lanes)
        if lanes and not p.dims_of(place.axes().union(*(item.axes for item in gathered(place)))):
            where = f"{where} + tl.zeros({p.shape_text()}, tl.int32)"
        text = p.text(value, scope)
        if loop.mode in (None, "set"):
            p.out.add(f"tl.store({where}, {text.bare}{mask})", [loop.id])
        else:
            register = compute_dtype(memory.dtype)
            if value.dtype != register:
                text = self.writer.cast(text, value.dtype, register)
            if not value.axes or value.kind == "const":
                text = TileExpression(p.full(text.bare, register))
            if any(extent.constant == 0 for extent in memory.shape):  # no mask of atomics is one number
                mask = f", mask={p.full('False', torch.bool)}"
            p.out.add(f'tl.atomic_{loop.mode}({where}, {text.bare}{mask}, sem="relaxed")', [loop.id])
        self.add(self.symbol, p, grid, configs)
