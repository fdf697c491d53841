"""The *columns* nest: the reduced axis is not the contiguous one, so neighbouring columns go together."""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.compiler.codegen.c.accumulators import Accumulator, place_type
from nbcompile.compiler.codegen.c.along import turnable, turned
from nbcompile.compiler.codegen.c.expressions import REGISTER_TYPES
from nbcompile.compiler.codegen.c.kernel import Scope, contiguous
from nbcompile.compiler.codegen.c.nests import Lanes, Nests, PointWork
from nbcompile.compiler.codegen.expression import Expression
from nbcompile.compiler.kernel_ir.guard_ranges import Range
from nbcompile.compiler.kernel_ir.values import Value, walk_values
from nbcompile.compiler.loop_ir.expr import compute_dtype
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, product
from nbcompile.compiler.loop_ir.versions import Part

TILE = 512  # columns walked together
SHORT, SHORTEST = 8, 3  # elements of a row
MANY = 64  # rows
LEAST = 8  # columns: half a vector
CACHE_BYTES = 16 << 20  # wide tiles stream; narrow ones miss in every page of every row


def is_columns(nests: Nests) -> bool:
    """Whether memory lies along the rows' last axis rather than along the reduced ones."""
    rows, inner = nests.nest.rows, nests.nest.inner_axes
    if not rows or any(item.position is not None and item.split for item in nests.values.reductions):
        return False
    if _are_short(nests) or _are_turned(nests):
        return True
    along, across = (contiguous(nests.values, nests.buffers, axis) for axis in (rows[-1], inner[-1]))
    return along > across


def _are_short(nests: Nests) -> bool:
    """Whether a vector along a row would be empty for the most part, and one across the rows pays, though
    their memory lies apart: it does where more is done with an element than a sum."""
    count = product(axis.extent for axis in nests.nest.inner_axes).constant
    if count is None or count >= SHORT or nests.nest.rows[-1].extent.hint() < MANY:
        return False
    values = nests.values
    compares = any(item.kind in ("max", "min") for item in values.reductions)
    return (
        count <= SHORTEST
        or compares
        or any(item.op in ("exp", "log") for item in walk_values(values.roots) if item.kind == "op")
    )


def _are_turned(nests: Nests) -> bool:
    """Whether all that lies along a row, and is another one in each column, can be copied in another order,
    so that sums of neighbouring columns go side by side: distances to a few centres."""
    *outer, last = nests.nest.rows
    inner = nests.nest.inner_axes
    if last.extent.hint() < LEAST or any(nests.is_full(item) for item in nests.values.stores):
        return False
    copied = {value.number for value in turnable(nests, outer, inner, last)}
    loads = [item for item in walk_values(nests.values.roots) if item.kind == "load" and last in item.axes]
    here = all(item.number in copied or item.place.coefficient(last) == ONE for item in loads)
    return bool(copied) and here and all(item.position is None for item in nests.values.reductions)


class _Tile(Lanes):
    """Neighbouring columns ``first .. first + width`` of ``axis``, at most ``size``, one a ``lane``;
    ``whole``: all of them, and there is no loop over tiles."""

    def __init__(self, nests: Nests, axis: Axis, size: int, whole: bool) -> None:
        super().__init__(nests, axis)
        self.whole, self.size = whole, axis.extent.hint() if whole else size
        self.first, self.width, self.lane = map(nests.fresh, ("first", "width", "lane"))
        if whole:
            self.first, self.width = "0", str(self.size)

    def open_tiles(self) -> None:
        """The loop over tiles."""
        if self.whole:
            return
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
        self.nests.out.add(f"const long {column} = {'' if self.whole else f'{self.first} + '}{self.lane};")

    @property
    def element(self) -> str:
        return self.lane

    def target(self, acc: Accumulator, scope: Scope) -> str:
        return super().target(acc, scope) if acc.item.split else f"{acc.name}[{self.lane}]"

    def has_own(self, acc: Accumulator) -> bool:
        return not acc.item.split

    def array(self, kind: str, name: str, origin: str) -> None:
        """Declare one element a column."""
        self.nests.out.add(f"{kind} {name}[{self.size}];", [origin])


def columns_nest(nests: Nests) -> None:
    """Print a nest that walks a tile of neighbouring columns together."""
    rows, inner = nests.nest.rows, nests.nest.inner_axes
    outer, last = rows[:-1], rows[-1]
    count = product(axis.extent for axis in inner)
    size, extent = _tile_size(outer, last, count), last.extent.constant
    tile = _Tile(nests, last, size, whole=bool(outer) and extent is not None and extent <= size)
    scope = turned(nests, turnable(nests, outer, inner, last), inner, last)
    loops = len(outer) + (not tile.whole)
    pragma = nests.parallel_pragma(nests.clauses(nests.split.values(), arrays=True), loops)
    if pragma:
        nests.out.add(pragma)
    for axis in outer:
        nests.for_(axis)
    tile.open_tiles()
    for level in range(nests.top_level + 1):
        _once(nests, level, scope, tile)
        scope = _pass(nests, level, scope, tile, count)
    _overwrite(nests, scope, tile)
    for _ in range(loops):
        nests.out.close()


