"""Schedules of long rows that several programs hold or walk together, waiting for each other's results.

All programs must be on the chip together (``Launch.together``): ``GROUPS`` groups of ``parts`` programs, each
group at one row after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from nbcompile.compiler.schedule.row_shapes import STAGES, finds_places, splittable
from nbcompile.compiler.schedule.rows import RowSchedule
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.schedule.tiling import power
from nbcompile.compiler.stages import Config

# Where these numbers come from is said in row_shapes.py.
CACHED = 2  # the part of the L2 cache that keeps what is walked again: one in so many bytes
TOGETHER = 2048  # points of a block where several programs walk a row
PART = 8192  # points that one of several programs holds of a row, with 8 warps
SMALL_DATA = 8 << 20  # bytes that a second walk finds in the cache anyway


@dataclass(frozen=True, kw_only=True)
class SharedRows(RowSchedule):
    """``parts`` programs hold a row together on chip, each a part of ``RBLOCK`` points."""

    parts: int

    name = "rows shared by N programs"
    meaning = "Each program holds a part of the row on chip, and they meet to combine their results."

    @property
    def title(self) -> str:
        return self.name.replace("N programs", f"{self.parts} programs")

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where enough bytes come from one meeting to the next."""
        shape, target = work.shape, work.target
        if not _can_meet(work) or shape.row_bytes < 4 * shape.live:
            return None
        # the more values of a row are held, the fewer of its points
        part = max(PART // power(shape.live), PART // 2 if shape.live < 4 else 16)
        parts = -(-shape.length // part)
        if parts < 2 or parts * 2 > target.multiprocessors * 4:
            return None
        groups = dict.fromkeys(
            min(shape.rows, target.multiprocessors * each_sm // parts) for each_sm in (4, 3, 2, 1)
        )
        configs = [Config({"RBLOCK": part, "GROUPS": item}, 8) for item in groups if item]
        configs.insert(0, replace(configs[0], registers=target.registers // (4 * 8 * 32)))
        return cls(x=shape.x, r=shape.r, one_row=True, parts=parts, configs=tuple(configs))


@dataclass(frozen=True, kw_only=True)
class SharedWalks(SharedRows):
    """``parts`` programs walk a row together, as many rows at a time as the cache keeps."""

    name = "looped rows shared by N programs"
    meaning = "Each program walks a part of the row, and they meet to combine their results."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where rows are walked more than once, too few for a program each."""
        shape, target = work.shape, work.target
        if not _can_meet(work) or shape.row_bytes >= 4 * shape.live or shape.rows >= target.multiprocessors:
            return None
        if any(item.kind not in ("sum", "mean") for item in work.values.reductions):
            return None
        row, room = shape.length * shape.row_bytes, target.l2_bytes // CACHED
        groups = -(-shape.rows // max(-(-shape.rows * row // max(room, 1)), 1))
        blocks = -(-shape.length // TOGETHER)
        parts = min(target.multiprocessors * 4 // groups, blocks // 2)
        few = groups * parts < 3 * target.multiprocessors and groups < shape.rows
        if parts < 2 or row > room or (few and 8 * shape.rows >= 5 * target.multiprocessors):
            return None  # in turns and by few programs, where one a row nearly fills the chip
        parts = -(-blocks // -(-blocks // parts))  # none without a block
        configs = tuple(
            Config({"RBLOCK": TOGETHER, "STAGES": stages, "GROUPS": groups}, warps)
            for stages, warps in ((STAGES, 4), (STAGES, 8), (STAGES, 2), (1, 4))
        )
        return cls(x=shape.x, r=shape.r, one_row=True, parts=parts, configs=configs)


def _can_meet(work: Work) -> bool:
    """Whether programs could share rows, and there is much to gain."""
    shape = work.shape
    known = shape.known and all(axis.extent.constant is not None for axis in shape.x)
    if not known or splittable(work.values) or finds_places(work.values):
        return False
    return shape.along and shape.length * shape.rows * shape.row_bytes >= SMALL_DATA
