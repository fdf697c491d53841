"""Results that come to require a gradient by what is written to other views of one tensor.

Of inputs that are views of one tensor AOTAutograd makes one, and where that does not require a gradient, what
is written to it does not make it require one: what is read of it has no gradient, in silence (``aot_eager``
and Inductor too, torch 2.11 to 2.13: ``row.copy_(w); return out.sum()``). Such a graph runs eagerly.

And results that are views of one tensor it returns as tensors apart, unless that requires a gradient: they
share memory, and autograd no longer knows it. Where the user's program goes on after a graph break and writes
what requires a gradient into one of them, the others do not come to require one (``out = torch.zeros(3, 4);
row = out[0]; print(); row.copy_(w); return out.sum()``; ``aot_eager`` and Inductor refuse the second graph:
"non-differentiable view input mutations"). Here they are made views again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from nbcompile.compiler.capture.lost.overlapping import has_memory
from nbcompile.errors import LoweringError


def gradients_lost(graph: fx.Graph) -> LoweringError | None:
    """What is wrong if a result of the captured graph requires a gradient, and not that of the graph which
    AOTAutograd has just compiled of it; None if all is well."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None or not any(each.mutates_data for each in metadata.input_info):
        return None
    (output,) = graph.find_nodes(op="output")
    for item, made in zip(output.args[0], metadata.output_info, strict=False):
        value: Any = item.meta.get("example_value") if isinstance(item, fx.Node) else None
        if has_memory(value) and value.requires_grad and not made.requires_grad:
            return LoweringError(
                f"{item} requires a gradient by what is written to another view of it, and AOTAutograd "
                "loses that",
                advice="Pass the tensor of which both are parts, and take them within.",
            )
    return None


@dataclass(frozen=True)
class Related:
    """Places of results that are views of one tensor, and where that is returned, if it is."""

    views: tuple[int, ...]
    base: int | None


def related(graph: fx.Graph) -> list[Related]:
    """The results of a captured graph that may come to require a gradient by what is written to others."""
    inputs = {_memory(node.meta.get("example_value")) for node in graph.find_nodes(op="placeholder")}
    (output,) = graph.find_nodes(op="output")
    shown: dict[int, list[tuple[int, Any]]] = defaultdict(list)  # by memory
    for place, item in enumerate(output.args[0]):
        value = item.meta.get("example_value") if isinstance(item, fx.Node) else None
        if (memory := _memory(value)) is not None and memory not in inputs:
            shown[memory].append((place, value))
    found = []
    for group in shown.values():
        bases = {id(value._base): value._base for _, value in group if value._base is not None}
        if len(group) < 2 or len(bases) != 1 or any(value.requires_grad for _, value in group):
            continue
        (base,) = bases.values()
        views = tuple(place for place, value in group if value._base is base and value.dtype == base.dtype)
        given = [place for place, value in group if value is base]
        if len(views) + len(given) > 1 and base.dtype.is_floating_point:
            found.append(Related(views, given[0] if given else None))
    return found


def as_views(call: Callable[..., Any], groups: Sequence[Related]) -> Callable[..., Any]:
    """``call``, its results made views of one another again."""
    if not groups:
        return call

    def run(*given: Any) -> Any:
        results = call(*given)
        if not torch.is_grad_enabled():
            return results
        made = list(results)
        for group in groups:
            of = made[group.base] if group.base is not None else _whole(made[group.views[0]])
            for place in group.views:
                view = made[place]
                made[place] = of.as_strided(view.shape, view.stride(), view.storage_offset())
        return tuple(made)

    return run


def _memory(value: Any) -> int | None:
    return value.untyped_storage()._cdata if has_memory(value) else None


def _whole(view: torch.Tensor) -> torch.Tensor:
    """All of the memory that a tensor shows, as a tensor that is no view."""
    storage = view.untyped_storage()
    count = storage.nbytes() // view.element_size()
    return torch.empty(0, dtype=view.dtype, device=view.device).set_(storage, 0, (count,), (1,))
