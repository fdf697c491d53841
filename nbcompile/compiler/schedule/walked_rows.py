"""Schedules of rows too long to hold, walked in blocks: by a program each, or shared out in slabs.

Few rows are shared out among programs, each leaves a partial result, a second function combines them. Where
the reduced axes end in a few neighbours in memory, and the next ones belong to the next row, programs take
these *lanes* for rows, so that they read whole lines; the second function combines them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from nbcompile.compiler.kernel_ir.values import KernelValues, walk_values
from nbcompile.compiler.loop_ir.index import Axis
from nbcompile.compiler.schedule.points import STENCIL
from nbcompile.compiler.schedule.row_shapes import (
    BUSY,
    COLUMNS,
    MOST_SLABS,
    STAGES,
    VECTOR,
    WALK_BLOCK,
    RowShape,
    busy,
    draws,
    finds_places,
    instructions,
    splittable,
    stores_rows,
)
from nbcompile.compiler.schedule.rows import ONE_STEP, RowSchedule
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.schedule.tiling import distinct, power
from nbcompile.compiler.stages import Config
from nbcompile.targets import Target

# Where these numbers come from is said in row_shapes.py.
MANY_READS = 5  # of each point of a row, with which a thread has few points
NARROW = 16  # columns of a tile, where there are few
SHORT_COLUMN = 16  # points of a row that are walked in so many steps
ODD_ROW = 48  # of one along memory, whose length is no multiple of VECTOR


@dataclass(frozen=True)
class BlockWalk:
    """How rows are walked: one at a time or several, in how many slabs, in which blocks."""

    one_row: bool
    slabs: int
    configs: tuple[Config, ...]


@dataclass(frozen=True, kw_only=True)
class WalkedRows(RowSchedule):
    """A program walks its rows block by block."""

    name = "looped rows"
    meaning = "A program walks its rows block by block, once for each result that the next walk needs."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Always."""
        shape = work.shape
        walk = walk_of(work.values, shape, work.target)
        return cls(x=shape.x, r=shape.r, one_row=walk.one_row, configs=walk.configs)


@dataclass(frozen=True, kw_only=True)
class SteppedColumns(WalkedRows):
    """The few steps of a row that lies across memory, or whose odd length keeps a thread from reading several
    points at once, one after the other: each lane takes a row of its own."""

    meaning = "Short rows: each lane takes the few steps of a row of its own."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        shape, values = work.shape, work.values
        odd = _odd(values, shape, work.target)
        across = not shape.along and not shape.mixed and shape.length <= SHORT_COLUMN
        if not shape.fits or not (odd or across) or not splittable(values):
            return None
        if finds_places(values) and not odd:
            return None
        sizes = ((256, 8), (128, 4)) if odd else ((512, 4), (256, 2), (1024, 8), (1024, 4))
        configs = (
            Config({"XBLOCK": min(each, max(32, power(shape.rows))), "RBLOCK": 1}, warps)
            for each, warps in sizes
        )
        return cls(x=shape.x, r=shape.r, configs=distinct(configs))


def _odd(values: KernelValues, shape: RowShape, target: Target) -> bool:
    """Whether rows along memory are so short and of such a length that lanes do best with a row each."""
    if not shape.length % VECTOR or stores_rows(values) or shape.rows < 64 * target.multiprocessors:
        return False
    light = shape.row_bytes < 4 or finds_places(values)
    return shape.pieces or (shape.along and light and shape.length <= ODD_ROW)


