"""Symbolic sizes: kernels made for one size run at others, smaller and larger, in the interpreter, each
address checked; with the schedules' own thresholds and with low ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import nbcompile
from tests.compiler.codegen.triton.test_modules import INTERPRET, LOW
from tests.compiler.codegen.triton_running import small_chip
from tests.compiler.lower.harness import as_list, compare
from tests.nightly import few, one_in

SIZES = [(33, 129), (7, 300), (90, 4), (5, 33), (64, 64), (3, 1000)]


def layer_norm(x):
    return F.layer_norm(x, (x.shape[-1],))


def softmax_rows(x):
    return torch.softmax(x * 0.5, -1), torch.logsumexp(x, -1)


def softmax_columns(x):
    return torch.softmax(x, 0)


def sums_of_all_kinds(x):
    return (x * 2).sum(0), x.amax(1), x.square().sum(), x.mean()


def total(x):
    return x.exp().sum(), x.sum(1).square().sum()


def norm_gradients(x):
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    return centred * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1), (centred * x).sum(0), x.sum(0)


def positions_in_rows(x):
    return x.argmax(-1)


def variances_of_rows(x):
    return torch.var_mean(x, -1)


def variances(x):
    return x.var(0), x.var(1), x.std()


def positions(x):
    return x.argmax(0), x.argmin(1), x.argmax()


def transposed(x):
    return torch.tanh(x.t()) * x.t().contiguous(), x.t().sum(0)


def joined(x):
    return torch.cat([x, x * 2, x[:, :1]], 1), F.pad(x, (1, 2, 3, 0)), torch.stack([x, -x], 1)


def moved(x):
    return x.flip(0) + x.roll(1, 1), x[1:] - x[:-1], x[:, ::2] * 3


def flattened(x):
    # sums that pass near 0 have fewer digits than eager's on the CPU, which adds up in float64
    return x.reshape(-1) * 2, x.reshape(-1).abs().cumsum(0), x.reshape(-1, 1).expand(-1, 3) + 1


def counted(x):
    return (x > 0).sum(1), (x > 0).any(0), (x > -9).all(), x.shape[0] * x


def gathered(x):
    rows = torch.arange(x.shape[0], device=x.device).flip(0)
    return x[rows] + 1, torch.zeros_like(x).index_add(0, rows, x), x.gather(1, rows[:, None] % x.shape[1])


def outer(x):
    return x[:, :1] * x[:1], (x[:, :1] - x[:1]).abs().amin(0)


FUNCTIONS = [
    layer_norm, softmax_rows, softmax_columns, sums_of_all_kinds, total, norm_gradients, variances, positions,
    transposed, joined, moved, flattened, counted, gathered, outer,
]  # fmt: skip


@few(1)
@pytest.mark.parametrize(("function", "thresholds"), one_in(2, FUNCTIONS, ["own", "low"]))
def test_other_sizes(function: Callable[..., Any], thresholds: str) -> None:
    compiled = nbcompile.compile(function, dynamic=True, options=INTERPRET)
    with small_chip(**LOW) if thresholds == "low" else contextlib.nullcontext():
        for size in SIZES:
            torch.manual_seed(0)
            x = torch.randn(size)
            compare(as_list(compiled(x)), as_list(function(x)), as_list(function(x.double())))
            assert compiled.ran_compiled, (size, compiled.eager_reason)
    assert compiled.compilation.kernels and not compiled.compilation.recompiles


@pytest.mark.parametrize("function", [softmax_rows, layer_norm, positions_in_rows, variances_of_rows])
def test_rows_are_held_if_a_block_has_room_for_them(function: Callable[..., Any]) -> None:
    run = nbcompile.compile(function, dynamic=True, options=INTERPRET)
    for size in ((300, 100), (2, 128), (300, 129), (3, 1000), (1, 1), (4, 0)):
        x = torch.randn(size)
        if size[1] or function is softmax_rows:
            compare(as_list(run(x)), as_list(function(x)), as_list(function(x.double())))
    assert run.ran_compiled, run.eager_reason
    kernel = next(item for item in run.compilation.kernels if "if s" in item.sources["triton"])
    assert kernel.schedule == "persistent rows, longer ones looped"
    assert kernel.launches[0].constants["RBLOCK"] == 128
    held, longer = kernel.sources["triton"].split("    else:\n")
    assert "    if s27 <= RBLOCK:\n" in held and held.count("tl.load(x_ptr") == 1 and "for " not in held
    assert "in range(0, s27, RBLOCK):" in longer and longer.count("tl.load(x_ptr") > 0


def test_axes_of_symbolic_extents_are_told_by_as_few_divisions_as_can_be() -> None:
    """And what lies in memory as the points are counted is one number."""

    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * weight[:, None, :]

    run = nbcompile.compile(function, dynamic=True, options=INTERPRET)
    for size in ((2, 3, 4, 5), (3, 7, 2, 4), (6, 2, 5, 9)):
        x, weight = torch.randn(size), torch.randn(size[1], size[3])
        torch.testing.assert_close(run(x, weight), function(x, weight))
    (kernel,) = run.compilation.kernels
    text = kernel.sources["triton"]
    body = text[text.index("):\n") :]
    assert body.count(" // ") + body.count(" % ") == 4 and body.count("_ptr + point, ") == 2, text


def test_a_row_of_symbolic_length_is_cut_into_blocks_and_divides_nothing_a_point() -> None:
    def gated(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return F.silu(a) * b

    def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * w[:, None])

    for function in (gated, scaled):
        run = nbcompile.compile(function, dynamic=True, options=INTERPRET)
        for size in ((30, 600), (7, 1024), (3, 10), (2, 2002), (1000, 4)):
            inputs = [torch.randn(size), torch.randn(size[0])][: 1 if function is gated else 2]
            torch.testing.assert_close(run(*inputs), function(*inputs))
        (kernel,) = run.compilation.kernels
        assert kernel.schedule == "pointwise, bands of rows" and kernel.launches[0].constants["XBLOCK"] == 256
        text = kernel.sources["triton"]
        assert " % s" not in text[text.index("):\n") :]


def test_a_size_that_needs_64_bit_indices_is_captured_anew(monkeypatch):
    from torch._dynamo.utils import counters

    from nbcompile.compiler.kernel_ir import integer_ranges

    monkeypatch.setattr(integer_ranges, "INT32_LIMIT", 1000)
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(
        lambda x: torch.relu(x * 2), backend="nbcompile", dynamic=True, options=dict(INTERPRET)
    )
    graphs = []
    for size in (8, 30, 40, 50):
        x = torch.randn(size, size)
        torch.testing.assert_close(compiled(x), torch.relu(x * 2))
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs == [1, 1, 2, 2]


def test_of_a_size_that_no_guard_can_name_64_bits_are_counted_in() -> None:
    """An argument and a view of it: AOTAutograd gives the graph the tensor that the view shows, with extents
    that Dynamo cannot guard (asked to all the same, it raised at the call)."""

    def function(x: torch.Tensor, part: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.take(x, i), part.flip(1, 0)

    run = nbcompile.compile(function, dynamic=True, options={"interpret": True, "cache": False})
    for size in ((1, 3), (2, 4), (5, 6)):
        x, i = torch.randn(size), torch.tensor([2])
        for got, expected in zip(run(x, x[..., :1], i), function(x, x[..., :1], i), strict=True):
            torch.testing.assert_close(got, expected)
    assert run.ran_compiled, run.eager_reason
    assert "tl.int64" in "".join(kernel.sources["triton"] for kernel in run.compilation.kernels)


def _squared(x: torch.Tensor, s: int) -> torch.Tensor:
    return x + s * s


def _divided(x: torch.Tensor, s: int) -> torch.Tensor:
    return (torch.arange(x.shape[0]) * s // 7 + s * s // 3) * x


def _of_sizes(x: torch.Tensor, s: int) -> torch.Tensor:
    return x.sum() / x.shape[0] ** 4 + x * (x.shape[0] ** 3) + s


@pytest.mark.parametrize("function", [_squared, _divided, _of_sizes])
def test_numbers_of_sizes_are_counted_in_64_bits(function: Callable[..., Any]) -> None:
    """An int is a symbol from its second value on, and no tensor bounds it."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="nbcompile", options=INTERPRET)
    for extent, number in ((3, 4), (9, 7), (2000, 50_000), (90, 2**31), (90, 3 * 10**9)):
        x = torch.arange(extent)
        assert torch.equal(compiled(x, number), function(x, number))


def test_steps_of_a_sequence_are_counted_in_64_bits() -> None:
    function = lambda x: x + torch.arange(0, 3000 * 3_000_000, 3_000_000)
    x = torch.zeros(3000, dtype=torch.int64)
    assert torch.equal(torch.compile(function, backend="nbcompile", options=INTERPRET)(x), function(x))
