"""A tiling: how a kernel's nest is cut into tiles, and the arithmetic of it that all schedules share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nbcompile.compiler.kernel_ir.group_to_values import kernel_values
from nbcompile.compiler.kernel_ir.values import KernelValues
from nbcompile.compiler.loop_ir.fused import Group, Nest
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, product
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.stages import Config
from nbcompile.targets import Target


@dataclass(frozen=True)
class Tiling:
    """``x`` and ``r`` are axes of the nest, outermost first (``y`` those of a two-dimensional tile of
    points). ``configs`` gives each block's size. ``slabs``: programs that share one row."""

    schedule: str  # "points", "lines", "bands", "square", "rows", "scatter"
    x: tuple[Axis, ...]
    r: tuple[Axis, ...] = ()
    y: tuple[Axis, ...] = ()
    outer: tuple[Axis, ...] = ()  # of bands: a program has one point of these
    persistent: bool = False
    one_row: bool = False  # x is one number, the tile has the dimension r alone
    slabs: int = 1
    parts: int = 1  # programs that hold one row together
    sums: bool = False
    lanes: tuple[Axis, ...] = ()  # of ``x``, but reduced: combined with the slabs by the second function
    unrolled: bool = False  # the walk over a short row is written out
    configs: tuple[Config, ...] = ()

    @property
    def split(self) -> bool:
        """Whether a second function combines what programs have of a row."""
        return not self.sums and (self.slabs > 1 or bool(self.lanes))

    @property
    def total(self) -> bool:
        """Whether the lanes are all of ``x``: then each program adds up its own."""
        return bool(self.lanes) and self.lanes == self.x

    @property
    def title(self) -> str:
        """What people call this kind of kernel."""
        if self.schedule != "rows":
            return {
                "points": "pointwise", "lines": "pointwise, by rows", "bands": "pointwise, bands of rows",
                "square": "pointwise, square tiles", "scatter": "scatter",
            }[self.schedule]  # fmt: skip
        words = ["persistent rows" if self.persistent else "looped rows"]
        if self.parts > 1:
            words = [f"{'' if self.persistent else 'looped '}rows shared by {self.parts} programs"]
        elif self.split:
            words = ["split rows, lanes apart" if self.lanes else "split rows"]
        if self.sums:
            words.append("partial sums over rows")
        return ", ".join(words)


def in_warps(plan: Tiling, target: Target) -> Tiling:
    """The same threads in warps of the chip: the schedules count in warps of 32."""
    if target.warp == 32:
        return plan
    configs = (replace(item, warps=max(1, item.warps * 32 // target.warp)) for item in plan.configs)
    return replace(plan, configs=distinct(configs))


def reordered(
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


def power(value: int) -> int:
    return 1 << max(value - 1, 0).bit_length()


def warps_of(tile: int, each: int) -> int:
    """Warps so that a thread has about ``each`` elements of the tile."""
    return max(1, min(32 if tile >= 16_384 else 16, power(tile // (32 * each))))


def distinct(configs: Iterable[Config]) -> tuple[Config, ...]:
    found: list[Config] = []
    for config in configs:
        if config not in found:
            found.append(config)
    return tuple(found)


def extent_of(axes: Iterable[Axis]) -> IndexExpr:
    """How many points these axes have together."""
    return product(axis.extent for axis in axes)
