"""What shows an input that a graph overwrites, and what is a copy of it, as in eager (torch 2.11 to 2.13 both
get it wrong in silence, under any backend).

Where a gradient is wanted AOTAutograd traces a copy of such an input, and the copy of one with gaps in its
memory has none. ``flatten`` and ``contiguous`` then show what they would have copied: of
``y = x.flatten(); x += w; return y`` the result is the new numbers. Here these are copied once more.

A result that is a view of such an input AOTAutograd makes of it anew when the graph has run. Where the view
is by symbolic sizes it does so by the strides and the offset of what the graph returned, which lies at the
beginning of memory of its own: ``x += 1; return x[: n]`` shows the wrong elements, unless ``x`` is contiguous
and begins its storage. Here the captured graph's own views are called for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from nbcompile.compiler.rewrite.mutation import is_in_place

_MAY_COPY = frozenset({"reshape", "reshape_as", "flatten", "ravel", "contiguous", "to", "type", "type_as"})
_TURNED = frozenset({"t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "as_strided_"})
"""What makes a view another view of the same elements."""
_OTHER_VIEWS = _TURNED | {"resize_", "resize_as_", "set_", "detach_", "requires_grad_", "rename_"}
Call = Callable[..., Any]


def written(node: fx.Node) -> fx.Node | None:
    """What a node of a captured graph overwrites, if it does."""
    out = node.kwargs.get("out")
    if isinstance(out, fx.Node):
        return out
    return _source(node) if is_in_place(node) else None


def is_made_anew(node: fx.Node) -> bool:
    """Whether what a node returns surely lies in other memory than the tensor that it is given first."""
    source = _source(node)
    results = list(_tensors(node.meta.get("example_value")))
    if source is None or not results:
        return False
    given = [_memory(item) for item in _tensors(source.meta.get("example_value"))]
    own = [_memory(item) for item in results]
    return None not in (*given, *own) and not set(own) & set(given)


def copy_once_more(module: fx.GraphModule) -> int:
    """Have a captured graph copy each copy of what shows an input with gaps, if an operator makes it that
    would show a contiguous one. Returns how many."""
    found = 0
    inputs = [node.meta.get("example_value") for node in module.graph.find_nodes(op="placeholder")]
    gaps = {_memory(item) for item in inputs if isinstance(item, torch.Tensor) and _has_gaps(item)}
    for node in list(module.graph.nodes) if gaps else ():
        source, value = _source(node), node.meta.get("example_value")
        if source is None or not isinstance(value, torch.Tensor) or _name(node) not in _MAY_COPY:
            continue
        shown = _memory(source.meta.get("example_value"))
        if shown not in gaps or _memory(value) == shown:
            continue
        with module.graph.inserting_after(node):
            copy = module.graph.call_method("clone", (node,))
        copy.meta = dict(node.meta)
        node.replace_all_uses_with(copy, lambda user, copy=copy: user is not copy)
        found += 1
    if found:
        module.recompile()
    return found


def views_made_anew(graph: fx.Graph, wrong: Sequence[int]) -> Call | None:
    """A function of a captured graph's inputs, called when it has run, that gives those of its results which
    are views of them; None if one is made otherwise than by views and numbers."""
    results = [_returned(graph)[place] for place in wrong]
    needed: set[fx.Node] = set()
    if not all(isinstance(item, fx.Node) and _can_be_made(item, needed) for item in results):
        return None
    turns = [node for node in graph.nodes if _name(node) in _OTHER_VIEWS]
    while turned := [node for node in turns if node not in needed and _tensor_of(node) in needed]:
        if not all(_can_be_made(node, needed) for node in turned):
            return None
    made = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node in needed and written(node) and _name(node) not in _TURNED:
            known[node] = known[_tensor_of(node)]
        elif node in needed or node.op == "placeholder":
            known[node] = made.node_copy(node, known.__getitem__)
    made.output(tuple(known[item] for item in results))
    return fx.GraphModule({}, made).forward


def with_views(call: Call, views: Call, wrong: Sequence[int]) -> Call:
    """``call``, with those results taken from ``views`` of the same inputs."""

    def run(*inputs: Any) -> Any:
        results = list(call(*inputs))
        for place, view in zip(wrong, views(*inputs), strict=True):
            wanted = results[place].requires_grad
            results[place] = view.detach() if view.requires_grad and not wanted else view
        return tuple(results)

    return run


def read_by_strides(graph: fx.Graph) -> list[int]:
    """The inputs, by their places, whose memory a captured graph overwrites and reads by strides of the
    program's own: torch reads new numbers by these, which lie side by side, as if each input were the whole
    of its memory (:func:`is_whole`)."""
    read = {
        _memory(source.meta.get("example_value"))
        for node in graph.nodes
        if node.op in ("call_function", "call_method") and (source := _source(node)) is not None
        and _name(node).startswith("as_strided")
    }  # fmt: skip
    return [
        place
        for place, node in enumerate(graph.find_nodes(op="placeholder"))
        if _memory(node.meta.get("example_value")) in (_overwritten(graph) & read) - {None}
    ]


def writes_complex_numbers(graph: fx.Graph) -> bool:
    """Whether a captured graph overwrites an input of complex numbers, as far as its operators tell."""
    memory = _overwritten(graph) - {None}
    inputs = [node.meta.get("example_value") for node in graph.find_nodes(op="placeholder")]
    return any(
        isinstance(item, torch.Tensor) and item.is_complex() and _memory(item) in memory for item in inputs
    )


def _overwritten(graph: fx.Graph) -> set[int | None]:
    return {_memory(shown.meta.get("example_value")) for shown in map(written, graph.nodes) if shown}


def writes_by_strides(graph: fx.Graph) -> bool:
    """Whether a captured graph writes through strides of the program's own by which elements may lie in one
    place: torch writes the old numbers of the others over the new ones."""
    shown: set[fx.Node] = set()
    for node in graph.nodes:
        if (overwritten := written(node)) in shown:
            return True
        if node.op not in ("call_function", "call_method") or (source := _source(node)) is None:
            continue
        value = node.meta.get("example_value")
        if _name(node).startswith("as_strided") and isinstance(value, torch.Tensor):
            if _may_overlap(value):
                shown.add(node)
        elif source in shown and overwritten is None and _is_view(node):
            shown.add(node)
    return False


def _can_be_made(node: fx.Node, needed: set[fx.Node]) -> bool:
    """Whether a node could be made anew; adds it and all that it needs to ``needed``."""
    if node in needed:
        return True
    needed.add(node)
    if node.op == "placeholder":
        return True
    name, shown = _name(node), written(node)
    if name in _OTHER_VIEWS:  # an input has been turned already
        possible = name in _TURNED and _tensor_of(node).op != "placeholder"
        return possible and all(_can_be_made(item, needed) for item in node.all_input_nodes)
    if shown is not None:
        return _can_be_made(shown, needed) and _can_be_made(_tensor_of(node), needed)
    if node.op not in ("call_function", "call_method") or not (_is_number(node) or _is_view(node)):
        return False
    return all(_can_be_made(item, needed) for item in node.all_input_nodes)


def _tensor_of(node: fx.Node) -> fx.Node:
    """The node that made the tensor which a node returns, where it returns one that it was given."""
    while (shown := written(node)) is not None:
        node = shown
    return node


def _is_view(node: fx.Node) -> bool:
    source = _source(node)
    if source is None:
        return False
    shown = {_memory(item) for item in _tensors(source.meta.get("example_value"))}
    results = list(_tensors(node.meta.get("example_value")))
    own = {_memory(item) for item in results}
    return not any(map(_is_wrapped, results)) and bool(own) and own <= shown - {None}


def _is_number(node: fx.Node) -> bool:
    return isinstance(
        node.meta.get("example_value"),
        torch.SymInt | torch.SymBool | torch.SymFloat | int | float | torch.Size,
    )


def _returned(graph: fx.Graph) -> tuple[Any, ...]:
    results = graph.find_nodes(op="output")[0].args[0]
    return tuple(results) if isinstance(results, tuple | list) else (results,)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for item in value if isinstance(value, tuple | list) else (value,):
        if isinstance(item, torch.Tensor):
            yield item


def _source(node: fx.Node) -> fx.Node | None:
    """The first tensor that a node is given."""
    first = node.args[0] if node.args else node.kwargs.get("input")
    return first if isinstance(first, fx.Node) else None


def _name(node: fx.Node) -> str:
    return str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "")


def _memory(value: Any) -> int | None:
    while _is_wrapped(value):
        value = torch._C._functorch.get_unwrapped(value)
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_nested:
        return None
    try:
        return int(value.untyped_storage()._cdata)
    except NotImplementedError:  # other tensors without memory of their own
        return None


def _is_wrapped(value: Any) -> bool:
    """Whether a tensor is one of vmap's, or of another transform of functorch's."""
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value)


def _has_gaps(value: torch.Tensor) -> bool:
    """Whether a copy of a tensor may have other strides. Asks for no guard."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if value.layout != torch.strided or value.is_nested:
        return False
    held: Any = 1
    for stride, extent in sorted(zip(value.stride(), value.shape, strict=True), key=lambda it: _hint(it[0])):
        if not statically_known_true(extent == 1):
            if not statically_known_true(stride == held):
                return True
            held = held * extent
    return False


def _may_overlap(value: torch.Tensor) -> bool:
    """Whether two elements of a tensor may lie in one place. Asks for no guard."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    reach: Any = 0
    for stride, extent in sorted(zip(value.stride(), value.shape, strict=True), key=lambda it: _hint(it[0])):
        if not statically_known_true(extent <= 1):
            if not statically_known_true(stride > reach):
                return True
            reach = reach + stride * (extent - 1)
    return False


def is_whole(value: torch.Tensor) -> bool:
    """Whether a tensor is all that lies in its storage, in its order. Asks for no guard."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if value.layout != torch.strided or value.is_nested or _has_gaps(value):
        return False
    held = value.untyped_storage().nbytes()
    return statically_known_true(held == value.numel() * value.element_size())


def _hint(size: Any) -> int:
    return int(size.node.hint or 0) if isinstance(size, torch.SymInt) else int(size)
