"""Adding rows into a large table, such as the gradient of an embedding, or messages along the edges of a
graph: points are listed by the row that they name, then each row of the table is written once, with all that
is added.

So a table of a half type is never held in float32, and what no point names is only copied. Of each row a few
points are listed. A row that is named more often is added up by atomics in a workspace, which is as long as
there can be such rows: the commonest word would else keep one program busy for long.
"""

from __future__ import annotations

import torch

from nbcompile.compiler.codegen.triton.block_printers import PointsPrinter
from nbcompile.compiler.codegen.triton.schedules.scatter import ScatterNest
from nbcompile.compiler.codegen.triton.schedules.small_tables import Rows
from nbcompile.compiler.codegen.triton.tile_printer import Dim, Scope, TilePrinter, bare
from nbcompile.compiler.kernel_ir import integer_ranges
from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, index, product
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.stages import Config

MOST = 8  # points listed of a row, if there are fewer points than rows
NAMED = 16  # how often a row may be named on average
SHORTEST_ROW = 64  # elements: of shorter ones the lists cost as much as the rows
LEAST_TABLE = 1 << 20  # elements: below that the launches cost more than the memory
LEAST_ADDED = 1 << 23  # elements that are added, in float32: fewer atomics cost less than the lists
TYPES = (torch.float32, torch.bfloat16, torch.float16)
LIST_BLOCK = 128
TILE = 2048


def is_listed(nest: ScatterNest, rows: Rows) -> bool:
    """Whether a scatter is done so."""
    if nest.loop.mode != "add" or nest.out.dtype not in TYPES or rows.length < SHORTEST_ROW:
        return False
    if rows.named > NAMED * rows.count.hint() or product(nest.out.shape).hint() < LEAST_TABLE:
        return False
    if nest.out.dtype == torch.float32 and rows.named * rows.length < LEAST_ADDED:
        return False  # what is of a half type has a pass over a wider table to gain, too
    touched = [nest.buffers[load.buffer] for loop in nest.group.loops for load in loop.reads()]
    narrow = all(buffer.span_hint() < integer_ranges.INT32_LIMIT for buffer in (nest.out, *touched))
    return narrow and rows.count.hint() * most_listed(rows) < integer_ranges.INT32_LIMIT


def most_listed(rows: Rows) -> int:
    """How many points of each row are listed: rows named at random are seldom named more often."""
    average = rows.named // rows.count.hint()
    return MOST if average == 0 else 1 << (2 * average + MOST - 1).bit_length()


