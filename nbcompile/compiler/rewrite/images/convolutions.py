"""Which convolutions of an ATen graph gain by images whose channels lie innermost in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from nbcompile import tf32
from nbcompile.compiler.fx_values import hint
from nbcompile.compiler.small_filters import is_small

aten = torch.ops.aten

_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
OPERANDS: dict[Any, int] = {aten.convolution.default: 2, aten.convolution_backward.default: 3}
"""Convolutions, and how many of their arguments, from the first, have channels to put last."""

WEIGHT = 2
"""Bytes of images that a byte of a weight must be met by, for the conversion of that to pay on a CPU."""
LEAST_MOVED = 192 << 10
"""Bytes of images of all convolutions of a graph, below which the kernels that convert count for more."""

_ACROSS = frozenset(
    {aten.native_group_norm.default, aten.native_group_norm_backward.default,
     aten._native_batch_norm_legit.no_stats}
)  # fmt: skip


def is_image(value: Any) -> bool:
    """Whether it is a tensor of images or volumes."""
    return isinstance(value, torch.Tensor) and value.dim() in (4, 5)


def is_convolution(node: fx.Node) -> bool:
    """Whether a node is a convolution with two or three spatial dimensions, forward or backward."""
    if node.op != "call_function" or node.target not in OPERANDS:
        return False
    return all(
        isinstance(item, fx.Node) and is_image(item.meta.get("val"))
        for item in node.args[: OPERANDS[node.target]]
    )


def to_be_channels_last(
    graph: fx.Graph, convolutions: Sequence[fx.Node], asked: str, kind: str
) -> frozenset[fx.Node]:
    """Those of ``convolutions`` that run channels-last on a chip of this ``kind``, by what is asked for:
    ``"auto"``, ``"always"``, ``"never"``."""
    if asked == "always":
        return frozenset(filter(is_right, convolutions))
    if asked == "never":
        return frozenset()
    if kind == "cuda":
        return frozenset(node for node in convolutions if is_right(node) and is_worth_it(node))
    return _worth_it_on_a_cpu(graph, convolutions) if kind == "cpu" else frozenset()


def is_right(node: fx.Node) -> bool:
    """Whether cuDNN does it rightly: of a transposed convolution of one pixel to one channel, whose weight
    could be of either layout, it finds another gradient of the weight (torch 2.11 on an H200)."""
    weight: torch.Tensor = node.args[OPERANDS[node.target] - 1].meta["val"]  # type: ignore[union-attr]
    return not (groups_of(node)[1] and all(hint(extent) == 1 for extent in weight.shape[1:]))


def is_worth_it(node: fx.Node) -> bool:
    """Whether cuDNN does this convolution faster channels-last: where it would use the matrix units, which
    is not the case in float64, or in float32 with TF32 turned off, and where it does not fall back to
    slow kernels, as it does for groups of several channels (one channel a group, depthwise, is fine)."""
    weight: torch.Tensor = node.args[OPERANDS[node.target] - 1].meta["val"]  # type: ignore[union-attr]
    if weight.dtype not in _DTYPES:
        return False
    if weight.dtype == torch.float32 and not tf32.convolutions_on_cuda():
        return False
    groups, transposed = groups_of(node)
    if groups == 1:
        return True
    channels = hint(weight.shape[0]) // groups if transposed else hint(weight.shape[1])
    return channels == 1


def _worth_it_on_a_cpu(graph: fx.Graph, convolutions: Sequence[fx.Node]) -> frozenset[fx.Node]:
    """The convolutions that oneDNN does faster channels-last: it converts no image then, and each weight that
    is not so is converted at each call. So those whose images are larger than their weights, if there are
    several, or one is depthwise, and all together are worth a few kernels more; and none where norms add up
    channels and pixels together, which our kernels do slowly in this order, nor where the gradient of a
    weight in groups is wanted, which oneDNN does slowly."""
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not has_onednn or any(node.target in _ACROSS for node in graph.nodes):
        return frozenset()
    training = any(node.target is aten.convolution_backward.default for node in convolutions)
    if training and any(groups_of(node)[0] > 1 for node in convolutions):
        return frozenset()
    if not training and all(map(_is_written_out, convolutions)):
        return frozenset()
    chosen = {node: moved for node in convolutions if (moved := _moved_on_a_cpu(node))}
    forward = [node for node in chosen if node.target is aten.convolution.default]
    several = len(forward) > 1 or any(map(_is_depthwise, forward))
    return frozenset(chosen) if several and sum(chosen.values()) >= LEAST_MOVED else frozenset()


def _moved_on_a_cpu(node: fx.Node) -> int:
    """Bytes of the images of a convolution that is to be channels-last on a CPU; 0 if it is not."""
    weight, images = _operands(node)
    if weight.dim() != 4 or weight.dtype not in _DTYPES or not is_right(node):
        return 0
    as_it_is = _is_depthwise(node) or all(hint(extent) == 1 for extent in weight.shape[2:])
    moved = sum(map(_bytes, images))
    return moved if as_it_is or WEIGHT * _bytes(weight) <= moved else 0


def _is_written_out(node: fx.Node) -> bool:
    """Whether it will be a loop, which has its vectors along the rows of an image."""
    weight, (image, *_) = _operands(node)
    return is_small(image.shape, weight.shape, node.args[8], groups_of(node)[1])


def _is_depthwise(node: fx.Node) -> bool:
    groups, transposed = groups_of(node)
    return groups > 1 and not transposed and hint(_operands(node)[0].shape[1]) == 1


def _operands(node: fx.Node) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The weight of a convolution, and its images: what it is given and makes."""
    count = OPERANDS[node.target]
    *given, weight = (node.args[place].meta["val"] for place in range(count))  # type: ignore[union-attr]
    made = node.meta["val"]
    return weight, [*given, made[0] if isinstance(made, tuple | list) else made]


def _bytes(value: Any) -> int:
    return math.prod(map(hint, value.shape)) * value.element_size() if value is not None else 0


def groups_of(node: fx.Node) -> tuple[int, bool]:
    """Groups of a convolution (of a symbolic number of them the hint), and whether it is a transposed one."""
    groups, transposed = (8, 6) if node.target is aten.convolution.default else (9, 7)
    count: Any = node.args[groups]
    known = hint(count.meta["val"] if isinstance(count, fx.Node) else count)
    return max(1, known), bool(node.args[transposed])
