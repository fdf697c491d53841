"""linear + cross_entropy in chunks on a GPU of this machine. Skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.compiler.linear_cross_entropy import operator as operators

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")


def _inputs(rows: int, hidden: int, classes: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = (rows, hidden), (classes, hidden), (classes,)
    made = [torch.randn(*shape, device="cuda", generator=generator).to(dtype) for shape in shapes]
    target = torch.randint(0, classes, (rows,), device="cuda", generator=generator)
    target[::7] = -100
    return [*(item.requires_grad_() for item in made), target]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "classes"), [(1000, 5003), (513, 32_000)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_operator_against_float64(dtype: torch.dtype, rows: int, classes: int, smoothing: float) -> None:
    inputs = _inputs(rows, 64, classes, dtype)

    def gradients(of: list[torch.Tensor]) -> list[torch.Tensor]:
        loss = F.cross_entropy(F.linear(of[0], of[1], of[2]), of[3], label_smoothing=smoothing)
        return [loss.detach(), *torch.autograd.grad(loss, of[:3])]

    exact = gradients([*(item.detach().double().requires_grad_() for item in inputs[:3]), inputs[3]])
    call = operators.linear_cross_entropy()
    got = call(*inputs, -100, True, smoothing, 3, [True, True, True], 0)
    for ours, eager, true in zip(got, gradients(inputs), exact, strict=True):
        error, its = ((item.double() - true).norm() / true.norm() for item in (ours, eager))
        assert error <= 2 * its + 1e-5


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_training_steps(mode: str) -> None:
    x, w, _, t = _inputs(2048, 64, 40_000, torch.bfloat16)

    def loss(x: Any, w: Any, t: Any) -> Any:
        return F.cross_entropy(F.linear(x, w).float(), t)

    compiled = nbcompile.compile(loss, mode=mode, options={"linear_cross_entropy": "always"})
    for by in (1.0, 1.0, 0.5, 1.0, 3.0):
        wanted = torch.autograd.grad(loss(x, w, t) * by, (x, w))
        got = torch.autograd.grad(compiled(x, w, t) * by, (x, w))
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=5e-2, atol=1e-2 * float(other.abs().max()))
    assert compiled.ran_compiled, compiled.eager_reason
    assert "never exist whole" in compiled.compilation.notes[0]


def test_the_logits_never_exist_whole() -> None:
    x, w, _, t = _inputs(4096, 128, 64_000, torch.bfloat16)  # 524 MB of logits
    compiled = nbcompile.compile(lambda x, w, t: F.cross_entropy(F.linear(x, w), t))
    compiled(x, w, t).backward()
    x.grad = w.grad = None
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    compiled(x, w, t).backward()
    more = torch.cuda.max_memory_allocated() - before
    assert more < 0.6 * 4096 * 64_000 * 2
    assert w.grad is not None and w.grad.untyped_storage().nbytes() == w.untyped_storage().nbytes()


def test_a_target_that_is_no_class() -> None:
    inputs = _inputs(64, 16, 100, torch.float32)
    inputs[3][5] = 100
    call = operators.linear_cross_entropy()
    assert call(*inputs, -100, True, 0.0, 2, [False, False, False], 0)[0].isnan()
