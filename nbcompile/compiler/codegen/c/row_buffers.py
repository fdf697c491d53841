"""Which values of a row are kept in a small array between passes, rather than computed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nbcompile.compiler.codegen.c.expressions import REGISTER_TYPES
from nbcompile.compiler.codegen.c.kernel import KernelPrinter
from nbcompile.compiler.codegen.expression import Expression
from nbcompile.compiler.kernel_ir.values import Value, walk_values
from nbcompile.compiler.loop_ir.expr import TRANSCENDENTAL
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr

ROW_BUFFER_BYTES = 128 << 10
"""Of all arrays of a row, at the sizes that a program is compiled with."""
COSTLY_LOADS = 3
COSTLY_OPS = 8


@dataclass
class RowBuffers:
    """The arrays by value number (``names``, with the type of an element); which pass writes and which passes
    read each. One as long as a size that is no constant is of the heap (``pointers``): each thread takes it
    once, for all of its rows."""

    names: dict[int, Expression] = field(default_factory=dict)
    written: dict[int, list[int]] = field(default_factory=dict)
    read: dict[int, list[int]] = field(default_factory=dict)
    arrays: list[tuple[str, str]] = field(default_factory=list)  # each its line, and what it is of
    pointers: dict[str, tuple[str, str]] = field(default_factory=dict)  # the same, by name

    def declare(self, printer: KernelPrinter, value: Value, size: IndexExpr) -> None:
        """Name an array for a row of ``value``."""
        local = printer.fresh(f"{printer.names.get(value.number) or 't'}_kept")
        kind, extent = REGISTER_TYPES[value.dtype], printer.place(size, {})
        self.names[value.number] = Expression(local, value.dtype)
        if size.constant is not None:
            self.arrays.append(
                (f"{kind} {local}[{extent}]; // one row, kept for the next pass", value.origin)
            )
            return
        taken = f"__builtin_malloc(sizeof({kind}[{extent}]))"
        self.pointers[local] = f"{kind} *{local} = {taken}; // one row, kept for the next pass", value.origin


def plan_row_buffers(
    printer: KernelPrinter, passes: Sequence[Sequence[Value]], inner: Sequence[Axis]
) -> RowBuffers:
    """Choose, for each later pass, the topmost costly values that an earlier pass computed."""
    plan = RowBuffers()
    size = inner[-1].extent
    if len(inner) != 1 or not size.hint():
        return plan
    made_in: dict[int, int] = {}
    budget = ROW_BUFFER_BYTES
    for level, roots in enumerate(passes):
        seen: set[int] = set()
        pending = list(roots)
        while pending:
            value = pending.pop()
            if value.number in seen:
                continue
            seen.add(value.number)
            first = made_in.get(value.number)
            if first is not None and value.axes & set(inner) and _costly(value):
                bytes_ = size.hint() * value.dtype.itemsize
                if value.number not in plan.names and bytes_ <= budget:
                    budget -= bytes_
                    plan.declare(printer, value, size)
                    plan.written.setdefault(first, []).append(value.number)
                if value.number in plan.names:
                    plan.read.setdefault(level, []).append(value.number)
                    continue
            pending += value.inputs()
        _, certain = printer.needed(roots, {}, {})
        for number in certain:
            made_in.setdefault(number, level)
    return plan


def _costly(value: Value) -> bool:
    """Whether computing ``value`` again costs more than reading it from the first-level cache."""
    if value.kind != "op":
        return False
    below = walk_values([value])
    if any(item.op in TRANSCENDENTAL for item in below):
        return True
    loads = sum(1 for item in below if item.kind == "load" and item.axes)
    return loads >= COSTLY_LOADS or sum(1 for item in below if item.kind == "op") >= COSTLY_OPS
