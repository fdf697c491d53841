"""Prints adding rows into a large table: points are listed by the row that they name, then each row of the
table is written once, with all that is added."""

from __future__ import annotations

import torch

from nbcompile.compiler.codegen.triton.block_printers import PointsPrinter
from nbcompile.compiler.codegen.triton.dims import Dim, Scope
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.schedules.scatter import ScatteredNest
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.schedule.listed_rows import TILE, ListedRows
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.stages import Config

LIST_BLOCK = 128


class ListedRowsNest(ScatteredNest):
    """The functions of such a scatter."""

    plan: ListedRows

    def __init__(self, work: Work, plan: ListedRows, writer: TritonWriter) -> None:
        super().__init__(work, plan, writer)
        self.rows, self.skipped = plan.rows, plan.skipped
        self.most, self.slots = plan.most, plan.slots
        count = plan.rows.count.hint()
        # the last counter counts the slots
        self.counts = self._memory("counts", count + 1, torch.int32)
        self.listed = self._memory("listed", count * self.most, torch.int32)
        self.slot_of = self._memory("slots", count, torch.int32)
        self.sums = self._memory("sums", self.slots * plan.rows.length, torch.float32)

    def _memory(self, word: str, size: int, dtype: torch.dtype) -> Buffer:
        return self.workspace(f"{self.out.name}_{word}", dtype, max(size, 1))

    def write(self) -> None:
        self._clear()
        self._list()
        if self.slots:
            self._often()
        self._table()

    # -- lists -------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        """No row has been named yet."""
        counts, sums = self.rows.count.hint() + 1, self.slots * self.rows.length
        configs = (Config({"XBLOCK": 1024}, 4),)
        axis = Axis("place", index(max(counts, sums)))
        p = PointsPrinter(self.values, self.buffers, self.writer, [], {"place": "place"})
        p.out.add("place = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)")
        counted, loop = p.pointer(self.counts.name, write=True), [self.loop.id]
        p.out.add(f"tl.store({counted} + place, 0, mask=place < {counts})", loop)
        if sums:
            pointer = p.pointer(self.sums.name, write=True)
            p.out.add(f"tl.store({pointer} + place, 0.0, mask=place < {sums})", loop)
        self.add(f"{self.symbol}_clear", p, [f"cdiv({axis.extent}, XBLOCK)"], configs)

    def _list(self) -> None:
        """Each point counts itself, and so has a place in the list of its row."""
        rows = self.rows
        configs = (Config({"PBLOCK": LIST_BLOCK}, 4),)
        points = Dim(rows.points, self.variable(rows.points, "point"), "PBLOCK", 0)
        p = self._printer([points])
        self.declare(p, points, "tl.program_id(0) * PBLOCK", configs)
        row, inside = self._row(p, points)
        counts = p.pointer(self.counts.name, write=True)
        loop = [self.loop.id]
        one = "tl.full([PBLOCK], 1, tl.int32)"
        number, slot = p.fresh("number"), p.fresh("slot")
        p.out.add(f'{number} = tl.atomic_add({counts} + {row}, {one}, mask={inside}, sem="relaxed")', loop)
        listed = p.pointer(self.listed.name, write=True)
        place = f"{row}*{self.most} + {number}"
        p.out.add(
            f"tl.store({listed} + {place}, {points.name}, mask={inside} & ({number} < {self.most}))", loop
        )
        if self.slots:
            first = p.fresh("first")
            p.out.add(f"{first} = {inside} & ({number} == {self.most})", loop)
            cursor = f"{counts} + {rows.count} + tl.zeros([PBLOCK], tl.int32)"
            p.out.add(f'{slot} = tl.atomic_add({cursor}, {one}, mask={first}, sem="relaxed")', loop)
            pointer = p.pointer(self.slot_of.name, write=True)
            p.out.add(f"tl.store({pointer} + {row}, {slot}, mask={first})", loop)
        self.add(f"{self.symbol}_list", p, [f"cdiv({rows.named}, PBLOCK)"], configs)

    def _often(self) -> None:
        """The points of rows that are named more than ``most`` times are added by atomics."""
        rows = self.rows
        width = min(128, 1 << (rows.length - 1).bit_length())
        configs = (Config({"PBLOCK": TILE // width, "XBLOCK": width}, 4),)
        points = Dim(rows.points, self.variable(rows.points, "point"), "PBLOCK", 0)
        x = Dim(rows.axes, self.variable(rows.axes, "within"), "XBLOCK", 1)
        p = self._printer([points, x])
        self.declare(p, points, "tl.program_id(0) * PBLOCK", configs)
        row, inside = self._row(p, points)
        loop = [self.loop.id]
        often, slot = p.fresh("often"), p.fresh("slot")
        count = f"tl.load({p.pointer(self.counts.name)} + {row}, mask={inside}, other=0)"
        p.out.add(f"{often} = {count} > {self.most}", loop)
        p.out.enter(f"if tl.max(tl.max({often}.to(tl.int32), axis=1), axis=0) > 0:", loop)
        p.out.add(f"{slot} = tl.load({p.pointer(self.slot_of.name)} + {row}, mask={often}, other=0)", loop)
        p.out.enter(f"for start in range(0, {rows.length}, XBLOCK):")
        self.declare(p, x, "start", configs)
        points.mask = often
        value = self._value(p, {})
        pointer = p.pointer(self.sums.name, write=True)
        mask = " & ".join(item for item in (often, f"({slot} < {self.slots})", x.mask) if item)
        shape = "tl.zeros([PBLOCK, XBLOCK], tl.int32)"
        place = f"{slot}*{rows.length} + {x.name} + {shape}"
        value = f"{value} + tl.zeros([PBLOCK, XBLOCK], tl.float32)"
        p.out.add(f'tl.atomic_add({pointer} + {place}, {value}, mask={mask}, sem="relaxed")', loop)
        p.out.leave(2)
        self.add(f"{self.symbol}_often", p, [f"cdiv({rows.named}, PBLOCK)"], configs)

    # -- the table ---------------------------------------------------------------------------------------

    def _table(self) -> None:
        """Each row is written once: the base, and what its points add to it."""
        rows = self.rows
        configs = self.plan.configs
        own = Axis("table_row", rows.count)
        table = Dim((own,), "table_row", "RBLOCK", 0)
        x = Dim(rows.axes, self.variable(rows.axes, "within"), "XBLOCK", 1)
        p = self._printer([table, x])
        loop = [self.loop.id]
        self.declare(p, table, "tl.program_id(0) * RBLOCK", configs)
        self.declare(p, x, "tl.program_id(1) * XBLOCK", configs)
        count, few, total = p.fresh("count"), p.fresh("few"), p.fresh("total")
        mask = f", mask={table.mask}, other=0" if table.mask else ""
        p.out.add(f"{count} = tl.load({p.pointer(self.counts.name)} + table_row{mask})", loop)
        p.out.add(f"{few} = tl.where({count} > {self.most}, 0, {count})", loop)
        p.out.add(f"{total} = tl.full([RBLOCK, XBLOCK], 0.0, tl.float32)", loop)
        p.out.enter(f"for number in range(0, tl.max(tl.max({few}, axis=1), axis=0)):", loop)
        here = p.fresh("named")
        p.out.add(f"{here} = number < {few}", loop)
        points = Dim(rows.points, self.variable(rows.points, "point"), "RBLOCK", 0, here)
        listed = f"{p.pointer(self.listed.name)} + table_row*{self.most} + number"
        p.out.add(f"{points.name} = tl.load({listed}, mask={here}, other=0)", loop)
        p.dims = [points, x]  # the lanes of the table's rows are points now
        p.declare_axes(points)
        p.out.add(f"{total} += tl.where({here}, {self._value(p, {})}, 0.0)", loop)
        p.dims = [table, x]
        p.out.leave()
        if self.slots:
            self._add_often(p, count, total, x)
        kept = tuple(self._kept(own))
        value, p.names = self.base_at(kept)
        scope = p.define([value], {})
        where, mask = p.element(self.out.name, self.out.offset(kept), scope, (), write=True)
        p.out.add(f"tl.store({where}, {p.text(value, scope)} + {total}{mask})", loop)
        grid = [f"cdiv({rows.count}, RBLOCK)", f"cdiv({rows.length}, XBLOCK)"]
        self.add(self.symbol, p, grid, configs)

    def _add_often(self, p: TilePrinter, count: str, total: str, x: Dim) -> None:
        loop = [self.loop.id]
        often, slot = p.fresh("often"), p.fresh("slot")
        p.out.add(f"{often} = {count} > {self.most}", loop)
        p.out.enter(f"if tl.max(tl.max({often}.to(tl.int32), axis=1), axis=0) > 0:", loop)
        p.out.add(
            f"{slot} = tl.load({p.pointer(self.slot_of.name)} + table_row, mask={often}, other=0)", loop
        )
        mask = f"{often} & {x.mask}" if x.mask else often
        place = f"{slot}*{self.rows.length} + {x.name}"
        p.out.add(f"{total} += tl.load({p.pointer(self.sums.name)} + {place}, mask={mask}, other=0.0)", loop)
        p.out.leave()

    def _kept(self, own: Axis) -> list[IndexExpr]:
        """The indices of an element of the output."""
        inner = iter(self.rows.inner)
        kept = []
        for dim in range(len(self.out.shape)):
            axis = own if dim == self.rows.dim else next(inner)
            kept.append(index(0) if axis is None else index(axis))
        return kept

    # -- parts of them -----------------------------------------------------------------------------------

    def _printer(self, dims: list[Dim]) -> TilePrinter:
        letters = self.letters | {"table_row": "table_row"}
        p = TilePrinter(self.values, self.buffers, self.writer, dims, letters)
        p.names = self.names
        return p

    def _row(self, p: TilePrinter, points: Dim) -> tuple[str, str]:
        """Names of the rows that the points of a tile add to, and of whether there is such a row."""
        roots = [self.rows.row] + ([self.skipped] if self.skipped else [])
        scope = p.define(roots, {}, always=True)
        text = p.text(self.rows.row, scope)
        tests = [points.mask, f"({text} >= 0)", f"({text} < {self.rows.count})"]
        tests += [f"~({p.text(self.skipped, scope)})"] if self.skipped else []
        row, inside = p.fresh("row"), p.fresh("inside")
        loop = [self.loop.id]
        p.out.add(f"{inside} = {' & '.join(item for item in tests if item)}", loop)
        p.out.add(f"{row} = tl.where({inside}, {text}, 0).to(tl.int32)", loop)
        return row, inside

    def _value(self, p: TilePrinter, scope: Scope) -> str:
        """What a point adds, in float32."""
        text = p.text(self.plan.value, p.define([self.plan.value], scope))
        if self.plan.value.dtype != torch.float32:
            text = self.writer.cast(text, self.plan.value.dtype, torch.float32)
        return text.bare
