"""Adding into a tensor by short index tensors where the axis along which memory lies is named itself, as in
the gradient of an upsampling of planes.

What leads to one line of the output is added up line by line, by the lists of
:mod:`~nbcompile.compiler.codegen.triton.schedules.listed_axes`: lines are read whole and once. Then each
place along the line takes what names it of that sum, by a matrix product with the comparisons, zeros and
ones. The sum goes into it as three bfloat16 numbers, eight bits of a float32 each, so nothing is lost. What
is not finite would spread along its line: then each place adds up its own. Nothing is atomic.
"""

from __future__ import annotations

import torch

from nbcompile.compiler.codegen.triton.schedules.listed_axes import (
    LEAST_LANE,
    Listed,
    ListedAxes,
    fit_in_lists,
)
from nbcompile.compiler.codegen.triton.schedules.scatter import ScatterNest
from nbcompile.compiler.codegen.triton.tile_printer import Dim, TilePrinter, bare
from nbcompile.compiler.kernel_ir.values import walk_values
from nbcompile.compiler.loop_ir.index import ZERO
from nbcompile.compiler.stages import Config

TILE = 2048  # points of the lines that a program adds up at once
MOST_COMPARED = 1 << 15  # pairs of a lane and a place: a third of the shared memory
LEAST_PRODUCT = 16  # of each side
UPPER = -65536  # the bits of a float32 that a bfloat16 has


def is_listed(nest: ScatterNest, listed: list[Listed]) -> bool:
    """Whether a scatter is done so: what is read lies along an axis that names places of the output's fastest
    dimension, and some axis is not named."""
    lanes = _lanes(nest, listed)
    loads = [value for value in walk_values([nest.value]) if value.kind == "load"]
    if lanes is None or not loads or len(listed) == len(nest.values.nest.axes):
        return False
    heaviest = max(loads, key=lambda value: nest.buffers[value.buffer].bytes_hint())
    step = heaviest.place.coefficient(lanes.axis)
    if step is None or step.constant != 1 or lanes.length < LEAST_LANE or nest.out.dtype != torch.float32:
        return False
    return _block(lanes.length) * _block(lanes.size) <= MOST_COMPARED and fit_in_lists(nest, listed)


def _lanes(nest: ScatterNest, listed: list[Listed]) -> Listed | None:
    """The listed dimension along which the output lies in memory."""
    return next((item for item in listed if nest.out.strides[item.dim].constant == 1), None)


def _block(length: int) -> int:
    return max(LEAST_PRODUCT, 1 << (length - 1).bit_length())


class ListedLanes(ListedAxes):
    """Prints the functions of such a scatter."""

    def __init__(self, nest: ScatterNest, listed: list[Listed], multiprocessors: int) -> None:
        lanes = _lanes(nest, listed)
        assert lanes is not None
        self.lanes, self.all = lanes, listed
        super().__init__(nest, [item for item in listed if item is not lanes], multiprocessors)

    def print(self) -> None:
        if self.listed:
            self._list()
        self._write()

    def _write(self) -> None:
        """A program has one place along the other listed dimension, if there is one, and some of the rest."""
        nest, loop, lanes = self.nest, [self.nest.loop.id], self.lanes
        other = self.listed[0] if self.listed else None
        letters = {item.place.text: f"c{item.dim}" for item in self.all}
        rest = tuple(axis for axis in nest.values.nest.axes if all(axis != item.axis for item in self.all))
        width, places = _block(lanes.length), _block(lanes.size)
        rows = max(TILE // width, LEAST_PRODUCT)
        constants = {"YBLOCK": rows, "LBLOCK": width, "XBLOCK": places}
        warps = max(rows * width // 1024, 1)
        configs = tuple(Config(constants, each) for each in (warps, warps * 2))
        y = self._dim(rest, "YBLOCK", 0, letters)
        r = Dim((lanes.axis,), nest.letters[lanes.axis.text], "LBLOCK", 1)
        x = Dim((lanes.place,), letters[lanes.place.text], "XBLOCK", 1)
        one = [Dim((other.place,), letters[other.place.text], "", None)] if other else []
        p = self._printer([*one, y, r], letters)
        if other:
            p.out.add(f"{one[0].name} = tl.program_id(1)")
        nest.declare(p, y, "tl.program_id(0) * YBLOCK", configs)
        nest.declare(p, r, "", configs)
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
        nest.declare(p, x, "", configs)
        kept = tuple(
            ZERO + next((item.place for item in self.all if item.dim == dim), place)
            for dim, place in enumerate(nest.targets)
        )
        value, p.names = nest.base_at(kept)
        scope = p.define([value], {})
        where, masked = p.element(nest.out.name, nest.out.offset(kept), scope, (), write=True)
        p.out.add(f"tl.store({where}, {p.text(value, scope)} + {total}{masked})", loop)
        grid = [f"cdiv({y.extent}, YBLOCK)", str(other.size if other else 1)]
        nest.add(nest.symbol, p, grid, configs)

    def _lines(self, p: TilePrinter, line: str, other: Listed, one: Dim, y: Dim, r: Dim) -> None:
        """Add up the lines on the list of this program's place, a few under way at once."""
        loop, together = [self.nest.loop.id], 4 if other.length > 2 * other.size else 2
        count, number = self._count(p, one.name, self.counts[0], one), p.fresh("number")
        p.out.enter(f"for {number} in range(0, {count}, {together}):", loop)
        found = []
        for more in range(together):
            at = f"{number} + {more}" if more else number
            name, live = p.fresh(self.nest.letters[other.axis.text]), p.fresh("live")
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
        nest, loop, mask = self.nest, [self.nest.loop.id], y.mask
        if live and mask:
            y.mask = p.fresh("inside")
            p.out.add(f"{y.mask} = {live} & {mask}", loop)
        elif live:
            y.mask = live
        text = p.text(nest.value, p.define([nest.value], {}, always=True))
        if nest.value.dtype != torch.float32:
            text = nest.writer.cast(text, nest.value.dtype, torch.float32)
        masks = " & ".join(item for item in (y.mask, r.mask) if item)
        p.out.add(f"{line} += {f'tl.where({masks}, {bare(text)}, 0.0)' if masks else bare(text)}", loop)
        y.mask = mask

    def _product(self, p: TilePrinter, line: str, total: str, hit: str, named: str) -> None:
        """``total += line @ hit``, rounded as sums of float32 are."""
        loop, rest, part = [self.nest.loop.id], p.fresh("rest"), p.fresh("part")
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
