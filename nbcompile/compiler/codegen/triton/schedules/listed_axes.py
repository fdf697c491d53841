"""Adding into a tensor by short index tensors, each along an axis of its own, such as the gradient of an
upsampling whose index was given: for each place along a dimension the points that lead to it are listed, and
each element of the result is written once, with the sum over its lists.

Only where what is added lies side by side along an axis that no index names: then whole lines are read, once.
Along one that is named, :mod:`nbcompile.compiler.codegen.triton.schedules.listed_lanes` does it.

Sums are made in order, and nothing is atomic but where over ``MOST`` points meet: those of one hot place
would keep one program busy for long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from nbcompile.compiler.codegen.triton.block_printers import PointsPrinter
from nbcompile.compiler.codegen.triton.expressions import TRITON_TYPES
from nbcompile.compiler.codegen.triton.schedules.scatter import ScatterNest
from nbcompile.compiler.codegen.triton.tile_printer import Dim, TilePrinter, bare
from nbcompile.compiler.kernel_ir import integer_ranges
from nbcompile.compiler.kernel_ir.values import Gathered, Value, walk_values
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, index, product
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.stages import Config

MOST = 256  # points of one element that are looked up one after the other
LONGEST = 1024  # indices, and places that they name
MOST_PAIRS = 1 << 18  # (index, place) pairs of one dimension
MEETING = 16  # indices a place, on average
LEAST_POINTS = 1 << 18  # with fewer, the launches cost more
BLOCK = 1024
SQUARE = 32
LEAST_LANE = 16  # neighbours in memory that no index names


@dataclass(frozen=True)
class Listed:
    """Dimension ``dim`` of the output, of ``size`` places, is named by ``value``, which varies along ``axis``
    of the points only. ``place`` is the axis of the output that stands for it."""

    dim: int
    value: Value
    axis: Axis
    place: Axis

    @property
    def length(self) -> int:
        return self.axis.extent.hint()

    @property
    def size(self) -> int:
        return self.place.extent.hint()


def listed_axes(nest: ScatterNest) -> list[Listed] | None:
    """The dimensions so named, if each axis of the points is one of the output or names places along one."""
    if nest.loop.mode != "add" or nest.out.dtype not in (torch.float32, torch.float64):
        return None
    axes = nest.values.nest.axes
    left, found = set(axes), []
    if not all(axis.extent.constant for axis in axes) or not all(each.constant for each in nest.out.shape):
        return None
    for dim, (place, extent) in enumerate(zip(nest.targets, nest.out.shape, strict=True)):
        if place.axis in left and place.axis.extent == extent:
            left.remove(place.axis)
            continue
        if extent == ONE and place.constant == 0:
            continue
        atoms = place.atoms()
        atom = next(iter(atoms), None)
        if len(atoms) != 1 or not isinstance(atom, Gathered) or place != IndexExpr({(atom,): 1}):
            return None
        varies = atom.value.axes
        if len(varies) != 1 or not varies <= left:
            return None
        (axis,) = varies
        left.remove(axis)
        found.append(Listed(dim, atom.value, axis, Axis(f"place{dim}", extent)))
    return None if left or not found or len(found) > 2 else found


def is_listed(nest: ScatterNest, listed: list[Listed]) -> bool:
    """Whether a scatter is done so."""
    return lane_of_points(nest, listed) is not None and fit_in_lists(nest, listed)


def fit_in_lists(nest: ScatterNest, listed: list[Listed]) -> bool:
    """Whether there are points enough for lists to pay, and not too many of them."""
    if product(axis.extent for axis in nest.values.nest.axes).hint() < LEAST_POINTS:
        return False
    for item in listed:
        if max(item.length, item.size) > LONGEST or item.length * item.size > MOST_PAIRS:
            return False
        if item.length > MEETING * item.size:
            return False
    touched = [nest.buffers[load.buffer] for loop in nest.group.loops for load in loop.reads()]
    return all(buffer.span_hint() < integer_ranges.INT32_LIMIT for buffer in (nest.out, *touched))


def lane_of_points(nest: ScatterNest, listed: list[Listed]) -> Axis | None:
    """The axis of points and output along which most of what is read lies side by side."""
    loads = [value for value in walk_values([nest.value]) if value.kind == "load"]
    loads.sort(key=lambda value: -nest.buffers[value.buffer].bytes_hint())
    named = {item.axis for item in listed}
    for axis in loads[0].axes - named if loads else ():
        step = loads[0].place.coefficient(axis)
        if step is not None and step.constant == 1 and axis.extent.hint() >= LEAST_LANE:
            return axis
    return None


class ListedAxes:
    """Prints the functions of such a scatter."""

    def __init__(self, nest: ScatterNest, listed: list[Listed], multiprocessors: int) -> None:
        self.nest, self.listed, self.multiprocessors = nest, listed, multiprocessors
        self.lane = lane_of_points(nest, listed)
        self.counts = [self._workspace(f"count{n}", item.size) for n, item in enumerate(listed)]
        self.lists = [self._workspace(f"list{n}", item.size * item.length) for n, item in enumerate(listed)]

    def _workspace(self, word: str, size: int) -> Buffer:
        buffer = Buffer(f"{self.nest.out.name}_{word}", (index(size),), (ONE,), torch.int32)
        self.nest.buffers[buffer.name] = buffer
        self.nest.workspaces.append(buffer)
        return buffer

    def print(self) -> None:
        self._list()
        self._write()
        self._often()

    def _printer(self, dims: list[Dim], letters: dict[str, str]) -> TilePrinter:
        nest = self.nest
        p = PointsPrinter(nest.values, nest.buffers, nest.writer, dims, nest.letters | letters)
        p.names = nest.resolver.names
        return p

    # -- lists -------------------------------------------------------------------------------------------

    def _list(self) -> None:
        """A program for each place: which indices name it."""
        nest, loop = self.nest, [self.nest.loop.id]
        constants = {f"BLOCK{n}": 1 << (item.length - 1).bit_length() for n, item in enumerate(self.listed)}
        configs = (Config(constants, max(1, min(4, max(constants.values()) // 128))),)
        p = self._printer([], {})
        p.out.add("place = tl.program_id(0)")
        for n, (item, counts, lists) in enumerate(zip(self.listed, self.counts, self.lists, strict=True)):
            p.out.enter(f"if (tl.program_id(1) == {n}) & (place < {item.size}):")
            dim = Dim((item.axis,), nest.letters[item.axis.text], f"BLOCK{n}", 0)
            p.dims, p.shape = [dim], [dim.block]
            nest.declare(p, dim, "", configs)
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
        nest.add(f"{nest.symbol}_list", p, grid, configs)

    # -- sums --------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Each element of the output: the base, and the sum over its lists. A program has one place along
        every listed dimension but the output's fastest, so it takes as many steps as its lists are long."""
        nest, loop = self.nest, [self.nest.loop.id]
        kept = self._kept()
        order = sorted(range(len(kept)), key=lambda dim: -nest.out.strides[dim].hint())
        axes = [axis for dim in order if (axis := kept[dim].axis) is not None]
        places = [item.place for item in self.listed]
        letters = {item.place.text: f"c{item.dim}" for item in self.listed}
        fast = axes[-1]
        own = tuple(axis for axis in axes if axis not in places)
        assert self.lane is not None
        across = (fast,) if fast in places else own
        beside = (self.lane,) if fast in places else ()
        rest = tuple(axis for axis in axes if axis not in across and axis not in beside)
        x = self._dim(across, "XBLOCK", 1 if beside else 0, letters)
        y = self._dim(beside, "YBLOCK", 0, letters)
        one = self._dim(rest, "", None, letters)
        dims = [*([one] if rest else []), *([y] if beside else []), x]
        p = self._printer(dims, letters)
        configs = self._blocks(x, y)
        if rest:
            p.out.add(f"{one.name} = tl.program_id(0)")
            p.declare_axes(one)
        if beside:
            nest.declare(p, y, "tl.program_id(2) * YBLOCK", configs)
        nest.declare(p, x, "tl.program_id(1) * XBLOCK", configs)
        listed = list(zip(self.listed, self.counts, self.lists, strict=True))
        listed.sort(key=lambda each: each[0].place in across)
        counts = []
        for item, of, _ in listed:
            dim = x if item.place in across else one
            counts.append(self._count(p, letters[item.place.text], of, dim))
        p.out.add(f"{counts[-1]} = tl.where({'*'.join(counts)} <= {MOST}, {counts[-1]}, 0)", loop)
        total = p.fresh("total")
        p.out.add(f"{total} = tl.full({p.shape_text()}, 0.0, {TRITON_TYPES[nest.out.dtype]})", loop)
        depth = p.out.depth
        for (item, _, lists), count in zip(listed[:-1], counts, strict=False):
            number = p.fresh("number")
            p.out.enter(f"for {number} in range(0, {count}):", loop)
            place = f"{letters[item.place.text]}*{item.length} + {number}"
            p.out.add(f"{p.letters[item.axis.text]} = tl.load({p.pointer(lists.name)} + {place})", loop)
        item, _, lists = listed[-1]
        several = item.place in across
        most = counts[-1] if not several else _largest(counts[-1], len(dims) - bool(rest))
        together = 4 if item.length > 2 * item.size else 2
        number = p.fresh("number")
        p.out.enter(f"for {number} in range(0, {most}, {together}):", loop)
        sources = {item.place: item.axis for item in self.listed}
        p.dims = [replace(dim, axes=tuple(sources.get(axis, axis) for axis in dim.axes)) for dim in dims]
        terms = []
        for more in range(together):
            here = f"{number} + {more} < {counts[-1]}" if more else f"{number} < {counts[-1]}"
            place = f"{letters[item.place.text]}*{item.length} + {number} + {more}"
            name, live = p.fresh(nest.letters[item.axis.text]), p.fresh("live")
            p.letters[item.axis.text] = name
            p.out.add(f"{name} = tl.load({p.pointer(lists.name)} + {place}, mask={here}, other=0)", loop)
            masks = [f"({here})", *(dim.mask for dim in (x, y) if dim.mask)]
            p.out.add(f"{live} = {' & '.join(masks)}", loop)
            # what does not vary along x would be read without its mask
            p.dims[-1].mask = live if several else x.mask
            text = p.text(nest.value, p.define([nest.value], {}, always=True))
            if nest.value.dtype != nest.out.dtype:
                text = nest.writer.cast(text, nest.value.dtype, nest.out.dtype)
            terms.append(f"{total} += tl.where({live}, {bare(text)}, 0.0)")
        for term in terms:
            p.out.add(term, loop)
        p.dims, p.out.depth = dims, depth
        value, p.names = nest.base_at(kept)
        scope = p.define([value], {})
        where, masked = p.element(nest.out.name, nest.out.offset(kept), scope, (), write=True)
        p.out.add(f"tl.store({where}, {p.text(value, scope)} + {total}{masked})", loop)
        grid = [
            str(one.extent),
            f"cdiv({x.extent}, XBLOCK)",
            *([f"cdiv({y.extent}, YBLOCK)"] if beside else []),
        ]
        nest.add(nest.symbol, p, grid, configs)

    def _dim(self, axes: tuple[Axis, ...], block: str, place: int | None, letters: dict[str, str]) -> Dim:
        names = self.nest.letters | letters
        default = {"XBLOCK": "point", "YBLOCK": "beside"}.get(block, "fixed")
        return Dim(axes, names[axes[0].text] if len(axes) == 1 else default, block, place)

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

    def _count(self, p: TilePrinter, place: str, counts: Buffer, dim: Dim) -> str:
        """The name of how many points along one axis lead to a place."""
        name = p.fresh("count")
        masked = f", mask={dim.mask}, other=0" if dim.mask else ""
        p.out.add(f"{name} = tl.load({p.pointer(counts.name)} + {place}{masked})", [self.nest.loop.id])
        return name

    def _kept(self) -> tuple[IndexExpr, ...]:
        """The indices of an element of the output."""
        place = dict(enumerate(self.nest.targets))
        return tuple(
            next((index(item.place) for item in self.listed if item.dim == dim), place[dim])
            for dim in range(len(self.nest.out.shape))
        )

    # -- where many meet -----------------------------------------------------------------------------------

    def _often(self) -> None:
        """Elements in which over ``MOST`` points meet: theirs are added by atomics, if there are any."""
        nest, loop = self.nest, [self.nest.loop.id]
        axes = nest.values.nest.axes
        points = product(axis.extent for axis in axes).hint()
        programs = max(1, min(4 * self.multiprocessors, -(-points // BLOCK)))
        constants = {f"BLOCK{n}": 1 << (item.size - 1).bit_length() for n, item in enumerate(self.listed)}
        configs = (Config({"XBLOCK": BLOCK, **constants}, 4),)
        x = Dim(axes, nest.variable(axes, "point"), "XBLOCK", 0)
        p = self._printer([x], {})
        most = []
        for n, (item, counts) in enumerate(zip(self.listed, self.counts, strict=True)):
            lanes, name = f"tl.arange(0, BLOCK{n})", p.fresh("most")
            text = f"tl.load({p.pointer(counts.name)} + {lanes}, mask={lanes} < {item.size}, other=0)"
            p.out.add(f"{name} = tl.max({text}, axis=0)", loop)
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
        scope = p.define([nest.value], scope)
        text = p.text(nest.value, scope)
        place = nest.out.offset(nest.targets)
        where, mask = p.element(nest.out.name, place, scope, (), write=True, extra=[hot])
        if nest.value.dtype != nest.out.dtype:
            text = nest.writer.cast(text, nest.value.dtype, nest.out.dtype)
        if nest.value.axes != set(axes):
            text = f"{text} + tl.zeros([XBLOCK], {TRITON_TYPES[nest.out.dtype]})"
        p.out.add(f'tl.atomic_add({where}, {bare(text)}{mask}, sem="relaxed")', loop)
        nest.add(f"{nest.symbol}_often", p, [str(programs)], configs)


def _largest(text: str, dims: int) -> str:
    """The largest number of a tile."""
    return f"tl.max({text}, axis=0)" if dims == 1 else f"tl.max(tl.max({text}, axis=1), axis=0)"
