"""What eager refuses, compiled code refuses too, though no fake tensor says so while a graph is traced."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor


def masked(x: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    x = x.clone()
    x[mask] = value
    return x


REFUSED: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "values beside a mask": (masked, (torch.ones(7, 5), torch.arange(7) > 3, torch.ones(1, 4))),
    "a mask of another extent": (masked, (torch.ones(7, 5), torch.arange(9) > 3, torch.ones(1, 5))),
    "a source of more": (lambda x: torch.slice_scatter(x, x[:4], 0, 1, 3), (torch.ones(6, 2),)),
    "a source of fewer": (lambda x: torch.slice_scatter(x, x[:1], 0, 1, 6, 2), (torch.ones(6, 2),)),
    "an index too large": (lambda x: torch.select_scatter(x, x[0], 0, 6), (torch.ones(6, 2),)),
    "an index too small": (lambda x: torch.select_scatter(x, x[0], 0, -7), (torch.ones(6, 2),)),
}

BYTES = torch.tensor([1, -2], dtype=torch.int8)
REFUSED |= {
    "a bool less a tensor": (lambda x: True - x, (torch.ones(3),)),
    "a bool subtracted": (lambda x: x - False, (torch.arange(3),)),
    "a mask subtracted": (lambda x: x - (x > 0), (torch.ones(3),)),
    "a number beside bytes": (lambda x: torch.where(x > 0, 2**31, x), (BYTES,)),
    "bytes filled": (lambda x: x.masked_fill(x > 0, -129) + 1, (BYTES,)),
    "bytes of a number": (lambda x: torch.full_like(x, 300) + x, (BYTES,)),
    "bytes padded": (lambda x: torch.nn.functional.pad(x, (1, 1), value=300), (BYTES,)),
    "a slice of bytes": (lambda x: x.index_fill(0, torch.tensor([0]), 300), (BYTES,)),
    "bytes here and there": (lambda x: x.scatter(0, torch.tensor([0]), 300), (BYTES,)),
    "no integer": (lambda x: x + x.new_full((2,), float("nan")), (BYTES,)),
    "the place of the largest truth": (lambda x: (x > 0).argmax(), (torch.ones(3),)),
    "places of the smallest truths": (lambda x: (x > 0).argmin(1, keepdim=True), (torch.ones(3, 2),)),
    "a bool as an exponent": (lambda x: torch.ldexp(x + 1, x > 0), (torch.ones(3),)),
    "a number beside floats": (lambda x: torch.where(x > 0, 1e300, x), (torch.ones(3),)),
}
HALVES = torch.ones(3, dtype=torch.float16)
REFUSED |= {
    "halves filled": (lambda x: x.masked_fill(x > 0, -1e9) + 1, (HALVES,)),
    "halves filled in place": (lambda x: x.clone().masked_fill_(x > 0, 10**6), (HALVES,)),
    "halves clamped": (lambda x: x.clamp(-1e6, 1e6) + 1, (HALVES,)),
    "halves clamped below": (lambda x: x.clamp_min(-1e6) + 1, (HALVES,)),
    "halves from -65510": (lambda x: torch.nn.functional.hardtanh(x, -65510.0, 0.0), (HALVES,)),
    "halves beyond a threshold": (lambda x: torch.nn.functional.threshold(x, 0.0, 1e6), (HALVES,)),
    "halves to a power": (lambda x: x**1e6, (HALVES,)),
    "a multiple of halves": (lambda x: torch.add(x, x, alpha=1e6), (HALVES,)),
    "bfloat16 clamped": (lambda x: x.clamp(max=3.4e38) + 1, (HALVES.bfloat16(),)),
    "floats clamped": (lambda x: x.clamp(-3.4e39, 3.4e39) + 1, (torch.ones(3),)),
}


@few(5)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_it_raises_as_eager_does(name: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    program, inputs = REFUSED[name]
    run = nbcompile.compile(program, options={"cache": False}, dynamic=dynamic)
    with pytest.raises((IndexError, RuntimeError)):
        program(*inputs)
    with pytest.raises((IndexError, RuntimeError)):
        run(*inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_a_half_type_holds_is_no_mistake(dtype: torch.dtype) -> None:
    """An infinity, the largest number, and what is computed with in float32."""
    most, beyond, functional = torch.finfo(dtype).max, 1e6, torch.nn.functional

    def program(x: Tensor) -> list[Tensor]:
        filled = [x.masked_fill(x > 0, value) for value in (-math.inf, most, -most)]
        limited = [x.clamp(-most, most), x.clamp(max=math.inf), functional.threshold(x, -beyond, 0.5)]
        return [*filled, *limited, x + beyond, x > beyond, x * beyond]

    x = torch.tensor([-2.0, 0.0, 1.5, math.inf, math.nan]).to(dtype)
    torch._dynamo.reset()
    run = nbcompile.compile(program, options={"cache": False})
    torch.testing.assert_close(run(x), program(x), rtol=0, atol=0, equal_nan=True)
    assert run.ran_compiled and not run.compilation.library_calls


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_multiple_is_by_a_number_of_the_type(dtype: torch.dtype) -> None:
    x, y = torch.randn(2, 4096, generator=torch.Generator().manual_seed(0)).to(dtype)
    torch._dynamo.reset()
    run = nbcompile.compile(lambda x, y: (torch.add(x, y, alpha=0.3), torch.sub(x, y, alpha=-0.7)))
    expected = torch.add(x, y, alpha=0.3), torch.sub(x, y, alpha=-0.7)
    torch.testing.assert_close(run(x, y), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.clone().uniform_(1, 0),
        lambda x: x.clone().log_normal_(0, -1),
        lambda x: x.clone().exponential_(-1),
        lambda x: x.clone().cauchy_(0, -1),
        lambda x: x.clone().bernoulli_(1.5),
    ],
)
def test_distributions_that_do_not_exist(program: Callable[[Tensor], Tensor]) -> None:
    torch._dynamo.reset()
    x = torch.ones(4)
    with pytest.raises(RuntimeError):
        program(x)
    with pytest.raises(RuntimeError):
        nbcompile.compile(program, options={"cache": False, "random": "philox"})(x)


def test_a_size_that_may_divide_by_zero_is_left_to_aten() -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(lambda x: x // (x.shape[0] - 5), options={"cache": False}, dynamic=True)
    assert torch.equal(run(torch.arange(7)), torch.arange(7) // 2)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run(torch.arange(5))


def test_a_size_where_only_numbers_are_lowered_costs_its_node_alone() -> None:
    torch._dynamo.reset()
    program = lambda x: (x * 2).index_fill(0, torch.tensor([0]), x.shape[0]).sin()
    run = nbcompile.compile(program, options={"cache": False}, dynamic=True)
    x = torch.randn(3, 3)
    torch.testing.assert_close(run(x), program(x))
    assert run.ran_compiled, run.eager_reason
    assert {"mul", "sin"} <= {kernel.name for kernel in run.compilation.kernels}


CLAMPED = {
    "clamp_min": lambda x: torch.clamp_min(x, -1),
    "clamp_max": lambda x: torch.clamp_max(x, 300),
    "clamp": lambda x: torch.clamp(x, -1, 300),
    "nothing left": lambda x: torch.clamp(x, min=300),
    "relu6 that begins at -1": lambda x: torch.nn.functional.hardtanh(x, -1, 6),
}


@few(4)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.parametrize("name", CLAMPED)
def test_a_bound_that_the_type_does_not_hold(name: str, dtype: torch.dtype) -> None:
    """Torch 2.14 wraps it round or refuses it, 2.15 takes it for no bound."""
    x = torch.tensor([0, 3, 100], dtype=dtype)

    def f(x: Tensor) -> Tensor:
        return CLAMPED[name](x) + 1

    compiled = nbcompile.compile(f)
    try:
        expected = f(x)
    except RuntimeError:
        with pytest.raises((RuntimeError, torch._dynamo.exc.TorchRuntimeError)):
            compiled(x)
    else:
        assert torch.equal(compiled(x), expected)


NUMBERS: dict[str, tuple[Tensor, Tensor, bool]] = {  # with whether each number of the type fits
    "of fewer bits": (torch.arange(6), torch.tensor([7], dtype=torch.int16), True),
    "whole": (torch.arange(6.0), torch.tensor(7), True),
    "into bools": (torch.arange(6) > 4, torch.tensor(0.5), True),
    "of a half": (torch.arange(6.0), torch.tensor(0.5, dtype=torch.float16), True),
    "with a fraction": (torch.arange(6), torch.tensor(2.7), False),
    "too large": (torch.arange(6, dtype=torch.int8), torch.tensor(300), False),
    "too large a fraction": (torch.arange(6.0), torch.tensor(1e300, dtype=torch.float64), False),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_of_another_type_where_a_mask_says(name: str) -> None:
    """Eager converts it where it fits, and so the graph is compiled; where it may not, ATen is asked."""
    x, number, fits = NUMBERS[name]

    def program(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        return masked(x, mask, y) * 2

    mask, run = torch.arange(6) % 2 == 0, nbcompile.compile(program, options={"cache": False})
    try:
        expected = program(x, number, mask)
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=str(error)):
            run(x, number, mask)
    else:
        assert torch.equal(run(x, number, mask), expected)
        assert run.ran_compiled, run.eager_reason
    called = [call.name for call in run.compilation.library_calls]
    assert ("aten.index_put" not in called) == fits, called
    with pytest.raises(RuntimeError, match="dtypes match"):
        nbcompile.compile(lambda x, y, i: x.index_put((i,), y))(
            torch.ones(3), torch.tensor(1), torch.arange(2)
        )


def test_numbers_that_fit_cost_no_call() -> None:
    """Unsigned types take negative numbers, and floating-point ones infinities."""

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x + x.new_full((2,), -255), torch.where(y > 0, float("inf"), y), torch.full_like(x, 7.9) + x

    given = torch.tensor([3, 4], dtype=torch.uint8), torch.tensor([1.0, -2.0], dtype=torch.float16)
    run = nbcompile.compile(program, options={"cache": False})
    assert all(map(torch.equal, run(*given), program(*given)))
    assert run.ran_compiled and not run.compilation.library_calls


@pytest.mark.parametrize("mean", [torch.zeros(3).half(), torch.zeros(3).bfloat16(), torch.tensor(0.0)])
@pytest.mark.parametrize("std", [torch.ones(3), torch.ones(3).half(), torch.tensor(1.0)])
def test_numbers_are_drawn_of_the_type_of_their_mean(mean: Tensor, std: Tensor) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(lambda mean, std: torch.normal(mean, std) + 1, options={"cache": False})
    torch.manual_seed(3)
    expected = torch.normal(mean, std) + 1
    torch.manual_seed(3)
    torch.testing.assert_close(run(mean, std), expected)
    if torch.result_type(mean, std) == mean.dtype:
        assert run.ran_compiled
