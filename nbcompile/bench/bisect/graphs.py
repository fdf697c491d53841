"""Captured graphs with the values of a call, and parts cut out of them as programs of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from nbcompile.api import Compiled
from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import Step, unheard
from nbcompile.compiler.capture.fx_to_aten import user_name
from nbcompile.record.compilation import Cell, Compilation
from nbcompile.settings import CompileSettings


@dataclass(frozen=True)
class TakenGraph:
    """A captured graph with copies of its inputs at its first call, and ``values``: what eager makes each
    node, by name, copied when it was made; ``views`` are those that are memory of what they read."""

    module: fx.GraphModule
    inputs: tuple[Any, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    views: frozenset[str] = frozenset()

    @property
    def nodes(self) -> list[fx.Node]:
        """What computes, in order."""
        return [node for node in self.module.graph.nodes if node.op.startswith("call_")]

    @property
    def outputs(self) -> list[fx.Node]:
        """What the graph returns."""
        return list(self.module.graph.output_node().all_input_nodes)


@dataclass(frozen=True)
class Cut:
    """Some nodes of a graph as a program: ``module`` takes ``inputs``, the values that eager has there.
    ``kept`` are the nodes of the whole graph that are in it, ``returned`` those that it returns."""

    module: fx.GraphModule
    inputs: tuple[Any, ...]
    kept: tuple[fx.Node, ...]
    returned: tuple[fx.Node, ...]


def take_graphs(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    cell: Cell | None,
    dynamic: bool | None,
) -> tuple[list[TakenGraph], Compilation]:
    """The graphs that Dynamo captures of one call, with their values, and the record of them. The state of
    the program is put back."""
    calls: dict[int, tuple[fx.GraphModule, tuple[Any, ...]]] = {}
    count = 0

    def backend(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        nonlocal count
        place, count = count, count + 1

        def run(*inputs: Any) -> Any:
            if place not in calls:
                calls[place] = (module, tuple(map(copied, inputs)))
            return module.forward(*inputs)

        return run

    snapshot = Snapshot({"fn": fn, "inputs": args, **dict(kwargs or {})})
    compiled = Compiled(fn, CompileSettings(backend=backend, dynamic=dynamic), cell=cell)
    try:
        with unheard():
            Step(compiled, args, kwargs)()
    finally:
        snapshot.restore()
    taken = [with_values(module, inputs) for _, (module, inputs) in sorted(calls.items())]
    return taken, compiled.compilation


def take_aten(cut: Cut, *, decompositions: Any = None, train: bool) -> list[TakenGraph]:
    """The ATen graphs of a program, forward and, with ``train``, backward, with their values."""
    from torch._dynamo.backends.common import aot_autograd

    calls: list[tuple[fx.GraphModule, tuple[Any, ...]]] = []

    def compiler(module: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        def run(inputs: list[Any]) -> Any:
            taken = tuple(inputs)
            inputs.clear()
            calls.append((module, tuple(map(copied, taken))))
            return module.forward(*taken)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    given = {"decompositions": decompositions} if decompositions is not None else {}
    backend = aot_autograd(fw_compiler=compiler, bw_compiler=compiler, **given)
    snapshot = Snapshot({"inputs": cut.inputs})
    leaves = tuple(t for t in cut.inputs if isinstance(t, torch.Tensor) and t.requires_grad)
    step = Step(
        Compiled(cut.module, CompileSettings(backend=backend, dynamic=False)),
        cut.inputs,
        train=train,
        leaves=leaves,
    )
    try:
        with unheard():
            step()
    finally:
        snapshot.restore()
    return [with_values(module, inputs) for module, inputs in calls]


def with_values(module: fx.GraphModule, inputs: tuple[Any, ...]) -> TakenGraph:
    """The graph with what eager makes each of its nodes for these inputs; the inputs stay as they are."""
    keeper = _Keeper(module)
    generator = torch.get_rng_state()
    try:
        keeper.run(*map(copied, inputs))
    finally:
        torch.set_rng_state(generator)
    return TakenGraph(module, inputs, keeper.values, frozenset(keeper.views))


class _Keeper(fx.Interpreter):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[str, Any] = {}
        self.views: set[str] = set()

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op != "output":
            self.values[n.name] = copied(result)
        if n.op.startswith("call_") and isinstance(result, torch.Tensor):
            read = [self.env[each] for each in n.all_input_nodes]
            memory = {_memory(each) for value in read for each in tree_leaves(value)} - {0}
            if _memory(result) in memory:
                self.views.add(n.name)
        return result


def _memory(value: Any) -> int:
    strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return value.untyped_storage().data_ptr() if strided else 0


def copied(value: Any) -> Any:
    """A tensor's copy with its strides, a leaf that wants a gradient if it does; all else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    plain = value.detach()
    if plain.layout is torch.strided and not torch._debug_has_internal_overlap(plain):
        made = torch.empty_strided(plain.shape, plain.stride(), dtype=plain.dtype, device=plain.device)
        made.copy_(plain)
    else:
        made = plain.clone()
    return made.requires_grad_(value.requires_grad)


