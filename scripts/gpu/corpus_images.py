"""The corpus's image nets, and the list of all nets: ``NETS``."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from corpus_nets import (
    Net,
    Of,
    RMSNorm,
    Tensor,
    clip,
    detection,
    dlrm,
    encoder,
    graph_net,
    llama,
    lstm,
    mamba,
    mean_square,
    mixer,
    modulated,
    optimizer_step,
    routed,
    rwkv,
    scaled_vit,
    smoothed,
    swin,
    t5,
    weight,
    word_vectors,
)
from torch import nn


def resnet(net: Any, x: Tensor, labels: Tensor) -> Tensor:
    """Stem, a bottleneck with and one without a change of size, pooling, cross-entropy."""
    x = F.max_pool2d(torch.relu(net.norm0(net.conv0(x))), 3, 2, 1)
    for block in net.blocks:
        y = torch.relu(block.norm1(block.conv1(x)))
        y = torch.relu(block.norm2(block.conv2(y)))
        x = torch.relu(block.norm3(block.conv3(y)) + (block.short_norm(block.short(x)) if block.short else x))
    return F.cross_entropy(net.head(x.mean((2, 3))).float(), labels)


def bottleneck(width: int, inner: int, out: int, stride: int) -> nn.Module:
    block = Of(
        lambda *_: torch.zeros(()),
        conv1=nn.Conv2d(width, inner, 1, bias=False), norm1=nn.BatchNorm2d(inner),
        conv2=nn.Conv2d(inner, inner, 3, stride, 1, bias=False), norm2=nn.BatchNorm2d(inner),
        conv3=nn.Conv2d(inner, out, 1, bias=False), norm3=nn.BatchNorm2d(out),
    )  # fmt: skip
    changes = stride > 1 or width != out
    block.short = nn.Conv2d(width, out, 1, stride, bias=False) if changes else None
    block.short_norm = nn.BatchNorm2d(out) if changes else None
    return block


def mobile(net: Any, x: Tensor) -> Tensor:
    """Inverted bottleneck: depthwise convolution, hard swish, squeeze and excite."""
    y = F.hardswish(net.norm1(net.expand(x)))
    y = F.hardswish(net.norm2(net.depth(y)))
    squeezed = F.hardsigmoid(net.se2(torch.relu(net.se1(y.mean((2, 3), keepdim=True)))))
    return mean_square(x + net.norm3(net.project(y * squeezed)))


def convnext(net: Any, x: Tensor) -> Tensor:
    """Depthwise convolution, a permute to channels last, layer norm, and back."""
    y = net.norm(net.depth(x).permute(0, 2, 3, 1))
    y = (net.down(F.gelu(net.up(y))) * net.scale).permute(0, 3, 1, 2)
    return mean_square(net.last_norm((x + y).mean((2, 3))))


def unet(net: Any, x: Tensor, time: Tensor, noise: Tensor) -> Tensor:
    """A level of a diffusion UNet: group norm, SiLU, time embedding, upsampling, a skip by cat."""
    skip = net.conv1(F.silu(net.norm1(x)))
    y = net.conv2(F.dropout(F.silu(net.norm2(skip + net.time(F.silu(time))[:, :, None, None])), 0.1)) + x
    low = F.interpolate(net.shrink(y), scale_factor=2, mode="nearest")
    y = net.out(F.silu(net.norm3(torch.cat([low, skip], dim=1))))
    return F.mse_loss(y.float(), noise.float())


def vae(net: Any, x: Tensor) -> Tensor:
    """Group norm, reparametrization, KL divergence, L1 reconstruction."""
    mean, logvar = net.encode(F.silu(net.norm1(net.conv1(x)))).chunk(2, dim=1)
    logvar = logvar.float().clamp(-30, 20)
    z = mean + torch.exp(0.5 * logvar).to(mean.dtype) * torch.randn_like(mean)
    y = net.out(F.silu(net.norm2(net.decode(z))))
    divergence = 0.5 * (mean.float().square() + logvar.exp() - 1 - logvar).sum((1, 2, 3)).mean()
    return F.l1_loss(y.float(), x.float()) + 1e-6 * divergence


def style(net: Any, x: Tensor, styles: Tensor) -> Tensor:
    """Instance norm, adaptive scale and shift, reflection padding, leaky ReLU, Gram matrix."""
    scale, shift = net.style(styles)[:, :, None, None].chunk(2, dim=1)
    y = F.leaky_relu(net.norm(net.conv1(F.pad(x, (1, 1, 1, 1), mode="reflect"))) * (1 + scale) + shift, 0.2)
    flat = (net.conv2(y) + x).flatten(2)
    return mean_square(flat @ flat.transpose(1, 2) / flat.shape[-1]) + (x[..., 1:] - x[..., :-1]).abs().mean()


def generator(net: Any, z: Tensor) -> Tensor:
    """Transposed convolutions with batch norm; a discriminator; the hinge loss."""
    x = torch.relu(net.norm1(net.up1(z)))
    picture = torch.tanh(net.up2(x))
    scores = net.d2(F.leaky_relu(net.norm2(net.d1(picture)), 0.2))
    return torch.relu(1 - scores.float()).mean()


def super_resolution(net: Any, x: Tensor, wanted: Tensor) -> Tensor:
    """PReLU, residual scaling, pixel shuffle, Charbonnier loss."""
    y = x + 0.1 * net.conv2(net.prelu(net.conv1(x)))
    return torch.sqrt((F.pixel_shuffle(net.out(y), 2).float() - wanted.float()).square() + 1e-6).mean()


def segmentation(net: Any, x: Tensor, labels: Tensor) -> Tensor:
    """Per-pixel cross-entropy over channels, a Dice term, bilinear upsampling."""
    scores = F.interpolate(net.head(torch.relu(net.norm(net.conv(x)))), scale_factor=4, mode="bilinear")
    chances = torch.softmax(scores.float(), dim=1)
    wanted = F.one_hot(labels, scores.shape[1]).permute(0, 3, 1, 2).float()
    dice = 2 * (chances * wanted).sum((2, 3)) / (chances.sum((2, 3)) + wanted.sum((2, 3)) + 1)
    return F.cross_entropy(scores.float(), labels) + 1 - dice.mean()


def wavenet(net: Any, x: Tensor) -> Tensor:
    """Gated dilated convolutions, weights normalized, skips summed."""
    total = torch.zeros_like(x)
    for layer in range(2):
        kernel = net.v[layer] * (net.g[layer] / net.v[layer].norm(dim=(1, 2), keepdim=True))
        tanh, gate = F.conv1d(x, kernel, padding=2**layer, dilation=2**layer).chunk(2, dim=1)
        y = net.mix[layer](torch.tanh(tanh) * torch.sigmoid(gate))
        x, total = (x + y) * 0.7071, total + y
    return mean_square(total)


def speech(net: Any, x: Tensor, lengths: Tensor) -> Tensor:
    """A conformer's convolution module: GLU, depthwise convolution, batch norm over time, masked mean."""
    y = F.glu(net.inner(net.norm(x)), dim=-1).transpose(1, 2)
    y = F.silu(net.batch_norm(net.depth(y))).transpose(1, 2)
    x = x + F.dropout(net.out(y), 0.1)
    seen = torch.arange(x.shape[1], device=x.device)[None] < lengths[:, None]
    pooled = (x * seen[..., None]).sum(1) / lengths[:, None]
    return mean_square(pooled) + x.float().var(dim=1).mean()


