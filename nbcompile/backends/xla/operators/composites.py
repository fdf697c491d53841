"""Operators that torch has whole for speed, and for which it has no rewrite: in terms of smaller ones."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from nbcompile.backends.xla.registry import overload
from nbcompile.compiler.capture.decompositions import Table
from nbcompile.compiler.capture.lists_of_tensors import by_place

aten = torch.ops.aten
Tensor = torch.Tensor


def composites() -> Table:
    """The rewrites of those that this torch has."""
    found: Table = dict(by_place())
    if (target := overload("_transformer_encoder_layer_fwd")) is not None:
        found[target] = _encoder_layer
    return found


def _encoder_layer(
    x: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor,
    proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Tensor,
    norm_bias_1: Tensor, norm_weight_2: Tensor, norm_bias_2: Tensor, ffn_weight_1: Tensor,
    ffn_bias_1: Tensor, ffn_weight_2: Tensor, ffn_bias_2: Tensor, mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:  # fmt: skip
    """What nn.TransformerEncoderLayer calls in evaluation, of a batch first."""

    def first_norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second_norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attention(x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = F.linear(x, qkv_weight, qkv_bias).view(batch, length, 3, num_heads, embed_dim // num_heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-1, -2) / math.sqrt(embed_dim // num_heads)
        if mask is not None:  # type 1 says for each batch which keys to leave out
            left_out = (mask[:, None, None, :] if mask_type == 1 else mask).to(torch.bool)
            scores = scores.masked_fill(left_out, float("-inf"))
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, embed_dim)
        return F.linear(mixed, proj_weight, proj_bias)

    def feed_forward(x: Tensor) -> Tensor:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = x + attention(first_norm(x))
        return x + feed_forward(second_norm(x))
    x = first_norm(x + attention(x))
    return second_norm(x + feed_forward(x))
