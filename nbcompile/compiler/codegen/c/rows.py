"""The nests *points* and *rows*: SIMD along the last axis, as many walks of a row as its results ask for."""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.compiler.codegen.c.accumulators import LANES, Accumulator
from nbcompile.compiler.codegen.c.along import made_along
from nbcompile.compiler.codegen.c.blocks import lying_across, print_blocks
from nbcompile.compiler.codegen.c.expressions import REGISTER_TYPES
from nbcompile.compiler.codegen.c.kernel import PARALLEL_WORK, Scope, contiguous, in_vectors
from nbcompile.compiler.codegen.c.nests import VECTOR, Lanes, Nests, PointWork
from nbcompile.compiler.codegen.c.positions import extreme_of, print_first
from nbcompile.compiler.codegen.c.row_buffers import RowBuffers, plan_row_buffers
from nbcompile.compiler.codegen.c.within import open_blocks, within
from nbcompile.compiler.codegen.expression import Expression, name
from nbcompile.compiler.kernel_ir.guard_ranges import Range
from nbcompile.compiler.kernel_ir.values import walk_values
from nbcompile.compiler.loop_ir.expr import TRANSCENDENTAL, compute_dtype
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, product
from nbcompile.compiler.loop_ir.versions import Part

PARALLEL = "#pragma omp parallel for"
FEW_OUTER = 8
ROWS_AT_ONCE = 8  # of all tensors together: as many lie at one place of the nearest cache
LIGHT = 16  # values at a point: of more, adding up takes the lesser part of the time
FAR = 16
"""Elements between two points, from which on no vector is made of several short rows: GCC takes minutes to
gather the parts of one from wider apart (12.2, rows of two numbers 2048 apart)."""
SHORT = 4
"""Points along the last axis that make no vector: the axis before it does."""


def points_nest(nests: Nests) -> None:
    """Print a nest that reduces nothing within a row."""
    work = PointWork(nests.values.stores, list(nests.split.values()))
    if not nests.nest.rows:
        only = nests.inside(work.values, {}, {})
        nests.store_all(work.stores, only)
        return
    outer, last = _contiguous_last(nests)
    across = lying_across(nests, work, outer, last)
    if across is not None:
        pragma = nests.parallel_pragma(nests.clauses(work.accumulators, arrays=True), len(outer) + 1)
        print_blocks(nests, work, outer, last, across, pragma)
        return
    if outer and not work.accumulators and last.extent.constant in range(1, SHORT + 1):
        # the last whose rows lie near enough; if none does, the one whose rows lie nearest is asked
        lanes = min(reversed(outer), key=lambda axis: max(_longest_step(nests, axis), FAR))
        if _longest_step(nests, lanes) <= FAR:
            _short_rows(nests, work, tuple(axis for axis in outer if axis is not lanes), lanes, last)
            return
    if outer and (side := _side_by_side(nests, work, (*outer, last))):
        _rows_at_once(nests, work, outer, last, side)
        return
    parallel = nests.work() >= PARALLEL_WORK
    outer_first = parallel and outer and product(a.extent for a in outer).hint() >= FEW_OUTER
    along = made_along(nests, work, outer, last)
    if outer_first:
        nests.out.add(nests.parallel_pragma(nests.clauses(work.accumulators, arrays=True), len(outer)))
    for axis in outer:
        nests.for_(axis)
    pragma = f"{PARALLEL} simd" if parallel and not outer_first else ""

    def write(region: Range) -> None:
        scope = nests.hoist(work.values, frozenset((last,)), along, region) if outer or not parallel else {}
        _walk(nests, Lanes(nests, last, pragma), work, scope, region)

    nests.regions(outer, work.roots, write)
    for _ in outer:
        nests.out.close()


