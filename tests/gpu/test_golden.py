"""The programs of tests/golden on a GPU of this machine: the very code that the interpreter runs elsewhere,
cut up as at the large size. Skipped where there is none."""

from __future__ import annotations

import pytest
import torch

from tests.compiler.codegen.triton_running import run_on_gpu, titles
from tests.golden.test_golden_triton import as_limited, each_program, numbers, printed
from tests.golden.triton_programs import GpuProgram

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")


@each_program
def test_numbers_on_a_gpu(program: GpuProgram) -> None:
    if program.small is None or program.dynamic:
        pytest.skip("only printed, or captured anew for the device: see test_every_lowering")
    large = titles(printed(program)[1])
    with as_limited(program):
        numbers(program, large, run_on_gpu)
