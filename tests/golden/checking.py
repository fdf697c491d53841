"""Whether a program's generated code gives eager's numbers: without pytest, so that a script can ask too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.stages import AtenGraph
from tests.compiler.lower.harness import as_list, compare, fresh
from tests.golden.triton_programs import GpuProgram


def wide(tensor: torch.Tensor) -> torch.Tensor:
    return fresh(tensor).double() if tensor.is_floating_point() else fresh(tensor)


def results(function: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """What the function returns, then its inputs as it leaves them."""
    torch.manual_seed(7)
    returned = function(*inputs)
    return ([] if returned is None else as_list(returned)) + inputs


def check(
    program: GpuProgram, graph: AtenGraph | None, ours: Callable[..., Any], inputs: tuple[torch.Tensor, ...]
) -> None:
    """``ours`` agrees with eager or float64; where eager draws other numbers, with the loop IR itself."""
    got = results(ours, [fresh(item) for item in inputs])
    if program.eager:
        expected = results(program.function, [fresh(item) for item in inputs])
        compare(got, expected, results(program.function, [wide(item) for item in inputs]))
        return
    assert graph is not None
    loops = aten_to_loops(graph, program.options)
    compare(got, results(lambda *args: interpret(loops, list(args)), [fresh(item) for item in inputs]), None)
