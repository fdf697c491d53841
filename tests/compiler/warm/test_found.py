"""Graphs that a second process finds whole: what they do is what eager does, backward and all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional

import nbcompile
from nbcompile.compiler.capture import fx_to_aten
from nbcompile.compiler.capture.calls import short_call
from nbcompile.compiler.runtime.cache import DiskCache
from tests.compiler.warm.helpers import FOUND, NOT_FOUND, copied, fresh, outcomes, twice
from tests.nightly import few

ROOT = Path(nbcompile.__file__).parent.parent
Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    DiskCache.shared().clear()
    yield
    torch._dynamo.reset()


def floats(*shape: int, grad: bool = False) -> Tensor:
    made = torch.linspace(-1, 1, torch.Size(shape).numel() or 1).reshape(shape).clone()
    return made.requires_grad_(grad)


def overwrites(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    x[0] += y[0]
    return x.sin() + y


def overwrites_a_leafs_child(x: Tensor) -> Tensor:
    y = x * 1
    y.add_(1)
    return y.relu()


def shows_inputs(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x.t(), y, x[1:], (x * 2).t(), y.view(-1)[::2]


def same_twice(x: Tensor) -> tuple[Tensor, ...]:
    y = x.exp()
    return y, y, y.t(), x


def holds_tensors(x: Tensor) -> Tensor:
    return x * torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.tensor(0.5)


def draws(x: Tensor) -> Tensor:
    return functional.dropout(x * 2, 0.4) + torch.rand(4) + torch.randn_like(x)


def calls_aten(x: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.linalg.matrix_exp(x @ x.t() + torch.eye(4)).sin(),
        torch.sort(x.flatten()).values * 2,
        x.cumsum(0),
    )


def gives_numbers(x: Tensor) -> tuple[Any, ...]:
    return x.shape[0] + 1, None, x.sum() * x.shape[0]


def complex_numbers(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.fft.fft(x) * 2).sum(-1)


def checkpointed(x: Tensor) -> Tensor:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(lambda x: x.sin().exp() @ x, x, use_reentrant=False).sum()  # type: ignore[no-any-return]


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "points": (lambda x: (x.sin() * 2).sum(), [floats(4, 4)]),
    "training": (
        lambda x, w: torch.softmax(x @ w, -1).square().sum(),
        [floats(4, 3, grad=True), floats(3, 5, grad=True)],
    ),
    "a gradient of one input": (lambda x, w: (x @ w).relu(), [floats(4, 3), floats(3, 5, grad=True)]),
    "an input overwritten": (overwrites, [floats(4, 4), floats(4, 4)]),
    "an intermediate overwritten": (overwrites_a_leafs_child, [floats(4, 4, grad=True)]),
    "inputs shown": (shows_inputs, [floats(4, 4), floats(3, 2)]),
    "inputs shown, training": (shows_inputs, [floats(4, 4, grad=True), floats(3, 2)]),
    "one result twice": (same_twice, [floats(4, 4, grad=True)]),
    "tensors held": (holds_tensors, [floats(4, 4, grad=True)]),
    "draws": (draws, [floats(4, 4, grad=True)]),
    "ATen": (calls_aten, [floats(4, 4, grad=True)]),
    "numbers": (gives_numbers, [floats(4, 4, grad=True)]),
    "complex": (complex_numbers, [floats(4, 4, grad=True)]),
    "half": (lambda x: (x * 3).exp().sum(0), [floats(4, 4).bfloat16()]),
    "a checkpoint": (checkpointed, [floats(4, 4, grad=True)]),
    "empty": (lambda x: x.sum() + 1, [torch.empty(0, 3)]),
    "indices": (
        lambda x, i: functional.embedding(i, x).sin(),
        [floats(6, 4, grad=True), torch.tensor([3, 0, 3])],
    ),
}


@few(2)
@pytest.mark.parametrize("name", CASES)
def test_the_second_process_finds_it(name: str) -> None:
    assert twice(*CASES[name]) == ({NOT_FOUND: 1}, {FOUND: 1})


class Norm(nn.Module):
    """Parameters, buffers, and a mode that changes what is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.norm(self.linear(x)).relu())  # type: ignore[no-any-return]


