"""What the choice among schedules of rows depends on: how the rows lie in memory, and what is done with them.
Kernels that reduce their rows (:mod:`.rows`) and those that scan them (:mod:`.scans`) share it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from nbcompile.compiler.kernel_ir.accesses import accesses, short_lane, streamed_bytes
from nbcompile.compiler.kernel_ir.values import KernelValues, Store, gathered, walk_values
from nbcompile.compiler.loop_ir.index import Axis
from nbcompile.compiler.loop_ir.lanes import heavy, heavy_lanes
from nbcompile.compiler.loop_ir.nodes import Buffer, hint_product
from nbcompile.compiler.schedule.tiling import power, warps_of
from nbcompile.compiler.stages import Config

# Where no property of the chip is named, these numbers, those of the files beside this one, and the sizes and
# warps there are the best of those timed on an H200 over the regions of corpus/: scripts/gpu/sweep.py times
# them again.
LONGEST_ROW = 16_384  # points of a row that one program holds
LONGEST_COLUMN = 512  # points of a row held where neighbours lie from row to row
MOST_LIVE = 65_536  # points times values held at once: the registers of a multiprocessor
WALK_BLOCK = 4096  # points of a walk's block
COLUMNS = 64  # neighbouring columns of a tile whose reduced axis is not the contiguous one
VECTOR = 4  # points of a row that a thread reads at once, if the length is a multiple of it
MOST_SLABS = 1024  # of a row
STAGES = 3  # blocks of a walk under way at once
SHARED_BUDGET = 200 << 10  # bytes of them on a multiprocessor
WORK = {  # instructions of an operation, about, where it is more than one
    name: count
    for count, names in {
        8: ("exp",), 10: ("log",), 12: ("sigmoid",), 20: ("tanh", "erf"), 24: ("log1p",),
        40: ("pow", "sin", "cos"),
    }.items()
    for name in names
}  # fmt: skip
BUSY = 48  # instructions a point, about, from which on threads have few points


@dataclass(frozen=True)
class RowShape:
    """How many rows there are, how long, and how they lie in memory."""

    x: tuple[Axis, ...]
    r: tuple[Axis, ...]
    rows: int
    length: int
    whole: int  # the length as a block: a power of two
    live: int
    along: bool  # neighbours in memory lie along the row, for every heavy access
    mixed: bool  # for some along the row, for others from row to row
    mostly: bool  # by far the most of the bytes lies along the row
    pieces: bool  # each row is a short piece of memory, with the next one beside it
    known: bool  # the length is
    row_bytes: int  # read of a row while walking it once, a point
    lane: Axis | None  # the last of ``r``, if short and alone along memory: the next row's lies beside it

    @classmethod
    def of(cls, values: KernelValues, buffers: dict[str, Buffer]) -> RowShape:
        nest = values.nest
        x, r = nest.rows, nest.inner_axes
        rows, length = hint_product(axis.extent for axis in x), hint_product(axis.extent for axis in r)
        found = accesses(values, buffers)
        lanes, first = heavy_lanes(found), {access.lane for access in heavy(found)}
        whole = sum(access.bytes for access in found)
        return cls(
            x, r, rows, length, power(length), live(values),
            along=rows == 1 or lanes.isdisjoint(x),
            mixed=not lanes.isdisjoint(x) and not lanes.isdisjoint(r),
            mostly=4 * sum(access.bytes for access in found if access.lane in x) <= whole,
            pieces=not lanes.isdisjoint(x) and first.isdisjoint(x),
            known=all(axis.extent.constant is not None for axis in r),
            row_bytes=streamed_bytes(values, buffers),
            lane=short_lane(found, x, r),
        )  # fmt: skip

    def across(self, lane: Axis) -> RowShape:
        """The same with ``lane``, the last of ``r``, as the last of ``x``."""
        size, r = lane.extent.hint(), self.r[:-1]
        length = self.length // max(size, 1)
        return replace(
            self, x=(*self.x, lane), r=r, rows=self.rows * size, length=length, whole=power(length),
            along=False, mixed=False, mostly=False, pieces=False, lane=None,
        )  # fmt: skip

    def stages(self, wanted: int, tile: int, programs: int = 2) -> int:
        """As many blocks under way as leave room for so many programs on a multiprocessor."""
        room = SHARED_BUDGET // programs // max(self.row_bytes * tile, 1)
        return min(wanted, room) if room >= 2 else 1

    def walk(self) -> tuple[int, int]:
        """(rows, points of each) in a block of a walk along memory."""
        each = 1 if self.length >= 1024 else min(8, power(max(self.rows, 1)))
        block = min(WALK_BLOCK, max(64, self.whole))
        return each, block if each == 1 else min(block, 512)

    def walked(self, each: int, block: int, stages: int, held: int) -> Config:
        """A walk in such blocks, of which a thread holds about ``held`` points."""
        stages = self.stages(stages, each * block)
        return Config({"XBLOCK": each, "RBLOCK": block, "STAGES": stages}, warps_of(each * block, held))

    @property
    def fits(self) -> bool:
        """Whether one program can hold a row."""
        return self.known and self.fits_now

    @property
    def fits_now(self) -> bool:
        """Whether one can hold a row of the length that it has now."""
        if not self.along:
            return self.whole <= LONGEST_COLUMN * (2 if self.mixed else 1)
        return self.whole <= LONGEST_ROW and self.whole * self.live <= MOST_LIVE


# -- what is done with the rows -----------------------------------------------------------------------


def sums_vary(values: KernelValues) -> bool:
    """Whether some sum over the rows has values that vary within a row."""
    return any(item.split and item.value.axes & values.nest.inner for item in values.reductions)


def splittable(values: KernelValues) -> bool:
    """Whether the row's reductions can be left as partial results: none is needed while walking it, neither
    for another nor for what is stored of the whole row."""
    outputs = {item.output for item in values.reductions}
    pairs = {item.output: item.mean for item in values.reductions}
    for item in values.reductions:
        if (item.value.reductions & outputs) - {pairs[item.output]}:
            return False
    return not any(item.value.reductions & outputs for item in _whole_rows(values))


def finds_places(values: KernelValues) -> bool:
    """Whether a result is where in its row the largest or smallest number stands."""
    return any(item.kind in ("argmax", "argmin") for item in values.reductions)


def stores_rows(values: KernelValues) -> bool:
    """Whether anything is stored of the whole row."""
    return bool(_whole_rows(values))


def _whole_rows(values: KernelValues) -> list[Store]:
    """The stores of something that varies along the row."""
    inner = values.nest.inner
    return [item for item in values.stores if not inner.isdisjoint(item.value.axes | item.place.axes())]


def kind_of_rows(values: KernelValues) -> Literal["sums", "columns", "rows"]:
    """What a kernel does with its rows: adds up what varies along them beside their own results, adds up
    columns while it stores what is made of them, or neither."""
    if any(item.split for item in values.reductions):
        return "sums" if sums_vary(values) else "rows"
    columns = splittable(values) and stores_rows(values) and not finds_places(values)
    return "columns" if columns else "rows"


def busy(values: KernelValues) -> bool:
    """Whether a point is so much arithmetic that threads with many points run out of registers."""
    return instructions(values) >= BUSY


def instructions(values: KernelValues) -> int:
    """Instructions of a point, about."""
    return sum(WORK.get(value.op, 1) for value in walk_values(values.roots) if value.kind == "op")


def gathers(values: KernelValues) -> bool:
    """Whether some place depends on a value."""
    return any(gathered(value.place) for value in walk_values(values.roots) if value.kind == "load")


def draws(values: KernelValues) -> bool:
    """Whether random numbers are drawn: so much arithmetic that it counts."""
    return any(value.op == "philox_uniform" for value in walk_values(values.roots))


def live(values: KernelValues) -> int:
    """Values of a whole row that are held at once: what is read, and needed again after a reduction."""
    inner = values.nest.inner
    heavy = {
        value.buffer
        for value in walk_values(values.roots)
        if value.kind == "load" and value.axes & inner and value.axes - inner
    }
    return max(1, min(len(heavy), 4))
