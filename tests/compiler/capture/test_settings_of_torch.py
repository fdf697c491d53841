"""torch's own settings, marks and stances around a compiled function: they hold, and what they prevented is
said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo import decorators

import nbcompile
from tests.nightly import few


def f(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1.5


def test_dynamo_turned_off_when_it_is_made() -> None:
    with torch._dynamo.config.patch(disable=True):
        compiled = nbcompile.compile(f)
    compiled(torch.ones(3))
    assert compiled.eager_reason == "torch._dynamo.config.disable was set when it was made"


def test_dynamo_turned_off_when_it_is_called() -> None:
    compiled = nbcompile.compile(f)
    with torch._dynamo.config.patch(disable=True):
        compiled(torch.ones(3))
    assert compiled.eager_reason == "torch._dynamo.config.disable is set"
    compiled(torch.ones(3))
    assert compiled.eager_reason.startswith("torch._dynamo.config.disable was set at an earlier call")


@pytest.mark.parametrize("stance", ["force_eager", "eager_on_recompile"])
def test_a_stance_is_named_where_it_kept_something_from_compiling(stance: str) -> None:
    compiled = nbcompile.compile(f)
    compiled(torch.ones(3))
    with torch.compiler.set_stance(stance):
        compiled(torch.ones(3, 3))
        assert compiled.eager_reason == f"torch.compiler.set_stance asks for {stance}"
    compiled(torch.ones(3, 3))
    assert compiled.eager_reason == ""


@pytest.mark.parametrize("make", [nbcompile.compile, lambda fn: torch.compile(fn, backend="nbcompile")])
def test_a_stance_that_fails_on_recompiles(make: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    compiled = make(f)
    compiled(torch.ones(3))
    with torch.compiler.set_stance("fail_on_recompile"):
        torch.testing.assert_close(compiled(torch.ones(3)), f(torch.ones(3)))
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            compiled(torch.ones(3, 3))


def test_caches_that_are_forbidden_are_not_read() -> None:
    def recorded() -> nbcompile.Compilation:
        compiled = nbcompile.compile(lambda x: x.sin() + 2.25)
        compiled(torch.ones(3))
        return compiled.compilation

    assert not recorded().from_cache and recorded().from_cache
    with torch.compiler.config.patch(force_disable_caches=True):
        found = recorded()
    assert not found.from_cache
    assert any("force_disable_caches is set: our cache was not read" in note for note in found.notes)


def test_the_reason_of_a_disabled_function_is_kept() -> None:
    @torch.compiler.disable(reason="it is slow (on purpose)")
    def kept_out(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @torch.compiler.disable
    def without(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    compiled = nbcompile.compile(lambda x: kept_out(x * 2) + without(x * 3))
    compiled(torch.ones(3))
    said = [found.reason for found in compiled.compilation.breaks]
    called = "a function that is marked torch.compiler.disable is called"
    assert said == [f"{called} (it is slow (on purpose))", called]


@pytest.mark.parametrize(
    "keep",
    [
        torch.compiler.keep_tensor_guards_unsafe,
        torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe,
        torch.compiler.skip_all_guards_unsafe,
    ],
)
def test_a_filter_of_guards_around_our_backend(keep: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    layer, asked = torch.nn.Linear(4, 4), []

    def filtered(entries: Any) -> Any:
        asked.append(len(entries))
        return keep(entries)

    options = {"guard_filter_fn": filtered, "fuse": False}
    compiled = torch.compile(lambda x: layer(x).sin(), backend="nbcompile", options=options)
    x = torch.ones(4)
    torch.testing.assert_close(compiled(x), layer(x).sin())
    assert len(asked) == 1


@few(2)
@pytest.mark.parametrize("mark", ["mark_dynamic", "maybe_mark_dynamic", "mark_unbacked", "dynamic=True"])
def test_one_compile_serves_fifty_sizes(mark: str) -> None:
    compiled = nbcompile.compile(f, dynamic=True if mark == "dynamic=True" else None)
    for n in range(2, 52):
        x = torch.ones(n, 3)
        if mark != "dynamic=True":
            getattr(decorators, mark)(x, 0)
        torch.testing.assert_close(compiled(x), f(x))
        assert compiled.eager_reason == ""
    assert len(compiled.compilation.of_stage("fx")) == 1 and compiled.compilation.recompiles == ()


def test_static_sizes_are_compiled_each() -> None:
    compiled = nbcompile.compile(f)
    for n in range(2, 6):
        x = torch.ones(n, 3)
        torch._dynamo.mark_static(x, 0)
        compiled(x)
    record = compiled.compilation
    assert len(record.of_stage("fx")) == 4
    assert [found.reason[-20:] for found in record.recompiles] == [
        f"expected {n}, actual {n + 1}"[-20:] for n in range(2, 5)
    ]
