"""The fused program: groups of loops that become one kernel each, in the order they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from nbcompile.compiler.loop_ir.index import Axis, IndexExpr
from nbcompile.compiler.loop_ir.nodes import LibraryCall, Loop, LoopProgram, loop_text, statement_text
from nbcompile.compiler.stages import Config
from nbcompile.record.compilation import Decision

Binding = Mapping[Axis, IndexExpr]
"""Where each axis of a loop is in its group's nest: an expression over the nest's axes."""


@dataclass(frozen=True)
class Nest:
    """The iteration space of a group: for each point of the ``rows``, walk all of ``inner``.

    ``axes`` is the whole space, in order; ``inner`` is the part that row reductions reduce over (or
    that is walked within a row), the rest is run in parallel. No axis has extent 1.
    """

    axes: tuple[Axis, ...]
    inner: frozenset[Axis] = frozenset()

    @property
    def rows(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if axis not in self.inner)

    @property
    def inner_axes(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if axis in self.inner)


@dataclass(frozen=True)
class Product:
    """What makes a group a matrix product: its first loop sums ``left[m, k] * right[k, n]`` over ``k``, the
    others are pointwise over ``m`` and ``n``. ``batch``: a number of such products.

    call:      the library call that it takes the place of.
    precision: of the multiplications of float32 operands.
    template, configs: how a GPU's kernel does it; no configs: those that suit its sizes.
    """

    call: LibraryCall
    batch: Axis | None
    m: Axis
    n: Axis
    k: Axis
    precision: Literal["ieee", "tf32"] = "ieee"
    template: Literal["tiles", "persistent"] = "tiles"
    configs: tuple[Config, ...] = ()


@dataclass(frozen=True)
class Group:
    """Loops that share one nest and become one kernel.

    bindings: loop id → binding, for every loop placed in the nest. A pointwise loop without one is
              computed where it is read, at whatever index that is.
    split:    ids of reductions over the rows themselves: each thread keeps a partial result, and the
              partial results are combined after the nest.
    stored:   names of buffers that must be written to memory.
    in_place: buffer that is stored → the input in whose memory it lies (``fuse/storage.py``).
    reuses:   buffer that is stored → what an earlier step made, which the kernel is the last to read and in
              whose memory the buffer lies (likewise).
    product:  set where the group is a matrix product of ours with what follows it.
    """

    loops: tuple[Loop, ...]
    nest: Nest
    bindings: Mapping[str, Binding]
    split: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    id: str = ""
    name: str = ""
    product: Product | None = None
    in_place: Mapping[str, str] = field(default_factory=dict)
    reuses: Mapping[str, str] = field(default_factory=dict)

    @property
    def memory(self) -> Mapping[str, str]:
        """Buffer that is stored → the memory of another name in which it lies."""
        return {**self.in_place, **self.reuses}

    @property
    def schedule(self) -> str:
        """What people call this shape of kernel."""
        if self.product is not None:
            return "matrix product"
        if any(loop.kind == "scatter" for loop in self.loops):
            return "scatter"
        if any(loop.kind == "scan" for loop in self.loops):
            return "scan"
        if not any(loop.reduction for loop in self.loops):
            return "rows" if self.nest.inner else "pointwise"
        inner = any(loop.reduction and loop.id not in self.split for loop in self.loops)
        if self.split:
            return "rows and split sums" if inner else "split"
        last = self.nest.axes[-1] if self.nest.axes else None
        return "rows" if last in self.nest.inner else "columns"


Item = Group | LibraryCall


@dataclass(frozen=True)
class FusedProgram:
    """Groups and library calls in running order, and every decision that led there."""

    program: LoopProgram
    items: tuple[Item, ...]
    decisions: tuple[Decision, ...] = field(default=())

    @property
    def groups(self) -> tuple[Group, ...]:
        return tuple(item for item in self.items if isinstance(item, Group))

    def as_text(self) -> str:
        lines: list[str] = []
        for item in self.items:
            if isinstance(item, LibraryCall):
                left, right = statement_text(item)
                lines.append(f"{left} {right}")
                continue
            rows = " × ".join(str(axis.extent) for axis in item.nest.rows) or "1"
            inner = " × ".join(str(axis.extent) for axis in item.nest.inner_axes)
            across = f", each of {inner}" if inner else ""
            lines.append(f"kernel {item.name} ({item.schedule}) over {rows} points{across}:")
            for loop in item.loops:
                left, right = loop_text(loop)
                mark = "→" if any(out.name in item.stored for out in loop.outputs) else " "
                place = next((item.memory[out.name] for out in loop.outputs if out.name in item.memory), "")
                lines.append(f"  {mark} {left} {right}" + (f"   in place of {place}" if place else ""))
        return "\n".join(lines)
