"""Every registered lowering, on all of its samples, as Triton kernels in the interpreter, each address
checked; and the same kernels compiled for chips that are not here."""

from __future__ import annotations


import pytest
import torch

from nbcompile.lower.registry import registry
from nbcompile.options import Options

from ..lower.harness import compare
from .running import compile_aten
from .test_every_lowering import graph_of_samples

INTERPRETED = Options(cache=False, verify=True, interpret=True, random="eager")


@pytest.mark.parametrize("target", [t for t, e in registry().lowerings.items() if e.samples], ids=str)
def test_interpreted_kernels_agree_with_eager(target):
    entry = registry().lowerings[target]
    aten, inputs, eager, wide = graph_of_samples(entry)
    run = compile_aten(aten, INTERPRETED)
    torch.manual_seed(7)
    got = list(run(inputs))
    compare(got, eager, wide)
