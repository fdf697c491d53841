"""A plain schedule for TVM's kernels on a CPU: threads outside, vectors along memory, products in tiles.

TVM looks for schedules by running thousands of candidates (MetaSchedule); its rules of thumb are for GPUs.
This is what one would write first by hand; a kernel that it does not fit stays as TVM has it.
"""

from __future__ import annotations

from typing import Any

LANES = 16  # of float32 in 512 bits
_COLUMNS = (4 * LANES, 3 * LANES, 2 * LANES, LANES, 8, 4)  # of a tile, what divides them first
SMALL = 8192  # points and terms below which a thread costs more than it does


def scheduled(module: Any) -> Any:
    """The IRModule with each of its TIR functions scheduled, in one pass after fusion."""
    import tvm

    functions = {
        name: _scheduled(function) if isinstance(function, tvm.tirx.PrimFunc) else function
        for name, function in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _scheduled(function: Any) -> Any:
    from tvm import s_tir
    from tvm.s_tir.dlight.analysis import normalize_prim_func

    schedule = s_tir.Schedule(function)
    try:
        blocks = normalize_prim_func(schedule)
        for block in _inlined(schedule, blocks or []):
            _schedule(schedule, block)
    except s_tir.ScheduleError:
        return function
    return schedule.mod["main"].with_attrs({**function.attrs})


def _inlined(schedule: Any, blocks: list[Any]) -> list[Any]:
    """Compute what one pointwise block alone reads, at as many points, where it is read: nothing is computed
    twice. Returns the blocks left."""
    from tvm import s_tir

    left = []
    reductions = {str(schedule.get(block.block_rv).name_hint) for block in blocks if block.is_reduction()}
    for block in blocks:
        consumers = schedule.get_consumers(block.block_rv)
        alone = len(consumers) == 1 and schedule.get(consumers[0]).name_hint not in reductions
        alone = alone and _points(schedule.get(consumers[0])) == _points(schedule.get(block.block_rv))
        if block.is_injective() and alone:
            try:
                schedule.compute_inline(block.block_rv)
                continue
            except s_tir.ScheduleError:
                pass  # it fills a buffer in a way that cannot be read back from its index
        left.append(block)
    return left


def _schedule(schedule: Any, block: Any) -> None:
    loops = schedule.get_loops(block.block_rv)
    kinds = [each.kind for each in block.iters]
    extents = [int(each.dom) for each in block.iters]
    if len(loops) != len(kinds) or not loops:
        return
    spatial = [loop for loop, kind in zip(loops, kinds) if kind == "S"]
    reduced = [loop for loop, kind in zip(loops, kinds) if kind != "S"]
    sizes = [extent for extent, kind in zip(extents, kinds) if kind == "S"]
    points = _product(sizes)
    threads = _product(extents) >= SMALL
    if not spatial:
        return
    if not reduced:
        _along_memory(schedule, spatial, sizes, threads)
    elif _divisor(sizes[-1], _COLUMNS) > 1 and _contiguous(schedule, block, kinds):
        _tiled(schedule, block, spatial, sizes, reduced, threads)
    else:
        schedule.reorder(*spatial, *reduced)
        outer = schedule.fuse(*spatial)
        if threads and points > 1:
            schedule.parallel(outer)
        schedule.decompose_reduction(block.block_rv, reduced[0])


def _along_memory(schedule: Any, loops: list[Any], sizes: list[int], threads: bool) -> None:
    *outer, last = loops
    width = _divisor(sizes[-1], (LANES,))
    if width > 1:
        rest, lanes = schedule.split(last, [None, width])
        schedule.vectorize(lanes)
        outer = [*outer, rest]
    else:
        outer = loops
    fused = schedule.fuse(*outer)
    if threads:
        schedule.parallel(fused)


def _tiled(
    schedule: Any, block: Any, spatial: list[Any], sizes: list[int], reduced: list[Any], threads: bool
) -> None:
    """Several rows by several vectors of results are kept in registers while the sums go on."""
    columns = _divisor(sizes[-1], _COLUMNS)
    rows = _divisor(sizes[-2], (6, 4, 3, 2)) if len(sizes) > 1 else 1
    cache = schedule.cache_write(block.block_rv, 0, "local")
    outer = spatial[:-2] if len(spatial) > 1 else []
    column_outer, column = schedule.split(spatial[-1], [None, columns])
    if len(spatial) > 1:
        row_outer, row = schedule.split(spatial[-2], [None, rows])
        schedule.reorder(*outer, row_outer, column_outer, *reduced, row, column)
        tile = schedule.fuse(*outer, row_outer, column_outer)
        schedule.unroll(row)
    else:
        schedule.reorder(column_outer, *reduced, column)
        tile = column_outer
    schedule.vectorize(column)
    schedule.reverse_compute_at(cache, tile)
    schedule.vectorize(schedule.get_loops(cache)[-1])
    if threads:
        schedule.parallel(tile)
    schedule.decompose_reduction(block.block_rv, reduced[0])


def _contiguous(schedule: Any, block: Any, kinds: list[str]) -> bool:
    """Whether neighbours along the last axis that is not summed over lie side by side in something read."""
    from tvm.sym import detect_linear_equation

    statement = schedule.get(block.block_rv)
    last = [each.var for each, kind in zip(statement.iter_vars, kinds) if kind == "S"][-1]
    lines = [region.region[-1].min for region in statement.reads if len(region.region)]
    steps = [detect_linear_equation(line, [last]) for line in lines]  # [] where it is none
    return any(len(step) and str(step[0]) in ("1", "T.int64(1)") for step in steps)


def _points(statement: Any) -> int:
    return _product([int(each.dom.extent) for each in statement.iter_vars])


def _divisor(extent: int, sizes: tuple[int, ...]) -> int:
    return next((size for size in sizes if extent % size == 0), 1)


def _product(sizes: list[int]) -> int:
    made = 1
    for size in sizes:
        made *= size
    return made
