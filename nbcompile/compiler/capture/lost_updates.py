"""Updates that torch loses on the way to AOTAutograd, or that AOTAutograd writes as what torch refuses.

A tensor without axes, of float64 and on the CPU, is what Dynamo wraps a Python number in. The pass that takes
such numbers out of graphs again (``torch.fx.passes._tensorify_python_scalars``) meets the user's own tensors
too, restarts Dynamo, and the graph that comes then has lost what the user's program writes into one:
``torch.compile(lambda x: x.mul_(2).sin(), backend="aot_eager")`` leaves ``x = torch.tensor(1.0).double()`` as
it is (torch 2.11 to 2.13).

What is written through an ``expand`` AOTAutograd adds to the tensor as the difference to what it held, and
torch subtracts no bools: of fixed sizes it fails then, of symbolic ones it makes a graph that cannot run.

A result that is a view by symbolic sizes of an overwritten input AOTAutograd finds in the wrong place, which
is mended (:mod:`nbcompile.compiler.rewrite.views_of_inputs`); so it does what ``as_strided`` reads of a part
of memory that is overwritten, which is left to eager.

Of inputs that show one tensor, one of them overwritten, AOTAutograd makes views of an expanded one anew from
the tensor itself, as if that were expanded: it raises an AssertionError, or the process dies (torch 2.13,
Inductor too). And where it decides whether two inputs overlap at all it is wrong of a row and a column of one
matrix: it takes them for tensors apart, and what is read of one after the other is overwritten is the old
numbers (``v1 = b[:, :1]; b[2:3].fill_(1); return v1 * 2``; torch 2.13, ``aot_eager`` and Inductor too).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import fx
from torch._functorch._aot_autograd.schemas import OutputType
from torch.utils._python_dispatch import _disable_current_modes

from nbcompile.compiler.rewrite.views_of_inputs import reads_by_strides, written
from nbcompile.errors import LoweringError

_VIEWS = (OutputType.alias_of_input, OutputType.is_input)
_SUB = torch.ops.aten.sub.Tensor
_MOST_ELEMENTS = 1 << 26


def updated_number(module: fx.GraphModule) -> str:
    """The name of an input of this kind that a captured graph writes to, it or what may show its memory;
    empty if there is none."""
    held: dict[fx.Node, str] = {}  # node → the input whose memory it may show
    for node in module.graph.nodes:
        if node.op == "placeholder":
            if _is_number(node.meta.get("example_value")):
                held[node] = str(node.target)
        elif (shown := written(node)) in held:
            return held[shown]
        elif node.args and node.args[0] in held:
            held[node] = held[node.args[0]]
    return ""


def expanded_lost(inputs: Sequence[object]) -> LoweringError | None:
    """What is wrong if the graph that AOTAutograd has just compiled returns a view of an input, overwrites
    one, and is given one that is expanded from a tensor which another shows; None if all is well."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None or not any(each.mutates_data for each in metadata.input_info):
        return None
    if not any(each.output_type in _VIEWS for each in metadata.output_info):
        return None
    tensors = [each for each in inputs if isinstance(each, torch.Tensor) and each.layout == torch.strided]
    shown = Counter(each.untyped_storage()._cdata for each in tensors)
    for each in tensors:
        expanded = any(st == 0 and n != 1 for n, st in zip(each.shape, each.stride(), strict=True))
        if expanded and shown[each.untyped_storage()._cdata] > 1:
            return LoweringError(
                "it returns a view of an input and overwrites one, and one is expanded from a tensor that "
                "another shows",
                advice="Pass that tensor alone, and expand it within.",
            )
    return None


