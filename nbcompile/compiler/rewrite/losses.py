"""Gradients of losses, rewritten as ATen's kernels compute them: torch's own rewrites lose a NaN, or make one
where a gradient is infinite."""

from __future__ import annotations

import torch
from torch._decomp.decompositions import pw_cast_for_opmath

Tensor = torch.Tensor
_MEAN = 1  # of the ways of reducing, as ATen numbers them


@pw_cast_for_opmath
def smooth_l1_loss_backward(
    grad: Tensor, input: Tensor, target: Tensor, reduction: int, beta: float
) -> Tensor:
    """torch's rewrite asks whether the difference is small, and takes the sign of any other: 0 of NaN."""
    grad = grad * (1.0 / input.numel()) if reduction == _MEAN else grad
    off = input - target
    return torch.where(off.abs() >= beta, grad * torch.sign(off), grad * off / beta)


def nll_loss_backward(
    grad: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """torch's rewrite multiplies by 0 at the classes that are not the target: at an infinite gradient all of
    them become NaN."""
    dim = 0 if input.dim() < 2 else 1
    if reduction == _MEAN:
        grad = grad / total_weight
    if input.dim() == 1 and target.dim():
        target = target[0]  # the kernel reads no more
    target = target.unsqueeze(dim)
    counts = target != ignore_index
    chosen = torch.zeros_like(input, dtype=torch.bool)
    chosen = torch.scatter(chosen, dim, torch.where(counts, target, 0), True)
    if input.dim() > grad.dim() > 0:
        grad = grad.unsqueeze(dim)
    if weight is not None:
        grad = grad * weight.reshape([-1 if at == dim else 1 for at in range(input.dim())])
    return torch.where(chosen & counts, -grad, 0)
