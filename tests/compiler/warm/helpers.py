"""A program compiled as two processes would: Dynamo forgets all it knows between them, the disk keeps its
own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_leaves, tree_map

from nbcompile.backends.nbcompile import register

FOUND, NOT_FOUND = "whole graph found", "whole graph not found"


def fresh() -> None:
    """As a process that has compiled nothing."""
    register()
    torch._dynamo.reset()
    counters.clear()


def outcomes() -> dict[str, int]:
    """What has become of the graphs since :func:`fresh`."""
    return dict(counters["nbcompile"])


def copied(inputs: Sequence[Any]) -> list[Any]:
    """Inputs with values, memory and gradients of their own, that share memory where the given ones do."""
    return copy.deepcopy(list(inputs))


def run(function: Callable[..., Any], inputs: Sequence[Any], seed: int = 0) -> dict[str, Any]:
    """All that a call leaves: its results, their strides, the inputs after it, gradients, the generator."""
    torch.manual_seed(seed)
    results = function(*inputs)
    tensors = [each for each in tree_leaves(results) if isinstance(each, torch.Tensor)]
    differentiable = [each for each in tensors if each.requires_grad]
    if differentiable:
        sum(each.square().sum() if each.is_floating_point() else 0 for each in differentiable).backward()
    detached = lambda each: each.detach() if isinstance(each, torch.Tensor) else each
    return {
        "results": tree_map(detached, results),
        "strides": [each.stride() for each in tensors],
        "inputs": tree_map(detached, list(inputs)),
        "gradients": [each.grad for each in tree_leaves(list(inputs)) if isinstance(each, torch.Tensor)],
        "generator": torch.get_rng_state(),
        "shown": [_shows(each, inputs) for each in tensors],
        "is_view": [each._is_view() for each in tensors],
    }


def _shows(result: torch.Tensor, inputs: Sequence[Any]) -> list[bool]:
    given = [each for each in tree_leaves(list(inputs)) if isinstance(each, torch.Tensor)]
    return [each.untyped_storage()._cdata == result.untyped_storage()._cdata for each in given]


def compiled(function: Callable[..., Any], inputs: Sequence[Any], **how: Any) -> tuple[dict[str, int], Any]:
    """Compile ``function`` as a fresh process does and hold what a call leaves to eager's; what became of its
    graphs, and what the call left."""
    expected = run(function, copied(inputs))
    fresh()
    found = run(torch.compile(function, backend="nbcompile", **how), copied(inputs))
    said = outcomes()
    for name in expected.keys() - {"is_view"}:  # of something within the graph, that is for a compiler to say
        torch.testing.assert_close(
            found[name], expected[name], atol=2e-2, rtol=2e-2, msg=lambda text, name=name: f"{name}: {text}"
        )
    return said, found


def twice(
    function: Callable[..., Any], inputs: Sequence[Any], **how: Any
) -> tuple[dict[str, int], dict[str, int]]:
    """What became of the graphs of ``function`` in a first and in a second process, which do the very
    same."""
    (first, one), (second, another) = (compiled(function, inputs, **how) for _ in range(2))
    torch.testing.assert_close(another, one, atol=0, rtol=0)
    return first, second
