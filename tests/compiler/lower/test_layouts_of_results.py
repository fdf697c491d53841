"""Operators that torch traces with other strides than ATen's kernels for a CPU give their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor


def channels_last(*shape: int) -> Tensor:
    last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    return torch.randn(shape).contiguous(memory_format=last)


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "rows": lambda: torch.randn(4, 4, 5, 6),
    "channels last": lambda: channels_last(4, 4, 5, 6),
    "of volumes": lambda: channels_last(2, 4, 3, 5, 6),
    "one channel": lambda: channels_last(4, 1, 5, 6),
    "one sample": lambda: channels_last(1, 4, 5, 6),
    "one point": lambda: channels_last(3, 4, 1, 1),
    "every other": lambda: channels_last(4, 4, 5, 12)[..., ::2],
    "some channels": lambda: channels_last(4, 6, 5, 6)[:, 2:4],
    "permuted": lambda: torch.randn(4, 4, 5, 6).permute(1, 0, 3, 2),
    "expanded": lambda: torch.randn(1, 4, 1, 1).expand(3, 4, 5, 6),
    "empty": lambda: channels_last(0, 4, 5, 6),
}


def lies_as_eagers(function: Callable[..., Any], *args: Any, dynamic: bool = False) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(function, dynamic=dynamic, options={"cache": False})
    found, expected = run(*args), function(*args)
    assert run.ran_compiled, run.eager_reason
    assert [item.stride() for item in found] == [item.stride() for item in expected]
    torch.testing.assert_close(found, expected)


ROLLS: list[tuple[Any, ...]] = [
    (1, 0), (-2, 1), ((1, 2), (0, 1)), ((1, 2), (-1, 2)), (3,), (6, -1), (0, 1), ((1, 4), (2, 0)),
]  # fmt: skip


@few(6)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_rolled(layout: str, dynamic: bool) -> None:
    def rolled(x: Tensor) -> list[Tensor]:
        if not x.numel():
            return [x.roll(*how) for how in ROLLS[:4]]
        return [*(x.roll(*how) for how in ROLLS), torch.fft.fftshift(x), (x * 2).roll(1, 1) + 1]

    lies_as_eagers(rolled, LAYOUTS[layout](), dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_rolled_is_read_by_its_strides(dynamic: bool) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return x.roll(1, 0).as_strided((7,), (1,)), (x.roll((1, 2), (2, 3)) * 2).as_strided((7,), (1,))

    lies_as_eagers(function, channels_last(4, 4, 5, 6), dynamic=dynamic)


@few(4)
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "empty"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_logarithms_of_sigmoids(layout: str, dynamic: bool) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return (
            F.logsigmoid(x),
            F.logsigmoid(x * 2).exp(),
            F.logsigmoid(x.transpose(0, 1)).as_strided((7,), (1,)),
        )

    lies_as_eagers(function, LAYOUTS[layout](), dynamic=dynamic)


@few(4)
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in ("empty", "one channel")])
@pytest.mark.parametrize("dynamic", [False, True])
def test_shuffled_channels(layout: str, dynamic: bool) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return F.channel_shuffle(x, 2), torch.nn.ChannelShuffle(2)(x * 2) + 1, F.channel_shuffle(x, groups=1)

    lies_as_eagers(function, LAYOUTS[layout](), dynamic=dynamic)
