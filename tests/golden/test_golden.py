"""Kernels as people read them: numbers first, then the printed C against ``<program>.c`` in this folder.

``pytest tests/golden --accept-golden`` writes the files anew: look at the difference before committing it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.compiler.codegen.c.groups_to_c import groups_to_c
from nbcompile.compiler.compile_graph import compile_graph
from nbcompile.compiler.fuse.limits import limits_of
from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.fuse.storage import with_storage
from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.loop_ir.versions import verify_versions
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.stages import AtenGraph, CompiledModule
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder
from tests.compiler.codegen.running import aten_of, compile_aten
from tests.compiler.lower.harness import compare, fresh
from tests.golden.checking import results, wide
from tests.golden.programs import PROGRAMS, Program

FOLDER = Path(__file__).parent
# glibc's as of 2.36, whatever this machine has: the files are the same everywhere
VECTOR_MATH = frozenset("expf exp tanhf tanh erff erf sinf cosf logf log powf".split())


def captured(program: Program, inputs: tuple[torch.Tensor, ...]) -> tuple[AtenGraph, Any]:
    """The program's graph and its compiled function."""
    if not program.dynamic:
        graph = aten_of(program.function, *inputs)
        run = compile_aten(graph, program.options)
        return graph, lambda *args: run(args)
    graphs: list[AtenGraph] = []

    def compiler(aten: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule:
        graphs.append(aten)
        return compile_graph(aten, options, recorder)

    given = {"cache": False, "verify": True}
    compiled = nbcompile.compile(program.function, dynamic=True, options=given, compile_aten=compiler)
    compiled(*inputs)
    assert compiled.ran_compiled, compiled.eager_reason
    return graphs[0], compiled


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_kernels(program: Program, request: pytest.FixtureRequest) -> None:
    torch.manual_seed(0)
    inputs = program.inputs()
    graph, compiled = captured(program, inputs)
    loops = aten_to_loops(graph, program.options)
    fused = loops_to_groups(loops, program.options)
    fused = verify_versions(with_storage(fused, limits_of(program.options.chip)))
    again = [inputs] if not program.dynamic else [inputs, (torch.randn(7, 300),), (torch.randn(90, 2),)]
    for given in again:
        got = results(compiled, [fresh(item) for item in given])
        if program.eager:
            expected = results(program.function, [fresh(item) for item in given])
            compare(got, expected, results(program.function, [wide(item) for item in given]))
        else:
            compare(got, results(lambda *args: interpret(loops, list(args)), [fresh(x) for x in given]), None)
    text = f"{comment(fused.as_text())}\n{groups_to_c(fused, VECTOR_MATH).source}"
    file = FOLDER / f"{program.name}.c"
    if request.config.getoption("--accept-golden"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), "the kernel changed; see the top of this file"


def comment(text: str) -> str:
    return "\n".join(f"// {line}".rstrip() for line in text.splitlines())


def test_no_golden_file_is_left_over() -> None:
    assert {file.stem for file in FOLDER.glob("*.c")} == {program.name for program in PROGRAMS}