def _pass(nests: Nests, level: int, scope: Scope, tile: _Tile, count: IndexExpr) -> Scope:
    """One walk down the tile; returns the scope with what was made once per column for it."""
    inner, lane = nests.nest.inner_axes, tile.lane
    stores, reductions, split = nests.pass_work(level)
    if not (stores or reductions or split):
        return scope
    scope = _per_column(nests, nests.pass_roots(level), scope, tile)
    accumulators = [nests.accumulator(item, count.constant) for item in reductions]
    for acc in accumulators:
        tile.array(acc.type, acc.name, acc.item.loop.id)
        starts = [f"{acc.name}[{lane}] = {acc.start};"]
        if acc.item.position is not None:
            tile.array(place_type(count), acc.result, acc.item.loop.id)
            starts.append(f"{acc.result}[{lane}] = 0;")
        for start in starts:
            head = f"for (long {lane} = 0; {lane} < {tile.width}; {lane}++)"
            nests.out.add(f"{head} {start}", [acc.item.loop.id])
    for axis in inner:
        nests.for_(axis)
    work = PointWork(stores, accumulators + split)

    def write(region: Range) -> None:
        around = nests.hoist(work.values, frozenset((tile.axis,)), scope, region)
        nests.innermost(tile, work, around, region)

    nests.regions((*inner, *nests.nest.rows[:-1]), work.roots, write)
    for _ in inner:
        nests.out.close()
    for acc in accumulators:
        _result(nests, acc, count, tile)
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
    # of all columns alike: a number, for what is computed of it before the columns are walked
    numbers = [value for value in wanted if tile.axis not in value.axes]
    scope = nests.made(numbers, nests.define(numbers, {}, scope))
    wanted = [value for value in wanted if tile.axis in value.axes]
    if not wanted:
        return scope
    elements: dict[int, Expression] = {}
    for value in wanted:
        array = nests.fresh(nests.names.get(value.number) or "t")
        tile.array(REGISTER_TYPES[value.dtype], array, value.origin)
        elements[value.number] = Expression(f"{array}[{tile.lane}]", value.dtype)
    nests.out.add(f"#pragma omp simd{nests.clauses([], arrays=False)}")
    tile.open()
    local = nests.inside(wanted, {}, scope)
    for value in wanted:
        nests.out.add(f"{elements[value.number].text} = {nests.code(value, local).text};", [value.origin])
    nests.out.close()
    return {**scope, **elements}


def _once(nests: Nests, level: int, scope: Scope, tile: _Tile) -> None:
    """What is made once per column and needs ``level`` passes: stores, but for what overwrites memory that a
    later pass reads, and split reductions."""
    once = nests.once_of(level)
    work = PointWork([item for item in once.stores if not item.last], once.accumulators)
    if not (work.stores or work.accumulators):
        return
    nests.out.add(f"#pragma omp simd{nests.clauses(work.accumulators, arrays=False)}")
    tile.open()
    local = nests.inside(work.values, {}, scope)
    for item in work.stores:
        nests.store(item, local)
    nests.fold_once(work.accumulators, local)
    nests.out.close()


def _overwrite(nests: Nests, scope: Scope, tile: _Tile) -> None:
    """Overwrite memory with what is made once per column, after the last pass: nothing reads it any more, but
    for the values stored here, which are all made first."""
    stores = [item for item in nests.values.stores if item.last and not nests.is_full(item)]
    if not stores:
        return
    nests.out.add("#pragma omp simd")
    tile.open()
    values = [item.value for item in stores]
    local = nests.made(values, nests.define(values, {}, scope))
    for item in stores:
        nests.store(item, local)
    nests.out.close()


def _result(nests: Nests, acc: Accumulator, count: IndexExpr, tile: _Tile) -> None:
    """Give the finished results of a tile a name, and store them if they are needed in memory."""
    output = acc.item.output
    dtype = compute_dtype(nests.buffers[output].dtype)
    kind, result = REGISTER_TYPES[dtype], Expression(f"{acc.result}[{tile.lane}]", dtype)
    made, converts = nests.finished(acc, result.text, count)
    if converts:
        array = nests.fresh(f"{output}_col")
        tile.array(kind, array, acc.item.loop.id)
        result = Expression(f"{array}[{tile.lane}]", dtype)
    if converts or output in nests.values.group.stored:
        nests.out.add("#pragma omp simd")
        tile.open()
        if converts:
            nests.out.add(f"{result.text} = ({kind})({made});", [acc.item.loop.id])
        nests.store_result(acc, result, {})
        nests.out.close()
    nests.reduced[output] = result


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
