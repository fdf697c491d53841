"""``x.data = y`` gives a tensor other memory: done when all else of its graph has run, which is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor


def averaged(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        x.data = x.data * 0.9 + y.data * 0.1
    return (x * 2).sin(), y.cos()


def that_of_another(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    x.data = y
    return ((x * 2).sin(),)


def swapped(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    x.data, y.data = y.data, x.data
    return ((x * 2 + y).sin(),)


def returned(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    z = y.detach() * 2
    x.data = z
    return z, z.sin()


def returned_itself(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    x.data = y.data * 2
    return x, x[1:], x.sin()


def beside_a_write(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        y.mul_(2)
    x.data = x.data * 3 + y.data
    return (x.sin(),)


def its_own_transposed(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    x.data = x.data.t()
    return (x.sin() * 2,)


def that_of_what_is_written(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        y.mul_(2)
    x.data = y.data
    return (x.sin(),)


def written_before(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        x.mul_(2)
    x.data = x.data * 3
    return (x.sin(),)


def a_view_of_the_old(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    old = x.data[1:]
    x.data = y.data * 2
    return old, old.sin()


COMPILED = [averaged, that_of_another, swapped, returned, returned_itself, beside_a_write]
EAGER = [its_own_transposed, that_of_what_is_written, written_before, a_view_of_the_old]


def described(tensors: list[Tensor]) -> list[Any]:
    return [
        (item.dtype, item.shape, item.stride(), item.storage_offset(), item.requires_grad,
         [torch._C._is_alias_of(item, other) for other in tensors])
        for item in tensors
    ]  # fmt: skip


def told(call: Callable[..., Any], form: str) -> list[Any]:
    torch.manual_seed(0)
    base, y = torch.randn(6, 4), torch.randn(4, 4)
    x = base[1:5] if form == "part" else base[:4].clone()
    if form == "gradient":
        x, y = x.requires_grad_(), y.requires_grad_()
    first, found = x.detach(), list[Any]()
    for _ in range(3):
        before = x.data
        results = call(x, y)
        tensors = [x, y, first, before, *results]
        found += [described(tensors), x._version, y._version, [item.detach().clone() for item in tensors]]
        if form == "gradient" and any(item.requires_grad for item in results):
            total = torch.stack([item.sum() for item in results if item.requires_grad]).sum()
            found.append(torch.autograd.grad(total, [x, y], allow_unused=True))
        with torch.no_grad():
            x.mul_(1.5)
        found.append([item.detach().clone() for item in tensors])
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.allclose(one, other, atol=1e-5)
    if isinstance(one, list | tuple) and not isinstance(one, torch.Size):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@few(8)
@pytest.mark.parametrize("function", [*COMPILED, *EAGER])
@pytest.mark.parametrize("form", ["whole", "part", "gradient"])
def test_all_is_as_eager_leaves_it(function: Callable[..., Any], form: str) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False, "verify": True})
    found, expected = told(run, form), told(function, form)
    assert same(found, expected)
    if form != "gradient" and function in COMPILED:
        assert run.ran_compiled, run.eager_reason


@pytest.mark.parametrize("cache", [False, True])
def test_the_average_of_a_models_weights(cache: bool) -> None:
    torch._dynamo.reset()
    models = [nn.Linear(3, 4), nn.Linear(3, 4)]
    for name, value in models[0].state_dict().items():
        models[1].get_parameter(name).data.copy_(value * 2)
    average = [{n: p.detach().clone() for n, p in m.named_parameters()} for m in models]

    def step(x: Tensor) -> Tensor:
        with torch.no_grad():
            for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
                b.data = b.data * 0.9 + a.data * 0.1
            return torch.softmax(models[1](x).sin() * 2, -1)

    run = nbcompile.compile(step, options={"cache": cache})
    for _ in range(3):
        x = torch.randn(5, 3)
        found = run(x)
        assert run.ran_compiled, run.eager_reason
        assert run.compilation.kernels
        for name, weight in models[1].named_parameters():
            average[1][name] = average[1][name] * 0.9 + average[0][name] * 0.1
            torch.testing.assert_close(weight.detach(), average[1][name])
            assert weight.requires_grad and weight._version == 1  # (the copy_ above)
        weight, bias = average[1]["weight"], average[1]["bias"]
        torch.testing.assert_close(found, torch.softmax((x @ weight.t() + bias).sin() * 2, -1))
