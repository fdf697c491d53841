"""Operators of our own that a graph may call: what they take and return, and their gradients.

What they do is :mod:`nbcompile.compiler.linear_cross_entropy.chunks`'s. They are defined here, apart, so that
the capture stage can put them into a graph and the lowering can name them.
"""

from __future__ import annotations

from typing import Any

import torch

NAMESPACE = "nbcompile"
_library: Any = torch.library.Library  # torch gives its methods no types
LIBRARY = _library(NAMESPACE, "FRAGMENT")  # the registrations live as long as this object

_Result = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

LIBRARY.define(
    "linear_cross_entropy(Tensor x, Tensor weight, Tensor? bias, Tensor target, int ignore_index, bool mean, "
    "float label_smoothing, int chunks, bool[3] wanted, int site) -> (Tensor, Tensor, Tensor, Tensor)"
)
LIBRARY.define("scale_gradient(Tensor gradient, Tensor by) -> Tensor")


def linear_cross_entropy() -> Any:
    """The overload ``nbcompile::linear_cross_entropy``: the loss, and its gradients at once.

    ``cross_entropy(x @ weight.T + bias, target)`` with x [rows, hidden], weight [classes, hidden], bias
    [classes] or None, all of one dtype, target int64 [rows]; ``mean`` over the rows whose target is not
    ``ignore_index``, else the sum. The rows are done in ``chunks`` parts, so that only one part's logits
    exist at a time. Returns the loss (float32 []) and its gradients by x, weight and bias, those that
    ``wanted`` names; the others are empty. ``site`` differs for each call in a graph, so that no two are
    ever merged: each call's gradients are overwritten by :func:`scale_gradient`.
    """
    return torch.ops.nbcompile.linear_cross_entropy.default


def scale_gradient() -> Any:
    """The overload ``nbcompile::scale_gradient``: ``gradient`` (any shape) times ``by`` (float32 []).

    The result may be the very memory of ``gradient``, overwritten; so nothing else may read that."""
    return torch.ops.nbcompile.scale_gradient.default


def overwrites(target: Any) -> bool:
    """Whether a call of this operator cannot be done again, because it writes over what it reads."""
    return target is scale_gradient()


def _linear_cross_entropy(*args: Any) -> _Result:
    from nbcompile.compiler.linear_cross_entropy import chunks as run

    return run.linear_cross_entropy(*args)


def _scale_gradient(gradient: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    from nbcompile.compiler.linear_cross_entropy import chunks as run

    return run.scale_gradient(gradient, by)


def _fake_linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor,
    ignore_index: int, mean: bool, label_smoothing: float, chunks: int, wanted: list[bool], site: int,
) -> _Result:  # fmt: skip
    by_x = torch.empty_like(x, memory_format=torch.contiguous_format) if wanted[0] else x.new_empty(0)
    by_weight = torch.empty_like(weight) if wanted[1] else x.new_empty(0)
    by_bias = x.new_empty(weight.shape[0] if wanted[2] else 0)
    return x.new_empty((), dtype=torch.float32), by_x, by_weight, by_bias


def _keep_gradients(ctx: Any, inputs: tuple[Any, ...], output: _Result) -> None:
    ctx.wanted = inputs[8]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[1:])


def _scaled_gradients(ctx: Any, by: torch.Tensor | None, *_: Any) -> tuple[Any, ...]:
    scale = scale_gradient()
    found = [
        scale(gradient, by) if wanted and by is not None else None
        for gradient, wanted in zip(ctx.saved_tensors, ctx.wanted, strict=True)
    ]
    return (*found, *[None] * 7)


LIBRARY.impl("linear_cross_entropy", _linear_cross_entropy, "CompositeExplicitAutograd")
LIBRARY.impl("scale_gradient", _scale_gradient, "CompositeExplicitAutograd")
torch.library.register_fake(f"{NAMESPACE}::linear_cross_entropy", _fake_linear_cross_entropy, lib=LIBRARY)
torch.library.register_fake(
    f"{NAMESPACE}::scale_gradient", lambda gradient, by: torch.empty_like(gradient), lib=LIBRARY
)
torch.library.register_autograd(
    f"{NAMESPACE}::linear_cross_entropy", _scaled_gradients, setup_context=_keep_gradients, lib=LIBRARY
)