def cut_out(
    graph: TakenGraph, wanted: Sequence[fx.Node], returned: Sequence[fx.Node] | None = None
) -> Cut | None:
    """``wanted`` as a program, with what cannot be an input (tuples) computed too. It returns what nothing in
    it reads, or ``returned``. None where there is nothing to return."""
    kept = _closed(graph, wanted)
    order = [node for node in graph.nodes if node in kept]
    new = fx.Graph()
    renamed: dict[fx.Node, fx.Node] = {}
    taken = {node.name for node in order}
    read = dict.fromkeys(each for node in order for each in node.all_input_nodes if each not in kept)
    inputs = []
    for node in read:
        if node.op == "get_attr" and not isinstance(graph.values.get(node.name), torch.Tensor):
            renamed[node] = new.get_attr(str(node.target))
            continue
        name = next(each for each in (_short(node), node.name) if each not in taken)
        taken.add(name)
        renamed[node] = new.placeholder(name)
        inputs.append(copied(graph.values[node.name]))
    for node in order:
        renamed[node] = new.node_copy(node, lambda each: renamed[each])
        renamed[node].meta = {}
    if returned is None:
        returned = [node for node in order if not any(user in kept for user in node.users)]
    shown = [node for node in returned if _shown(graph.values.get(node.name))]
    if not shown:
        return None
    # AOTAutograd makes a result that is a view of an input anew, whatever the backend made of it.
    new.output(
        tuple(new.call_method("clone", (renamed[n],)) if n.name in graph.views else renamed[n] for n in shown)
    )
    # Placeholders first, as they are made: a get_attr may stand between them, which code generation allows.
    module = fx.GraphModule(graph.module, new)
    return Cut(module, tuple(inputs), tuple(order), tuple(shown))


def every_value(graph: TakenGraph) -> Cut | None:
    """The whole graph, returning the value of every node that can be compared."""
    return cut_out(graph, graph.nodes, graph.nodes)


def _closed(graph: TakenGraph, wanted: Sequence[fx.Node]) -> set[fx.Node]:
    kept, waiting = set(wanted), list(wanted)
    while waiting:
        for each in waiting.pop().all_input_nodes:
            if each not in kept and each.op.startswith("call_") and not _passable(graph.values[each.name]):
                kept.add(each)
                waiting.append(each)
    return kept


def _short(node: fx.Node) -> str:
    return user_name(node.name) if node.op == "placeholder" else node.name


def _passable(value: Any) -> bool:
    return isinstance(value, torch.Tensor | int | float | bool)


def _shown(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return bool(value) and all(isinstance(each, torch.Tensor) or each is None for each in value)
    return isinstance(value, torch.Tensor | int | float | bool)


def with_inputs(cut: Cut, inputs: tuple[Any, ...]) -> Cut:
    """The same program on other inputs."""
    return dataclasses.replace(cut, inputs=inputs)
