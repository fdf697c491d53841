"""How GPU kernels are cut into tiles.

:data:`KINDS` lists the kinds of schedules, :func:`choose` asks them.
"""

from __future__ import annotations

from collections.abc import Mapping

from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.schedule.listed_axes import ListedAxes, ListedLanes
from nbcompile.compiler.schedule.listed_rows import ListedRows
from nbcompile.compiler.schedule.points import Bands, ByRows, Joined, Parts, Points, Square
from nbcompile.compiler.schedule.products import PersistentProduct, ProductTiles
from nbcompile.compiler.schedule.rows import HeldIfShort, HeldRows
from nbcompile.compiler.schedule.scans import HeldScan, SplitScan, WalkedScan
from nbcompile.compiler.schedule.scatters import Scatter
from nbcompile.compiler.schedule.schedule import Kind, Schedule, Work
from nbcompile.compiler.schedule.shared_rows import SharedRows, SharedWalks
from nbcompile.compiler.schedule.small_tables import SmallTable
from nbcompile.compiler.schedule.summed_rows import OwnedPieces, OwnedRows, WalkedSums
from nbcompile.compiler.schedule.walked_rows import SplitLanes, SplitRows, SteppedColumns, WalkedRows
from nbcompile.errors import CodegenError
from nbcompile.targets import Target

KINDS: dict[Kind, tuple[type[Schedule], ...]] = {
    "product": (PersistentProduct, ProductTiles),
    "scatter": (ListedAxes, ListedLanes, SmallTable, ListedRows, Scatter),
    "scan": (HeldScan, SplitScan, WalkedScan),
    "rows": (
        OwnedRows, OwnedPieces, WalkedSums, SteppedColumns, HeldRows, HeldIfShort, SplitLanes, SplitRows,
        SharedRows, SharedWalks, WalkedRows,
    ),
    "points": (Square, Parts, Joined, ByRows, Bands, Points),
}  # fmt: skip
"""The schedules of each kind of work. The first that fits is taken; the last one always fits."""


def choose(group: Group, buffers: Mapping[str, Buffer], target: Target) -> tuple[Work, Schedule]:
    """What a group computes, and how to cut it into tiles for ``target``.

    Raises CodegenError where no schedule can do it."""
    work = Work.of(group, buffers, target)
    in_place = work.kind == "scatter" and group.in_place  # all others write every element
    for kind in (Scatter,) if in_place else KINDS[work.kind]:
        schedule = kind.fit(work)
        if schedule is not None:
            return work, schedule.on(target)
    raise CodegenError(f"no schedule fits {group.name}")
