"""Masked attention on a GPU goes where eager would send it.

``scaled_dot_product_attention`` picks a kernel by its arguments. Asked with fake tensors, as every compiler
asks, torch answers that only the plain products will do for a masked call (they store the scores, and take
two to three times as long); asked with tensors of the same shapes and strides on the device, it names the
fused kernel that eager runs (with the mask as a dense bias). So it is asked here, before AOTAutograd, and
the call is made by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.nn import functional

CUDNN = 3  # torch.nn.attention.SDPBackend.CUDNN_ATTENTION
_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def fused_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    """``scaled_dot_product_attention`` by cuDNN; the mask as what is added to the scores. ``enable_gqa`` is
    false (others are left as they are)."""
    assert attn_mask is not None and not enable_gqa
    bias = attn_mask
    if bias.dtype == torch.bool:
        bias = torch.where(bias, 0.0, float("-inf")).to(query.dtype)
    if bias.stride(-1) != 1:  # one row of a mask, shown for every query, is not what the kernel reads
        bias = bias.contiguous()
    wants_gradient = torch.is_grad_enabled() and any(item.requires_grad for item in (query, key, value))
    result: torch.Tensor = torch.ops.aten._scaled_dot_product_cudnn_attention(
        query, key, value, bias, wants_gradient, dropout_p, is_causal, False, scale=scale
    )[0]
    return result


def choose_attention(module: fx.GraphModule) -> int:
    """Rewrite, in place, the masked attention calls that cuDNN's kernel is for; returns how many."""
    changed = 0
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in _TARGETS and _is_for_cudnn(node):
            node.target = fused_attention
            changed += 1
    if changed:
        module.recompile()
    return changed


_TARGETS = (functional.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention)


def _is_for_cudnn(node: fx.Node) -> bool:
    given: dict[str, Any] = dict(zip(_PARAMETERS, node.args, strict=False)) | dict(node.kwargs)
    if given.get("attn_mask") is None or given.get("enable_gqa"):
        return False
    tensors: list[Any] = [_like(given.get(name)) for name in _PARAMETERS[:4]]
    numbers: list[Any] = [given.get("dropout_p", 0.0), given.get("is_causal", False), given.get("scale")]
    if any(item is None for item in tensors) or any(isinstance(item, fx.Node) for item in numbers):
        return False
    query, key, value, mask = tensors
    if mask.requires_grad:  # the kernel has no gradient for it
        return False
    try:
        with unset_fake_temporarily():
            bias = torch.empty(mask.shape, dtype=query.dtype, device=query.device)
            choice = torch._fused_sdp_choice(
                query, key, value, bias, numbers[0], numbers[1], scale=numbers[2]
            )
    except RuntimeError:  # not a call that a kernel takes: eager will say so better
        return False
    return int(choice) == CUDNN


def _like(argument: Any) -> torch.Tensor | None:
    """A tensor on the device as the argument will be; None if that is not known, or not on a GPU."""
    value = argument.meta.get("example_value") if isinstance(argument, fx.Node) else None
    if not isinstance(value, torch.Tensor) or value.device.type != "cuda":
        return None
    sizes: Sequence[Any] = (*value.shape, *value.stride())
    if not all(isinstance(size, int) for size in sizes):
        return None
    with unset_fake_temporarily():
        shape, strides = tuple(value.shape), tuple(value.stride())
        made = torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)
        return made.requires_grad_(value.requires_grad)
