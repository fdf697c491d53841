"""The *columns* nest: the reduced axis is not the contiguous one, so neighbouring columns go together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nbcompile.codegen.accumulators import Accumulator
from nbcompile.codegen.c_expressions import REGISTER_TYPES
from nbcompile.codegen.cpu_kernel import CACHE_BYTES, TILE, Scope, make_accumulator, strip
from nbcompile.codegen.values import Value
from nbcompile.loop_ir.index import Axis, IndexExpr, product

if TYPE_CHECKING:
    from nbcompile.codegen.cpu_nests import Nests


def is_columns(nests: Nests) -> bool:
    """Whether memory lies along the rows' last axis rather than along the reduced ones."""
    rows, inner = nests.nest.rows, nests.nest.inner_axes
    if not rows or any(acc.item.position is not None for acc in nests.split.values()):
        return False
    if any(item.position is not None for item in nests.values.reductions):
        return False
    return nests.contiguous(rows[-1]) > nests.contiguous(inner[-1])


def columns_nest(nests: Nests) -> None:
    """Print a nest that walks a tile of neighbouring columns together."""
    rows, inner = nests.nest.rows, nests.nest.inner_axes
    outer, last = rows[:-1], rows[-1]
    count = product(axis.extent for axis in inner)
    tile = _tile(outer, last, count)
    split = list(nests.split.values())
    lane, first, width = nests.fresh("lane"), nests.fresh("first"), nests.fresh("width")
    pragma = nests.parallel_pragma(nests.clauses(split, arrays=True), len(outer) + 1)
    if pragma:
        nests.out.add(pragma)
    for axis in outer:
        nests.for_(axis)
    extent = nests.extent(last)
    nests.out.open(f"for (long {first} = 0; {first} < {extent}; {first} += {tile})")
    nests.out.add(f"const long {width} = {extent} - {first} < {tile} ? {extent} - {first} : {tile};")
    column = nests.axis_names[last.text]

    def open_lanes(piece: tuple[int, int] | None = None) -> None:
        """Walk the tile, or what of it lies in ``piece`` of the columns."""
        low, high = "0", width
        if piece is not None and piece[0] > 0:
            low = f"({piece[0]} > {first} ? {piece[0]} - {first} : 0)"
        if piece is not None and piece[1] != last.extent.constant:
            high = f"({piece[1]} - {first} < {width} ? {piece[1]} - {first} : {width})"
        nests.out.open(f"for (long {lane} = {low}; {lane} < {high}; {lane}++)")
        nests.out.add(f"const long {column} = {first} + {lane};")

    def per_column(roots: Sequence[Value], scope: Scope) -> Scope:
        """Arrays of what depends on the column but not on the reduced axes."""
        order, certain = nests.needed(roots, {}, scope)
        wanted = [
            value for value in order
            if value.number in certain and value.kind == "op" and not value.axes & nests.nest.inner
            and any(not (item.axes & nests.nest.inner) and item is value for user in (*order, *roots)
                    for item in (*user.inputs(), user) if user.axes & nests.nest.inner)
        ]  # fmt: skip
        if not wanted:
            return scope
        names = {}
        for value in wanted:
            name = nests.fresh(nests.values.names.get(value.number) or "t")
            names[value.number] = name
            nests.out.add(f"{REGISTER_TYPES[value.dtype]} {name}[{tile}];", [value.origin])
        nests.out.add("#pragma omp simd")
        open_lanes()
        local = nests.define(wanted, {}, scope)
        for value in wanted:
            nests.out.add(
                f"{names[value.number]}[{lane}] = {strip(nests.text(value, local))};", [value.origin]
            )
        nests.out.close()
        return {**scope, **{number: f"{name}[{lane}]" for number, name in names.items()}}

    scope: Scope = {}
    for level in range(nests.top_level() + 1):
        _column_level(nests, level, scope, open_lanes)
        stores, reductions, split_here = nests.pass_work(level)
        if not (stores or reductions or split_here):
            continue
        scope = per_column(nests.pass_roots(level), scope)
        accumulators = [make_accumulator(nests, item, count.hint()) for item in reductions]
        for acc in accumulators:
            nests.out.add(f"{acc.type} {acc.name}[{tile}];", [acc.item.loop.id])
            nests.out.add(
                f"for (long {lane} = 0; {lane} < {width}; {lane}++) {acc.name}[{lane}] = {acc.start};",
                [acc.item.loop.id],
            )
        for axis in inner:
            nests.for_(axis)
        nests.innermost(
            last, stores, accumulators + split_here, scope, header=open_lanes,
            target=lambda acc, inner_scope: f"{acc.name}[{lane}]"
            if not acc.item.split else nests.split_target(acc, inner_scope),
            outside=[acc.name for acc in accumulators],
        )  # fmt: skip
        for _ in inner:
            nests.out.close()
        for acc in accumulators:
            _column_result(nests, acc, count, tile, lane, open_lanes)
    nests.out.close()
    for _ in outer:
        nests.out.close()


def _column_level(nests: Nests, level: int, scope: Scope, open_lanes: Callable[[], None]) -> None:
    stores = [
        item for item in nests.values.stores
        if not nests.full(item.value.axes, item.place) and nests.level(item.value) == level
    ]  # fmt: skip
    split = [
        acc for acc in nests.split.values()
        if nests.level(acc.item.value) == level and not nests.split_full(acc)
    ]  # fmt: skip
    if not (stores or split):
        return
    roots = [item.value for item in stores] + [acc.item.value for acc in split]
    nests.out.add(f"#pragma omp simd{nests.clauses(split, arrays=False)}")
    open_lanes()
    local = nests.define(roots, {}, scope)
    for item in stores:
        nests.store(item, local)
    for acc in split:
        for line in acc.update(nests.split_target(acc, local), nests.text(acc.item.value, local)):
            nests.out.add(line, [acc.item.loop.id])
    nests.out.close()


def _column_result(
    nests: Nests, acc: Accumulator, count: IndexExpr, tile: int, lane: str, open_lanes: Callable[[], None]
) -> None:
    item = acc.item
    kind = REGISTER_TYPES[nests.buffers[item.output].dtype]
    text = f"{acc.name}[{lane}]"
    stored = item.output in nests.values.group.stored
    convert = item.kind == "mean" or acc.type != kind
    if convert:
        divided = f"{text} / ({nests.place(count, {})})" if item.kind == "mean" else text
        name = nests.fresh(f"{item.output}_col")
        nests.out.add(f"{kind} {name}[{tile}];", [item.loop.id])
    if convert or stored:
        nests.out.add("#pragma omp simd")
        open_lanes()
        if convert:
            nests.out.add(f"{name}[{lane}] = ({kind})({divided});", [item.loop.id])
            text = f"{name}[{lane}]"
        if stored:
            memory = nests.memory(item.output, write=True)
            value = nests.stored(text, nests.buffers[item.output].dtype)
            nests.out.add(f"{memory}[{nests.place(item.place, {})}] = {value};", [item.loop.id])
        nests.out.close()
    nests.reduced_text[item.output] = text


def _tile(outer: Sequence[Axis], last: Axis, count: IndexExpr) -> int:
    """Columns walked together: few enough that all their rows stay in cache between passes, many
    enough to fill the lanes and the threads."""
    tile = TILE * 4
    rows = max(count.hint(), 1)
    while tile > 16 and tile * rows * 4 > CACHE_BYTES:
        tile //= 2
    while tile > 16 and product(axis.extent for axis in outer).hint() * last.extent.hint() < 4 * tile:
        tile //= 2
    return tile
