"""Operators that are called as themselves: for want of a lowering, or since their tensors are elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from nbcompile.compiler.in_aten import shows_an_argument
from nbcompile.compiler.loop_ir.nodes import Loop, Statement, View
from nbcompile.compiler.lower.builder import NATIVE_DTYPES, Builder
from nbcompile.compiler.lower.padded_products import padded_product
from nbcompile.compiler.lower.small_convolutions import small_convolution, small_convolution_backward
from nbcompile.compiler.lower.small_products import small_product
from nbcompile.errors import LoweringError

aten = torch.ops.aten
ELSEWHERE = "works with tensors of two devices"
BY_STRIDES = (aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default)
LIE_AS_THEIR_SOURCE = frozenset(
    {
        aten.copy.default,
        aten.slice_scatter.default,
        aten.select_scatter.default,
        aten.diagonal_scatter.default,
        aten.as_strided_scatter.default,
    }
)
"""ATen's copies of a tensor that begin as far from their storage's beginning as that does."""


def called(
    b: Builder, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *,
    fallback: bool, reason: str, elsewhere: bool = False,
) -> Any:  # fmt: skip
    """What the overload returns, the copying one of it where it returns a view: each buffer has memory of its
    own. LoweringError if it writes to an argument."""
    if mutated := _mutated_arguments(target):
        raise LoweringError(f"{target} changes its argument {mutated} in place, and {reason}")
    copying = _copying_form(target)
    if copying is not None:
        fake = b.result
        copies = [item.contiguous() for item in fake] if isinstance(fake, list | tuple) else fake.contiguous()
        made = b.call(
            copying, args, kwargs, result=copies, fallback=fallback, reason=reason, elsewhere=elsewhere
        )
        return made if elsewhere else _laid_out_as_traced(b, fake, made)
    if not elsewhere and (padded := padded_product(b, target, args, kwargs)) is not None:
        return padded
    if not elsewhere and (small := small_product(b, target, args, kwargs)) is not None:
        return small
    if not elsewhere and (written := small_convolution(b, target, args, kwargs)) is not None:
        return written
    if not elsewhere and (gradients := small_convolution_backward(b, target, args, kwargs)) is not None:
        return gradients
    return b.call(target, args, kwargs, fallback=fallback, reason=reason, elsewhere=elsewhere)


def begin_elsewhere(graph: fx.Graph) -> dict[fx.Node, str]:
    """The nodes that are ATen's to run as they take part in counting from where a storage begins, with that
    as the reason: an ``as_strided`` with an offset, of the memory of one of :data:`LIE_AS_THEIR_SOURCE`, and
    what made that. It begins where its source's does, which no guard tells, and loops of ours would make it
    without what lies before it."""
    found: set[fx.Node] = set()
    for target in BY_STRIDES:
        for node in graph.find_nodes(op="call_function", target=target):
            if not _has_offset(node):
                continue
            makers: list[fx.Node] = []
            source = node.args[0]
            while isinstance(source, fx.Node) and (is_view(source) or source.target in LIE_AS_THEIR_SOURCE):
                if source.target in LIE_AS_THEIR_SOURCE:
                    makers.append(source)
                source = source.args[0]
            if makers and not _begins_its_storage(makers[0]):
                found |= {node, *makers}
    return dict.fromkeys(found, "as_strided counts from the start of a storage that begins before the tensor")


def is_view(node: fx.Node) -> bool:
    """Whether a node's operator shows its argument's memory."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def _has_offset(node: fx.Node) -> bool:
    place = 4 if node.target is aten.as_strided_scatter.default else 3
    offset = node.args[place] if len(node.args) > place else node.kwargs.get("storage_offset")
    return offset is not None


def _begins_its_storage(node: fx.Node) -> bool:
    """Whether what a node makes is surely the first of its storage: neither an input, nor a part."""
    source: Any = node
    while isinstance(source, fx.Node) and source.target in LIE_AS_THEIR_SOURCE:
        source = source.args[0]
    return isinstance(source, fx.Node) and source.op == "call_function" and not is_view(source)


def check_memory(statements: Iterable[Statement], away: Iterable[fx.Node], values: Mapping[Any, Any]) -> None:
    """LoweringError if a loop reads or makes what is not on the device of the graph's kernels."""
    names = {value.buffer.name: node for node in away if isinstance(value := values.get(node), View)}
    for item in statements if names else ():
        if not isinstance(item, Loop):
            continue
        for name in (*(load.buffer for load in item.reads()), *(out.name for out in item.outputs)):
            if name in names:
                raise LoweringError(f"{names[name].name} is on another device than the kernels that take it")


def _mutated_arguments(target: Any) -> str:
    names = [
        argument.name
        for argument in target._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return ", ".join(names)


def _copying_form(target: Any) -> Any:
    """The overload that copies where ``target`` returns a view; None if it returns none."""
    if not shows_an_argument(target):
        return None
    packet = getattr(torch.ops.aten, target._schema.name.removeprefix("aten::") + "_copy", None)
    return getattr(packet, target._overloadname, None)


def _laid_out_as_traced(builder: Builder, fake: Any, made: Any) -> Any:
    """The contiguous copy of a view that is no view of ours, in the order of that view's memory: random
    numbers are drawn for elements in that order."""
    if (
        not isinstance(fake, torch.Tensor)
        or fake.dtype not in NATIVE_DTYPES
        or not builder.options.eager_random
    ):
        return made
    strides = builder.result_strides(made.shape)
    return made if strides in (None, made.buffer.strides) else builder.copy(made)
