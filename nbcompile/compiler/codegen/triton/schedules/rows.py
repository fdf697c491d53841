"""Prints rows that a program holds whole, and what the printers of all schedules of rows share."""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.compiler.codegen.triton.accumulators import Accumulating
from nbcompile.compiler.codegen.triton.block_printers import RowsPrinter
from nbcompile.compiler.codegen.triton.dims import Dim, Scope
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.nests import TritonNest
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.kernel_ir.values import Reduction, Store, Value
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr
from nbcompile.compiler.schedule.rows import RowSchedule
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.stages import Config


class RowsNest(TritonNest):
    """The function of rows ``x`` that are reduced along ``r``."""

    plan: RowSchedule

    def __init__(self, work: Work, plan: RowSchedule, writer: TritonWriter) -> None:
        super().__init__(work, plan, writer)
        self.inside = frozenset(plan.r)
        self.configs = plan.complete
        self.x = Dim(plan.x, self.variable(plan.x, "row"), "XBLOCK", None if plan.one_row else 0)
        self.r = Dim(plan.r, self.variable(plan.r, "within"), "RBLOCK", 0 if plan.one_row else 1)
        self.p = self.rows_printer(self.x, self.r)

    def rows_printer(self, x: Dim, r: Dim) -> RowsPrinter:
        """A printer of tiles of rows."""
        dims = [r] if self.plan.one_row and not x.axes else [x, r]
        p = RowsPrinter(self.values, self.buffers, self.writer, dims, self.letters)
        p.r = r
        return p

    def declare_rows(self, p: TilePrinter, x: Dim, configs: Sequence[Config]) -> list[str]:
        """The row (or block of rows) of this program; returns the grid."""
        if self.plan.one_row:
            if not x.axes:
                return ["1"]
            p.out.add(f"{x.name} = {self.program(p, 0)}")
            p.declare_axes(x)
            return [self.size(p, x.extent)]
        self.declare(p, x, f"{self.program(p, 0)} * XBLOCK", configs)
        return [f"cdiv({self.size(p, x.extent)}, XBLOCK)"]

    def row_stores(self) -> tuple[list[Store], list[Store]]:
        """(stores of the whole row, stores of one value a row)."""
        full: list[Store] = []
        short: list[Store] = []
        for item in self.values.stores:
            axes = item.value.axes | {atom for atom in item.place.atoms() if isinstance(atom, Axis)}
            (full if axes & self.inside else short).append(item)
        return full, short

    def reduction_stores(self, *, split: bool) -> list[tuple[Reduction, IndexExpr]]:
        return [
            (item, item.place) for item in self.values.reductions
            if item.split == split and item.output in self.group.stored
        ]  # fmt: skip

    def store_results(self, p: TilePrinter, items: Sequence[tuple[Reduction, IndexExpr]]) -> None:
        for item, place in items:
            where, mask = p.element(item.output, place, {}, (), write=True)
            p.out.add(f"tl.store({where}, {p.reduced_text[item.output]}{mask})", [item.loop.id])

    def count(self, p: TilePrinter, r: Dim) -> str:
        text = self.factor(p, r.extent)
        return text if r.extent.constant is None else f"{text}.0"

    def factor(self, p: TilePrinter, extent: IndexExpr) -> str:
        return str(p.place(extent))

    def at_once(self, p: TilePrinter, r: Dim) -> None:
        """Rows whose points are all in the tile."""
        self.declare(p, r, "", self.configs)
        scope = self.reduce_at_once(p, r, {})
        self.store_results(p, self.reduction_stores(split=False))
        self.store_all(p, self.values.stores, scope)

    def reduce_at_once(self, p: TilePrinter, r: Dim, scope: Scope) -> Scope:
        accumulating = Accumulating(p, r.place or 0)
        for item in self.values.reductions:
            if item.split:
                continue
            roots = [item.value, *([item.position] if item.position else [])]
            scope = p.define(self.shared(roots), scope, always=True)
            accumulating.at_once(item, scope, self.count(p, r))
        return scope

    def shared(self, roots: Sequence[Value]) -> list[Value]:
        """What of ``roots`` is worth a name: all but numbers (it may be needed again after the sum)."""
        return [value for value in roots if value.kind not in ("const", "index", "reduced")]


class HeldRowsNest(RowsNest):
    """Whole rows on chip."""

    def write(self) -> None:
        p, x, r, configs = self.p, self.x, self.r, self.configs
        grid = self.declare_rows(p, x, configs)
        self.at_once(p, r)
        self.add(self.symbol, p, grid, configs, x.axes)
