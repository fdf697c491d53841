"""The arithmetic of tiles that all schedules share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nbcompile.compiler.kernel_ir.group_to_values import kernel_values
from nbcompile.compiler.kernel_ir.values import KernelValues
from nbcompile.compiler.loop_ir.fused import Group, Nest
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, product
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.stages import Config


def reordered(
    group: Group, values: KernelValues, order: tuple[Axis, ...], buffers: dict[str, Buffer]
) -> KernelValues:
    """The values with the nest's own axes in memory order (so that more of them become one)."""
    rank: dict[str, int] = {}
    for n, axis in enumerate(order):
        for part in axis.parts or (axis,):
            rank[part.name] = n
    axes = tuple(
        sorted(group.nest.axes, key=lambda axis: rank.get(axis.name, len(order)))
    )  # stable: parts of one axis stay in order
    return kernel_values(replace(group, nest=Nest(axes, group.nest.inner)), buffers, narrow=True)


def power(value: int) -> int:
    """The least power of two that is at least ``value``, and 1 at least."""
    return 1 << max(value - 1, 0).bit_length()


def warps_of(tile: int, each: int) -> int:
    """Warps so that a thread has about ``each`` elements of the tile."""
    return max(1, min(32 if tile >= 16_384 else 16, power(tile // (32 * each))))


def distinct(configs: Iterable[Config]) -> tuple[Config, ...]:
    """The configs in their order, each once."""
    found: list[Config] = []
    for config in configs:
        if config not in found:
            found.append(config)
    return tuple(found)


def extent_of(axes: Iterable[Axis]) -> IndexExpr:
    """How many points these axes have together."""
    return product(axis.extent for axis in axes)
