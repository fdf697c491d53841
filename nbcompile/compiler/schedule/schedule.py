"""What a schedule is: how a GPU kernel cuts its nest into tiles, as a value.

One frozen class a kind of schedule, in the files beside this one; :data:`nbcompile.compiler.schedule.KINDS`
lists them in the order in which they are asked. A class says when it fits (:meth:`Schedule.fit`), with which
configs, and what people call it. What it says is data: the printer of the kind only follows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, Self

from nbcompile.compiler.kernel_ir.accesses import memory_order, side_by_side
from nbcompile.compiler.kernel_ir.group_to_values import kernel_values, resolver_of
from nbcompile.compiler.kernel_ir.integer_ranges import offsets_fit
from nbcompile.compiler.kernel_ir.values import KernelValues
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.schedule.row_shapes import RowShape
from nbcompile.compiler.schedule.scattered import Scattered
from nbcompile.compiler.schedule.tiling import distinct, reordered
from nbcompile.compiler.stages import Config
from nbcompile.targets import Target

Kind = Literal["product", "scatter", "scan", "rows", "points"]


def kind_of(group: Group) -> Literal["product", "scatter", "scan", "nest"]:
    """What a group is, as far as its loops tell."""
    kinds = {loop.kind for loop in group.loops}
    if group.product is not None:
        return "product"
    return "scan" if "scan" in kinds else "scatter" if "scatter" in kinds else "nest"


@dataclass(frozen=True)
class Work:
    """A group that is to be cut up for a chip, and what it computes: ``values``, whose axes are in the order
    of memory. ``buffers`` are the program's, by name."""

    group: Group
    buffers: dict[str, Buffer]
    target: Target
    values: KernelValues

    @classmethod
    def of(cls, group: Group, buffers: Mapping[str, Buffer], target: Target) -> Work:
        """The group's values, its axes put in memory order where their order is free: not those of a product
        or a scatter, and of scans those of the rows alone."""
        known, kind = dict(buffers), kind_of(group)
        if kind == "product":
            return cls(group, known, target, resolver_of(group, group.nest, known).resolve())
        values = kernel_values(group, known, narrow=True)
        order = values.nest.axes
        if kind == "scan":
            inside = values.nest.inner_axes
            rows = [axis for axis in memory_order(values, known) if axis not in inside]
            order = (*rows, *inside)
        elif kind == "nest":
            order = memory_order(values, known)
            if values.reductions:
                order = side_by_side(values, known, order)
        if order != values.nest.axes:
            values = reordered(group, values, order, known)
        return cls(group, known, target, values)

    @property
    def kind(self) -> Kind:
        """Which of the lists of schedules is asked."""
        kind = kind_of(self.group)
        return kind if kind != "nest" else "rows" if self.values.reductions else "points"

    @cached_property
    def shape(self) -> RowShape:
        """How its rows lie in memory."""
        return RowShape.of(self.values, self.buffers)

    @cached_property
    def scattered(self) -> Scattered:
        """Its scatter."""
        return Scattered.of(self.group, self.values, self.buffers)

    @property
    def wide(self) -> bool:
        """Whether a place in some buffer takes 64 bits."""
        return not offsets_fit(self.group, self.buffers)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """``configs``: the sizes of its blocks, the heuristic's choice first, then candidates for a search."""

    configs: tuple[Config, ...]

    name: ClassVar[str]
    """What people call kernels of this kind."""
    meaning: ClassVar[str]
    """What such a kernel does, in a sentence."""
    counts_warps_of_32: ClassVar[bool] = True

    @property
    def title(self) -> str:
        """The name with the numbers of this kernel."""
        return self.name

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """The schedule of this kind for ``work``; None where the kind does not fit.

        Raises CodegenError for work that no kind can do."""
        raise NotImplementedError

    def on(self, target: Target) -> Self:
        """The same threads in warps of the chip: most schedules count in warps of 32."""
        if target.warp == 32 or not self.counts_warps_of_32:
            return self
        configs = (replace(item, warps=max(1, item.warps * 32 // target.warp)) for item in self.configs)
        return replace(self, configs=distinct(configs))
