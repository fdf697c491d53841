"""Random numbers: from the same seed, bit for bit what eager draws, and as many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.compiler.capture.decompositions import decompositions
from nbcompile.options import Options
from tests.compiler.capture.helpers import compiled
from tests.nightly import few

aten = torch.ops.aten

RANDOM: dict[str, Callable[[torch.Tensor], Any]] = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout of all": lambda x: F.dropout(x, 1.0),
    "dropout of none": lambda x: F.dropout(x, 0.0),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.3, training=True),
    "feature_dropout": lambda x: F.dropout2d(x[None, None], 0.4),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x[None, None], 0.4, training=True),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "rand": lambda x: torch.rand(x.shape) + x,
    "rand_like": lambda x: torch.rand_like(x) + x,
    "randn": lambda x: torch.randn(5, 7) + x.sum(),
    "randn_like": lambda x: torch.randn_like(x) * x,
    "randint": lambda x: torch.randint(0, 9, (4, 4)) + x.sum(),
    "randperm": lambda x: torch.randperm(13) + x.sum(),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "bernoulli_": lambda x: torch.empty_like(x).bernoulli_(0.2),
    "multinomial": lambda x: torch.multinomial(x.softmax(-1), 2),
    "normal": lambda x: torch.normal(x, x.abs()),
    "normal_": lambda x: torch.empty_like(x).normal_(1.0, 2.0),
    "uniform_": lambda x: torch.empty_like(x).uniform_(-1, 1),
    "exponential_": lambda x: torch.empty_like(x).exponential_(2.0),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, dim=-1),
}


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.randn(6, 33),
    "transposed": lambda: torch.randn(33, 6).t(),
    "strided": lambda: torch.randn(6, 33, 5)[:, :, 2],
}


@few(3)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", RANDOM)
def test_same_seed_same_bits_as_eager(name: str, layout: str) -> None:
    fn = RANDOM[name]
    torch.manual_seed(0)
    x = LAYOUTS[layout]()
    run = compiled(fn)
    run(x)  # compiling must not draw numbers that count
    torch.manual_seed(7)
    expected = fn(x), torch.rand(1)
    torch.manual_seed(7)
    got = run(x), torch.rand(1)
    assert run.ran_compiled, run.eager_reason
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1]), "drew more or fewer numbers than eager"


@few(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.77])
def test_dropout_backward_is_exact(dtype: torch.dtype, p: float) -> None:
    x = torch.randn(64, 65, dtype=dtype)

    def run(fn: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(3)
        leaf = x.clone().requires_grad_()
        y = fn(leaf)
        y.backward(x)
        assert leaf.grad is not None
        return y.detach(), leaf.grad

    expected = run(lambda t: F.dropout(t, p))
    got = run(compiled(lambda t: F.dropout(t, p)))
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])


def test_first_call_draws_what_eager_draws() -> None:
    torch.manual_seed(1)
    expected = F.dropout(torch.ones(100), 0.5)
    torch.manual_seed(1)
    assert torch.equal(compiled(lambda x: F.dropout(x, 0.5))(torch.ones(100)), expected)


def test_what_lowering_handles_whole_stays_whole() -> None:
    table = decompositions(Options())
    for op in (
        aten._softmax.default,
        aten._log_softmax.default,
        aten.gelu.default,
        aten.var_mean.correction,
        aten.bernoulli.default,
        aten.rand.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
    ):
        assert op not in table, op
    assert aten.native_batch_norm.default in table
    assert aten.native_layer_norm_backward.default not in table
    # The types that it is given are looked at, and no more.
    x = torch.ones(2, 3)
    for op, given in ((aten.native_layer_norm, (x, [3], None, None, 1e-5)), (aten.mm, (x, x.t()))):
        assert table[op.default](*given) is NotImplemented


def test_philox_keeps_dropout_for_the_kernels() -> None:
    assert aten.native_dropout.default in decompositions(Options())
    assert aten.native_dropout.default not in decompositions(Options(random="philox"))


@pytest.mark.parametrize("beta", [1, 0, 0.5])
def test_a_sum_with_a_product_has_the_layout_that_it_was_traced_with(beta: float) -> None:
    def fn(x: torch.Tensor, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(x, one, two, beta=beta).view(-1)

    args = torch.randn(10, 5, 4).permute(2, 1, 0), torch.randn(4, 5, 3), torch.randn(4, 3, 10)
    run = compiled(fn)
    torch.testing.assert_close(run(*args), fn(*args))
    assert not run.compilation.notes


@few(1)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_group_norm_of_halves_keeps_its_statistics_in_float32(dtype: torch.dtype) -> None:
    """Fake tensors say halves: the weight's gradient then was off by a thousandth."""
    x, grad = torch.randn(4, 6, 5, dtype=dtype), torch.randn(4, 6, 5, dtype=dtype)
    weight, bias = torch.rand(6) + 0.5, torch.randn(6)

    def gradients(function: Any, as_type: Any) -> list[torch.Tensor]:
        inputs = [as_type(item).requires_grad_() for item in (x, weight, bias)]
        function(*inputs).backward(as_type(grad))
        return [item.grad for item in inputs]

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.group_norm(x, 2, weight, bias)

    right = gradients(norm, lambda item: item.double())
    ours = gradients(nbcompile.compile(norm, options={"cache": False}), lambda item: item.clone())
    assert ours[0].dtype == dtype
    torch.testing.assert_close(ours[1].double(), right[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours[2].double(), right[2], rtol=1e-5, atol=1e-5)


def test_a_number_in_block_diag_counts_for_the_dtype_as_in_eager() -> None:
    def fn(x: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
        return torch.block_diag(x, number)

    for args in ((torch.randn(2, 4).bfloat16(), torch.randn(())), (torch.ones(2, 2).int(), torch.randn(()))):
        found, expected = compiled(fn)(*args), fn(*args)
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected)


_WITHOUT_NOT = [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, *_WITHOUT_NOT])
def test_whether_all_of_what_atens_not_does_not_take_are_true(dtype: torch.dtype) -> None:
    x = torch.tensor([[1, 2, 0], [1, 1, 1]]).to(dtype)
    function = lambda x: (x.all(), x.all(1), x.all(0, keepdim=True), x.all((0, 1)))
    assert all(map(torch.equal, nbcompile.compile(function)(x), function(x)))
