"""Runs a loop program, or a function of tensors, through fusion and generated code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from nbcompile.compiler.capture.decompositions import decompositions
from nbcompile.compiler.codegen.c.groups_to_c import groups_to_c
from nbcompile.compiler.compile_graph import compile_graph
from nbcompile.compiler.fuse.limits import limits_of
from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.fuse.storage import with_storage
from nbcompile.compiler.kernel_ir.bounds import verify_bounds
from nbcompile.compiler.loop_ir.nodes import LoopProgram
from nbcompile.compiler.loop_ir.verify import verify
from nbcompile.compiler.loop_ir.versions import verify_versions
from nbcompile.compiler.runtime import bind
from nbcompile.compiler.runtime.c import binary
from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from nbcompile.compiler.stages import AtenGraph
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder

NO_CACHE = Options(cache=False, verify=True)


def compile_program(
    program: LoopProgram, options: Options = NO_CACHE
) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function of the program's inputs. Programs without library calls only."""
    toolchain = find_toolchain()
    fused = with_storage(loops_to_groups(verify(program), options), limits_of(options.chip))
    verify_bounds(fused)
    source = groups_to_c(verify_versions(fused), toolchain.vector_math)
    library = binary.find_or_build(source, toolchain, options, Recorder(options))
    module = bind.bind(source, library.functions, program.constants, library.from_cache)
    return lambda inputs: tuple(module.call(list(inputs)))


def compile_aten(aten: AtenGraph, options: Options = NO_CACHE) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function of the graph's inputs that fails where our code does: it never runs it eagerly, nor in
    more kernels for one that the C compiler refuses."""
    recorder = Recorder(options)
    module = compile_graph(aten, options, recorder)
    assert not (refused := taken_apart(recorder)), refused

    def run(inputs: Sequence[Any]) -> tuple[Any, ...]:
        results = tuple(module.call(list(inputs)))
        assert not recorder.ran_eagerly, recorder.ran_eagerly
        return results

    return run


def taken_apart(recorder: Recorder) -> list[str]:
    """Why loops are not in one kernel that were, before a compiler refused it."""
    return [each.reason for each in recorder.compilation().decisions if each.code == "taken-apart"]


def same_zeros(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether zeros have the same sign."""
    zero = (expected == 0) & (got == 0)
    return torch.equal(torch.signbit(got)[zero], torch.signbit(expected)[zero])


def aten_of(fn: Callable[..., Any], *inputs: torch.Tensor) -> AtenGraph:
    """The ATen graph of a function of tensors, at these shapes and strides. A function that overwrites
    an input ends with ``copy_`` into it."""
    module = make_fx(fn, decompositions(NO_CACHE), tracing_mode="fake")(*inputs)
    for node in module.graph.nodes:
        if node.op == "placeholder":  # x_1: make_fx keeps the plain name for the function's own parameter
            node._rename(str(node.target).removesuffix("_1"))
    module.recompile()
    ids = {node.name: f"g0.fw.n{place}" for place, node in enumerate(module.graph.nodes)}
    return AtenGraph("g0.fw", "forward", module, ids)
