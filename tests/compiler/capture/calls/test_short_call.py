"""What AOTAutograd puts around a graph is left out where it does nothing, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.backends.nbcompile import register
from nbcompile.compiler.capture import fx_to_aten
from nbcompile.compiler.capture.calls import short_call

FIRST = torch.ones(3, 4)


@pytest.fixture
def shortened(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each graph's calling was made short."""
    if torch.__version__ < (2, 13):
        pytest.skip("another torch's wrappers, which are called as they are")
    found: list[bool] = []

    def short(compiled, ours):
        result = short_call.short(compiled, ours)
        found.append(result is not compiled)
        return result

    monkeypatch.setattr(fx_to_aten, "short", short)
    return found


def one(x, y):
    return x * 2 + y


def three(x, y):
    return x + y, x * 2, (x * y).sum()


def writes(x, y):
    x += y
    return x * 2


def shows(x, y):
    return x.t(), y + 1


def shows_its_own(x, y):
    z = x + y
    return z, z[0]


def no_result(x, y):
    x.copy_(y)


def with_a_constant(x, y):
    return x + torch.tensor([1.0, 2.0, 3.0, 4.0]) * y


@pytest.mark.parametrize("f, plain", [(one, True), (three, True), (with_a_constant, True), (shows, False)])
def test_a_graph_that_only_gives_results_is_called_at_once(
    f: Callable[..., Any], plain: bool, shortened: list[bool]
) -> None:
    run = nbcompile.compile(f)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(3):
        torch.testing.assert_close(run(x, y), f(x, y))
    assert shortened == [plain]


@pytest.mark.parametrize("f", [writes, shows, shows_its_own, no_result])
def test_what_there_is_to_do_is_done(f: Callable[..., Any]) -> None:
    run = nbcompile.compile(f)
    for _ in range(3):
        x, y = torch.randn(3, 4), torch.randn(3, 4)
        mine, theirs = x.clone(), x.clone()
        torch.testing.assert_close(run(mine, y), f(theirs, y))
        assert torch.equal(mine, theirs)


def test_aliases_are_aliases(shortened: list[bool]) -> None:
    run, x, y = nbcompile.compile(shows), torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(2):
        assert run(x, y)[0].data_ptr() == x.data_ptr()
    run = nbcompile.compile(shows_its_own)
    for _ in range(2):
        whole, part = run(x, y)
        assert whole.data_ptr() == part.data_ptr()


def test_gradients_are_off_within_and_as_they_were_after(shortened: list[bool]) -> None:
    @torch.library.custom_op("nbcompile_tests::is_enabled", mutates_args=())
    def is_enabled(x: torch.Tensor) -> torch.Tensor:
        return torch.full_like(x, float(torch.is_grad_enabled()))

    is_enabled.register_fake(torch.empty_like)
    run = nbcompile.compile(lambda x: is_enabled(x) + 0 * x)
    for _ in range(3):
        assert run(FIRST).sum() == 0 and torch.is_grad_enabled()
    assert shortened == [True]
    with torch.no_grad():
        run(FIRST), run(FIRST)
        assert not torch.is_grad_enabled()
    with torch.inference_mode():
        assert run(FIRST).is_inference()


def test_gradients_are_taken_as_before(shortened: list[bool]) -> None:
    run = nbcompile.compile(one)
    x = torch.ones(3, 4, requires_grad=True)
    for _ in range(3):
        x.grad = None
        run(x, FIRST).sum().backward()
        assert torch.equal(x.grad, torch.full((3, 4), 2.0))
    assert shortened == [False]


def test_an_error_of_a_kernel_turns_gradients_on_again() -> None:
    run = nbcompile.compile(lambda x, i: x[i] * 2)
    x = torch.ones(4)
    run(x, torch.tensor([0, 1])), run(x, torch.tensor([0, 1]))
    with pytest.raises(IndexError):
        run(x, torch.tensor([0, 9]))
    assert torch.is_grad_enabled()


def test_the_profiler_sees_aotautograds_own(shortened: list[bool]) -> None:
    register()
    run = torch.compile(one, backend="nbcompile")
    run(FIRST, FIRST), run(FIRST, FIRST)
    with torch.profiler.profile() as profile:
        run(FIRST, FIRST)
    assert any("AOTDispatcher" in event.name for event in profile.events())


def test_another_torchs_wrapper_is_called_as_it_is(
    monkeypatch: pytest.MonkeyPatch, shortened: list[bool]
) -> None:
    text = short_call._ORCHESTRATION.replace("ret_outs = fw_outs", "ret_outs = fw_outs[:]")
    monkeypatch.setattr(short_call, "_ORCHESTRATION", text)
    assert torch.equal(nbcompile.compile(one)(FIRST, FIRST), one(FIRST, FIRST))
    assert shortened == [False]
