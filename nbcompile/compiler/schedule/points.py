"""Schedules of kernels that reduce nothing: runs of points, squares, lines and bands of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Self

from nbcompile.compiler.kernel_ir.accesses import accesses
from nbcompile.compiler.kernel_ir.values import KernelValues, Store, Value, gathered, walk_values
from nbcompile.compiler.loop_ir.expr import TRANSCENDENTAL
from nbcompile.compiler.loop_ir.index import Axis, Mod, index
from nbcompile.compiler.loop_ir.lanes import SHORT_LANE, SMALLEST_PART, Access, cut_well, heavy, part_blocks
from nbcompile.compiler.loop_ir.nodes import Buffer, hint_product
from nbcompile.compiler.schedule.schedule import Schedule, Work
from nbcompile.compiler.schedule.tiling import distinct, power
from nbcompile.compiler.stages import Config
from nbcompile.targets import Target

# Where these numbers come from is said in row_shapes.py.
POINTS_BLOCK = 1024
SQUARE = 32  # points of a square's shorter side
MANY_COLUMNS = 2  # loads that are the same for all rows, from which on programs have many rows
STENCIL = 9  # loads of a point, from which on programs are small ones
LONG_LINE = 4096  # from so long on (and odd), a row at a time spares each point a division by its length
ODD_LINE_BLOCK = 1024  # points of a program there (measured on an H200: 403 us, with 4096 points 437 us)
MANY_POINTS = 8 << 20  # from so many on, a row at a time
MANY_AXES = 3  # of a permuted copy that is cut into bands for the divisions that tell them
SYMBOLIC_BLOCK = 256  # points of a row whose length is a symbol that a band has at once
NARROWEST = 64  # points of a row that a band has at once, where a wider one would leave lanes idle
LONGEST_BAND = 1024  # points of several axes that a band has as its row
MANY_PARTS = 4  # of what is joined, but for the last, from which on those are passed over that have no point
TURNS_BLOCK = 256  # points of a program whose neighbours take turns
MOST_BLOCKS = 65_535  # of a grid's second dimension


@dataclass(frozen=True, kw_only=True)
class Points(Schedule):
    """A program has a run of points in memory order: ``x``, outermost first."""

    x: tuple[Axis, ...]

    name = "pointwise"
    meaning = "A program has a run of points in the order of memory, each element by itself."

    @classmethod
    def fit(cls, work: Work) -> Self:
        axes = work.values.nest.axes
        block = _points_block(_count(axes), work.target)
        sizes = dict.fromkeys((block, max(block // 2, 128), block * 2, block * 4))
        configs = [Config({"XBLOCK": size}, max(1, min(8, size // 256))) for size in sizes]
        few = Config({"XBLOCK": block}, max(1, min(8, block // 128)))
        configs.insert(0 if _passes_over(work) else len(configs), few)
        return cls(x=axes, configs=distinct(configs))


@dataclass(frozen=True, kw_only=True)
class Square(Schedule):
    """A program has a square of ``y`` by ``x``, where two tensors lie in different orders of memory, at one
    point of the axes ``outer``."""

    y: tuple[Axis, ...]
    x: tuple[Axis, ...]
    outer: tuple[Axis, ...] = ()

    name = "pointwise, square tiles"
    meaning = "Memory is met in two orders (a transposed read), and a square piece suits both."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        square = _square(work.values, work.buffers)
        if square is None:
            return None
        outer, side, lane = square
        best = [(64, 64, 8), (32, 128, 8)]
        halves = all(work.buffers[item.buffer].dtype.itemsize <= 2 for item in work.values.stores)
        if halves and lane.extent.hint() > 64:
            best.reverse()
        short = lane.extent.constant is not None and lane.extent.constant <= SQUARE
        if short:  # no lanes beyond the axis
            best.insert(0, (64, 32, 2))
        if outer and not short and _count(side) >= SQUARE:
            # told by a division, they would hide from Triton which of a tile's points are neighbours
            best.insert(0, (32, 64, 4))
        else:
            outer, side = (), (*outer, *side)
        shapes = dict.fromkeys((*best, (32, 64, 4), (32, 32, 4), (128, 32, 8)))
        configs = tuple(Config({"YBLOCK": y, "XBLOCK": x}, warps) for y, x, warps in shapes)
        return cls(y=side, x=(lane,), outer=outer, configs=configs)


@dataclass(frozen=True, kw_only=True)
class ByRows(Schedule):
    """A program has a part of one row: ``r`` of the points ``x``."""

    x: tuple[Axis, ...]
    r: tuple[Axis, ...]

    name = "pointwise, by rows"
    meaning = "A program stays in one row: what is the same all along it is done once."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where a row's length leaves few lanes idle and some work does not vary along it."""
        return cls._with_few_draws(work) or cls._with_fixed_work(work)

    @classmethod
    def _with_few_draws(cls, work: Work) -> Self | None:
        """Where random numbers are drawn for rows, not for points (whole samples are dropped): each takes as
        long as tens of points."""
        axes = work.values.nest.axes
        draws = [
            value for value in walk_values(item.value for item in work.values.stores)
            if value.op == "philox_uniform"
        ]  # fmt: skip
        drawn = {axis for value in draws for axis in value.axes}
        first = max((place + 1 for place, axis in enumerate(axes) if axis in drawn), default=0)
        if not draws or _count(axes[first:]) < SHORT_LANE * 8:
            return None
        block = _points_block(_count(axes), work.target)
        sizes = [size for size in (block, block // 2, block // 4) if size <= power(_count(axes[first:]))]
        configs = [Config({"RBLOCK": size}, max(1, min(8, size // 256))) for size in sizes]
        return cls(x=axes[:first], r=axes[first:], configs=distinct(configs)) if configs else None

    @classmethod
    def _with_fixed_work(cls, work: Work) -> Self | None:
        axes = work.values.nest.axes
        length = axes[-1].extent.constant if axes else None
        if len(axes) < 2 or length is None or length < 512 or _count(axes) < MANY_POINTS:
            return None
        last, roots = axes[-1], [item.value for item in work.values.stores]
        fixed = [value for value in walk_values(roots) if value.kind != "guard" and _fixed(value, last)]
        if any(last not in item.place.axes() for item in work.values.stores):
            return None
        if len(fixed) < 2 and (length < LONG_LINE or length % 8 == 0):
            return None
        sizes = [size for size in (4096, 2048, 1024, 512) if -(-length // size) * size <= length * 9 // 8]
        if not sizes:
            return None
        if length % 8 and len(fixed) < 2:  # few bytes a thread at once: many small programs
            sizes.sort(key=lambda size: abs(size - ODD_LINE_BLOCK))
            configs = [Config({"RBLOCK": size}, max(1, size // 256)) for size in sizes]
        else:
            configs = [Config({"RBLOCK": size}, max(1, size // 512)) for size in sizes]
            configs.append(Config({"RBLOCK": sizes[0]}, max(1, sizes[0] // 256)))
        return cls(x=axes[:-1], r=(last,), configs=distinct(configs))


@dataclass(frozen=True, kw_only=True)
class Parts(ByRows):
    """A program has a part of one row that lies in one part of what is joined."""

    name = "pointwise, part by part"
    meaning = "A program stays in one part of what is joined: what the other parts take is not computed."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where a part takes more than loads and the edges of the parts are multiples of a block."""
        axes = work.values.nest.axes
        levels = [*joined(item.value for item in work.values.stores)]
        if not axes or not levels:
            return None
        inside = walk_values(side for guards in levels for guard in guards for side in guard.args)
        sizes = part_blocks(axes[-1], (bound for guards in levels for bound in guards[0].bounds))
        if not sizes or TRANSCENDENTAL.isdisjoint(value.op for value in inside):
            return None
        if _count(axes) < sizes[-1] * work.target.multiprocessors * 2:
            return None
        configs = [Config({"RBLOCK": size}, size // 256) for size in sizes]
        configs.append(Config({"RBLOCK": sizes[0]}, sizes[0] // 128))
        return cls(x=axes[:-1], r=axes[-1:], configs=distinct(configs))


@dataclass(frozen=True, kw_only=True)
class Joined(ByRows):
    """A program has a run of points of one row, and passes over the parts of what is joined in it that have
    none of them: ``edges`` are where each but the first part begins, in points of ``r``."""

    edges: tuple[int, ...]

    name = "pointwise, one part after another"
    meaning = "A program passes over those parts of what is joined that have none of its points."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where many tensors are joined one after the other along one axis, and each is little more than
        read: of each point all but one load would be for nothing."""
        axes, levels = work.values.nest.axes, [*joined(item.value for item in work.values.stores)]
        if len(levels) < MANY_PARTS or not all(_leads_on(*pair) for pair in pairwise(levels)):
            return None
        sides = [side for guards in levels for guard in guards for side in guard.args[:1]]
        if any(value.kind == "guard" or value.op in TRANSCENDENTAL for value in walk_values(sides)):
            return None
        axis, ends = _one_after_another([guards[0] for guards in levels])
        place = axes.index(axis) if axis in axes else len(axes)
        inner = [item.extent.constant for item in axes[place:]]
        if not ends or not all(inner) or _count(axes) < POINTS_BLOCK * work.target.multiprocessors * 2:
            return None
        length, points = (prod(size or 1 for size in inner[first:]) for first in (0, 1))
        sizes = [size for size in cut_well(length) if size >= SMALLEST_PART]
        configs = tuple(Config({"RBLOCK": size}, size // 256) for size in sizes)
        edges = tuple(end * points for end in ends)
        return cls(x=axes[:place], r=axes[place:], edges=edges, configs=configs) if configs else None


def _leads_on(guards: Sequence[Value], others: Sequence[Value]) -> bool:
    """Whether what is outside of each of some guards is one of the others."""
    return {guard.args[1].number for guard in guards} == {guard.number for guard in others}


def _one_after_another(guards: Sequence[Value]) -> tuple[Axis | None, list[int]]:
    """The axis along which these guards' parts lie, each beginning where the one before ends, and their ends;
    none where they do not."""
    axis: Axis | None = None
    ends = [0]
    for guard in guards:
        if len(guard.bounds) != 1:
            return None, []
        item, low, high = guard.bounds[0]
        along = [atom for atom in item.atoms() if isinstance(atom, Axis)]
        axis = axis or (along[0] if along else None)
        if axis is None or item != index(axis) or low.constant != ends[-1] or high.constant is None:
            return None, []
        ends.append(high.constant)
    return axis, ends[1:]


def joined(values: Iterable[Value]) -> Iterator[tuple[Value, ...]]:
    """The guards that choose one part of what is joined in these values: those of the first part, those of
    the second, in what is outside of the first, and so on. Guards of one part all have the same bounds."""
    pending, guards, seen = [*values], dict[int, Value](), set[int]()
    while pending:
        value = pending.pop()
        if value.kind == "guard":
            guards.setdefault(value.number, value)
        elif value.number not in seen:
            seen.add(value.number)
            pending += value.inputs()
    found = tuple(guards.values())
    bounds = {guard.bounds for guard in found}
    if len(bounds) == 1 and not any(gathered(expr) for bound in found[0].bounds for expr in bound):
        yield found
        yield from joined(guard.args[1] for guard in found)


@dataclass(frozen=True, kw_only=True)
class Bands(Schedule):
    """A program has pieces of neighbouring rows: ``x`` of some ``y``, at one point of the axes ``outer``."""

    y: tuple[Axis, ...]
    x: tuple[Axis, ...]
    outer: tuple[Axis, ...] = ()

    name = "pointwise, bands of rows"
    meaning = (
        "A program has pieces of neighbouring rows: what is the same all along one, or from row to row, is "
        "done once."
    )

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where such pieces cut the last axis well and some work does not vary along it, which is then done
        once a row, not once a point; or where axes are told by fewer divisions."""
        return cls._with_fixed_work(work) or cls._with_few_divisions(work)

    @classmethod
    def _with_fixed_work(cls, work: Work) -> Self | None:
        axes, stores = work.values.nest.axes, work.values.stores
        length = axes[-1].extent.constant if axes else None
        if len(axes) < 2 or not length or any(axes[-1] not in item.place.axes() for item in stores):
            return None
        if _draws_by_four(work, length):
            return None
        found = walk_values(item.value for item in stores)
        columns = sum(_along(value, axes[-1]) and axes[-2] not in value.axes for value in found)
        if columns < MANY_COLUMNS and not any(_fixed(value, axes[-1]) for value in found):
            return None
        sizes = cut_well(length)
        if not sizes and length % 32 == 0:
            sizes = [32]
        if not sizes:
            return None
        block = _points_block(_count(axes), work.target)
        if any(value.kind == "guard" and _by_turns(value, axes[-1]) for value in found):
            return None
        if columns >= MANY_COLUMNS:
            deep = cls._deep(axes, min(sizes[0], 128), block * 4)
            if deep is not None:
                return deep
        if _loads(stores) >= STENCIL:
            block = min(block, 256)
        width = min(_even(length, sizes), block)
        blocks = dict.fromkeys((block, max(block // 2, width), block * 2))
        configs = tuple(
            Config({"YBLOCK": size // width, "XBLOCK": width}, max(1, min(8, size // 256))) for size in blocks
        )
        return cls(y=axes[:-1], x=(axes[-1],), configs=distinct(configs))

    @classmethod
    def _with_few_divisions(cls, work: Work) -> Self | None:
        """Where a point's axes would be told by divisions by numbers that are no powers of two, some of
        which a band has once a row: a permuted copy of many axes does hardly anything else. As many of the
        innermost axes as a program can have are its row. A division by a size takes more than the rest of a
        point's work."""
        axes, stores = work.values.nest.axes, work.values.stores
        found = [*walk_values(item.value for item in stores)]
        if any(value.kind == "guard" and _by_turns(value, axes[-1]) for value in found):
            return None
        for first in range(1, len(axes)):
            row = axes[first:]
            sizes = _blocks_of(row, len(axes))
            if not sizes or sizes[0] < SHORT_LANE or not _divides(axes, first):
                continue
            if any(not set(row) <= item.place.axes() for item in stores) or _draws_by_four(work, _known(row)):
                continue
            points = 4 if _passes_over(work) else 8  # of a thread
            block = max(_points_block(_count(axes), work.target) * points // 8, sizes[0])
            if any(value.kind == "guard" and _alternates(value, axes[-1]) for value in found):
                block = max(min(block, TURNS_BLOCK), sizes[0])
            configs = [
                Config(
                    {"YBLOCK": size // sizes[0], "XBLOCK": sizes[0]}, max(1, min(8, size // (32 * points)))
                )
                for size in dict.fromkeys((block, max(block // 2, sizes[0]), block * 2))
            ]
            return cls(y=axes[:first], x=row, configs=distinct(configs))
        return None

    @classmethod
    def _deep(cls, axes: tuple[Axis, ...], width: int, points: int) -> Self | None:
        """Bands of many rows that have all axes but the last two in common: what does not vary from row to
        row is done once for several of them."""
        rows, extent = max(points // width, 1), axes[-2].extent.constant
        while len(axes) > 2 and rows > 4 and (extent is None or extent % rows):
            rows //= 2
        if rows <= 4:
            return None
        configs = tuple(
            Config({"YBLOCK": rows, "XBLOCK": width}, max(1, min(8, rows * width // each)))
            for each in (1024, 512, 256)
        )
        return cls(y=axes[-2:-1], x=axes[-1:], outer=axes[:-2], configs=distinct(configs))


def _even(length: int, sizes: Sequence[int]) -> int:
    """The largest wide one of these blocks with next to no lanes beyond the row; else the largest."""
    wide = (size for size in sizes if size >= NARROWEST and -(-length // size) * size * 16 <= length * 17)
    return next(wide, sizes[0])


def _draws_by_four(work: Work, length: int | None) -> bool:
    """Whether random numbers are drawn for four points of a run at once, and not in rows of this length."""
    if length is not None and length % 4 == 0:
        return False
    last = work.values.nest.axes[-1]
    found = walk_values(item.value for item in work.values.stores)
    return any(value.op == "philox_uniform" and last in value.axes for value in found)


def _by_turns(guard: Value, last: Axis) -> bool:
    """Whether neighbours along ``last`` are on different sides of a guard by turns, as where two tensors are
    interleaved."""
    atoms = {atom for bound in guard.bounds for item in bound for atom in item.atoms()}
    return any(isinstance(atom, Mod) and last in atom.numerator.atoms() for atom in atoms)


def _alternates(guard: Value, last: Axis) -> bool:
    """Whether a guard chooses among the few points of the last axis: neighbours take turns."""
    few = last.extent.constant is not None and last.extent.constant <= 4
    return few and any(last in item.axes() for bound in guard.bounds for item in bound)


def _loads(stores: Sequence[Store]) -> int:
    """Loads of a point, of which those on the two sides of a guard are not done together."""
    together: dict[int, frozenset[int]] = {}
    for value in walk_values(item.value for item in stores):
        own = frozenset([value.number] if value.kind == "load" else ())
        inputs = [together[item.number] for item in value.inputs()]
        together[value.number] = max(inputs, key=len) if value.kind == "guard" else own.union(*inputs)
    return len(frozenset[int]().union(*(together[item.value.number] for item in stores)))


def _blocks_of(row: Sequence[Axis], axes: int) -> list[int]:
    """Blocks that cut a band's row well, the largest first, where a nest of so many axes may have one."""
    length = _known(row)
    if length is None:  # short ones if it is shorter than now: others would leave most lanes idle
        return [SYMBOLIC_BLOCK] if len(row) == 1 and row[0].extent.hint() >= SYMBOLIC_BLOCK else []
    if axes < MANY_AXES or (length > LONGEST_BAND and len(row) > 1):
        return []
    return cut_well(length) or ([power(length)] if power(length) * 7 <= length * 8 else [])


def _known(axes: Sequence[Axis]) -> int | None:
    extents = [axis.extent.constant for axis in axes]
    return prod(item for item in extents if item) if all(extents) else None


def _divides(axes: Sequence[Axis], first: int) -> bool:
    """Whether a run of points would be divided by a number that is no power of two to tell one of the axes
    up to that with the number ``first``."""
    divisors = [_known(axes[number:]) for number in range(1, first + 1)]
    return any(item is None or item & (item - 1) for item in divisors)


def _passes_over(work: Work) -> bool:
    """Whether neighbours along the last axis, a long one, are a few elements apart in something heavy:
    a thread that has many points in a row leaves each load of its warp to as many pieces of memory."""
    axes = work.values.nest.axes
    if not axes or axes[-1].extent.hint() < SHORT_LANE:
        return False
    steps = (abs(item.strides.get(axes[-1], 0)) for item in heavy(accesses(work.values, work.buffers)))
    return any(1 < step < SHORT_LANE for step in steps)


def _count(axes: tuple[Axis, ...]) -> int:
    return hint_product(axis.extent for axis in axes)


def _points_block(points: int, target: Target) -> int:
    """Points of a program, so that there are enough of these."""
    block = POINTS_BLOCK
    while block > 128 and points < block * target.multiprocessors * 2:
        block //= 2
    return block


def _along(value: Value, last: Axis) -> bool:
    """Whether a value is loaded for each point of a row."""
    return value.kind == "load" and last in value.axes


def _fixed(value: Value, last: Axis) -> bool:
    """Whether a value, or the side of a guard that is taken, is the same all along a row."""
    if value.kind == "guard":
        return any(last not in item.axes() for bound in value.bounds for item in bound if item.axes())
    return value.kind in ("load", "op") and bool(value.axes) and last not in value.axes


def _square(
    values: KernelValues, buffers: dict[str, Buffer]
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], Axis] | None:
    """(outer axes, the axes of one side, the axis of the other) if two heavy accesses lie along different
    axes."""
    found = [access for access in accesses(values, buffers) if access.strides]
    axes = values.nest.axes
    first = next((access for access in found if access.lane is not None), None)
    if first is None:
        return None
    for access in heavy(found):
        lane, other = first.lane, access.lane
        if lane is None or other is None or other == lane or lane not in access.strides:
            continue
        runs = {lane: _together(first, other), other: _together(access, lane)}
        if min(map(_count, runs.values())) < SHORT_LANE:
            continue
        if max(lane.extent.hint(), other.extent.hint()) // 32 > MOST_BLOCKS:
            continue
        if axes[-1] != lane:
            lane, other = other, lane
        if lane.extent.hint() < SHORT_LANE:
            lane, other = other, lane
        if lane.extent.hint() < SHORT_LANE:
            continue
        # of short ones, as many as lie together in memory
        run = runs[other] if other.extent.hint() < SHORT_LANE else (other,)
        return tuple(axis for axis in axes if axis != lane and axis not in run), run, lane
    return None


def _together(access: Access, apart: Axis) -> tuple[Axis, ...]:
    """The axes other than ``apart`` that go along memory without a gap, the fastest one last."""
    steps = {abs(stride): axis for axis, stride in access.strides.items() if axis != apart}
    run: list[Axis] = []
    reached = 1
    while reached in steps and steps[reached] not in run:
        run.insert(0, steps[reached])
        reached *= run[0].extent.hint()
    return tuple(run)
