"""The *columns* nest: the reduced axis is not the contiguous one, so neighbouring columns go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nbcompile.compiler.codegen.c.accumulators import Accumulator
from nbcompile.compiler.codegen.c.expressions import REGISTER_TYPES
from nbcompile.compiler.codegen.c.kernel import CACHE_BYTES, TILE, Scope, make_accumulator, strip
from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, product
from nbcompile.compiler.loop_ir.versions import Part

if TYPE_CHECKING:
    from nbcompile.compiler.codegen.c.nests import Nests


def is_columns(nests: Nests) -> bool:
    """Whether memory lies along the rows' last axis rather than along the reduced ones."""
    rows, inner = nests.nest.rows, nests.nest.inner_axes
    if not rows or any(acc.item.position is not None for acc in nests.split.values()):
        return False
    if any(item.position is not None for item in nests.values.reductions):
        return False
    return nests.contiguous(rows[-1]) > nests.contiguous(inner[-1])


@dataclass(frozen=True)
class _Tile:
    """Neighbouring columns ``first .. first + width`` of ``axis``, at most ``size``, one a ``lane``."""

    nests: Nests
    axis: Axis
    size: int
    first: str
    width: str
    lane: str

    def open_tiles(self) -> None:
        """The loop over tiles."""
        out, extent, first = self.nests.out, self.nests.extent(self.axis), self.first
        out.open(f"for (long {first} = 0; {first} < {extent}; {first} += {self.size})", axes=(self.axis,))
        out.add(
            f"const long {self.width} = {extent} - {first} < {self.size} ? {extent} - {first} : {self.size};"
        )

    def open(self, piece: tuple[int, int] | None = None, part: Part | None = None) -> None:
        """The loop over the columns of the tile, or of what of it lies in ``piece`` of the axis."""
        low, high = "0", self.width
        if piece is not None and piece[0] > 0:
            low = f"({piece[0]} > {self.first} ? {piece[0]} - {self.first} : 0)"
        if piece is not None and piece[1] != self.axis.extent.constant:
            most = f"{piece[1]} - {self.first}"
            high = f"({most} < {self.width} ? {most} : {self.width})"
        head = f"for (long {self.lane} = {low}; {self.lane} < {high}; {self.lane}++)"
        self.nests.out.open(head, axes=(self.axis,), part=part)
        column = self.nests.axis_names[self.axis.text]
        self.nests.out.add(f"const long {column} = {self.first} + {self.lane};")

    def array(self, kind: str, name: str, origin: str) -> None:
        """Declare one element a column."""
        self.nests.out.add(f"{kind} {name}[{self.size}];", [origin])


def columns_nest(nests: Nests) -> None:
    """Print a nest that walks a tile of neighbouring columns together."""
    rows, inner = nests.nest.rows, nests.nest.inner_axes
    outer, last = rows[:-1], rows[-1]
    count = product(axis.extent for axis in inner)
    size = _tile_size(outer, last, count)
    tile = _Tile(nests, last, size, nests.fresh("first"), nests.fresh("width"), nests.fresh("lane"))
    split = list(nests.split.values())
    pragma = nests.parallel_pragma(nests.clauses(split, arrays=True), len(outer) + 1)
    if pragma:
        nests.out.add(pragma)
    for axis in outer:
        nests.for_(axis)
    tile.open_tiles()
    scope: Scope = {}
    for level in range(nests.top_level() + 1):
        _column_level(nests, level, scope, tile)
        scope = _pass(nests, level, scope, tile, count)
    _overwrite(nests, scope, tile)
    nests.out.close()
    for _ in outer:
        nests.out.close()


def _pass(nests: Nests, level: int, scope: Scope, tile: _Tile, count: IndexExpr) -> Scope:
    """One walk down the tile; returns the scope with what was made once per column for it."""
    inner, lane = nests.nest.inner_axes, tile.lane
    stores, reductions, split = nests.pass_work(level)
    if not (stores or reductions or split):
        return scope
    scope = _per_column(nests, nests.pass_roots(level), scope, tile)
    accumulators = [make_accumulator(nests, item, count.hint()) for item in reductions]
    for acc in accumulators:
        tile.array(acc.type, acc.name, acc.item.loop.id)
        start = f"for (long {lane} = 0; {lane} < {tile.width}; {lane}++) {acc.name}[{lane}] = {acc.start};"
        nests.out.add(start, [acc.item.loop.id])
    for axis in inner:
        nests.for_(axis)

    def target(acc: Accumulator, here: Scope) -> str:
        return nests.split_target(acc, here) if acc.item.split else f"{acc.name}[{lane}]"

    nests.innermost(
        tile.axis, stores, accumulators + split, scope, header=tile.open, target=target,
        outside=[acc.name for acc in accumulators],
    )  # fmt: skip
    for _ in inner:
        nests.out.close()
    for acc in accumulators:
        _column_result(nests, acc, count, tile)
    return scope


