"""Sums of two 16-bit numbers at once do not reach ptxas, which folds some constants of them into 0."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
import torch

import nbcompile
from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.compiler.runtime.gpu import tools as triton_tools
from nbcompile.compiler.runtime.gpu.ptx_halves import one_by_one
from nbcompile.compiler.stages import Argument, Config, Launch
from nbcompile.targets import parse
from tests.compiler.runtime.gpu.samples import sample

PADDED = """import triton
import triton.language as tl


@triton.jit
def padded(x, total, inside, BLOCK: tl.constexpr):
    within = tl.arange(0, BLOCK)
    within_in = within < 440
    i = within // 55
    j = (within % 55) // 11
    k = within % 11
    test = (j >= 3) & (j < 4) & (k >= 1) & (k < 9)
    value = tl.where(test, tl.load(x + i + k*8 - 8, mask=within_in & test), (-2.0))
    nan = value != value
    tl.store(total, tl.sum(tl.where(within_in, tl.where(nan, 0.0, value), 0.0), axis=0))
    tl.store(inside + i*55 + j*11 + k, ~nan, mask=within_in)
"""
"""The sum of nansum(pad(x)), as it was printed when it was wrong on an H200."""


def test_each_half_is_added_alone() -> None:
    assert one_by_one("\tadd.s32 %r1, %r2, %r3;\n") == "\tadd.s32 %r1, %r2, %r3;\n"
    text = one_by_one("\tadd.s16x2 \t%r34, %r29, %r33;\n\tadd.s16x2 \t%r36, %r28, %r35;\n")
    assert "x2" not in text
    assert "mov.b32 {%half0, %half1}, %r29;" in text and "mov.b32 %r34, {%half0, %half1};" in text
    assert "add.s16 %half4, %half4, %half6; add.s16 %half5, %half5, %half7;" in text


def test_ptxas_does_not_see_sums_of_halves() -> None:
    pytest.importorskip("triton")
    arguments = (Argument("x", "*fp32"), Argument("total", "*fp32"), Argument("inside", "*i1"))
    launch = Launch("padded", "g0.fw.k0", arguments, ("1",), (Config({"BLOCK": 512}, warps=2),))
    chip = parse("cuda:90")
    one = triton_build.build(sample(text=PADDED, launches=(launch,)), chip)["padded"]
    texts = triton_build.artifacts(one, chip)
    assert "%half0" in texts["ptx"], "LLVM no longer adds halves: does it elsewhere?"
    assert "16x2" not in texts["ptx"]
    tool = triton_tools.find_disassembler()
    if tool is not None:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            Path(file.name).write_bytes(one.binary)
            sass = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True).stdout
        assert "VIADD.16x2" not in sass


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_padded_sum_on_a_gpu() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.nansum(torch.nn.functional.pad(x, (1, 2, 3, 1), value=-2), (0, 2, 1), True)

    x = torch.randn(8, 8, 1, device="cuda").permute(1, 2, 0).requires_grad_()
    torch.testing.assert_close(nbcompile.compile(function, options={"cache": False})(x), function(x))
