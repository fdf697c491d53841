"""Rows too long to hold, walked by several programs together, each a part of the row.

All programs walk the same few rows at a time, so few that the L2 cache keeps them: what the first walk has
read from memory, the next one finds there. After each walk the programs meet and combine their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nbcompile.compiler.codegen.triton.schedules.meetings import Meetings
from nbcompile.compiler.codegen.triton.schedules.walked_rows import WalkedRows
from nbcompile.compiler.codegen.triton.tile_printer import Dim, Scope
from nbcompile.compiler.stages import Config

if TYPE_CHECKING:
    from nbcompile.compiler.codegen.triton.block_printers import RowsPrinter
    from nbcompile.compiler.codegen.triton.nests import Nest


class SharedWalks(WalkedRows):
    """Prints the schedule of walked rows that several programs share: one row after the other for each of
    ``GROUPS`` groups of ``parts`` programs."""

    def __init__(self, nest: Nest, p: RowsPrinter, x: Dim, r: Dim, configs: Sequence[Config]) -> None:
        super().__init__(nest, p, x, r, configs)
        self.split, self.online = True, []
        length = r.extent.hint()
        self.chunk = -(-length // (self.quantum * self.plan.parts)) * self.quantum
        self.meetings = Meetings(nest, p, x, r, self.chunk)

    def _chunk(self, length: str) -> str:
        return str(self.chunk)

    def print(self) -> None:
        p, nest, x = self.p, self.nest, self.x
        program, parts = nest.program(p, 0), self.plan.parts
        p.used_names |= {"first", "end"}
        p.out.add(f"part = {program} % {parts}")
        p.out.add(f"first = part * {self.chunk}")
        p.out.add(f"end = tl.minimum(first + {self.chunk}, {nest.size(p, self.r.extent)})")
        p.out.enter(
            f"for {x.name} in range({program} // {parts}, {nest.size(p, x.extent)}, GROUPS):", axes=x.axes
        )
        p.declare_axes(x)
        self._find_line()
        full, short = nest._row_stores()
        last = max([*self.levels.values(), *(self.level(item.value) for item in full)], default=0)
        scope: Scope = {}
        for number in range(last + 1):
            batch = [item for item in self.values.reductions if self.levels[item.output] == number]
            stores = [item for item in full if (last if item.last else self.level(item.value)) == number]
            if not batch and not stores:
                continue
            p.reread, p.last = number < last, number == last and last > 0
            scope = self.walk(number, batch, stores, scope, ("first", "end"))
            if batch:
                self.meetings.publish(batch)
                self.meetings.wait(batch)
                for item in batch:
                    if not item.mean:
                        self.meetings.combine(item)
        p.block_start = ""
        self.meetings.store_short(short, scope)
        p.out.leave()
        nest.add(nest.symbol, p, [f"{parts} * GROUPS"], self.configs).together = True
