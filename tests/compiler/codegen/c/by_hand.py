"""Groups of loops made by hand, and the C that is printed of them: what the tests of this folder read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from nbcompile.compiler.codegen.c.expressions import CWriter
from nbcompile.compiler.codegen.c.groups_to_c import print_kernel
from nbcompile.compiler.codegen.c.nests import Nests
from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.kernel_ir.group_to_values import kernel_values
from nbcompile.compiler.loop_ir.expr import Expr, Load
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group, Nest
from nbcompile.compiler.loop_ir.index import Axis, Index, index, product
from nbcompile.compiler.loop_ir.nodes import Buffer, LibraryCall, Loop, LoopProgram, Output, View


def buffer(name: str, *shape: Index, dtype: torch.dtype = torch.float32) -> Buffer:
    """A contiguous buffer; one called ``x`` or so is an input, others are made."""
    role = "input" if len(name) == 1 else "temporary"
    sizes = tuple(map(index, shape))
    steps = tuple(product(sizes[n + 1 :]) for n in range(len(sizes)))
    return Buffer(name, sizes, steps, dtype, role)  # type: ignore[arg-type]


def read(memory: Buffer, *axes: Index) -> Load:
    """``memory[axes]``."""
    return Load(memory.name, tuple(map(index, axes)), memory.dtype)


def loop(out: Buffer, axes: Sequence[Axis], body: Expr, **more: object) -> Loop:
    """A loop over ``axes`` that makes ``out``."""
    return Loop(f"g0.{out.name}", (out,), tuple(axes), body, op=out.name, **more)  # type: ignore[arg-type]


def group(
    *loops: Loop, axes: Sequence[Axis], inner: Sequence[Axis] = (), stored: str = "", split: str = ""
) -> Group:
    """A group whose loops go along the nest's own axes; by default it stores what its last loop makes."""
    bindings = {each.id: {axis: index(axis) for axis in each.axes} for each in loops}
    names = stored.split() or [loops[-1].name]
    across = frozenset(f"g0.{name}" for name in split.split())
    nest = Nest(tuple(axes), frozenset(inner))
    return Group(loops, nest, bindings, across, frozenset(names), id="g0.fw.k0", name="test")


def program(
    *items: Group | LibraryCall, inputs: Sequence[Buffer | str | None], outputs: Sequence[Output] = (),
    **more: object,
) -> FusedProgram:  # fmt: skip
    """What runs ``items`` one after the other."""
    statements = [loop for item in items for loop in (item.loops if isinstance(item, Group) else (item,))]
    facts = {"constants": {}, "spans": {}, **more}
    made = LoopProgram("g0.fw", tuple(inputs), tuple(statements), tuple(outputs), **facts)  # type: ignore[arg-type]
    return FusedProgram(made, items)


def fused(*groups: Group, inputs: Sequence[Buffer], lines: Sequence[int] = ()) -> FusedProgram:
    """The program of some groups, which returns all that they store. Its loops come from these ``lines`` of a
    cell."""
    numbered = [replace(made, id=f"g0.fw.k{n}") for n, made in enumerate(groups)]
    stored = {name for made in numbered for name in made.stored}
    outputs = [out for made in numbered for each in made.loops for out in each.outputs]
    results = [View.whole(out) for out in outputs if out.name in stored]
    spans = {each.id: tuple(lines) for made in numbered for each in made.loops}
    return program(*numbered, inputs=inputs, outputs=results, spans=spans)


def buffers(made: Group, *inputs: Buffer) -> dict[str, Buffer]:
    """All buffers of a group by name."""
    outputs = [out for each in made.loops for out in each.outputs]
    return {each.name: each for each in (*inputs, *outputs)}


def nests(made: Group, *inputs: Buffer) -> Nests:
    """The printer of a group, with nothing printed yet."""
    memory = buffers(made, *inputs)
    return Nests(kernel_values(made, memory), memory, CWriter())


def printed(made: Group, *inputs: Buffer) -> PrintedKernel:
    """The C function of a group."""
    return print_kernel(made, buffers(made, *inputs), CWriter(), [])


def lines(made: Group, *inputs: Buffer) -> list[str]:
    """Its lines, without what indents them."""
    return [line.strip() for line in printed(made, *inputs).text.splitlines()]
