"""The device that a graph works on follows from what its nodes make, not from its inputs alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from nbcompile import targets
from nbcompile.compiler.capture.function_to_fx import make_backend
from nbcompile.compiler.compile_graph import compile_graph
from nbcompile.compiler.stages import AtenGraph, CompiledModule, device_of
from nbcompile.errors import LoweringError
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder

Graphs = list[tuple[AtenGraph, Options]]


def captured(fn: Callable[..., Any], *inputs: Any, monkeypatch: pytest.MonkeyPatch) -> Graphs:
    """The ATen graphs of ``fn`` and the options they are compiled with, as on a machine with an H100: they
    are captured, with fake tensors, and not run."""
    monkeypatch.setattr(targets, "of_device", lambda index: targets.CHIPS["cuda:90"])
    seen: Graphs = []

    def look(aten: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule:
        seen.append((aten, options.for_device(device_of(aten.module))))
        (output,) = aten.module.graph.find_nodes(op="output")
        return CompiledModule(aten.id, lambda args: tuple(torch.zeros(4) for _ in output.args[0]))

    torch._dynamo.reset()
    options = Options(cache=False)
    results = torch.compile(fn, backend=make_backend(options, Recorder(options), look))(*inputs)
    if any(each.requires_grad for each in inputs):
        results[0].sum().backward()
    return seen


def test_a_graph_without_inputs(monkeypatch):
    made = lambda: torch.arange(4, device="cuda").float().sin()
    [(aten, options)] = captured(made, monkeypatch=monkeypatch)
    assert device_of(aten.module) == torch.device("cuda", 0) and options.target == "cuda:90"


def test_a_graph_whose_inputs_are_elsewhere(monkeypatch):
    made = lambda x: (x.sum(), torch.ones(x.shape, device="cuda").cumsum(0))[1]
    [(aten, options)] = captured(made, torch.randn(4), monkeypatch=monkeypatch)
    assert device_of(aten.module) == torch.device("cuda", 0) and options.target == "cuda:90"


def test_a_backward_graph_on_the_cpu_of_one_that_works_on_both(monkeypatch):
    both = lambda x: (x.sin(), torch.ones(4, device="cuda").cumsum(0))
    x = torch.randn(4, requires_grad=True)
    forward, backward = captured(both, x, monkeypatch=monkeypatch)
    assert [forward[0].stage, backward[0].stage] == ["forward", "backward"]
    assert [forward[1].target, backward[1].target] == ["cuda:90", "cpu"]


def test_a_graph_on_the_cpu(monkeypatch):
    [(aten, options)] = captured(lambda: torch.arange(4).float().sin(), monkeypatch=monkeypatch)
    assert device_of(aten.module) == torch.device("cpu") and options.target == "cpu"


def test_code_for_a_cpu_is_not_given_memory_of_a_gpu(monkeypatch):
    made = lambda: torch.arange(4, device="cuda").float().sin()
    [(aten, _)] = captured(made, monkeypatch=monkeypatch)
    named = Options(cache=False, target="cpu")
    with pytest.raises(LoweringError, match="memory of cuda:0"):
        compile_graph(aten, named, Recorder(named))


def test_tensors_without_memory_are_left_to_torch(monkeypatch):
    made = lambda: torch.arange(4, device="meta").float().sin()
    [(aten, options)] = captured(made, monkeypatch=monkeypatch)
    with pytest.raises(LoweringError, match="works on meta"):
        compile_graph(aten, options, Recorder(options))
