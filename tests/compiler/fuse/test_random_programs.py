"""Fusion changes no result, on random programs: fused, unfused, interpreted, and eager agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.loop_ir.nodes import LoopProgram
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.options import Options
from tests.compiler.codegen.running import NO_CACHE, aten_of, compile_aten
from tests.compiler.codegen.triton_running import H100, generated, run_interpreted, small_chip
from tests.compiler.fuse.random_programs import random_program
from tests.compiler.lower.harness import as_list, compare
from tests.nightly import few

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


@few(2)
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


def forced_options(loops: LoopProgram, options: Options) -> Options:
    """These options with every pair forced that only its cost speaks against."""
    names = {item.id: item.outputs[0].name for item in loops_of(loops)}
    pairs = [d for d in loops_to_groups(loops, options).decisions if d.forceable]
    return replace(options, force_fuse=tuple((names[d.producer], names[d.consumer]) for d in pairs))


@few(2)
@pytest.mark.parametrize("seed", [17, 45, 66, 96])
def test_forced_pairs_change_no_result(seed: int) -> None:
    function, inputs = random_program(seed)
    aten = aten_of(function, *inputs)
    loops = aten_to_loops(aten, NO_CACHE)
    options = forced_options(loops, NO_CACHE)
    forced = loops_to_groups(loops, options)
    in_order(forced)
    assert any(item.overruled and item.accepted for item in forced.decisions)
    eager = as_list(function(*inputs))
    wide = as_list(function(*(item.double() for item in inputs)))
    compare(list(compile_aten(aten, options)(inputs)), eager, wide)


@pytest.mark.parametrize("seed", [45, 66, 67, 96])
def test_forced_pairs_change_no_result_on_a_gpu(seed: int) -> None:
    pytest.importorskip("triton")
    function, inputs = random_program(seed)
    aten = aten_of(function, *inputs)
    with small_chip(132, launch_bytes=0.0):
        options = forced_options(aten_to_loops(aten, H100), H100)
        program, source = generated(aten, options)
    assert any(item.overruled and item.accepted for item in program.decisions)
    eager = as_list(function(*inputs))
    wide = as_list(function(*(item.double() for item in inputs)))
    compare(run_interpreted(source, aten, inputs), eager, wide)
