"""How a kernel that scans its rows cuts them up: rows on chip, walked in blocks, or shared out in slabs.

``x`` are the rows, ``r`` the axes that scans go along, in their order: a block of ``r`` comes after the one
before it. Where neighbours in memory lie from row to row, a tile has some of these rows side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from nbcompile.compiler.kernel_ir.values import KernelValues, Value, walk_values
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.schedule.row_shapes import (
    COLUMNS,
    LONGEST_COLUMN,
    MOST_SLABS,
    STAGES,
    WALK_BLOCK,
    RowShape,
)
from nbcompile.compiler.schedule.rows import Held, RowSchedule
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.schedule.tiling import distinct, power, warps_of
from nbcompile.compiler.stages import Config
from nbcompile.targets import Target

MOST_TOTALS = 16_384  # totals of slabs that a program of the second function reads at once
COLUMN_TILE = 8192  # points of a tile that holds columns whole


@dataclass(frozen=True, kw_only=True)
class HeldScan(Held):
    """A program holds whole rows, each scanned at once."""

    name = "scan, persistent rows"
    meaning = "A program holds whole rows on chip and makes their running results at once."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        shape, points = work.shape, _points_held(work.values)
        if shape.along:
            if not shape.fits:
                return None
            configs = _held_along(shape, points, work.target)
            one_row = configs[0].constants["XBLOCK"] == 1
            return cls(x=shape.x, r=shape.r, one_row=one_row, configs=configs)
        if not shape.known or shape.whole > LONGEST_COLUMN:
            return None
        each = max(8, min(COLUMNS, COLUMN_TILE // shape.whole))
        configs = distinct(
            Config({"XBLOCK": size}, warps_of(size * shape.whole, held))
            for size, held in ((each, 2 * points), (each, points), (max(each // 2, 8), 2 * points))
        )
        return cls(x=shape.x, r=shape.r, configs=configs)


@dataclass(frozen=True, kw_only=True)
class WalkedScan(RowSchedule):
    """Rows are walked in blocks, each from what the one before it ended with."""

    name = "scan, looped rows"
    meaning = "A program walks its rows block by block and hands on what a block ends with."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Always."""
        shape = work.shape
        one_row, slabs, configs = (_walk_along if shape.along else _walk_across)(work)
        return cls(x=shape.x, r=shape.r, one_row=one_row, slabs=slabs, configs=configs)


@dataclass(frozen=True, kw_only=True)
class SplitScan(WalkedScan):
    """``slabs`` programs share a row: a first function finds what each slab comes to, a second one scans the
    slabs, each from what those before it come to together."""

    name = "scan, split rows"
    meaning = "Programs share a row in slabs; each is scanned from what those before it come to together."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where few rows would leave the chip idle, and no scan is made of another."""
        schedule = super().fit(work)
        return schedule if schedule is not None and schedule.slabs > 1 else None


def scans_of(values: KernelValues) -> list[Value]:
    """Every scan of a kernel, those that others need first. Two outputs of one loop are two values."""
    return [value for value in walk_values(item.value for item in values.stores) if value.kind == "scan"]


def goes_backwards(group: Group) -> bool:
    """Whether the group's scans start at the ends of its rows (which they all do, or none): so a gradient
    that is scanned from its end is read and written forwards."""
    for loop in group.loops:
        if loop.scanned is not None:
            place = group.bindings[loop.id][loop.scanned]
            steps = [place.coefficient(axis) for axis in place.axes()]
            return any(step is not None and step.hint() < 0 for step in steps)
    return False


def _held_along(shape: RowShape, points: int, target: Target) -> tuple[Config, ...]:
    """Blocks of rows that lie along memory, held whole."""
    whole, rows = shape.whole, shape.rows
    busy = rows * whole >= 2048 * 2 * target.multiprocessors
    each = power(max(1, min((2048 if busy else 256) // whole, 64, rows)))
    configs = [Config({"XBLOCK": each}, warps_of(each * whole, item)) for item in (points, 16, 8, 32, 4)]
    if each > 1:
        configs.append(Config({"XBLOCK": max(each // 2, 2)}, warps_of(each * whole // 2, 16)))
        configs.append(Config({"XBLOCK": each * 2}, warps_of(each * whole * 2, 16)))
    return distinct(configs)


def _walk_along(work: Work) -> tuple[bool, int, tuple[Config, ...]]:
    """Whether rows that lie along memory are walked one at a time, in how many slabs, in which blocks."""
    shape, held = work.shape, _points_held(work.values)
    each, block = shape.walk()
    slabs = _slabs(work.values, shape, each, block, work.target)
    configs = [
        shape.walked(each, size, stages, points)
        for size, stages, points in (
            (block, STAGES, held), (block, 1, held), (block, STAGES, 8), (block, STAGES, 16),
            (block // 2, STAGES, held), (block * 2, STAGES, 16), (block * 2, 1, 16),
        )
    ]  # fmt: skip
    return each == 1, slabs, distinct(configs)


def _walk_across(work: Work) -> tuple[bool, int, tuple[Config, ...]]:
    """The same of rows that lie across memory: neighbouring ones are walked together."""
    shape, held = work.shape, _points_held(work.values)
    each = COLUMNS if shape.rows >= COLUMNS else power(max(shape.rows, 1))
    block = max(8, min(shape.whole, WALK_BLOCK // each))
    slabs, ahead = _slabs(work.values, shape, each, block, work.target), shape.stages(STAGES, each * block)
    configs = [
        Config({"XBLOCK": each, "RBLOCK": size, "STAGES": stages}, warps)
        for size, stages, warps in (
            (block, ahead, 128 // held), (block, 1, 128 // held), (block * 2, 1, 8),
            (max(block // 2, 4), ahead, 4), (max(block // 2, 4), 1, 8),
        )
    ]  # fmt: skip
    return False, slabs, distinct(configs)


def _points_held(values: KernelValues) -> int:
    """Points of a tile that a thread holds: a position beside each value takes the registers of another."""
    return 8 if any(value.literal for value in scans_of(values)) else 16


def _slabs(values: KernelValues, shape: RowShape, each: int, block: int, target: Target) -> int:
    """Programs that share a row: a first function finds the total of each slab, a second one scans it from
    the totals before it. Not where a scan is made of another, whose totals are known only then."""
    wanted, programs = target.multiprocessors * 4, max(1, shape.rows // each)
    found = scans_of(values)
    makers = {value.args[0] for value in found}
    if programs >= wanted // 2 or any(value in found for value in walk_values(makers)):
        return 1
    blocks = -(-shape.length // block)
    slabs = max(1, min(-(-wanted // programs), blocks // 2, MOST_SLABS, MOST_TOTALS // each))
    # a number that divides the blocks leaves no slab shorter than the others: on an H200 2 to 3 % faster for
    # 16M elements than any number, 1 to 4 % slower where that leaves few programs more than fit at once
    most = min(2 * slabs, MOST_TOTALS // each + 1)
    return next((item for item in range(slabs, most) if blocks % item == 0), slabs)
