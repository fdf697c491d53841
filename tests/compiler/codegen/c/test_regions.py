"""Nests with code of their own for each region of the outer axes in which guards are decided."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor


def printed(function: Callable[..., object], *args: Tensor) -> str:
    """The C of what agrees with eager."""
    torch._dynamo.reset()
    call = nbcompile.compile(function, options={"cache": False, "verify": True})
    found, expected = call(*args), function(*args)
    assert call.ran_compiled, call.eager_reason
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    return "\n".join(kernel.sources["c"] for kernel in call.compilation.kernels)


def chosen(text: str) -> list[str]:
    """The lines that choose at a point what to read."""
    return [line for line in text.splitlines() if " ? x[" in line or ": x[" in line or ": y[" in line]


@few(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.bool, torch.bfloat16])
def test_a_stack_of_rolls_asks_nothing_at_its_points(dtype: torch.dtype) -> None:
    x = (torch.arange(12 * 40).reshape(12, 40) % 7 - 3).to(dtype)

    def function(x: Tensor) -> Tensor:
        return torch.stack([x.roll(-1, 0), x, x.roll(1, 0), x.flip(0)])

    text = printed(function, x)
    assert "else if (i < " in text and not chosen(text)


def test_sums_over_what_is_stacked() -> None:
    x = torch.randn(30, 50)

    def function(x: Tensor) -> Tensor:
        around = [x.roll((i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)]
        return torch.stack(around).sum(0) / 9

    assert not chosen(printed(function, x))


def test_parts_of_rows_and_their_edges() -> None:
    x, y = torch.randn(3, 20, 40), torch.randn(3, 9, 40)

    def function(x: Tensor, y: Tensor) -> Tensor:
        return F.pad(torch.cat([x, y], 1).relu(), (1, 2, 2, 1), value=0.5).exp()

    assert not chosen(printed(function, x, y))


def test_what_is_overwritten_is_read_before() -> None:
    x, y = torch.randn(24, 40), torch.randn(24, 40)

    def function(x: Tensor, y: Tensor) -> Tensor:
        x = x.clone()
        x[3:7] = y[3:7] * 2
        x[:, 5:9].add_(1)
        return x * y

    printed(function, x, y)


def test_a_wide_window_keeps_one_code() -> None:
    """Five regions of it, each with nearly all of 25 elements, took the C compiler five times as long."""

    def function(x: Tensor) -> Tensor:
        moved = [F.pad(x, (i, -i, j, -j)) for i in range(-2, 3) for j in range(-2, 3)]
        return torch.stack(moved).amax(0)

    assert "if (i" not in printed(function, torch.randn(1, 1, 24, 32))
    assert "if (i" in printed(lambda x: F.max_pool2d(x, 5, 1, 2), torch.randn(1, 1, 24, 32)), "5 and 5"


def test_a_sum_over_everything_of_short_rows_is_one_row() -> None:
    x = torch.randn(9, 70, 20)
    x[3, 4, 5] = float("inf")
    text = printed(lambda x: (x.sigmoid() * 2).sum(), x)
    assert "i_block < 12600" in text and "for (long j" not in text
    text = printed(lambda x, y: (x.sigmoid() * y.t()).sum(), torch.randn(300, 20), torch.randn(20, 300))
    assert "for (long j" in text, "memory has gaps"


def test_a_sum_beside_what_is_wider_is_folded_once_a_row() -> None:
    """Found by the fuzzer: it was added up once for each element of the wider."""

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        loss = F.l1_loss(x, y, reduction="sum")
        pair = torch.stack([loss, loss], -1)
        return pair.sum((0,)), torch.stack([pair, pair], 1)

    printed(function, torch.ones(1), torch.ones(1) * 3)

    def wider(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.exp()
        return y.sum(), y[:, None] * torch.ones(5)

    printed(wider, torch.randn(7))


@few(2)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), None])
def test_extremes_of_everything(bad: float | None) -> None:
    x = torch.randn(64, 900)
    if bad is not None:
        x[40, 7] = bad
    text = printed(lambda x: (x.min(), x.max(), x.sum()), x)
    assert "min_1_nan" in text or "min_nan" in text


@few(3)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_division_by_powers_of_two(dtype: torch.dtype) -> None:
    low = 0 if dtype == torch.uint8 else -100
    x = torch.arange(low, low + 200).to(dtype)

    def function(x: Tensor) -> list[Tensor]:
        return [x % 2, x % 8, x // 4, x // 1, x % 1, torch.remainder(x, 64), x % 3, x // -2, x % -4]

    text = printed(function, x)
    assert " & 7" in text and " >> 2" in text


def test_a_half_is_rounded_once() -> None:
    text = printed(lambda x: (x * 1.1).half(), torch.randn(300))
    assert "float_to_f16(round_f16(" not in text
