"""Every program of the zoo, forward and backward, compiled: right, whole where it can be, dynamic.

``NBCOMPILE_TEST_BACKEND=aot_eager`` (or any other backend) runs the same tests on a peer.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

import nbcompile
from nbcompile.bench.measure.accuracy import check
from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import Step
from nbcompile.record.compilation import Accuracy
from tests.nightly import few

BACKEND = os.environ.get("NBCOMPILE_TEST_BACKEND", "nbcompile")


def _load_programs() -> Any:
    path = Path(__file__).parents[2] / "scripts" / "programs.py"
    spec = importlib.util.spec_from_file_location("programs", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["programs"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


programs = _load_programs()


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()
    counters.clear()


def _check(fn: Any, compiled: Any, args: tuple[Any, ...], train: bool) -> tuple[Accuracy, ...]:
    before = Snapshot({"fn": fn, "args": args})
    leaves = tuple(t for t in before.tensors.values() if t.is_leaf and t.requires_grad)
    step = Step(fn, args, train=train, leaves=leaves)
    found = check(step, {BACKEND: step.with_function(compiled)}, before)
    if train:
        assert sum(item.output.endswith(".grad") for item in found) == len(leaves)
    return found


def _ids(program: Any) -> str:
    return str(program.name)


@few(2)
@pytest.mark.parametrize("program", programs.PROGRAMS, ids=_ids)
def test_agrees_with_eager_forward_and_backward(program: Any) -> None:
    fn, args = program.build()
    compiled = nbcompile.compile(fn, backend=BACKEND)
    for batch in program.batches or (args[0].shape[0],):
        x = torch.randn(batch, *args[0].shape[1:], requires_grad=True)
        found = _check(fn, compiled, (x, *args[1:]), train=True)
        wrong = [item for item in found if not item.agrees]
        assert not wrong
        assert compiled.ran_compiled, compiled.eager_reason
        assert any(item.output == "output" and item.eager_error is not None for item in found)
    assert sum(counters["graph_break"].values()) == program.breaks
    assert counters["stats"]["unique_graphs"] == (2 if program.batches else 1) + program.breaks


@few(3)
@pytest.mark.parametrize("program", programs.PROGRAMS, ids=_ids)
def test_agrees_with_eager_without_gradients(program: Any) -> None:
    fn, args = program.build()
    args = tuple(argument.detach() for argument in args)
    with torch.no_grad():
        found = _check(fn, torch.compile(fn, backend=BACKEND), args, train=False)
    assert [item for item in found if not item.agrees] == []


@few(2)
@pytest.mark.parametrize("program", programs.BENCHMARKS, ids=_ids)
def test_benchmarked_programs_agree_with_eager(program: Any) -> None:
    fn, args = program.build(True)
    compiled = torch.compile(fn, backend=BACKEND, fullgraph=True)
    found = _check(fn, compiled, args, program.train)
    if program.random and BACKEND == "inductor":
        assert all("its own random numbers" in item.reason for item in found)
        return
    assert [item for item in found if not item.agrees] == []
    assert any(item.output == "args[0]" for item in found) == program.mutates
