"""Convolution nets, small as a CPU takes them, in inference. By the first part (:func:`half` 0) was chosen
which convolutions run channels-last; the second was written afterwards, and one of it (``inception``) was
mended after it was timed.

``PROGRAMS`` by name: what makes a function and its arguments, the same every time. Needs torch only.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Built = tuple[Callable[..., Any], tuple[Any, ...]]
PROGRAMS: dict[str, Callable[[], Built]] = {}
_AFTERWARDS: set[str] = set()


def build(name: str) -> Built:
    torch.manual_seed(zlib.crc32(name.encode()))
    function, arguments = PROGRAMS[name]()
    return (function.eval() if isinstance(function, nn.Module) else function), arguments


def half(name: str) -> int:
    """0: the rule was chosen by it. 1: it was written afterwards."""
    return int(name in _AFTERWARDS)


def net(make: Callable[[], Built]) -> Callable[[], Built]:
    PROGRAMS[make.__name__] = make
    return make


def afterwards(make: Callable[[], Built]) -> Callable[[], Built]:
    _AFTERWARDS.add(make.__name__)
    return net(make)


def conv(given: int, made: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(given, made, size, stride, size // 2, groups=groups)


class Basic(nn.Module):
    """A basic block of a ResNet."""

    def __init__(self, given: int, made: int, stride: int = 1) -> None:
        super().__init__()
        self.one, self.norm_one = conv(given, made, 3, stride), nn.BatchNorm2d(made)
        self.two, self.norm_two = conv(made, made), nn.BatchNorm2d(made)
        same = stride == 1 and given == made
        self.down = (
            nn.Identity() if same else nn.Sequential(conv(given, made, 1, stride), nn.BatchNorm2d(made))
        )

    def forward(self, x: Tensor) -> Tensor:
        inside = F.relu(self.norm_one(self.one(x)))
        return F.relu(self.norm_two(self.two(inside)) + self.down(x))


class Separable(nn.Sequential):
    """Depthwise, then pointwise, as MobileNet has it."""

    def __init__(self, given: int, made: int, stride: int = 1) -> None:
        super().__init__(
            conv(given, given, 3, stride, given), nn.BatchNorm2d(given), nn.ReLU6(),
            conv(given, made, 1), nn.BatchNorm2d(made), nn.ReLU6(),
        )  # fmt: skip


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep, self.up, self.out = conv(3, 16), conv(16, 32), conv(48, 16), conv(16, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        high = F.silu(self.down(x))
        low = F.silu(self.deep(F.max_pool2d(high, 2)))
        back = F.interpolate(low, scale_factor=2, mode="nearest")
        return self.out(F.silu(self.up(torch.cat([high, back], 1))))


class Squeezed(nn.Module):
    """An inverted bottleneck with squeeze and excitation."""

    def __init__(self, width: int, inner: int, depthwise: bool) -> None:
        super().__init__()
        self.into, self.out = conv(width, inner, 1), conv(inner, width, 1)
        self.middle = conv(inner, inner, 3, 1, inner) if depthwise else nn.Identity()
        self.less, self.more = conv(inner, 16, 1), conv(16, inner, 1)

    def forward(self, x: Tensor) -> Tensor:
        inside = F.silu(self.middle(F.silu(self.into(x))))
        weight = torch.sigmoid(self.more(F.silu(self.less(inside.mean((2, 3), keepdim=True)))))
        return self.out(inside * weight) + x


# -- by which the rule was chosen ------------------------------------------------------------------


@net
def resnet_small() -> Built:
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    stem = (conv(3, 32), nn.BatchNorm2d(32), nn.ReLU())
    return nn.Sequential(*stem, Basic(32, 32), Basic(32, 64, 2), Basic(64, 128, 2), *head), (
        torch.randn(4, 3, 32, 32),
    )


@net
def resnet18_stage() -> Built:
    stem = (conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*stem, Basic(64, 64), Basic(64, 64)), (torch.randn(1, 3, 224, 224),)


@net
def deep_stage() -> Built:
    return nn.Sequential(Basic(256, 512, 2), Basic(512, 512)), (torch.randn(1, 256, 14, 14),)


@net
def blocks_of_16() -> Built:
    return nn.Sequential(Basic(64, 64), Basic(64, 64)), (torch.randn(16, 64, 28, 28),)


@net
def bfloat16_block() -> Built:
    return Basic(32, 32).bfloat16(), (torch.randn(1, 32, 28, 28).bfloat16(),)


@net
def mobile() -> Built:
    parts = (conv(3, 16, 3, 2), nn.ReLU6(), Separable(16, 32), Separable(32, 64, 2), Separable(64, 64))
    return nn.Sequential(*parts), (torch.randn(1, 3, 128, 128),)


@net
def unet() -> Built:
    return Unet(), (torch.randn(2, 3, 96, 96),)


@net
def ssim() -> Built:
    window = torch.ones(3, 1, 7, 7) / 49

    def function(x: Tensor, y: Tensor) -> Tensor:
        def mean(t: Tensor) -> Tensor:
            return F.conv2d(t, window, groups=3, padding=3)

        mx, my = mean(x), mean(y)
        vx, vy, both = mean(x * x) - mx * mx, mean(y * y) - my * my, mean(x * y) - mx * my
        return (
            (2 * mx * my + 1e-4) * (2 * both + 9e-4) / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4))
        ).mean()

    return function, (torch.rand(2, 3, 96, 96), torch.rand(2, 3, 96, 96))


@net
def group_norms() -> Built:
    parts = (conv(8, 32), nn.GroupNorm(4, 32), nn.SiLU(), conv(32, 32), nn.GroupNorm(4, 32), nn.SiLU())
    return nn.Sequential(*parts), (torch.randn(2, 8, 48, 48),)


@net
def instance_norms() -> Built:
    norms = [nn.InstanceNorm2d(32, affine=True) for _ in range(2)]
    parts = (conv(3, 32), norms[0], nn.ReLU(), conv(32, 32), norms[1], nn.ReLU())
    return nn.Sequential(*parts), (torch.randn(1, 3, 64, 64),)


@net
def one_and_relu() -> Built:
    return nn.Sequential(conv(16, 16), nn.ReLU()), (torch.randn(1, 16, 32, 32),)


@net
def segmentation_head() -> Built:
    head = conv(64, 21, 1)
    return lambda x: head(x).softmax(1), (torch.randn(1, 64, 64, 64),)


@net
def patch_embedding() -> Built:
    patches = nn.Conv2d(3, 192, 16, 16)
    return lambda x: patches(x).flatten(2).transpose(1, 2) + 1.0, (torch.randn(1, 3, 224, 224),)


@net
def vgg() -> Built:
    parts = (conv(3, 64), nn.ReLU(), conv(64, 64), nn.ReLU(), nn.MaxPool2d(2), conv(64, 128), nn.ReLU())
    return nn.Sequential(*parts), (torch.randn(1, 3, 112, 112),)


@net
def transposed() -> Built:
    up = [nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ConvTranspose2d(16, 3, 4, 2, 1)]
    return nn.Sequential(up[0], nn.BatchNorm2d(16), nn.ReLU(), up[1], nn.Tanh()), (
        torch.randn(2, 32, 16, 16),
    )


@net
def volumes() -> Built:
    parts = (nn.Conv3d(4, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(), nn.Conv3d(16, 16, 3, padding=1))
    return nn.Sequential(*parts), (torch.randn(1, 4, 16, 32, 32),)


@net
def digits() -> Built:
    parts = (nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(400, 10)), (torch.randn(16, 1, 28, 28),)


@net
def two_small() -> Built:
    return nn.Sequential(conv(4, 8), nn.ReLU(), conv(8, 4)), (torch.randn(1, 4, 24, 24),)


@net
def pointwise_mlp() -> Built:
    inside = nn.Sequential(conv(64, 128, 1), nn.GELU(), conv(128, 64, 1))
    return lambda x: x + inside(x), (torch.randn(2, 64, 32, 32),)


@net
def groups_of_eight() -> Built:
    parts = (conv(64, 64, 3, 1, 8), nn.BatchNorm2d(64), nn.ReLU(), conv(64, 64, 1))
    return nn.Sequential(*parts), (torch.randn(2, 64, 32, 32),)


@net
def gaussian_blur() -> Built:
    window = torch.randn(3, 1, 11, 11)
    return lambda x: F.conv2d(x, window, groups=3, padding=5).square().mean(), (torch.rand(2, 3, 128, 128),)


@net
def depthwise_residual() -> Built:
    inside = conv(64, 64, 3, 1, 64)
    return lambda x: F.relu(inside(x)) + x, (torch.rand(1, 64, 56, 56),)


@net
def stem() -> Built:
    return nn.Sequential(conv(3, 32, 3, 2), nn.BatchNorm2d(32), nn.ReLU()), (torch.randn(4, 3, 128, 128),)


@net
def squeeze_excite() -> Built:
    return Squeezed(32, 64, depthwise=False), (torch.randn(1, 32, 56, 56),)


@net
def dilated() -> Built:
    wide = [nn.Conv2d(n, 32, 3, padding=d, dilation=d) for n, d in ((16, 2), (32, 4))]
    parts = nn.Sequential(wide[0], nn.ReLU(), wide[1], nn.ReLU(), conv(32, 21, 1))
    return lambda x: parts(x).log_softmax(1), (torch.randn(1, 16, 64, 64),)


@net
def pixel_shuffle() -> Built:
    return nn.Sequential(conv(3, 32), nn.PReLU(), conv(32, 12), nn.PixelShuffle(2)), (
        torch.randn(1, 3, 64, 64),
    )


@net
def autoencoder() -> Built:
    down = [nn.Conv2d(n, m, 4, 2, 1) for n, m in ((3, 16), (16, 32))]
    up = [nn.ConvTranspose2d(n, m, 4, 2, 1) for n, m in ((32, 16), (16, 3))]
    leaky = nn.LeakyReLU(0.2)
    both = nn.Sequential(down[0], leaky, down[1], leaky, up[0], leaky, up[1])
    return lambda x: F.mse_loss(both(x), x), (torch.rand(4, 3, 64, 64),)


# -- written afterwards ----------------------------------------------------------------------------


@afterwards
def dense_block() -> Built:
    layers = nn.ModuleList(
        nn.Sequential(nn.BatchNorm2d(24 + 12 * n), nn.ReLU(), conv(24 + 12 * n, 12)) for n in range(4)
    ).eval()

    def function(x: Tensor) -> Tensor:
        for layer in layers:
            x = torch.cat([x, layer(x)], 1)
        return x

    return function, (torch.randn(2, 24, 32, 32),)


@afterwards
def inception() -> Built:
    branches = nn.ModuleList(
        [
            conv(64, 32, 1), nn.Sequential(conv(64, 32, 1), nn.ReLU(), conv(32, 48)),
            nn.Sequential(conv(64, 8, 1), nn.ReLU(), conv(8, 16, 5)),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(64, 16, 1)),
        ]
    )  # fmt: skip
    return lambda x: F.relu(torch.cat([branch(x) for branch in branches], 1)), (torch.randn(1, 64, 35, 35),)


@afterwards
def atrous_pyramid() -> Built:
    rates = nn.ModuleList(nn.Conv2d(48, 32, 3, padding=rate, dilation=rate) for rate in (2, 4, 6))
    pooled, project = conv(48, 32, 1), conv(128, 48, 1)

    def function(x: Tensor) -> Tensor:
        wide = F.interpolate(pooled(x.mean((2, 3), keepdim=True)), x.shape[2:], mode="bilinear")
        return F.relu(project(torch.cat([*(F.relu(rate(x)) for rate in rates), wide], 1)))

    return function, (torch.randn(1, 48, 40, 40),)


@afterwards
def mbconv() -> Built:
    return Squeezed(40, 160, depthwise=True), (torch.randn(2, 40, 28, 28),)


@afterwards
def feature_pyramid() -> Built:
    sides = nn.ModuleList(conv(n, 32, 1) for n in (32, 64, 128))
    smooth = nn.ModuleList(conv(32, 32) for _ in range(3))

    def function(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        low = sides[2](c)
        middle = sides[1](b) + F.interpolate(low, scale_factor=2, mode="nearest")
        high = sides[0](a) + F.interpolate(middle, scale_factor=2, mode="nearest")
        return tuple(each(x) for each, x in zip(smooth, (high, middle, low), strict=True))

    return function, (torch.randn(1, 32, 64, 64), torch.randn(1, 64, 32, 32), torch.randn(1, 128, 16, 16))


@afterwards
def detection_head() -> Built:
    trunk = nn.Sequential(conv(64, 64), nn.BatchNorm2d(64), nn.SiLU(), conv(64, 3 * 25, 1)).eval()
    grid = torch.stack(torch.meshgrid(torch.arange(26.0), torch.arange(26.0), indexing="xy"), -1)

    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = trunk(x).view(1, 3, 25, 26, 26).permute(0, 1, 3, 4, 2)
        return (
            found[..., :2].sigmoid() * 2 - 0.5 + grid,
            (found[..., 2:4].sigmoid() * 2) ** 2,
            found[..., 4:5].sigmoid() * found[..., 5:].softmax(-1),
        )

    return function, (torch.randn(1, 64, 26, 26),)


@afterwards
def modulated() -> Built:
    weight, style = torch.randn(32, 32, 3, 3), nn.Linear(64, 32)

    def function(x: Tensor, w: Tensor) -> Tensor:
        scaled = weight[None] * (style(w)[:, None, :, None, None] + 1)
        scaled = scaled * (scaled.square().sum((2, 3, 4), keepdim=True) + 1e-8).rsqrt()
        found = F.conv2d(x.reshape(1, -1, 32, 32), scaled.view(-1, 32, 3, 3), padding=1, groups=4)
        return F.leaky_relu(found.view(4, 32, 32, 32), 0.2)

    return function, (torch.randn(4, 32, 32, 32), torch.randn(4, 64))


@afterwards
def channel_attention() -> Built:
    body, less, more = nn.Sequential(conv(32, 32), nn.ReLU(), conv(32, 32)), conv(32, 4, 1), conv(4, 32, 1)

    def function(x: Tensor) -> Tensor:
        inside = body(x)
        return x + inside * more(less(inside.mean((2, 3), keepdim=True)).relu()).sigmoid()

    return function, (torch.randn(1, 32, 64, 64),)


@afterwards
def denoiser() -> Built:
    middle = [part for _ in range(4) for part in (conv(24, 24), nn.BatchNorm2d(24), nn.ReLU())]
    inside = nn.Sequential(conv(1, 24), nn.ReLU(), *middle, conv(24, 1)).eval()
    return lambda x: x - inside(x), (torch.rand(1, 1, 96, 96),)


@afterwards
def conv_lstm() -> Built:
    gates = conv(8 + 16, 64)

    def function(x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, o, g = gates(torch.cat([x, h], 1)).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    state = torch.randn(2, 16, 40, 40)
    return function, (torch.randn(2, 8, 40, 40), state, state + 1)


@afterwards
def spectrogram_classifier() -> Built:
    parts = (conv(1, 16), nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(2), conv(16, 32), nn.BatchNorm2d(32))
    inside = nn.Sequential(*parts, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 35)).eval()
    return lambda x: inside((x + 1e-6).log()[:, None]).log_softmax(-1), (torch.rand(8, 64, 101),)


@afterwards
def patch_discriminator() -> Built:
    down = [nn.Conv2d(n, m, 4, 2, 1) for n, m in ((3, 16), (16, 32), (32, 64))]
    norms = [nn.BatchNorm2d(32), nn.BatchNorm2d(64)]
    leaky = nn.LeakyReLU(0.2)
    parts = (down[0], leaky, down[1], norms[0], leaky, down[2], norms[1], leaky, nn.Conv2d(64, 1, 4, 1, 1))
    inside = nn.Sequential(*parts).eval()
    return lambda x: F.softplus(-inside(x)).mean(), (torch.randn(4, 3, 64, 64),)


@afterwards
def style_gram() -> Built:
    inside = nn.Sequential(conv(3, 32), nn.ReLU(), conv(32, 32), nn.ReLU())

    def gram(x: Tensor) -> Tensor:
        flat = x.flatten(2)
        return flat @ flat.transpose(1, 2) / flat.shape[-1]

    return lambda x, y: (gram(inside(x)) - gram(inside(y))).square().mean(), (
        torch.rand(1, 3, 64, 64),
        torch.rand(1, 3, 64, 64),
    )


@afterwards
def flow_warp_refine() -> Built:
    inside = nn.Sequential(conv(8, 16), nn.ReLU(), conv(16, 2))

    def function(x: Tensor, y: Tensor, grid: Tensor) -> Tensor:
        flow = inside(torch.cat([x, y, grid.permute(0, 3, 1, 2)], 1))
        return F.grid_sample(x, grid + flow.permute(0, 2, 3, 1) * 0.1, align_corners=False)

    image = torch.rand(1, 3, 48, 48)
    place = torch.rand(1, 48, 48, 2) * 2 - 1
    return function, (image, image.flip(3).contiguous(), place)


@afterwards
def laplacian_large() -> Built:
    window = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])[None, None]
    return lambda x: F.conv2d(x, window, padding=1).relu(), (torch.rand(1, 1, 1024, 1024),)


@afterwards
def signal_filter() -> Built:
    taps = torch.hann_window(31)[None, None]
    return lambda x: F.conv1d(x, taps, padding=15).tanh(), (torch.randn(16, 1, 16000),)


@afterwards
def large_maxima() -> Built:
    return lambda x: F.max_pool2d(x, 7, 1, 3) - x, (torch.rand(1, 1, 512, 512),)


@afterwards
def spatial_pyramid() -> Built:
    sizes = (5, 9, 13)
    return lambda x: torch.cat([x, *(F.max_pool2d(x, n, 1, n // 2) for n in sizes)], 1), (
        torch.randn(1, 128, 20, 20),
    )


@afterwards
def averages_of_five() -> Built:
    return lambda x: (x - F.avg_pool2d(x, 5, 1, 2)).square(), (torch.randn(4, 32, 56, 56),)
