"""A kernel of scans on a GPU: each element combines what stands along its row up to itself.

A row that fits is scanned at once. A longer one is walked in blocks that hand on what they end with. Few
long rows are cut into slabs: a first function finds what each slab comes to, a second one scans the slabs,
each from what those before it come to together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from nbcompile.compiler.codegen.triton.block_printers import (
    RowsPrinter,
    chunk_of,
    declare_slab,
    end_of,
    staged,
)
from nbcompile.compiler.codegen.triton.dims import Dim, Scope
from nbcompile.compiler.codegen.triton.expressions import TRITON_TYPES, TritonWriter
from nbcompile.compiler.codegen.triton.schedules.rows import RowsNest
from nbcompile.compiler.codegen.triton.tile_expression import TileExpression, named
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.kernel_ir.values import KernelValues, Value
from nbcompile.compiler.loop_ir.index import index
from nbcompile.compiler.schedule.rows import RowSchedule
from nbcompile.compiler.schedule.scans import WalkedScan, goes_backwards, scans_of
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.schedule.tiling import extent_of, power
from nbcompile.compiler.stages import Config

_COMBINES = {"sum": "plus", "prod": "multiply", "logsumexp": "log_add_exp"}
_SIGNS = {"sum": "+", "prod": "*"}


@dataclass(frozen=True)
class Scan:
    """The scans of one value that are done as one: the running ``value``, its ``position``, or both."""

    kind: str
    name: str
    origin: list[str]  # the loop that it is of
    operand: Value
    value: Value | None
    position: Value | None


class ScanNest(RowsNest):
    """What is said of scans, however their rows are cut up."""

    def __init__(self, work: Work, plan: RowSchedule, writer: TritonWriter) -> None:
        super().__init__(work, plan, writer)
        self.scans = _together(self.values)
        self.backwards = goes_backwards(self.group)

    # -- combining ---------------------------------------------------------------------------------------

    def combine(self, scan: Scan) -> str:
        """The name of the function of two that are one."""
        if scan.kind in _COMBINES:
            return self.writer.helper(_COMBINES[scan.kind])
        if scan.position is not None:
            return self.writer.helper(f"later_{scan.kind}")
        return self.writer.helper("maximum_nan" if scan.kind == "max" else "minimum_nan")

    def joined(self, scan: Scan, before: Sequence[str], now: Sequence[str]) -> str:
        """What came before and what comes now, as one."""
        if scan.kind in _SIGNS:
            return f"{before[0]} {_SIGNS[scan.kind]} {now[0]}"
        return f"{self.combine(scan)}({', '.join([*before, *now])})"

    def reduced(self, scan: Scan, parts: Sequence[str], axis: int) -> str:
        """All of a tile along ``axis`` as one; the axis is dropped."""
        if scan.position is not None:
            return f"{self.writer.helper(f'last_{scan.kind}')}({', '.join(parts)}, {axis})"
        if scan.kind == "logsumexp":
            return f"{self.writer.helper('log_sum_exp')}({parts[0]}, {axis})"
        return self.writer.reduce(scan.kind, parts[0], axis, scan.operand.dtype)

    def literals(self, scan: Scan) -> list[str]:
        """What changes nothing when it comes before: of the value, and of its position."""
        kind = "max" if scan.kind == "logsumexp" else scan.kind
        value = self.writer.identity(kind, scan.operand.dtype)
        return [value] if scan.position is None else [value, "-1"]

    def types(self, scan: Scan, p: TilePrinter) -> list[torch.dtype]:
        """The types that a scan runs in: of the value, and of its position."""
        kept = [scan.operand.dtype]
        return kept if scan.position is None else [*kept, torch.int64 if p.wide else torch.int32]

    def names(self, scan: Scan, p: TilePrinter, word: str) -> list[str]:
        """New names for what a scan runs in."""
        found = [p.fresh(f"{scan.name}_{word}" if word else scan.name)]
        return found if scan.position is None else [*found, p.fresh(f"{found[0]}_at")]

    def operands(self, scan: Scan, p: TilePrinter, r: Dim, scope: Scope, masked: bool) -> list[str]:
        """The tiles to scan: the value at every point, and where it stands along the scan; ``masked``: what
        changes nothing where there is no point."""
        operand, value = p.text(scan.operand, scope), scan.operand
        text = str(operand)
        if value.kind == "const":
            text = p.full(operand.bare, value.dtype)
        elif len(p.dims_of(value.axes)) < len(p.shape):
            text = f"tl.broadcast_to({text}, {p.shape_text()})"
        found = [text]
        if scan.position is not None:
            place = f"{self.size(p, r.extent - 1)} - {r.name}" if self.backwards else r.name
            found.append(place if len(p.shape) == 1 else f"tl.broadcast_to({place}, {p.shape_text()})")
        if not (masked and r.mask):
            return found
        return [
            f"tl.where({r.mask}, {item}, tl.full((), {literal}, {TRITON_TYPES[dtype]}))"
            for item, literal, dtype in zip(found, self.literals(scan), self.types(scan, p), strict=True)
        ]

    def scan_all(
        self, p: TilePrinter, r: Dim, scope: Scope, carried: Mapping[str, Sequence[str]], last: str = ""
    ) -> Scope:
        """The scope with every scan of the present block, after what is ``carried`` into it; ``last`` names
        the lane whose values are carried out of it."""
        axis = r.place or 0
        for scan in self.scans:
            scope = p.define(self.shared([scan.operand]), scope, always=True)
            # forwards, what comes before a point is there; the end of a row is where it may not be
            given = self.operands(scan, p, r, scope, masked=self.backwards)
            made = self.names(scan, p, "")
            left = ", ".join(made)
            before = carried.get(scan.name)
            way = ", reverse=True" if self.backwards else ""
            call = f"tl.associative_scan({_tuple(given)}, {axis}, {self.combine(scan)}{way})"
            if before and scan.position is None:
                p.out.add(f"{left} = {self.joined(scan, before, [call])}", scan.origin)
            else:
                p.out.add(f"{left} = {call}", scan.origin)
                if before:
                    p.out.add(f"{left} = {self.joined(scan, before, made)}", scan.origin)
            for name, out in zip(before or (), made, strict=False):
                ended = self.kept(p, f"{self.writer.helper('at_end')}({out}, {last}, {axis})")
                p.out.add(f"{name} = {ended}", scan.origin)
            scope = dict(scope)
            if scan.value is not None:
                scope[scan.value.number] = named(made[0])
            if scan.position is not None:
                wide = TileExpression(f"{made[1]}.to(tl.int64)")
                scope[scan.position.number] = named(made[1]) if p.wide else wide
        return scope

    def kept(self, p: TilePrinter, text: str) -> str:
        """What was reduced along the row as a row's value in the tile's shape."""
        return text if len(p.shape) == 1 else f"{text}[:, None]"


class HeldScanNest(ScanNest):
    """Whole rows, each scanned at once."""

    def write(self) -> None:
        p, x, r, configs = self.p, self.x, self.r, self.configs
        grid = self.declare_rows(p, x, configs)
        self.declare(p, r, "", configs)
        self.store_all(p, self.values.stores, self.scan_all(p, r, {}, {}))
        self.add(self.symbol, p, grid, configs)


class WalkedScanNest(ScanNest):
    """Rows walked in blocks, by one program or in slabs."""

    plan: WalkedScan

    def write(self) -> None:
        p, x, r, configs = self.p, self.x, self.r, self.configs
        split = self.plan.slabs > 1
        if split:
            self._totals(x, r, configs)
        grid = self.declare_rows(p, x, configs)
        # the last slabs first: what the first function has read last is what the L2 still holds
        bounds = self._bounds(p, r, configs, grid, f"{self.plan.slabs - 1} - {self.program(p, 1)}")
        carried = {scan.name: self.names(scan, p, "before") for scan in self.scans}
        if split:
            self._before(p, x, carried)
        else:
            for scan in self.scans:
                self._start(scan, p, carried[scan.name], ["1"])
        lane = "0" if self.backwards else f"{r.block} - 1"
        last, ends = p.fresh("last"), f"tl.arange(0, {r.block}) == {lane}"
        p.out.add(f"{last} = {p.across(f'({ends})', r.place) if r.place else ends}")
        p.last = split  # the first function has read what this one reads for the last time
        scope = p.hoist([item.value for item in self.values.stores], self.inside, {})
        self._block(p, r, configs, bounds, self.backwards)
        self.store_all(p, self.values.stores, self.scan_all(p, r, scope, carried, last))
        p.out.leave()
        self.add(self.symbol, p, grid, configs)

    def _block(
        self, p: RowsPrinter, r: Dim, configs: Sequence[Config], bounds: tuple[str, str], backwards: bool
    ) -> None:
        """The head of the loop over blocks, and where the present one is."""
        start, end = bounds
        offset, r.mask = "start", ""
        if backwards:
            blocks = f"(tl.cdiv({end}, {r.block}) - 1) * {r.block}"
            if start != "0":
                blocks = f"2 * {start} + (tl.cdiv({end} - {start}, {r.block}) - 1) * {r.block}"
            offset = f"{blocks} - start"
        p.block_start = f"({offset})" if backwards else offset
        walk = f"{start}, {end_of(end)}, {r.block}"
        p.out.enter(f"for start in {staged(configs, walk)}:", axes=r.axes)
        p.out.add(f"{r.name} = {p.lanes(r, offset=offset)}")
        if not self._whole_blocks(r, configs):
            r.mask = p.fresh(f"{r.name}_in")
            p.out.add(f"{r.mask} = {r.name} < {end}")
        p.declare_axes(r)

    def _start(self, scan: Scan, p: TilePrinter, names: Sequence[str], shape: list[str]) -> None:
        """Running results before anything has come: a value a row, or of a whole tile."""
        whole = ["XBLOCK", *shape] if len(p.shape) == 2 else [item for item in shape if item != "1"]
        for name, literal, dtype in zip(names, self.literals(scan), self.types(scan, p), strict=True):
            p.out.add(f"{name} = {p.full(literal, dtype, whole)}", scan.origin)

    # -- slabs -------------------------------------------------------------------------------------------

    def _whole_blocks(self, r: Dim, configs: Sequence[Config]) -> bool:
        """Whether every slab is a whole number of blocks, the last one too, for every candidate."""
        extent = r.extent.constant
        if self.plan.slabs == 1 or not extent:
            return self.divides(r, configs)
        chunk = int(chunk_of(str(extent), configs, self.plan.slabs))
        return self.divides(r, configs) and all(chunk % item.constants["RBLOCK"] == 0 for item in configs)

    def _bounds(
        self, p: TilePrinter, r: Dim, configs: Sequence[Config], grid: list[str], slab: str
    ) -> tuple[str, str]:
        """First and end of what this program walks; the grid gets a dimension for slabs, and ``slab`` is the
        text of this program's."""
        length = self.size(p, r.extent)
        if self.plan.slabs == 1:
            return "0", length
        grid.append(str(self.plan.slabs))
        return declare_slab(p, slab, chunk_of(length, configs, self.plan.slabs), length)

    def _parts(self, scan: Scan, p: TilePrinter) -> list[str]:
        """Pointers to what the slabs come to: of the value, and of its position."""
        found = []
        for word, dtype in zip(("totals", "totals_at"), self.types(scan, p), strict=False):
            name = f"{scan.name}_{word}"
            size = extent_of(self.plan.x) * index(self.plan.slabs)
            found.append(p.pointer(self.workspace(name, dtype, size).name))
        return found

    def _totals(self, x: Dim, r: Dim, configs: Sequence[Config]) -> None:
        """The function that finds what each slab of each row comes to."""
        x, r = Dim(x.axes, x.name, x.block, x.place), Dim(r.axes, r.name, r.block, r.place)
        p = self.rows_printer(x, r)
        p.reread = True
        grid = self.declare_rows(p, x, configs)
        bounds = self._bounds(p, r, configs, grid, self.program(p, 1))
        running = {scan.name: self.names(scan, p, "total") for scan in self.scans}
        for scan in self.scans:
            self._start(scan, p, running[scan.name], ["RBLOCK"])
        scope = p.hoist([scan.operand for scan in self.scans], self.inside, {})
        self._block(p, r, configs, bounds, False)
        for scan in self.scans:
            scope = p.define(self.shared([scan.operand]), scope, always=True)
            names = running[scan.name]
            now = self.operands(scan, p, r, scope, masked=True)
            p.out.add(f"{', '.join(names)} = {self.joined(scan, names, now)}", scan.origin)
        p.out.leave()
        p.block_start = ""
        mask = f", mask={x.mask}" if x.mask else ""
        for scan in self.scans:
            names = running[scan.name]
            p.out.add(f"{', '.join(names)} = {self.reduced(scan, names, r.place or 0)}", scan.origin)
            for name, pointer in zip(names, self._parts(scan, p), strict=True):
                place = f"{pointer} + {self._part(p, x, 'slab')}"
                p.out.add(f"tl.store({place}, {self.kept(p, name)}{mask})", scan.origin)
        self.add(f"{self.symbol}_totals", p, grid, configs)

    def _before(self, p: TilePrinter, x: Dim, carried: Mapping[str, Sequence[str]]) -> None:
        """What the slabs before this one come to together."""
        before, axis = p.fresh("before"), len(p.shape) - 1
        lanes = f"tl.arange(0, {power(self.plan.slabs)})"
        p.out.add(f"{before} = {p.across(lanes, axis)}")
        come = (
            f"({before} > slab) & ({before} < {self.plan.slabs})" if self.backwards else f"({before} < slab)"
        )
        mask = " & ".join([*([x.mask] if x.mask else []), come])
        for scan in self.scans:
            names = carried[scan.name]
            for name, pointer, literal in zip(names, self._parts(scan, p), self.literals(scan), strict=True):
                read = f"{pointer} + {self._part(p, x, before)}, mask={mask}, other={literal}"
                p.out.add(f"{name} = tl.load({read})", scan.origin)
            p.out.add(f"{', '.join(names)} = {self.reduced(scan, names, axis)}", scan.origin)
            for name in names if axis else ():
                p.out.add(f"{name} = {self.kept(p, name)}", scan.origin)

    def _part(self, p: TilePrinter, x: Dim, slab: str) -> str:
        """Where the total of a slab is kept: rows side by side."""
        if not x.axes and x.place is None:
            return slab
        return f"{slab} * {self.factor(p, x.extent)} + {x.name}"


def _together(values: KernelValues) -> list[Scan]:
    """A value and its position, outputs of one loop, are found by one scan."""
    joined: dict[tuple[str, Value], list[Value]] = {}
    for value in scans_of(values):
        joined.setdefault((value.op, value.args[0]), []).append(value)
    found = []
    for (kind, operand), made in joined.items():
        outputs = {int(value.literal): value for value in made}
        name, origin = values.names[made[0].number], [made[0].origin]
        found.append(Scan(kind, name, origin, operand, outputs.get(0), outputs.get(1)))
    return found


def _tuple(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"({', '.join(items)})"
