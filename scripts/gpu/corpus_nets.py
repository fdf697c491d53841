"""Nets whose fused regions make the corpus, beside those of zoo.py: written in a few lines each, at sizes
that a GPU would see. A net's ``forward`` takes its inputs and returns a scalar loss.

They are only ever traced without memory (:mod:`region_capture`), so their weights are never made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Tensor = torch.Tensor
Spec = tuple[Any, ...]
"""One input: its extents, and a word of its type: ``float`` (as the net's), ``f32``, ``int<N``, ``bool``."""


@dataclass(frozen=True)
class Net:
    """``modes``: ``bf16`` weights, ``amp`` (float32 weights, products in bf16), or ``f32``; with ``eval:``
    before it, the forward pass alone without gradients."""

    name: str
    build: Callable[[], nn.Module]
    inputs: tuple[Spec, ...]
    modes: tuple[str, ...] = ("bf16",)


class Of(nn.Module):
    """A module of parts and a function over them."""

    def __init__(self, call: Callable[..., Tensor], **parts: Any) -> None:
        super().__init__()
        self.call = call
        for name, part in parts.items():
            if isinstance(part, torch.Tensor):
                self.register_parameter(name, nn.Parameter(part))
            else:
                setattr(self, name, part)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.call(self, *inputs)


def weight(*extents: int) -> Tensor:
    return torch.empty(extents)


def mean_square(x: Tensor) -> Tensor:
    return x.float().square().mean()


# -- sequences ---------------------------------------------------------------------------------


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def masked_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, drop: float, bias: Tensor | None = None
) -> Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    return F.dropout(torch.softmax(scores.float(), dim=-1).to(v.dtype), drop) @ v


def heads(x: Tensor, count: int) -> Tensor:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def encoder(net: Any, x: Tensor, mask: Tensor) -> Tensor:
    """Attention written out, with a mask and dropout; pre-norm; GELU."""
    y = net.norm1(x)
    q, k, v = (heads(part, 12) for part in net.qkv(y).chunk(3, dim=-1))
    x = x + F.dropout(net.out(masked_attention(q, k, v, mask, 0.1).transpose(1, 2).flatten(2)), 0.1)
    return mean_square(x + F.dropout(net.down(F.gelu(net.up(net.norm2(x)))), 0.1))


def t5(net: Any, x: Tensor, buckets: Tensor, mask: Tensor) -> Tensor:
    """Relative position bias from an embedding, RMSNorm, gated GELU."""
    y = net.norm1(x)
    q, k, v = heads(net.q(y), 12), heads(net.k(y), 12), heads(net.v(y), 12)
    bias = net.bias(buckets).permute(2, 0, 1).unsqueeze(0)
    x = x + F.dropout(net.out(masked_attention(q, k, v, mask, 0.1, bias).transpose(1, 2).flatten(2)), 0.1)
    y = net.norm2(x)
    return mean_square(x + net.down(F.dropout(F.gelu(net.gate(y), approximate="tanh") * net.up(y), 0.1)))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    one, two = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-two, one), dim=-1) * sin


def llama(net: Any, tokens: Tensor, targets: Tensor) -> Tensor:
    """A decoder layer with grouped heads, rotary positions in float32, SwiGLU, and the loss."""
    x = net.tokens(tokens)
    place = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
    rate = 500000.0 ** (-torch.arange(0, 64, 2, device=tokens.device, dtype=torch.float32) / 64)
    angle = torch.outer(place, rate).repeat(1, 2)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    y = net.norm1(x)
    q, k, v = heads(net.q(y), 32), heads(net.k(y), 8), heads(net.v(y), 8)
    q, k = rotated(q, cos, sin), rotated(k, cos, sin)
    k, v = k.repeat_interleave(4, dim=1), v.repeat_interleave(4, dim=1)
    attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + net.out(attended.transpose(1, 2).flatten(2))
    y = net.norm2(x)
    x = net.norm3(x + net.down(F.silu(net.gate(y)) * net.up(y)))
    return F.cross_entropy(net.head(x).flatten(0, 1).float(), targets.flatten())


def smoothed(net: Any, x: Tensor, tokens: Tensor, targets: Tensor) -> Tensor:
    """Label smoothing, padding ignored, with a distillation term and a z-loss."""
    logits = net.head(net.norm(x + net.tokens(tokens)))
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=0.1, ignore_index=0)
    teacher = torch.softmax(net.teacher(x), dim=-1)
    distilled = F.kl_div(torch.log_softmax(logits, dim=-1), teacher, reduction="batchmean")
    return loss + distilled + 1e-4 * torch.logsumexp(logits.float(), dim=-1).square().mean()


