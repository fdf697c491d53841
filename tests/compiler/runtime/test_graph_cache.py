"""A graph from the cache: the same results and the same record, but for times."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from nbcompile.api import compile as nbcompile_compile
from nbcompile.compiler.lower.registry import lowering, registry
from nbcompile.compiler.runtime import graph_cache
from nbcompile.compiler.runtime.cache import DiskCache
from nbcompile.compiler.stages import AtenGraph
from nbcompile.record.compilation import Compilation
from tests.nightly import few

X = torch.linspace(-2, 2, 24 * 16).reshape(24, 16)
WEIGHT = torch.nn.Parameter(torch.linspace(0, 1, 16 * 16).reshape(16, 16))


def normed(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.nn.functional.layer_norm(x @ WEIGHT, (16,)) * 2, -1)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = DiskCache(tmp_path)
    monkeypatch.setattr(DiskCache, "shared", lambda: cache)
    return tmp_path


def run() -> tuple[torch.Tensor, torch.Tensor, Compilation]:
    """(result, gradient, record) of a compile of its own, its build finished."""
    compiled = nbcompile_compile(normed)
    WEIGHT.grad = None
    result = compiled(X)
    result.square().sum().backward()
    assert compiled.ran_compiled, compiled.eager_reason
    assert WEIGHT.grad is not None
    return result.detach(), WEIGHT.grad.clone(), compiled.compilation


def but_for_times(record: Compilation) -> dict[str, Any]:
    """The record without its times, and without saying what was in the cache."""
    known = {"from cache": ""}
    passes = tuple(
        dataclasses.replace(step, milliseconds=0.0, note=known.get(step.note, step.note))
        for step in record.passes
    )
    same = dataclasses.replace(record, passes=passes, compile_seconds=0.0, from_cache=False)
    return {field.name: getattr(same, field.name) for field in dataclasses.fields(same)}


def test_a_warm_record_equals_the_cold_one_but_for_times(root: Path) -> None:
    first, gradient, cold = run()
    again, warm_gradient, warm = run()
    assert (cold.from_cache, warm.from_cache) == (False, True)
    assert torch.equal(first, again) and torch.equal(gradient, warm_gradient)
    assert len(cold.kernels) >= 2 and cold.decisions
    for name, value in but_for_times(cold).items():
        assert but_for_times(warm)[name] == value, name
    assert all(step.milliseconds == 0 for step in warm.passes if step.name in ("lower", "fuse", "codegen"))


@pytest.mark.nightly
def test_a_warm_record_of_a_chip_that_is_not_here_equals_the_cold_one(root: Path) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, named = torch.softmax(x * 2, -1), x[:, 0].long() % 5
        return rows, rows.cumsum(0), x.t().exp().sum(1), torch.zeros(5, 16).index_add(0, named, x)

    pytest.importorskip("triton")
    records = []
    for _ in range(2):
        compiled = nbcompile_compile(function, options={"target": "cuda:90"})
        for got, wanted in zip(compiled(X), function(X), strict=True):
            torch.testing.assert_close(got, wanted)
        assert not compiled.ran_compiled
        records.append(compiled.compilation)
    cold, warm = records
    assert (cold.from_cache, warm.from_cache) == (False, True)
    assert len(cold.kernels) >= 3 and all(kernel.line_map and kernel.launches for kernel in cold.kernels)
    assert {kernel.target for kernel in cold.kernels} == {"cuda:90"}
    for name, value in but_for_times(cold).items():
        assert but_for_times(warm)[name] == value, name


@few(1)
@pytest.mark.parametrize("file", [graph_cache.SOURCE, graph_cache.RECORD])
def test_a_damaged_entry_is_made_again(root: Path, file: str) -> None:
    first, _, cold = run()
    damaged = list(root.rglob(file))
    assert damaged
    for path in damaged:
        path.write_bytes(path.read_bytes()[:40])
    again, _, made = run()
    assert torch.equal(first, again)
    assert but_for_times(made)["kernels"] == but_for_times(cold)["kernels"]


def test_other_options_are_another_entry(root: Path) -> None:
    run()
    plain = nbcompile_compile(normed, options={"fuse": False})
    torch.testing.assert_close(plain(X), normed(X))
    assert not plain.compilation.from_cache
    assert not any(decision.accepted for decision in plain.compilation.decisions)


def test_what_fills_empty_tensors_is_another_entry(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def emptied(x: torch.Tensor) -> torch.Tensor:
        made = torch.empty(3)
        made[0] = x[0]
        return made

    assert not nbcompile_compile(emptied)(X[:, 0]).isnan().any()
    torch.use_deterministic_algorithms(True)
    try:
        assert nbcompile_compile(emptied)(X[:, 0]).isnan().tolist() == [False, True, True]
    finally:
        torch.use_deterministic_algorithms(False)


@torch.library.custom_op("nbcompile_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_what_is_lowered_by_code_from_outside_is_not_taken_from_the_cache(root: Path) -> None:
    """Its key knows this package's code, not a notebook's, where a lowering is changed and run again."""
    target: Any = torch.ops.nbcompile_tests.twice.default
    found = []
    for factor in (None, 2.0, 3.0):
        if factor is not None:
            lowering(target)(lambda b, x, factor=factor: b.pointwise(lambda x: x * factor, x))
        compiled = nbcompile_compile(lambda x: twice(x.exp()) + 1)
        assert torch.allclose(compiled(X), X.exp() * (factor or 2) + 1)
        record = compiled.compilation
        found.append((len(record.kernels), record.from_cache))
    registry().lowerings.pop(target)
    assert found == [(2, False), (1, False), (1, False)]


def test_what_backward_alone_gets_is_another_entry(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result may share no memory that what is saved for backward may: two cells that differ in what they
    return, and in which inputs want gradients, have the same nodes at the same places."""
    made, keys = graph_cache.graph_key, []

    def noted(aten: AtenGraph, *more: Any) -> str:
        keys.append(made(aten, *more))
        return keys[-1]

    monkeypatch.setattr(graph_cache, "graph_key", noted)
    for returned, of_first in (("a, p, q", True), ("a, p, q, c", False)):
        body = ("c = (x @ x)[1:3].clone()", "a, p, q = w * c, v + 1, u + 1", f"return {returned}")
        scope: dict[str, Any] = {}
        exec(compile("\n  ".join(("def f(x, w, v, u):", *body)), "one cell", "exec"), scope)
        torch._dynamo.reset()
        w, v, u = torch.ones(2, 4), torch.ones(3, requires_grad=True), torch.ones(3)
        (w if of_first else u).requires_grad_()
        torch.compile(scope["f"], backend="nbcompile")(torch.ones(4, 4), w, v, u)
    assert len(keys) == len(set(keys)) == 2
