"""Prints adding into a tensor by short index tensors where the axis along which memory lies is named itself,
as in the gradient of an upsampling of planes.

The sum of a line goes into the product with the comparisons as three bfloat16 numbers, eight bits of a
float32 each, so nothing is lost. What is not finite would spread along its line: then each place adds up
its own. Nothing is atomic.
"""

from __future__ import annotations

import torch

from nbcompile.compiler.codegen.triton.dims import Dim
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.schedules.listed_axes import ListedNest
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.loop_ir.index import ZERO
from nbcompile.compiler.schedule.listed_axes import Listed, ListedLanes
from nbcompile.compiler.schedule.schedule import Work

UPPER = -65536  # the bits of a float32 that a bfloat16 has


class ListedLanesNest(ListedNest):
    """The functions of such a scatter."""

    plan: ListedLanes

    def __init__(self, work: Work, plan: ListedLanes, writer: TritonWriter) -> None:
        super().__init__(work, plan, writer, [item for item in plan.listed if item is not plan.lanes])
        self.lanes, self.all = plan.lanes, plan.listed

    def write(self) -> None:
        if self.listed:
            self.list_points()
        self._handed_out()

    def _handed_out(self) -> None:
        """A program has one place along the other listed dimension, if there is one, and some of the rest."""
        loop, lanes = [self.loop.id], self.lanes
        other = self.listed[0] if self.listed else None
        letters = {item.place.text: f"c{item.dim}" for item in self.all}
        rest = tuple(axis for axis in self.values.nest.axes if all(axis != item.axis for item in self.all))
        configs = self.plan.configs
        y = self.dim(rest, "YBLOCK", 0, letters)
        r = Dim((lanes.axis,), self.letters[lanes.axis.text], "LBLOCK", 1)
        x = Dim((lanes.place,), letters[lanes.place.text], "XBLOCK", 1)
        one = [Dim((other.place,), letters[other.place.text], "", None)] if other else []
        p = self.points_printer([*one, y, r], letters)
        if other:
            p.out.add(f"{one[0].name} = tl.program_id(1)")
        self.declare(p, y, "tl.program_id(0) * YBLOCK", configs)
        self.declare(p, r, "", configs)
        line, total, hit = p.fresh("line"), p.fresh("total"), p.fresh("hit")
        p.out.add(f"{line} = tl.full([YBLOCK, LBLOCK], 0.0, tl.float32)", loop)
        if other:
            self._lines(p, line, other, one[0], y, r)
        else:
            self._add(p, line, "", y, r)
        text, named = p.text(lanes.value, p.define([lanes.value], {}, always=True)), p.fresh("named")
        inside = " & ".join(item for item in (r.mask, f"({text} >= 0)", f"({text} < {lanes.size})") if item)
        p.out.add(f"{named} = tl.where({inside}, {text}, -1).to(tl.int32)", loop)
        compared = f"tl.trans({named}) == tl.arange(0, XBLOCK)[None, :]"
        p.out.add(f"{hit} = ({compared}).to(tl.bfloat16)", loop)
        p.out.add(f"{total} = tl.full([YBLOCK, XBLOCK], 0.0, tl.float32)", loop)
        self._product(p, line, total, hit, named)
        p.dims, p.shape = [*one, y, x], ["YBLOCK", "XBLOCK"]
        self.declare(p, x, "", configs)
        kept = tuple(
            ZERO + next((item.place for item in self.all if item.dim == dim), place)
            for dim, place in enumerate(self.targets)
        )
        value, p.names = self.base_at(kept)
        scope = p.define([value], {})
        where, masked = p.element(self.out.name, self.out.offset(kept), scope, (), write=True)
        p.out.add(f"tl.store({where}, {p.text(value, scope)} + {total}{masked})", loop)
        grid = [f"cdiv({y.extent}, YBLOCK)", str(other.size if other else 1)]
        self.add(self.symbol, p, grid, configs)

    def _lines(self, p: TilePrinter, line: str, other: Listed, one: Dim, y: Dim, r: Dim) -> None:
        """Add up the lines on the list of this program's place, a few under way at once."""
        loop, together = [self.loop.id], 4 if other.length > 2 * other.size else 2
        count, number = self.count(p, one.name, self.counts[0], one), p.fresh("number")
        p.out.enter(f"for {number} in range(0, {count}, {together}):", loop)
        found = []
        for more in range(together):
            at = f"{number} + {more}" if more else number
            name, live = p.fresh(self.letters[other.axis.text]), p.fresh("live")
            p.out.add(f"{live} = {at} < {count}", loop)
            pointer = f"{p.pointer(self.lists[0].name)} + {one.name}*{other.length} + {at}"
            p.out.add(f"{name} = tl.load({pointer}, mask={live}, other=0)", loop)
            found.append((name, live))
        for name, live in found:
            p.letters[other.axis.text] = name
            self._add(p, line, live, y, r)
        p.out.leave()

    def _add(self, p: TilePrinter, line: str, live: str, y: Dim, r: Dim) -> None:
        """Add the points of a line for each of the program's rows; ``live``: if there is such a line."""
        loop, mask = [self.loop.id], y.mask
        if live and mask:
            y.mask = p.fresh("inside")
            p.out.add(f"{y.mask} = {live} & {mask}", loop)
        elif live:
            y.mask = live
        text = p.text(self.value, p.define([self.value], {}, always=True))
        if self.value.dtype != torch.float32:
            text = self.writer.cast(text, self.value.dtype, torch.float32)
        masks = " & ".join(item for item in (y.mask, r.mask) if item)
        p.out.add(f"{line} += {f'tl.where({masks}, {text.bare}, 0.0)' if masks else text.bare}", loop)
        y.mask = mask

    def _product(self, p: TilePrinter, line: str, total: str, hit: str, named: str) -> None:
        """``total += line @ hit``, rounded as sums of float32 are."""
        loop, rest, part = [self.loop.id], p.fresh("rest"), p.fresh("part")
        finite, place = p.fresh("finite"), p.fresh("place")
        p.out.add(f'{finite} = tl.abs({line}) < float("inf")', loop)
        p.out.add(f"{rest} = tl.where({finite}, {line}, 0.0)", loop)
        for number in range(3):
            upper = f"({rest}.to(tl.int32, bitcast=True) & {UPPER}).to(tl.float32, bitcast=True)"
            p.out.add(f"{part} = {upper}", loop)
            p.out.add(f"{total} = tl.dot({part}.to(tl.bfloat16), {hit}, {total})", loop)
            if number < 2:
                p.out.add(f"{rest} -= {part}", loop)
        p.out.enter(f"if tl.max(tl.max((~{finite}).to(tl.int32), axis=1), axis=0) > 0:", loop)
        p.out.enter(f"for {place} in range(0, {self.lanes.size}):", loop)
        own = f"tl.sum(tl.where({named} == {place}, {line}, 0.0), axis=1)[:, None]"
        p.out.add(f"{total} = tl.where(tl.arange(0, XBLOCK)[None, :] == {place}, {own}, {total})", loop)
        p.out.leave(2)
