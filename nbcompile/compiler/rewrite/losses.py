"""Losses and their gradients, rewritten as ATen's kernels compute them: torch's own rewrites lose a NaN, make
one where a gradient is infinite, or take what is no probability for one."""

from __future__ import annotations

import torch
from torch._decomp import decompositions
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


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _MEAN
) -> Tensor:
    """With the check of ATen's kernel on the CPU, which finds a sigmoid that was forgotten. (On a GPU it ends
    the process's use of that.)"""
    if input.device.type == "cpu":
        whole = ((input >= 0) & (input <= 1)).all()
        torch.ops.aten._assert_async.msg(whole, "all elements of input should be between 0 and 1")
    made: Tensor = decompositions.binary_cross_entropy(input, target, weight, reduction)
    return made