def steps(module: nn.Module, step: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    torch.manual_seed(1)
    for _ in range(3):
        optimizer.zero_grad()
        step(floats(8, 4)).square().sum().backward()
        optimizer.step()
    return {name: each.detach().clone() for name, each in module.state_dict().items()}


def test_a_module_is_trained_alike() -> None:
    torch.manual_seed(0)
    model = Norm()
    expected = steps(eager := copied([model])[0], eager)
    for said in (NOT_FOUND, FOUND):
        (mine,) = copied([model])
        fresh()
        torch.testing.assert_close(steps(mine, torch.compile(mine, backend="nbcompile")), expected)
        assert outcomes() == {said: 1}
    mine.eval()
    fresh()
    x = floats(8, 4)
    torch.testing.assert_close(torch.compile(mine, backend="nbcompile")(x), mine(x))
    assert outcomes() == {NOT_FOUND: 1}, "another mode is another graph"


def test_tangents_are_not_lost() -> None:
    """Of a graph that was found there is no ATen graph that forward-mode AD could follow."""
    function = lambda x, w: torch.softmax(x @ w, -1).sin()
    given, along = ([floats(3, 3) + n for n in range(2)] for _ in range(2))
    for said in (NOT_FOUND, FOUND):
        fresh()
        run = torch.compile(function, backend="nbcompile")
        torch.testing.assert_close(run(*given), function(*given))
        assert outcomes() == {said: 1}
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(*pair) for pair in zip(given, along, strict=True)]
            found, expected = (forward_ad.unpack_dual(each(*duals)) for each in (run, function))
            torch.testing.assert_close(found.tangent, expected.tangent)


def test_backward_twice_and_gradients_of_gradients() -> None:
    function = lambda x: (x.sin() * x).sum()
    for said in (NOT_FOUND, FOUND):
        fresh()
        x = floats(4, 4, grad=True)
        loss = torch.compile(function, backend="nbcompile")(x)
        loss.backward(retain_graph=True)
        first = x.grad.clone()
        x.grad = None
        loss.backward()
        assert torch.equal(x.grad, first) and outcomes() == {said: 1}
        y = torch.compile(function, backend="nbcompile")(x)
        with pytest.raises(RuntimeError, match=r"twice|double"):
            torch.autograd.grad(torch.autograd.grad(y, x, create_graph=True)[0].sum(), x)


def test_symbolic_sizes_keep_their_guards() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return x.sum() * 2 if x.shape[0] > 5 else torch.cat([x, y]).sin()

    for said in (NOT_FOUND, FOUND):
        fresh()
        run = torch.compile(function, backend="nbcompile", dynamic=True)
        for extent in (4, 3, 5, 9, 12):  # 9 is past a guard: another graph
            x, y = floats(extent, 3, grad=True), floats(extent + 1, 3)
            torch.testing.assert_close(run(x, y), function(x, y))
            (mine,), (eager,) = (torch.autograd.grad(f(x, y).sum(), x) for f in (run, function))
            torch.testing.assert_close(mine, eager)
        assert outcomes() == {said: 2}


@pytest.mark.nightly
def test_sizes_that_were_made_numbers_are_guarded() -> None:
    """What is supposed of a size while it is compiled holds for the second process too, or is not kept."""
    function = lambda x: x.reshape(2, -1).flip(0).cumsum(1)
    for _ in range(2):
        fresh()
        run = torch.compile(function, backend="nbcompile", dynamic=True)
        for extent in (4, 6, 10, 2):
            x = floats(extent, 3)
            torch.testing.assert_close(run(x), function(x))


@pytest.mark.nightly
def test_a_fresh_process(tmp_path: Path) -> None:
    program = """
import torch, nbcompile, sys
from torch._dynamo.utils import counters
from nbcompile.backends.nbcompile import register
register()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32))
x = torch.randn(5, 16)
def step(f):
    torch.manual_seed(1)
    model.zero_grad()
    f(x).square().mean().backward()
    return [each.grad.clone() for each in model.parameters()]
torch.testing.assert_close(step(torch.compile(model, backend="nbcompile")), step(model))
print(dict(counters["nbcompile"]), {k: v for k, v in counters["aot_autograd"].items() if "cache" in k})
print("lowered", "nbcompile.compiler.compile_graph" in sys.modules)
"""
    said = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env={**os.environ, "NBCOMPILE_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        ).stdout.splitlines()
        for _ in range(2)
    ]  # fmt: skip
    counted = "{'autograd_cache_miss': 1, 'autograd_cache_saved': 1}"
    assert said[0] == [f"{{'{NOT_FOUND}': 1}} {counted}", "lowered True"]
    assert said[1] == [f"{{'{FOUND}': 1}} {{'autograd_cache_hit': 1}}", "lowered False"]


def test_graphs_between_breaks_are_found_each() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos() * 2

    assert twice(function, [floats(4, 4, grad=True)]) == ({NOT_FOUND: 2}, {FOUND: 2})


def test_its_calls_are_as_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What AOTAutograd puts around a graph is left out where it does nothing, found or not."""
    shortened: list[bool] = []

    def short(call: Callable[..., Any], ours: list[Any]) -> Callable[..., Any]:
        result = short_call.short(call, ours)
        shortened.append(result is not call)
        return result

    monkeypatch.setattr(fx_to_aten, "short", short)
    for said in (NOT_FOUND, FOUND):
        fresh()
        run = torch.compile(lambda x: x.sin() * 2, backend="nbcompile")
        for _ in range(3):
            torch.testing.assert_close(run(x := floats(4, 4)), x.sin() * 2)
        assert outcomes() == {said: 1}
    known = torch.__version__.startswith("2.13")
    assert shortened == [known, known]
