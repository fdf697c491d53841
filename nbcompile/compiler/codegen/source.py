"""Printed kernels → KernelSource: what a file of C and one of Triton have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch

from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.codegen.wrapper import library_targets, print_wrapper
from nbcompile.compiler.linear_cross_entropy.operator import overwrites
from nbcompile.compiler.loop_ir.computed_sizes import told_by
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.index import Atom
from nbcompile.compiler.loop_ir.nodes import Buffer, LibraryCall, LoopProgram
from nbcompile.compiler.loop_ir.versions import verify_kernel
from nbcompile.compiler.stages import EntryPoint, KernelSource, KernelText


def source_of(
    program: FusedProgram, language: Literal["c", "triton"], kernels: Mapping[str, PrintedKernel],
    head: Sequence[str],
) -> KernelSource:  # fmt: skip
    """The file of a program's ``kernels`` (by group) below what its ``head`` declares, and the wrapper that
    calls them. VerifyError where a kernel would read what it has overwritten."""
    texts = []
    for group in program.groups:
        printed = kernels[group.id]
        verify_kernel(group.name, printed.walk, group.memory.values())
        texts.append(
            KernelText(group.id, group.name, printed.text, printed.lines, printed.title or group.schedule)
        )
    wrapper, steps = print_wrapper(program, kernels, language)
    return KernelSource(
        graph=program.program.graph,
        language=language,
        head=tuple(head),
        kernels=tuple(texts),
        wrapper=wrapper,
        steps=steps,
        entry_points=tuple(
            EntryPoint(call.symbol, group, tuple(item.name for item in call.parameters))
            for group, printed in kernels.items()
            for call in printed.calls
        ),
        libraries=library_targets(program),
        constants=(*program.program.constants, *bodies_of(program)),
        repeatable=is_repeatable(program),
        launches=tuple(launch for item in kernels.values() for launch in item.launches),
    )


def bodies_of(program: FusedProgram) -> tuple[str, ...]:
    """Names of the graphs within the graph that its calls are given."""
    calls = (item for item in program.items if isinstance(item, LibraryCall))
    return tuple(dict.fromkeys(body.name for call in calls for body in call.bodies()))


def is_repeatable(program: FusedProgram) -> bool:
    """Whether a run that broke off can be done again: nothing is overwritten, or given other memory, and
    nothing random is drawn."""
    calls = [item.target for item in program.items if isinstance(item, LibraryCall)]
    random = torch.Tag.nondeterministic_seeded
    return not (program.program.updates or program.program.become) and not any(
        random in getattr(target, "tags", ()) or overwrites(target) for target in calls
    )


def comment_of(group: Group, program: FusedProgram) -> list[str]:
    """What stands above a kernel: the lines of the cell that it comes from, and its operators; in place of
    what it writes; then of which inputs its symbolic sizes are extents."""
    spans = program.program.spans
    lines = sorted({line for loop in group.loops for line in spans.get(loop.id, ())})
    where = ""
    if lines:
        where = f"cell line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}: "
    operators = f"{where}{', '.join(dict.fromkeys(loop.op for loop in group.loops))}"
    reused = [f"{new} in place of {old}, which nothing reads again" for new, old in group.reuses.items()]
    sizes = sizes_in_words(group, program.program)
    return [operators, *reused, *([sizes] if sizes else [])]


def sizes_in_words(group: Group, program: LoopProgram) -> str:
    """``s77 is x.shape[0]``, ``s27_over_2 is x.shape[1] // 2`` of each symbol that a group goes over, as the
    first input that tells it calls it; empty where there is none."""
    places: dict[Atom, str] = {}
    for buffer in program.inputs:
        for place, extent in enumerate(buffer.shape if isinstance(buffer, Buffer) else ()):
            told = told_by(extent)
            if isinstance(buffer, Buffer) and told is not None and not told.offset:
                divided = f" // {told.factor}" if told.factor != 1 else ""
                (atom,) = extent.atoms()
                places.setdefault(atom, f"{buffer.name}.shape[{place}]{divided}")
    extents = [axis.extent for loop in group.loops for axis in loop.axes]
    used = {atom for extent in extents for atom in extent.atoms()}
    return ", ".join(f"{size} is {place}" for size, place in places.items() if size in used)
