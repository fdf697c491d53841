"""How a GPU kernel cuts its nest into tiles: which axes a program's tile spans, how large it is, who
reduces what. One frozen :class:`Tiling` a group; the printer only follows it.

A program owns a tile of up to two dimensions. Schedules:

- *points*: nothing is reduced; the tile is a run of points in memory order, or a square of two axes where
  two tensors lie in different orders (a transposed read), or part of one row (*lines*) where much of the
  work is the same all along it.
- *rows*: ``x`` are kept points and ``r`` what is reduced. ``persistent``: a whole row is on chip and read
  once. Else the row is walked in blocks, once per pass.
- ``parts``: a long row is held by several programs, which wait for each other's results.
- ``slabs``: few rows are shared out among programs, each leaves a partial result, a second function adds
  them up. ``sums``: reductions over the rows themselves (a norm's weight gradient) accumulate in each
  program over the rows that it owns, and are finished the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nbcompile.codegen.accesses import accesses, heavy_lanes, memory_order, streamed_bytes
from nbcompile.codegen.values import KernelValues, kernel_values, walk_values
from nbcompile.loop_ir.fused import Group, Nest
from nbcompile.loop_ir.index import Axis, IndexExpr, product
from nbcompile.loop_ir.nodes import Buffer, hint_product
from nbcompile.stages import Config
from nbcompile.targets import Target

POINTS_BLOCK = 1024
LONGEST_ROW = 16_384  # points of a row that one program holds
MOST_LIVE = 65_536  # points times values held at once: the registers of a multiprocessor
MOST_BLOCKS = 65_535  # of a grid's second dimension
WALK_BLOCK = 4096  # points of a walk's block
STAGES = 3  # blocks of a walk under way at once
SHARED_BUDGET = 200 << 10  # bytes of them on a multiprocessor
PART = 8192  # points that one of several programs holds of a row, with 8 warps
LONGEST_COLUMN = 512  # points of a row held where neighbours lie from row to row
LONGEST_SUM = 16_384  # points of a row whose sums over the rows stay in registers
SUM_TILE, SUM_PROGRAMS = 1024, 4  # points of such a tile, and programs of them on a multiprocessor
SMALL_DATA = 8 << 20  # bytes that a second walk finds in the cache anyway
COLUMNS = 64  # neighbouring columns of a tile whose reduced axis is not the contiguous one


@dataclass(frozen=True)
class Tiling:
    """``x`` and ``r`` are axes of the nest, outermost first (``y`` those of a two-dimensional tile of
    points). ``configs`` gives each block's size. ``slabs``: programs that share one row."""

    schedule: str  # "points", "lines", "square", "rows", "scatter"
    x: tuple[Axis, ...]
    r: tuple[Axis, ...] = ()
    y: tuple[Axis, ...] = ()
    persistent: bool = False
    one_row: bool = False  # x is one number, the tile has the dimension r alone
    slabs: int = 1
    parts: int = 1  # programs that hold one row together
    sums: bool = False
    configs: tuple[Config, ...] = ()

    @property
    def title(self) -> str:
        """What people call this kind of kernel."""
        if self.schedule != "rows":
            return {
                "points": "pointwise", "lines": "pointwise, by rows", "square": "pointwise, square tiles",
                "scatter": "scatter",
            }[self.schedule]  # fmt: skip
        words = ["persistent rows" if self.persistent else "looped rows"]
        if self.parts > 1:
            words = [f"rows shared by {self.parts} programs"]
        elif self.slabs > 1 and not self.sums:
            words = ["split rows"]
        if self.sums:
            words.append("partial sums over rows")
        return ", ".join(words)


def tiling(group: Group, buffers: dict[str, Buffer], target: Target) -> tuple[KernelValues, Tiling]:
    """The group's values, its axes put in memory order, and how to cut them into tiles."""
    values = kernel_values(group, buffers, narrow=True)
    if any(loop.kind == "scatter" for loop in group.loops):
        return values, _in_warps(_points(values, buffers, target, "scatter"), target)
    order = memory_order(values, buffers)
    if order != values.nest.axes:
        values = _reordered(group, values, order, buffers)
    plan = _rows(values, buffers, target) if values.reductions else _points(values, buffers, target, "points")
    return values, _in_warps(plan, target)