def overlap_lost(inputs: Sequence[object]) -> LoweringError | None:
    """What is wrong if the graph that AOTAutograd has just compiled overwrites an input which shares memory
    with another that it has taken for a tensor apart; None if all is well."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None or len(metadata.input_info) != len(inputs):  # else it has made one of several
        return None
    shown: dict[int, list[_Place]] = defaultdict(list)  # by storage
    for each, how in zip(inputs, metadata.input_info, strict=True):
        if isinstance(each, torch.Tensor) and each.layout == torch.strided and not each.is_nested:
            shown[each.untyped_storage()._cdata].append(_place(each, how.mutates_data))
    if any(map(_overlap, shown.values())):
        return LoweringError(
            "it overwrites an input that shares memory with another, and AOTAutograd takes them for "
            "tensors apart",
            advice="Pass the tensor of which both are parts, and take them within.",
        )
    return None


@dataclass(frozen=True)
class _Place:
    """Where in its storage a tensor lies, in elements of ``size`` bytes: from ``start`` to before ``end``."""

    start: int
    end: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    size: int
    overwritten: bool


def _place(tensor: Any, overwritten: bool) -> _Place:
    shape, strides = tuple(map(_now, tensor.shape)), tuple(map(_now, tensor.stride()))
    start = _now(tensor.storage_offset())
    last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    end = start if 0 in shape else start + last + 1
    return _Place(start, end, shape, strides, tensor.element_size(), overwritten)


def _overlap(places: list[_Place]) -> bool:
    """Whether an overwritten tensor shares an element with another of one storage, by the sizes that they
    have now. What would take long to tell is taken to be as AOTAutograd has it."""
    if len(places) < 2 or len({each.size for each in places}) > 1:
        return False
    places = sorted(places, key=lambda each: each.start)
    for number, one in enumerate(places):  # parts of a flat buffer are many, and meet nobody
        for other in islice(places, number + 1, None):
            if other.start >= one.end:
                break
            if (one.overwritten or other.overwritten) and _meet(one, other):
                return True
    return False


def _meet(one: _Place, other: _Place) -> bool:
    held = max(one.end, other.end) - one.start
    if held > _MOST_ELEMENTS:
        return False
    with _disable_current_modes():
        met = torch.zeros(held, dtype=torch.bool)
        met.as_strided(one.shape, one.strides).fill_(True)
        return bool(met.as_strided(other.shape, other.strides, other.start - one.start).any())


def _now(size: Any) -> int:
    return int(size.node.hint or 0) if isinstance(size, torch.SymInt) else int(size)


def views_lost() -> list[int]:
    """The results, by their places, that the graph which AOTAutograd has just compiled returns as views of an
    input that it overwrites, and that AOTAutograd would find by the strides of what the graph returned."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None:
        return []
    return [
        place
        for place, each in enumerate(metadata.output_info)
        if each.output_type is OutputType.alias_of_input
        and each.base_idx is not None
        and metadata.input_info[each.base_idx].mutates_data
        and (each.view_meta_sequence is None or _has_symbols(each.view_meta_sequence))
    ]


def _has_symbols(views: Any) -> bool:
    return any(each.has_symbolic_inputs for each in views.sequence)


def strides_lost(graph: fx.Graph) -> LoweringError | None:
    """What is wrong if a captured graph reads by strides of its own what it overwrites; None if nothing."""
    if not reads_by_strides(graph):
        return None
    return LoweringError(
        "it overwrites a part of its memory, which it reads by strides of its own (as_strided)",
        advice="Write the view as slices and reshapes.",
    )


def subtracts_bools(module: fx.GraphModule) -> bool:
    """Whether an ATen graph holds a subtraction that torch refuses to run."""
    return any(
        all(_is_bool(item) for item in node.args) for node in module.graph.nodes if node.target is _SUB
    )


def _is_bool(item: object) -> bool:
    value = item.meta.get("val") if isinstance(item, fx.Node) else item
    return isinstance(value, bool) or (isinstance(value, torch.Tensor) and value.dtype == torch.bool)


def _is_number(value: object) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and (value.dim(), value.dtype, value.device.type) == (0, torch.float64, "cpu")
    )  # fmt: skip
