"""Tensors between torch and jax, by DLPack: memory is shared wherever its order allows it.

jax takes an array to be in row-major order, and torch's strides say what the order is. So a dense tensor is
handed over as its memory lies, with its axes permuted, and XLA's program begins by permuting them back; a
result leaves in the order that its strides are to have. Only what is not dense (a slice with gaps, an
expanded tensor) is copied.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.utils.dlpack

from nbcompile.errors import BackendError

Order = tuple[int, ...]
"""The axes of a tensor from the outermost in memory to the innermost."""


def memory_order(strides: Sequence[int], shape: Sequence[int]) -> Order:
    """The axes by stride, the largest first; those of one element stay where they are among the others."""
    effective = list(strides)
    for axis in range(len(shape) - 2, -1, -1):
        if shape[axis] == 1:
            effective[axis] = effective[axis + 1]
    return tuple(sorted(range(len(shape)), key=lambda axis: (-effective[axis], axis)))


def inverse(order: Order) -> Order:
    """The permutation that undoes ``order``."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def to_jax(tensor: torch.Tensor, order: Order, device: Any) -> Any:
    """The memory of ``tensor`` as a jax array whose axes are in ``order``."""
    import jax

    given = tensor.detach()
    if given.is_conj() or given.is_neg():
        given = given.resolve_conj().resolve_neg()
    given = given.permute(order).contiguous()
    if not given.numel() or (given.device.type == "cpu") != (device.platform == "cpu"):
        return jax.device_put(_as_numpy(given.cpu()), device)
    return jax.dlpack.from_dlpack(given)


def _as_numpy(tensor: torch.Tensor) -> Any:
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def to_torch(array: Any, order: Order, like: torch.Tensor) -> torch.Tensor:
    """A jax array with axes in ``order`` as a tensor of the strides of ``like`` (a fake one). It owns the
    array's memory, which nothing else may see."""
    made = torch.utils.dlpack.from_dlpack(array)
    made = made.permute(inverse(order))
    if made.is_contiguous() and like.is_contiguous():
        return made
    return with_strides(made, like)


def with_strides(made: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """``made`` with the strides of ``like`` where these say something of its memory: an axis that is
    expanded, and gaps, are made anew. Symbolic strides are left to the order of memory."""
    wanted = like.stride()
    if not all(type(step) is int for step in wanted):
        return made
    for axis, step in enumerate(wanted):
        if step == 0 and made.shape[axis] > 1:
            made = made.narrow(axis, 0, 1).expand(made.shape)
    differs = any(a != b for a, b, n in zip(made.stride(), wanted, made.shape, strict=True) if n > 1)
    if not differs or 0 in wanted or not made.numel():
        return made
    return torch.empty_strided(made.shape, wanted, dtype=made.dtype, device=made.device).copy_(made)


def device_for(device: torch.device) -> Any:
    """jax's device that a torch device is. BackendError if this jax has none of that kind."""
    if device.type == "cuda":
        # XLA would take three quarters of the GPU's memory for itself at once, beside torch's own pool.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    try:
        return jax.devices(device.type)[device.index or 0]
    except (RuntimeError, IndexError) as error:
        raise BackendError(
            f"jax has no device like {device}.",
            advice="Run: pip install 'jax[cuda12]'" if device.type == "cuda" else "",
        ) from error


@contextlib.contextmanager
def wide_types() -> Iterator[None]:
    """64-bit types, which torch's programs are full of, whatever the user's jax is set to outside."""
    import jax

    # It was jax.experimental's before jax 0.8.
    home = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    with home.enable_x64(True):
        yield
