"""The chunked operator against float64, and its Triton kernels in the interpreter and for three chips."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from nbcompile.compiler.linear_cross_entropy import chunks as run
from nbcompile.compiler.linear_cross_entropy import kernel
from nbcompile.compiler.linear_cross_entropy import operator as operators
from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.compiler.runtime.interpreter.interpret import interpreted
from nbcompile.targets import parse
from tests.nightly import few

ALL = (True, True, True)


def _operator(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor, chunks: int = 3,
    *, ignore_index: int = -100, mean: bool = True, smoothing: float = 0.0, wanted: Sequence[bool] = ALL,
) -> Any:  # fmt: skip
    call = operators.linear_cross_entropy()
    return call(x, weight, bias, target, ignore_index, mean, smoothing, chunks, list(wanted), 0)


def _case(rows: int, hidden: int = 8, classes: int = 21) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    shapes = (rows, hidden), (classes, hidden), (classes,)
    inputs = [torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes]
    return [*inputs, torch.randint(0, classes, (rows,), generator=generator)]


def _exact(inputs: list[torch.Tensor], **how: Any) -> list[torch.Tensor]:
    """The loss and its gradients in float64, by torch."""
    x, weight, bias = (item.detach().double().requires_grad_() for item in inputs[:3])
    loss = F.cross_entropy(F.linear(x, weight, bias), inputs[3], **how)
    return [loss.detach(), *torch.autograd.grad(loss, (x, weight, bias))]


@pytest.mark.parametrize("chunks", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_any_number_of_chunks(chunks: int, reduction: str, smoothing: float) -> None:
    inputs = _case(23)
    inputs[3][::4] = 5
    got = _operator(*inputs, chunks, ignore_index=5, mean=reduction == "mean", smoothing=smoothing)
    wanted = _exact(inputs, ignore_index=5, reduction=reduction, label_smoothing=smoothing)
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.detach().double(), other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wanted", list(itertools.product((False, True), repeat=3)))
def test_only_the_gradients_that_are_wanted(wanted: tuple[bool, ...]) -> None:
    inputs = _case(10)
    loss, *found = _operator(*inputs, wanted=wanted)
    true, *gradients = _exact(inputs)
    torch.testing.assert_close(loss.detach().double(), true, rtol=1e-5, atol=1e-6)
    for asked, one, other in zip(wanted, found, gradients, strict=True):
        if asked:
            torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-6)
        else:
            assert one.numel() == 0


def test_fake_and_real_results_agree() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    for dtype in (torch.float32, torch.bfloat16):
        x, weight, bias, target = _case(9)
        inputs = [x.to(dtype), weight.detach().t().contiguous().t().to(dtype), bias.to(dtype), target]
        for wanted in (ALL, (True, False, False), (False, True, False)):
            real = _operator(*inputs, wanted=wanted)
            mode = FakeTensorMode()
            given = [mode.from_tensor(item.detach()) for item in inputs]
            with mode:
                fake = _operator(*given, wanted=wanted)
            for one, other in zip(real, fake, strict=True):
                assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)


def test_all_rows_ignored() -> None:
    inputs = _case(6)
    inputs[3][:] = -100
    loss, *gradients = _operator(*inputs)
    assert loss.isnan() and F.cross_entropy(F.linear(*inputs[:3]), inputs[3]).isnan()
    assert all(not gradient.any() for gradient in gradients)
    assert _operator(*inputs, mean=False)[0] == 0


def test_no_rows() -> None:
    inputs = _case(0)
    loss, by_x, by_weight, by_bias = _operator(*inputs)
    assert loss.isnan() and by_x.shape == (0, 8) and not by_weight.any() and not by_bias.any()


def test_infinities_are_those_of_torch() -> None:
    x, weight, _, target = _case(4, classes=6)
    bias = torch.tensor([0.0, -float("inf"), 1.0, 0.0, 0.0, 2.0])
    for targets in ([0, 2, 3, 5], [1, 2, 3, 4]):
        target = torch.tensor(targets)
        torch.testing.assert_close(
            _operator(x, weight, bias, target)[0].detach(),
            F.cross_entropy(F.linear(x, weight, bias), target).detach(),
        )


@pytest.mark.parametrize("wrong", [21, -1, -99])
def test_targets_that_are_no_class(wrong: int) -> None:
    inputs = _case(8)
    inputs[3][5] = wrong
    with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
        _operator(*inputs)


def test_a_transposed_weight() -> None:
    inputs = _case(12)
    wanted = _exact(inputs)
    inputs[1] = inputs[1].detach().t().contiguous().t()
    got = _operator(*inputs)
    assert got[2].stride() == inputs[1].stride()
    torch.testing.assert_close(got[2].double(), wanted[2], rtol=1e-5, atol=1e-6)


def test_autograd_by_itself() -> None:
    """Where no compiler stands around it, as after a failure of ours."""
    inputs = _case(11)
    (3 * _operator(*inputs)[0]).backward()
    for item, wanted in zip(inputs, _exact(inputs)[1:], strict=False):
        torch.testing.assert_close(item.grad.double(), 3 * wanted, rtol=1e-5, atol=1e-5)  # type: ignore[union-attr]


def test_autocast_does_not_reach_the_products() -> None:
    inputs = _case(11)
    with torch.autocast("cpu", torch.bfloat16):
        _, by_x, *_ = _operator(*inputs)
    wanted = _exact(inputs)
    torch.testing.assert_close(by_x.double(), wanted[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "chunks", "step"),
    [(8192, 8, 1024), (8191, 8, 1024), (1000, 3, 384), (7, 3, 4), (2, 8, 2), (0, 2, 0)],
)
def test_rows_of_a_chunk(rows: int, chunks: int, step: int) -> None:
    assert run.chunk_rows(rows, chunks) == step


# -- the Triton kernels ----------------------------------------------------------------------------


def _chunk(rows: int, classes: int, dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Logits in padded rows, targets of which one is ignored and one is no class."""
    generator = torch.Generator().manual_seed(seed)
    memory = torch.full((rows, -(-classes // run.PADDING) * run.PADDING), 77.0, dtype=dtype)
    logits = memory[:, :classes]
    logits.copy_(4 * torch.randn(rows, classes, generator=generator))
    target = torch.randint(0, classes, (rows,), generator=generator)
    target[1] = -100
    return memory, logits, target


CHUNKS = [(6, 37, 16), (5, 64, 16), (7, 100, 32), (4, 7, 16)]


@few(8)
@pytest.mark.parametrize(("rows", "classes", "block"), CHUNKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("gradient", [False, True])
def test_rows_in_the_interpreter(
    rows: int, classes: int, block: int, dtype: torch.dtype, smoothing: float, gradient: bool
) -> None:
    memory, logits, target = _chunk(rows, classes, dtype)
    logits[3, 2:6] = -float("inf")
    wanted, expected = logits.clone(), torch.empty(rows)
    scale, losses = torch.tensor(0.25), torch.full((rows,), 9.0)
    source = kernel.rows_source(dtype, classes, smooth=smoothing > 0, gradient=gradient, block=block)
    program = interpreted(source)["cross_entropy_rows"]
    kernel.launch_rows(program, logits, target, scale, losses, -100, smoothing)
    run._row_losses(wanted, target, scale, expected, -100, smoothing, gradient)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)
    tolerance = 1e-6 if dtype == torch.float32 else 4e-3
    torch.testing.assert_close(logits, wanted, rtol=tolerance, atol=tolerance / 10)
    assert (memory[:, classes:] == (0 if gradient else 77)).all()


def test_unusual_rows_in_the_interpreter() -> None:
    classes = 40
    source = kernel.rows_source(torch.float32, classes, smooth=False, gradient=True, block=16)
    program = interpreted(source)["cross_entropy_rows"]
    _, logits, target = _chunk(6, classes, torch.float32)
    logits[0] = -float("inf")
    logits[2, 3] = float("inf")
    logits[3, 39] = float("nan")
    logits[4, :17] = -float("inf")
    target[4], target[5] = 20, classes  # the last is no class
    wanted, losses, scale = logits.clone(), torch.zeros(6), torch.tensor(1.0)
    kernel.launch_rows(program, logits, target, scale, losses, -100, 0.0)
    expected = F.cross_entropy(wanted[:5], target[:5], reduction="none")
    torch.testing.assert_close(losses[:5], expected, equal_nan=True)
    assert losses[5].isnan() and losses[1] == 0 and not logits[1].any()
    assert logits[[0, 2, 3]].isnan().all() and logits[[4, 5]].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("in_place", [False, True])
def test_scaling_in_the_interpreter(dtype: torch.dtype, in_place: bool) -> None:
    program = interpreted(kernel.scale_source(dtype, in_place=in_place))["scale_gradient"]
    values = torch.randn(20_001, generator=torch.Generator().manual_seed(0)).to(dtype)
    for by in (1.0, 0.3, 0.0):
        given = values.clone()
        result = given if in_place else torch.full_like(given, 5)
        program(result, given, torch.tensor(by), given.numel())
        assert torch.equal(result, (values.float() * torch.tensor(by)).to(dtype))
        assert in_place or torch.equal(given, values)


@few(1)
@pytest.mark.parametrize("target", ["cuda:80", "cuda:90", "hip:gfx942"])
def test_the_kernels_compile(target: str) -> None:
    chip = parse(target)
    sources = [kernel.scale_source(torch.bfloat16, in_place=True)]
    sources += [
        kernel.rows_source(torch.bfloat16, classes, smooth=smooth, gradient=True)
        for classes, smooth in ((128_000, False), (50_257, True))
    ]
    for source in sources:
        (built,) = triton_build.build(source, chip).values()
        assert built.binary and not built.spill_bytes
        if target == "cuda:90" and source.launches[0].function == "cross_entropy_rows":
            assert "ld.global.v4" in built.texts["ptx"] and "st.global.v4" in built.texts["ptx"]
