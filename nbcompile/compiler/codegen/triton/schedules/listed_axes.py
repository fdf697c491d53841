"""Prints adding into a tensor by short index tensors, each along an axis of its own: for each place along a
dimension the points that lead to it are listed, and each element of the result is written once, with the sum
over its lists.

Sums are made in order, and nothing is atomic but where over ``MOST`` points meet: those of one hot place
would keep one program busy for long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from nbcompile.compiler.codegen.triton.block_printers import PointsPrinter
from nbcompile.compiler.codegen.triton.dims import Dim
from nbcompile.compiler.codegen.triton.expressions import TRITON_TYPES, TritonWriter
from nbcompile.compiler.codegen.triton.schedules.scatter import ScatteredNest
from nbcompile.compiler.codegen.triton.tile_expression import grouped
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, index, product
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.schedule.listed_axes import MOST, Listed, ListedAxes, ListedLanes
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.stages import Config

BLOCK = 1024
SQUARE = 32


class ListedNest(ScatteredNest):
    """The lists of points, by the place that they lead to along each of the dimensions ``listed``."""

    def __init__(
        self, work: Work, plan: ListedAxes | ListedLanes, writer: TritonWriter, listed: Sequence[Listed]
    ) -> None:
        super().__init__(work, plan, writer)
        self.listed = listed
        self.counts = [self._memory(f"count{n}", item.size) for n, item in enumerate(listed)]
        self.lists = [self._memory(f"list{n}", item.size * item.length) for n, item in enumerate(listed)]

    def _memory(self, word: str, size: int) -> Buffer:
        return self.workspace(f"{self.out.name}_{word}", torch.int32, size)

    def points_printer(self, dims: list[Dim], letters: dict[str, str]) -> TilePrinter:
        p = PointsPrinter(self.values, self.buffers, self.writer, dims, self.letters | letters)
        p.names = self.names
        return p

    def list_points(self) -> None:
        """A program for each place: which indices name it."""
        loop = [self.loop.id]
        constants = {f"BLOCK{n}": 1 << (item.length - 1).bit_length() for n, item in enumerate(self.listed)}
        configs = (Config(constants, max(1, min(4, max(constants.values()) // 128))),)
        p = self.points_printer([], {})
        p.out.add("place = tl.program_id(0)")
        for n, (item, counts, lists) in enumerate(zip(self.listed, self.counts, self.lists, strict=True)):
            p.out.enter(f"if (tl.program_id(1) == {n}) & (place < {item.size}):")
            dim = Dim((item.axis,), self.letters[item.axis.text], f"BLOCK{n}", 0)
            p.dims, p.shape = [dim], [dim.block]
            self.declare(p, dim, "", configs)
            text = p.text(item.value, p.define([item.value], {}))
            hit, number = p.fresh("hit"), p.fresh("number")
            mask = f"{dim.mask} & " if dim.mask else ""
            p.out.add(f"{hit} = ({mask}({text} == place)).to(tl.int32)", loop)
            p.out.add(f"{number} = tl.cumsum({hit}, axis=0)", loop)
            pointer = f"{p.pointer(lists.name, write=True)} + place*{item.length} + {number} - 1"
            p.out.add(f"tl.store({pointer}, {dim.name}, mask={hit} > 0)", loop)
            pointer = f"{p.pointer(counts.name, write=True)} + place"
            p.out.add(f"tl.store({pointer}, tl.sum({hit}, axis=0))", loop)
            p.out.leave()
        grid = [str(max(item.size for item in self.listed)), str(len(self.listed))]
        self.add(f"{self.symbol}_list", p, grid, configs)

    def dim(self, axes: tuple[Axis, ...], block: str, place: int | None, letters: dict[str, str]) -> Dim:
        names = self.letters | letters
        default = {"XBLOCK": "point", "YBLOCK": "beside"}.get(block, "fixed")
        return Dim(axes, names[axes[0].text] if len(axes) == 1 else default, block, place)

    def count(self, p: TilePrinter, place: str, counts: Buffer, dim: Dim) -> str:
        """The name of how many points along one axis lead to a place."""
        name = p.fresh("count")
        masked = f", mask={dim.mask}, other=0" if dim.mask else ""
        p.out.add(f"{name} = tl.load({p.pointer(counts.name)} + {place}{masked})", [self.loop.id])
        return name


class ListedAxesNest(ListedNest):
    """The functions of a scatter whose points lie side by side along an axis that no index names."""

    plan: ListedAxes

    def __init__(self, work: Work, plan: ListedAxes, writer: TritonWriter) -> None:
        super().__init__(work, plan, writer, plan.listed)

    def write(self) -> None:
        self.list_points()
        self._write()
        self._often()

    # -- lists -------------------------------------------------------------------------------------------

    # -- sums --------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Each element of the output: the base, and the sum over its lists. A program has one place along
        every listed dimension but the output's fastest, so it takes as many steps as its lists are long."""
        loop = [self.loop.id]
        kept = self._kept()
        order = sorted(range(len(kept)), key=lambda dim: -self.out.strides[dim].hint())
        axes = [axis for dim in order if (axis := kept[dim].axis) is not None]
        places = [item.place for item in self.listed]
        letters = {item.place.text: f"c{item.dim}" for item in self.listed}
        fast = axes[-1]
        own = tuple(axis for axis in axes if axis not in places)
        across = (fast,) if fast in places else own
        beside = (self.plan.lane,) if fast in places else ()
        rest = tuple(axis for axis in axes if axis not in across and axis not in beside)
        x = self.dim(across, "XBLOCK", 1 if beside else 0, letters)
        y = self.dim(beside, "YBLOCK", 0, letters)
        one = self.dim(rest, "", None, letters)
        dims = [*([one] if rest else []), *([y] if beside else []), x]
        p = self.points_printer(dims, letters)
        configs = self._blocks(x, y)
        if rest:
            p.out.add(f"{one.name} = tl.program_id(0)")
            p.declare_axes(one)
        if beside:
            self.declare(p, y, "tl.program_id(2) * YBLOCK", configs)
        self.declare(p, x, "tl.program_id(1) * XBLOCK", configs)
        listed = list(zip(self.listed, self.counts, self.lists, strict=True))
        listed.sort(key=lambda each: each[0].place in across)
        counts = []
        for item, of, _ in listed:
            dim = x if item.place in across else one
            counts.append(self.count(p, letters[item.place.text], of, dim))
        p.out.add(f"{counts[-1]} = tl.where({'*'.join(counts)} <= {MOST}, {counts[-1]}, 0)", loop)
        total = p.fresh("total")
        p.out.add(f"{total} = tl.full({p.shape_text()}, 0.0, {TRITON_TYPES[self.out.dtype]})", loop)
        depth = p.out.depth
        for (item, _, lists), count in zip(listed[:-1], counts, strict=False):
            number = p.fresh("number")
            p.out.enter(f"for {number} in range(0, {count}):", loop)
            place = f"{letters[item.place.text]}*{item.length} + {number}"
            p.out.add(f"{p.letters[item.axis.text]} = tl.load({p.pointer(lists.name)} + {place})", loop)
        item, _, lists = listed[-1]
        several = item.place in across
        most = counts[-1] if not several else _largest(counts[-1], len(dims) - bool(rest))
        sources = {item.place: item.axis for item in self.listed}
        masks = [dim.mask for dim in (x, y) if dim.mask]
        p.dims = [replace(dim, axes=tuple(sources.get(axis, axis) for axis in dim.axes)) for dim in dims]
        self._sum_up(p, (item, lists), (counts[-1], most), total, masks, several)
        p.dims, p.out.depth = dims, depth
        value, p.names = self.base_at(kept)
        scope = p.define([value], {})
        where, masked = p.element(self.out.name, self.out.offset(kept), scope, (), write=True)
        p.out.add(f"tl.store({where}, {p.text(value, scope)} + {total}{masked})", loop)
        grid = [
            str(one.extent),
            f"cdiv({x.extent}, XBLOCK)",
            *([f"cdiv({y.extent}, YBLOCK)"] if beside else []),
        ]
        self.add(self.symbol, p, grid, configs)

    def _sum_up(
        self,
        p: TilePrinter,
        listed: tuple[Listed, Buffer],
        counts: tuple[str, str],
        total: str,
        masks: Sequence[str],
        several: bool,
    ) -> None:
        """Walk the last of the lists, a few points a step, and add their values to ``total``. ``counts``: how
        many points this place's list has, and the longest of the tile's; ``several``: the tile has more than
        one place of this list."""
        (item, lists), (count, most), loop = listed, counts, [self.loop.id]
        together = 4 if item.length > 2 * item.size else 2
        number = p.fresh("number")
        p.out.enter(f"for {number} in range(0, {most}, {together}):", loop)
        terms = []
        for more in range(together):
            here = f"{number} + {more} < {count}" if more else f"{number} < {count}"
            place = f"c{item.dim}*{item.length} + {number} + {more}"
            name, live = p.fresh(self.letters[item.axis.text]), p.fresh("live")
            p.letters[item.axis.text] = name
            p.out.add(f"{name} = tl.load({p.pointer(lists.name)} + {place}, mask={here}, other=0)", loop)
            p.out.add(f"{live} = {' & '.join([f'({here})', *masks])}", loop)
            if several:  # what does not vary along x would be read without its mask
                p.dims[-1].mask = live
            text = p.text(self.value, p.define([self.value], {}, always=True))
            if self.value.dtype != self.out.dtype:
                text = self.writer.cast(text, self.value.dtype, self.out.dtype)
            terms.append(f"{total} += tl.where({live}, {text.bare}, 0.0)")
        for term in terms:
            p.out.add(term, loop)

    def _blocks(self, x: Dim, y: Dim) -> tuple[Config, ...]:
        """Tiles: as much of ``x`` as fits, and of ``y`` what is left."""
        found = []
        for tile in (BLOCK, 2 * BLOCK, BLOCK // 2):
            width = min(SQUARE if y.axes else tile, 1 << (x.extent.hint() - 1).bit_length())
            constants = {"YBLOCK": tile // width, "XBLOCK": width} if y.axes else {"XBLOCK": width}
            config = Config(constants, 4 if tile >= BLOCK else 2)
            if config not in found:
                found.append(config)
        return tuple(found)

    def _kept(self) -> tuple[IndexExpr, ...]:
        """The indices of an element of the output."""
        place = dict(enumerate(self.targets))
        return tuple(
            next((index(item.place) for item in self.listed if item.dim == dim), place[dim])
            for dim in range(len(self.out.shape))
        )

    # -- where many meet -----------------------------------------------------------------------------------

    def _often(self) -> None:
        """Elements in which over ``MOST`` points meet: theirs are added by atomics, if there are any."""
        loop = [self.loop.id]
        axes = self.values.nest.axes
        points = product(axis.extent for axis in axes).hint()
        programs = max(1, min(4 * self.multiprocessors, -(-points // BLOCK)))
        constants = {f"BLOCK{n}": 1 << (item.size - 1).bit_length() for n, item in enumerate(self.listed)}
        configs = (Config({"XBLOCK": BLOCK, **constants}, 4),)
        x = Dim(axes, self.variable(axes, "point"), "XBLOCK", 0)
        p = self.points_printer([x], {})
        most = []
        for n, (item, counts) in enumerate(zip(self.listed, self.counts, strict=True)):
            lanes, name = f"tl.arange(0, BLOCK{n})", p.fresh("most")
            loaded = f"tl.load({p.pointer(counts.name)} + {lanes}, mask={lanes} < {item.size}, other=0)"
            p.out.add(f"{name} = tl.max({loaded}, axis=0)", loop)
            most.append(name)
        p.out.enter(f"if {'*'.join(most)} > {MOST}:", loop)
        p.out.enter(f"for start in range(tl.program_id(0) * XBLOCK, {points}, {programs} * XBLOCK):")
        p.out.add(f"{x.name} = {p.lanes(x, offset='start')}")
        if points % BLOCK:
            x.mask = p.fresh(f"{x.name}_in")
            p.out.add(f"{x.mask} = {x.name} < {points}")
        p.declare_axes(x)
        scope = p.define([item.value for item in self.listed], {}, always=True)
        found = []
        for item, counts in zip(self.listed, self.counts, strict=True):
            text, name = p.text(item.value, scope), p.fresh("count")
            tests = [x.mask, f"({text} >= 0)", f"({text} < {item.size})"]
            mask = " & ".join(test for test in tests if test)
            p.out.add(f"{name} = tl.load({p.pointer(counts.name)} + {text}, mask={mask}, other=0)", loop)
            found.append(name)
        hot = p.fresh("hot")
        p.out.add(f"{hot} = {'*'.join(found)} > {MOST}", loop)
        scope = p.define([self.value], scope)
        added = p.text(self.value, scope)
        place = self.out.offset(self.targets)
        where, mask = p.element(self.out.name, place, scope, (), write=True, extra=[hot])
        if self.value.dtype != self.out.dtype:
            added = self.writer.cast(added, self.value.dtype, self.out.dtype)
        if self.value.axes != set(axes):
            added = grouped(f"{added} + tl.zeros([XBLOCK], {TRITON_TYPES[self.out.dtype]})")
        p.out.add(f'tl.atomic_add({where}, {added.bare}{mask}, sem="relaxed")', loop)
        self.add(f"{self.symbol}_often", p, [str(programs)], configs)


def _largest(text: str, dims: int) -> str:
    """The largest number of a tile."""
    return f"tl.max({text}, axis=0)" if dims == 1 else f"tl.max(tl.max({text}, axis=1), axis=0)"