def _longest_step(nests: Nests, axis: Axis) -> int:
    """Elements from one point along ``axis`` to the next, in the tensor where that is most; 0 where all of
    them are at one place or at places that are data."""
    loads = [value.place for value in walk_values(nests.values.roots) if value.kind == "load"]
    steps = [place.coefficient(axis) for place in (*loads, *(item.place for item in nests.values.stores))]
    return max((abs(step.hint()) for step in steps if step is not None), default=0)


def _short_rows(nests: Nests, work: PointWork, around: tuple[Axis, ...], lanes: Axis, last: Axis) -> None:
    """Loops over ``around``, and over ``lanes``, which is taken several points at a time, all of the short
    axis ``last`` in each: unrolled, where a vector along it would be empty for the most part."""
    outer = (*around, lanes)
    parallel = nests.work() >= PARALLEL_WORK
    outer_first = parallel and around and product(a.extent for a in around).hint() >= FEW_OUTER
    along = made_along(nests, work, outer, last)
    if outer_first:
        nests.out.add(nests.parallel_pragma(nests.clauses((), arrays=True), len(around)))
    for axis in around:
        nests.for_(axis)
    pragma = f"{PARALLEL} simd" if parallel and not outer_first else "#pragma omp simd"
    nests.out.add(pragma + nests.clauses((), arrays=False))
    nests.for_(lanes)
    scope = nests.hoist(work.values, frozenset((last,)), along)
    division = len(nests.out.text)
    for number, piece in enumerate(nests.segments(last, work.roots, {})):
        # of more than a little code GCC leaves a loop, and then no vectors of the loop around it
        nests.out.add(f"#pragma GCC unroll {last.extent.constant}")
        nests.for_(last, piece, Part(last, number, division))
        inner = nests.inside(work.roots, {} if piece is None else {last: piece}, scope)
        nests.store_all(work.stores, inner)
        nests.out.close()
    for _ in outer:
        nests.out.close()


def _are_columns_alone(nests: Nests) -> bool:
    """Whether a nest of rows has nothing to do but at each point, in one pass."""
    _, reductions, _ = nests.pass_work(0)
    once = nests.once_of(0)
    whole = not (reductions or once.stores or once.accumulators or nests.top_level)
    return whole and bool(nests.nest.rows) and len(nests.inner_axes) == 1


def _side_by_side(nests: Nests, work: PointWork, axes: Sequence[Axis]) -> int:
    """How many rows at once are added to sums of columns, which are read and written once for all of them; 0:
    each row by itself. They are as many in each step, and no row has parts."""
    rows, extent = axes[-2], axes[-2].extent.constant
    summed = [acc for acc in work.accumulators if nests.is_array(acc) and acc.in_pieces]
    told = any(acc.item.position is not None or rows in acc.item.place.atoms() for acc in work.accumulators)
    if not extent or not summed or told:
        return 0
    values = list(walk_values(work.roots))
    plain = in_vectors(work.roots) and all(value.op not in TRANSCENDENTAL for value in values)
    parts = any(len(nests.segments(axis, work.roots, {})) > 1 for axis in axes)
    if len(values) > LIGHT or not plain or parts:
        return 0
    streams = sum(value.kind == "load" and rows in value.axes for value in values) + len(work.stores)
    most = ROWS_AT_ONCE // max(streams, 1)
    return next((side for side in range(most, 2, -1) if extent % side == 0), 0)


def _rows_at_once(nests: Nests, work: PointWork, outer: tuple[Axis, ...], last: Axis, side: int) -> None:
    """Loops over ``outer``, its last axis ``side`` rows at a time, and SIMD along ``last``; innermost those
    rows, unrolled."""
    *around, rows = outer
    along = made_along(nests, work, outer, last)
    if pragma := nests.parallel_pragma(nests.clauses(work.accumulators, arrays=True), len(outer)):
        nests.out.add(pragma)
    for axis in around:
        nests.for_(axis)
    low = open_blocks(nests, rows, side)
    nests.out.add("#pragma omp simd" + nests.clauses(work.accumulators, arrays=False))
    nests.for_(last)
    lanes = within(nests, rows, low, side)
    lanes.unrolled = True
    nests.innermost(lanes, work, nests.hoist(work.values, frozenset((rows,)), along))
    for _ in range(len(outer) + 1):
        nests.out.close()


