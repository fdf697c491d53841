"""Triton kernels as people read them, each in three ways: its numbers in the interpreter at a small size, its
text at a large one against ``triton/<program>.py``, and what three chips' compilers make of that text.

``pytest tests/golden --accept-golden`` writes the files anew: look at the difference before committing it.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.compiler.runtime.gpu.compile import Built
from nbcompile.compiler.stages import AtenGraph, CompiledModule, KernelSource
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder
from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton_running import (  # fmt: skip
    CHIPS,
    aten_of_fake,
    compiled,
    described,
    generated,
    run_interpreted,
    small_chip,
    titles,
)
from tests.golden.checking import check
from tests.golden.every_triton_program import GPU_PROGRAMS
from tests.golden.triton_programs import GpuProgram
from tests.nightly import few, soon

FOLDER = Path(__file__).parent / "triton"
SCHEDULES = {
    "pointwise", "pointwise, by rows", "pointwise, square tiles",
    "persistent rows", "looped rows", "split rows",
    "split rows, lanes apart",
    "rows shared by several programs", "persistent rows, partial sums over rows",
    "looped rows, partial sums over rows", "scatter",
    "scatter into a small table", "scatter by listed rows", "scatter by listed axes",
    "scan, persistent rows", "scan, looped rows", "scan, split rows",
}  # fmt: skip

QUICK = [program for program in GPU_PROGRAMS if program.name != "scan_split_columns"]
"""Those whose small size takes the interpreter no ten seconds."""

each_program = pytest.mark.parametrize("program", GPU_PROGRAMS, ids=lambda program: program.name)


def captured_dynamic(program: GpuProgram, inputs: tuple[torch.Tensor, ...]) -> AtenGraph:
    """The program's graph with symbolic sizes, hinted by those of ``inputs``."""
    graphs: list[AtenGraph] = []

    def compiler(aten: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule:
        graphs.append(aten)
        return CompiledModule(aten.id, lambda args: aten.module.forward(*args))

    options = {"cache": False, "target": "cuda:90"}
    nbcompile.compile(program.function, dynamic=True, options=options, compile_aten=compiler)(*inputs)
    return graphs[0]


@functools.cache
def printed(program: GpuProgram) -> tuple[str, KernelSource]:
    """What the golden file holds, and the code in it: at the large size."""
    if program.dynamic:
        graph = captured_dynamic(program, program.large())
    else:
        graph = aten_of_fake(program.function, program.large)
    fused, source = generated(graph, program.options)
    comment = "\n".join(f"# {line}".rstrip() for line in fused.as_text().splitlines())
    return f"{comment}\n{described(source.launches)}\n{source.source}", source


@few(5)
@pytest.mark.parametrize("program", soon(QUICK, GPU_PROGRAMS), ids=lambda program: program.name)
def test_numbers(program: GpuProgram) -> None:
    if program.small is None:
        pytest.skip("too large to run: its text is checked below")
    large = titles(printed(program)[1])
    with as_limited(program):
        numbers(program, large, run_interpreted)


def as_limited(program: GpuProgram) -> contextlib.AbstractContextManager[None]:
    return small_chip(**program.limits) if program.limits else contextlib.nullcontext()


def numbers(program: GpuProgram, large: list[str], run: Callable[..., list[Any]]) -> None:
    """The code for the small size, run by ``run``, agrees with eager; its schedules are ``large``."""
    torch.manual_seed(0)
    assert program.small is not None
    inputs = program.small()
    if program.dynamic:
        dynamic_numbers(program, inputs, large)
        return
    graph = aten_of(program.function, *inputs)
    _, source = generated(graph, program.options)
    assert titles(source) == large, "the small size is not cut up as the large one is"
    check(program, graph, lambda *given: run(source, graph, given), inputs)


def dynamic_numbers(program: GpuProgram, inputs: tuple[torch.Tensor, ...], large: list[str]) -> None:
    """At the sizes of the capture, and at others with the same code."""
    options = {"cache": False, "interpret": True, "verify": True}
    compiled_program = nbcompile.compile(program.function, dynamic=True, options=options)
    for rows, columns in ((0, 0), (-26, 230), (57, -68)):
        given = tuple(
            torch.randn([size + more for size, more in zip(item.shape, (rows, columns)[-item.dim() :])])
            for item in inputs
        )
        check(program, None, compiled_program, given)
        assert compiled_program.ran_compiled, compiled_program.eager_reason
    kernels = compiled_program.compilation.kernels
    assert [kernel.schedule for kernel in kernels] == large


@each_program
def test_text(program: GpuProgram, request: pytest.FixtureRequest) -> None:
    text, _ = printed(program)
    file = FOLDER / f"{program.name}.py"
    if request.config.getoption("--accept-golden"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), "the kernel changed; see the top of this file"


@each_program
def test_each_line_that_computes_is_linked_to_the_loops_it_is_for(program: GpuProgram) -> None:
    """Lines without a loop say only where the present tile is: they touch no memory, and use no result of a
    line that computes, but to take the place of a point apart."""
    touches = re.compile(r"tl\.(load|store|atomic_\w+|sum|max|min|dot|reduce|associative_scan)\b")
    apart = re.compile(r"\w+ = \(?\w+( % \w+\)?)?( // \w+)?")
    _, source = printed(program)
    for kernel in source.kernels:
        linked = dict(kernel.lines)
        loops = {origin for origins in linked.values() for origin in origins}
        made: set[str] = set()  # by lines that compute, in the present function
        for number, line in enumerate(kernel.text.splitlines(), 1):
            left, equals, right = line.strip().partition(" = ")
            if line.startswith("def "):
                made = set()
            elif number in linked:
                made |= set(re.findall(r"\w+", left)) if equals else set()
            elif line.startswith("    "):
                assert not touches.search(line), line
                used = made & set(re.findall(r"\w+", right or line))
                assert not used or apart.fullmatch(line.strip()), (
                    f"line {number} uses {', '.join(used)} and is of no loop: {line}"
                )
        assert loops, kernel.name


@few(5)
@each_program
def test_three_chips(program: GpuProgram, nightly: bool) -> None:
    _, source = printed(program)
    for chip in CHIPS if nightly else ("cuda:90",):
        built = compiled(source, chip)
        assert built.keys() == {launch.function for launch in source.launches}
        assert all(item.binary for item in built.values())
        spilled = {name: item.spill_bytes for name, item in built.items() if item.spill_bytes}
        if chip.startswith("cuda"):
            assert sum(filter(None, spilled.values())) <= program.spills, (chip, spilled)
        if chip == "cuda:90":
            assert sixteen_bytes(built) >= program.wide, "narrow accesses"


def sixteen_bytes(built: dict[str, Built]) -> int:
    """16-byte loads and stores of global memory (those that copy to shared memory among them) in PTX."""
    pattern = (
        r"(?:ld|st)\.global[.\w:]*\.v4\.b32|(?:ld|st)\.global[.\w:]*\.v2\.b64|cp\.async\.cg\.shared\.global"
    )
    return sum(len(re.findall(pattern, item.texts["ptx"])) for item in built.values())


def test_every_schedule_is_among_them() -> None:
    found = {title for program in GPU_PROGRAMS for title in titles(printed(program)[1])}
    assert found >= SCHEDULES


def test_no_golden_file_is_left_over() -> None:
    assert {file.stem for file in FOLDER.glob("*.py")} == {program.name for program in GPU_PROGRAMS}
