"""On a GPU: sizes that depend on data, graphs that call graphs, kernels of the user's own, draws that
backward repeats, and writes into tensors that stay on the CPU. Skipped where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo.config as dynamo
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

import nbcompile
from tests.compiler.lower.test_sizes_of_data import FUNCTIONS, masked_sum, normalised, picked, two_of_them

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
Tensor = torch.Tensor

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None
else:

    @triton.jit
    def scaled_kernel(x_ptr, out_ptr, count, factor, block: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * block + tl.arange(0, block)
        x = tl.load(x_ptr + at, mask=at < count)
        tl.store(out_ptr + at, x * factor, mask=at < count)


def compiled(function: Callable[..., Any], mode: str = "default", dynamic: bool | None = None) -> Any:
    torch._dynamo.reset()
    return nbcompile.compile(function, mode=mode, options={"cache": False, "verify": True}, dynamic=dynamic)


def all_compiled(run: Any) -> None:
    assert run.ran_compiled and not run.recorder.ran_eagerly, (run.eager_reason, run.recorder.ran_eagerly)


def with_gradients(function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Results and gradients under one seed."""
    torch.manual_seed(0)
    own = [item.detach().clone().requires_grad_() for item in inputs]
    found = function(*own)
    results = list(found) if isinstance(found, tuple) else [found]
    roots = [item for item in results if item.requires_grad]
    loss = sum(
        (item.float() * torch.linspace(-1, 1, item.shape[-1], device=item.device)).sum() for item in roots
    )
    return [*(item.detach() for item in results), *torch.autograd.grad(loss, own)]


# -- sizes that depend on data -------------------------------------------------------------------


@pytest.fixture
def captures() -> Any:
    with dynamo.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.usefixtures("captures")
def test_sizes_that_depend_on_data(function: Any, dynamic: bool | None, mode: str) -> None:
    run = compiled(function, mode, dynamic)
    with torch.device("cuda"):
        for shape in ((6, 5), (300, 257)):
            for seed, shift in enumerate((0.0, 1.0, -10.0, 10.0)):  # some, more, none, all
                torch.manual_seed(seed)
                x = torch.randn(shape) + shift
                torch.testing.assert_close(run(x), function(x), equal_nan=True, rtol=1e-4, atol=1e-4)
    all_compiled(run)


@pytest.mark.parametrize("function", [masked_sum, picked, two_of_them, normalised])
@pytest.mark.usefixtures("captures")
def test_gradients_where_sizes_depend_on_data(function: Any) -> None:
    run = compiled(lambda x: torch.atleast_1d(function(x)))
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(64, 33, device="cuda")
        plain = with_gradients(lambda x: torch.atleast_1d(function(x)), (x,))
        torch.testing.assert_close(with_gradients(run, (x,)), plain, rtol=1e-4, atol=1e-4)
    all_compiled(run)


@pytest.mark.usefixtures("captures")
def test_more_elements_than_32_bits_count() -> None:
    """No guard keeps a size that depends on data where 32 bits hold every position."""

    def function(x: Tensor) -> Tensor:
        found = torch.nonzero(x)
        return found[:, 1] * 3 + found[:, 0]

    run = compiled(function, dynamic=True)
    small = torch.ones(4, 5, dtype=torch.bool, device="cuda")
    torch.testing.assert_close(run(small), function(small))
    large = torch.ones(1 << 10, (1 << 20) + 8, dtype=torch.bool, device="cuda")  # 2^30 places of two numbers
    got = run(large)
    assert got.numel() == large.numel()
    assert torch.equal(got[-5:].cpu(), torch.arange(large.shape[1] - 5, large.shape[1]) * 3 + 1023)
    assert torch.equal(got[:5].cpu(), torch.arange(5) * 3)
    all_compiled(run)


# -- what graphs call ----------------------------------------------------------------------------


def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


def biased(q: Tensor, k: Tensor, v: Tensor) -> Any:
    mask = create_block_mask(causal, None, None, q.shape[2], k.shape[2], device="cuda")
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + h * 0.1 * (i - j), block_mask=mask)


