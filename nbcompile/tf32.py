"""How torch is set to multiply float32 matrices and images: settings of the whole process, of which there are
two generations. Those of the older one raise where the newer one has said different things of different parts
(https://pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices)."""

from __future__ import annotations

from typing import Any

import torch

MIXED = "mixed"
"""What the older setting of products cannot name."""


def products() -> str:
    """``torch.get_float32_matmul_precision()``, or :data:`MIXED`."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return MIXED


def set_products(precision: str) -> None:
    """Set what :func:`products` told; a mixture stays as it is."""
    if precision != MIXED:
        torch.set_float32_matmul_precision(precision)


def products_on_cuda() -> bool:
    """Whether products of float32 matrices may be of TF32 numbers on a GPU."""
    matmul: Any = torch.backends.cuda.matmul
    setting = getattr(matmul, "fp32_precision", None)
    return bool(matmul.allow_tf32) if setting is None else setting == "tf32"


def convolutions_on_cuda() -> bool:
    """Whether cuDNN's convolutions of float32 images may be of TF32 numbers."""
    cudnn: Any = torch.backends.cudnn
    try:
        return bool(cudnn.allow_tf32)
    except RuntimeError:  # cuDNN's recurrent layers are set otherwise
        return bool(cudnn.conv.fp32_precision == "tf32")
