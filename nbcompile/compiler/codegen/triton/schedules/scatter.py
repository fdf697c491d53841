"""A scatter on a GPU: one function writes the base, a second combines the values in by atomics.

What has no atomic operation (half types, small integers) is added up in a wider workspace, which a third
function rounds into the output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.codegen.triton.block_printers import PointsPrinter
from nbcompile.compiler.codegen.triton.expressions import TRITON_TYPES, TritonWriter
from nbcompile.compiler.codegen.triton.nests import Nest
from nbcompile.compiler.codegen.triton.tile_printer import Dim, TilePrinter, bare
from nbcompile.compiler.kernel_ir.group_to_values import resolver_of
from nbcompile.compiler.kernel_ir.values import KernelValues, Store, Value, gathered
from nbcompile.compiler.loop_ir.expr import Load, compute_dtype
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import ONE, ZERO, Axis, IndexExpr, index, product
from nbcompile.compiler.loop_ir.nodes import Buffer, Loop, hint_product
from nbcompile.compiler.schedule.tiling import Tiling
from nbcompile.compiler.stages import Config
from nbcompile.errors import CodegenError

ATOMIC = (torch.float32, torch.float64, torch.int32, torch.int64)
BLOCK = 1024


def is_atomic(loop: Loop) -> bool:
    """Whether a GPU can do this scatter: adding anything, maxima and minima of integers, setting."""
    dtype = loop.outputs[0].dtype
    if loop.mode in (None, "set"):
        return True
    if loop.mode == "add":
        return dtype != torch.bool
    return loop.mode in ("max", "min") and not dtype.is_floating_point and dtype != torch.bool


class ScatterNest(Nest):
    """The functions of a group that holds one scatter."""

    def __init__(
        self, group: Group, values: KernelValues, plan: Tiling, buffers: Mapping[str, Buffer],
        writer: TritonWriter, multiprocessors: int,
    ) -> None:  # fmt: skip
        super().__init__(group, values, plan, buffers, writer)
        self.loop = next(item for item in group.loops if item.kind == "scatter")
        if not is_atomic(self.loop):
            dtype = self.loop.outputs[0].dtype
            raise CodegenError(f"a scatter of {dtype} by {self.loop.mode} has no atomics")
        self.out = self.buffers[self.loop.name]
        self.resolver = resolver_of(group, values.nest, self.buffers)
        self.resolver.origin = self.loop.id
        binding = group.bindings[self.loop.id]
        self.value = self.resolver.value(self.loop.body, binding)
        self.targets = tuple(self.resolver.resolved(place, binding) for place in self.loop.target or ())
        self.memory = self.out
        self.title, self.multiprocessors = plan.title, multiprocessors

    def print(self, comment: Sequence[str]) -> PrintedKernel:
        from nbcompile.compiler.codegen.triton.schedules import listed_axes, listed_lanes
        from nbcompile.compiler.codegen.triton.schedules.listed_rows import ListedRows, is_listed
        from nbcompile.compiler.codegen.triton.schedules.small_tables import (
            SmallTable,
            is_small_table,
            rows_of,
        )

        axes = listed_axes.listed_axes(self)
        if axes is not None and listed_axes.is_listed(self, axes):
            self.title = "scatter by listed axes"
            listed_axes.ListedAxes(self, axes, self.multiprocessors).print()
            return self.assemble(comment)
        if axes is not None and listed_lanes.is_listed(self, axes):
            self.title = "scatter by listed axes"
            listed_lanes.ListedLanes(self, axes, self.multiprocessors).print()
            return self.assemble(comment)
        rows = rows_of(self)
        if rows is not None and is_small_table(self, rows):
            self.title = "scatter into a small table"
            SmallTable(self, rows, self.multiprocessors).print()
            return self.assemble(comment)
        if rows is not None and is_listed(self, rows):
            self.title = "scatter by listed rows"
            ListedRows(self, rows).print()
            return self.assemble(comment)
        if self.loop.mode not in (None, "set") and self.out.dtype not in ATOMIC:
            wide = torch.float32 if self.out.dtype.is_floating_point else torch.int32
            self.memory = Buffer(f"{self.out.name}_wide", self.out.shape, self.out.strides, wide)
            self.buffers[self.memory.name] = self.memory
            self.workspaces.append(self.memory)
        self._copy(f"{self.symbol}_base", self.buffers[self.loop.base or ""], self.memory)
        self._combine()
        if self.memory is not self.out:
            self._copy(f"{self.symbol}_round", self.memory, self.out)
        return self.assemble(comment)

    def _copy(self, name: str, source: Buffer, target: Buffer) -> None:
        """``target = source``, computing the source where it is a loop of this group."""
        axes, kept = self.places_of(target)
        value, names = self.base_at(kept, source)
        letters = {axis.text: f"c{n}" for n, axis in enumerate(axes)}
        dim = Dim(axes, letters[axes[0].text] if len(axes) == 1 else "point", "XBLOCK", 0)
        configs = (self._block(target.bytes_hint() // target.dtype.itemsize),) if axes else (Config({}, 1),)
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

    def _block(self, points: int) -> Config:
        """As many elements a program as leave enough programs to hide the memory's latency, which is all that
        such short functions wait for."""
        block = BLOCK
        while block > 128 and points < block * self.multiprocessors * 8:
            block //= 2
        return Config({"XBLOCK": block}, max(2, block // 256))

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

    def _combine(self) -> None:
        """One atomic operation (or a store) a point."""
        loop = self.loop
        value = self.value
        place = self.memory.offset(self.targets)
        axes = self.values.nest.axes
        first = self._block(hint_product(axis.extent for axis in axes))
        configs = (first, *(item for item in self.plan.configs if item != first))
        p: TilePrinter
        if axes:
            dim = Dim(axes, self.variable(axes, "point"), "XBLOCK", 0)
            p = PointsPrinter(self.values, self.buffers, self.writer, [dim], self.letters)
            grid = [f"cdiv({self.size(p, product(axis.extent for axis in axes))}, XBLOCK)"]
            p.names = self.resolver.names
            p.out.add(f"start = {self.program(p, 0)} * XBLOCK")
            self.declare(p, dim, "start", configs)
        else:
            p, grid, configs = self.printer([]), ["1"], (Config({}, 1),)
            p.names = self.resolver.names
        scope = p.define([value, *gathered(place)], {})
        # each point takes part, also where the place is one for all of them
        lanes = frozenset({0}) if axes else frozenset()
        where, mask = p.element(self.memory.name, place, scope, (), write=True, beyond=lanes)
        if lanes and not p.dims_of(place.axes().union(*(item.axes for item in gathered(place)))):
            where = f"{where} + tl.zeros({p.shape_text()}, tl.int32)"
        text = p.text(value, scope)
        if loop.mode in (None, "set"):
            p.out.add(f"tl.store({where}, {bare(text)}{mask})", [loop.id])
        else:
            register = compute_dtype(self.memory.dtype)
            if value.dtype != register:
                text = self.writer.cast(text, value.dtype, register)
            if not value.axes or value.kind == "const":
                shape = p.shape_text() if p.shape else "()"
                text = f"tl.full({shape}, {bare(text)}, {TRITON_TYPES[register]})"
            if mask == ", mask=False":  # of an empty tensor; atomics take no mask that is one number
                mask = f", mask=tl.full({p.shape_text() if p.shape else '()'}, False, tl.int1)"
            p.out.add(f'tl.atomic_{loop.mode}({where}, {bare(text)}{mask}, sem="relaxed")', [loop.id])
        self.add(self.symbol, p, grid, configs)