def soft_capped(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q * 2, k, v, score_mod=lambda s, b, h, i, j: torch.tanh(s * 0.02) * 50) + 1


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k[:, :2], v[:, :2], enable_gqa=True, scale=0.3)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("function", [biased, soft_capped, grouped])
def test_flex_attention_and_its_gradients(function: Any) -> None:
    torch.manual_seed(1)
    inputs = tuple(torch.randn(2, 4, 128, 64, device="cuda") for _ in range(3))
    run = compiled(function)
    wide = with_gradients(function, tuple(item.double() for item in inputs))
    for got, exact in zip(with_gradients(run, inputs), wide, strict=True):
        torch.testing.assert_close(got.double(), exact, rtol=1e-3, atol=1e-3)
    all_compiled(run)


def dropped(x: Tensor) -> Tensor:
    return F.dropout((x @ x).sin(), 0.5).cos()


def noisy(x: Tensor) -> Tensor:
    return x * torch.rand_like(x) + torch.randn(8, device=x.device) * x.sin()


def checkpointed(x: Tensor) -> Tensor:
    y = checkpoint(dropped, x, use_reentrant=False) + torch.rand(8, device=x.device)
    return checkpoint(noisy, y, use_reentrant=False)  # type: ignore[no-any-return]


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_draws_that_backward_repeats(mode: str) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(checkpointed, mode=mode, options={"cache": False, "random": "eager"})
    x = torch.randn(8, 8, device="cuda")
    for _ in range(3):
        torch.testing.assert_close(with_gradients(run, (x,)), with_gradients(checkpointed, (x,)))
    all_compiled(run)


@pytest.mark.skipif(triton is None, reason="no Triton")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_kernel_of_the_users_own(mode: str, dynamic: bool | None) -> None:
    def function(x: Tensor) -> Tensor:
        y = x.sin() * 2
        out = torch.empty_like(y)
        count = y.numel()
        scaled_kernel[lambda meta: (triton.cdiv(count, meta["block"]),)](y, out, count, 3.0, block=128)
        return out.exp() + y

    run = compiled(function, mode, dynamic)
    for rows in (7, 7, 64, 7):
        x = torch.randn(rows, 33, device="cuda")
        y = x.sin() * 2
        torch.testing.assert_close(run(x), (y * 3).exp() + y)
    all_compiled(run)


# -- writes into tensors that stay on the CPU ----------------------------------------------------


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_what_is_on_the_cpu_is_overwritten_there(mode: str) -> None:
    def function(x: Tensor, count: Tensor, table: Tensor) -> Tensor:
        count.add_(1)
        table[1:].copy_(x.sum(0)[1:].cpu())
        return x.sin() * count

    run = compiled(function, mode)
    for seed in range(4):
        x = torch.randn(64, 33, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
        mine, theirs = (
            [torch.tensor(float(seed)), torch.ones(33)],
            [torch.tensor(float(seed)), torch.ones(33)],
        )
        pointers = [item.data_ptr() for item in mine]
        torch.testing.assert_close(run(x, *mine), function(x, *theirs))
        torch.testing.assert_close(mine, theirs)
        assert pointers == [item.data_ptr() for item in mine]
    all_compiled(run)


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "NAdam", "RAdam", "Adagrad"])
@pytest.mark.parametrize("foreach", [False, True])
def test_an_optimizer_counts_its_steps_on_the_cpu(kind: str, foreach: bool) -> None:
    def made() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(33, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).cuda()
        return model, getattr(torch.optim, kind)(model.parameters(), lr=1e-2, foreach=foreach)

    (model, optimizer), (plain, reference) = made(), made()
    torch._dynamo.reset()
    run = nbcompile.compile(lambda: optimizer.step(), options={"cache": False, "verify": True})
    for seed in range(5):
        x = torch.randn(64, 33, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
        for each, step in ((model, run), (plain, reference.step)):
            each.zero_grad()
            each(x).square().mean().backward()
            step()
    torch.testing.assert_close(list(model.parameters()), list(plain.parameters()), rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(optimizer.state.values(), reference.state.values(), strict=True):
        torch.testing.assert_close(mine["step"].cpu(), theirs["step"])  # which Dynamo moves, for any backend
    all_compiled(run)
