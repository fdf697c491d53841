"""A graph that raises leaves the modes that it has entered."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn.attention import SDPBackend, sdpa_kernel

import nbcompile
from tests.nightly import few

REGIONS: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.float16),
    "sdpa_kernel": lambda: sdpa_kernel(SDPBackend.MATH),
}


def _state() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"), torch.backends.cuda.flash_sdp_enabled(),
        torch._C._is_fwd_grad_enabled(), str(torch._C._dispatch_tls_local_include_set()),
        str(torch._C._dispatch_tls_local_exclude_set()),
    )  # fmt: skip


@few(3)
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("region", REGIONS)
def test_a_graph_that_runs_eagerly_and_raises(region: str, grad: bool) -> None:
    def function(x: Tensor, index: Tensor, flags: Tensor) -> Tensor:
        with REGIONS[region]():
            picked = x[index] * 2
            shown = flags.expand(flags.shape)
            shown.mul_(shown)  # which AOTAutograd cannot trace
            return picked

    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    kept = []  # as a notebook keeps the last error
    with torch.set_grad_enabled(grad):
        before = _state()
        for index in (1, 9, 2, -9):
            try:
                run(torch.ones(4), torch.tensor([index]), torch.ones(4) > 0)
            except IndexError as error:
                kept.append(error)
            assert _state() == before, index
        assert "AOTAutograd could not trace it" in run.eager_reason
        assert len(kept) == 2
        kept.clear()
        gc.collect()
        assert _state() == before


@pytest.mark.parametrize("region", REGIONS)
def test_a_trace_that_raises(region: str) -> None:
    kept: list[Exception] = []
    asked: list[int] = []
    name = f"nbcompile_test_modes::{region}"

    @torch.library.custom_op(name, mutates_args=())
    def operator(x: Tensor) -> Tensor:
        return x * 2

    @operator.register_fake
    def _(x: Tensor) -> Tensor:
        asked.append(len(asked))
        if len(asked) > 1:  # not Dynamo, but AOTAutograd
            kept.append(ValueError("no such shape"))
            raise kept[-1]
        return torch.empty_like(x)

    def function(x: Tensor) -> Tensor:
        with REGIONS[region](), torch.no_grad(), torch.inference_mode():
            return operator(x) + 1

    torch._dynamo.reset()
    before = _state()
    run = nbcompile.compile(function, options={"cache": False})
    assert torch.equal(run(torch.ones(4)), torch.full((4,), 3.0))
    assert "AOTAutograd could not trace it" in run.eager_reason
    assert kept and _state() == before
    kept.clear()
    gc.collect()
    assert _state() == before
    assert torch.equal(run(torch.ones(4)), torch.full((4,), 3.0))


def test_a_graph_without_such_a_region_is_called_as_it_is() -> None:
    from nbcompile.compiler.capture.lost.modes import eagerly

    module = torch.fx.symbolic_trace(lambda x: x + 1)
    assert eagerly(module) == module.forward


def test_a_trace_that_ends_where_guards_are_suppressed() -> None:
    """RecursionError there left them so: a later graph was taken for right at sizes it was not for."""

    @torch.library.custom_op("nbcompile_test::ends_while_suppressed", mutates_args=())
    def ends(x: Tensor) -> Tensor:
        return x * 2

    @ends.register_fake
    def _(x: Tensor) -> Tensor:
        if any("_functorch" in frame.filename for frame in traceback.extract_stack()):
            ShapeEnv()._suppress_guards_enter()
            raise RecursionError("maximum recursion depth exceeded")
        return torch.empty_like(x)

    torch._dynamo.reset()
    run = nbcompile.compile(lambda x: ends(x) + 1, options={"cache": False})
    torch.testing.assert_close(run(torch.ones(3)), torch.full((3,), 3.0))
    assert "maximum recursion depth" in run.eager_reason
    assert not ShapeEnv._suppress_guards_tls()

    fill = nbcompile.compile(lambda x: x.new_ones(x.shape[0] // 2) if x.shape[0] < 9 else x, dynamic=True)
    assert fill(torch.zeros(6)).shape == (3,)
    assert fill(torch.zeros(12)).shape == (12,)
