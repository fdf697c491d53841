"""A graph compiled by XLA, as torch calls it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from nbcompile.backends.xla.exchange import Order, device_for, inverse, to_jax, to_torch, wide_types
from nbcompile.backends.xla.program import XlaProgram, compile_step
from nbcompile.backends.xla.split import Plan, XlaStep, is_number
from nbcompile.compiler.stages import AtenGraph

Shapes = Mapping[fx.Node, tuple[int, ...]]
Compile = Callable[[XlaStep, Shapes, Mapping[fx.Node, Any]], XlaProgram]


class Module:
    """The steps of a graph, each compiled once a set of shapes.

    Calling it takes one list of inputs, empties it, and returns the results as a tuple (torch's boxed
    calling convention).
    """

    def __init__(
        self,
        aten: AtenGraph,
        plan: Plan,
        device: torch.device,
        options: Mapping[str, Any],
        compiled: Callable[[int, XlaProgram], None],
    ) -> None:
        """``compiled(step, program)`` is called after each compile."""
        self._aten = aten
        self._plan = plan
        self._device = device
        self._options = options
        self._compiled = compiled
        self._programs: dict[tuple[Any, ...], XlaProgram] = {}
        self._lock = threading.Lock()
        self._constants = aten.module.graph.find_nodes(op="get_attr")
        self._numbers = [node for node in aten.module.graph.nodes if is_number(node)]
        self._static = {plan.inputs[place] for place in aten.static_inputs}
        self._shared: dict[fx.Node, tuple[torch.Tensor, Any]] = {}

    def prepare(self) -> None:
        """Compile for the sizes at capture, so that what XLA refuses is known before the first call."""
        numbers = {node: _hinted(node.meta["val"]) for node in self._plan.inputs if is_number(node)}
        numbers |= {node: _hinted(node.meta["val"]) for node in self._plan.sizes}
        for place, step in enumerate(self._plan.steps):
            shapes = {node: tuple(map(_hinted, node.meta["val"].shape)) for node in step.reads}
            program = self._program(place, step, shapes, numbers)
            numbers |= program.numbers

    def __call__(self, inputs: list[Any]) -> tuple[Any, ...]:
        known: dict[fx.Node, Any] = dict(zip(self._plan.inputs, inputs, strict=True))
        inputs.clear()
        for node in self._constants:
            known[node] = getattr(self._aten.module, node.target)
        for node in self._plan.sizes:
            known[node] = _run(node, known)
        arrays: dict[fx.Node, Any] = {}  # what XLA made, with its order, and not yet a tensor
        for place, step in enumerate(self._plan.steps):
            for node in step.torch:
                for read in node.all_input_nodes:
                    _tensor(read, known, arrays)
                known[node] = _run(node, known)
            if step.returns:
                self._run_step(place, step, known, arrays)
        return tuple(
            self._result(item, known, arrays) if isinstance(item, fx.Node) else item
            for item in self._plan.results
        )

    def _run_step(
        self, place: int, step: XlaStep, known: dict[fx.Node, Any], arrays: dict[fx.Node, Any]
    ) -> None:
        numbers = {node: known[node] for node in self._numbers if node in known}
        shapes = {}
        for node in step.reads:
            if node in arrays:
                array, order = arrays[node]
                shapes[node] = tuple(array.shape[axis] for axis in inverse(order))
            else:
                shapes[node] = tuple(known[node].shape)
        program = self._program(place, step, shapes, numbers)
        device = device_for(self._device)
        with wide_types():
            given = [
                arrays[node][0] if node in arrays else self._array(node, known[node], order, device)
                for node, order in program.arrays
            ]
            made = program.run(*given)
        # The caller may write to an input as soon as we return. On a GPU torch's stream waits for what it is
        # given, and so does what is written on it later; what it is not given nobody else would wait for.
        if self._device.type == "cpu":
            for array in made:
                array.block_until_ready()
        for (node, order), array in zip(program.returned, made, strict=True):
            arrays[node] = (array, order)
        known.update(program.numbers)

    def _array(self, node: fx.Node, tensor: torch.Tensor, order: Order, device: Any) -> Any:
        """A tensor as jax sees it. Of a parameter on the CPU, which is the same memory at every call, what
        jax was given before: its memory is read when the program runs. (On a GPU the exchange also makes XLA
        wait for what torch is still writing.)"""
        before, array = self._shared.get(node, (None, None))
        if before is not None and _same_memory(before, tensor):
            return array
        array = to_jax(tensor, order, device)
        shareable = node in self._static and tensor.device.type == "cpu" and tensor.numel()
        if shareable and array.unsafe_buffer_pointer() == tensor.data_ptr():
            self._shared[node] = (tensor.detach(), array)  # the memory is not given to another while held
        return array

    def _program(
        self, place: int, step: XlaStep, shapes: Shapes, numbers: Mapping[fx.Node, Any]
    ) -> XlaProgram:
        key = (place, tuple(shapes.values()), tuple(numbers.values()))
        with self._lock:
            found = self._programs.get(key)
            if found is None:
                found = compile_step(self._aten, step, shapes, numbers, self._device, self._options)
                self._programs[key] = found
                self._compiled(place, found)
        return found

    def _result(self, node: fx.Node, known: dict[fx.Node, Any], arrays: dict[fx.Node, Any]) -> Any:
        if node in self._plan.views:
            self._view(node, known)
        return _tensor(node, known, arrays)

    def _view(self, node: fx.Node, known: dict[fx.Node, Any]) -> None:
        if node not in known:
            base = node.args[0]
            assert isinstance(base, fx.Node)
            self._view(base, known)
            known[node] = _run(node, known)


def _same_memory(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.data_ptr() == y.data_ptr() and x.shape == y.shape and x.stride() == y.stride()


def _tensor(node: fx.Node, known: dict[fx.Node, Any], arrays: dict[fx.Node, Any]) -> Any:
    """The value of a node for torch. What XLA made becomes a tensor once: each use sees the same one."""
    if node not in known and node in arrays:
        array, order = arrays.pop(node)
        known[node] = to_torch(array, order, node.meta["val"])
    return known.get(node)


def _run(node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
    args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _hinted(value: Any) -> Any:
    if isinstance(value, torch.SymInt):
        known = value.node.hint
        return int(known) if known is not None else 1
    if isinstance(value, torch.SymFloat | torch.SymBool):
        return value.node.hint
    return value
