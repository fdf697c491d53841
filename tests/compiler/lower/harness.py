"""Runs one lowering on one sample: through the interpreter here, through generated code elsewhere."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.loop_ir.nodes import LibraryCall, LoopProgram
from nbcompile.compiler.loop_ir.verify import verify
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.lower.registry import Lowering, Sample
from nbcompile.compiler.stages import AtenGraph
from nbcompile.options import Options


def call_graph(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[AtenGraph, list[torch.Tensor]]:
    """A graph that is one call of ``target``; every tensor in ``args`` is an input of it."""
    graph = fx.Graph()
    inputs: list[torch.Tensor] = []
    mode = FakeTensorMode(shape_env=ShapeEnv())

    def place(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            node = graph.placeholder(f"x{len(inputs)}")
            node.meta["val"] = mode.from_tensor(value, static_shapes=True)
            inputs.append(value)
            return node
        if isinstance(value, list | tuple):
            return type(value)(place(item) for item in value)
        return value

    placed_args, placed_kwargs = place(args), {key: place(item) for key, item in kwargs.items()}
    node = graph.call_function(target, placed_args, placed_kwargs)

    def fake(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return value.meta["val"]
        if isinstance(value, list | tuple):
            return type(value)(fake(item) for item in value)
        return value

    with mode:
        node.meta["val"] = target(*fake(placed_args), **{k: fake(v) for k, v in placed_kwargs.items()})
    results = node.meta["val"]
    if isinstance(results, tuple | list):
        import operator

        outputs = []
        for n, value in enumerate(results):
            if isinstance(value, torch.Tensor):
                item = graph.call_function(operator.getitem, (node, n))
                item.meta["val"] = value
                outputs.append(item)
    else:
        outputs = [node]
    graph.output(tuple(outputs))
    module = fx.GraphModule(torch.nn.Module(), graph)
    ids = {n.name: f"g0.fw.n{i}" for i, n in enumerate(graph.nodes)}
    return AtenGraph("g0.fw", "forward", module, ids), inputs


def lower_sample(
    entry: Lowering, sample: Sample, options: Options | None = None
) -> tuple[LoopProgram, list[torch.Tensor], Any, Any]:
    """(verified program, its inputs, eager results, float64 reference results or None)."""
    args, kwargs = sample.make(torch.Generator().manual_seed(0))
    graph, inputs = call_graph(entry.target, args, kwargs)
    program = verify(aten_to_loops(graph, options or Options()))
    torch.manual_seed(7)
    try:
        eager = as_list(entry.target(*args, **kwargs))
    except NotImplementedError:  # no kernel for the CPU, where it never occurs: its reference is eager
        if entry.reference is None:
            raise
        eager = as_list(entry.reference(*args, **kwargs))
    reference = None
    try:
        torch.manual_seed(7)
        wide = [_wide(item) for item in args]
        reference = as_list(
            (entry.reference or entry.target)(*wide, **{k: _wide(v) for k, v in kwargs.items()})
        )
    except (RuntimeError, TypeError, NotImplementedError):
        reference = None  # the operator has no float64 version: eager alone is the reference
    return program, inputs, eager, reference


def check_sample(entry: Lowering, sample: Sample, *, native: bool = True) -> LoopProgram:
    """Interpret the lowered sample and compare with eager and float64; ``native`` insists on loops."""
    program, inputs, eager, reference = lower_sample(entry, sample)
    if native:
        calls = [s for s in program.statements if isinstance(s, LibraryCall) and s.fallback]
        assert not calls, f"fell back: {calls[0].reason}"
    torch.manual_seed(7)
    got = interpret(program, [fresh(item) for item in inputs])
    compare(list(got), eager, reference)
    return program


def compare(got: list[Any], eager: list[Any], reference: list[Any] | None) -> None:
    """Same shape, dtype and NaN positions as eager; values as close to float64 as eager's, or to eager."""
    assert len(got) == len(eager)
    for n, (mine, theirs) in enumerate(zip(got, eager, strict=True)):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype, (
            n,
            mine.shape,
            theirs.shape,
            mine.dtype,
        )
        if not theirs.dtype.is_floating_point:
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
            continue
        # a looser bound where eager itself is far from float64
        rtol = {torch.float32: 2e-5, torch.float64: 1e-10}.get(theirs.dtype, 2e-2)
        atol = {torch.float32: 1e-5, torch.float64: 1e-10}.get(theirs.dtype, 1e-2)
        try:
            torch.testing.assert_close(mine, theirs, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError:
            if reference is None or not reference[n].is_floating_point():
                raise
            right = reference[n].double()
            if theirs.dtype.itemsize == 2:  # eager rounds after each step, we where a value is stored
                off = (theirs.double() - right).abs().nan_to_num(0, 0, 0)
                atol = max(atol, 1.5 * float(off.max()) if off.numel() else 0.0)
            torch.testing.assert_close(mine.double(), right, rtol=rtol, atol=atol, equal_nan=True)


def as_list(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [item for item in value if isinstance(item, torch.Tensor)]
    return [value]


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    if isinstance(value, list | tuple):
        return type(value)(_wide(item) for item in value)
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def fresh(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor, strides and offset included, in a copy of its storage."""
    storage = tensor.untyped_storage().clone()
    empty = torch.empty(0, dtype=tensor.dtype)
    return empty.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
