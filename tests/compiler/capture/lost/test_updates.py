"""What torch loses of updates of 0-d float64 tensors on the CPU is not lost with us."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import nbcompile

Tensor = torch.Tensor


def method(x: Tensor, s: Tensor) -> Tensor:
    s.mul_(2)
    return x.sin()


def operator(x: Tensor, s: Tensor) -> Tensor:
    s += 1
    return x.sin() + s


def of_a_view(x: Tensor, s: Tensor) -> Tensor:
    s.view(1)[0] = 3
    return x.sin()


def named(x: Tensor, s: Tensor) -> Tensor:
    F.silu(s, inplace=True)
    return torch.add(x, 1, out=s[None])


@pytest.mark.parametrize("function", [method, operator, of_a_view, named])
def test_the_update_is_there_and_the_record_says_why_it_ran_eagerly(function: Callable[..., Tensor]) -> None:
    torch._dynamo.reset()
    expected, found = (torch.tensor(1.2, dtype=torch.float64) for _ in range(2))
    run = nbcompile.compile(function, options={"cache": False})
    x = torch.ones(1, dtype=torch.float64 if function is named else torch.float32)
    for _ in range(2):
        torch.testing.assert_close(run(x, found), function(x, expected))
        assert torch.equal(found, expected)
    assert "a number as a tensor" in run.eager_reason


def test_what_only_reads_one_is_compiled() -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(lambda x, s, rate: x.mul_(s).add_(rate), options={"cache": False})
    for rate in (0.5, 0.25, 0.125):
        x, y, s = torch.ones(3), torch.ones(3), torch.tensor(1.2, dtype=torch.float64)
        torch.testing.assert_close(run(x, s, rate), y.mul_(s).add_(rate))
        torch.testing.assert_close(x, y)
    assert run.ran_compiled, run.eager_reason


def compared(x: Tensor, s: Tensor) -> Tensor:
    turned = s.cos() * x
    return ((turned > 0) & (turned < 1) | (turned > 2)) * x  # `and_` and `or_` end like in-place functions


def updated_copy(x: Tensor, s: Tensor) -> Tensor:
    return s.cos().mul_(2).add_(x)


@pytest.mark.parametrize("function", [compared, updated_copy])
def test_what_is_made_of_one_may_be_changed(function: Callable[..., Tensor]) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    x, s = torch.tensor(0.7, dtype=torch.float64), torch.tensor(1.2, dtype=torch.float64)
    torch.testing.assert_close(run(x, s), function(x, s))
    assert run.ran_compiled, run.eager_reason


@pytest.mark.parametrize("sizes", [(4,), (1, 2), (4, 5, 6)])
def test_bools_that_are_written_through_an_expand(sizes: tuple[int, ...]) -> None:
    def function(x: Tensor) -> Tensor:
        shown = x.expand(x.shape)
        shown.mul_(shown)
        return shown.sum()

    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    for size in sizes:
        found, expected = torch.ones(size) > 0, torch.ones(size) > 0
        assert torch.equal(run(found), function(expected)) and torch.equal(found, expected)
    assert "AOTAutograd could not trace it" in run.eager_reason


def diagonal_of_rows(x: Tensor) -> Tensor:
    rows = torch.as_strided(x, (2, 3), (0, 1), 0)
    last = torch.diagonal(rows, 1)
    last.div_(last.abs() + 1)
    return rows * 1


def windows(x: Tensor) -> Tensor:
    shown = x.as_strided((3, 3), (2, 1))
    shown[::2].mul_(2)
    return shown + 0


def apart(x: Tensor) -> Tensor:
    shown = x.as_strided((3, 2), (2, 1))
    shown[1].mul_(2)
    return x + 0


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("function", "lost"), [(diagonal_of_rows, True), (windows, True), (apart, False)])
def test_what_is_written_where_strides_meet(
    function: Callable[..., Tensor], lost: bool, dynamic: bool
) -> None:
    """Old numbers of the elements that show one place were written over the new ones (seed 17002864)."""
    torch._dynamo.reset()
    run = nbcompile.compile(function, dynamic=dynamic, options={"cache": False})
    for n in (16, 12):
        found, expected = torch.linspace(-1, 1, n), torch.linspace(-1, 1, n)
        torch.testing.assert_close(run(found), function(expected))
        torch.testing.assert_close(found, expected)
    assert ("several times (as_strided)" in run.eager_reason) == lost


def test_a_tensor_of_inference_mode_is_overwritten_in_that_mode_alone() -> None:
    """Torch's kernels ask; eager's words come of eager itself."""

    def program(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        return x + y

    with torch.inference_mode():
        x = torch.ones(3)
    y = torch.ones(3)
    for seen in ((), (y.clone(),)):  # first, and where a graph is there already
        torch._dynamo.reset()
        run = nbcompile.compile(program, options={"cache": False})
        for other in seen:
            run(other, y)
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
            run(x, y)
        assert torch.equal(run(y, x), program(torch.ones(3), x)), "which it may read"
        y = torch.ones(3)
    with torch.inference_mode():
        run = nbcompile.compile(program, options={"cache": False})
        assert torch.equal(run(x, y), x + 1)
    assert run.ran_compiled, run.eager_reason
    with torch.no_grad(), pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        run(x, y)
