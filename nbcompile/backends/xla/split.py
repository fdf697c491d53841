"""What of a graph runs in torch beside XLA: random numbers, which are to be torch's own, and views of inputs.

A graph becomes *steps*. Each runs some nodes in torch, then gives the rest of what can be computed by then to
XLA as one program. Without random numbers there is one step, and nothing of it runs in torch.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from nbcompile.backends.xla.registry import DTYPES, lowerings
from nbcompile.compiler.stages import AtenGraph
from nbcompile.errors import BackendError

aten = torch.ops.aten
_EFFECTS = (aten.copy_.default, aten._assert_async.default, aten._assert_async.msg)


@dataclass(frozen=True)
class XlaStep:
    """``torch``: nodes run one by one, in order. ``xla``: those of one jitted function, which reads ``reads``
    and returns ``returns``; both in order."""

    torch: tuple[fx.Node, ...]
    xla: tuple[fx.Node, ...]
    reads: tuple[fx.Node, ...]
    returns: tuple[fx.Node, ...]


@dataclass(frozen=True)
class Plan:
    """The steps of a graph, ``results`` what it returns (nodes, or constants), ``sizes`` the nodes that are
    numbers worked out in Python before each call, ``views`` the results that are views of inputs."""

    inputs: tuple[fx.Node, ...]
    sizes: tuple[fx.Node, ...]
    steps: tuple[XlaStep, ...]
    results: tuple[Any, ...]
    views: frozenset[fx.Node]
    mutates: bool


def is_number(node: fx.Node) -> bool:
    """Whether a node is a size or another Python number."""
    value = node.meta.get("val")
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool)


def runs_in_torch(node: fx.Node) -> bool:
    """Whether a node draws from torch's generator, raises errors that depend on values, or writes to an
    input: what XLA has no form for, and what is done in the order of the program."""
    if node.target in _EFFECTS:
        return True
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def check(aten_graph: AtenGraph) -> None:
    """BackendError with the operator and its line, for the first node that XLA cannot be given."""
    known = lowerings()
    for node in aten_graph.module.graph.nodes:
        for value in _tensors(node.meta.get("val")):
            if value.dtype not in DTYPES or value.layout != torch.strided:
                what = str(value.dtype if value.layout == torch.strided else value.layout)
                raise unsupported(aten_graph, node, f"jax has nothing like {what}")
        if node.op != "call_function" or node.target is operator.getitem or is_number(node):
            continue
        if node.target not in known and not runs_in_torch(node):
            raise unsupported(aten_graph, node, "the xla backend has no lowering of it")


def unsupported(aten_graph: AtenGraph, node: fx.Node, reason: str) -> BackendError:
    """The error that names a node's operator and its line of the cell."""
    name = node.name if node.op != "call_function" else str(node.target)
    lines = [span.line for span in aten_graph.spans.get(node.name, ()) if not span.file]
    return BackendError(
        f"{name}: {reason}",
        operator=name,
        line=min(lines, default=None),
        advice="nbcompile.backends.xla.supported() lists what it has.",
    )


def plan(aten_graph: AtenGraph) -> Plan:
    """Cut a graph into steps."""
    nodes = list(aten_graph.module.graph.nodes)
    results = tuple(nodes[-1].args[0])
    wanted = {item for item in results if isinstance(item, fx.Node)}
    views = frozenset(node for node in wanted if _is_view_of_input(node))
    in_torch, level, last = _levels(aten_graph, nodes)
    needed = _needed((wanted - views) | {n for n in nodes if n in in_torch})
    inputs = tuple(node for node in nodes if node.op == "placeholder")
    sizes = tuple(n for n in nodes if n.op == "call_function" and is_number(n) and n not in level)
    steps = []
    for number in range(last + 1):
        here = [node for node in nodes if level.get(node) == number and node in needed]
        xla = [node for node in here if node not in in_torch]
        inside = set(xla)
        reads = dict.fromkeys(
            read for node in xla for read in node.all_input_nodes
            if read not in inside and not is_number(read)
        )  # fmt: skip
        later = {n for n in needed if n not in inside}
        returns = [
            node for node in xla
            if not isinstance(node.meta.get("val"), tuple | list)
            and (node in wanted - views or any(user in later for user in node.users if user.op != "output"))
        ]  # fmt: skip
        steps.append(
            XlaStep(tuple(n for n in here if n in in_torch), tuple(xla), tuple(reads), tuple(returns))
        )
    mutates = any(node.target is aten.copy_.default for node in nodes)
    return Plan(inputs, sizes, tuple(steps), results, views, mutates)


def _levels(aten_graph: AtenGraph, nodes: Sequence[fx.Node]) -> tuple[set[fx.Node], dict[fx.Node, int], int]:
    """Which nodes run in torch, the step of each node that runs at all, and the last step."""
    in_torch: set[fx.Node] = set()
    level: dict[fx.Node, int] = {}
    order = 0  # random numbers are drawn in the order of the program
    for node in nodes:
        if node.op != "call_function":
            continue
        read = [each for each in node.all_input_nodes if each in level]
        if is_number(node) and not read:
            continue
        before = max((level[each] for each in read), default=0)
        if runs_in_torch(node):
            made = max((level[each] + (each not in in_torch) for each in read), default=0)
            order = level[node] = max(order, made)
            in_torch.add(node)
            if any(is_number(each) for each in read):
                raise unsupported(aten_graph, node, "its arguments are sizes of tensors that XLA computes")
        elif node.target is operator.getitem and node.args[0] in in_torch:
            level[node] = before
            in_torch.add(node)
        else:
            level[node] = before
    return in_torch, level, max(level.values(), default=0)


def _is_view_of_input(node: fx.Node) -> bool:
    """Whether torch makes this from an input without touching memory."""
    while node.op == "call_function":
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.returns or schema.returns[0].alias_info is None:
            return False
        if len(schema.returns) != 1 or not isinstance(node.meta.get("val"), torch.Tensor):
            return False
        if schema.returns[0].alias_info.is_write:
            return False
        node = node.args[0]  # type: ignore[assignment]
    return node.op in ("placeholder", "get_attr")


def _needed(wanted: set[fx.Node]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    todo = list(wanted)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += node.all_input_nodes
    return found


def _tensors(value: Any) -> list[torch.Tensor]:
    items = value if isinstance(value, tuple | list) else [value]
    return [item for item in items if isinstance(item, torch.Tensor)]
