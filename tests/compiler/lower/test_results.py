"""What a graph returns: memory shared with others just where eager shares it, numbers in its order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor


def storages(tensors: Any) -> list[int]:
    return [item.untyped_storage().data_ptr() for item in tensors]


def both(function: Callable[..., Any], *inputs: Tensor, **options: Any) -> tuple[Any, Any, Any]:
    """Results and inputs of eager and ours, and ours compiled."""
    torch._dynamo.reset()
    compiled = nbcompile.compile(function, options={"cache": False, "verify": True, **options})
    found = []
    for run in (function, compiled):
        held = {item.untyped_storage().data_ptr(): item.untyped_storage().clone() for item in inputs}
        given = [
            torch.empty(0, dtype=item.dtype).set_(
                held[item.untyped_storage().data_ptr()], item.storage_offset(), item.shape, item.stride()
            )
            for item in inputs
        ]
        torch.manual_seed(1)
        results = run(*given)
        found.append((*(results if isinstance(results, tuple) else (results,)), *given))
    return (*found, compiled)


def agree(function: Callable[..., Any], *inputs: Tensor, **options: Any) -> Any:
    expected, found, compiled = both(function, *inputs, **options)
    torch.testing.assert_close(found, expected)
    assert [item.stride() for item in found] == [item.stride() for item in expected]
    for left, right in itertools.combinations(range(len(expected)), 2):
        one, two = storages(expected), storages(found)
        assert (one[left] == one[right]) == (two[left] == two[right]), (left, right)
    return compiled


def blank_copy(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    y.copy_(x)
    return y


def old_and_new(x: Tensor) -> tuple[Tensor, Tensor]:
    old = x.clone()
    return old, x.add_(1)


@few(4)
@pytest.mark.parametrize(
    "function",
    [
        blank_copy,
        old_and_new,
        lambda x: x.clone(),
        lambda x: (y := x * 2, y.clone()),
        lambda x: (y := x * 2, y[1:], y.t()),
        lambda x: torch.diff(x, n=0),
        lambda x: x.copy_(x.flip(0)),
        lambda x: (x.mul_(2), x[0]),
        lambda x: (y := x * 2, y.view(torch.int32)),
    ],
)
def test_results_share_memory_as_in_eager(function: Callable[[Tensor], Any]) -> None:
    agree(function, torch.randn(5, 6))


def test_an_expanded_result_of_an_input_that_is_copied_onto_itself() -> None:
    def function(x: Tensor) -> Tensor:
        x.copy_(x)
        return torch.meshgrid(x, x, indexing="ij")[0]

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="nbcompile", dynamic=True)
    for size in (3, 7):
        x = torch.randn(size)
        found = compiled(x)
        assert found.stride() == (1, 0)
        torch.testing.assert_close(found, function(x))


def test_elements_that_share_memory_are_written_as_in_eager() -> None:
    def function(x: Tensor) -> Tensor:
        x[0] = 0
        return x.amax(0)

    agree(function, torch.arange(1.0, 9.0).as_strided((4, 4), (1, 1)))


def test_a_result_that_shows_part_of_an_overwritten_part_of_a_tensor() -> None:
    def function(x: Tensor) -> Tensor:
        parts = x.view(3, x.shape[0]).unbind(0)
        parts[2].neg_()
        return parts[1]

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="nbcompile", dynamic=True)
    for size in (2, 5):
        whole = torch.randn(3, size, 3)
        ours = whole.clone()
        torch.testing.assert_close(compiled(ours.select(0, 1)), function(whole.select(0, 1)))
        torch.testing.assert_close(ours, whole)


def test_random_numbers_are_drawn_in_the_order_of_the_program() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first = F.dropout(x, 0.3)
        second = torch.rand(4, 3)
        third = F.dropout(y, 0.5)
        return third.exp(), second, (first @ third).relu()

    expected, found, _ = both(function, torch.randn(6, 5), torch.randn(5, 4), random="eager")
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("interpret", [False, True], ids=["c", "triton"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
def test_a_truth_is_a_number_where_eager_makes_it_one(dtype: torch.dtype, interpret: bool) -> None:
    if interpret:
        pytest.importorskip("triton")
    x = torch.tensor([[1, 0, 3], [0, 0, 0]]).to(dtype)
    agree(lambda x: x.any(1) + x.any(1) + x.all(1), x, interpret=interpret)


@pytest.mark.parametrize("interpret", [False, True], ids=["c", "triton"])
def test_points_that_all_meet_in_one_element(interpret: bool) -> None:
    if interpret:
        pytest.importorskip("triton")
    zeros = torch.zeros(300, dtype=torch.long)
    x, v = torch.randn(1), torch.randn(300)
    agree(lambda x, v: x.scatter_add(0, zeros, v), x, v, interpret=interpret)
    agree(lambda x: x.scatter_add(0, zeros, torch.ones(300)), x, interpret=interpret)
    agree(lambda x, v: x.index_put((zeros,), v, accumulate=True), x, v, interpret=interpret)


def test_a_negative_constant_is_negated() -> None:
    compiled = agree(
        lambda x: -F.pad(x, (0, 1), value=-2) + F.pad(x, (1, 0), value=-3).abs(), torch.tensor([3])
    )
    assert compiled.ran_compiled


def test_what_backward_reads_lies_as_forward_left_it() -> None:
    """A saved value with gaps between its rows, as its input has them: backward reads it by these strides."""

    def step(x: Tensor, w: Tensor) -> Tensor:
        x[::1].relu_()
        return F.batch_norm(x, None, None, w, w, training=True)

    found = []
    for run in (step, nbcompile.compile(step, options={"cache": False, "verify": True})):
        torch.manual_seed(0)
        base, w = torch.randn(15, 5), torch.randn(5).requires_grad_()
        out = run(base[::3], w)
        out.backward(torch.arange(25.0).view(5, 5))
        found.append((out, w.grad, base))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dim", [0, 2])
def test_a_result_keeps_the_gaps_of_what_it_is_made_from(dim: int) -> None:
    def put(x: Tensor) -> Tensor:
        return torch.select_scatter(x, x.select(dim, 1) * 2, dim, 0)

    agree(put, torch.randn(3, 3, 3, 2).diagonal())
    agree(put, torch.randn(8, 3, 6)[::2, :, ::3])


def test_a_result_that_shows_one_element_everywhere() -> None:
    def seen(x: Tensor) -> Tensor:
        return torch.prod(x).expand(4).view(torch.int32).view(torch.float32)

    agree(seen, torch.rand(3))


def largest_of_all(x: Tensor) -> Tensor:
    mean = torch.nanmean(x, 0, True)
    return torch.linalg.vector_norm(torch.lerp(mean, mean, mean) + 0.01, float("inf"), (3, 0, 1, 2))


@few(1)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("seed", [0, 2])
def test_halves_are_used_as_they_are_kept_for_backward(seed: int, dtype: torch.dtype) -> None:
    """Computed anew in backward from what was kept, the largest number has to be one of them: unrounded in
    forward, the gradient was 0/0."""
    torch.manual_seed(seed)
    x = torch.rand(2, 3, 4, 4).to(dtype).permute(3, 2, 0, 1)
    found = []
    for run in (largest_of_all, nbcompile.compile(largest_of_all, options={"cache": False, "verify": True})):
        given = x.clone().requires_grad_()
        run(given).backward()
        found.append(given.grad)
    torch.testing.assert_close(found[1], found[0], rtol=0.02, atol=0.05)


def test_a_result_that_holds_what_an_input_held_before() -> None:
    def before(x: Tensor) -> tuple[Tensor, Tensor]:
        kept, part = x.new_empty(x.shape).copy_(x), torch.empty(3)
        part[:] = x[1]
        x.add_(1)
        return kept, part

    run = nbcompile.compile(before, options={"cache": False})
    x, y = torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3)
    got, wanted = run(x), before(y)
    assert run.ran_compiled, run.eager_reason
    assert torch.equal(x, y)
    assert all(map(torch.equal, got, wanted))


@pytest.mark.parametrize("dynamic", (None, True))
def test_gradients_of_views_of_an_input_whose_elements_share_memory(dynamic: bool | None) -> None:
    def seen(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.meshgrid(x, x, indexing="xy")[1][::2], x.sin()

    gradients = []
    for function in (seen, nbcompile.compile(seen, dynamic=dynamic, options={"cache": False})):
        x = torch.tensor([0.5]).expand(4).detach().requires_grad_()
        view, wave = function(x)
        weights = torch.arange(1.0, 9.0).reshape(view.shape)
        gradients.append(torch.autograd.grad((view * weights).sum() + wave.sum(), x)[0])
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("view", [
    lambda x: x.as_strided((3, 2), (2, 1), 1).unbind(0),
    lambda x: (x.chunk(2, 0)[0].as_strided((3, 2), (2, 1), 1).transpose(0, 1), x.chunk(2, 0)[1]),
    lambda x: x.unbind(0)[0].as_strided((3, 2), (2, 1), 1),
])  # fmt: skip
def test_one_of_several_views_by_strides_is_no_copy_in_training(view: Callable[..., Any]) -> None:
    x = torch.randn(2, 8, 4, requires_grad=True)
    found = nbcompile.compile(view, options={"cache": False})(x)
    shown = found if isinstance(found, tuple) else (found,)
    assert storages(shown) == storages([x] * len(shown))


@few(1)
@pytest.mark.parametrize("dynamic", (None, True))
def test_a_view_of_an_overwritten_input_lies_where_that_input_lies_at_each_call(dynamic: bool | None) -> None:
    def flat(x: Tensor) -> Tensor:
        x[..., 0:].mul_(0.5)
        return x.reshape(-1)

    run = nbcompile.compile(flat, dynamic=dynamic, options={"cache": False})
    for size, start in ((2, 0), (2, 1), (3, 0), (3, 1), (3, 2)):
        x, y = (
            torch.arange(1.0, size * size * 3 + 4).as_strided(
                (1, size, size), (size * size * 3, size * 3, 3), start
            )
            for _ in range(2)
        )
        assert torch.equal(run(x), flat(y))
        assert torch.equal(x, y)


def test_an_input_that_is_overwritten_and_returned_is_compiled_for_all_sizes() -> None:
    def more(x: Tensor) -> tuple[Tensor, Tensor]:
        x[:, 1:].add_(1)
        return x, x.sum()

    run = nbcompile.compile(more, dynamic=True, options={"cache": False})
    for size in (3, 4, 6):
        x, y = torch.ones(2, size + 1)[:, 1:], torch.ones(2, size + 1)[:, 1:]
        found = run(x)
        torch.testing.assert_close(found, more(y))
        assert found[0] is x
        assert run.ran_compiled, run.eager_reason


def test_why_an_input_cannot_be_overwritten_is_said() -> None:
    run = nbcompile.compile(lambda x, y: x.copy_(y), options={"cache": False})
    x, y = torch.zeros(3, dtype=torch.float8_e4m3fn), torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(run(x, y).float(), y) and torch.equal(x.float(), y)
    assert "changes its argument self in place, and no native loops for float8" in str(run.eager_reason)


def test_equal_nodes_of_which_views_of_several_sizes_are_made() -> None:
    """Of equal nodes AOTAutograd keeps one: the second view was traced as one of another storage."""

    def masked(x: Tensor, w: Tensor) -> Tensor:
        y = x * w
        for many in (4, 1):
            mask = x.new_ones(2, 3).tril().flip([0])[None, :, None, :].expand(2, 2, many, 3)
            y = torch.where(mask.bool(), y, 0.0).sin()
        return y

    x, w = torch.randn(2, 2, 4, 3), torch.randn(2, 2, 4, 3, requires_grad=True)
    compiled = nbcompile.compile(masked, options={"cache": False, "verify": True})
    torch.testing.assert_close(compiled(x, w), masked(x, w))
    assert compiled.ran_compiled, compiled.eager_reason


def test_conjugates_that_backward_reads() -> None:
    """Rotary embeddings by complex numbers."""

    def rotated(x: Tensor, angles: Tensor) -> Tensor:
        turns = torch.polar(torch.ones_like(angles), angles)
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2).sin()

    x, angles = torch.randn(2, 4, 12, 8, requires_grad=True), torch.randn(12, 4, requires_grad=True)
    compiled = nbcompile.compile(rotated, options={"cache": False, "verify": True})
    found = [torch.autograd.grad(run(x, angles).square().sum(), (x, angles)) for run in (rotated, compiled)]
    torch.testing.assert_close(*found)
    assert compiled.ran_compiled, compiled.eager_reason


def detached_beside_views(x: Tensor) -> tuple[Tensor, ...]:
    y = F.pad(x, (1, 1))
    return y.detach(), y[:, 1:], y.as_strided((2,), (1,), 0)


def detached_first(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return y.detach(), y


@few(2)
@pytest.mark.parametrize("function", [detached_beside_views, detached_first])
@pytest.mark.parametrize("target", ["cpu", "interpret"])
def test_what_is_detached_takes_no_gradient_from_what_shares_its_memory(function: Any, target: str) -> None:
    """autograd is told that the one needs no gradient, of that very tensor object."""
    torch._dynamo.reset()
    options = {"cache": False} | ({"interpret": True, "target": "cuda:90"} if target == "interpret" else {})
    run = nbcompile.compile(function, options=options)
    found = []
    for each in (run, function):
        torch.manual_seed(0)
        x = torch.randn(3, 4, requires_grad=True)
        results = each(x)
        assert len(set(storages(results))) == 1
        torch.autograd.backward([item.sum() for item in results if item.requires_grad])
        found.append((results, [item.requires_grad for item in results], x.grad))
    torch.testing.assert_close(*found)
    assert run.ran_compiled, run.eager_reason


def test_symbolic_sizes_in_what_an_overwritten_part_of_an_input_is_made_with() -> None:
    def program(whole: Tensor, part: Tensor) -> Tensor:
        shown = part.unsqueeze(-1)
        whole.copy_(whole)
        return shown

    torch._dynamo.reset()
    run = nbcompile.compile(program, options={"cache": False}, dynamic=True)
    for width in (4, 8, 3):
        whole = torch.arange(36 * width).reshape(6, 6, width)
        got, wanted = (each(whole, whole[:-1]) for each in (run, program))
        assert torch.equal(got, wanted) and got.data_ptr() == wanted.data_ptr() == whole.data_ptr()


def test_an_overwritten_input_of_integers_is_the_result() -> None:
    """Of a source that gradients are asked of: the graph is differentiable, its result is not."""

    def function(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return x.copy_(source)

    run = nbcompile.compile(function, options={"cache": False})
    x, source = torch.zeros(3, 4, dtype=torch.int32), (torch.randn(3, 4) * 9).requires_grad_()
    assert run(x, source) is x
    assert torch.equal(x, source.detach().to(torch.int32))
    assert run.ran_compiled, run.eager_reason


def test_a_gradient_without_memory_of_no_elements() -> None:
    x = torch.randn(0, 3, requires_grad=True)
    run = nbcompile.compile(torch.sgn, options={"cache": False})
    run(x).sum().backward()
    assert x.grad is not None and x.grad.shape == (0, 3)
    assert run.ran_compiled, run.eager_reason


def turned_and_back(x: Tensor) -> Tensor:
    x.contiguous().transpose_(0, 1)  # x itself where it is contiguous, whose strides change
    return x.t()


def turned_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    shown = x.view(3, 3)
    x.t_()
    return shown, x.sin()


@pytest.mark.parametrize("function", [turned_and_back, turned_twice])
def test_a_view_of_an_input_whose_strides_change(function: Callable[..., Any]) -> None:
    expected, results, compiled = both(function, torch.arange(9.0).view(3, 3))
    assert compiled.ran_compiled, compiled.eager_reason
    for want, got in zip(expected, results, strict=True):
        assert torch.equal(got, want)
        assert got.stride() == want.stride()
    assert [each == storages(results)[-1] for each in storages(results)] == [
        each == storages(expected)[-1] for each in storages(expected)
    ]