def mamba(net: Any, x: Tensor) -> Tensor:
    """Short causal convolution, softplus steps, and a scan in chunks as cumulative sums."""
    y, gate = net.inner(net.norm(x)).chunk(2, dim=-1)
    y = F.silu(net.conv(y.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
    step = F.softplus(net.step(y) + net.step_bias)
    decay = torch.cumsum(step.float() * -torch.exp(net.rates.float()), dim=1)
    states = torch.cumsum(torch.exp(-decay.clamp(min=-20)) * (step * y).float(), dim=1)
    y = (states * torch.exp(decay.clamp(min=-20))).to(x.dtype) + y * net.skip
    return mean_square(net.out(y * F.silu(gate)) + x)


def mixer(net: Any, x: Tensor) -> Tensor:
    """MLP-Mixer: products over places, then over channels, with transposes between."""
    x = x + net.place2(F.gelu(net.place1(net.norm1(x).transpose(1, 2)))).transpose(1, 2)
    return mean_square((x + net.channel2(F.gelu(net.channel1(net.norm2(x))))).mean(1))


def rwkv(net: Any, x: Tensor) -> Tensor:
    """Token shift, squared ReLU and sigmoid gates, group norm over heads."""
    y = net.norm(x)
    shifted = F.pad(y, (0, 0, 1, -1))
    k = torch.lerp(shifted, y, net.mix_k)
    r = torch.lerp(shifted, y, net.mix_r)
    inner = torch.relu(net.k(k)).square()
    grouped = net.groups(net.v(inner).transpose(1, 2)).transpose(1, 2)
    return mean_square(x + torch.sigmoid(net.r(r)) * grouped)


def lstm(net: Any, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
    """Four steps of an LSTM cell with layer norm."""
    for step in range(4):
        i, f, g, o = net.norm(net.x(x[:, step]) + net.h(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return mean_square(h)


def swin(net: Any, x: Tensor, mask: Tensor) -> Tensor:
    """Shifted windows: roll, partition, masked attention in windows, and back."""
    batch, side, _, width = x.shape
    y = torch.roll(net.norm1(x), (-3, -3), (1, 2)).view(batch, side // 7, 7, side // 7, 7, width)
    y = y.permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, width)
    q, k, v = (heads(part, 6) for part in net.qkv(y).chunk(3, dim=-1))
    scores = (q * 0.17) @ k.transpose(-2, -1) + net.bias
    scores = (scores.view(batch, -1, 6, 49, 49) + mask[None, :, None]).view(-1, 6, 49, 49)
    y = net.out((torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2))
    y = y.view(batch, side // 7, side // 7, 7, 7, width).permute(0, 1, 3, 2, 4, 5).reshape(x.shape)
    x = x + torch.roll(y, (3, 3), (1, 2))
    return mean_square(x + net.down(F.gelu(net.up(net.norm2(x)))))


def scaled_vit(net: Any, x: Tensor, keep: Tensor) -> Tensor:
    """Layer scale, stochastic depth, q and k normalized, squared-error head over patches."""
    q, k, v = (heads(part, 16) for part in net.qkv(net.norm1(x)).chunk(3, dim=-1))
    attended = F.scaled_dot_product_attention(net.q_norm(q), net.k_norm(k), v).transpose(1, 2).flatten(2)
    x = x + keep[:, None, None] / 0.9 * net.scale1 * net.out(attended)
    x = x + keep[:, None, None] / 0.9 * net.scale2 * net.down(
        F.silu(net.gate(net.norm2(x))) * net.up(net.norm2(x))
    )
    return mean_square(F.normalize(x, dim=-1))


def modulated(net: Any, x: Tensor, time: Tensor) -> Tensor:
    """A DiT block: shift, scale and gate from a condition, layer norms without weights."""
    shift1, scale1, gate1, shift2, scale2, gate2 = net.condition(F.silu(time))[:, None].chunk(6, dim=-1)
    y = F.layer_norm(x, x.shape[-1:]) * (1 + scale1) + shift1
    q, k, v = (heads(part, 16) for part in net.qkv(y).chunk(3, dim=-1))
    x = x + gate1 * net.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
    y = F.layer_norm(x, x.shape[-1:]) * (1 + scale2) + shift2
    return mean_square(x + gate2 * net.down(F.gelu(net.up(y), approximate="tanh")))


def routed(net: Any, x: Tensor) -> Tensor:
    """A mixture of experts, dense: router softmax, balance loss, weighted sum of experts."""
    gates = torch.softmax(net.router(x).float(), dim=-1)
    kept = torch.where(gates >= gates.amax(-1, keepdim=True) * 0.5, gates, 0.0)
    kept = kept / kept.sum(-1, keepdim=True)
    experts = torch.stack([net.down[i](F.silu(net.up[i](x))) for i in range(4)], dim=-2)
    balance = (gates.mean((0, 1)) * (kept > 0).float().mean((0, 1))).sum()
    return mean_square((experts * kept.to(x.dtype).unsqueeze(-1)).sum(-2)) + 0.01 * balance


# -- tables, graphs, losses --------------------------------------------------------------------


def dlrm(net: Any, dense: Tensor, ids: Tensor, clicked: Tensor) -> Tensor:
    """Embeddings, a bottom and a top MLP, pairwise interactions, binary cross-entropy."""
    x = torch.relu(net.bottom2(torch.relu(net.bottom1(torch.log1p(dense.abs())))))
    vectors = torch.cat([x.unsqueeze(1), net.table(ids)], dim=1)
    pairs = (vectors @ vectors.transpose(1, 2)).flatten(1)
    scores = net.top2(torch.relu(net.top1(torch.cat([x, pairs], dim=1)))).squeeze(1)
    return F.binary_cross_entropy_with_logits(scores.float(), clicked)


def graph_net(net: Any, nodes: Tensor, source: Tensor, target: Tensor, edges: Tensor) -> Tensor:
    """Message passing: gather, edge MLP, scatter-add, degree normalization, two rounds of max pooling."""
    messages = F.relu(net.edge(torch.cat([nodes[source], nodes[target], edges], dim=-1)))
    summed = torch.zeros_like(nodes).index_add(0, target, messages)
    degree = torch.zeros(nodes.shape[0], device=nodes.device).index_add(
        0, target, torch.ones_like(target, dtype=torch.float32)
    )
    nodes = net.norm(nodes + summed / degree.clamp(min=1).unsqueeze(-1).to(nodes.dtype))
    scores = torch.exp(torch.tanh((nodes[source] * nodes[target]).sum(-1).float()))
    total = torch.zeros(nodes.shape[0], device=nodes.device).scatter_add(0, target, scores)
    return mean_square(nodes) + (scores / total[target]).square().mean()


def clip(net: Any, pictures: Tensor, texts: Tensor) -> Tensor:
    """Contrastive loss both ways over one matrix: sums along both axes."""
    one, two = F.normalize(net.picture(pictures), dim=-1), F.normalize(net.text(texts), dim=-1)
    scores = net.scale.exp() * (one @ two.T)
    labels = torch.arange(scores.shape[0], device=scores.device)
    return (F.cross_entropy(scores.float(), labels) + F.cross_entropy(scores.float().T, labels)) / 2


def word_vectors(net: Any, centre: Tensor, context: Tensor, noise: Tensor) -> Tensor:
    """Skip-gram with negative sampling: gathers forward, scatters backward."""
    one, two, rest = net.centre(centre), net.context(context), net.context(noise)
    good = F.logsigmoid((one * two).sum(-1).float())
    bad = F.logsigmoid(-(rest * one.unsqueeze(1)).sum(-1).float()).sum(-1)
    return -(good + bad).mean()


def detection(net: Any, x: Tensor, boxes: Tensor, labels: Tensor) -> Tensor:
    """Focal loss and generalized IoU of dense boxes."""
    scores, found = net.scores(x).float(), torch.sigmoid(net.boxes(x).float())
    wanted = F.one_hot(labels, scores.shape[-1]).float()
    right = torch.sigmoid(scores) * wanted + (1 - torch.sigmoid(scores)) * (1 - wanted)
    focal = F.binary_cross_entropy_with_logits(scores, wanted, reduction="none") * (1 - right).square()
    low, high = torch.maximum(found[..., :2], boxes[..., :2]), torch.minimum(found[..., 2:], boxes[..., 2:])
    inside = (high - low).clamp(min=0).prod(-1)
    area = (found[..., 2:] - found[..., :2]).prod(-1) + (boxes[..., 2:] - boxes[..., :2]).prod(-1) - inside
    return focal.mean() + (1 - inside / (area.abs() + 1e-6)).mean() + F.smooth_l1_loss(found, boxes)


def optimizer_step(net: Any, gradient: Tensor, average: Tensor, squares: Tensor) -> Tensor:
    """What optimizers do, as a loss that nobody differentiates: clip by norm, Adam, and a moving average."""
    gradient = gradient * (1.0 / (gradient.float().norm() + 1e-6)).clamp(max=1.0).to(gradient.dtype)
    average = torch.lerp(average, gradient, 0.1)
    squares = squares * 0.999 + gradient * gradient * 0.001
    step = average / (squares.sqrt() + 1e-8)
    updated = net.weight * 0.9999 - 1e-3 * step * (
        net.weight.norm(dim=-1, keepdim=True) / (step.norm(dim=-1, keepdim=True) + 1e-6)
    )
    return updated.abs().amax() + updated.amax(0).sum() + mean_square(average)
