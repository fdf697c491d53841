"""What we keep whole, against torch's own rewrite of it into simpler operators: the same on every sample."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch._decomp import decomposition_table

import nbcompile
from nbcompile.compiler.capture.decompositions import _ADDED, _KEPT, core_table
from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.lower.registry import registry
from tests.compiler.lower.harness import _wide, as_list, compare, fresh, lower_sample
from tests.nightly import few


def _rewrites() -> dict[Any, Any]:
    """Overloads that we keep whole and lower, with torch's rewrite of each."""
    table = {**decomposition_table, **core_table()}
    found = {}
    for name in (*_KEPT, *_ADDED):
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            target = getattr(packet, overload)
            if target in table and target in registry().lowerings:
                found[target] = table[target]
    return found


REWRITES = _rewrites()

# Samples at which torch's rewrite fails, or is not what its kernel does.
OTHERWISE = {
    # at NaN (and ATen itself, where a vector is not full)
    "aten.hardtanh_backward.default": None,
    "aten.hardswish_backward.default": None,
    "aten.elu_backward.default": ("argument",),
    "aten.select_scatter.default": ("other-dtype",),  # the result takes the dtype of what is put in
    "aten.linspace.Tensor_Tensor": ("plain", "double"),  # wants a device
    "aten.index_fill.int_Tensor": ("rows", "other-dtype"),  # no negative index, no number of another dtype
    "aten.index_fill.int_Scalar": ("rows",),
}


def test_there_is_something_to_compare():
    assert len(REWRITES) > 40
    assert torch.ops.aten.native_group_norm_backward.default in REWRITES


@few(5)
@pytest.mark.parametrize("target", REWRITES, ids=str)
def test_torchs_rewrite_gives_the_same(target):
    entry, rewrite = registry().lowerings[target], REWRITES[target]
    for sample in entry.samples:
        left_out = OTHERWISE.get(str(target), ())
        if left_out is None or sample.name in left_out:
            continue
        args, kwargs = sample.make(torch.Generator().manual_seed(0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = as_list(rewrite(*args, **kwargs))
            wide = as_list(rewrite(*map(_wide, args), **{key: _wide(value) for key, value in kwargs.items()}))
            program, inputs, _, _ = lower_sample(entry, sample)
        compare(list(interpret(program, [fresh(item) for item in inputs])), theirs, wide)


@few(2)
@pytest.mark.parametrize("options", [{}, {"interpret": True}], ids=["c", "triton"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float32])
def test_a_product_that_is_added_in_place(dtype: torch.dtype, options: dict[str, Any]) -> None:
    """Torch makes an ``fma`` of it, of whole numbers too."""

    def program(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return x.addcmul_(y, z, value=2) * 3

    given = [torch.arange(n, n + 70).to(dtype) for n in (3, 2, 100)]
    run = nbcompile.compile(program, options={"cache": False, **options})
    torch.testing.assert_close(run(given[0].clone(), *given[1:]), program(*given))
    assert run.ran_compiled, run.eager_reason
