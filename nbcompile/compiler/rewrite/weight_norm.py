"""The gradient of ``weight_norm``, of which torch rewrites the forward only."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def weight_norm_interface_backward(
    grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Of ``v`` and of ``g``, where the weight is ``v * g / norms`` and ``norms`` are those of ``v`` along all
    dimensions but ``dim``."""
    if {grad.dtype, g.dtype, norms.dtype} != {v.dtype}:
        return NotImplemented  # type: ignore[no-any-return]  # the op stays as it is
    others = [at for at in range(v.dim()) if at != dim % v.dim()]
    along = (grad * v).sum(others, keepdim=True)
    scale = g / norms
    grad_v = scale * grad - scale * along / (norms * norms) * v
    return grad_v.contiguous(), (along / norms).contiguous()
