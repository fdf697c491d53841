"""Operators that torch has whole for speed, and for which it has no rewrite: in terms of smaller ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from nbcompile.backends.xla.registry import overload
from nbcompile.compiler.capture.decompositions import Table

aten = torch.ops.aten
Tensor = torch.Tensor

# Operators of lists of tensors, which optimizers use; those of one tensor are named after them.
_LISTS = (
    "add.Scalar add.List add.ScalarList add.Tensor sub.Scalar sub.List sub.ScalarList mul.Scalar mul.List "
    "mul.ScalarList mul.Tensor div.Scalar div.List div.ScalarList div.Tensor neg sqrt rsqrt reciprocal abs "
    "exp sign maximum.List minimum.List lerp.Scalar lerp.List addcmul.Scalar addcmul.ScalarList "
    "addcdiv.Scalar addcdiv.ScalarList pow.Scalar"
).split()


def composites() -> Table:
    """The rewrites of those that this torch has."""
    named: dict[str, Callable[..., Any]] = {"_transformer_encoder_layer_fwd": _encoder_layer}
    for name in _LISTS:
        named[f"_foreach_{name}"] = partial(_each, getattr(aten, name.partition(".")[0]))
    return {target: how for name, how in named.items() if (target := overload(name)) is not None}


def _each(operator: Any, first: Sequence[Tensor], *others: Any, **options: Any) -> list[Tensor]:
    """``operator`` of the first items, of the second, ...; what is no list is the same for all. What follows
    three tensors is the factor ``value``."""
    made = []
    for place in range(len(first)):
        given = [other[place] if isinstance(other, list | tuple) else other for other in others]
        if operator in (aten.addcmul, aten.addcdiv) and len(given) == 3:
            options["value"] = given.pop()
        made.append(operator(first[place], *given, **options))
    return made


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
