"""How a kernel that scans its rows cuts them up: rows on chip, walked in blocks, or shared out in slabs.

``x`` are the rows, ``r`` the axes that scans go along, in their order: a block of ``r`` comes after the one
before it. Where neighbours in memory lie from row to row, a tile has some of these rows side by side.
"""

from __future__ import annotations

from nbcompile.compiler.kernel_ir.accesses import memory_order
from nbcompile.compiler.kernel_ir.group_to_values import kernel_values
from nbcompile.compiler.kernel_ir.values import KernelValues, Value, walk_values
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.schedule.row_shapes import (
    COLUMNS,
    LONGEST_COLUMN,
    MOST_SLABS,
    STAGES,
    WALK_BLOCK,
    RowShape,
)
from nbcompile.compiler.schedule.tiling import Tiling, distinct, in_warps, power, reordered, warps_of
from nbcompile.compiler.stages import Config
from nbcompile.targets import Target

MOST_TOTALS = 16_384  # totals of slabs that a program of the second function reads at once
COLUMN_TILE = 8192  # points of a tile that holds columns whole


def scans_of(values: KernelValues) -> list[Value]:
    """Every scan of a kernel, those that others need first. Two outputs of one loop are two values."""
    return [value for value in walk_values(item.value for item in values.stores) if value.kind == "scan"]


def goes_backwards(group: Group) -> bool:
    """Whether the group's scans start at the ends of its rows (which they all do, or none): so a gradient
    that is scanned from its end is read and written forwards."""
    for loop in group.loops:
        if loop.scanned is not None:
            place = group.bindings[loop.id][loop.scanned]
            steps = [place.coefficient(axis) for axis in place.axes()]
            return any(step is not None and step.hint() < 0 for step in steps)
    return False


def scan_tiling(
    group: Group, buffers: dict[str, Buffer], target: Target
) -> tuple[KernelValues, Tiling]:  # fmt: skip
    """The group's values, its rows put in memory order, and how to cut them into tiles."""
    values = kernel_values(group, buffers, narrow=True)
    inside = values.nest.inner_axes
    rows = [axis for axis in memory_order(values, buffers) if axis not in inside]
    if (*rows, *inside) != values.nest.axes:
        values = reordered(group, values, (*rows, *inside), buffers)
    shape = RowShape.of(values, buffers)
    plan = _across(values, shape, target) if not shape.along else _along(values, shape, target)
    return values, in_warps(plan, target)


def _along(values: KernelValues, shape: RowShape, target: Target) -> Tiling:
    """Rows that lie along memory."""
    whole, rows, held = shape.whole, shape.rows, _points_held(values)
    if shape.fits:
        busy = rows * whole >= 2048 * 2 * target.multiprocessors
        each = power(max(1, min((2048 if busy else 256) // whole, 64, rows)))
        configs = [Config({"XBLOCK": each}, warps_of(each * whole, item)) for item in (held, 16, 8, 32, 4)]
        if each > 1:
            configs.append(Config({"XBLOCK": max(each // 2, 2)}, warps_of(each * whole // 2, 16)))
            configs.append(Config({"XBLOCK": each * 2}, warps_of(each * whole * 2, 16)))
        return Tiling(
            "rows", shape.x, shape.r, persistent=True, one_row=each == 1, configs=distinct(configs)
        )  # fmt: skip
    each, block = shape.walk()
    slabs = _slabs(values, shape, each, block, target)
    configs = [
        shape.walked(each, size, stages, points)
        for size, stages, points in (
            (block, STAGES, held), (block, 1, held), (block, STAGES, 8), (block, STAGES, 16),
            (block // 2, STAGES, held), (block * 2, STAGES, 16), (block * 2, 1, 16),
        )
    ]  # fmt: skip
    return Tiling("rows", shape.x, shape.r, one_row=each == 1, slabs=slabs, configs=distinct(configs))


def _across(values: KernelValues, shape: RowShape, target: Target) -> Tiling:
    """Rows that lie across memory: neighbouring ones are walked together."""
    held = _points_held(values)
    if shape.known and shape.whole <= LONGEST_COLUMN:
        each = max(8, min(COLUMNS, COLUMN_TILE // shape.whole))
        configs = [
            Config({"XBLOCK": size}, warps_of(size * shape.whole, points))
            for size, points in ((each, held), (max(each // 2, 8), 16), (each, 32))
        ]
        return Tiling("rows", shape.x, shape.r, persistent=True, configs=distinct(configs))
    each = COLUMNS if shape.rows >= COLUMNS else power(max(shape.rows, 1))
    block = max(8, min(shape.whole, WALK_BLOCK // each))
    slabs, ahead = _slabs(values, shape, each, block, target), shape.stages(STAGES, each * block)
    configs = [
        Config({"XBLOCK": each, "RBLOCK": size, "STAGES": stages}, warps)
        for size, stages, warps in (
            (block, ahead, 128 // held), (block, 1, 128 // held), (block * 2, 1, 8),
            (max(block // 2, 4), ahead, 4), (max(block // 2, 4), 1, 8),
        )
    ]  # fmt: skip
    return Tiling("rows", shape.x, shape.r, slabs=slabs, configs=distinct(configs))


def _points_held(values: KernelValues) -> int:
    """Points of a tile that a thread holds: a position beside each value takes the registers of another."""
    return 8 if any(value.literal for value in scans_of(values)) else 16


def _slabs(values: KernelValues, shape: RowShape, each: int, block: int, target: Target) -> int:
    """Programs that share a row: a first function finds the total of each slab, a second one scans it from
    the totals before it. Not where a scan is made of another, whose totals are known only then."""
    wanted, programs = target.multiprocessors * 4, max(1, shape.rows // each)
    found = scans_of(values)
    makers = {value.args[0] for value in found}
    if programs >= wanted // 2 or any(value in found for value in walk_values(makers)):
        return 1
    blocks = -(-shape.length // block)
    slabs = max(1, min(-(-wanted // programs), blocks // 2, MOST_SLABS, MOST_TOTALS // each))
    # a number that divides the blocks leaves no slab shorter than the others: on an H200 2 to 3 % faster for
    # 16M elements than any number, 1 to 4 % slower where that leaves few programs more than fit at once
    most = min(2 * slabs, MOST_TOTALS // each + 1)
    return next((item for item in range(slabs, most) if blocks % item == 0), slabs)
