"""Tensors are made where the program makes them by default, whatever torch's Dynamo writes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import nbcompile
from nbcompile.compiler.capture.lost import default_device
from tests.nightly import few


@contextmanager
def _set(device: str) -> Iterator[None]:
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


def made(x: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.arange(3),
        torch.tensor([1.0, 2.0]),
        torch.rand(2),
        torch.full((2,), 1.0, device="cpu"),
        torch.zeros_like(x),
        x + 1,
    )


@few(1)
@pytest.mark.parametrize("default", [torch.device, _set])
def test_results_are_where_eager_has_them(default: Callable[[str], Any]) -> None:
    torch._dynamo.reset()
    x = torch.ones(3)
    run = nbcompile.compile(made, options={"cache": False})
    with default("meta"):
        there = [item.device for item in run(x)]
        assert there == [item.device for item in made(x)]
    assert [item.device.type for item in run(x)] == ["cpu"] * 6  # and is compiled anew where it is not set


def _graph() -> fx.GraphModule:
    """As torch 2.11 captures it."""
    graph = fx.Graph()
    here = graph.call_function(torch.arange, (3,), {"device": torch.device("cpu")})
    default = graph.call_function(torch.arange, (3,), {"device": None})
    bare = graph.call_function(torch.zeros, ((2,),))
    bare.meta["example_value"] = torch.zeros(2)
    numbers = graph.call_function(torch.tensor, ([1, 2],))
    graph.output((here, default, bare, graph.call_function(torch.neg, (bare,)), numbers))
    return fx.GraphModule({}, graph)


def test_the_default_is_written_where_no_device_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_device, "_default_device", lambda: torch.device("meta"))
    outer = fx.Graph()
    outer.output((outer.call_module("within"), outer.call_function(torch.empty, (4,))))
    within = _graph()
    module = fx.GraphModule({"within": within}, outer)
    default_device.write_default_device(module)
    shown, made_outside = module()
    assert [item.device.type for item in (*shown, made_outside)] == ["cpu", *["meta"] * 5]
    (numbers,) = within.graph.find_nodes(op="call_function", target=torch.tensor)
    assert "device" not in numbers.kwargs and [user.target for user in numbers.users] == ["to"]
    assert [node.meta["example_value"].device.type for node in within.graph.find_nodes(
        op="call_function", target=torch.zeros)] == ["meta"]  # fmt: skip


def test_nothing_is_written_outside_of_dynamo() -> None:
    module = _graph()
    before = module.code
    default_device.write_default_device(module)
    assert module.code == before
