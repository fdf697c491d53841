"""Rows too long to hold, walked by several programs together, each a part of the row.

All programs walk the same few rows at a time, so few that the L2 cache keeps them: what the first walk has
read from memory, the next one finds there. After each walk the programs meet and combine their results.
"""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.compiler.codegen.triton.dims import Scope
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.schedules.meetings import Meetings
from nbcompile.compiler.codegen.triton.schedules.walked_rows import WalkedRowsNest
from nbcompile.compiler.kernel_ir.values import Reduction
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.schedule.shared_rows import SharedWalks


class SharedWalksNest(WalkedRowsNest):
    """One row after the other for each of ``GROUPS`` groups of ``parts`` programs."""

    plan: SharedWalks
    split = True

    def __init__(self, work: Work, plan: SharedWalks, writer: TritonWriter) -> None:
        super().__init__(work, plan, writer)
        length = self.r.extent.hint()
        self.chunk = -(-length // (self.quantum * plan.parts)) * self.quantum
        self.meetings = Meetings(self, plan.parts, self.chunk)

    def chunk_text(self, length: str) -> str:
        return str(self.chunk)

    def write(self) -> None:
        p, x = self.p, self.x
        program, parts = self.program(p, 0), self.plan.parts
        p.used_names |= {"first", "end"}
        p.out.add(f"part = {program} % {parts}")
        p.out.add(f"first = part * {self.chunk}")
        p.out.add(f"end = tl.minimum(first + {self.chunk}, {self.size(p, self.r.extent)})")
        p.out.enter(
            f"for {x.name} in range({program} // {parts}, {self.size(p, x.extent)}, GROUPS):", axes=x.axes
        )
        p.declare_axes(x)
        self.find_line()
        short, scope = self.walks(("first", "end"))
        self.meetings.store_short(short, scope)
        p.out.leave()
        self.add(self.symbol, p, [f"{parts} * GROUPS"], self.configs).together = True

    def met(self, reductions: Sequence[Reduction], scope: Scope) -> Scope:
        if reductions:
            self.meetings.publish(reductions)
            self.meetings.wait(reductions)
            for item in reductions:
                if not item.mean:
                    self.meetings.combine(item)
        return scope
