"""The printers of schedules. :data:`PRINTERS` has one for each kind."""

from __future__ import annotations

from typing import Any

from nbcompile.compiler.codegen.triton.nests import TritonNest
from nbcompile.compiler.codegen.triton.schedules.listed_axes import ListedAxesNest
from nbcompile.compiler.codegen.triton.schedules.listed_lanes import ListedLanesNest
from nbcompile.compiler.codegen.triton.schedules.listed_rows import ListedRowsNest
from nbcompile.compiler.codegen.triton.schedules.points import (
    BandsNest,
    JoinedNest,
    LinesNest,
    PartsNest,
    PointsNest,
    SquareNest,
)
from nbcompile.compiler.codegen.triton.schedules.products import PersistentProductNest, ProductNest
from nbcompile.compiler.codegen.triton.schedules.rows import HeldRowsNest
from nbcompile.compiler.codegen.triton.schedules.scan import HeldScanNest, WalkedScanNest
from nbcompile.compiler.codegen.triton.schedules.scatter import ScatterNest
from nbcompile.compiler.codegen.triton.schedules.shared_rows import SharedRowsNest
from nbcompile.compiler.codegen.triton.schedules.shared_walks import SharedWalksNest
from nbcompile.compiler.codegen.triton.schedules.small_tables import SmallTableNest
from nbcompile.compiler.codegen.triton.schedules.split_rows import SplitRowsNest
from nbcompile.compiler.codegen.triton.schedules.summed_rows import OwnedPiecesNest, OwnedRowsNest
from nbcompile.compiler.codegen.triton.schedules.walked_rows import (
    HeldIfShortNest,
    SteppedColumnsNest,
    WalkedRowsNest,
)
from nbcompile.compiler.schedule import (
    listed_axes,
    listed_rows,
    points,
    products,
    rows,
    scans,
    scatters,
    shared_rows,
    small_tables,
    summed_rows,
    walked_rows,
)
from nbcompile.compiler.schedule.schedule import Schedule

PRINTERS: dict[type[Schedule], type[TritonNest] | Any] = {
    points.Points: PointsNest,
    points.Square: SquareNest,
    points.ByRows: LinesNest,
    points.Parts: PartsNest,
    points.Joined: JoinedNest,
    points.Bands: BandsNest,
    rows.HeldRows: HeldRowsNest,
    rows.HeldIfShort: HeldIfShortNest,
    walked_rows.WalkedRows: WalkedRowsNest,
    walked_rows.SteppedColumns: SteppedColumnsNest,
    walked_rows.SplitRows: SplitRowsNest,
    walked_rows.SplitLanes: SplitRowsNest,
    shared_rows.SharedRows: SharedRowsNest,
    shared_rows.SharedWalks: SharedWalksNest,
    summed_rows.OwnedRows: OwnedRowsNest,
    summed_rows.OwnedPieces: OwnedPiecesNest,
    summed_rows.WalkedSums: WalkedRowsNest,
    scans.HeldScan: HeldScanNest,
    scans.WalkedScan: WalkedScanNest,
    scans.SplitScan: WalkedScanNest,
    scatters.Scatter: ScatterNest,
    small_tables.SmallTable: SmallTableNest,
    listed_rows.ListedRows: ListedRowsNest,
    listed_axes.ListedAxes: ListedAxesNest,
    listed_axes.ListedLanes: ListedLanesNest,
    products.ProductTiles: ProductNest,
    products.PersistentProduct: PersistentProductNest,
}
"""What prints a kind of schedule."""
