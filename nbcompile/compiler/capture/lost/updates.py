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
of memory that is overwritten, which is left to eager. So is what is written into a part of a view by
``as_strided`` that shows elements several times: torch makes anew all that the view shows, in its order
(``v = x.as_strided((2, 3), (0, 1)); v.diagonal(1).mul_(2)`` writes old numbers over new ones).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch._aot_autograd.schemas import OutputType
from torch.utils._pytree import tree_leaves

from nbcompile.compiler.rewrite.mutation import is_in_place
from nbcompile.compiler.rewrite.views_of_inputs import (
    is_made_anew,
    is_whole,
    read_by_strides,
    writes_by_strides,
    written,
)
from nbcompile.errors import LoweringError

_SUB = torch.ops.aten.sub.Tensor


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
        elif node.args and node.args[0] in held and not is_made_anew(node):
            held[node] = held[node.args[0]]
    return ""


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
    """What is wrong if a captured graph overwrites what it shows by strides of its own; None if nothing."""
    inputs = [node.meta.get("example_value") for node in graph.find_nodes(op="placeholder")]
    if not all(is_whole(inputs[place]) for place in read_by_strides(graph)):
        what = "it overwrites a part of its memory, which it reads by strides of its own (as_strided)"
    elif writes_by_strides(graph):
        what = "it overwrites a part of what strides of its own show several times (as_strided)"
    else:
        return None
    return LoweringError(what, advice="Write the view as slices and reshapes.")


def where_whole(
    call: Callable[..., Any], eager: Callable[..., Any], graph: fx.Graph, say: Callable[[str], None]
) -> Callable[..., Any]:
    """``call``, for which :func:`strides_lost` found nothing, where the inputs of which that depends are
    still all that lies in their memory, else ``eager``, and ``say`` that: no guard tells them from parts."""
    places = read_by_strides(graph)
    if not places:
        return call

    def run(*given: Any) -> Any:
        if all(is_whole(given[place]) for place in places):
            return call(*given)
        say("it overwrites a part of its memory, which it reads by strides of its own (as_strided)")
        return eager(*given)

    return run


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


def set_lost(graph: fx.Graph) -> LoweringError | None:
    """What is wrong if the captured graph that AOTAutograd has just compiled gives an input other memory
    (``x.data = y``) and may need its gradient, which AOTAutograd gives to the other tensor; or writes to its
    old memory, or returns it, for which AOTAutograd takes the new; or gives it that very memory laid out
    otherwise, which AOTAutograd leaves out; or that of an input which is overwritten, of which AOTAutograd
    takes a copy. None if all is well."""
    sets = [node for node in graph.nodes if node.target is torch.Tensor.set_]
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None or not sets:
        return None
    pairs = list(zip(graph.find_nodes(op="placeholder"), metadata.input_info, strict=False))
    targets = {_source(node) for node in sets}
    trained = any(each.requires_grad for each in metadata.output_info)
    written = {_memory(node) for node, known in pairs if known.mutates_data}
    if trained and any(node in targets and known.requires_grad for node, known in pairs):
        why = "its gradient would be lost"
    elif any(node not in sets and is_in_place(node) and _source(node) in targets for node in graph.nodes):
        why = "what is written to the old would be lost"
    elif _returns_old(graph, metadata, [node in targets for node, _ in pairs]):
        why = "a result that shows the old would show the new"
    elif any(node in targets and not known.mutates_storage_metadata for node, known in pairs):
        why = "what is new is how its own is laid out"
    elif any(_memory(node.args[1]) in written for node in sets):
        why = "the new is of a tensor that is overwritten"
    else:
        return None
    return LoweringError(
        f"it gives a tensor other memory (x.data = ...), and {why}",
        advice="Set .data outside of the function, or copy into the tensor under torch.no_grad().",
    )


def _returns_old(graph: fx.Graph, metadata: Any, given: Sequence[bool]) -> bool:
    """Whether AOTAutograd takes a result for one of the inputs that are ``given`` other memory, or a view of
    it, and it is not that very input."""
    for item, known in zip(tree_leaves(graph.output_node().args), metadata.output_info, strict=False):
        shown = known.output_type in (OutputType.alias_of_input, OutputType.is_input)
        if shown and known.base_idx is not None and known.base_idx < len(given) and given[known.base_idx]:
            if not isinstance(item, fx.Node) or not (
                item.op == "placeholder" or item.target is torch.Tensor.set_
            ):
                return True
    return False


def _source(node: fx.Node) -> fx.Node | None:
    """The input that a node shows, or may: the first of what it is made from, and so on."""
    while node.op != "placeholder":
        first = node.args[0] if node.args else None
        if not isinstance(first, fx.Node):
            return None
        node = first
    return node


def _memory(node: Any) -> int | None:
    """The memory that a node of a captured graph shows."""
    value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def with_versions(call: Callable[..., Any], graph: fx.Graph, count: int) -> Callable[..., Any]:
    """``call``, of a captured graph that AOTAutograd has just compiled, with the version counters of its
    ``count`` inputs as eager leaves them: ``x.data = y`` is no write to ``x``, and ``set_`` is one."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None or len(metadata.input_info) != count:
        return call
    lowered = [
        node.args[0].args[0]
        for node in graph.nodes  # (Dynamo makes the function anew for each)
        if getattr(node.target, "__name__", "") == "_lower_version_count_by_1"
    ]
    pairs = zip(graph.find_nodes(op="placeholder"), metadata.input_info, strict=True)
    places = [
        n for n, (node, known) in enumerate(pairs) if known.mutates_storage_metadata and node in lowered
    ]
    if not places:
        return call

    def run(*given: Any) -> Any:
        results = call(*given)
        counted = tuple(given[place] for place in places if not given[place].is_inference())
        torch._C._autograd._unsafe_set_version_counter(counted, tuple(each._version - 1 for each in counted))
        return results

    return run


def only_in_inference_mode(
    call: Callable[..., Any], eager: Callable[..., Any], inputs: Sequence[Any], say: Callable[[str], None]
) -> Callable[..., Any]:
    """``call``; of a graph, which AOTAutograd has just compiled, that overwrites a tensor made in inference
    mode, ``eager`` outside of that mode, and ``say`` that: eager refuses it where it is written to, of which
    no kernel of ours asks. Dynamo's guards tell such tensors from others; while it compiles the mode is off.
    """
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    pairs = zip(inputs, metadata.input_info, strict=False) if metadata is not None else ()
    overwritten = [each for each, known in pairs if known.mutates_data and isinstance(each, torch.Tensor)]
    if not any(each.is_inference() for each in overwritten):
        return call

    def run(*given: Any) -> Any:
        if torch.is_inference_mode_enabled():
            return call(*given)
        say("it overwrites a tensor of inference mode outside of it")
        return eager(*given)

    return run