@dataclass(frozen=True, kw_only=True)
class SplitRows(RowSchedule):
    """``slabs`` programs share a row, and a second function combines what they have of it."""

    lanes: tuple[Axis, ...] = ()
    """The last of ``x``, if they are reduced too but taken for rows until the parts are combined."""

    name = "split rows"
    meaning = "Each program reduces a part of a row, and a second function combines the parts."

    @property
    def total(self) -> bool:
        """Whether the lanes are all of ``x``: then each program adds up its own."""
        return bool(self.lanes) and self.lanes == self.x

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where few rows would leave the chip idle, and their results may be left in parts."""
        walk = walk_of(work.values, work.shape, work.target)
        if walk.slabs == 1:
            return None
        return cls(
            x=work.shape.x, r=work.shape.r, one_row=walk.one_row, slabs=walk.slabs, configs=walk.configs
        )


@dataclass(frozen=True, kw_only=True)
class SplitLanes(SplitRows):
    """Rows that end in a few neighbours in memory, or in lines, which are kept apart as lanes."""

    name = "split rows, lanes apart"
    meaning = (
        "Neighbours in memory are kept apart while a program reduces its part of a row; a second function "
        "combines them with the parts."
    )

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where a row ends in a few neighbours, or a line of what is summed up whole has work that is the
        same all along it."""
        shape, values = work.shape, work.values
        if finds_places(values):
            return None
        short = shape.lane if splittable(values) else None
        lane = short if short is not None else _line(values, shape)
        if lane is None:
            return None
        across = shape.across(lane)
        walk = walk_of(values, across, work.target)
        configs = walk.configs
        if short is None:
            each = configs[0].constants["XBLOCK"]
            configs = tuple(config for config in configs if config.constants["XBLOCK"] == each)
        return cls(
            x=across.x, r=across.r, one_row=walk.one_row, slabs=walk.slabs, lanes=(lane,), configs=configs
        )


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


def walk_of(values: KernelValues, shape: RowShape, target: Target) -> BlockWalk:
    """The blocks of a walk over rows, and its slabs if their results may be left in parts."""
    return (_walk_along if shape.along else _walk_across)(values, shape, target)


def _walk_along(values: KernelValues, shape: RowShape, target: Target) -> BlockWalk:
    """Rows that lie along memory."""
    rows, length, wanted = shape.rows, shape.length, target.multiprocessors * 4
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
    return BlockWalk(each == 1, slabs, distinct(configs))


def _walk_across(values: KernelValues, shape: RowShape, target: Target) -> BlockWalk:
    """Rows that lie across memory: neighbouring ones are walked together."""
    rows, length, wanted = shape.rows, shape.length, target.multiprocessors * 4
    each = COLUMNS if rows >= COLUMNS else power(max(rows, 1))
    much = busy(values) or draws(values) or _reads(values) >= STENCIL
    if much and rows >= COLUMNS // 4:
        each = _columns(rows) or each  # a lane beyond the last column works as hard as any
    # few warps, each with much to do: what they add up need not be combined until the end
    tile, warps, under_way, programs = WALK_BLOCK // 2, 2, STAGES, 2
    if shape.mixed and shape.row_bytes <= 8 and splittable(values):
        under_way = 1  # what is turned is read piece by piece: nothing to fetch ahead
    elif shape.mixed and shape.row_bytes <= 8:
        each, under_way, programs = min(each, COLUMNS // 2), STAGES + 1, 4
    elif shape.mixed:
        tile, warps = WALK_BLOCK, 8
    elif splittable(values) and _chooses(values):
        under_way = 1  # what is read on one side of a guard alone comes piece by piece too
    elif stores_rows(values) and instructions(values) * 2 >= BUSY:
        warps = 4
    if much:
        warps = 8 if shape.mixed or stores_rows(values) else 4
    if not splittable(values):  # nobody else can help: programs enough before whole lines of memory
        while each > NARROW and rows // each * 8 < target.multiprocessors:
            each //= 2
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
    return BlockWalk(False, slabs, distinct(configs))


def _in_one_step(shape: RowShape, wanted: int) -> BlockWalk:
    """Few rows of which all can be under way at once: each program reads its slab in one step."""
    block = min(max(power(-(-shape.rows * shape.length // wanted)), ONE_STEP // 4), ONE_STEP)
    slabs = -(-shape.length // block)
    sizes = (block // 256, block // 512, block // 128)
    configs = tuple(Config({"XBLOCK": 1, "RBLOCK": block, "STAGES": 1}, max(size, 1)) for size in sizes)
    return BlockWalk(True, slabs, configs)


def _slabs(length: int, block: int, wanted: int, programs: int) -> int:
    """Programs that share a row: enough to fill the chip, each with some blocks to walk."""
    return max(1, min(wanted // max(programs, 1), -(-length // block) // 2, MOST_SLABS))


def _chooses(values: KernelValues) -> bool:
    """Whether some of what is added up is read at some of the points alone."""
    return any(value.kind == "guard" for value in walk_values(values.roots))


def _reads(values: KernelValues) -> int:
    """Loads at each point of a row: of many, threads with many points run out of registers."""
    found = (value for value in walk_values(values.roots) if value.kind == "load")
    return sum(not value.axes.isdisjoint(values.nest.inner) for value in found)
