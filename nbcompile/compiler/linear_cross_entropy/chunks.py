"""linear + cross_entropy without the logits: what the operators of ``operator.py`` do.

The rows are done in chunks. For each, the logits go into one small buffer; one kernel computes the loss of
each row and writes the gradient over its logits; from there the gradients of the inputs are three matrix
products less one. This is the scheme of Liger Kernel's fused linear cross entropy (Hsu et al. 2024,
arXiv:2410.10989). Unlike there the chunks are few and large, so that the products stay as fast as whole
ones: the weight's gradient is read and written again for each chunk, and rounded each time.

On a GPU the kernel is :mod:`nbcompile.compiler.linear_cross_entropy.kernel`'s; on the CPU, and where Triton
is missing, torch's own operations do the same.
"""

from __future__ import annotations

import torch

from nbcompile.compiler.linear_cross_entropy import kernel

ROWS_OF_A_TILE = 128
"""Chunks are a multiple of this many rows where they are large: a tile of the matrix product."""
ALIGNED_ROWS = 4
"""Else of this many, so that a chunk's targets and losses start at multiples of 16 bytes."""
ALIGNED_CLASSES = 8
"""With another number of classes cuBLAS takes kernels for unaligned matrices, several times slower."""
PADDING = 64
"""The logits' rows start at multiples of this many elements, so that products and kernels read them in
aligned pieces, whatever the number of classes."""

_Result = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor,
    ignore_index: int, mean: bool, label_smoothing: float, chunks: int, wanted: list[bool], site: int,
) -> _Result:  # fmt: skip
    """The operator (see ``operator.py`` for shapes and dtypes).

    Raises IndexError for a target outside [0, classes) that is not ``ignore_index``, on the CPU; on a GPU
    such a row's loss is NaN. All rows ignored: the mean is NaN and the gradients are 0, as torch has it.
    """
    with torch.amp.autocast(x.device.type, enabled=False):
        return _in_chunks(
            x, weight, bias, target.contiguous(), ignore_index, mean, label_smoothing, chunks, wanted
        )


def _in_chunks(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor,
    ignore_index: int, mean: bool, label_smoothing: float, chunks: int, wanted: list[bool],
) -> _Result:  # fmt: skip
    rows, classes = x.shape[0], weight.shape[0]
    whole = weight  # with rows of zeros where products would not be aligned without
    if x.is_cuda and classes % ALIGNED_CLASSES:
        whole = torch.nn.functional.pad(weight, (0, 0, 0, -classes % PADDING))
        bias = None if bias is None else torch.nn.functional.pad(bias, (0, -classes % PADDING))
    by_x = torch.empty_like(x, memory_format=torch.contiguous_format) if wanted[0] else x.new_empty(0)
    by_weight = torch.empty_like(whole) if wanted[1] else x.new_empty(0)
    by_bias = x.new_zeros(classes if wanted[2] else 0, dtype=torch.float32)
    if not rows:
        by_weight.zero_()
    losses = x.new_empty(rows, dtype=torch.float32)
    counted = (target != ignore_index).sum() if mean else target.new_ones(())
    scale = counted.to(torch.float32).reciprocal()
    step = chunk_rows(rows, chunks)
    padded = -(-classes // PADDING) * PADDING
    memory = x.new_empty(step, padded)
    memory[:, classes:].zero_()  # products of the CPU in bfloat16 read on to the next even column
    row_losses = kernel.row_losses(x.device, x.dtype) or _row_losses
    for first in range(0, rows, step or 1):
        part = slice(first, min(first + step, rows))
        logits = memory[: part.stop - first, : whole.shape[0]]
        if bias is None:
            torch.mm(x[part], whole.t(), out=logits)
        else:
            torch.addmm(bias, x[part], whole.t(), out=logits)
        real = logits[:, :classes]
        row_losses(real, target[part], scale, losses[part], ignore_index, label_smoothing, any(wanted))
        if wanted[0]:
            torch.mm(logits, whole, out=by_x[part])
        if wanted[1] and first == 0:
            torch.mm(logits.t(), x[part], out=by_weight)
        elif wanted[1]:
            by_weight.addmm_(logits.t(), x[part])
        if wanted[2]:
            by_bias += real.sum(0, dtype=torch.float32)
    loss = losses.sum() * scale if mean else losses.sum()
    return loss, by_x, by_weight[:classes] if wanted[1] else by_weight, by_bias.to(x.dtype)


def chunk_rows(rows: int, chunks: int) -> int:
    """How many rows a chunk has (the last may have fewer); 0 without rows."""
    step = -(-rows // max(1, chunks))
    tile = ROWS_OF_A_TILE if step > 2 * ROWS_OF_A_TILE else ALIGNED_ROWS
    return min(-(-step // tile) * tile, rows)


def _row_losses(
    logits: torch.Tensor, target: torch.Tensor, scale: torch.Tensor, losses: torch.Tensor,
    ignore_index: int, label_smoothing: float, gradient: bool,
) -> None:  # fmt: skip
    """Each row's loss into ``losses``; with ``gradient``, the gradient of the scaled loss over ``logits``."""
    classes = logits.shape[1]
    counted = target != ignore_index
    outside = counted & ((target < 0) | (target >= classes))
    if target.device.type == "cpu" and bool(outside.any()):
        raise IndexError(f"Target {int(target[outside][0])} is out of bounds.")
    place = torch.where(counted & ~outside, target, 0).unsqueeze(1)
    values = logits.to(torch.float32)
    normalizer = values.logsumexp(1, keepdim=True)
    loss = normalizer - (1.0 - label_smoothing) * values.gather(1, place)
    if label_smoothing:
        loss -= label_smoothing / classes * values.sum(1, keepdim=True)
    loss = torch.where(outside, float("nan"), loss.squeeze(1))
    losses.copy_(torch.where(counted, loss, 0.0))
    if gradient:
        # a copy of its own where the logits are half as wide, the logits themselves where they are float32
        share = values.sub_(normalizer).exp_()
        share.scatter_add_(1, place, share.new_full((1, 1), label_smoothing - 1.0).expand(place.shape))
        if label_smoothing:
            share -= label_smoothing / classes
        share *= scale
        logits.copy_(share.masked_fill_(~counted.unsqueeze(1), 0.0))


def scale_gradient(gradient: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """The operator: in the memory of ``gradient`` unless that may be needed once more (``retain_graph``)
    or its address must not depend on who calls (while a CUDA graph is recorded)."""
    recorded = gradient.is_cuda and torch.cuda.is_current_stream_capturing()
    in_place = not (_kept_for_later() or recorded)
    result = gradient if in_place else torch.empty_like(gradient)
    run = kernel.scaling(gradient.device, gradient.dtype, in_place=in_place) if _is_dense(gradient) else None
    if run is None:
        return result.copy_(gradient.to(torch.float32) * by)
    run(result, gradient, by)
    return result


def _kept_for_later() -> bool:
    """Whether the backward pass that is going on keeps its saved tensors; True where nobody can tell."""
    asked = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return bool(asked()) if asked is not None else True


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill one piece of memory, in whatever order."""
    return tensor.is_contiguous() or (tensor.dim() == 2 and tensor.t().is_contiguous())