def _in_warps(plan: Tiling, target: Target) -> Tiling:
    """The same threads in warps of the chip: the schedules count in warps of 32."""
    if target.warp == 32:
        return plan
    configs = (replace(item, warps=max(1, item.warps * 32 // target.warp)) for item in plan.configs)
    return replace(plan, configs=_distinct(configs))


# -- memory order -----------------------------------------------------------------------------------


def _reordered(
    group: Group, values: KernelValues, order: tuple[Axis, ...], buffers: dict[str, Buffer]
) -> KernelValues:
    """The values with the nest's own axes in memory order (so that more of them become one)."""
    rank: dict[str, int] = {}
    for n, axis in enumerate(order):
        for part in _parts_of(axis, group.nest.axes):
            rank[part.name] = n
    axes = tuple(
        sorted(group.nest.axes, key=lambda axis: rank.get(axis.name, len(order)))
    )  # stable: parts of one axis stay in order
    return kernel_values(replace(group, nest=Nest(axes, group.nest.inner)), buffers, narrow=True)


def _parts_of(axis: Axis, axes: Sequence[Axis]) -> list[Axis]:
    """The group's axes that a collapsed axis stands for: ``kernel_values`` joins their names."""
    if axis in axes:
        return [axis]
    joined = f"_{axis.name}_"
    return [part for part in axes if f"_{part.name}_" in joined]


# -- schedules ----------------------------------------------------------------------------------------


def _points(values: KernelValues, buffers: dict[str, Buffer], target: Target, schedule: str) -> Tiling:
    axes = values.nest.axes
    points = hint_product(axis.extent for axis in axes)
    if schedule == "points":
        square = _square(values, buffers)
        if square is not None:
            rest, other, lane = square
            configs = tuple(
                Config({"YBLOCK": y, "XBLOCK": x}, warps)
                for y, x, warps in ((64, 64, 8), (32, 64, 4), (32, 32, 4), (64, 128, 8), (128, 32, 8))
            )
            return Tiling("square", (lane,), y=(*rest, other), configs=configs)
        lines = _lines(values, points)
        if lines is not None:
            return lines
    block = POINTS_BLOCK
    while block > 128 and points < block * target.multiprocessors * 2:
        block //= 2
    sizes = dict.fromkeys((block, max(block // 2, 128), block * 2, block * 4))
    configs = tuple(Config({"XBLOCK": size}, max(1, min(8, size // 256))) for size in sizes)
    configs += (Config({"XBLOCK": block}, max(1, min(8, block // 128))),)
    return Tiling(schedule, axes, configs=_distinct(configs))


def _lines(values: KernelValues, points: int) -> Tiling | None:
    """A row at a time, if its length leaves few lanes idle and some work does not vary along it."""
    axes = values.nest.axes
    length = axes[-1].extent.constant if axes else None
    if len(axes) < 2 or length is None or length < 512 or points < SMALL_DATA:
        return None
    last = axes[-1]
    roots = [item.value for item in values.stores]
    fixed = [
        value for value in walk_values(roots)
        if value.kind in ("load", "op") and value.axes and last not in value.axes
    ]  # fmt: skip
    if len(fixed) < 2 or any(last not in item.place.axes() for item in values.stores):
        return None
    sizes = [size for size in (4096, 2048, 1024, 512) if -(-length // size) * size <= length * 9 // 8]
    if not sizes or -(-length // sizes[-1]) > MOST_BLOCKS:
        return None
    configs = tuple(Config({"RBLOCK": size}, max(1, size // 512)) for size in sizes)
    configs += (Config({"RBLOCK": sizes[0]}, max(1, sizes[0] // 256)),)
    return Tiling("lines", axes[:-1], (last,), one_row=True, configs=_distinct(configs))


def _square(values: KernelValues, buffers: dict[str, Buffer]) -> tuple[list[Axis], Axis, Axis] | None:
    """(other axes, second lane, first lane) if two heavy accesses lie along different axes."""
    found = [access for access in accesses(values, buffers) if access.strides]
    if not found:
        return None
    axes = values.nest.axes
    lane = next((access.lane for access in found if access.lane is not None), None)
    heaviest = found[0].bytes
    for access in found:
        other = access.lane
        if other is None or lane is None or other == lane or access.bytes * 4 < heaviest:
            continue
        if min(lane.extent.hint(), other.extent.hint()) < 16 or lane not in access.strides:
            continue
        if max(lane.extent.hint(), other.extent.hint()) // 32 > MOST_BLOCKS:
            continue
        if axes[-1] != lane:
            lane, other = other, lane
        rest = [axis for axis in axes if axis not in (lane, other)]
        return rest, other, lane
    return None


def _rows(values: KernelValues, buffers: dict[str, Buffer], target: Target) -> Tiling:
    shape = _Rows.of(values, buffers)
    whole, rows = shape.whole, shape.rows
    if any(item.split for item in values.reductions):
        return _sums(values, shape, target)
    if shape.fits and shape.along:
        if rows >= target.multiprocessors // 2 or whole <= 4096 or not _splittable(values):
            return _held(values, shape, target)
    if shape.fits and not shape.along:
        return _held_columns(shape)
    shared = _shared(values, shape, target)
    return shared if shared is not None else _looped(values, shape, target)


def _held_columns(shape: _Rows) -> Tiling:
    """A program holds whole rows that lie across memory: neighbouring ones."""
    each = max(8, min(COLUMNS * (1 if shape.mixed else 2), 8192 // shape.whole))
    config = Config({"XBLOCK": each}, _warps(each * shape.whole, 16))
    return Tiling("rows", shape.x, shape.r, persistent=True, configs=(config,))


def _held(values: KernelValues, shape: _Rows, target: Target) -> Tiling:
    """A program holds whole rows."""
    whole, rows, x, r = shape.whole, shape.rows, shape.x, shape.r
    slim = rows // max(1, 2048 // whole) >= 2 * target.multiprocessors
    each = max(1, min(2048 // whole, 64)) if slim else max(1, min(256 // whole, rows))
    each = _power(each) if rows > 1 else 1
    tile = each * whole
    points = 32 if _draws(values) else 16
    configs = [Config({"XBLOCK": each}, _warps(tile, points))]
    for warps in (_warps(tile, 48 - points), _warps(tile, 8), _warps(tile, 64)):
        configs.append(Config({"XBLOCK": each}, warps))
    if each > 1:
        configs.append(Config({"XBLOCK": max(each // 2, 2)}, _warps(tile // 2, points)))
        configs.append(Config({"XBLOCK": each * 2}, _warps(tile * 2, points)))
    return Tiling("rows", x, r, persistent=True, one_row=each == 1, configs=_distinct(configs))


@dataclass(frozen=True)
class _Rows:
    """What the choice among the row schedules depends on."""

    x: tuple[Axis, ...]
    r: tuple[Axis, ...]
    rows: int
    length: int
    whole: int  # the length as a block: a power of two
    live: int
    along: bool  # neighbours in memory lie along the row, for every heavy access
    mixed: bool  # for some along the row, for others from row to row
    known: bool  # the length is
    row_bytes: int  # read of a row while walking it once

    @classmethod
    def of(cls, values: KernelValues, buffers: dict[str, Buffer]) -> _Rows:
        nest = values.nest
        x, r = nest.rows, nest.inner_axes
        rows, length = hint_product(axis.extent for axis in x), hint_product(axis.extent for axis in r)
        found = accesses(values, buffers)
        lanes = heavy_lanes(found)
        return cls(
            x, r, rows, length, _power(length), _live(values),
            along=rows == 1 or lanes.isdisjoint(x),
            mixed=not lanes.isdisjoint(x) and not lanes.isdisjoint(r),
            known=all(axis.extent.constant is not None for axis in r),
            row_bytes=streamed_bytes(values, buffers),
        )  # fmt: skip

    def stages(self, wanted: int, tile: int) -> int:
        """As many blocks under way as leave room for two programs on a multiprocessor."""
        room = SHARED_BUDGET // 2 // max(self.row_bytes * tile, 1)
        return wanted if room >= wanted else 2 if room >= 2 and wanted >= 2 else 1

    @property
    def fits(self) -> bool:
        """Whether one program can hold a row."""
        if not self.known:
            return False
        if not self.along:
            return self.whole <= LONGEST_COLUMN * (2 if self.mixed else 1)
        return self.whole <= LONGEST_ROW and self.whole * self.live <= MOST_LIVE


def _shared(values: KernelValues, shape: _Rows, target: Target) -> Tiling | None:
    """Rows that several programs hold together; None where that is not possible or gains nothing."""
    known = shape.known and all(axis.extent.constant is not None for axis in shape.x)
    if not known or _splittable(values) or any(item.kind.startswith("arg") for item in values.reductions):
        return None
    if shape.length * shape.rows * shape.row_bytes < SMALL_DATA or not shape.along:
        return None
    # too few bytes from one meeting to the next: a second walk, from the cache, is faster
    if shape.rows >= target.multiprocessors and shape.row_bytes < 4 * shape.live:
        return None
    # the more values of a row are held, the fewer of its points
    part = max(PART // _power(shape.live), 16)
    parts = -(-shape.length // part)
    programs = target.multiprocessors * 4
    if parts < 2 or parts * 2 > programs:
        return None
    groups = dict.fromkeys(
        min(shape.rows, target.multiprocessors * each_sm // parts) for each_sm in (4, 3, 2, 1)
    )
    configs = [Config({"XBLOCK": 1, "RBLOCK": part, "GROUPS": item}, 8) for item in groups if item]
    configs.insert(0, replace(configs[0], registers=target.registers // (4 * 8 * 32)))
    return Tiling(
        "rows", shape.x, shape.r, persistent=True, one_row=True, parts=parts, configs=tuple(configs)
    )


def _looped(values: KernelValues, shape: _Rows, target: Target) -> Tiling:
    x, r, rows, length = shape.x, shape.r, shape.rows, shape.length
    wanted = target.multiprocessors * 4
    if shape.along:
        each = 1 if length >= 1024 else min(8, _power(max(rows, 1)))
        block = min(WALK_BLOCK, max(64, _power(length)))
        if each > 1:
            block = min(block, 512)
        slabs = 1
        if _splittable(values) and rows // each < wanted // 2:
            slabs = _slabs(length, block, wanted, rows // each)
        points = 32 if block >= 4096 else 16
        configs = [
            Config(
                {"XBLOCK": each, "RBLOCK": size, "STAGES": shape.stages(stages, each * size)},
                _warps(each * size, held),
            )
            for size, stages, held in (
                (block, STAGES, points), (block, 1, points), (block // 2, STAGES, 16),
                (block * 2, STAGES, 32), (block * 2, 1, 32), (block, STAGES, 16),
            )
        ]  # fmt: skip
        return Tiling("rows", x, r, one_row=each == 1, slabs=slabs, configs=_distinct(configs))
    each = COLUMNS if rows >= COLUMNS else _power(max(rows, 1))
    block = max(8, min(64, _power(length), WALK_BLOCK // each))
    slabs = 1
    if _splittable(values) and rows // each < wanted:
        slabs = _slabs(length, block, wanted, max(1, rows // each))
    stages = shape.stages(STAGES, each * block)
    configs = [
        Config({"XBLOCK": each, "RBLOCK": block, "STAGES": stages}, 8),
        Config({"XBLOCK": each, "RBLOCK": block, "STAGES": 1}, 8),
        Config({"XBLOCK": each * 2, "RBLOCK": max(block // 2, 4), "STAGES": stages}, 8),
        Config({"XBLOCK": each, "RBLOCK": max(block // 2, 4), "STAGES": stages}, 4),
        Config({"XBLOCK": max(each // 2, 1), "RBLOCK": block * 2, "STAGES": stages}, 8),
    ]
    return Tiling("rows", x, r, slabs=slabs, configs=_distinct(configs))


def _sums(values: KernelValues, shape: _Rows, target: Target) -> Tiling:
    """Row results and sums over the rows in one walk."""
    x, r, rows, whole = shape.x, shape.r, shape.rows, shape.whole
    vary = _sums_vary(values)
    if not vary and shape.fits:  # one value a row is added up
        plan = _held(values, shape, target) if shape.along else _held_columns(shape)
        each = plan.configs[0].constants["XBLOCK"]
        same = [config for config in plan.configs if config.constants["XBLOCK"] == each]
        return replace(plan, slabs=max(-(-rows // each), 1), sums=True, configs=tuple(same))
    if not vary:
        plan = _looped(values, shape, target)
        config = plan.configs[0]
        return replace(plan, slabs=-(-rows // config.constants["XBLOCK"]), sums=True, configs=(config,))
    if shape.fits and whole <= LONGEST_SUM:
        # as few programs as keep memory busy: each leaves a part of every sum
        each = max(16, min(COLUMNS, 8192 // whole))
        if shape.along:
            each = max(1, min(SUM_TILE // whole, COLUMNS))
        each = min(each, _power(rows))
        tile = each * whole
        per = 1 if whole > 8192 else max(2, min(SUM_PROGRAMS, 8192 // tile))
        room = SHARED_BUDGET // max(shape.row_bytes * tile * per, 1)
        stages = min(STAGES, room) if room >= 2 else 1
        if stages == 1:  # nothing is under way but by other programs
            per *= 2
        programs = max(min(target.multiprocessors * per, -(-rows // each)), 1)
        configs = [
            Config({"XBLOCK": each, "STAGES": item}, _warps(tile, points))
            for item, points in ((stages, 16), (1, 16), (stages, 32), (min(stages, 2), 16))
        ]
        return Tiling(
            "rows", x, r, persistent=True, one_row=each == 1, slabs=programs, sums=True,
            configs=_distinct(configs),
        )  # fmt: skip
    each = _power(min(16, max(rows // (2 * target.multiprocessors), 1)))
    block = max(32, min(8192 // each, whole))
    configs = [Config({"XBLOCK": each, "RBLOCK": block, "STAGES": shape.stages(2, each * block)}, 8)]
    return Tiling("rows", x, r, slabs=-(-rows // each), sums=True, configs=tuple(configs))


def _sums_vary(values: KernelValues) -> bool:
    """Whether some sum over the rows has values that vary within a row."""
    return any(item.split and item.value.axes & values.nest.inner for item in values.reductions)


def _slabs(length: int, block: int, wanted: int, programs: int) -> int:
    """Programs that share a row: enough to fill the chip, each with some blocks to walk."""
    blocks = -(-length // block)
    slabs = max(1, min(-(-wanted // max(programs, 1)), blocks // 2, 1024))
    # a number that divides the blocks leaves no slab shorter than the others
    return next((item for item in range(slabs, 2 * slabs) if blocks % item == 0), slabs)


def _splittable(values: KernelValues) -> bool:
    """Whether the row's reductions can be left as partial results: none is needed while walking it, neither
    for another nor for what is stored of the whole row."""
    inner = values.nest.inner
    outputs = {item.output for item in values.reductions}
    pairs = {item.output: item.mean for item in values.reductions}
    for item in values.reductions:
        if item.kind in ("argmax", "argmin"):
            return False
        if (item.value.reductions & outputs) - {pairs[item.output]}:
            return False
    whole_row = (
        item for item in values.stores if item.value.axes & inner or not inner.isdisjoint(item.place.axes())
    )
    return not any(item.value.reductions & outputs for item in whole_row)


def _draws(values: KernelValues) -> bool:
    """Whether random numbers are drawn: so much arithmetic that it counts."""
    roots = [item.value for item in values.reductions] + [item.value for item in values.stores]
    return any(value.op == "philox_uniform" for value in walk_values(roots))


def _live(values: KernelValues) -> int:
    """Values of a whole row that are held at once: what is read, and needed again after a reduction."""
    inner = values.nest.inner
    roots = [item.value for item in values.reductions] + [item.value for item in values.stores]
    heavy = {
        value.buffer
        for value in walk_values(roots)
        if value.kind == "load" and value.axes & inner and value.axes - inner
    }
    return max(1, min(len(heavy), 4))


def _power(value: int) -> int:
    return 1 << max(value - 1, 0).bit_length()


def _warps(tile: int, each: int) -> int:
    """Warps so that a thread has about ``each`` elements of the tile."""
    return max(1, min(32 if tile >= 16_384 else 16, _power(tile // (32 * each))))


def _distinct(configs: Iterable[Config]) -> tuple[Config, ...]:
    found: list[Config] = []
    for config in configs:
        if config not in found:
            found.append(config)
    return tuple(found)


def extent_of(axes: Iterable[Axis]) -> IndexExpr:
    """How many points these axes have together."""
    return product(axis.extent for axis in axes)
