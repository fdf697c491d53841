"""The schedule of adding rows into a large table, such as the gradient of an embedding, or messages along the
edges of a graph: points are listed by the row that they name, then each row of the table is written once,
with all that is added.

So a table of a half type is never held in float32, and what no point names is only copied. Of each row a few
points are listed. A row that is named more often is added up by atomics in a workspace, which is as long as
there can be such rows: the commonest word would else keep one program busy for long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from nbcompile.compiler.kernel_ir import integer_ranges
from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.loop_ir.index import product
from nbcompile.compiler.schedule.scattered import Scattered
from nbcompile.compiler.schedule.schedule import Schedule, Work
from nbcompile.compiler.schedule.small_tables import TableRows, rows_of
from nbcompile.compiler.schedule.tiling import power
from nbcompile.compiler.stages import Config

MOST = 8  # points listed of a row, if there are fewer points than rows
NAMED = 16  # how often a row may be named on average
SHORTEST_ROW = 64  # elements: of shorter ones the lists cost as much as the rows
LEAST_TABLE = 1 << 20  # elements: below that the launches cost more than the memory
LEAST_ADDED = 1 << 23  # elements that are added, in float32: fewer atomics cost less than the lists
TYPES = (torch.float32, torch.bfloat16, torch.float16)
TILE = 2048


@dataclass(frozen=True, kw_only=True)
class ListedRows(Schedule):
    """Points that add ``value``, but for those that are ``skipped``: of each row ``most`` are listed. Up to
    ``slots`` rows may be named more often."""

    scattered: Scattered
    rows: TableRows
    value: Value
    skipped: Value | None
    most: int
    slots: int

    name = "scatter by listed rows"
    meaning = "For each row what goes there is listed first, and added up without atomics."
    counts_warps_of_32 = False

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where long rows are added into a large table, few of them to one."""
        scattered, out = work.scattered, work.scattered.out
        rows = rows_of(scattered)
        if rows is None or scattered.loop.mode != "add" or out.dtype not in TYPES:
            return None
        if rows.length < SHORTEST_ROW or product(out.shape).hint() < LEAST_TABLE:
            return None
        if rows.named > NAMED * rows.count.hint():
            return None
        if out.dtype == torch.float32 and rows.named * rows.length < LEAST_ADDED:
            return None  # what is of a half type has a pass over a wider table to gain, too
        most = most_listed(rows)
        if not scattered.is_narrow or rows.count.hint() * most >= integer_ranges.INT32_LIMIT:
            return None
        value, skipped = _but_for_zeros(scattered.value, rows)
        width = min(256, power(rows.length))
        tiles = (TILE, TILE // 2, 2 * TILE)
        configs = tuple(Config({"RBLOCK": tile // width, "XBLOCK": width}, 4) for tile in tiles)
        return cls(
            scattered=scattered, rows=rows, value=value, skipped=skipped, most=most,
            slots=rows.named // (most + 1), configs=configs,
        )  # fmt: skip


def most_listed(rows: TableRows) -> int:
    """How many points of each row are listed: rows named at random are seldom named more often."""
    average = rows.named // rows.count.hint()
    return MOST if average == 0 else 1 << (2 * average + MOST - 1).bit_length()


def _but_for_zeros(value: Value, rows: TableRows) -> tuple[Value, Value | None]:
    """What points add but for those that add nothing, and which those are: the padding of an embedding, which
    may be most points, all in one row."""
    if value.op == "where" and value.args[0].axes <= set(rows.points):
        skipped, zero, rest = value.args
        if zero.kind == "const" and zero.literal == 0:
            return rest, skipped
    return value, None
