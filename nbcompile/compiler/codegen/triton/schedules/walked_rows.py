"""Rows too long to hold: walked in blocks, once for each result that the next walk needs.

Walks after the first go backwards, since what was read last is what the L2 cache still holds. A row whose
programs would leave the chip idle is shared out in slabs; a second function combines their parts and does
what is left to do for each row. Rows that start off groups of 16 bytes are walked from their first line of
memory on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from nbcompile.compiler.codegen.triton.accumulators import Accumulating, accumulate_dtype, find_online
from nbcompile.compiler.codegen.triton.aligned_rows import odd_rows
from nbcompile.compiler.codegen.triton.block_printers import chunk_of, end_of, staged
from nbcompile.compiler.codegen.triton.dims import Scope
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.schedules.summed_rows import SumsNest
from nbcompile.compiler.kernel_ir.values import Reduction, Store, Value
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.versions import Part
from nbcompile.compiler.schedule.rows import HeldIfShort, RowSchedule
from nbcompile.compiler.schedule.schedule import Work


@dataclass(frozen=True)
class Line:
    """Names in a kernel whose rows start off groups of 16 bytes: ``first`` is where the present row's first
    line of memory starts, ``whole`` how many points lie in whole blocks from there, ``lane`` counts them.
    ``start`` is the row's own start; ``moved`` gives the column by these names."""

    first: str
    whole: str
    lane: str
    start: IndexExpr
    moved: dict[Axis, IndexExpr]


@dataclass(frozen=True)
class Piece:
    """Part of a walk: from where to where, and whether it ends with a whole block. Of a row with a ``line``,
    the whole blocks come first; the rest is what lies before the line and after those blocks."""

    start: str
    end: str
    whole: bool
    line: Line | None = None


