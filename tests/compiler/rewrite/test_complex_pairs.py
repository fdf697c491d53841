"""Complex numbers as pairs: the numbers, gradients, strides and special values of eager mode, in kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor
Case = tuple[Callable[..., Tensor], tuple[Tensor, ...]]


def c(*shape: int, dtype: torch.dtype = torch.complex64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def r(*shape: int) -> Tensor:
    return torch.randn(shape)


def rotary(x: Tensor, turns: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2)


def escapes(start: Tensor) -> Tensor:
    """How many steps of the Mandelbrot set's recurrence stay near 0."""
    z, count = torch.zeros_like(start), torch.zeros_like(start.real)
    for _ in range(6):
        z = torch.where(z.abs() < 2, z * z + start, z)
        count += z.abs() < 2
    return count + z.real


WIDE = torch.complex128
TWO = (r(4, 5), r(4, 5))
NATIVE: dict[str, Case] = {
    "rotary": (rotary, (r(2, 6, 4, 8), c(6, 1, 4))),
    "times a real one": (lambda a, b: a * b + b, (c(4, 5), r(4, 5))),
    "from a real one": (lambda a, b: (b - a).abs(), (c(4, 5), r(4, 5))),
    "alpha": (lambda a, b: torch.sub(a, b, alpha=2).abs(), (c(4, 5), c(4, 5))),
    "alpha of a real one": (lambda a, b: torch.sub(b, a, alpha=2).abs(), (c(4, 5), r(4, 5))),
    "numbers": (lambda a: (a * (1 + 2j) + 3).abs() + (2 * a - 1j).real, (c(4, 5),)),
    "conjugate": (lambda a, b: (a * b.conj()).sum().abs(), (c(4, 5), c(4, 5))),
    "polar": (lambda a, b: torch.view_as_real(torch.polar(a.abs(), b) * torch.polar(b.abs(), a)), TWO),
    "angle": (lambda a: (a * 1j).abs() + (a + 2).angle(), (c(4, 5),)),
    "views": (lambda a: (a.t()[1:3].reshape(-1) * 2).view(2, 4)[:, None].expand(2, 3, 4).abs(), (c(4, 5),)),
    "sums": (lambda a: (a * a).sum(0).abs() + (a * 2).sum(1, keepdim=True).abs().sum(), (c(4, 4),)),
    "parts": (lambda a: (-a * a).real - (a * a).imag, (c(4, 5),)),
    "chosen": (lambda a, b: torch.where(b > 0, a * a, a).abs(), (c(4, 5), r(4, 5))),
    "chosen from a real one": (
        lambda a, b: torch.where(b > 0, a * a, b).abs(), (c(4, 5), torch.randint(-3, 3, (4, 5)))
    ),
    "chosen, broadcast": (lambda a, b: (torch.where(b > 0, a * a, 2j) * a).abs(), (c(4, 5), r(5))),
    "escape times": (escapes, (c(6, 7) * 2,)),
    "filled": (lambda a: ((torch.full_like(a, 2 - 1j) + torch.ones_like(a)) * a).abs(), (c(4, 5),)),
    "filled, of sizes": (
        lambda a: (torch.full((4, 5), 1j) * a + torch.zeros(5, dtype=a.dtype)).abs(), (c(4, 5),)
    ),
    "square": (lambda a: (a**2 + a.square()).abs(), (c(4, 5),)),
    "turned": (lambda a: ((a * a).flip(-1) + (a * 2).roll((1, 2), (0, -1))).abs(), (c(4, 5),)),
    "by index": (lambda a, i: ((a * a)[i] * (a * 2)[:, i].mT).abs(), (c(5, 5), torch.tensor([4, 0, -2]))),
    "joined": (lambda a, b: torch.cat([a * a, b * 2], 1).abs(), (c(4, 5), c(4, 2))),
    "stacked": (lambda a, b: torch.stack([a * a, b * 2], -1).sum(-1).abs(), (c(4, 5), c(4, 5))),
    "double": (lambda a, b: (a * b).abs(), (c(4, 5, dtype=WIDE), c(4, 5, dtype=WIDE))),
    "mixed": (lambda a, b: (a * b).abs(), (c(4, 5), c(4, 5, dtype=WIDE))),
    "whole numbers": (lambda a, b: (a * b).abs(), (c(4, 5), torch.randint(0, 5, (4, 5)))),
    "empty": (lambda a, b: (a * b).abs(), (c(0, 5), c(0, 5))),
    "no dimensions": (lambda a, b: (a * b).abs(), (c(), c())),
}  # fmt: skip
PARTLY = {"times a real one", "angle", "views", "square", "by index"}
"""In whose gradients products, slices, first powers or sums by index are left to ATen."""
OTHERS: dict[str, Case] = {
    "one product": (lambda a, b: a * b, (c(4, 5), c(4, 5))),
    "transposed": (lambda a, b: a * b, (c(4, 5).t(), c(4, 5).t())),
    "permuted": (lambda a: (a * a).permute(2, 0, 1) * 2, (c(2, 3, 4),)),
    "broadcast": (lambda a, b: torch.view_as_real(a * b), (c(4, 1), c(5))),
    "conjugate given": (lambda a, b: (a * b).abs(), (c(4, 5).conj(), c(4, 5))),
    "conjugate returned": (lambda a, b: (a * b).conj(), (c(4, 5), c(4, 5))),
    "view returned": (lambda a: a.t(), (c(4, 5),)),
    "mean": (lambda a: (a * 2).exp().mean(1).abs() / 2, (c(4, 4),)),
    "quotient": (lambda a, b: (a / b * b).abs(), (c(4, 5), c(4, 5))),
    "joined with a real one": (lambda a, b: torch.cat([a * a, b]).abs(), (c(4, 5), r(2, 5))),
    "joined with nothing": (lambda a: torch.cat([a * a, torch.empty(0)]).abs(), (c(4, 5),)),
    "transform": (lambda x: torch.fft.ifft(torch.fft.fft(x) * torch.fft.fft(x)).real, (r(8, 16),)),
}  # fmt: skip


