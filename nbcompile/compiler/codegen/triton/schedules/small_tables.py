"""Adding many points into a table of few rows: each program sums its points row by row, a second function
adds up what the programs have.

Atomics would all meet in the same few places. Here each lane compares the row that its point names with every
row of the table and adds to those that agree: nothing is shared, and sums are always made in one order. Of
half types the sum is a matrix product on the tensor cores: the comparisons, as zeros and ones, by the values,
all of which are exact in it. What is not finite would spread along its column, so it is counted beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from nbcompile.compiler.codegen.triton.block_printers import PointsPrinter, staged
from nbcompile.compiler.codegen.triton.expressions import MEMORY_TYPES, TRITON_TYPES
from nbcompile.compiler.codegen.triton.schedules.scatter import ScatterNest
from nbcompile.compiler.codegen.triton.tile_printer import Dim, Scope, TilePrinter, bare
from nbcompile.compiler.kernel_ir.values import Gathered, Value
from nbcompile.compiler.loop_ir.expr import HALF, compute_dtype
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, index, product
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.stages import Config

MOST_ROWS = 64
POINTS_A_ROW = 32  # with fewer, atomics seldom meet
LONG_ROW = 64  # elements of a row that lanes are spread over; points are, where rows are shorter
TILE = 4096
PRODUCT = 4096  # values that go into one product
LEAST_PRODUCT = 4  # elements of a row: a product has 16, if only of zeros
TOGETHER = 4  # elements of a short row that one program sums
PROGRAMS = 8  # on a multiprocessor
FINISH_TILE = 2048


@dataclass(frozen=True)
class Rows:
    """Where the points of a scatter go: all of a row's elements to the row of the output that ``row`` names.

    dim:    the output's dimension that rows are counted along; ``count`` of them.
    inner:  the axis for each other dimension of the output, along which a row's elements lie; None for a
            dimension of extent 1.
    points: the other axes: a row is named for each of their points.
    """

    dim: int
    row: Value
    count: IndexExpr
    inner: tuple[Axis | None, ...]
    points: tuple[Axis, ...]

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.inner if axis is not None)

    @property
    def length(self) -> int:
        """Elements of a row."""
        return product(axis.extent for axis in self.axes).hint()

    @property
    def named(self) -> int:
        """How often a row is named."""
        return product(axis.extent for axis in self.points).hint()


def rows_of(nest: ScatterNest) -> Rows | None:
    """The rows of a scatter of static size; None if it is not of this form."""
    found: tuple[int, Gathered] | None = None
    inner: list[Axis | None] = []
    for dim, (place, extent) in enumerate(zip(nest.targets, nest.out.shape, strict=True)):
        if place.axis is not None and place.axis.extent == extent and place.axis not in inner:
            inner.append(place.axis)
        elif extent == ONE and place.constant == 0:
            inner.append(None)
        elif (
            found is None and len(place.terms) == 1 and place.terms[0][1] == 1 and len(place.terms[0][0]) == 1
        ):
            (atom,) = place.terms[0][0]
            if not isinstance(atom, Gathered):
                return None
            found = dim, atom
        else:
            return None
    axes = nest.values.nest.axes
    static = all(axis.extent.constant for axis in axes) and all(e.constant for e in nest.out.shape)
    if found is None or not static or found[1].value.axes & set(inner):
        return None
    dim, atom = found
    points = tuple(axis for axis in axes if axis not in inner)
    return Rows(dim, atom.value, nest.out.shape[dim], tuple(inner), points)


def is_small_table(nest: ScatterNest, rows: Rows) -> bool:
    """Whether a scatter adds so many points to so few rows."""
    count = rows.count.hint()
    floating = nest.out.dtype.is_floating_point
    return nest.loop.mode == "add" and floating and count <= MOST_ROWS and rows.named >= POINTS_A_ROW * count


def half_of(nest: ScatterNest) -> torch.dtype | None:
    """The half type that all points of a scatter into that type have; None if they were computed."""
    dtype = nest.out.dtype
    return dtype if dtype in HALF and _is_rounded(nest.value, dtype, nest.buffers) else None


def _is_rounded(value: Value, dtype: torch.dtype, buffers: Mapping[str, Buffer]) -> bool:
    if value.kind == "const":
        return value.literal in (0, 1)
    if value.kind == "load":
        return buffers[value.buffer].dtype == dtype
    if value.op == "where":
        return all(_is_rounded(arg, dtype, buffers) for arg in value.args[1:])
    return value.op == ("round_bf16" if dtype == torch.bfloat16 else "round_f16")


class SmallTable:
    """Prints the functions of such a scatter."""

    def __init__(self, nest: ScatterNest, rows: Rows, multiprocessors: int) -> None:
        self.nest, self.rows = nest, rows
        self.dtype = compute_dtype(nest.out.dtype)
        self.block = 1 << max(rows.count.hint() - 1, 1).bit_length()
        self.long = rows.length >= LONG_ROW
        self.half = half_of(nest) if rows.length >= LEAST_PRODUCT else None
        programs = PROGRAMS
        if self.half:
            self.block = max(self.block, 16)  # the least that a product takes
            width = min(64, max(16, 1 << (rows.length - 1).bit_length()))
            self.each = min(128, PRODUCT // width)
            across, programs = -(-rows.length // width), PROGRAMS // 2
            constants = {"ROWS": self.block, "PBLOCK": self.each, "XBLOCK": width}
            warps = self.each * width // 1024
            self.configs: tuple[Config, ...] = tuple(
                Config(constants | {"STAGES": stages}, each)
                for stages, each in ((3, warps), (3, warps * 2), (1, warps))
            )
        elif self.long:
            width = min(256, 1 << (rows.length - 1).bit_length(), max(LONG_ROW, 2 * TILE // self.block))
            self.each = 8 if self.block <= 8 else 4  # points under way at once
            across = -(-rows.length // width)
            warps = 4 if self.block * width <= TILE else 8
            self.configs = (Config({"ROWS": self.block, "XBLOCK": width}, warps),)
        else:
            lanes = min(512, TILE // self.block)
            self.each = lanes
            # a sum over the lanes, at the end of each program, costs as much as some of its steps
            across, programs = -(-rows.length // TOGETHER), PROGRAMS // 2
            wide = Config({"ROWS": self.block, "XBLOCK": lanes}, 8)
            self.configs = (wide, Config({"ROWS": self.block, "XBLOCK": lanes}, 4))
        blocks = -(-rows.named // self.each)
        steps = -(-blocks // max(1, min(programs * multiprocessors // across, blocks)))
        self.slabs = -(-blocks // steps)  # as many programs as have an equal share
        self.across = across
        size = product(nest.out.shape)
        self.parts = Buffer(f"{nest.out.name}_parts", (size * self.slabs,), (ONE,), self.dtype)
        nest.buffers[self.parts.name] = self.parts
        nest.workspaces.append(self.parts)

    def print(self) -> None:
        table = Dim((Axis("table_row", self.rows.count),), "table_row", "ROWS", 0)
        if self.half:
            self._products()
        elif self.long:
            self._long_rows(table)
        else:
            self._short_rows(table)
        self._finish()

    # -- parts -------------------------------------------------------------------------------------------

    def _printer(self, dims: list[Dim]) -> TilePrinter:
        nest = self.nest
        letters = nest.letters | {"table_row": "table_row"}
        p = TilePrinter(nest.values, nest.buffers, nest.writer, dims, letters)
        p.names = nest.resolver.names
        return p

    def _row(self, p: TilePrinter, scope: Scope, inside: str) -> tuple[str, Scope]:
        """The name of the row that a point adds to: -1 if it is none of the table, or not ``inside``."""
        scope = p.define([self.rows.row], scope, always=True)
        text = p.text(self.rows.row, scope)
        count = self.rows.count.hint()
        name = p.fresh("named")
        masks = " & ".join(item for item in (inside, f"({text} >= 0)", f"({text} < {count})") if item)
        p.out.add(f"{name} = tl.where({masks}, {text}, -1).to(tl.int32)", [self.nest.loop.id])
        return name, scope

    def _accumulate(self, p: TilePrinter, total: str, hit: str, scope: Scope) -> None:
        value = self.nest.value
        text = p.text(value, p.define([value], scope))
        if value.dtype != self.dtype:
            text = self.nest.writer.cast(text, value.dtype, self.dtype)
        p.out.add(f"{total} += tl.where({hit}, {bare(text)}, 0.0)", [self.nest.loop.id])

    def _products(self) -> None:
        """Lanes are points and elements of a row: their sums are a product with the comparisons."""
        nest, rows = self.nest, self.rows
        points = Dim(rows.points, nest.variable(rows.points, "point"), "PBLOCK", 0)
        x = Dim(rows.axes, nest.variable(rows.axes, "within"), "XBLOCK", 1)
        p = self._printer([points, x])
        loop = [nest.loop.id]
        nest.declare(p, x, f"{nest.program(p, 1)} * XBLOCK", self.configs)
        total, strange = p.fresh("total"), p.fresh("strange")
        p.out.add(f"{total} = tl.full([ROWS, XBLOCK], 0.0, tl.float32)", loop)
        p.out.add(f"{strange} = tl.full([PBLOCK, XBLOCK], 0, tl.int32)", loop)
        start = f"{nest.program(p, 0)} * PBLOCK"
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
        self._store(p, total, masks + ([x.mask] if x.mask else []))
        nest.add(nest.symbol, p, [str(self.slabs), str(self.across)], self.configs)

    @property
    def half_text(self) -> str:
        return MEMORY_TYPES[self.half or torch.bfloat16]

    def _compared(self, p: TilePrinter, points: Dim, x: Dim) -> tuple[str, str, str]:
        """Names of a block's comparisons with the rows, of its values, and of which of them are finite."""
        nest, rows, loop = self.nest, self.rows, [self.nest.loop.id]
        p.out.add(f"{points.name} = {p.lanes(points, offset='start')}")
        points.mask = ""
        if rows.named % self.each:
            points.mask = p.fresh(f"{points.name}_in")
            p.out.add(f"{points.mask} = {points.name} < {rows.named}")
        p.declare_axes(points)
        name, scope = self._row(p, {}, points.mask)
        hit, value, finite = p.fresh("hit"), p.fresh("value"), p.fresh("finite")
        p.out.add(f"{hit} = (tl.arange(0, ROWS)[:, None] == tl.trans({name})).to({self.half_text})", loop)
        text = bare(p.text(nest.value, p.define([nest.value], scope)))
        masks = [dim.mask for dim in (points, x) if dim.mask]
        if masks or nest.value.axes < {*rows.points, *rows.axes}:
            mask = " & ".join(masks) or "True"
            text = f"tl.where({mask}, {text}, tl.full([PBLOCK, XBLOCK], 0.0, tl.float32))"
        p.out.add(f"{value} = {text}", loop)
        p.out.add(f'{finite} = tl.abs({value}) < float("inf")', loop)
        return hit, value, finite

    def _short_rows(self, table: Dim) -> None:
        """Lanes are points: a tile of all rows by some points for each of a few elements."""
        nest, rows = self.nest, self.rows
        x = Dim(rows.points, nest.variable(rows.points, "point"), "XBLOCK", 1)
        p = self._printer([table, x])
        nest.declare(p, table, "", self.configs)
        many = min(TOGETHER, rows.length)
        places = [self._element(p, number, many) for number in range(many)]
        totals = [self._zeros(p) for _ in range(many)]
        named = product(axis.extent for axis in rows.points)
        step = f"{self.slabs} * XBLOCK"
        p.out.enter(f"for start in range({nest.program(p, 0)} * XBLOCK, {nest.size(p, named)}, {step}):")
        p.out.add(f"{x.name} = {p.lanes(x, offset='start')}")
        x.mask = p.fresh(f"{x.name}_in")
        p.out.add(f"{x.mask} = {x.name} < {nest.size(p, named)}")
        p.declare_axes(x)
        name, scope = self._row(p, {}, x.mask)
        hit = p.fresh("hit")
        p.out.add(f"{hit} = {name} == {table.name}", [nest.loop.id])
        for letters, total in zip(places, totals, strict=True):
            p.letters |= letters
            self._accumulate(p, total, hit, scope)
        p.out.leave()
        for letters, total in zip(places, totals, strict=True):
            p.letters |= letters
            p.out.add(f"{total} = tl.sum({total}, axis=1)[:, None]", [nest.loop.id])
            mask = [table.mask] if table.mask else []
            if rows.length % many:
                mask.append(f"({letters['inside']} < {rows.length})")
            self._store(p, total, mask)
        nest.add(nest.symbol, p, [str(self.slabs), str(self.across)], self.configs)

    def _element(self, p: TilePrinter, number: int, many: int) -> dict[str, str]:
        """The letters of a row's axes for element ``number`` of those that this program sums. Beyond the
        row's end it is its last one, whose sum is not kept."""
        rows = self.rows
        first = f"{self.nest.program(p, 1)} * {many} + {number}"
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
            text = at if step == rows.length else f"({at} % {step})"
            letters[axis.text] = p.fresh(self.nest.letters[axis.text])
            p.out.add(f"{letters[axis.text]} = {bare(text if inner == 1 else f'{text} // {inner}')}")
            step = inner
        return letters

    def _long_rows(self, table: Dim) -> None:
        """Lanes lie along the row: points come one by one, a few of them under way at once."""
        nest, rows = self.nest, self.rows
        x = Dim(rows.axes, nest.variable(rows.axes, "within"), "XBLOCK", 1)
        p = self._printer([table, x])
        nest.declare(p, table, "", self.configs)
        nest.declare(p, x, f"{nest.program(p, 1)} * XBLOCK", self.configs)
        total = self._zeros(p)
        step = f"{self.slabs * self.each}"
        p.out.enter(f"for start in range({nest.program(p, 0)} * {self.each}, {rows.named}, {step}):")
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
                letters[axis.text] = p.fresh(nest.letters[axis.text])
            p.letters = letters
            p.declare_axes(d)
            name, scope = self._row(p, {}, inside)
            scope = p.define([nest.value], scope, always=True)
            found.append((letters, name, scope))
        for letters, name, scope in found:
            p.letters = letters
            self._accumulate(p, total, f"{name} == {table.name}", scope)
        p.out.leave()
        self._store(p, total, [item for item in (table.mask, x.mask) if item])
        nest.add(nest.symbol, p, [str(self.slabs), str(self.across)], self.configs)

    def _zeros(self, p: TilePrinter) -> str:
        name = p.fresh("total")
        p.out.add(f"{name} = tl.full({p.shape_text()}, 0.0, {TRITON_TYPES[self.dtype]})", [self.nest.loop.id])
        return name

    def _store(self, p: TilePrinter, text: str, masks: list[str]) -> None:
        """Keep a program's sums, in the order of the output's elements."""
        shape = self.nest.out.shape
        place = index(0)
        own = Axis("table_row", self.rows.count)
        for dim, extent in enumerate(shape):
            axis = own if dim == self.rows.dim else self.rows.inner[dim - (dim > self.rows.dim)]
            place = place * extent + (0 if axis is None else axis)
        slab = f"{self.nest.program(p, 0)} * {product(shape).hint()}"
        pointer = p.pointer(self.parts.name, write=True)
        mask = f", mask={' & '.join(masks)}" if masks else ""
        p.out.add(f"tl.store({pointer} + {slab} + {p.place(place, {})}, {text}{mask})", [self.nest.loop.id])

    # -- their sum ---------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """``output = base + the sum of all parts``."""
        nest = self.nest
        axes, kept = nest.places_of(nest.out)
        size = product(nest.out.shape).hint()
        block = max(4, min(32, 1 << (size // 128).bit_length()))
        slabs = min(FINISH_TILE // block, 1 << (self.slabs - 1).bit_length())
        configs = (Config({"XBLOCK": block, "SBLOCK": slabs}, max(1, block * slabs // 512)),)
        value, names = nest.base_at(kept)
        letters = {axis.text: f"c{n}" for n, axis in enumerate(axes)}
        x = Dim(axes, letters[axes[0].text] if len(axes) == 1 else "point", "XBLOCK", 0)
        s = Dim((Axis("slab", index(self.slabs)),), "slab", "SBLOCK", 1)
        p = PointsPrinter(nest.values, nest.buffers, nest.writer, [x, s], letters | {"slab": "slab"})
        p.names = names
        nest.declare(p, x, f"{nest.program(p, 0)} * XBLOCK", configs)
        loop = [nest.loop.id]
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
        where, mask = p.element(nest.out.name, nest.out.offset(kept), scope, (), write=True)
        text = p.text(value, scope)
        p.out.add(f"tl.store({where}, {text} + tl.sum({total}, axis=1)[:, None]{mask})", loop)
        nest.add(f"{nest.symbol}_finish", p, [f"cdiv({size}, XBLOCK)"], configs)
