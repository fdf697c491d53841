"""Every operator of torch's database that works element by element, at NaN, infinities, zeros of both signs
and a subnormal number, forward and backward, compiled by us and in eager. There are enough elements that ATen
takes its vector path, which is the one that we follow where its tails disagree."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest
import torch
from torch.utils import _pytree as pytree

import nbcompile
from tests.compiler.lower.contest import Case, contest, differentiable
from tests.compiler.lower.gradient_cases import database, samples, spread
from tests.nightly import few, one_in

NUMBERS = (nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 3.0, 6.0, 1e-40, 0.3, -0.3)


def on_special_numbers(case: Case) -> Case | None:
    """The call on all special numbers, or all pairs of them; None if it does not work element by element."""
    leaves, shape = pytree.tree_flatten((case.args, case.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    given = [leaves[place] for place in places]
    if len(given) not in (1, 2) or not all(map(differentiable, given)) or given[0].shape != given[-1].shape:
        return None
    values = torch.cartesian_prod(*[torch.tensor(NUMBERS)] * len(given)).view(-1, len(given))
    values = values.repeat(8 if len(given) == 1 else 1, 1).t().contiguous()

    def on(values: torch.Tensor) -> Case:
        changed = list(leaves)
        for place, leaf, each in zip(places, given, values, strict=True):
            changed[place] = each.to(leaf.dtype)
        args, kwargs = pytree.tree_unflatten(changed, shape)
        return replace(case, args=args, kwargs=kwargs)

    order = torch.randperm(values.shape[1], generator=torch.Generator().manual_seed(0))
    made, moved = on(values), on(values[:, order])
    try:
        one = case.function(*made.args, **made.kwargs)
        two = case.function(*moved.args, **moved.kwargs)
        pointwise = one.shape == order.shape and torch.allclose(one[order], two, equal_nan=True)
    except Exception:
        return None
    return made if pointwise else None


@few(2)
@pytest.mark.parametrize(("name",), one_in(80, database()))
def test_operators_of_torch(name):
    for dtype in (torch.float32, torch.bfloat16):
        listed = spread(samples(database()[name], dtype), 4)
        found, _ = contest([made for made in map(on_special_numbers, listed) if made is not None])
        assert not [str(finding) for finding in found if not (finding.torchs or finding.is_left)]


def test_what_works_element_by_element_is_found():
    x = torch.randn(5)
    assert on_special_numbers(Case("x", torch.sin, (x,), {})) is not None
    assert on_special_numbers(Case("x", torch.atan2, (x, x), {})) is not None
    assert on_special_numbers(Case("x", torch.cumsum, (x, 0), {})) is None
    assert on_special_numbers(Case("x", torch.sum, (x,), {})) is None


@pytest.mark.parametrize("exponent", [0.5, -0.5])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_root_written_as_a_power(exponent: float, dtype: torch.dtype) -> None:
    """ATen takes roots of all types but float16, of which pow() makes 0 of -0, and inf of -inf."""
    x = torch.tensor(NUMBERS).repeat(8).to(dtype)
    compiled = nbcompile.compile(lambda x: x**exponent)
    made, expected = compiled(x), x**exponent
    torch.testing.assert_close(made, expected, equal_nan=True)
    assert torch.equal(made[made == 0].signbit(), expected[made == 0].signbit())
    assert compiled.ran_compiled


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_power_of_two_that_no_number_is(dtype: torch.dtype, interpret: bool) -> None:
    """The product fits though the power does not; what becomes subnormal is rounded once."""
    numbers = [0.0, -0.0, inf, -inf, nan, *(4 / 3 * 2.0**power for power in (0, -1, -20, -100, 15, 120))]
    powers = torch.tensor([0, 1, 10, 100, 128, 150, 250, 1023, 1100, 2**31 - 1, 2**32 + 5])
    powers = torch.cat([powers, -powers])
    x = torch.tensor(numbers, dtype=torch.float64).to(dtype).repeat_interleave(len(powers))
    exponent = powers.repeat(len(numbers))
    torch._dynamo.reset()
    compiled = nbcompile.compile(torch.ldexp, options={"cache": False, "interpret": interpret})
    for given in (exponent, exponent.int()):
        made, expected = compiled(x, given), torch.ldexp(x, given)
        torch.testing.assert_close(made, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(made[~made.isnan()].signbit(), expected[~made.isnan()].signbit())
    assert compiled.ran_compiled


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_number_is_made_of_its_parts_again(dynamic: bool) -> None:
    x = torch.tensor([3e38, 1.0, -1e-45, 1.2e-38, 0.0])
    torch._dynamo.reset()
    assert torch.equal(nbcompile.compile(lambda x: torch.ldexp(*torch.frexp(x)), dynamic=dynamic)(x), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("eps", [None, 1e-9, 1e-6, 1e-3, 0.3])
def test_the_ends_of_a_logit_are_numbers_of_its_type(dtype: torch.dtype, eps: float | None) -> None:
    """On a CPU, and each step of it is. (In the last elements of a thread ATen's gradient at -0 differs.)"""
    x = torch.cat([torch.tensor([0.0, -0.0, 1.0, 0.9995, nan, inf, -inf]), torch.linspace(-0.1, 1.1, 1017)])
    here, there = (x.to(dtype).requires_grad_() for _ in range(2))
    torch._dynamo.reset()
    compiled = nbcompile.compile(lambda x: torch.logit(x, eps), options={"cache": False})
    made, expected = compiled(here), torch.logit(there, eps)
    torch.testing.assert_close(made, expected, rtol=1e-3, atol=0, equal_nan=True)  # the logarithm's last bit
    made.backward(torch.ones_like(made))
    expected.backward(torch.ones_like(expected))
    torch.testing.assert_close(here.grad, there.grad, rtol=0, atol=0, equal_nan=True)
    assert compiled.ran_compiled


@pytest.mark.parametrize("ord", [2, 3, -1, 0.5, 0])
def test_the_norm_of_one_number_is_its_magnitude(ord: float) -> None:
    """Squared, it may leave the type."""
    x = torch.tensor([3e-23, 2e25, -1e-30, 0.0, nan, inf])
    for function in (
        lambda x: torch.linalg.vector_norm(x[:, None], ord, -1),
        lambda x: torch.linalg.vector_norm(x[1], ord),
    ):
        run = nbcompile.compile(function, options={"cache": False})
        torch.testing.assert_close(run(x), function(x), equal_nan=True, rtol=1e-6, atol=0)


def test_the_slope_of_gelu_far_from_0_is_that_of_its_limit() -> None:
    """The cube of such numbers leaves the type."""
    function = lambda x: torch.nn.functional.gelu(x, approximate="tanh")
    run = nbcompile.compile(function, options={"cache": False})
    x = torch.tensor([-1e18, -1e14, -1e13, -5.0, 0.0, 5.0, 1e14], requires_grad=True)
    found, expected = (torch.autograd.grad(f(x).sum(), x)[0] for f in (run, function))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_deviations_far_from_0_keep_their_digits(dynamic: bool) -> None:
    """A float32 mean of numbers near a million is off by as much as they differ."""
    x = torch.randn(6, 257, generator=torch.Generator().manual_seed(0)) + 1e6

    def spread(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        over_all = torch.var_mean(x, correction=0)
        return x.var(1), x.var(0), x.var((0, 1), correction=0), *torch.var_mean(x, 1), *over_all, x.std(1)

    for each in (x, x.t().contiguous().t(), x[:, ::2]):
        torch._dynamo.reset()
        run = nbcompile.compile(spread, dynamic=dynamic, options={"cache": False})
        exact = [item.float() for item in spread(each.double())]
        torch.testing.assert_close(list(run(each)), exact, rtol=1e-6, atol=0)
