"""Tensors of more than 2**31 elements on a GPU of this machine: an index of 32 bits does not reach their end.
Skipped where there is none, or too little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import nbcompile

ENOUGH = 60 << 30
HAS_ROOM = torch.cuda.is_available() and torch.cuda.get_device_properties(0).total_memory > ENOUGH
pytestmark = pytest.mark.skipif(not HAS_ROOM, reason="no GPU with 60 GB on this machine")

N = 2**31 + 77
ROWS, COLUMNS = 2**16 + 3, 2**15 + 5
"""Of a matrix of 2**31 + 426,003 elements."""
FAR = 2**31 + 5
LESS = 2**31 - 100


def line(dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.randint(0, 100, (N,), device="cuda", dtype=torch.uint8).to(dtype)


def matrix(dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.randint(0, 100, (ROWS, COLUMNS), device="cuda", dtype=torch.uint8).to(dtype)


def places(below: int) -> Tensor:
    """Indices, most of them near the end."""
    return torch.cat([torch.arange(5), below - 1 - torch.arange(60)]).cuda()


def written(x: Tensor, index: Any, value: Any) -> Tensor:
    x[index] = value
    return x


def added(x: Tensor) -> Tensor:
    x[:, -1] += 1
    x[-1] *= 2
    return x


BIG = torch.bfloat16
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "pointwise": (lambda x: (x + 1) ^ 3, lambda: (line(),)),
    "pointwise of a view that begins at 1": (lambda x: x[1:] * 2 + 1, lambda: (line(),)),
    "pointwise of every second": (lambda x: x[::2] + x[1::2][:1], lambda: (line(),)),
    "pointwise backwards": (lambda x: x.flip(0) + 1, lambda: (line(),)),
    "roll": (lambda x: x.roll(3) - x, lambda: (line(),)),
    "arange": (lambda x: x + (torch.arange(N, device="cuda") % 7).to(torch.uint8), lambda: (line(),)),
    "arange beyond": (lambda x: x * 0 + (torch.arange(N, device="cuda") > FAR), lambda: (line(),)),
    "few less": (lambda x: (x[:LESS] + 1, x[:LESS].sum(), x[:LESS].argmax()), lambda: (line(),)),
    "few less, in order": (lambda x: x[:LESS].cumsum(0, dtype=torch.uint8), lambda: (line(),)),
    "sum of all": (lambda x: x.sum(), lambda: (line(),)),
    "max and its place": (lambda x: (x.max(), x.argmax()), lambda: (written(line(), FAR, 200),)),
    "min and its place": (
        lambda x: x.to(torch.int16).neg().min(0), lambda: (written(line(), FAR, 200),)
    ),
    "any beyond": (lambda x: (x > 150).any(), lambda: (written(line(), FAR, 200),)),
    "rows": (lambda x: x.sum(1), lambda: (matrix(),)),
    "columns": (lambda x: x.sum(0), lambda: (matrix(),)),
    "columns, the largest": (lambda x: x.amax(0) + 1, lambda: (matrix(),)),
    "short rows": (lambda x: x[:2**31].view(-1, 8).amax(1), lambda: (line(),)),
    "few columns": (lambda x: x[:2**31].view(-1, 8).sum(0), lambda: (line(),)),
    "transposed": (lambda x: x.t().contiguous() + 1, lambda: (matrix(),)),
    "transposed and straight": (lambda x, y: x.t() + y, lambda: (matrix(), matrix().t().contiguous())),
    "broadcast": (lambda x, y: x[:, None] * y, lambda: (matrix()[:, 0].clone(), matrix()[0].clone())),
    "a triangle": (lambda x: x.tril(-1) + x.triu(1), lambda: (matrix(),)),
    "a mask": (lambda x, m: torch.where(m, x, 7), lambda: (matrix(), matrix() > 50)),
    "cat": (lambda x, y: torch.cat([x + 1, y * 2]), lambda: (line()[: 2**30 + 9], line()[: 2**30 + 8])),
    "cat of columns": (lambda x, y: torch.cat([x, y + 1], 1), lambda: (matrix(), matrix()[:, :9])),
    "stack": (lambda x, y: torch.stack([x, y], 1), lambda: (line()[: 2**30 + 9], line()[: 2**30 + 9])),
    "pad": (lambda x: F.pad(x, (3, 4, 1, 2)) + 1, lambda: (matrix(),)),
    "a window": (lambda x: x[1:, 5:] - x[:-1, :-5], lambda: (matrix(),)),
    "index": (lambda x, i: x[i] + 1, lambda: (line(), places(N))),
    "rows by index": (lambda x, i: x[i] * 2, lambda: (matrix(), places(ROWS))),
    "columns by index": (lambda x, i: x[:, i] * 2, lambda: (matrix(), places(COLUMNS))),
    "gather": (lambda x, i: x.gather(0, i) + 1, lambda: (line(), places(N))),
    "embedding": (F.embedding, lambda: (places(ROWS), matrix(BIG))),
    "index of as many": (lambda x, i: x[i.long()], lambda: (line()[:100], line())),
    "written by index": (lambda x, i: x.index_put((i,), i.to(torch.uint8)), lambda: (line(), places(N))),
    "added by index": (lambda x, i: x.index_add(0, i, i.to(x.dtype)), lambda: (line(torch.int32), places(N))),
    "scatter": (lambda x, i: x.scatter(0, i, 3) + 1, lambda: (line(), places(N))),
    "written in place": (lambda x: written(x, slice(FAR, None), 3) + 1, lambda: (line(),)),
    "edges in place": (lambda x: added(x) + 1, lambda: (matrix(),)),
    "the diagonal in place": (lambda x: x.diagonal().add_(1) * 2, lambda: (matrix(),)),
    "a copy in place": (lambda x, y: x.copy_(y + 1), lambda: (matrix(), matrix())),
    "by strides": (lambda x: x.as_strided((3, 4), (2**30, 1)) + 1, lambda: (line(),)),
    "softmax": (lambda x: torch.softmax(x * 0.1, -1), lambda: (matrix(BIG),)),
    "softmax of columns": (lambda x: torch.softmax(x * 0.1, 0), lambda: (matrix(BIG),)),
    "layer norm": (lambda x: F.layer_norm(x, x.shape[-1:]), lambda: (matrix(BIG),)),
    "cumulative sum": (lambda x: x.cumsum(0, dtype=torch.uint8), lambda: (line(),)),
    "cumulative sums of rows": (lambda x: (x + 1).cumsum(1, dtype=torch.int32) + 1, lambda: (matrix(),)),
    "norm": (lambda x: (x - 50).float().square().mean(), lambda: (matrix(BIG),)),
    "variance": (lambda x: x.var(1), lambda: (matrix(BIG),)),
    "pooled": (lambda x: F.avg_pool2d(x[None, None], 2) + 1, lambda: (matrix(BIG),)),
    "max pooled": (lambda x: F.max_pool2d(x[None, None], 2) + 1, lambda: (matrix(BIG),)),
    "enlarged": (
        lambda x: F.interpolate(x[None, None], scale_factor=2) + 1, lambda: (matrix(BIG)[: 2**14 + 2],)
    ),
    "repeated": (lambda x: x.repeat(2, 1) + 1, lambda: (matrix()[: 2**15 + 3],)),
    "permuted": (
        lambda x: x[: 2**31].view(2**10, 2**10, 2**11).permute(2, 0, 1).contiguous() + 1, lambda: (line(),)
    ),
    "unfolded": (lambda x: x.unfold(0, 3, 2).sum(1), lambda: (line(),)),
    "bits": (lambda x: x.view(torch.int16)[: 2**30] + 1, lambda: (line()[: 2**31 + 2],)),
    "a loss by class": (
        lambda x, i: F.nll_loss(x.float(), i), lambda: (matrix(BIG)[: 2**15], places(90)[:1].expand(2**15))
    ),
    "different by one": (lambda x: x.diff(dim=0), lambda: (line(),)),
}  # fmt: skip
DYNAMIC = (
    "pointwise",
    "roll",
    "rows",
    "columns",
    "transposed",
    "cat",
    "pad",
    "index",
    "softmax",
    "cumulative sum",
)


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    yield
    torch._dynamo.reset()
    torch.cuda.empty_cache()


def agree(fn: Callable[..., Any], make: Callable[[], tuple[Any, ...]], **options: Any) -> None:
    torch.manual_seed(0)
    values = make()
    wanted = fn(*values)
    torch.manual_seed(0)
    values = make()
    run = nbcompile.compile(fn, **options)
    got = run(*values)
    assert run.ran_compiled, run.eager_reason
    pairs = [(got, wanted)] if isinstance(got, Tensor) else list(zip(got, wanted, strict=True))
    for ours, eager in pairs:
        assert ours.dtype == eager.dtype and ours.shape == eager.shape
        if ours.dtype in (BIG, torch.float32):
            near = torch.isclose(ours, eager, rtol=2e-2, atol=1e-2)
            assert near.all()
        else:
            assert torch.equal(ours, eager)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager_has_it(name: str) -> None:
    agree(*PROGRAMS[name])


@pytest.mark.parametrize("name", DYNAMIC)
def test_with_symbolic_sizes(name: str) -> None:
    agree(*PROGRAMS[name], dynamic=True)


def half(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=BIG)


PRODUCTS: dict[str, tuple[int, ...]] = {
    "left": (2**17 + 128, 2**14 + 64, 128),
    "right": (128, 2**14 + 64, 2**17 + 128),
    "result": (2**16 + 128, 64, 2**15 + 64),
    "right and deep": (128, 2**17 + 128, 2**14 + 64),
}


@pytest.mark.parametrize("mode", [None, "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, mode: str | None) -> None:
    m, k, n = PRODUCTS[name]
    fn = lambda a, b, c: F.relu(a @ b + c)
    agree(fn, lambda: (half(m, k) * k**-0.5, half(k, n), half(n)), mode=mode)


@pytest.mark.parametrize("mode", [None, "max-autotune-no-cudagraphs"])
def test_products_by_the_batch(mode: str | None) -> None:
    agree(
        lambda a, b: torch.bmm(a, b) * 2,
        lambda: (half(2**15 + 5, 256, 256), half(2**15 + 5, 256, 16)),
        mode=mode,
    )


def test_random_numbers() -> None:
    """The far ones are no near ones again, and each is even."""
    drawn = nbcompile.compile(lambda x: torch.rand_like(x))(torch.empty(N, device="cuda", dtype=BIG))
    assert abs(drawn.float().mean().item() - 0.5) < 3e-3  # bfloat16 cuts off
    far = drawn[2**31 :]
    for at in (0, 2**30, 2**31 - 200):
        assert (drawn[at : at + len(far)] == far).float().mean() < 0.2
    kept = nbcompile.compile(lambda x: F.dropout(x, 0.25))(torch.ones(N, device="cuda", dtype=BIG))
    assert abs((kept[-(2**20) :] > 0).float().mean().item() - 0.75) < 1e-2


def test_gradients() -> None:
    """Of both factors, one of them read once a row."""
    fn = lambda x, w: (x * w).tanh().sum(1)
    x = matrix(torch.float32) * 0.01
    w = torch.randn(COLUMNS, device="cuda") * 0.1
    found = []
    for each in (fn, nbcompile.compile(fn)):
        x.requires_grad_().grad, w.requires_grad_().grad = None, None
        each(x, w).sum().backward()
        assert x.grad is not None and w.grad is not None
        found.append((x.grad, w.grad))
    for eager, ours in zip(*found, strict=True):
        assert torch.allclose(ours, eager, rtol=1e-3, atol=1e-4)
