"""Prints adding many points into a table of few rows: each program sums its points row by row, a second
function adds up what the programs have.

In a matrix product what is not finite would spread along its column, so it is counted beside.
"""

from __future__ import annotations

from nbcompile.compiler.codegen.triton.block_printers import PointsPrinter, staged
from nbcompile.compiler.codegen.triton.dims import Dim, Scope
from nbcompile.compiler.codegen.triton.expressions import MEMORY_TYPES, TRITON_TYPES, TritonWriter
from nbcompile.compiler.codegen.triton.schedules.scatter import ScatteredNest
from nbcompile.compiler.codegen.triton.tile_expression import TileExpression, grouped
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.loop_ir.expr import compute_dtype
from nbcompile.compiler.loop_ir.index import Axis, index, product
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.schedule.small_tables import SUMMED_TOGETHER, SmallTable
from nbcompile.compiler.stages import Config

FINISH_TILE = 2048


class SmallTableNest(ScatteredNest):
    """The functions of such a scatter."""

    plan: SmallTable

    def __init__(self, work: Work, plan: SmallTable, writer: TritonWriter) -> None:
        super().__init__(work, plan, writer)
        self.rows, self.block, self.each = plan.rows, plan.block, plan.each
        self.slabs, self.across, self.configs = plan.slabs, plan.across, plan.configs
        self.dtype = compute_dtype(self.out.dtype)
        size = product(self.out.shape) * self.slabs
        self.parts = self.workspace(f"{self.out.name}_parts", self.dtype, size)

    def write(self) -> None:
        table = Dim((Axis("table_row", self.rows.count),), "table_row", "ROWS", 0)
        if self.plan.way == "products":
            self._products()
        elif self.plan.way == "along the row":
            self._long_rows(table)
        else:
            self._short_rows(table)
        self._finish()

    # -- parts -------------------------------------------------------------------------------------------

    def _printer(self, dims: list[Dim]) -> TilePrinter:
        letters = self.letters | {"table_row": "table_row"}
        p = TilePrinter(self.values, self.buffers, self.writer, dims, letters)
        p.names = self.names
        return p

    def _row(self, p: TilePrinter, scope: Scope, inside: str) -> tuple[str, Scope]:
        """The name of the row that a point adds to: -1 if it is none of the table, or not ``inside``."""
        scope = p.define([self.rows.row], scope, always=True)
        text = p.text(self.rows.row, scope)
        count = self.rows.count.hint()
        name = p.fresh("named")
        masks = " & ".join(item for item in (inside, f"({text} >= 0)", f"({text} < {count})") if item)
        p.out.add(f"{name} = tl.where({masks}, {text}, -1).to(tl.int32)", [self.loop.id])
        return name, scope

    def _accumulate(self, p: TilePrinter, total: str, hit: str, scope: Scope) -> None:
        value = self.value
        text = p.text(value, p.define([value], scope))
        if value.dtype != self.dtype:
            text = self.writer.cast(text, value.dtype, self.dtype)
        p.out.add(f"{total} += tl.where({hit}, {text.bare}, 0.0)", [self.loop.id])

    def _products(self) -> None:
        """Lanes are points and elements of a row: their sums are a product with the comparisons."""
        rows = self.rows
        points = Dim(rows.points, self.variable(rows.points, "point"), "PBLOCK", 0)
        x = Dim(rows.axes, self.variable(rows.axes, "within"), "XBLOCK", 1)
        p = self._printer([points, x])
        loop = [self.loop.id]
        self.declare(p, x, f"{self.program(p, 1)} * XBLOCK", self.configs)
        total, strange = p.fresh("total"), p.fresh("strange")
        p.out.add(f"{total} = tl.full([ROWS, XBLOCK], 0.0, tl.float32)", loop)
        p.out.add(f"{strange} = tl.full([PBLOCK, XBLOCK], 0, tl.int32)", loop)
        start = f"{self.program(p, 0)} * PBLOCK"
        bounds = f"{start}, {rows.named}, {self.slabs} * PBLOCK"
        p.out.enter(f"for start in {staged(self.configs, bounds)}:")
        hit, value, finite = self._compared(p, points, x)
        number = f"tl.where({finite}, {value}, 0.0).to({self.half_text})"
        p.out.add(f"{total} = tl.dot({hit}, {number}, {total})", loop)
        p.out.add(f"{strange} = {strange} | (~{finite}).to(tl.int32)", loop)
        p.out.leave()
        # asked once, after the walk: lanes would have to wait for each other at every step
        p.out.enter(f"if tl.max(tl.max({strange}, axis=1), axis=0) > 0:", loop)
        upward, downward = p.fresh("upward"), p.fresh("downward")
        for name in (upward, downward):
            p.out.add(f"{name} = tl.full([ROWS, XBLOCK], 0.0, tl.float32)", loop)
        p.out.enter(f"for start in range({bounds}):")
        hit, value, finite = self._compared(p, points, x)
        for counted, other in ((upward, "<"), (downward, ">")):
            number = f"tl.where({finite} | ({value} {other} 0.0), 0.0, 1.0).to({self.half_text})"
            p.out.add(f"{counted} = tl.dot({hit}, {number}, {counted})", loop)
        p.out.leave()
        p.out.add(f'{total} = tl.where({upward} > 0.0, float("inf"), {total})', loop)
        p.out.add(f'{total} += tl.where({downward} > 0.0, float("-inf"), 0.0)', loop)
        p.out.leave()
        p.out.add("table_row = tl.arange(0, ROWS)[:, None]", loop)
        masks = [f"(table_row < {rows.count})"] if rows.count.hint() < self.block else []
        self._keep(p, total, masks + ([x.mask] if x.mask else []))
        self.add(self.symbol, p, [str(self.slabs), str(self.across)], self.configs)

    @property
    def half_text(self) -> str:
        return MEMORY_TYPES[self.out.dtype]

    def _compared(self, p: TilePrinter, points: Dim, x: Dim) -> tuple[str, str, str]:
        """Names of a block's comparisons with the rows, of its values, and of which of them are finite."""
        rows, loop = self.rows, [self.loop.id]
        p.out.add(f"{points.name} = {p.lanes(points, offset='start')}")
        points.mask = ""
        if rows.named % self.each:
            points.mask = p.fresh(f"{points.name}_in")
            p.out.add(f"{points.mask} = {points.name} < {rows.named}")
        p.declare_axes(points)
        name, scope = self._row(p, {}, points.mask)
        hit, value, finite = p.fresh("hit"), p.fresh("value"), p.fresh("finite")
        p.out.add(f"{hit} = (tl.arange(0, ROWS)[:, None] == tl.trans({name})).to({self.half_text})", loop)
        text = p.text(self.value, p.define([self.value], scope)).bare
        masks = [dim.mask for dim in (points, x) if dim.mask]
        if masks or self.value.axes < {*rows.points, *rows.axes}:
            mask = " & ".join(masks) or "True"
            text = f"tl.where({mask}, {text}, tl.full([PBLOCK, XBLOCK], 0.0, tl.float32))"
        p.out.add(f"{value} = {text}", loop)
        p.out.add(f'{finite} = tl.abs({value}) < float("inf")', loop)
        return hit, value, finite

    def _short_rows(self, table: Dim) -> None:
        """Lanes are points: a tile of all rows by some points for each of a few elements."""
        rows = self.rows
        x = Dim(rows.points, self.variable(rows.points, "point"), "XBLOCK", 1)
        p = self._printer([table, x])
        self.declare(p, table, "", self.configs)
        many = min(SUMMED_TOGETHER, rows.length)
        places = [self._element(p, number, many) for number in range(many)]
        totals = [self._zeros(p) for _ in range(many)]
        named = product(axis.extent for axis in rows.points)
        step = f"{self.slabs} * XBLOCK"
        p.out.enter(f"for start in range({self.program(p, 0)} * XBLOCK, {self.size(p, named)}, {step}):")
        p.out.add(f"{x.name} = {p.lanes(x, offset='start')}")
        x.mask = p.fresh(f"{x.name}_in")
        p.out.add(f"{x.mask} = {x.name} < {self.size(p, named)}")
        p.declare_axes(x)
        name, scope = self._row(p, {}, x.mask)
        hit = p.fresh("hit")
        p.out.add(f"{hit} = {name} == {table.name}", [self.loop.id])
        for letters, total in zip(places, totals, strict=True):
            p.letters |= letters
            self._accumulate(p, total, hit, scope)
        p.out.leave()
        for letters, total in zip(places, totals, strict=True):
            p.letters |= letters
            p.out.add(f"{total} = tl.sum({total}, axis=1)[:, None]", [self.loop.id])
            mask = [table.mask] if table.mask else []
            if rows.length % many:
                mask.append(f"({letters['inside']} < {rows.length})")
            self._keep(p, total, mask)
        self.add(self.symbol, p, [str(self.slabs), str(self.across)], self.configs)

    def _element(self, p: TilePrinter, number: int, many: int) -> dict[str, str]:
        """The letters of a row's axes for element ``number`` of those that this program sums. Beyond the
        row's end it is its last one, whose sum is not kept."""
        rows = self.rows
        first = f"{self.program(p, 1)} * {many} + {number}"
        name = p.fresh("element")
        p.out.add(f"{name} = {first}")
        letters = {"inside": name}
        at = name
        if rows.length % many:
            at = p.fresh("within")
            p.out.add(f"{at} = tl.minimum({name}, {rows.length - 1})")
        step = rows.length
        for axis in rows.axes:
            inner = step // axis.extent.hint()
            text = TileExpression(at) if step == rows.length else grouped(f"{at} % {step}")
            letters[axis.text] = p.fresh(self.letters[axis.text])
            p.out.add(f"{letters[axis.text]} = {text.bare if inner == 1 else f'{text} // {inner}'}")
            step = inner
        return letters

    def _long_rows(self, table: Dim) -> None:
        """Lanes lie along the row: points come one by one, a few of them under way at once."""
        rows = self.rows
        x = Dim(rows.axes, self.variable(rows.axes, "within"), "XBLOCK", 1)
        p = self._printer([table, x])
        self.declare(p, table, "", self.configs)
        self.declare(p, x, f"{self.program(p, 1)} * XBLOCK", self.configs)
        total = self._zeros(p)
        step = f"{self.slabs * self.each}"
        p.out.enter(f"for start in range({self.program(p, 0)} * {self.each}, {rows.named}, {step}):")
        found = []
        for number in range(self.each):
            point = p.fresh("point")
            inside = ""
            text = f"start + {number}" if number else "start"
            if rows.named % self.each and number:  # the last points twice, the second time for no row
                inside = f"(start < {rows.named - number})"
                text = f"tl.minimum({text}, {rows.named - 1})"
            p.out.add(f"{point} = {text}")
            letters = dict(p.letters)
            d = Dim(rows.points, point, "", None)
            if len(rows.points) == 1:
                letters[rows.points[0].text] = point
            for axis in rows.points if len(rows.points) > 1 else ():
                letters[axis.text] = p.fresh(self.letters[axis.text])
            p.letters = letters
            p.declare_axes(d)
            name, scope = self._row(p, {}, inside)
            scope = p.define([self.value], scope, always=True)
            found.append((letters, name, scope))
        for letters, name, scope in found:
            p.letters = letters
            self._accumulate(p, total, f"{name} == {table.name}", scope)
        p.out.leave()
        self._keep(p, total, [item for item in (table.mask, x.mask) if item])
        self.add(self.symbol, p, [str(self.slabs), str(self.across)], self.configs)

    def _zeros(self, p: TilePrinter) -> str:
        name = p.fresh("total")
        p.out.add(f"{name} = tl.full({p.shape_text()}, 0.0, {TRITON_TYPES[self.dtype]})", [self.loop.id])
        return name

    def _keep(self, p: TilePrinter, text: str, masks: list[str]) -> None:
        """Keep a program's sums, in the order of the output's elements."""
        shape = self.out.shape
        place = index(0)
        own = Axis("table_row", self.rows.count)
        for dim, extent in enumerate(shape):
            axis = own if dim == self.rows.dim else self.rows.inner[dim - (dim > self.rows.dim)]
            place = place * extent + (0 if axis is None else axis)
        slab = f"{self.program(p, 0)} * {product(shape).hint()}"
        pointer = p.pointer(self.parts.name, write=True)
        mask = f", mask={' & '.join(masks)}" if masks else ""
        p.out.add(f"tl.store({pointer} + {slab} + {p.place(place).bare}, {text}{mask})", [self.loop.id])

    # -- their sum ---------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """``output = base + the sum of all parts``."""
        axes, kept = self.places_of(self.out)
        size = product(self.out.shape).hint()
        block = max(4, min(32, 1 << (size // 128).bit_length()))
        slabs = min(FINISH_TILE // block, 1 << (self.slabs - 1).bit_length())
        configs = (Config({"XBLOCK": block, "SBLOCK": slabs}, max(1, block * slabs // 512)),)
        value, names = self.base_at(kept)
        letters = {axis.text: f"c{n}" for n, axis in enumerate(axes)}
        x = Dim(axes, letters[axes[0].text] if len(axes) == 1 else "point", "XBLOCK", 0)
        s = Dim((Axis("slab", index(self.slabs)),), "slab", "SBLOCK", 1)
        p = PointsPrinter(self.values, self.buffers, self.writer, [x, s], letters | {"slab": "slab"})
        p.names = names
        self.declare(p, x, f"{self.program(p, 0)} * XBLOCK", configs)
        loop = [self.loop.id]
        total, first = p.fresh("total"), p.fresh("first")
        p.out.add(f"{total} = {p.full('0.0', self.dtype)}", loop)
        p.out.enter(f"for {first} in range(0, {self.slabs}, SBLOCK):")
        p.out.add(f"slab = {p.lanes(s, offset=first)}")
        masks = [x.mask] if x.mask else []
        masks += [f"(slab < {self.slabs})"] if self.slabs % slabs else []
        mask = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
        p.out.add(f"{total} += tl.load({p.pointer(self.parts.name)} + slab*{size} + {x.name}{mask})", loop)
        p.out.leave()
        scope = p.define([value], {})
        where, mask = p.element(self.out.name, self.out.offset(kept), scope, (), write=True)
        text = p.text(value, scope)
        p.out.add(f"tl.store({where}, {text} + tl.sum({total}, axis=1)[:, None]{mask})", loop)
        self.add(f"{self.symbol}_finish", p, [f"cdiv({size}, XBLOCK)"], configs)