class ListedRows:
    """Prints the functions of such a scatter."""

    def __init__(self, nest: ScatterNest, rows: Rows) -> None:
        self.nest, self.rows = nest, rows
        self.value, self.skipped = _but_for_zeros(nest.value, rows)
        self.most = most_listed(rows)
        self.slots = rows.named // (self.most + 1)  # rows that may be named more than ``most`` times
        count = rows.count.hint()
        # the last counter counts the slots
        self.counts = self._workspace("counts", count + 1, torch.int32)
        self.listed = self._workspace("listed", count * self.most, torch.int32)
        self.slot_of = self._workspace("slots", count, torch.int32)
        self.sums = self._workspace("sums", self.slots * rows.length, torch.float32)

    def _workspace(self, word: str, size: int, dtype: torch.dtype) -> Buffer:
        buffer = Buffer(f"{self.nest.out.name}_{word}", (index(max(size, 1)),), (ONE,), dtype)
        self.nest.buffers[buffer.name] = buffer
        self.nest.workspaces.append(buffer)
        return buffer

    def print(self) -> None:
        self._clear()
        self._list()
        if self.slots:
            self._often()
        self._write()

    # -- lists -------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        """No row has been named yet."""
        nest, counts, sums = self.nest, self.rows.count.hint() + 1, self.slots * self.rows.length
        configs = (Config({"XBLOCK": 1024}, 4),)
        axis = Axis("place", index(max(counts, sums)))
        p = PointsPrinter(nest.values, nest.buffers, nest.writer, [], {"place": "place"})
        p.out.add("place = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)")
        counted, loop = p.pointer(self.counts.name, write=True), [nest.loop.id]
        p.out.add(f"tl.store({counted} + place, 0, mask=place < {counts})", loop)
        if sums:
            pointer = p.pointer(self.sums.name, write=True)
            p.out.add(f"tl.store({pointer} + place, 0.0, mask=place < {sums})", loop)
        nest.add(f"{nest.symbol}_clear", p, [f"cdiv({axis.extent}, XBLOCK)"], configs)

    def _list(self) -> None:
        """Each point counts itself, and so has a place in the list of its row."""
        nest, rows = self.nest, self.rows
        configs = (Config({"PBLOCK": LIST_BLOCK}, 4),)
        points = Dim(rows.points, nest.variable(rows.points, "point"), "PBLOCK", 0)
        p = self._printer([points])
        nest.declare(p, points, "tl.program_id(0) * PBLOCK", configs)
        row, inside = self._row(p, points)
        counts = p.pointer(self.counts.name, write=True)
        loop = [nest.loop.id]
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
        nest.add(f"{nest.symbol}_list", p, [f"cdiv({rows.named}, PBLOCK)"], configs)

    def _often(self) -> None:
        """The points of rows that are named more than ``most`` times are added by atomics."""
        nest, rows = self.nest, self.rows
        width = min(128, 1 << (rows.length - 1).bit_length())
        configs = (Config({"PBLOCK": TILE // width, "XBLOCK": width}, 4),)
        points = Dim(rows.points, nest.variable(rows.points, "point"), "PBLOCK", 0)
        x = Dim(rows.axes, nest.variable(rows.axes, "within"), "XBLOCK", 1)
        p = self._printer([points, x])
        nest.declare(p, points, "tl.program_id(0) * PBLOCK", configs)
        row, inside = self._row(p, points)
        loop = [nest.loop.id]
        often, slot = p.fresh("often"), p.fresh("slot")
        count = f"tl.load({p.pointer(self.counts.name)} + {row}, mask={inside}, other=0)"
        p.out.add(f"{often} = {count} > {self.most}", loop)
        p.out.enter(f"if tl.max(tl.max({often}.to(tl.int32), axis=1), axis=0) > 0:", loop)
        p.out.add(f"{slot} = tl.load({p.pointer(self.slot_of.name)} + {row}, mask={often}, other=0)", loop)
        p.out.enter(f"for start in range(0, {rows.length}, XBLOCK):")
        nest.declare(p, x, "start", configs)
        points.mask = often
        value = self._value(p, {})
        pointer = p.pointer(self.sums.name, write=True)
        mask = " & ".join(item for item in (often, f"({slot} < {self.slots})", x.mask) if item)
        shape = "tl.zeros([PBLOCK, XBLOCK], tl.int32)"
        place = f"{slot}*{rows.length} + {x.name} + {shape}"
        value = f"{value} + tl.zeros([PBLOCK, XBLOCK], tl.float32)"
        p.out.add(f'tl.atomic_add({pointer} + {place}, {value}, mask={mask}, sem="relaxed")', loop)
        p.out.leave(2)
        nest.add(f"{nest.symbol}_often", p, [f"cdiv({rows.named}, PBLOCK)"], configs)

    # -- the table ---------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Each row is written once: the base, and what its points add to it."""
        nest, rows = self.nest, self.rows
        width = min(256, 1 << (rows.length - 1).bit_length())
        tiles = (TILE, TILE // 2, 2 * TILE)
        configs = tuple(Config({"RBLOCK": tile // width, "XBLOCK": width}, 4) for tile in tiles)
        own = Axis("table_row", rows.count)
        table = Dim((own,), "table_row", "RBLOCK", 0)
        x = Dim(rows.axes, nest.variable(rows.axes, "within"), "XBLOCK", 1)
        p = self._printer([table, x])
        loop = [nest.loop.id]
        nest.declare(p, table, "tl.program_id(0) * RBLOCK", configs)
        nest.declare(p, x, "tl.program_id(1) * XBLOCK", configs)
        count, few, total = p.fresh("count"), p.fresh("few"), p.fresh("total")
        mask = f", mask={table.mask}, other=0" if table.mask else ""
        p.out.add(f"{count} = tl.load({p.pointer(self.counts.name)} + table_row{mask})", loop)
        p.out.add(f"{few} = tl.where({count} > {self.most}, 0, {count})", loop)
        p.out.add(f"{total} = tl.full([RBLOCK, XBLOCK], 0.0, tl.float32)", loop)
        p.out.enter(f"for number in range(0, tl.max(tl.max({few}, axis=1), axis=0)):", loop)
        here = p.fresh("named")
        p.out.add(f"{here} = number < {few}", loop)
        points = Dim(rows.points, nest.variable(rows.points, "point"), "RBLOCK", 0, here)
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
        value, p.names = nest.base_at(kept)
        scope = p.define([value], {})
        where, mask = p.element(nest.out.name, nest.out.offset(kept), scope, (), write=True)
        p.out.add(f"tl.store({where}, {p.text(value, scope)} + {total}{mask})", loop)
        grid = [f"cdiv({rows.count}, RBLOCK)", f"cdiv({rows.length}, XBLOCK)"]
        nest.add(nest.symbol, p, grid, configs)

    def _add_often(self, p: TilePrinter, count: str, total: str, x: Dim) -> None:
        loop = [self.nest.loop.id]
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
        for dim in range(len(self.nest.out.shape)):
            axis = own if dim == self.rows.dim else next(inner)
            kept.append(index(0) if axis is None else index(axis))
        return kept

    # -- parts of them -----------------------------------------------------------------------------------

    def _printer(self, dims: list[Dim]) -> TilePrinter:
        nest = self.nest
        letters = nest.letters | {"table_row": "table_row"}
        p = TilePrinter(nest.values, nest.buffers, nest.writer, dims, letters)
        p.names = nest.resolver.names
        return p

    def _row(self, p: TilePrinter, points: Dim) -> tuple[str, str]:
        """Names of the rows that the points of a tile add to, and of whether there is such a row."""
        roots = [self.rows.row] + ([self.skipped] if self.skipped else [])
        scope = p.define(roots, {}, always=True)
        text = p.text(self.rows.row, scope)
        tests = [points.mask, f"({text} >= 0)", f"({text} < {self.rows.count})"]
        tests += [f"~({p.text(self.skipped, scope)})"] if self.skipped else []
        row, inside = p.fresh("row"), p.fresh("inside")
        loop = [self.nest.loop.id]
        p.out.add(f"{inside} = {' & '.join(item for item in tests if item)}", loop)
        p.out.add(f"{row} = tl.where({inside}, {text}, 0).to(tl.int32)", loop)
        return row, inside

    def _value(self, p: TilePrinter, scope: Scope) -> str:
        """What a point adds, in float32."""
        text = p.text(self.value, p.define([self.value], scope))
        if self.value.dtype != torch.float32:
            text = self.nest.writer.cast(text, self.value.dtype, torch.float32)
        return bare(text)


def _but_for_zeros(value: Value, rows: Rows) -> tuple[Value, Value | None]:
    """What points add but for those that add nothing, and which those are: the padding of an embedding, which
    may be most points, all in one row."""
    if value.op == "where" and value.args[0].axes <= set(rows.points):
        skipped, zero, rest = value.args
        if zero.kind == "const" and zero.literal == 0:
            return rest, skipped
    return value, None
