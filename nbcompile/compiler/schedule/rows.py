"""How a GPU kernel cuts its nest into tiles: which axes a program's tile spans, how large it is, who
reduces what. One frozen :class:`Tiling` a group; the printer only follows it.

A program owns a tile of up to two dimensions. Schedules:

- *points*: nothing is reduced; the tile is a run of points in memory order, or a square of two axes where
  two tensors lie in different orders (a transposed read), or part of one row (*lines*) or of several
  (*bands*) where some of the work is the same all along it.
- *rows*: ``x`` are kept points and ``r`` what is reduced. ``persistent``: a whole row is on chip and read
  once. Else the row is walked in blocks, once per pass.
- ``parts``: a long row is held by several programs, which wait for each other's results.
- ``slabs``: few rows are shared out among programs, each leaves a partial result, a second function adds
  them up. ``sums``: reductions over the rows themselves (a norm's weight gradient) accumulate in each
  program over the rows that it owns, and are finished the same way.
- ``lanes``: where the reduced axes end in a few neighbours in memory, and the next ones belong to the next
  row, programs take them for rows, so that they read whole lines; the second function combines these too.
"""

from __future__ import annotations

from dataclasses import replace

from nbcompile.compiler.kernel_ir.accesses import memory_order
from nbcompile.compiler.kernel_ir.group_to_values import kernel_values
from nbcompile.compiler.kernel_ir.values import KernelValues, walk_values
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.schedule.points import STENCIL, points_tiling
from nbcompile.compiler.schedule.row_shapes import (
    COLUMNS,
    MOST_SLABS,
    SHARED_BUDGET,
    STAGES,
    WALK_BLOCK,
    RowShape,
    busy,
    draws,
    gathers,
    splittable,
    stores_rows,
    sums_vary,
)
from nbcompile.compiler.schedule.tiling import Tiling, distinct, in_warps, power, reordered, warps_of
from nbcompile.compiler.stages import Config
from nbcompile.targets import Target

# Where no property of the chip is named, these numbers, those of row_shapes.py, points.py and
# scans.py, and the sizes and warps below are the best of those timed on an H200 over the regions of
# corpus/: scripts/gpu/sweep.py times them again.
CACHED = 2  # the part of the L2 cache that keeps what is walked again: one in so many bytes
TOGETHER = 2048  # points of a block where several programs walk a row
PART = 8192  # points that one of several programs holds of a row, with 8 warps
MANY_READS = 5  # of each point of a row, with which a thread has few points
ONE_STEP = 4096  # points of a slab that a program reads at once
SHORT_COLUMN = 16  # points of a row that are walked in so many steps
LONGEST_SUM = 16_384  # points of a row whose sums over the rows stay in registers
SUM_TILE, SUM_PROGRAMS = 1024, 4  # points of such a tile, and programs of them on a multiprocessor
SMALL_DATA = 8 << 20  # bytes that a second walk finds in the cache anyway


def tiling(group: Group, buffers: dict[str, Buffer], target: Target) -> tuple[KernelValues, Tiling]:
    """The group's values, its axes put in memory order, and how to cut them into tiles."""
    values = kernel_values(group, buffers, narrow=True)
    if any(loop.kind == "scatter" for loop in group.loops):
        return values, in_warps(points_tiling(values, buffers, target, "scatter"), target)
    order = memory_order(values, buffers)
    if order != values.nest.axes:
        values = reordered(group, values, order, buffers)
    if values.reductions:
        return values, in_warps(_rows(values, buffers, target), target)
    return values, in_warps(points_tiling(values, buffers, target, "points"), target)


# -- schedules ----------------------------------------------------------------------------------------


def _rows(values: KernelValues, buffers: dict[str, Buffer], target: Target) -> Tiling:
    shape = RowShape.of(values, buffers)
    whole, rows = shape.whole, shape.rows
    if any(item.split for item in values.reductions):
        return _sums(values, shape, target)
    if shape.fits and shape.along:
        if rows >= target.multiprocessors // 2 or whole <= 2 * ONE_STEP or not splittable(values):
            return _held(values, shape, target)
    if shape.fits and not shape.along:
        short = shape.length <= SHORT_COLUMN and not shape.mixed and splittable(values)
        return _short_columns(shape) if short else _held_columns(values, shape)
    if shape.lane is not None and splittable(values):
        plan = _looped(values, shape.across(shape.lane), target)
        return replace(plan, lanes=(shape.lane,))
    line = _line(values, shape)
    if line is not None:
        plan = _looped(values, shape.across(line), target)
        each = plan.configs[0].constants["XBLOCK"]
        same = [config for config in plan.configs if config.constants["XBLOCK"] == each]
        return replace(plan, lanes=(line,), configs=tuple(same))
    shared = _shared(values, shape, target)
    return shared if shared is not None else _looped(values, shape, target)