def outcome(
    function: Callable[..., Tensor], given: tuple[Tensor, ...], *, grad: bool
) -> tuple[Tensor, list[Any]]:
    floating = [item.is_floating_point() or item.is_complex() for item in given]
    leaves = [
        item.detach().clone().requires_grad_(grad and f) for item, f in zip(given, floating, strict=True)
    ]
    result = function(*leaves)
    if grad:
        result.abs().sum().backward()
    return result, [leaf.grad for leaf in leaves]


@few(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", [*NATIVE, *OTHERS])
def test_as_eager(name: str, grad: bool, dynamic: bool) -> None:
    function, given = (NATIVE | OTHERS)[name]
    torch._dynamo.reset()
    run = nbcompile.compile(function, dynamic=dynamic, options={"cache": False, "verify": True})
    (expected, gradients), (found, own) = outcome(function, given, grad=grad), outcome(run, given, grad=grad)
    torch.testing.assert_close(found, expected, check_stride=True)
    for one, other in zip(own, gradients, strict=True):
        torch.testing.assert_close(one, other)


@few(2)
@pytest.mark.parametrize("name", NATIVE)
def test_nothing_falls_back(name: str) -> None:
    function, given = NATIVE[name]
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    outcome(run, given, grad=name not in PARTLY)
    assert run.ran_compiled, run.eager_reason
    assert not [node.op for node in run.compilation.fused_nodes if node.kind == "fallback"]


SPECIAL = [0.0, -0.0, 1.0, -2.5, float("inf"), -float("inf"), float("nan"), 1e38, 1e-30]
BOTH = torch.tensor([complex(x, y) for x, y in itertools.product(SPECIAL, SPECIAL)])
REAL = torch.tensor(SPECIAL)
ON_SPECIAL: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "products": lambda a, b, x: a * b,
    "by real": lambda a, b, x: a * x,
    "of real": lambda a, b, x: x * a,
    "by a number": lambda a, b, x: a * 2.0,
    "by a complex number": lambda a, b, x: x * (1 + 2j) + a,
    "sums": lambda a, b, x: a + b,
    "with real": lambda a, b, x: x + a,
    "differences": lambda a, b, x: a - b,
    "from real": lambda a, b, x: x - a,
    "less real": lambda a, b, x: torch.sub(a, x, alpha=2),
    "from a number": lambda a, b, x: 2.0 - a,
    "negative": lambda a, b, x: -a,
    "conjugate": lambda a, b, x: a.conj().resolve_conj(),
    "size": lambda a, b, x: a.abs(),
    "angle": lambda a, b, x: a.angle(),
    "sign": lambda a, b, x: a.sgn(),
    "polar": lambda a, b, x: torch.polar(x, x.mT),
    "sum": lambda a, b, x: (a + b).sum(1),
    "square": lambda a, b, x: (a + b) ** 2,
    "chosen": lambda a, b, x: torch.where(a.real > 0, a * 1, b),
    "made complex": lambda a, b, x: x.to(torch.complex64) + a,
}


