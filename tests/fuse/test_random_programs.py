"""Fusion changes no result, on random programs: fused, unfused, interpreted, and eager agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbcompile.fuse.loops_to_groups import loops_to_groups
from nbcompile.loop_ir.fused import FusedProgram, Group
from nbcompile.loop_ir.interpret import interpret
from nbcompile.loop_ir.nodes import LoopProgram
from nbcompile.lower.aten_to_loops import aten_to_loops

from ..codegen.running import NO_CACHE, aten_of, compile_aten
from ..lower.harness import as_list, compare
from .random_programs import random_program

UNFUSED = replace(NO_CACHE, fuse=False)


def in_order(program: FusedProgram) -> None:
    """Every item runs after what makes the memory it reads, and every loop is in exactly one group."""
    ready = {item.name for item in program.program.inputs if item is not None and not isinstance(item, str)}
    ready |= set(program.program.constants)
    seen: list[str] = []
    for item in program.items:
        loops = item.loops if isinstance(item, Group) else ()
        made = {out.name for loop in loops for out in loop.outputs}
        for loop in loops:
            seen.append(loop.id)
            for load in loop.reads():
                assert load.buffer in ready | made, (load.buffer, loop.id)
        ready |= item.stored if isinstance(item, Group) else {out.name for out in item.outputs if out}
    assert sorted(seen) == sorted(loop.id for loop in loops_of(program.program))


def loops_of(program: LoopProgram) -> list:
    return [item for item in program.statements if hasattr(item, "axes")]


@pytest.mark.parametrize("seed", [*range(48), 288, 398])
def test_fused_agrees_with_unfused_interpreted_and_eager(seed: int) -> None:
    function, inputs = random_program(seed)
    aten = aten_of(function, *inputs)
    loops = aten_to_loops(aten, NO_CACHE)
    fused = loops_to_groups(loops, NO_CACHE)
    in_order(fused)
    in_order(loops_to_groups(loops, UNFUSED))
    pairs = [(item.producer, item.consumer) for item in fused.decisions]
    assert len(pairs) == len(set(pairs))
    eager = as_list(function(*inputs))
    wide = as_list(function(*(item.double() for item in inputs)))
    compare(list(interpret(loops, list(inputs))), eager, wide)
    got = list(compile_aten(aten)(inputs))
    compare(got, eager, wide)
    compare(list(compile_aten(aten, UNFUSED)(inputs)), got, wide)