def batch_norm_mlp(net: Any, x: Tensor, labels: Tensor) -> Tensor:
    """Batch norm over rows, dropout, log-softmax, mean of classes."""
    x = F.dropout(torch.relu(net.norm1(net.first(x))), 0.2)
    return F.nll_loss(F.log_softmax(net.last(F.elu(net.norm2(net.second(x)))).float(), dim=-1), labels)


L, C, N = nn.Linear, nn.Conv2d, nn.LayerNorm
FLOAT, F32, BOOL = "float", "f32", "bool"


def _transformer(width: int, inner: int, **more: Any) -> dict[str, Any]:
    return {"norm1": N(width), "norm2": N(width), "qkv": L(width, 3 * width), "out": L(width, width),
            "up": L(width, inner), "down": L(inner, width), **more}  # fmt: skip


NETS = (
    Net("encoder", lambda: Of(encoder, **_transformer(768, 3072)),
        ((16, 512, 768, FLOAT), (16, 1, 1, 512, BOOL)), ("bf16", "amp", "f32")),
    Net("t5", lambda: Of(t5, norm1=RMSNorm(768), norm2=RMSNorm(768), q=L(768, 768), k=L(768, 768),
        v=L(768, 768), out=L(768, 768), bias=nn.Embedding(32, 12), gate=L(768, 2048), up=L(768, 2048),
        down=L(2048, 768)),
        ((16, 512, 768, FLOAT), (512, 512, "int<32"), (16, 1, 1, 512, BOOL)), ("bf16", "amp")),
    Net("llama", lambda: Of(llama, tokens=nn.Embedding(32000, 2048), norm1=RMSNorm(2048),
        norm2=RMSNorm(2048), norm3=RMSNorm(2048), q=L(2048, 2048, False), k=L(2048, 512, False),
        v=L(2048, 512, False), out=L(2048, 2048, False), gate=L(2048, 8192, False),
        up=L(2048, 8192, False), down=L(8192, 2048, False), head=L(2048, 32000, False)),
        ((4, 2048, "int<32000"), (4, 2048, "int<32000")), ("bf16", "amp", "eval:bf16")),
    Net("smoothed losses", lambda: Of(smoothed, tokens=nn.Embedding(32000, 512), norm=N(512),
        head=L(512, 32000), teacher=L(512, 32000)),
        ((8, 256, 512, FLOAT), (8, 256, "int<32000"), (8, 256, "int<32000")), ("bf16", "f32")),
    Net("mamba", lambda: Of(mamba, norm=RMSNorm(1024), inner=L(1024, 4096),
        conv=nn.Conv1d(2048, 2048, 4, padding=3, groups=2048), step=L(2048, 2048), step_bias=weight(2048),
        rates=weight(2048), skip=weight(2048), out=L(2048, 1024)),
        ((8, 1024, 1024, FLOAT),), ("bf16", "f32")),
    Net("mixer", lambda: Of(mixer, norm1=N(768), norm2=N(768), place1=L(196, 384), place2=L(384, 196),
        channel1=L(768, 3072), channel2=L(3072, 768)), ((128, 196, 768, FLOAT),), ("bf16", "f32")),
    Net("rwkv", lambda: Of(rwkv, norm=N(1024), mix_k=weight(1024), mix_r=weight(1024), k=L(1024, 4096),
        v=L(4096, 1024), r=L(1024, 1024), groups=nn.GroupNorm(16, 1024)),
        ((16, 1024, 1024, FLOAT),), ("bf16",)),
    Net("lstm", lambda: Of(lstm, x=L(1024, 4096), h=L(1024, 4096), norm=N(4096)),
        ((4096, 4, 1024, FLOAT), (4096, 1024, FLOAT), (4096, 1024, FLOAT)), ("f32", "amp")),
    Net("swin", lambda: Of(swin, **_transformer(192, 768, bias=weight(6, 49, 49))),
        ((64, 28, 28, 192, FLOAT), (16, 49, 49, FLOAT)), ("bf16", "amp")),
    Net("scaled vit", lambda: Of(scaled_vit, **_transformer(1024, 2816, gate=L(1024, 2816), q_norm=N(64),
        k_norm=N(64), scale1=weight(1024), scale2=weight(1024))),
        ((32, 256, 1024, FLOAT), (32, FLOAT)), ("bf16", "f32")),
    Net("dit", lambda: Of(modulated, **_transformer(1152, 4608, condition=L(1152, 6 * 1152))),
        ((32, 256, 1152, FLOAT), (32, 1152, FLOAT)), ("bf16", "amp", "eval:bf16")),
    Net("experts", lambda: Of(routed, router=L(1024, 4), up=nn.ModuleList(L(1024, 2048) for _ in range(4)),
        down=nn.ModuleList(L(2048, 1024) for _ in range(4))), ((8, 1024, 1024, FLOAT),), ("bf16",)),
    Net("dlrm", lambda: Of(dlrm, bottom1=L(13, 512), bottom2=L(512, 64), table=nn.Embedding(1_000_000, 64),
        top1=L(64 + 27 * 27, 1024), top2=L(1024, 1)),
        ((16384, 13, FLOAT), (16384, 26, "int<1000000"), (16384, F32)), ("f32", "bf16")),
    Net("graph net", lambda: Of(graph_net, edge=L(272, 128), norm=N(128)),
        ((50_000, 128, FLOAT), (400_000, "int<50000"), (400_000, "int<50000"), (400_000, 16, FLOAT)),
        ("f32", "bf16")),
    Net("clip", lambda: Of(clip, picture=L(1024, 512), text=L(768, 512), scale=weight(1)),
        ((8192, 1024, FLOAT), (8192, 768, FLOAT)), ("bf16",)),
    Net("word vectors", lambda: Of(word_vectors, centre=nn.Embedding(400_000, 256),
        context=nn.Embedding(400_000, 256)),
        ((65536, "int<400000"), (65536, "int<400000"), (65536, 5, "int<400000")), ("f32",)),
    Net("detection", lambda: Of(detection, scores=L(256, 80), boxes=L(256, 4)),
        ((16, 8400, 256, FLOAT), (16, 8400, 4, F32), (16, 8400, "int<80")), ("amp",)),
    Net("optimizers", lambda: Of(optimizer_step, weight=weight(4096, 4096)),
        ((4096, 4096, FLOAT), (4096, 4096, FLOAT), (4096, 4096, FLOAT)), ("eval:f32", "eval:bf16")),
    Net("resnet", lambda: Of(resnet, conv0=C(3, 64, 7, 2, 3, bias=False), norm0=nn.BatchNorm2d(64),
        blocks=nn.ModuleList([bottleneck(64, 64, 256, 1), bottleneck(256, 64, 256, 1),
                              bottleneck(256, 128, 512, 2)]), head=L(512, 1000)),
        ((64, 3, 224, 224, FLOAT), (64, "int<1000")), ("bf16", "amp", "f32", "eval:bf16", "last:bf16")),
    Net("mobile", lambda: Of(mobile, expand=C(96, 384, 1), norm1=nn.BatchNorm2d(384),
        depth=C(384, 384, 5, 1, 2, groups=384), norm2=nn.BatchNorm2d(384), se1=C(384, 96, 1),
        se2=C(96, 384, 1), project=C(384, 96, 1), norm3=nn.BatchNorm2d(96)),
        ((128, 96, 28, 28, FLOAT),), ("bf16", "eval:bf16", "last:bf16", "amp")),
    Net("convnext", lambda: Of(convnext, depth=C(192, 192, 7, 1, 3, groups=192), norm=N(192), up=L(192, 768),
        down=L(768, 192), scale=weight(192), last_norm=N(192)),
        ((64, 192, 28, 28, FLOAT),), ("bf16", "amp", "f32", "last:bf16")),
    Net("unet", lambda: Of(unet, norm1=nn.GroupNorm(32, 128), conv1=C(128, 128, 3, 1, 1),
        norm2=nn.GroupNorm(32, 128), conv2=C(128, 128, 3, 1, 1), time=L(512, 128),
        shrink=C(128, 128, 3, 2, 1), norm3=nn.GroupNorm(32, 256), out=C(256, 4, 3, 1, 1)),
        ((16, 128, 64, 64, FLOAT), (16, 512, FLOAT), (16, 4, 64, 64, FLOAT)),
        ("bf16", "amp", "f32", "eval:bf16", "last:bf16")),
    Net("vae", lambda: Of(vae, conv1=C(3, 128, 3, 1, 1), norm1=nn.GroupNorm(32, 128),
        encode=C(128, 8, 3, 1, 1), decode=C(4, 128, 3, 1, 1), norm2=nn.GroupNorm(32, 128),
        out=C(128, 3, 3, 1, 1)),
        ((16, 3, 128, 128, FLOAT),), ("bf16", "f32")),
    Net("style", lambda: Of(style, style=L(512, 256), conv1=C(128, 128, 3), norm=nn.InstanceNorm2d(128),
        conv2=C(128, 128, 1)), ((16, 128, 64, 64, FLOAT), (16, 512, FLOAT)), ("bf16", "f32", "amp")),
    Net("generator", lambda: Of(generator, up1=nn.ConvTranspose2d(256, 128, 4, 2, 1),
        norm1=nn.BatchNorm2d(128), up2=nn.ConvTranspose2d(128, 3, 4, 2, 1), d1=C(3, 128, 4, 2, 1),
        norm2=nn.BatchNorm2d(128), d2=C(128, 1, 4, 2, 1)), ((64, 256, 16, 16, FLOAT),), ("bf16", "amp")),
    Net("super resolution", lambda: Of(super_resolution, conv1=C(64, 64, 3, 1, 1), prelu=nn.PReLU(64),
        conv2=C(64, 64, 3, 1, 1), out=C(64, 12, 3, 1, 1)),
        ((16, 64, 128, 128, FLOAT), (16, 3, 256, 256, FLOAT)), ("bf16", "f32")),
    Net("segmentation", lambda: Of(segmentation, conv=C(256, 256, 3, 1, 1), norm=nn.BatchNorm2d(256),
        head=C(256, 21, 1)), ((8, 256, 64, 64, FLOAT), (8, 256, 256, "int<21")), ("bf16", "f32")),
    Net("wavenet", lambda: Of(wavenet, v=nn.ParameterList(weight(256, 128, 3) for _ in range(2)),
        g=nn.ParameterList(weight(256, 1, 1) for _ in range(2)),
        mix=nn.ModuleList(nn.Conv1d(128, 128, 1) for _ in range(2))),
        ((16, 128, 8192, FLOAT),), ("bf16", "f32")),
    Net("speech", lambda: Of(speech, norm=N(512), inner=L(512, 1024), depth=nn.Conv1d(512, 512, 31, 1, 15,
        groups=512), batch_norm=nn.BatchNorm1d(512), out=L(512, 512)),
        ((32, 800, 512, FLOAT), (32, "int<800")), ("bf16", "amp")),
    Net("batch norm mlp", lambda: Of(batch_norm_mlp, first=L(512, 2048), norm1=nn.BatchNorm1d(2048),
        second=L(2048, 2048), norm2=nn.BatchNorm1d(2048), last=L(2048, 1000)),
        ((16384, 512, FLOAT), (16384, "int<1000")), ("bf16", "f32")),
)  # fmt: skip
