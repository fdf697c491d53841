"""The schedule of adding many points into a table of few rows: each program sums its points row by row, a
second function adds up what the programs have.

Atomics would all meet in the same few places. Here each lane compares the row that its point names with every
row of the table and adds to those that agree: nothing is shared, and sums are always made in one order. Of
half types the sum is a matrix product on the tensor cores: the comparisons, as zeros and ones, by the values,
all of which are exact in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

import torch

from nbcompile.compiler.kernel_ir.values import Gathered, Value
from nbcompile.compiler.loop_ir.expr import HALF
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, product
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.schedule.scattered import Scattered
from nbcompile.compiler.schedule.schedule import Schedule, Work
from nbcompile.compiler.schedule.tiling import power
from nbcompile.compiler.stages import Config

MOST_ROWS = 64
POINTS_A_ROW = 32  # with fewer, atomics seldom meet
LONG_ROW = 64  # elements of a row that lanes are spread over; points are, where rows are shorter
TILE = 4096
PRODUCT = 4096  # values that go into one product
LEAST_PRODUCT = 4  # elements of a row: a product has 16, if only of zeros
SUMMED_TOGETHER = 4  # elements of a short row that one program sums
PROGRAMS = 8  # on a multiprocessor


@dataclass(frozen=True, kw_only=True)
class SmallTable(Schedule):
    """``way``: what the lanes of a program are. ``block``: the table's rows as a block; ``each``: points
    under way at once. ``slabs`` programs share the points, ``across`` of them each row's elements."""

    scattered: Scattered
    rows: TableRows
    way: Literal["products", "along the row", "points"]
    block: int
    each: int
    slabs: int
    across: int

    name = "scatter into a small table"
    meaning = "Each program fills a table of its own, and a second function adds them up."
    counts_warps_of_32 = False

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where many floating-point numbers are added to few rows."""
        scattered = work.scattered
        rows = rows_of(scattered)
        if rows is None or scattered.loop.mode != "add" or not scattered.out.dtype.is_floating_point:
            return None
        count = rows.count.hint()
        if count > MOST_ROWS or rows.named < POINTS_A_ROW * count:
            return None
        block = power(max(count, 2))
        if rows.length >= LEAST_PRODUCT and half_of(scattered):
            way, block, each, across, programs, configs = _products(rows, block)
        elif rows.length >= LONG_ROW:
            way, block, each, across, programs, configs = _along_the_row(rows, block)
        else:
            way, block, each, across, programs, configs = _points(rows, block)
        blocks = -(-rows.named // each)
        steps = -(-blocks // max(1, min(programs * work.target.multiprocessors // across, blocks)))
        slabs = -(-blocks // steps)  # as many programs as have an equal share
        return cls(
            scattered=scattered, rows=rows, way=way, block=block, each=each, slabs=slabs, across=across,
            configs=configs,
        )  # fmt: skip


@dataclass(frozen=True)
class TableRows:
    """Where the points of a scatter go: all of a row's elements to the row of the output that ``row`` names.

    dim:    the output's dimension that rows are counted along; ``count`` of them.
    inner:  the axis for each other dimension of the output, along which a row's elements lie; None for a
            dimension of extent 1.
    points: the other axes: a row is named for each of their points.
    """

    dim: int
    row: Value
    count: IndexExpr
    inner: tuple[Axis | None, ...]
    points: tuple[Axis, ...]

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.inner if axis is not None)

    @property
    def length(self) -> int:
        """Elements of a row."""
        return product(axis.extent for axis in self.axes).hint()

    @property
    def named(self) -> int:
        """How often a row is named."""
        return product(axis.extent for axis in self.points).hint()


def rows_of(scattered: Scattered) -> TableRows | None:
    """The rows of a scatter of static size; None if it is not of this form."""
    found: tuple[int, Gathered] | None = None
    inner: list[Axis | None] = []
    for dim, (place, extent) in enumerate(zip(scattered.targets, scattered.out.shape, strict=True)):
        if place.axis is not None and place.axis.extent == extent and place.axis not in inner:
            inner.append(place.axis)
        elif extent == ONE and place.constant == 0:
            inner.append(None)
        elif (
            found is None and len(place.terms) == 1 and place.terms[0][1] == 1 and len(place.terms[0][0]) == 1
        ):
            (atom,) = place.terms[0][0]
            if not isinstance(atom, Gathered):
                return None
            found = dim, atom
        else:
            return None
    axes = scattered.values.nest.axes
    static = all(axis.extent.constant for axis in axes) and all(e.constant for e in scattered.out.shape)
    if found is None or not static or found[1].value.axes & set(inner):
        return None
    dim, atom = found
    points = tuple(axis for axis in axes if axis not in inner)
    return TableRows(dim, atom.value, scattered.out.shape[dim], tuple(inner), points)


def half_of(scattered: Scattered) -> torch.dtype | None:
    """The half type that all points of a scatter into that type have; None if they were computed."""
    dtype = scattered.out.dtype
    return dtype if dtype in HALF and _is_rounded(scattered.value, dtype, scattered.buffers) else None


def _is_rounded(value: Value, dtype: torch.dtype, buffers: Mapping[str, Buffer]) -> bool:
    if value.kind == "const":
        return value.literal in (0, 1)
    if value.kind == "load":
        return buffers[value.buffer].dtype == dtype
    if value.op == "where":
        return all(_is_rounded(arg, dtype, buffers) for arg in value.args[1:])
    return value.op == ("round_bf16" if dtype == torch.bfloat16 else "round_f16")


_Way = tuple[Literal["products", "along the row", "points"], int, int, int, int, tuple[Config, ...]]
"""What lanes are; the table's block; points under way; programs across a row, and on a multiprocessor."""


def _products(rows: TableRows, block: int) -> _Way:
    """Lanes are points and elements of a row: their sums are a product with the comparisons."""
    block = max(block, 16)  # the least that a product takes
    width = min(64, max(16, power(rows.length)))
    each = min(128, PRODUCT // width)
    constants = {"ROWS": block, "PBLOCK": each, "XBLOCK": width}
    warps = each * width // 1024
    configs = tuple(
        Config(constants | {"STAGES": stages}, count)
        for stages, count in ((3, warps), (3, warps * 2), (1, warps))
    )
    return "products", block, each, -(-rows.length // width), PROGRAMS // 2, configs


def _along_the_row(rows: TableRows, block: int) -> _Way:
    """Lanes lie along the row: points come one by one."""
    width = min(256, power(rows.length), max(LONG_ROW, 2 * TILE // block))
    each = 8 if block <= 8 else 4
    warps = 4 if block * width <= TILE else 8
    configs = (Config({"ROWS": block, "XBLOCK": width}, warps),)
    return "along the row", block, each, -(-rows.length // width), PROGRAMS, configs


def _points(rows: TableRows, block: int) -> _Way:
    """Lanes are points: a tile of all rows by some points for each of a few elements."""
    lanes = min(512, TILE // block)
    constants = {"ROWS": block, "XBLOCK": lanes}
    # a sum over the lanes, at the end of each program, costs as much as some of its steps
    return (
        "points", block, lanes, -(-rows.length // SUMMED_TOGETHER), PROGRAMS // 2,
        (Config(constants, 8), Config(constants, 4)),
    )  # fmt: skip