def _contiguous_last(nests: Nests) -> tuple[tuple[Axis, ...], Axis]:
    """The other rows, and the axis that most accesses walk contiguously."""
    rows = nests.nest.rows
    scores = {axis: contiguous(nests.values, nests.buffers, axis) for axis in rows}
    best = max(rows, key=lambda axis: (scores[axis], rows.index(axis)))
    return tuple(axis for axis in rows if axis is not best), best


def rows_nest(nests: Nests) -> None:
    """Print a nest that walks each row once a pass."""
    rows, inner = nests.nest.rows, nests.inner_axes
    passes = range(nests.top_level + 1)
    if _are_columns_alone(nests):
        stores, _, split = nests.pass_work(0)
        work = PointWork(stores, split)
        if side := _side_by_side(nests, work, (*rows, *inner)):
            _rows_at_once(nests, work, rows, inner[0], side)
            return
    buffers = plan_row_buffers(nests, [nests.pass_roots(level) for level in passes], inner)
    pragma = ""
    if rows:
        clauses = nests.clauses(nests.split.values(), arrays=True)
        pragma = nests.parallel_pragma(clauses, len(rows), begun=bool(buffers.pointers))
    if pragma and buffers.pointers:
        nests.out.add("#pragma omp parallel")
        nests.out.enter("{", axes=())
    for line, origin in buffers.pointers.values():
        nests.out.add(line, [origin])
    if pragma:
        nests.out.add(pragma)
    for axis in rows:
        nests.for_(axis)
    for line, origin in buffers.arrays:
        nests.out.add(line, [origin])
    scope: Scope = {}
    for level in passes:
        scope = _pass(nests, level, _once(nests, level, scope), buffers)
    for item in nests.values.stores:
        if item.last and not nests.is_full(item):
            nests.store(item, scope)
    for _ in rows:
        nests.out.close()
    for local, (_, origin) in buffers.pointers.items():
        nests.out.add(f"__builtin_free({local});", [origin])
    if pragma and buffers.pointers:
        nests.out.close()


def _pass(nests: Nests, level: int, scope: Scope, buffers: RowBuffers) -> Scope:
    """One walk along the row; returns the scope with what was made for it, and before it."""
    inner = nests.inner_axes
    stores, reductions, split = nests.pass_work(level)
    if not (stores or reductions or split):
        return scope
    count = product(axis.extent for axis in inner)
    roots, lanes = nests.pass_roots(level), Lanes(nests, inner[-1])
    kept = {number: buffers.names[number].text for number in buffers.written.get(level, ())}
    read = ((number, buffers.names[number]) for number in buffers.read.get(level, ()))
    reuse = {number: Expression(f"{row.text}[{lanes.element}]", row.dtype) for number, row in read}
    scope = nests.hoist(roots, frozenset(inner), {**scope, **reuse})
    sums = LANES if in_vectors(roots) else 1  # that the sum of a row is made of
    accumulators = [nests.in_row(nests.accumulator(item, count.constant, sums)) for item in reductions]
    tried = ((acc, extreme_of(nests, acc, count, stores)) for acc in accumulators if len(inner) == 1)
    extremes = {acc.name: extreme for acc, extreme in tried if extreme is not None}
    walked = [extremes.get(acc.name, acc) for acc in accumulators]
    for acc in walked:
        nests.out.add(f"{acc.type} {acc.name} = {acc.start};", [acc.item.loop.id])
        if acc.flag:
            nests.out.add(f"int {acc.flag} = 0;", [acc.item.loop.id])
        if acc.result != acc.name:
            nests.out.add(f"long {acc.result} = 0;", [acc.item.loop.id])
    if _is_shared(nests, [*walked, *split]):
        if len(inner) == 1:
            lanes.pragma = f"{PARALLEL} simd"
        else:
            collapse = f" collapse({len(inner) - 1})" if len(inner) > 2 else ""
            nests.out.add(f"{PARALLEL}{collapse}{nests.clauses([*walked, *split], arrays=False)}")
    for axis in inner[:-1]:
        nests.for_(axis)
    _walk(nests, lanes, PointWork(stores, walked + split, kept), {**scope, **reuse})
    for _ in inner[:-1]:
        nests.out.close()
    for acc in accumulators:
        if acc.name in extremes:
            print_first(nests, acc, extremes[acc.name], count, lanes, {**scope, **reuse})
    scope = {number: code for number, code in scope.items() if number not in reuse}
    for acc in accumulators:
        if acc.flag:
            nests.out.add(acc.nan, [acc.item.loop.id])
        _result(nests, acc, count, scope)
    return scope


