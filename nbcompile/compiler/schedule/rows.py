"""Schedules of rows that a program holds whole on chip, and what all schedules of rows have in common.

``x`` are the kept points, one a row, and ``r`` what is reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from nbcompile.compiler.kernel_ir.values import KernelValues, walk_values
from nbcompile.compiler.loop_ir.index import Axis
from nbcompile.compiler.loop_ir.nodes import hint_product
from nbcompile.compiler.schedule.row_shapes import (
    COLUMNS,
    VECTOR,
    RowShape,
    draws,
    finds_places,
    gathers,
    splittable,
    stores_rows,
)
from nbcompile.compiler.schedule.schedule import Schedule, Work
from nbcompile.compiler.schedule.tiling import distinct, power, warps_of
from nbcompile.compiler.stages import Config
from nbcompile.targets import Target

# Where these numbers come from is said in row_shapes.py.
ONE_STEP = 4096  # points of a slab that a program reads at once
SHORTEST = 64  # points of a block that longer rows are walked in
MOST_WARPS = 16
WIDE_ROW = 16_384  # points of a row of which 32 warps would leave no room for a second program on the core


@dataclass(frozen=True, kw_only=True)
class RowSchedule(Schedule):
    """What is true of every schedule of rows. ``one_row``: x is one number, the tile has the dimension r
    alone. ``slabs``: programs that share a row's points, or those of a sum over the rows, each with a part of
    the result."""

    x: tuple[Axis, ...]
    r: tuple[Axis, ...]
    one_row: bool = False
    slabs: int = 1

    @property
    def complete(self) -> tuple[Config, ...]:
        """The configs with the constants that the kernel has: of one row no ``XBLOCK``."""
        if not self.one_row:
            return self.configs
        return distinct(_without(config, "XBLOCK") for config in self.configs)


def _without(config: Config, name: str) -> Config:
    return replace(config, constants={key: value for key, value in config.constants.items() if key != name})


@dataclass(frozen=True, kw_only=True)
class Held(RowSchedule):
    """Rows that a program holds whole."""

    @property
    def complete(self) -> tuple[Config, ...]:
        """The configs with the row's whole length as its block."""
        block = power(hint_product(axis.extent for axis in self.r))
        return distinct(
            replace(config, constants={**config.constants, "RBLOCK": block}) for config in super().complete
        )


@dataclass(frozen=True, kw_only=True)
class HeldRows(Held):
    """A program holds whole rows on chip, so memory is read once."""

    name = "persistent rows"
    meaning = "A program holds whole rows on chip and reads them once."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where a row fits, and there are rows enough or each result is needed to go on."""
        shape, values, target = work.shape, work.values, work.target
        if not shape.fits:
            return None
        if not shape.along:
            return cls(x=shape.x, r=shape.r, configs=held_columns(values, shape))
        if not _enough(values, shape, target):
            return None
        configs = held(values, shape, target)
        return cls(x=shape.x, r=shape.r, one_row=is_one_row(configs), configs=configs)


@dataclass(frozen=True, kw_only=True)
class HeldIfShort(Held):
    """Rows whose length is a symbol: held whole up to the length of a block, and walked beyond."""

    name = "persistent rows, longer ones looped"
    meaning = (
        "A program holds whole rows on chip and reads them once, if they are no longer than its block; it "
        "walks longer ones block by block."
    )

    @property
    def complete(self) -> tuple[Config, ...]:
        """The configs with the present length as the block, and no shorter one than a walk can do with."""
        return distinct(
            replace(item, constants={**item.constants, "RBLOCK": max(item.constants["RBLOCK"], SHORTEST)})
            for item in super().complete
        )

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where the rows of now would be held, and each is read and written in memory of its own."""
        shape, values = work.shape, work.values
        if shape.known or not shape.along or not shape.fits_now or not _enough(values, shape, work.target):
            return None
        if work.group.memory or any(item.split for item in values.reductions):
            return None
        configs = held(values, shape, work.target)
        if finds_places(values):  # two numbers a point, held across the walk too: few points a thread
            configs = distinct(replace(item, warps=min(4 * item.warps, MOST_WARPS)) for item in configs)
        return cls(x=shape.x, r=shape.r, one_row=is_one_row(configs), configs=configs)


def _enough(values: KernelValues, shape: RowShape, target: Target) -> bool:
    """Whether there are rows enough for a program each, or none can be left in parts."""
    enough = shape.rows >= target.multiprocessors // 2 or shape.whole <= 2 * ONE_STEP
    return enough or not splittable(values)


