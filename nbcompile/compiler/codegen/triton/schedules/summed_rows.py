"""Prints sums over the rows themselves: programs leave their parts, a second function adds them up."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from nbcompile.compiler.codegen.triton.accumulators import Accumulating, accumulate_dtype
from nbcompile.compiler.codegen.triton.block_printers import staged
from nbcompile.compiler.codegen.triton.dims import Dim, Scope
from nbcompile.compiler.codegen.triton.schedules.rows import RowsNest
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.kernel_ir.values import Reduction
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import hint_product
from nbcompile.compiler.schedule.summed_rows import OwnedPieces, OwnedRows
from nbcompile.compiler.schedule.tiling import extent_of
from nbcompile.compiler.stages import Config

FINISHERS = 128  # programs that add up parts, if there are so many results
TOTAL_BLOCK = 2048
LONGEST_HOISTED = 4096  # points of what is the same for all rows (a weight), kept while walking them


class SumsNest(RowsNest):
    """Rows with sums over them: what each program keeps of a sum, and the function that finishes them."""

    def is_row_sum(self, item: Reduction) -> bool:
        """Whether a sum over the rows adds one value a row."""
        binding = self.group.bindings[item.loop.id]
        domain = {axis for place in binding.values() for axis in place.axes()}
        return domain.isdisjoint(self.group.nest.inner)

    def keep_sum(self, p: TilePrinter, item: Reduction, name: str, r: Dim) -> None:
        """Store one program's partial sum: a value for each inner point, or one in all."""
        slab = self.program(p, 0)
        dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
        loop = [item.loop.id]
        workspace = self.workspace(f"{item.output}_parts", dtype, self.kept_of(item) * self.parts_of_sums)
        pointer = p.pointer(workspace.name)
        if self.kept_of(item) == ONE:
            total = name
            if not self.is_row_sum(item):
                if r.mask:
                    literal = self.writer.identity(item.kind, dtype)
                    p.out.add(f"{name} = tl.where({r.mask}, {name}, {literal})", loop)
                total = self.writer.reduce(item.kind, name, r.place or 0, dtype)
                total = total if self.plan.one_row else f"{total}[:, None]"
            zero = "" if self.plan.one_row else " + tl.zeros([1, 1], tl.int32)"
            p.out.add(f"tl.store({pointer} + {slab}{zero}, {total})", loop)
            return
        mask = f", mask={r.mask}" if r.mask else ""
        place = f"{slab} * {self.factor(p, r.extent)} + {r.name}"
        p.out.add(f"tl.store({pointer} + {place}, {name}{mask})", loop)

    @property
    def parts_of_sums(self) -> IndexExpr:
        """How many partial results a sum over the rows has: one a program."""
        each = 1 if self.plan.one_row else self.plan.configs[0].constants["XBLOCK"]
        rows = extent_of(self.plan.x)
        return (rows + (each - 1)) // each

    def kept_of(self, item: Reduction) -> IndexExpr:
        """How many results a sum over the rows has: the inner points, or one."""
        kept = [axis for axis in self.plan.r if axis in item.place.axes()]
        total = ONE
        for axis in self.plan.r if kept else ():
            total = total * axis.extent
        return total

    def finish_sums(self, sums: Sequence[Reduction]) -> None:
        """One function that adds up the programs' parts of each sum."""
        wide = [item for item in sums if self.kept_of(item) != ONE]
        single = [item for item in sums if self.kept_of(item) == ONE]
        for members, suffix in ((wide, "finish"), (single, "finish_total")):
            if members:
                axes = self.plan.r if members is wide else ()
                self._finish_function(members, f"{self.symbol}_{suffix}", axes)

    def _finish_function(self, members: Sequence[Reduction], name: str, axes: tuple[Axis, ...]) -> None:
        count = self.parts_of_sums
        kept = hint_product(axis.extent for axis in axes)
        block = max(4, min(32, 1 << (kept // FINISHERS).bit_length())) if axes else 1
        slab_block = min(TOTAL_BLOCK // block, 1 << max(self.plan.slabs - 1, 0).bit_length())
        configs = (Config({"XBLOCK": block, "SBLOCK": slab_block}, max(1, block * slab_block // 512)),)
        x = Dim(axes, self.variable(axes, "point"), "XBLOCK", 0)
        s = Dim((Axis("slab", count),), "slab", "SBLOCK", 1)
        p = TilePrinter(self.values, self.buffers, self.writer, [x, s], self.letters | {"slab": "slab"})
        self.declare(p, x, f"{self.program(p, 0)} * XBLOCK", configs)
        running = {}
        for item in members:
            dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
            running[item.output] = p.fresh(item.output)
            zero = p.full(self.writer.identity(item.kind, dtype), dtype)
            p.out.add(f"{running[item.output]} = {zero}", [item.loop.id])
        p.out.enter(f"for start in range(0, {self.size(p, count)}, SBLOCK):")
        p.out.add(f"slab = {p.lanes(s, offset='start')}")
        masks = [x.mask] if x.mask else []
        if count.constant is None or count.constant % slab_block:
            masks.append(f"(slab < {self.size(p, count)})")
        for item in members:
            dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
            workspace = self.workspace(f"{item.output}_parts", dtype, self.kept_of(item) * count)
            length = self.factor(p, self.kept_of(item))
            pointer = p.pointer(workspace.name)
            other = self.writer.identity(item.kind, dtype)
            joined = f", mask={' & '.join(masks)}, other={other}" if masks else ""
            part = f"tl.load({pointer} + slab * {length} + {x.name}{joined})"
            if dtype == torch.bool:
                part = f"{part}.to(tl.int1)"
            text = self.writer.combine(item.kind, running[item.output], part, dtype)
            p.out.add(f"{running[item.output]} = {text.bare}", [item.loop.id])
        p.out.leave()
        for item in members:
            dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
            result = f"{self.writer.reduce(item.kind, running[item.output], 1, dtype)}[:, None]"
            where, mask = p.element(item.output, item.place, {}, (), write=True)
            p.out.add(f"tl.store({where}, {result}{mask})", [item.loop.id])
        self.add(name, p, [f"cdiv({self.size(p, x.extent)}, XBLOCK)"], configs, x.axes)


class OwnedRowsNest(SumsNest):
    """Each program walks its share of the rows, each a whole row, and adds up along them."""

    plan: OwnedRows | OwnedPieces

    @property
    def parts_of_sums(self) -> IndexExpr:
        """One a program, which owns many rows."""
        return index(self.plan.slabs)

    def write(self) -> None:
        p, x, r, configs = self.p, self.x, self.r, self.configs
        sums = [item for item in self.values.reductions if item.split]
        slabs = self.plan.slabs
        grid = [str(slabs), *self.declare_pieces(p, r)]
        along = Accumulating(p, x.place if x.place is not None else 0)
        running: dict[str, str] = {}
        for item in sums:
            dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
            name = running[item.output] = p.fresh(item.output)
            shape = None if not self.is_row_sum(item) else [] if self.plan.one_row else ["XBLOCK", "1"]
            p.out.add(
                f"{name} = {p.full(self.writer.identity(item.kind, dtype), dtype, shape)}", [item.loop.id]
            )
        scope: Scope = {}
        if configs[0].constants["RBLOCK"] <= LONGEST_HOISTED:
            roots = [item.value for item in self.values.reductions]
            roots += [item.value for item in self.values.stores]
            scope = p.hoist(roots, frozenset(self.plan.x), scope)
        rows = self.size(p, x.extent)
        step = "" if self.plan.one_row else " * XBLOCK"
        bounds = f"{self.program(p, 0)}{step}, {rows}, {slabs}{step}"
        p.out.enter(f"for start in {staged(configs, bounds)}:", axes=x.axes)
        if self.plan.one_row:
            p.out.add(f"{x.name} = start")
            p.declare_axes(x)
        else:
            self.declare(p, x, "start", configs)
        scope = self.reduce_at_once(p, r, scope)
        full, short = self.row_stores()
        scope = p.define(self.shared([item.value for item in sums]), scope, always=True)
        for item in sums:
            dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
            text = along.operand(item, scope, [x.mask] if x.mask else [])
            name = running[item.output]
            p.out.add(f"{name} = {self.writer.combine(item.kind, name, text, dtype).bare}", [item.loop.id])
        self.store_results(p, self.reduction_stores(split=False))
        self.store_all(p, [*full, *short], scope)
        p.out.leave()
        for item in sums:
            name, dtype = running[item.output], accumulate_dtype(item, self.buffers[item.output].dtype)
            if not self.plan.one_row:
                reduced = along.kept(self.writer.reduce(item.kind, name, 0, dtype))
                p.out.add(f"{name} = {reduced}", [item.loop.id])
            self.keep_sum(p, item, name, r)
        self.add(self.symbol, p, grid, configs, x.axes)
        self.finish_sums(sums)

    def declare_pieces(self, p: TilePrinter, r: Dim) -> list[str]:
        """The part of its rows that a program has; returns how many there are, where that is not one."""
        self.declare(p, r, "", self.configs)
        return []


class OwnedPiecesNest(OwnedRowsNest):
    """Each program walks its share of the rows, a piece of each, and adds up along them."""

    def declare_pieces(self, p: TilePrinter, r: Dim) -> list[str]:
        """The piece of the rows that a program has."""
        self.declare(p, r, f"{self.program(p, 1)} * RBLOCK", self.configs)
        return [f"cdiv({self.size(p, r.extent)}, RBLOCK)"]
