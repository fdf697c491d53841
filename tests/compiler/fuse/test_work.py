"""Fusion looks again only at what a merge can have changed: its work grows as the program does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import nbcompile
from nbcompile.compiler.fuse import alignment, legality, recompute
from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.loop_ir.fused import FusedProgram
from nbcompile.compiler.loop_ir.nodes import Loop, LoopProgram
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.options import Options
from tests.compiler.codegen.running import NO_CACHE, aten_of

ON_A_GPU = Options(cache=False, target="cuda:90")


def chain(steps: int) -> Callable[..., torch.Tensor]:
    def function(x, y):
        for _ in range(steps):
            x = torch.sin(x) * y
        return x

    return function


def stencils(steps: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Steps of a wave on a periodic grid."""

    def function(h, u):
        for _ in range(steps):
            h = h - 0.1 * (u.roll(-1, 1) - u)
            u = u - 0.1 * (h - h.roll(1, 1) + h.roll(1, 0))
        return h, u

    return function


def normed(steps: int) -> Callable[..., torch.Tensor]:
    def function(x, y):
        for _ in range(steps):
            x = torch.softmax(x * y, 1) + x.roll(1, 0)
        return x

    return function


def loops_of(function: Callable[..., object]) -> LoopProgram:
    return aten_to_loops(aten_of(function, torch.ones(48, 64), torch.ones(48, 64)), NO_CACHE)


def work(program: LoopProgram, patch: pytest.MonkeyPatch) -> int:
    """How often fusion asks where something is read."""
    asked, place_of = [0], recompute.place_of

    def counted(load, binding):
        asked[0] += 1
        return place_of(load, binding)

    with patch.context() as patched:
        for module in (legality, recompute):
            patched.setattr(module, "place_of", counted)
        loops_to_groups(program, NO_CACHE)
    return asked[0]


@pytest.mark.parametrize(("kind", "steps"), [(chain, 30), (stencils, 12), (normed, 16)])
def test_twice_the_steps_are_twice_the_work(kind, steps, monkeypatch):
    few, many = loops_of(kind(steps)), loops_of(kind(2 * steps))
    once, twice = work(few, monkeypatch), work(many, monkeypatch)
    assert once > steps
    assert twice <= 2.2 * once
    assert twice <= 160 * sum(len(item.reads()) for item in many.statements if isinstance(item, Loop))


def texts(program: FusedProgram) -> list[object]:
    groups = [
        (group.loops, group.nest, dict(group.bindings), group.split, group.stored) for group in program.groups
    ]
    return [groups, program.decisions]


@pytest.mark.parametrize("options", [NO_CACHE, ON_A_GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("kind", [chain, stencils, normed])
def test_what_is_not_looked_at_again_would_be_found_good(kind, options, monkeypatch):
    program = loops_of(kind(6))
    quick = texts(loops_to_groups(program, options))
    monkeypatch.setattr(legality, "kept_parts", lambda group, parts: ())
    assert texts(loops_to_groups(program, options)) == quick


def test_a_place_elsewhere_is_asked_for_not_every_one(monkeypatch):
    """Of a stencil in place with symbolic sizes each step multiplies the places that are read, and the guards
    passed on the way there: one of them tells that the input cannot be written to where it lies. (18,710 were
    looked at when all were listed: minutes for three steps in two dimensions.)"""
    asked, place_of = [0], alignment.place_of

    def counted(load, binding):
        asked[0] += 1
        return place_of(load, binding)

    def function(u: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            u[1:-1] += 0.1 * (u[2:] + u[:-2])
            u[0] = u[1]
            u[-1] = u[-2]
        return u.sum()

    monkeypatch.setattr(alignment, "place_of", counted)
    torch._dynamo.reset()
    run = nbcompile.compile(function, dynamic=True, options={"cache": False, "verify": True})
    x = torch.randn(8)
    y = x.clone()
    torch.testing.assert_close(run(x), function(y))
    torch.testing.assert_close(x, y)
    assert run.ran_compiled, run.eager_reason
    assert 4 < asked[0] < 4000
