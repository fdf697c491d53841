"""Graphs within a graph, which ``cond``, ``while_loop``, ``scan`` and the like call: each compiled apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import fx

from nbcompile.compiler.capture.graph_record import node_spans, record_nodes
from nbcompile.compiler.in_aten import in_aten, restride, shares_elements
from nbcompile.compiler.rewrite.new_nodes import fake_mode, fake_tensors, run, set_result
from nbcompile.compiler.stages import AtenGraph, CompiledModule
from nbcompile.errors import NbcompileError
from nbcompile.options import REPLAY_MODES, Options
from nbcompile.record.compilation import Graph
from nbcompile.record.recorder import Recorder

AS_CALLED = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}
TRACED_AGAIN = frozenset({"flex_attention", "flex_attention_backward"})
"""Higher-order operators that go on to transform what they are given (vmap): that stays a graph."""
_CARRIED = {"scan": 1, "while_loop": 2}
"""Where a higher-order operator is given what it hands from call to call."""


class CompileOne(Protocol):
    """What compiles an ATen graph to a module."""

    def __call__(self, aten: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule: ...


def callables(
    aten: AtenGraph, bodies: Mapping[str, fx.GraphModule], options: Options, recorder: Recorder,
    compile_one: CompileOne,
) -> dict[str, Callable[..., Any]]:  # fmt: skip
    """A function for each of the graphs that the nodes of ``aten`` named here are."""
    return {
        name: _callable(aten, name, body, options, recorder, compile_one) for name, body in bodies.items()
    }


def _callable(
    aten: AtenGraph, name: str, body: fx.GraphModule, options: Options, recorder: Recorder,
    compile_one: CompileOne,
) -> Callable[..., Any]:  # fmt: skip
    inputs = [node.meta.get("val") for node in body.graph.find_nodes(op="placeholder")]
    why = _why_not(aten, name, inputs) or _with_places_apart(body, inputs[: _carried(aten, name)])
    inputs = [node.meta.get("val") for node in body.graph.find_nodes(op="placeholder")]
    if options.mode in REPLAY_MODES:  # what calls it decides what runs, and how often
        options = replace(options, mode=AS_CALLED[options.mode])
    within = _recorded(aten, name, body, recorder)
    if not why:
        try:
            compiled = compile_one(within, options, recorder)
        except NbcompileError as error:
            recorder.drop_part(within.id)
            why = error.message.splitlines()[0]
        else:
            returned = body.graph.output_node().args[0]
            single = not isinstance(returned, tuple | list)
            return checked(compiled.call, in_aten(body), inputs, single=single)
    recorder.add(f"graph {within.id} runs in ATen: {why}")
    return body


def _why_not(aten: AtenGraph, name: str, inputs: list[Any]) -> str:
    callers = _callers(aten, name)
    for caller in callers:
        if str(caller.target) in TRACED_AGAIN:
            return f"{caller.target} transforms it"
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            return "it is given numbers"
        if not all(isinstance(n, int) for n in (*value.shape, *value.stride())):
            return "its sizes are symbols"
    return ""


def _carried(aten: AtenGraph, name: str) -> int:
    """How many of a body's first inputs are its own results, from its second call on."""
    count = 0
    for caller in _callers(aten, name):
        place = _CARRIED.get(str(caller.target))
        given: Any = () if place is None else caller.args[place]
        count = max(count, len(given))
    return count


def _with_places_apart(body: fx.GraphModule, carried: list[Any]) -> str:
    """Traced again where what it is given first shares its elements (an expanded number): what it is given
    later does not, and cannot be copied to lie so. Why not, if it cannot be."""
    shared = {place: value for place, value in enumerate(carried) if shares_elements(value)}
    if not shared:
        return ""
    if body.graph.find_nodes(op="get_attr"):
        return "what it is given first shares its elements, and there is more within it"
    given = body.graph.find_nodes(op="placeholder")
    try:
        with fake_tensors(fake_mode(body.graph)):
            for place, value in shared.items():
                given[place].meta["val"] = value.clone(memory_format=torch.contiguous_format)
            for node in body.graph.nodes:
                if node.op == "call_function":
                    set_result(node, run(node), "tensor_meta" in node.meta)
    except (RuntimeError, ValueError) as error:  # a view that there is of shared elements alone
        return f"what it is given first shares its elements: {error}"
    return ""


def _recorded(aten: AtenGraph, name: str, body: fx.GraphModule, recorder: Recorder) -> AtenGraph:
    """The body as a graph of the record. Its nodes come from the node that calls it."""
    id = f"{aten.id}.{re.sub(r'_graph_0$', '', name)}"  # g0.fw.true
    callers = _callers(aten, name)
    origins: tuple[str, ...] = tuple(o for caller in callers for o in aten.origins.get(caller.name, ()))
    nodes = [node for node in body.graph.nodes if node.op == "call_function"]
    called = next((aten.spans[caller.name] for caller in callers if caller.name in aten.spans), ())
    cell_file = recorder.cell.filename if recorder.cell is not None else ""
    spans = {node.name: node_spans(node, cell_file) or called for node in nodes}
    from_callers = dict.fromkeys((node.name for node in nodes), origins)
    ids, recorded, outputs = record_nodes(body.graph, id, spans, from_callers)
    title = f"ATen graph {name} of {aten.id}"
    recorder.add(Graph(id, aten.stage, title, recorded, outputs, parent=aten.id))
    return AtenGraph(id, aten.stage, body, ids, from_callers, spans)


def _callers(aten: AtenGraph, name: str) -> list[fx.Node]:
    """The nodes that call the graph which the node of this name is, and others with the same target are."""
    nodes = [node for node in aten.module.graph.nodes if node.op == "get_attr"]
    target = next(node.target for node in nodes if node.name == name)
    return [user for node in nodes if node.target == target for user in node.users]


def checked(
    call: Callable[[list[Any]], Any],
    instead: Callable[[list[Any]], Any],
    inputs: list[torch.Tensor],
    *,
    single: bool,
) -> Callable[..., Any]:
    """``call`` with tensors as positional arguments, which whoever calls it may lay out otherwise than they
    were traced: then they are copied; what has other sizes or another type, or would be copied to where
    elements share memory, goes to ``instead``. ``single``: the graph returns its result alone, not in a
    tuple."""
    expected = [(tuple(value.shape), value.stride(), value.dtype, value.device) for value in inputs]
    shared = [shares_elements(value) for value in inputs]

    def body(*given: Any) -> Any:
        args = list(given)
        for place, (item, (shape, strides, dtype, device)) in enumerate(zip(args, expected, strict=True)):
            if item.shape != shape or item.dtype is not dtype or item.device != device:
                return instead(list(given))
            if shared[place] and item.stride() != strides:
                return instead(list(given))
            args[place] = restride(item, strides)
        results = call(args)
        return results[0] if single else results

    return body