def is_one_row(configs: Sequence[Config]) -> bool:
    """Whether a program has one row at a time, as the first config says for all."""
    return configs[0].constants["XBLOCK"] == 1


def held_columns(values: KernelValues, shape: RowShape) -> tuple[Config, ...]:
    """Blocks of neighbouring rows that lie across memory, or in pieces too short to be read by many threads,
    held whole."""
    each = max(16 if shape.whole <= 512 else 8, min(COLUMNS * 2, 2048 // shape.whole))
    if shape.mixed and shape.row_bytes >= 4 and stores_rows(values):  # two tensors held, one of them turned
        each = max(8, min(each, 8192 // shape.whole))
    points, most = 64, 4  # few warps: less to combine
    if any(item.split for item in values.reductions) or (stores_rows(values) and not shape.mixed):
        each = max(8, min(COLUMNS * (1 if shape.mixed else 2), 8192 // shape.whole))
        points, most = 16, 16
    elif shape.pieces:
        points, most = (16, 4) if shape.length % VECTOR == 0 else (8, 4)
        each = max(1, 128 * points // shape.whole)
    tile = each * shape.whole
    return (Config({"XBLOCK": each}, min(most, warps_of(tile, points))),)


def held(values: KernelValues, shape: RowShape, target: Target) -> tuple[Config, ...]:
    """Blocks of rows that lie along memory, held whole."""
    whole, rows = shape.whole, shape.rows
    if rows // max(1, 2048 // whole) >= 2 * target.multiprocessors:
        each, points = _of_many(values, shape, target)
    else:
        each, points = max(1, min(256 // whole, rows)), _points(values, shape)
    each = power(each) if rows > 1 else 1
    tile = each * whole
    configs = [Config({"XBLOCK": each}, warps_of(tile, points))]
    for warps in (warps_of(tile, max(8, 48 - points)), warps_of(tile, 8), warps_of(tile, 64)):
        configs.append(Config({"XBLOCK": each}, warps))
    if each > 1:
        configs.append(Config({"XBLOCK": max(each // 2, 2)}, warps_of(tile // 2, points)))
        configs.append(Config({"XBLOCK": each * 2}, warps_of(tile * 2, points)))
    return distinct(configs)


def _points(values: KernelValues, shape: RowShape) -> int:
    """Points of a thread, where nothing speaks for more or fewer."""
    pieces = len(shape.r) > 1 and shape.whole >= ONE_STEP  # of memory, told apart by divisions
    return 32 if draws(values) or pieces or shape.whole == WIDE_ROW else 16


def _of_many(values: KernelValues, shape: RowShape, target: Target) -> tuple[int, int]:
    """(rows of a block, points of a thread), where there are rows enough for every multiprocessor."""
    whole, wide, stores = shape.whole, shape.row_bytes >= 4, stores_rows(values)
    if shape.known and gathers(values) and whole >= 1024:  # the more programs, the more rows are under way
        return 1, 16 if draws(values) else 32
    if wide and not gathers(values) and (whole <= 512 or (whole == 1024 and not stores)):
        return max(1, 512 // whole), 32  # a warp: nothing is combined across warps
    if shape.known and not draws(values):
        if shape.length % VECTOR and whole in (32, 64):  # read a point at a time
            return (32, 8) if whole == 32 else (8, 32) if stores else (32, 64)
        if shape.length % VECTOR and whole == 256 and not (stores or wide):
            return 8, 64
        if whole == 128 and not gathers(values):
            return 32, 16  # more threads than a vector has points: see _of_one_warp
        if stores and not gathers(values) and _of_one_warp(values, shape):
            each = 1024 // whole
            more = not wide if whole == 1024 else shape.rows // each < 40 * target.multiprocessors
            return (2 * each, 64) if more else (each, 32)
    return max(1, min(2048 // whole, 64)), _points(values, shape)


def _of_one_warp(values: KernelValues, shape: RowShape) -> bool:
    """Whether programs of one warp are best. A vector with as many points as the program has threads, of
    weights, say, is laid out in a way of its own by Triton (its pass remove-layout-conversions takes such a
    load for one that others have to follow), and what comes after it is reduced across warps: with one warp
    that costs nothing."""
    if shape.whole == 256:
        return _reads_vectors(values)
    chained = shape.row_bytes < 4 or len(values.reductions) > 2
    return shape.whole == 512 or (shape.length < shape.whole == 1024 and chained)


def _reads_vectors(values: KernelValues) -> bool:
    """Whether something is read that is the same for all rows."""
    inner = values.nest.inner
    loads = (value for value in walk_values(values.roots) if value.kind == "load")
    return any(value.axes and value.axes <= inner for value in loads)
