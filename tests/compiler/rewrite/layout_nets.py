"""Small convolutional nets, one for each thing that a layout may trip over."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    """A ResNet's first convolution, pool, one block, and head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, 1, 1)
        self.norm2 = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 3, 2, 1)
        x = F.relu(self.norm2(self.second(x)) + x)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)), x


class UNet(nn.Module):
    """Down, up by a transposed convolution and by interpolation, and cat with what was there before."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Conv2d(1, 6, 3, padding=1)
        self.down = nn.Conv2d(6, 10, 3, 2, 1)
        self.norm = nn.GroupNorm(2, 10)
        self.up = nn.ConvTranspose2d(10, 6, 2, 2)
        self.narrow = nn.Conv2d(10, 6, 1)
        self.out = nn.Conv2d(18, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.inside(x))
        low = F.silu(self.norm(self.down(x)))
        smooth = F.interpolate(self.narrow(low), scale_factor=2.0, mode="bilinear")
        return self.out(torch.cat([x, self.up(low), smooth], 1))


class ConvNext(nn.Module):
    """Patches, a depthwise convolution, and a layer norm and linear layers over the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.depthwise = nn.Conv2d(8, 8, 7, padding=3, groups=8)
        self.norm = nn.LayerNorm(8)
        self.wide = nn.Linear(8, 16)
        self.back = nn.Linear(16, 8)
        self.down = nn.Conv2d(8, 12, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.back(F.gelu(self.wide(y))).permute(0, 3, 1, 2)
        return self.down(x + y)


class Squeeze(nn.Module):
    """A squeeze-and-excite gate, whose convolutions see one pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 12, 3, padding=1)
        self.less = nn.Conv2d(12, 3, 1)
        self.more = nn.Conv2d(3, 12, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.hardswish(self.first(x))
        return x * torch.sigmoid(self.more(F.relu(self.less(x.mean((2, 3), keepdim=True)))))


class Attention(nn.Module):
    """Pixels as tokens: flattened, transposed, split into heads, and back to an image."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Conv2d(8, 24, 1)
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.out = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        n, c, h, w = x.shape
        q, k, v = self.qkv(x).view(n, 3, 2, c // 2, h * w).transpose(-1, -2).unbind(1)
        y = torch.softmax(q @ k.mT, -1) @ v
        return self.out(x + y.transpose(-1, -2).reshape(n, c, h, w))


class Volume(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv3d(2, 6, 3, padding=1)
        self.second = nn.Conv3d(6, 4, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.max_pool3d(F.relu(self.first(x)), 2))


class Flat(nn.Module):
    """A picture's features in a row: the order of a flattened image is that of its dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.dilated = nn.Conv2d(6, 7, 3, dilation=2)
        self.linear = nn.Linear(7 * 4 * 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.avg_pool2d(F.leaky_relu(self.dilated(F.relu(self.conv(x)))), 2)
        return self.linear(x.flatten(1))


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual": (Residual, (2, 3, 16, 16)),
    "unet": (UNet, (2, 1, 8, 8)),
    "convnext": (ConvNext, (2, 3, 16, 16)),
    "squeeze": (Squeeze, (2, 4, 5, 6)),
    "attention": (Attention, (2, 3, 4, 6)),
    "volume": (Volume, (2, 2, 6, 8, 8)),
    "flat": (Flat, (2, 3, 14, 14)),
    "grouped": (
        lambda: nn.Sequential(nn.Conv2d(8, 8, 3, groups=2), nn.ReLU(), nn.Conv2d(8, 4, 1)), (2, 8, 6, 6)
    ),
    "one image": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 1, 1)), (1, 3, 6, 6)),
}  # fmt: skip
