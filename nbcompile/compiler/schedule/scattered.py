"""What a scatter does, as the schedules of scatters ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from nbcompile.compiler.kernel_ir import integer_ranges
from nbcompile.compiler.kernel_ir.group_to_values import resolver_of
from nbcompile.compiler.kernel_ir.values import KernelValues, Value
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import IndexExpr
from nbcompile.compiler.loop_ir.nodes import Buffer, Loop


@dataclass(frozen=True)
class Scattered:
    """The scatter of a group: ``value`` goes to the place that ``targets`` names, an index for each dimension
    of the output ``out``. ``names`` are what values are called, by number."""

    loop: Loop
    out: Buffer
    value: Value
    targets: tuple[IndexExpr, ...]
    names: Mapping[int, str]
    values: KernelValues
    buffers: Mapping[str, Buffer]

    @classmethod
    def of(cls, group: Group, values: KernelValues, buffers: Mapping[str, Buffer]) -> Scattered:
        """The one scatter that ``group`` holds."""
        loop = next(item for item in group.loops if item.kind == "scatter")
        resolver, binding = resolver_of(group, values.nest, buffers), group.bindings[loop.id]
        resolver.origin = loop.id
        value = resolver.value(loop.body, binding)
        targets = tuple(resolver.resolved(place, binding) for place in loop.target or ())
        return cls(loop, buffers[loop.name], value, targets, resolver.names, values, buffers)

    @property
    def is_atomic(self) -> bool:
        """Whether a GPU can do it point by point: adding anything, maxima and minima of integers, setting."""
        dtype = self.loop.outputs[0].dtype
        if self.loop.mode in (None, "set"):
            return True
        if self.loop.mode == "add":
            return dtype != torch.bool
        return self.loop.mode in ("max", "min") and not dtype.is_floating_point and dtype != torch.bool

    @property
    def is_narrow(self) -> bool:
        """Whether 32 bits hold every place in what is read and in the output."""
        read = [self.buffers[load.buffer] for loop in self.values.group.loops for load in loop.reads()]
        return all(buffer.span_most() < integer_ranges.INT32_LIMIT for buffer in (self.out, *read))
