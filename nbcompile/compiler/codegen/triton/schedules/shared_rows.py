"""Long rows held on chip by several programs at once, each a part: a row is read once however long it is.

Each program reduces its own part, leaves the result in memory, waits until all parts of the row have come
so far, and combines them. So all programs must be on the chip together (``Launch.together``): there are
``GROUPS`` groups of them, each taking one row after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.compiler.codegen.triton.accumulators import (
    Accumulating,
    Online,
    accumulate_dtype,
    at_infinity,
    find_online,
)
from nbcompile.compiler.codegen.triton.dims import Scope
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.schedules.meetings import Meetings
from nbcompile.compiler.codegen.triton.schedules.rows import RowsNest
from nbcompile.compiler.codegen.triton.tile_expression import TileExpression, grouped
from nbcompile.compiler.kernel_ir.values import Reduction, walk_values
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.schedule.shared_rows import SharedRows


class SharedRowsNest(RowsNest):
    """Rows that several programs hold together."""

    plan: SharedRows

    def __init__(self, work: Work, plan: SharedRows, writer: TritonWriter) -> None:
        super().__init__(work, plan, writer)
        self.parts = plan.parts
        # one sum for each maximum: others of the same wait until it is known
        self.online = list({pair.top.output: pair for pair in reversed(find_online(self.values))}.values())
        self.meetings = Meetings(self, plan.parts, self.chunk)
        self.pivot = self.own_top = self.below = ""  # of the pair of maximum and sum under way

    @property
    def length(self) -> int:
        """Points of a row."""
        return self.r.extent.hint()

    @property
    def chunk(self) -> int:
        """Points of a part: the block of the tile."""
        return self.configs[0].constants["RBLOCK"]

    def write(self) -> None:
        p, x, r = self.p, self.x, self.r
        p.out.add(f"part = {self.program(p, 0)} % {self.parts}")
        p.out.add(f"{r.name} = {p.lanes(r, offset=f'part * {self.chunk}')}")
        if self.length % self.chunk:
            r.mask = p.fresh(f"{r.name}_in")
            p.out.add(f"{r.mask} = {r.name} < {self.length}")
        p.declare_axes(r)
        p.block_start = f"part * {self.chunk}"
        rows = self.size(p, x.extent)
        first = f"{self.program(p, 0)} // {self.parts}"
        p.out.enter(f"for start in range({first}, {rows}, GROUPS):", axes=x.axes)
        p.out.add(f"{x.name} = start")
        p.declare_axes(x)
        scope = self._reduce()
        full, short = self.row_stores()
        self.store_all(p, full, scope)
        self.meetings.store_short(short, scope)
        p.out.leave()
        grid = [f"{self.parts} * GROUPS"]
        self.add(self.symbol, p, grid, self.configs).together = True

    # -- reductions ---------------------------------------------------------------------------------------

    def _reduce(self) -> Scope:
        """Every row result, in as few meetings as their dependences allow."""
        scope: Scope = {}
        left = [item for item in self.values.reductions if not item.split]
        joined = {pair.total.output: pair for pair in self.online}
        while left:
            waiting = {item.output for item in left}
            batch: list[Reduction] = []
            for item in left:
                needs = item.value.reductions & waiting
                pair = joined.get(item.output)
                if pair is not None:
                    needs = needs - {pair.top.output}
                    if pair.top not in batch:
                        needs |= {pair.top.output}
                if item.mean and any(other.output == item.mean for other in batch):
                    needs = needs - {item.mean}
                if not needs:
                    batch.append(item)
            scope = self._meet(batch, scope, [joined[i.output] for i in batch if i.output in joined])
            left = [item for item in left if item not in batch]
        return scope

    def _meet(self, batch: Sequence[Reduction], scope: Scope, pairs: Sequence[Online]) -> Scope:
        """Reduce this program's part of each of ``batch``, wait, and combine all parts."""
        p = self.p
        accumulating = Accumulating(p, self.r.place or 0)
        count = f"{self.chunk}.0"
        if self.length % self.chunk:
            count = p.fresh("count")
            rest = self.length - (self.parts - 1) * self.chunk
            p.out.add(f"{count} = tl.where(part == {self.parts - 1}, {rest}.0, {self.chunk}.0)")
        lowered = {pair.top.output: pair for pair in pairs}
        totals = {pair.total.output: pair for pair in pairs}
        for item in batch:
            if item.output in totals:
                self._partial_total(totals[item.output], scope)
                continue
            roots = [item.value] if item.value.kind not in ("const", "index", "reduced") else []
            if not item.mean:
                scope = p.define(roots, scope, always=True)
            accumulating.at_once(item, scope, count)
            if item.output in lowered:
                self._pivot(lowered[item.output])
        self.meetings.publish(batch)
        self.meetings.wait(batch)
        for item in batch:
            if item.output not in totals and not item.mean:
                self.meetings.combine(item, lowered.get(item.output))
        for pair in pairs:
            scope = self._rescaled(pair, scope)
        return scope

    def _rescaled(self, pair: Online, scope: Scope) -> Scope:
        """The exponentials below the row's maximum from those below the part's, if anything stores them:
        ``exp(x - m) = exp(x - p) * exp(p - m)``."""
        value = pair.total.value
        users = [item.value for item in self.values.stores]
        if value not in walk_values(users):
            return scope
        p, writer = self.p, self.writer
        dtype = accumulate_dtype(pair.top, self.buffers[pair.top.output].dtype)
        whole, own = p.reduced_text[pair.top.output], self.own_top
        scale = p.fresh("scale")
        text = writer.op("exp", [f"({self.pivot} - {whole})"], dtype, dtype)
        if pair.test:
            finite = f"tl.where({at_infinity(whole, pair)}, 0.0, {whole})"
            text = writer.op("exp", [f"({self.pivot} - {finite})"], dtype, dtype)
        nothing = f'({own} == float("-inf")) & ({whole} != float("-inf"))'
        p.out.add(f"{scale} = tl.where({nothing}, 0.0, {text})", [pair.total.loop.id])
        return {**scope, value.number: grouped(f"{self.below} * {scale}")}

    def _partial_total(self, pair: Online, scope: Scope) -> None:
        """The part's sum of exponentials below the part's own maximum."""
        p = self.p
        dtype = accumulate_dtype(pair.top, self.buffers[pair.top.output].dtype)
        value = Accumulating(p, self.r.place or 0).spread(pair.top, p.text(pair.top.value, scope), False)
        exponential = self.writer.op("exp", [f"({value.bare} - {self.pivot})"], dtype, dtype)
        if self.r.mask:
            exponential = TileExpression(f"tl.where({self.r.mask}, {exponential.bare}, 0.0)")
        self.below = p.fresh("below")  # the exponentials, kept for what is stored
        p.out.add(f"{self.below} = {exponential.bare}", [pair.total.loop.id])
        name = p.fresh(pair.total.output)
        reduced = self.writer.reduce("sum", self.below, self.r.place or 0, dtype)
        p.out.add(f"{name} = {Accumulating(p, self.r.place or 0).kept(reduced)}", [pair.total.loop.id])
        p.reduced_text[pair.total.output] = name

    def _pivot(self, pair: Online) -> None:
        """What is subtracted before the exponential: the maximum, or 0 where it is infinite."""
        p = self.p
        top = self.own_top = p.reduced_text[pair.top.output]
        self.pivot = p.fresh("pivot")
        p.out.add(f"{self.pivot} = tl.where({at_infinity(top, pair)}, 0.0, {top})", [pair.top.loop.id])