def _per_column(nests: Nests, roots: Sequence[Value], scope: Scope, tile: _Tile) -> Scope:
    """Arrays of what depends on the column only and is used at every reduced point."""
    order, certain = nests.needed(roots, {}, scope)
    inner = nests.nest.inner
    used = {child.number for user in order if user.axes & inner for child in user.inputs()}
    wanted = [
        value for value in order
        if value.number in used and value.number in certain and value.kind == "op" and not value.axes & inner
    ]  # fmt: skip
    if not wanted:
        return scope
    names = {value.number: nests.fresh(nests.names.get(value.number) or "t") for value in wanted}
    for value in wanted:
        tile.array(REGISTER_TYPES[value.dtype], names[value.number], value.origin)
    nests.out.add(f"#pragma omp simd{nests.clauses([], arrays=False)}")
    tile.open()
    local = nests.define(wanted, {}, scope)
    nests.report_needed(wanted, {}, scope, local)
    for value in wanted:
        element = f"{names[value.number]}[{tile.lane}]"
        nests.out.add(f"{element} = {strip(nests.text(value, local))};", [value.origin])
    nests.out.close()
    return {**scope, **{number: f"{name}[{tile.lane}]" for number, name in names.items()}}


def _column_level(nests: Nests, level: int, scope: Scope, tile: _Tile) -> None:
    """What is made once per column and needs ``level`` passes: stores, but for what overwrites memory that a
    later pass reads, and split reductions."""
    stores = [
        item for item in nests.values.stores
        if not item.last and not nests.is_full(item) and nests.level(item.value) == level
    ]  # fmt: skip
    split = [
        acc for acc in nests.split.values()
        if nests.level(acc.item.value) == level and not nests.split_full(acc)
    ]  # fmt: skip
    if not (stores or split):
        return
    roots = [item.value for item in stores] + [acc.item.value for acc in split]
    nests.out.add(f"#pragma omp simd{nests.clauses(split, arrays=False)}")
    tile.open()
    local = nests.define(roots, {}, scope)
    nests.report_needed(roots, {}, scope, local)
    for item in stores:
        nests.store(item, local)
    for acc in split:
        for line in acc.update(nests.split_target(acc, local), nests.text(acc.item.value, local)):
            nests.out.add(line, [acc.item.loop.id])
    nests.out.close()


def _overwrite(nests: Nests, scope: Scope, tile: _Tile) -> None:
    """Overwrite memory with what is made once per column, after the last pass: nothing reads it any more, but
    for the values stored here, which are all made first."""
    stores = [item for item in nests.values.stores if item.last and not nests.is_full(item)]
    if not stores:
        return
    nests.out.add("#pragma omp simd")
    tile.open()
    local = nests.define([item.value for item in stores], {}, scope)
    for item in stores:
        if item.value.number not in local and item.value.kind in ("op", "load", "guard"):
            name = nests.fresh(nests.names.get(item.value.number) or "t")
            text = strip(nests.text(item.value, local))
            nests.out.add(f"const {REGISTER_TYPES[item.value.dtype]} {name} = {text};", [item.value.origin])
            local = {**local, item.value.number: name}
    for item in stores:
        nests.store(item, local)
    nests.out.close()


def _column_result(nests: Nests, acc: Accumulator, count: IndexExpr, tile: _Tile) -> None:
    """Give the finished results of a tile a name, and store them if they are needed in memory."""
    item, lane = acc.item, tile.lane
    kind = REGISTER_TYPES[nests.buffers[item.output].dtype]
    text = f"{acc.name}[{lane}]"
    stored = item.output in nests.values.group.stored
    convert = item.kind == "mean" or acc.type != kind
    if convert:
        divided = f"{text} / ({nests.place(count, {})})" if item.kind == "mean" else text
        name = nests.fresh(f"{item.output}_col")
        tile.array(kind, name, item.loop.id)
    if convert or stored:
        nests.out.add("#pragma omp simd")
        tile.open()
        if convert:
            nests.out.add(f"{name}[{lane}] = ({kind})({divided});", [item.loop.id])
            text = f"{name}[{lane}]"
        if stored:
            memory = nests.memory(item.output, write=True)
            value = nests.stored(text, nests.buffers[item.output].dtype)
            nests.out.touch(item.output, item.place, write=True)
            nests.out.add(f"{memory}[{nests.place(item.place, {})}] = {value};", [item.loop.id])
        nests.out.close()
    nests.reduced_text[item.output] = text


def _tile_size(outer: Sequence[Axis], last: Axis, count: IndexExpr) -> int:
    """Columns walked together: few enough that all their rows stay in cache between passes, many
    enough to fill the lanes and the threads."""
    tile = TILE
    rows = max(count.hint(), 1)
    while tile > 16 and tile * rows * 4 > CACHE_BYTES:
        tile //= 2
    while tile > 16 and product(axis.extent for axis in outer).hint() * last.extent.hint() < 4 * tile:
        tile //= 2
    return tile
