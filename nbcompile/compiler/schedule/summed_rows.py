"""Schedules of rows with sums over the rows themselves, such as a norm's gradient of its weight: programs add
up over the rows that they own, and a second function adds up what the programs have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from nbcompile.compiler.kernel_ir.values import KernelValues
from nbcompile.compiler.schedule.row_shapes import (
    COLUMNS,
    SHARED_BUDGET,
    STAGES,
    RowShape,
    busy,
    sums_vary,
)
from nbcompile.compiler.schedule.rows import Held, RowSchedule, held, held_columns, is_one_row
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.schedule.tiling import distinct, power, warps_of
from nbcompile.compiler.schedule.walked_rows import walk_of
from nbcompile.compiler.stages import Config
from nbcompile.targets import Target

# Where these numbers come from is said in row_shapes.py.
LONGEST_SUM = 16_384  # points of a row whose sums over the rows stay in registers
SHORT_SUM = 512  # points of a row of which many are held side by side
PIECE, WAVES = 1024, 4  # points of a piece of a longer row, and times that such programs fill the chip
SUM_TILE, SUM_PROGRAMS = 1024, 4  # points of such a tile, and programs of them on a multiprocessor


@dataclass(frozen=True, kw_only=True)
class OwnedRows(Held):
    """``slabs`` programs walk their shares of the rows, each row held whole."""

    name = "persistent rows, partial sums over rows"
    meaning = "Each program adds up the whole rows that it owns, and a second function adds those up."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where there are sums over the rows, and a row fits with their parts."""
        shape, values = work.shape, work.values
        if not _has_sums(values) or not shape.fits:
            return None
        if not sums_vary(values):  # one value a row is added up
            configs = held(values, shape, work.target) if shape.along else held_columns(values, shape)
            one_row = shape.along and is_one_row(configs)
            each = configs[0].constants["XBLOCK"]
            configs = tuple(config for config in configs if config.constants["XBLOCK"] == each)
            slabs = max(-(-shape.rows // each), 1)
            return cls(x=shape.x, r=shape.r, one_row=one_row, slabs=slabs, configs=configs)
        if shape.whole > LONGEST_SUM:
            return None
        slabs, configs = _owned(values, shape, work.target)
        return cls(x=shape.x, r=shape.r, one_row=is_one_row(configs), slabs=slabs, configs=configs)


@dataclass(frozen=True, kw_only=True)
class OwnedPieces(RowSchedule):
    """``slabs`` programs walk their shares of the rows, for each piece of these: nothing is made of a row as
    a whole, so no program needs one."""

    name = "pieces of rows, partial sums over rows"
    meaning = (
        "Each program adds up its piece of the rows that it owns, point by point, and a second function adds "
        "those up."
    )

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where each point of long rows is added up over the rows, and no row is reduced."""
        shape, values = work.shape, work.values
        inner = values.nest.inner
        if not values.reductions or shape.whole <= LONGEST_SUM or not shape.along:
            return None
        if any(not item.split or inner.isdisjoint(item.value.axes) for item in values.reductions):
            return None
        if any(inner.isdisjoint(item.place.axes()) for item in values.stores):
            return None
        slabs, configs = _owned(values, replace(shape, length=PIECE, whole=PIECE), work.target)
        slabs = min(-(-WAVES * slabs * PIECE // shape.length), slabs)
        pieces = tuple(replace(each, constants={**each.constants, "RBLOCK": PIECE}) for each in configs)
        return cls(x=shape.x, r=shape.r, one_row=is_one_row(configs), slabs=max(slabs, 1), configs=pieces)


@dataclass(frozen=True, kw_only=True)
class WalkedSums(RowSchedule):
    """Programs walk their rows in blocks, and leave a part of every sum over the rows: ``slabs`` of them."""

    name = "looped rows, partial sums over rows"
    meaning = "Each program walks its rows and adds up along them, and a second function adds those up."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where there are sums over the rows."""
        shape, values = work.shape, work.values
        if not _has_sums(values):
            return None
        if not sums_vary(values):
            walk = walk_of(values, shape, work.target)
            slabs = -(-shape.rows // walk.configs[0].constants["XBLOCK"])
            return cls(x=shape.x, r=shape.r, one_row=walk.one_row, slabs=slabs, configs=walk.configs[:1])
        each = power(min(16, max(shape.rows // (2 * work.target.multiprocessors), 1)))
        block = max(32, min(8192 // each, shape.whole))
        config = Config({"XBLOCK": each, "RBLOCK": block, "STAGES": shape.stages(2, each * block)}, 8)
        return cls(x=shape.x, r=shape.r, slabs=-(-shape.rows // each), configs=(config,))


def _has_sums(values: KernelValues) -> bool:
    return any(item.split for item in values.reductions)


def _owned(values: KernelValues, shape: RowShape, target: Target) -> tuple[int, tuple[Config, ...]]:
    """Programs that own rows, and how many they hold at once."""
    rows, whole = shape.rows, shape.whole
    # as few programs as keep memory busy: each leaves a part of every sum
    each = max(16 if whole <= 512 else 8, min(COLUMNS, 8192 // whole))
    # Where some lie from row to row, the rows side by side read these well, if the registers hold them.
    along = shape.along or (shape.mostly and whole > SHORT_SUM)
    light = along and shape.row_bytes <= 8
    if along:
        pair = whole == 1024 and light and not busy(values)
        each = max(1, min(SUM_TILE * (2 if pair else 1) // whole, COLUMNS))
    each = min(each, power(rows))
    tile = each * whole
    most = SUM_PROGRAMS * (2 if light else 1)
    per = 1 if whole > 8192 else max(2, min(most, 8192 // tile))
    room = SHARED_BUDGET // max(shape.row_bytes * tile * per, 1)
    slim = along and 8 * shape.length <= 5 * whole  # a third of the registers hold nothing
    stages = min(STAGES, room) if room >= (STAGES if slim else 2) else 1
    few = (stages == 1 if tile >= 4096 else light) if along else tile <= 8192
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
    return programs, distinct(configs)
