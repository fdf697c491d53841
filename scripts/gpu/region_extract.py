"""Fused regions of an ATen graph: each group that our fusion makes, as a program of the ATen calls in it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import torch
from gpu_timing import covered
from region_capture import OPTIONS
from regions import SHORT, Input, Region
from torch import fx

from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.nodes import Loop
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.stages import AtenGraph

LEAST_BYTES = 1 << 20
_LAYER_NORM_BACKWARD = "aten.native_layer_norm_backward.default"
_PICKS = re.compile(r"aten\.(embedding|gather|index_select|index)\.")  # they read a part of their first input


def regions_of(aten: AtenGraph, source: str) -> Iterator[Region]:
    """Every fused region of a graph that moves at least :data:`LEAST_BYTES`."""
    program = aten_to_loops(aten, OPTIONS)
    fused = loops_to_groups(program, OPTIONS)
    makers = {origin for statement in program.statements for origin in statement.origins}
    nodes = {node.name: node for node in aten.module.graph.nodes}
    for group in fused.groups:
        region = _Extraction(group, nodes, makers, f"{source}, {aten.stage}").region()
        if region is not None and region.bytes >= LEAST_BYTES:
            yield region


class _Extraction:
    """One group's nodes, their inputs and results, renamed in order.

    A node that makes no loop and calls no library (views, getitem, constants) is *transparent*: it is part
    of whichever region needs it, so that a region reads the memory that its group reads.
    """

    def __init__(self, group: Group, nodes: dict[str, fx.Node], makers: set[str], source: str) -> None:
        self.group, self.nodes, self.makers, self.source = group, nodes, makers, source
        origins = {origin for loop in group.loops for origin in loop.origins if origin in nodes}
        self.own = {nodes[name] for name in origins}
        self.names: dict[fx.Node, str] = {}
        self.inputs: list[fx.Node] = []
        self.lines: list[str] = []
        self.members: list[fx.Node] = []

    def region(self) -> Region | None:
        results = [result for node in self._ordered() for result in self._results(node)]
        overwrites = any(_name(node).startswith("aten.copy_") for node in self.own)
        if not results and not overwrites:
            return None
        for node in self._ordered():
            self._take(node)
        for result in results:
            self._take(result)
        code, returns = tuple(self.lines), tuple(self.names[result] for result in results)
        inputs = tuple(self._input(node) for node in self.inputs)
        read = sum(self._bytes_read(node) for node in self.inputs)
        written = sum(covered(result.meta["val"]) for result in results)
        written += sum(
            covered(node.meta["val"]) for node in self.members if _name(node) == "aten.copy_.default"
        )
        digest = hashlib.sha256(repr((inputs, code, returns)).encode()).hexdigest()[:8]
        short = re.sub(r"[^a-z0-9]+", "-", self.source.lower()).strip("-")
        return Region(
            f"{short}-{digest}", self.group.name, self.source, read + written, inputs, code, returns
        )

    def _ordered(self) -> list[fx.Node]:
        order = {node: place for place, node in enumerate(self.nodes.values())}
        return sorted(self.own, key=order.__getitem__)

    # -- nodes into lines ------------------------------------------------------------------------

    def _transparent(self, node: fx.Node) -> bool:
        return node.op == "call_function" and node.name not in self.makers

    def _take(self, node: fx.Node) -> None:
        """Make ``node`` a line, after what it needs, or an input."""
        if node in self.names:
            return
        if node not in self.own and not self._inside(node):
            self.names[node] = f"a{len(self.inputs)}"
            self.inputs.append(node)
            return
        for each in node.all_input_nodes:
            self._take(each)
        name = f"v{len(self.members)}"
        self.members.append(node)
        if _is_getitem(node):
            text = f"{self.names[node.args[0]]}[{node.args[1]}]"
        else:
            arguments = [self._text(each) for each in node.args]
            arguments += [f"{key}={self._text(value)}" for key, value in node.kwargs.items()]
            text = f"{_name(node)}({', '.join(arguments)})"
        self.lines.append(f"{name} = {text}")
        self.names[node] = name

    def _inside(self, node: fx.Node) -> bool:
        if not self._transparent(node):
            return False
        # A part of what another kernel or a library returns is an input by itself.
        return not _is_getitem(node) or node.args[0] in self.own

    def _text(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self.names[value]
        if isinstance(value, list | tuple):
            inner = ", ".join(map(self._text, value))
            return f"[{inner}]"
        if isinstance(value, torch.dtype):
            return SHORT[value]
        if isinstance(value, torch.device):
            return "device"
        if isinstance(value, torch.layout | torch.memory_format):
            return str(value)
        return repr(value)

    # -- what goes in and out --------------------------------------------------------------------

    def _results(self, node: fx.Node) -> list[fx.Node]:
        """The tensors of ``node`` that this kernel stores and somebody outside it reads."""
        if _name(node).startswith("aten.copy_"):
            return []
        stored = [
            out
            for loop in self.group.loops
            if isinstance(loop, Loop) and node.name in loop.origins
            for out in loop.outputs
            if out.name in self.group.stored
        ]
        if isinstance(node.meta.get("val"), torch.Tensor):
            return [node] if stored and self._leaves(node) else []
        parts = [user for user in node.users if _is_getitem(user) and self._leaves(user)]
        kinds = {(out.dtype, out.numel().hint()) for out in stored}
        return [part for part in parts if (part.meta["val"].dtype, part.meta["val"].numel()) in kinds]

    def _leaves(self, node: fx.Node) -> bool:
        def away(user: fx.Node) -> bool:
            if user.op == "output":
                return True
            return user not in self.own and (not self._transparent(user) or self._leaves(user))

        return any(map(away, node.users))

    def _input(self, node: fx.Node) -> Input:
        value = node.meta["val"]
        strides = None if value.is_contiguous() else list(value.stride())
        # Statistics of layer norm's rows are float32 on a GPU, whatever they are on a CPU.
        layer_norms = [
            user for user in node.users if _name(user) == _LAYER_NORM_BACKWARD and user in self.own
        ]
        statistics = any(node in user.args[3:5] for user in layer_norms)
        dtype = torch.float32 if statistics else value.dtype
        return (self.names[node], SHORT[dtype], list(value.shape), strides, self._bound(node))

    def _bound(self, node: fx.Node) -> int | None:
        """Below what the integers of this input must be: the smallest extent that they index."""
        if node.meta["val"].dtype not in (torch.int64, torch.int32):
            return None
        bounds: list[int] = []
        pending, seen = [node], {node}
        while pending:
            current = pending.pop()
            for user in current.users:
                if user not in self.names:
                    continue
                bounds += _bounds(user, current)
                value = user.meta.get("val")
                if (
                    isinstance(value, torch.Tensor)
                    and value.dtype == current.meta["val"].dtype
                    and user not in seen
                ):
                    seen.add(user)
                    pending.append(user)
        return min(bounds, default=1000)

    def _bytes_read(self, node: fx.Node) -> int:
        """What must be read of an input: all of it, or what its views show, or what is picked from it."""
        whole = covered(node.meta["val"])
        users = [user for user in node.users if user in self.names]
        shown: dict[Any, int] = {}
        for user in users:
            value = user.meta.get("val")
            if not isinstance(value, torch.Tensor):
                return whole
            if _PICKS.match(_name(user)) and user.args[0] is node:
                shown[user.name] = covered(value) * node.meta["val"].element_size() // value.element_size()
            elif user in self.own or not self._transparent(user):
                return whole
            else:
                shown[(tuple(value.shape), value.stride(), value.storage_offset())] = self._bytes_read(user)
        return min(whole, sum(shown.values())) if shown else whole


def _name(node: fx.Node) -> str:
    return str(node.target)


def _is_getitem(node: fx.Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def _bounds(user: fx.Node, index: fx.Node) -> list[int]:
    """Extents that ``user`` indexes with the values of ``index``."""
    name, args = _name(user).removeprefix("aten."), user.args

    def shape(place: int) -> Any:
        return args[place].meta["val"].shape

    if name.startswith("embedding_dense_backward"):
        return [int(args[2])] if args[1] is index else []
    if name.startswith("embedding.") and args[1] is index:
        return [shape(0)[0]]
    if name.startswith(("gather.", "scatter", "index_select", "index_add", "index_copy", "index_fill")):
        return [shape(0)[args[1]]] if args[2] is index else []
    if name.startswith(("index.", "index_put", "_unsafe_index")):
        places = [place for place, each in enumerate(args[1]) if each is index]
        return [shape(0)[place] for place in places]
    return []
