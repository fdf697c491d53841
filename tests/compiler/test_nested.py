"""Higher-order operators: the graphs that they call are compiled too, and right in every branch and step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops import map as map_over  # type: ignore[attr-defined]
from torch._higher_order_ops import scan, while_loop

import nbcompile
from nbcompile.compiler import nested
from nbcompile.view.html.fragment import to_html
from nbcompile.view.text import to_text
from tests.nightly import few

Tensor = torch.Tensor
W = torch.linspace(-1, 1, 64).reshape(8, 8)


def branches(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: (x @ W).sin() + 1, lambda x: x.cos() * 2, (x,))  # type: ignore[no-any-return]


def doubled(x: Tensor) -> Tensor:
    return while_loop(lambda x: x.sum() < 100, lambda x: (x * 2 + 1,), (x.abs(),))[0] - 1  # type: ignore[no-any-return]


def accumulated(x: Tensor) -> Tensor:
    return scan(lambda c, y: (c + y, (c * y).exp()), torch.zeros(8), x)[1] * 2  # type: ignore[no-any-return]


def each_row(x: Tensor) -> Tensor:
    return map_over(lambda row: (row - row.mean()).sigmoid(), x) + 1  # type: ignore[no-any-return]


@torch.compiler.nested_compile_region
def region(x: Tensor) -> Tensor:
    return x.sin() * 2 + 1


def regions(x: Tensor) -> Tensor:
    return region(region(x)) * x


def operators(run: Any) -> dict[str, list[str]]:
    """What runs, by kind; kernels with the graph that they are of."""
    found: dict[str, list[str]] = {"kernel": [], "library": [], "fallback": []}
    for node in run.compilation.fused_nodes:
        if node.kind in found:
            found[node.kind].append(node.id.rpartition(".")[0] if node.kind == "kernel" else node.op)
    return found


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    torch._dynamo.reset()
    return nbcompile.compile(function, options={"cache": False, **options})


@few(2)
@pytest.mark.parametrize("target", ["cpu", "interpret"])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("function", "operator", "bodies"),
    [
        (branches, "cond", {"g0.fw.true", "g0.fw.false"}),
        (doubled, "while_loop", {"g0.fw.while_loop_cond", "g0.fw.while_loop_body"}),
        (accumulated, "scan", {"g0.fw.scan_combine"}),
        (each_row, "map_impl", {"g0.fw.body"}),
        (regions, "invoke_subgraph", {"g0.fw.repeated_subgraph0"}),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_bodies_are_compiled(
    function: Callable[..., Any], operator: str, bodies: set[str], sign: int, target: str
) -> None:
    if target == "interpret":
        pytest.importorskip("triton")
    run = compiled(function, interpret=target == "interpret")
    for step in range(2):
        x = sign * torch.rand(8, 8) + 0.01 * step
        torch.testing.assert_close(run(x), function(x))
    assert run.ran_compiled, run.eager_reason
    found = operators(run)
    assert operator in found["library"] and not found["fallback"]
    assert bodies <= set(found["kernel"])
    assert not run.compilation.notes


@few(1)
@pytest.mark.parametrize("sign", [1, -1])
def test_gradients_of_both_branches(sign: int) -> None:
    x = (torch.rand(8, 8) * sign).requires_grad_()
    branches(x).sum().backward()
    expected, x.grad = x.grad, None
    run = compiled(branches)
    run(x).sum().backward()
    torch.testing.assert_close(x.grad, expected)
    assert run.ran_compiled, run.eager_reason
    kernels = operators(run)["kernel"]
    assert all(any(name.startswith(f"g0.bw.{way}") for name in kernels) for way in ("true", "false"))


def test_a_region_that_is_called_twice_is_compiled_once() -> None:
    run = compiled(regions)
    run(torch.rand(8, 8))
    assert operators(run)["kernel"].count("g0.fw.repeated_subgraph0") == 1
    assert operators(run)["library"].count("invoke_subgraph") == 2


def test_gradients_of_a_region_of_changing_sizes() -> None:
    """It returns sizes too, for its own backward."""
    run = compiled(regions)
    for size in (4, 5, 7):
        found, expected = (torch.linspace(0, 1, size).requires_grad_() for _ in range(2))
        run(found).sum().backward()
        regions(expected).sum().backward()
        torch.testing.assert_close(found.grad, expected.grad)
    assert run.ran_compiled, run.eager_reason


def test_a_body_is_given_other_strides_or_sizes_than_it_was_traced_with() -> None:
    """What is laid out otherwise is copied, what has other sizes goes to ATen."""
    traced = torch.empty(3, 4)
    seen: list[Tensor] = []

    def ours(args: list[Any]) -> tuple[Tensor, ...]:
        seen.append(args[0])
        return (args[0] * 2,)

    body = nested.checked(ours, lambda args: args[0] + 100, [traced], single=True)
    turned = torch.randn(4, 3).t()
    assert torch.equal(body(turned), turned * 2)
    assert seen[0].stride() == traced.stride()
    other = torch.randn(2, 4)
    assert torch.equal(body(other), other + 100) and len(seen) == 1
    wide = torch.randn(3, 4, dtype=torch.float64)
    assert torch.equal(body(wide), wide + 100) and len(seen) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["cpu", "interpret"])
def test_the_gradient_of_what_a_scan_carries_may_share_its_elements(target: str) -> None:
    """That of a sum is one number, expanded; from the second step on, memory is given."""
    if target == "interpret":
        pytest.importorskip("triton")

    def program(x: Tensor) -> Tensor:
        return scan(lambda c, y: ((c * y).sin(), c - y), torch.ones_like(x[0]), x, reverse=True)[0].sum()  # type: ignore[no-any-return]

    x = torch.randn(5, 3, requires_grad=True)
    (expected,) = torch.autograd.grad(program(x), x)
    run = compiled(program, interpret=target == "interpret")
    for _ in range(2):
        (found,) = torch.autograd.grad(run(x), x)
        torch.testing.assert_close(found, expected)
    assert run.ran_compiled and not run.compilation.notes
    assert any(name.startswith("g0.bw.scan") for name in operators(run)["kernel"])


def test_what_would_be_copied_to_where_elements_share_memory_goes_to_aten() -> None:
    windows = torch.arange(6.0).unfold(0, 4, 1)
    body = nested.checked(lambda args: (args[0] * 2,), lambda args: args[0] + 100, [windows], single=True)
    assert torch.equal(body(windows), windows * 2)
    other = torch.randn(3, 4)
    assert torch.equal(body(other), other + 100)


def test_views_show_what_is_within_a_graph() -> None:
    run = compiled(branches)
    run(torch.rand(8, 8))
    text = to_text(run.compilation)
    assert "true.k0" in text and "false.k0" in text
    assert "cond" in to_html(run.compilation)


def test_symbolic_sizes_leave_bodies_in_aten_and_say_so() -> None:
    run = compiled(branches)
    torch._dynamo.reset()
    run = nbcompile.compile(branches, dynamic=True, options={"cache": False})
    for rows in (8, 5):
        x = torch.rand(rows, 8)
        torch.testing.assert_close(run(x), branches(x))
    assert any("runs in ATen: " in note for note in run.compilation.notes) or run.ran_compiled


@torch.library.custom_op("nbcompile_tests::add_number", mutates_args={"a"})
def add_number(a: Tensor, number: int) -> None:
    a.add_(number)


@torch.library.custom_op("nbcompile_tests::twice", mutates_args=())
def twice(a: Tensor) -> Tensor:
    return a * 2


@twice.register_fake
def _(a: Tensor) -> Tensor:
    return torch.empty_like(a)


def test_custom_operators_stand_between_kernels() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        add_number(y, 3)
        return twice(y) + 1

    run = compiled(program)
    x = torch.randn(6)
    torch.testing.assert_close(run(x), program(x))
    assert run.ran_compiled, run.eager_reason
    found = operators(run)
    assert len(found["kernel"]) == 2 and not found["fallback"]
    assert "nbcompile_tests.twice" in found["library"]


def test_a_custom_operator_that_writes_to_an_input() -> None:
    def program(x: Tensor) -> Tensor:
        add_number(x, 3)
        return x * 2

    x = torch.randn(6)
    y = x.clone()
    torch.testing.assert_close(compiled(program)(x), program(y))
    assert torch.equal(x, y)


def test_a_check_of_values_is_made_and_raises() -> None:
    def program(x: Tensor) -> Tensor:
        torch._assert_async((x.sum() > 0).all(), "the sum is too small")
        return x * 2

    run = compiled(program)
    x = torch.rand(6) + 0.1
    assert torch.equal(run(x), x * 2)
    assert run.ran_compiled and not operators(run)["fallback"]
    with pytest.raises(RuntimeError, match="the sum is too small"):
        run(-x)