def _line(values: KernelValues, shape: RowShape) -> Axis | None:
    """The last axis of what is summed up whole, if it cuts well into columns, a point is much work, and some
    of it is the same all along: walked by columns, that is done once a line, not once a point."""
    if shape.x or len(shape.r) < 2 or not (shape.along and splittable(values) and busy(values)):
        return None
    line = shape.r[-1]
    length = line.extent.constant
    if length is None or length % 8 or not _columns(length):  # odd lines are read piece by piece
        return None
    if any(item.kind == "mean" or item.mean for item in values.reductions) or stores_rows(values):
        return None
    found = walk_values(item.value for item in values.reductions)
    same = any(value.kind in ("load", "op") and value.axes and line not in value.axes for value in found)
    return line if same else None


def _columns(length: int) -> int:
    """Columns of a tile, of which few lie beyond the last one; 0 if there are no such."""
    sizes = (COLUMNS, COLUMNS // 2, COLUMNS // 4)
    return next((size for size in sizes if -(-length // size) * size * 7 <= length * 8), 0)


def _short_columns(shape: RowShape) -> Tiling:
    """The few steps of a row that lies across memory one after the other, each lane a row of its own."""
    configs = tuple(
        Config({"XBLOCK": min(each, max(32, power(shape.rows))), "RBLOCK": 1}, warps)
        for each, warps in ((512, 4), (256, 2), (1024, 8), (1024, 4))
    )
    return Tiling("rows", shape.x, shape.r, unrolled=True, configs=distinct(configs))


def _held_columns(values: KernelValues, shape: RowShape) -> Tiling:
    """A program holds whole rows that lie across memory: neighbouring ones."""
    each = max(16, min(COLUMNS * 2, 2048 // shape.whole))
    if shape.mixed and shape.row_bytes >= 4 and stores_rows(values):  # two tensors held, one of them turned
        each = max(8, min(each, 8192 // shape.whole))
    points, most = 64, 4  # few warps: less to combine
    if any(item.split for item in values.reductions) or (stores_rows(values) and not shape.mixed):
        each = max(8, min(COLUMNS * (1 if shape.mixed else 2), 8192 // shape.whole))
        points, most = 16, 16
    tile = each * shape.whole
    config = Config({"XBLOCK": each}, min(most, warps_of(tile, points)))
    return Tiling("rows", shape.x, shape.r, persistent=True, configs=(config,))


def _held(values: KernelValues, shape: RowShape, target: Target) -> Tiling:
    """A program holds whole rows."""
    whole, rows, x, r = shape.whole, shape.rows, shape.x, shape.r
    slim = rows // max(1, 2048 // whole) >= 2 * target.multiprocessors
    each = max(1, min(2048 // whole, 64)) if slim else max(1, min(256 // whole, rows))
    each = power(each) if rows > 1 else 1
    points = 32 if draws(values) else 16
    enough = shape.row_bytes >= 4 and not gathers(values)  # for a program of one warp
    if slim and enough and (whole <= 512 or (whole == 1024 and not stores_rows(values))):
        each, points = max(1, 512 // whole), 32  # nothing is combined across warps
    tile = each * whole
    configs = [Config({"XBLOCK": each}, warps_of(tile, points))]
    for warps in (warps_of(tile, 48 - points), warps_of(tile, 8), warps_of(tile, 64)):
        configs.append(Config({"XBLOCK": each}, warps))
    if each > 1:
        configs.append(Config({"XBLOCK": max(each // 2, 2)}, warps_of(tile // 2, points)))
        configs.append(Config({"XBLOCK": each * 2}, warps_of(tile * 2, points)))
    return Tiling("rows", x, r, persistent=True, one_row=each == 1, configs=distinct(configs))


def _shared(values: KernelValues, shape: RowShape, target: Target) -> Tiling | None:
    """Rows that several programs hold together; None where that is not possible or gains nothing."""
    known = shape.known and all(axis.extent.constant is not None for axis in shape.x)
    if not known or splittable(values) or any(item.kind.startswith("arg") for item in values.reductions):
        return None
    if shape.length * shape.rows * shape.row_bytes < SMALL_DATA or not shape.along:
        return None
    if shape.row_bytes < 4 * shape.live:  # too few bytes from one meeting to the next
        return None if shape.rows >= target.multiprocessors else _walked_together(values, shape, target)
    # the more values of a row are held, the fewer of its points
    part = max(PART // power(shape.live), PART // 2 if shape.live < 4 else 16)
    parts = -(-shape.length // part)
    programs = target.multiprocessors * 4
    if parts < 2 or parts * 2 > programs:
        return None
    groups = dict.fromkeys(
        min(shape.rows, target.multiprocessors * each_sm // parts) for each_sm in (4, 3, 2, 1)
    )
    configs = [Config({"RBLOCK": part, "GROUPS": item}, 8) for item in groups if item]
    configs.insert(0, replace(configs[0], registers=target.registers // (4 * 8 * 32)))
    return Tiling(
        "rows", shape.x, shape.r, persistent=True, one_row=True, parts=parts, configs=tuple(configs)
    )


def _walked_together(values: KernelValues, shape: RowShape, target: Target) -> Tiling | None:
    """Rows walked more than once by several programs each: as many rows at a time as the cache keeps."""
    if any(item.kind not in ("sum", "mean") for item in values.reductions):
        return None
    row, room = shape.length * shape.row_bytes, target.l2_bytes // CACHED
    groups = -(-shape.rows // max(-(-shape.rows * row // max(room, 1)), 1))
    blocks = -(-shape.length // TOGETHER)
    parts = min(target.multiprocessors * 4 // groups, blocks // 2)
    if parts < 2 or row > room:
        return None
    parts = -(-blocks // -(-blocks // parts))  # none without a block
    configs = tuple(
        Config({"RBLOCK": TOGETHER, "STAGES": stages, "GROUPS": groups}, warps)
        for stages, warps in ((STAGES, 4), (STAGES, 8), (STAGES, 2), (1, 4))
    )
    return Tiling("rows", shape.x, shape.r, one_row=True, parts=parts, configs=configs)


def _looped(values: KernelValues, shape: RowShape, target: Target) -> Tiling:
    x, r, rows, length = shape.x, shape.r, shape.rows, shape.length
    wanted = target.multiprocessors * 4
    if shape.along:
        each, block = shape.walk()
        if shape.row_bytes >= 6:
            block = min(block, WALK_BLOCK // 2)
        slabs = 1
        few = splittable(values) and rows < wanted // 2 and length > 2 * ONE_STEP
        if few and rows * length <= 2 * ONE_STEP * wanted:
            return _in_one_step(shape, wanted)
        if splittable(values) and rows // each < wanted // 2:
            while block > 1024 and 8 * block < length < block * wanted * 2 // max(rows, 1):
                block //= 2
            slabs = _slabs(length, block, wanted, rows // each)
        points = 32 if block >= 4096 else 16
        if busy(values):
            block, points = min(block, 1024), 8
        elif _reads(values) >= MANY_READS:
            block, points = min(block, WALK_BLOCK // 2), 16
        # a row walked twice, and stored: few programs, each with much under way
        twice = stores_rows(values) and not splittable(values) and shape.row_bytes <= 4
        deep = STAGES * 2 if twice and not any(item.split for item in values.reductions) else STAGES
        configs = [
            shape.walked(each, size, stages, held)
            for size, stages, held in (
                (block, deep, points), (block, 1, points), (block // 2, deep, 16),
                (block * 2, STAGES, 32), (block * 2, 1, 32), (block, STAGES, 16),
            )
            if slabs == 1 or size <= block  # of which a slab is a multiple
        ]  # fmt: skip
        return Tiling("rows", x, r, one_row=each == 1, slabs=slabs, configs=distinct(configs))
    each = COLUMNS if rows >= COLUMNS else power(max(rows, 1))
    much = busy(values) or draws(values) or _reads(values) >= STENCIL
    if much and rows >= COLUMNS // 4:
        each = _columns(rows) or each  # a lane beyond the last column works as hard as any
    # few warps, each with much to do: what they add up need not be combined until the end
    tile, warps, under_way, programs = WALK_BLOCK // 2, 2, STAGES, 2
    if shape.mixed and shape.row_bytes <= 8:
        each, under_way, programs = min(each, COLUMNS // 2), STAGES + 1, 4
    elif shape.mixed:
        tile, warps = WALK_BLOCK, 8
    if much:
        warps = 8 if shape.mixed or stores_rows(values) else 4
    block = max(8, min(shape.whole, tile // each))
    slabs = 1
    if splittable(values) and rows // each < wanted:
        while much and block > 64 and rows * length < each * block * wanted:
            block //= 2
        slabs = _slabs(length, block, wanted, max(1, rows // each))
    under_way = under_way if length > slabs * block * STAGES or not much else 1
    stages = shape.stages(under_way, each * block, programs)
    configs = [
        Config({"XBLOCK": each, "RBLOCK": block, "STAGES": stages}, warps),
        Config({"XBLOCK": each, "RBLOCK": block, "STAGES": stages}, warps * 2),
        Config({"XBLOCK": each * 2, "RBLOCK": max(block // 2, 4), "STAGES": stages}, warps),
        Config({"XBLOCK": each, "RBLOCK": max(block // 2, 4), "STAGES": stages}, max(warps // 2, 1)),
        Config({"XBLOCK": each, "RBLOCK": block, "STAGES": 1}, warps * 2),
    ]
    return Tiling("rows", x, r, slabs=slabs, configs=distinct(configs))


def _in_one_step(shape: RowShape, wanted: int) -> Tiling:
    """Few rows of which all can be under way at once: each program reads its slab in one step."""
    block = min(max(power(-(-shape.rows * shape.length // wanted)), ONE_STEP // 4), ONE_STEP)
    slabs = -(-shape.length // block)
    sizes = (block // 256, block // 512, block // 128)
    configs = tuple(Config({"XBLOCK": 1, "RBLOCK": block, "STAGES": 1}, max(size, 1)) for size in sizes)
    return Tiling("rows", shape.x, shape.r, one_row=True, slabs=slabs, configs=configs)


def _sums(values: KernelValues, shape: RowShape, target: Target) -> Tiling:
    """Row results and sums over the rows in one walk."""
    x, r, rows, whole = shape.x, shape.r, shape.rows, shape.whole
    vary = sums_vary(values)
    if not vary and shape.fits:  # one value a row is added up
        plan = _held(values, shape, target) if shape.along else _held_columns(values, shape)
        each = plan.configs[0].constants["XBLOCK"]
        same = [config for config in plan.configs if config.constants["XBLOCK"] == each]
        return replace(plan, slabs=max(-(-rows // each), 1), sums=True, configs=tuple(same))
    if not vary:
        plan = _looped(values, shape, target)
        config = plan.configs[0]
        return replace(plan, slabs=-(-rows // config.constants["XBLOCK"]), sums=True, configs=(config,))
    if shape.fits and whole <= LONGEST_SUM:
        # as few programs as keep memory busy: each leaves a part of every sum
        each = max(16, min(COLUMNS, 8192 // whole))
        light = shape.along and shape.row_bytes <= 8
        if shape.along:
            pair = whole == 1024 and light and not busy(values)
            each = max(1, min(SUM_TILE * (2 if pair else 1) // whole, COLUMNS))
        each = min(each, power(rows))
        tile = each * whole
        most = SUM_PROGRAMS * (2 if light else 1)
        per = 1 if whole > 8192 else max(2, min(most, 8192 // tile))
        room = SHARED_BUDGET // max(shape.row_bytes * tile * per, 1)
        slim = shape.along and 8 * shape.length <= 5 * whole  # a third of the registers hold nothing
        stages = min(STAGES, room) if room >= (STAGES if slim else 2) else 1
        few = (stages == 1 if tile >= 4096 else light) if shape.along else tile <= 8192
        alone = stages == 1 and not few  # nothing is under way but by other programs
        per *= 2 if alone else 1
        points = 32 if few or (alone and slim) else 16
        programs = max(min(target.multiprocessors * per, -(-rows // each)), 1)
        configs = [
            Config({"XBLOCK": each, "STAGES": item}, warps_of(tile, size))
            for item, size in ((stages, points), (stages, 48 - points), (1, points), (min(stages, 2), points))
        ]
        if alone and slim:  # all of them on the chip at once
            room = target.registers // (per * configs[0].warps * target.warp) // 8 * 8
            configs.insert(0, replace(configs[0], registers=min(room, 255)))
        return Tiling(
            "rows", x, r, persistent=True, one_row=each == 1, slabs=programs, sums=True,
            configs=distinct(configs),
        )  # fmt: skip
    each = power(min(16, max(rows // (2 * target.multiprocessors), 1)))
    block = max(32, min(8192 // each, whole))
    configs = [Config({"XBLOCK": each, "RBLOCK": block, "STAGES": shape.stages(2, each * block)}, 8)]
    return Tiling("rows", x, r, slabs=-(-rows // each), sums=True, configs=tuple(configs))


def _slabs(length: int, block: int, wanted: int, programs: int) -> int:
    """Programs that share a row: enough to fill the chip, each with some blocks to walk."""
    return max(1, min(wanted // max(programs, 1), -(-length // block) // 2, MOST_SLABS))


def _reads(values: KernelValues) -> int:
    """Loads at each point of a row: of many, threads with many points run out of registers."""
    found = (value for value in walk_values(values.roots) if value.kind == "load")
    return sum(not value.axes.isdisjoint(values.nest.inner) for value in found)