def _walk(nests: Nests, lanes: Lanes, work: PointWork, scope: Scope, around: Range | None = None) -> None:
    """The innermost loop; of a long axis, one a piece, where it adds up many numbers."""
    side, axis = _piece(nests, lanes, work), lanes.axis
    if not side:
        nests.innermost(lanes, work, scope, around)
        return
    if lanes.pragma:
        nests.out.add(f"{PARALLEL}{nests.clauses(work.accumulators, arrays=False)}")
    low = open_blocks(nests, axis, side)
    nests.innermost(within(nests, axis, low, side), work, scope, around)
    nests.out.close()


def _piece(nests: Nests, lanes: Lanes, work: PointWork) -> int:
    """How many points along an axis are walked at a time; 0: all of them. The fewest pieces that are alike if
    there are such, of whole vectors."""
    most, extent = nests.piece(work), lanes.most
    long = any(acc.in_pieces and not nests.is_array(acc) for acc in work.accumulators)
    if not long or not most or (extent is not None and extent <= most):
        return 0
    if extent is None:
        return most
    fewest = -(-extent // most)
    alike = (count for count in range(fewest, 2 * fewest) if extent % (VECTOR * count) == 0)
    count = next(alike, 0)
    return extent // count if count else -(-extent // (VECTOR * fewest)) * VECTOR


def _is_shared(nests: Nests, accumulators: Sequence[Accumulator]) -> bool:
    """Whether threads share the walk of the one row that there is: there is enough to do, and each can have
    its own of every accumulator."""
    own = all(acc.clause and not nests.is_array(acc) for acc in accumulators)
    return own and not nests.nest.rows and nests.work() >= PARALLEL_WORK


def _once(nests: Nests, level: int, scope: Scope) -> Scope:
    """What is made once per row and needs ``level`` passes: stores and split reductions. What overwrites
    memory is made here, and stored after the last pass."""
    work = nests.once_of(level)
    if not (work.stores or work.accumulators):
        return scope
    scope = nests.inside(work.values, {}, scope, before={})
    for item in work.stores:
        if item.last:
            scope = nests.made([item.value], scope)
        else:
            nests.store(item, scope)
    # the next pass may need what is folded
    scope = nests.made([acc.item.value for acc in work.accumulators], scope)
    nests.fold_once(work.accumulators, scope)
    return scope


def _result(nests: Nests, acc: Accumulator, count: IndexExpr, scope: Scope) -> None:
    """Give the finished result a name and store it if it is needed in memory."""
    output = acc.item.output
    dtype = compute_dtype(nests.buffers[output].dtype)
    kind = REGISTER_TYPES[dtype]
    text, converts = nests.finished(acc, acc.result, count)
    if converts:
        local = nests.fresh(f"{output}_row")
        if acc.result == acc.name:
            nests.out.add(f"const {kind} {local} = ({kind})({text});", [acc.item.loop.id])
            text = local
    nests.reduced[output] = name(text, dtype)
    nests.store_result(acc, nests.reduced[output], scope)
