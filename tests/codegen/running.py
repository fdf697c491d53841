"""Runs a loop program through fusion and generated code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from nbcompile.codegen.groups_to_source import groups_to_source
from nbcompile.fuse.loops_to_groups import loops_to_groups
from nbcompile.loop_ir.nodes import LoopProgram
from nbcompile.loop_ir.verify import verify
from nbcompile.options import Options
from nbcompile.recorder import Recorder
from nbcompile.runtime import binary, source_to_module
from nbcompile.runtime.toolchain import find_toolchain

NO_CACHE = Options(cache=False, verify=True)


def compile_program(
    program: LoopProgram, options: Options = NO_CACHE
) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function of the program's inputs. Programs without library calls only."""
    toolchain = find_toolchain()
    source = groups_to_source(loops_to_groups(verify(program), options), toolchain.vector_math)
    library = binary.find_or_build(source, toolchain, options, Recorder(options))
    module = source_to_module.bind(source, library.functions, {}, program.constants, library.from_cache)
    return lambda inputs: tuple(module.call(list(inputs)))


def same_zeros(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether zeros have the same sign."""
    zero = (expected == 0) & (got == 0)
    return torch.equal(torch.signbit(got)[zero], torch.signbit(expected)[zero])
