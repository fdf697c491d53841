"""``multilabel_margin_loss``, which torch traces as another function than its kernels are.

A row's classes are listed up to a -1, and eager sums over those that are listed. The rewrite that AOTAutograd
takes for it in the way of autograd, whatever its table says (``aot_eager`` and Inductor too, torch 2.11 to
2.13), adds class 0 once for each place of the row from the -1 on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from nbcompile.compiler.capture.lost.calls import put_in_place_of


def as_the_kernel_does(module: fx.GraphModule) -> int:
    """Put ours in place of each in a captured graph and the graphs within it; how many there were."""
    return put_in_place_of(module, F.multilabel_margin_loss, multilabel_margin_loss)


def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Tensor:
    """What eager computes: a NaN exceeds no margin, and what just keeps to it has no gradient."""
    if input.dim() not in (1, 2) or input.shape != target.shape or input.shape[-1] == 0:
        return F.multilabel_margin_loss(input, target, size_average, reduce, reduction)  # which refuses it
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
    if torch.is_autocast_enabled(input.device.type) and input.dtype != torch.float64:
        input = input.float()
    scores, classes = (each if each.dim() == 2 else each.unsqueeze(0) for each in (input, target))
    places = torch.arange(scores.shape[1], device=target.device)
    ends = torch.where(classes == -1, places, scores.shape[1]).amin(1, keepdim=True)
    listed = places < ends
    of_listed = scores.gather(1, torch.where(listed, classes, 0))
    is_listed = (places == torch.where(listed, classes, -1).unsqueeze(2)).any(1)
    over = 1 - of_listed.unsqueeze(2) + scores.unsqueeze(1)  # row, listed class, any class
    counts = listed.unsqueeze(2) & ~is_listed.unsqueeze(1) & (over > 0)
    each: Tensor = torch.where(counts, over, 0).sum((1, 2)) / scores.shape[1]
    if reduction == "none":
        return each.reshape(input.shape[:-1])
    return each.mean() if reduction == "mean" else each.sum()
