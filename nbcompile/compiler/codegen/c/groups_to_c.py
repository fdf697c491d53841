"""FusedProgram → KernelSource: one header-free C file of kernels, and the Python that calls them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from nbcompile.compiler.codegen.c.expressions import CWriter
from nbcompile.compiler.codegen.c.nests import print_kernel
from nbcompile.compiler.codegen.wrapper import library_targets, print_wrapper
from nbcompile.compiler.linear_cross_entropy.operator import overwrites
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.nodes import LibraryCall
from nbcompile.compiler.loop_ir.versions import verify_kernel
from nbcompile.compiler.stages import KernelSource, KernelText


def groups_to_c(program: FusedProgram, vector_math: frozenset[str]) -> KernelSource:
    """Print every group. ``vector_math`` names the C functions that have a SIMD version here."""
    writer = CWriter()
    buffers = program.program.buffers()
    kernels = {
        group.id: print_kernel(group, buffers, writer, comment_of(group, program)) for group in program.groups
    }
    for group in program.groups:
        verify_kernel(group.name, kernels[group.id].walk, group.in_place.values())
    file = "\n\n".join(
        part
        for part in (
            "// made by nbcompile; header-free C",
            _declarations(writer, vector_math),
            *(kernels[group.id].text for group in program.groups),
        )
        if part
    )
    texts = tuple(
        KernelText(group.id, group.name, kernels[group.id].text, kernels[group.id].lines, group.schedule)
        for group in program.groups
    )
    wrapper, steps = print_wrapper(program, kernels)
    return KernelSource(
        graph=program.program.graph,
        language="c",
        source=file + "\n",
        kernels=texts,
        wrapper=wrapper,
        steps=steps,
        entry_points=tuple(call.symbol for group in program.groups for call in kernels[group.id].calls),
        libraries=library_targets(program),
        constants=tuple(program.program.constants),
        repeatable=is_repeatable(program),
    )


def is_repeatable(program: FusedProgram) -> bool:
    """Whether a run that broke off can be done again: nothing is overwritten, and nothing random is drawn."""
    calls = [item.target for item in program.items if isinstance(item, LibraryCall)]
    random = torch.Tag.nondeterministic_seeded
    return not program.program.updates and not any(
        random in getattr(target, "tags", ()) or overwrites(target) for target in calls
    )


def _declarations(writer: CWriter, vector_math: frozenset[str]) -> str:
    lines = []
    for name, arity in sorted(writer.functions.items()):
        kind = "float" if name.endswith("f") and name not in ("erf",) else "double"
        if name in vector_math:
            prefix = '__attribute__((simd("notinbranch"), const)) '
        else:
            prefix = "__attribute__((const)) "
        lines.append(f"{prefix}{kind} {name}({', '.join([kind] * arity)});")
    return "\n".join(lines + list(_in_order(writer.helpers)))


def _in_order(helpers: Mapping[str, str]) -> Iterable[str]:
    """Helpers in the order they were first used: what a helper calls is added before it."""
    return helpers.values()


def comment_of(group: Group, program: FusedProgram) -> list[str]:
    spans = program.program.spans
    lines = sorted({line for loop in group.loops for line in spans.get(loop.id, ())})
    where = ""
    if lines:
        where = f"cell line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}: "
    ops = list(dict.fromkeys(loop.op for loop in group.loops))
    return [f"{where}{', '.join(ops)}"]