class WalkedRowsNest(SumsNest):
    """Rows walked by a program each, with sums over them or without."""

    unrolled = False
    """Whether the walk over a short row is written out."""
    split = False
    """Whether a row's results are left in parts, which are combined later."""

    def __init__(self, work: Work, plan: RowSchedule, writer: TritonWriter) -> None:
        super().__init__(work, plan, writer)
        self.online = [] if self.split else find_online(self.values)
        self.line: Line | None = None
        self.levels: dict[str, int] = {}
        self.row_sums = [item for item in self.values.reductions if item.split and self.is_row_sum(item)]
        joined = {pair.total.output: pair.top.output for pair in self.online}
        for item in self.values.reductions:
            if item.output in joined:
                self.levels[item.output] = self.levels[joined[item.output]]
            elif item.mean:
                self.levels[item.output] = self.levels[item.mean]
            else:
                self.levels[item.output] = self.level(item.value)

    def level(self, value: Value) -> int:
        """Walks that must be complete before ``value`` is known."""
        return max((self.levels[name] + 1 for name in value.reductions if name in self.levels), default=0)

    def write(self) -> None:
        p = self.p
        grid = self.declare_rows(p, self.x, self.configs)
        self.find_line()
        short, scope = self.walks(("0", self.size(p, self.r.extent)))
        self.store_results(p, self.reduction_stores(split=False))
        scope = p.define([*(item.value for item in self.row_sums), *(item.value for item in short)], scope)
        for item in self.row_sums:
            self._keep_block(item, scope)
        self.store_all(p, short, scope)
        self.add(self.symbol, p, grid, self.configs, self.x.axes)
        sums = [item for item in self.values.reductions if item.split]
        if sums:
            self.finish_sums(sums)

    def walks(self, bounds: tuple[str, str]) -> tuple[list[Store], Scope]:
        """Every walk over the row, with what is stored of it; returns what is left to store, one value a row,
        and the scope of what is known."""
        p = self.p
        full, short = self.row_stores()
        walked = [self.levels[item.output] for item in self.values.reductions if item not in self.row_sums]
        last = max([*walked, *(self.level(item.value) for item in full)], default=0)
        scope: Scope = {}
        for number in range(last + 1):
            reductions = [
                item for item in self.values.reductions
                if self.levels[item.output] == number and item not in self.row_sums
            ]  # fmt: skip
            stores = [item for item in full if (last if item.last else self.level(item.value)) == number]
            if reductions or stores:
                p.reread, p.last = number < last, number == last and last > 0
                scope = self.walk(number, reductions, stores, scope, bounds)
                scope = self.met(reductions, scope)
        p.block_start = ""
        return short, scope

    def met(self, reductions: Sequence[Reduction], scope: Scope) -> Scope:
        """The scope after a walk, whose results other programs may have parts of."""
        del reductions
        return scope

    def walk(
        self, number: int, reductions: Sequence[Reduction], stores: Sequence[Store], scope: Scope,
        bounds: tuple[str, str],
    ) -> Scope:  # fmt: skip
        """One pass over the row; returns the scope of what is known after it."""
        p, r = self.p, self.r
        pairs = [pair for pair in self.online if pair.top in reductions]
        paired = {item.output for pair in pairs for item in (pair.top, pair.total)}
        plain = [item for item in reductions if not item.split and item.output not in paired]
        sums = [item for item in reductions if item.split]
        totals = [item for item in sums if self.kept_of(item) == ONE]
        roots = [item.value for item in (*plain, *sums) if not item.mean]
        roots += [pair.top.value for pair in pairs] + [item.value for item in stores]
        roots += [item.position for item in plain if item.position is not None]
        scope = p.hoist(roots, frozenset(self.plan.r), scope)
        accumulating = Accumulating(p, r.place or 0)
        for pair in pairs:
            accumulating.start_online(pair)
        for item in plain:
            accumulating.start(item)
        running = {item.output: self._start_total(item) for item in totals}
        moments = any(item.kind == "mean" for item in plain)
        whole = self._whole_slabs() if self.split else self.divides(r, self.configs)
        # for a mean, lanes count blocks from the first on: the one that is not whole must come last
        # and of equal numbers argmax and argmin keep the one that is met first
        ordered = (moments and not whole) or any(item.kind in ("argmax", "argmin") for item in plain)
        backwards = bool(number % 2) and not self.split and not ordered
        pieces = self._pieces(bounds, whole)
        for piece in reversed(pieces) if backwards else pieces:
            self._enter(number, piece, backwards)
            named = [value for value in roots if value.kind not in ("const", "index", "reduced")]
            inner = p.define(named, scope)
            masks = [r.mask] if r.mask else []
            steps = self._steps(
                [accumulating.dtype(item) for item in plain if item.kind == "mean"], bounds[0]
            )
            twice = [item.value for item in plain if item.kind == "mean" and item.value.kind == "op"]
            inner = p.define(twice, inner, always=True)
            accumulating.update_online(pairs, inner, masks)
            for item in plain:
                accumulating.update(item, inner, masks, steps.get(accumulating.dtype(item), ""))
            for item in sums:
                if item in totals:
                    self._update_total(item, running[item.output], inner)
                else:
                    self._keep_block(item, inner)
            self.store_all(p, stores, inner)
            p.out.leave()
        p.moved = {}
        self._finish_walk(accumulating, plain, moments, bounds)
        for pair in pairs:
            accumulating.finish_online(pair)
        r.mask = ""
        for item in totals:
            self._keep_total(item, running[item.output])
        return scope

    def _pieces(self, bounds: tuple[str, str], whole: bool) -> list[Piece]:
        """The walk's parts in order of their lanes."""
        if self.line is None:
            return [Piece(*bounds, whole)]
        start, end, middle = *bounds, self.line.whole
        if self.split:  # both are multiples of a block
            rest = Piece(f"tl.maximum({start}, {middle})", end, False, self.line)
            return [Piece(start, f"tl.minimum({end}, {middle})", True, self.line), rest]
        return [Piece(start, middle, True, self.line), Piece(middle, end, False, self.line)]

    def _enter(self, number: int, piece: Piece, backwards: bool) -> None:
        """The head of the loop over a piece's blocks in a walk, with the places and the mask of a block's
        lanes."""
        p, r, line = self.p, self.r, piece.line
        start, end = piece.start, piece.end
        bounds = f"{start}, {end_of(end)}, RBLOCK"
        ahead = line is None or piece.whole
        blocks = staged(self.configs, bounds) if ahead else f"range({bounds})"
        blocks = f"tl.static_range({bounds})" if self.unrolled else blocks
        part = Part(r.axes[0], int(piece.whole), number) if line else None
        p.out.enter(f"for start in {blocks}:", axes=r.axes, part=part)
        offset = "start"
        if backwards and ahead:
            offset = f"{end} - RBLOCK - start" if line else f"(tl.cdiv({end}, RBLOCK) - 1) * RBLOCK - start"
        p.block_start = offset if offset == "start" else f"({offset})"
        name = line.lane if line and piece.whole else r.name
        p.out.add(f"{name} = {p.lanes(r, offset=offset)}")
        r.mask = ""
        if not piece.whole:
            r.mask = p.fresh(f"{r.name}_in")
            # a number that is known tells which lanes are masked together
            limit = self.size(p, r.extent) if self.split and self._in_blocks() else end
            p.out.add(f"{r.mask} = {r.name} < {limit}")
        r.cut = line is None and len(r.axes) == 1
        p.moved = line.moved if line and piece.whole else {}
        if line and not piece.whole:  # lanes of what comes before the line, then of what the blocks left
            lead = f"{line.whole} + {line.first} - {p.place(line.start)}"
            p.out.add(f"{r.name} = tl.where({r.name} < {lead}, {r.name} - {line.whole}, {r.name})")
        p.declare_axes(r)

    def find_line(self) -> None:
        """If rows start off groups of 16 bytes: where the present row's first line of memory starts, and how
        many points are in whole blocks from there."""
        p, r, odd = self.p, self.r, odd_rows(self.values, self.plan, self.buffers)
        if odd is None or (self.split and not self._in_blocks()):
            return
        axis, size = r.axes[0], odd.line
        first, whole, lane = p.fresh("line"), p.fresh("whole"), p.fresh(f"{r.name}_line")
        p.out.add(f"{first} = ({p.place(odd.start).bare} + {size - 1}) // {size} * {size}")
        p.out.add(f"{whole} = {axis.extent.hint() - size + 1} // RBLOCK * RBLOCK")
        # in the order of their names: what is one number for all lanes is added first
        at, beyond = Axis(first, odd.most + size), Axis(f"{first}_lane", axis.extent)
        p.letters |= {at.text: first, beyond.text: lane}
        self.line = Line(first, whole, lane, odd.start, {axis: index(at) + beyond - odd.start})

    def _steps(self, dtypes: Sequence[torch.dtype], start: str) -> dict[torch.dtype, str]:
        """One over the number of blocks so far, in each type that means are carried out in."""
        p, steps = self.p, {}
        first = f"(start - {start})" if start != "0" else "start"
        for dtype in dict.fromkeys(dtypes):
            steps[dtype] = p.fresh("step")
            one = self.writer.constant(1.0, dtype)
            p.out.add(f"{steps[dtype]} = {one} / ({first} // RBLOCK + 1)")
        return steps

    def _finish_walk(
        self, accumulating: Accumulating, plain: Sequence[Reduction], moments: bool, bounds: tuple[str, str]
    ) -> None:
        p, r = self.p, self.r
        counts = total = ""
        if moments:
            counts, start, end = p.fresh("counts"), *bounds
            lanes = p.lanes(r, offset=start if start != "0" else "")
            whole = f"{end} - ({lanes})" if start != "0" else f"{end} - {lanes}"
            p.out.add(f"{counts} = tl.maximum(({whole} + RBLOCK - 1) // RBLOCK, 0).to(tl.float32)")
            total = f"({end} - {start})" if start != "0" else self.count(p, r)
            if start != "0":  # a slab may be empty
                total = f"tl.maximum({end} - {start}, 1)"
        for item in plain:
            accumulating.finish(item, counts, total)

    @property
    def quantum(self) -> int:
        """A slab is a multiple of this: the same for every candidate, so that slabs are."""
        return self.configs[0].constants["RBLOCK"]

    def chunk_text(self, length: str) -> str:
        """How much of a row each slab has."""
        return chunk_of(length, self.configs, self.plan.slabs)

    def _whole_slabs(self) -> bool:
        """Whether every slab is a whole number of blocks, the last one too."""
        return self.divides(self.r, self.configs) and self._in_blocks()

    def _in_blocks(self) -> bool:
        """Whether all slabs but the last are: then only the end of the row cuts a block."""
        return all(self.quantum % config.constants["RBLOCK"] == 0 for config in self.configs)

    def _keep_block(self, item: Reduction, scope: Scope) -> None:
        """A sum over this program's rows, for this block of the row: its part is complete."""
        p = self.p
        dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
        along = Accumulating(p, 0)
        text = along.operand(item, scope, [self.x.mask] if self.x.mask else [])
        name = p.fresh(item.output)
        if self.plan.one_row:
            p.out.add(f"{name} = {text.bare}", [item.loop.id])
            self.keep_sum(p, item, name, self.r)
            return
        text = along.spread(item, text, bool(self.x.mask))
        reduced = self.writer.reduce(item.kind, text.bare, 0, dtype)
        p.out.add(f"{name} = {along.kept(reduced)}", [item.loop.id])
        self.keep_sum(p, item, name, self.r)

    def _start_total(self, item: Reduction) -> str:
        """The running result of a sum over whole rows and over the rows: a number a lane."""
        p, dtype = self.p, accumulate_dtype(item, self.buffers[item.output].dtype)
        name = p.fresh(item.output)
        p.out.add(f"{name} = {p.full(self.writer.identity(item.kind, dtype), dtype)}", [item.loop.id])
        return name

    def _update_total(self, item: Reduction, name: str, scope: Scope) -> None:
        dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
        masks = [dim.mask for dim in (self.x, self.r) if dim.mask]
        text = Accumulating(self.p, 0).operand(item, scope, masks)
        combined = self.writer.combine(item.kind, name, text, dtype)
        self.p.out.add(f"{name} = {combined.bare}", [item.loop.id])

    def _keep_total(self, item: Reduction, name: str) -> None:
        dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
        if not self.plan.one_row:
            reduced = Accumulating(self.p, 0).kept(self.writer.reduce(item.kind, name, 0, dtype))
            self.p.out.add(f"{name} = {reduced}", [item.loop.id])
        self.keep_sum(self.p, item, name, self.r)


class HeldIfShortNest(WalkedRowsNest):
    """Rows of any length: at once where they are no longer than a block, and walked otherwise."""

    plan: HeldIfShort

    def write(self) -> None:
        p, r = self.p, self.r
        grid = self.declare_rows(p, self.x, self.configs)
        length = self.size(p, r.extent)
        p.out.enter(f"if {length} <= RBLOCK:", axes=())
        self.at_once(p, r)
        p.out.leave()
        p.out.enter("else:", axes=())
        r.mask, r.cut = "", False
        short, scope = self.walks(("0", length))
        self.store_results(p, self.reduction_stores(split=False))
        self.store_all(p, short, p.define([item.value for item in short], scope))
        p.out.leave()
        self.add(self.symbol, p, grid, self.configs, self.x.axes)


class SteppedColumnsNest(WalkedRowsNest):
    """Rows of a few steps, which are written out."""

    unrolled = True
