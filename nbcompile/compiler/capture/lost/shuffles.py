"""``channel_shuffle``, of which a CPU has a kernel that keeps channels last, while torch traces what other
devices do: views and, where it takes one, a copy in rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch._prims_common import suggest_memory_format

from nbcompile.compiler.capture.lost.calls import put_in_place_of


def shuffled_as_they_lie(module: fx.GraphModule) -> int:
    """Put ours in place of each in a captured graph and the graphs within it; how many there were."""
    return put_in_place_of(module, torch.channel_shuffle, channel_shuffle)


def channel_shuffle(input: Tensor, groups: Any) -> Tensor:
    """The channels of ``groups`` dealt out in turn, in new memory (what is traced may be a view), laid out as
    in eager."""
    if input.device.type != "cpu" or input.numel() == 0:
        return torch.channel_shuffle(input, groups)
    place = 1 if suggest_memory_format(input) == torch.contiguous_format else -1
    parts = torch.unflatten(input.movedim(1, place), place, (groups, input.shape[1] // groups))
    dealt = parts.transpose(1, 2) if place == 1 else parts.transpose(-1, -2)
    made: Tensor = dealt.clone(memory_format=torch.contiguous_format)
    return made.flatten(1, 2) if place == 1 else made.flatten(-2).movedim(-1, 1)