@few(3)
@pytest.mark.parametrize("name", ON_SPECIAL)
def test_special_numbers(name: str) -> None:
    """Infinities, NaN and signs of nothing are those of eager mode, whose rules are its own."""

    def program(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
        made = ON_SPECIAL[name](torch.view_as_complex(a), torch.view_as_complex(b), x)
        return torch.view_as_real(made) if made.is_complex() else made

    shown = torch.view_as_real(BOTH)
    given = shown[:, None].contiguous(), shown[None].contiguous(), REAL[None]
    if name in ("sums", "differences", "products", "sum"):
        given = given[0], given[1], REAL[None, :1]
    torch._dynamo.reset()
    run = nbcompile.compile(program, options={"cache": False})
    found, expected = run(*given), program(*given)
    torch.testing.assert_close(found, expected, equal_nan=True)
    nothing = expected == 0
    assert torch.equal(torch.signbit(found[nothing]), torch.signbit(expected[nothing]))
    assert run.ran_compiled and not [n for n in run.compilation.fused_nodes if n.kind == "fallback"]


def test_a_product_between_transforms_is_left_to_aten() -> None:
    """Copies on the way from and to the transforms would cost more than the product does."""
    function, given = OTHERS["transform"]
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    run(*given)
    assert [node.op for node in run.compilation.fused_nodes if node.kind == "fallback"] == ["aten.mul.Tensor"]


def test_views_alone_stay_as_they_are() -> None:
    """Pairs gain nothing where nothing is computed; views of no elements have the strides of torch."""

    def inner(x: Tensor) -> Tensor:
        twice = torch.stack([x, x], 0)
        return twice.index_put((torch.tensor([0, 0, 0]),), torch.ones_like(twice[:1]), accumulate=True)

    run = nbcompile.compile(inner, options={"cache": False})
    for length in (0, 3):
        torch._dynamo.reset()
        x = c(length)
        torch.testing.assert_close(run(x), inner(x))
        assert run.ran_compiled, run.eager_reason


def test_an_overwritten_input_that_is_returned() -> None:
    """AOTAutograd makes the result from the input by the views of what the graph gave, not by a pair's."""

    def inner(x: Tensor) -> Tensor:
        x.mul_(x)
        x += x
        return x.reshape(x.shape[0], x.shape[0])

    torch._dynamo.reset()
    run = nbcompile.compile(inner, options={"cache": False})
    for size in (1, 2, 3):
        x, own = c(size, size), c(size, size)
        own.copy_(x)
        found = run(x)
        torch.testing.assert_close(found, inner(own))
        torch.testing.assert_close(x, own)
        assert found.data_ptr() == x.data_ptr()


GRADIENTS: dict[str, Case] = {
    # the largest size is found by the sizes that the gradient is compared with
    "largest": (lambda a: torch.linalg.vector_norm(a, float("inf"), 1), (c(5, 5),)),
    "sum of another type": (lambda a: (a * a.conj()).sum((0, 1), dtype=a.dtype).abs() + a.abs(), (c(5, 5),)),
    # torch gives its joint graph one more input where an error is checked for
    "eigenvalues": (lambda a: torch.linalg.eigvals(a), (r(4, 4),)),
}


@few(1)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_eagers(name: str) -> None:
    function, (x,) = GRADIENTS[name]
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    own, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    run(own).abs().sum().backward()
    function(other).abs().sum().backward()
    assert run.ran_compiled, run.eager_reason
    torch.testing.assert_close(own.grad, other.grad)


def step(x: Tensor, w: Tensor) -> Tensor:
    x.mul_(w)
    x += w * 2
    return x.abs()


def part(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    row = x[1:]
    row.copy_(w[1:] * 2)
    return row, x.sum()


@few(1)
@pytest.mark.parametrize("function", [step, part])
@pytest.mark.parametrize("grad", [False, True])
def test_overwritten_inputs(function: Callable[..., Any], grad: bool) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    for size in (3, 4):
        x, w = c(size, size), c(size, size).requires_grad_(grad)
        own, other = x.clone(), w.detach().clone().requires_grad_(grad)
        found, expected = run(x, w), function(own, other)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(x, own)
        if grad:
            one, two = (r[0] if isinstance(r, tuple) else r for r in (found, expected))
            one.abs().sum().backward()
            two.abs().sum().backward()
            torch.testing.assert_close(w.grad, other.grad)
        assert run.ran_compiled, run.eager_reason


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("number", [complex(NAN, 1), complex(-0.0, 1), complex(-INF, -0.0), complex(2, 1)])
def test_complex_numbers_that_a_library_is_given(number: complex) -> None:
    def inner(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.full((3,), number), torch.pow(torch.complex(x, x), number)

    torch._dynamo.reset()
    run = nbcompile.compile(inner, options={"cache": False})
    x = torch.ones(3)
    for one, other in zip(run(x), inner(x)):
        torch.testing.assert_close(one, other, equal_nan=True)
        assert torch.equal(one.real.signbit(), other.real.signbit())
    assert run.ran_compiled, run.eager_reason


def _pair_of(make: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, ...]]:
    def function(p: Tensor) -> tuple[Tensor, ...]:
        made = make(p)
        return made, torch.view_as_real(made), made.real

    return function


@pytest.mark.parametrize(
    "make",
    [lambda p: torch.polar(p, p), lambda p: torch.complex(p, p), lambda p: torch.complex(p, p) * 2],
    ids=["polar", "complex", "product"],
)
def test_what_shows_a_returned_number_by_its_parts_shares_its_memory(
    make: Callable[[Tensor], Tensor],
) -> None:
    function = _pair_of(make)
    torch._dynamo.reset()
    found = nbcompile.compile(function, options={"cache": False})(torch.randn(8))
    for one in found:
        assert one.untyped_storage().data_ptr() == found[0].untyped_storage().data_ptr()
    found[1].zero_()
    assert not found[0].abs().any() and not found[2].any()
