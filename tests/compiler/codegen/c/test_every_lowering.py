"""Every registered lowering, on all of its samples, through fusion and generated C.

The samples of one operator become one graph, so that one compiler run serves them all.
"""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from nbcompile.compiler.lower.registry import Lowering, registry
from nbcompile.compiler.stages import AtenGraph
from tests.compiler.codegen.running import compile_aten
from tests.compiler.lower.harness import as_list, compare
from tests.nightly import few


def graph_of_samples(entry: Lowering) -> tuple[AtenGraph, list[torch.Tensor], list[Any], list[Any]]:
    """(graph, inputs, eager results, float64 results) of one call a sample."""
    graph = fx.Graph()
    mode = FakeTensorMode(shape_env=ShapeEnv())
    inputs: list[torch.Tensor] = []
    outputs: list[fx.Node] = []
    calls: Calls = []
    placeholders: list[tuple[fx.Node, torch.Tensor]] = []

    def place(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            node = graph.placeholder(f"x{len(inputs)}")
            node.meta["val"] = mode.from_tensor(value, static_shapes=True)
            inputs.append(value)
            placeholders.append((node, value))
            return node
        if isinstance(value, list | tuple):
            return type(value)(place(item) for item in value)
        return value

    def fake(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return value.meta["val"]
        if isinstance(value, list | tuple):
            return type(value)(fake(item) for item in value)
        return value

    placed = []
    for sample in entry.samples:
        args, kwargs = sample.make(torch.Generator().manual_seed(0))
        calls.append((args, kwargs))
        placed.append((place(args), {key: place(item) for key, item in kwargs.items()}))
    for args, kwargs in placed:
        node = graph.call_function(entry.target, args, kwargs)
        with mode:
            node.meta["val"] = entry.target(*fake(args), **{k: fake(v) for k, v in kwargs.items()})
        value = node.meta["val"]
        if isinstance(value, tuple | list):
            for n, part in enumerate(value):
                if isinstance(part, torch.Tensor):
                    item = graph.call_function(operator.getitem, (node, n))
                    item.meta["val"] = part
                    outputs.append(item)
        else:
            outputs.append(node)
    graph.output(tuple(outputs))
    module = fx.GraphModule(torch.nn.Module(), graph)
    ids = {n.name: f"g0.fw.n{i}" for i, n in enumerate(graph.nodes)}
    return AtenGraph("g0.fw", "forward", module, ids), inputs, *expected(entry, calls)


Calls = list[tuple[tuple[Any, ...], dict[str, Any]]]


def expected(entry: Lowering, calls: Calls) -> tuple[list[Any], list[Any]]:
    """(eager results, float64 results)."""
    eager: list[Any] = []
    wide: list[Any] = []
    torch.manual_seed(7)
    for args, kwargs in calls:
        try:
            eager += as_list(entry.target(*args, **kwargs))
        except NotImplementedError:  # no kernel for the CPU, where it never occurs: its reference is eager
            if entry.reference is None:
                raise
            eager += as_list(entry.reference(*args, **kwargs))
    for args, kwargs in calls:
        try:
            up = [_wide(item) for item in args]
            reference = entry.reference or entry.target
            results = as_list(reference(*up, **{k: _wide(v) for k, v in kwargs.items()}))
        except (RuntimeError, TypeError, NotImplementedError):
            results = as_list(entry.target(*args, **kwargs))  # no float64 version: eager alone counts
        wide += results
    return eager, wide


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    if isinstance(value, list | tuple):
        return type(value)(_wide(item) for item in value)
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


@few(10)
@pytest.mark.parametrize("target", [t for t, e in registry().lowerings.items() if e.samples], ids=str)
def test_generated_code_agrees_with_eager(target):
    entry = registry().lowerings[target]
    aten, inputs, eager, wide = graph_of_samples(entry)
    run = compile_aten(aten)
    torch.manual_seed(7)
    got = list(run(inputs))
    compare(got, eager, wide)
