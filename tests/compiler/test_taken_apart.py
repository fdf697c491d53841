"""What cannot be proved or printed costs its kernel or its node, and never the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.compiler.codegen.c import kernel
from nbcompile.compiler.codegen.expression import Expression
from nbcompile.compiler.codegen.triton.tile_expression import grouped
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.runtime.c.toolchain import Toolchain
from nbcompile.compiler.taken_apart import is_lasting
from nbcompile.errors import CodegenError, ToolchainError, VerifyError
from tests.nightly import few

Tensor = torch.Tensor


pytestmark = pytest.mark.usefixtures("sizes_of_data_captured")


def fallbacks(run: Any) -> dict[str, str]:
    """The operators that ATen runs in place of ours, each with the reason."""
    return {node.op: node.note for node in run.compilation.fused_nodes if node.kind == "fallback"}


def refuse(monkeypatch: pytest.MonkeyPatch, op: str, error: Exception) -> None:
    """Printing in C fails wherever ``op`` is."""
    printed = kernel.KernelPrinter._code

    def code(self: kernel.KernelPrinter, value: Any, scope: Any) -> Expression:
        if value.op == op:
            raise error
        return printed(self, value, scope)

    monkeypatch.setattr(kernel.KernelPrinter, "_code", code)


def chain(x: Tensor, index: Tensor) -> Tensor:
    return ((x * 2 + 1).sin() * 3 - x).sum(1) + index.float()


@few(2)
@pytest.mark.parametrize(
    "error", [CodegenError("it cannot be"), VerifyError("it is wrong"), KeyError("a bug"), AssertionError()]
)
def test_an_operation_that_cannot_be_printed_costs_its_node(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    refuse(monkeypatch, "sin", error)
    run = nbcompile.compile(chain, options={"cache": False})
    given = torch.randn(5, 7), torch.arange(5)
    torch.testing.assert_close(run(*given), chain(*given))
    assert run.ran_compiled, run.eager_reason
    said = fallbacks(run)
    assert [*said] == ["aten.sin"] and "no kernel could be made of it" in said["aten.sin"]
    assert run.compilation.kernels
    apart = [item for item in run.compilation.decisions if item.code == "taken-apart"]
    assert apart and "could not be made" in apart[0].reason


@few(1)
@pytest.mark.parametrize("overwrites", [False, True])
def test_what_the_c_compiler_refuses_costs_its_node(
    monkeypatch: pytest.MonkeyPatch, overwrites: bool
) -> None:
    printed = kernel.KernelPrinter._code

    def code(self: kernel.KernelPrinter, value: Any, scope: Any) -> Expression:
        made = printed(self, value, scope)
        return Expression(f"({made.text} + undeclared)", made.dtype) if value.op == "sin" else made

    def function(x: Tensor, index: Tensor) -> Tensor:
        if overwrites:
            x.mul_(2)
        return chain(x, index)

    monkeypatch.setattr(kernel.KernelPrinter, "_code", code)
    run = nbcompile.compile(function, options={"cache": False})
    for _ in range(2):
        given = torch.randn(5, 7), torch.arange(5)
        other = given[0].clone()
        torch.testing.assert_close(run(*given), function(other, given[1]))
        torch.testing.assert_close(given[0], other)
    assert run.ran_compiled, run.eager_reason
    said = fallbacks(run)
    assert [*said] == ["aten.sin"] and "undeclared" in said["aten.sin"]
    assert run.compilation.kernels


def refused_by_the_compiler(monkeypatch: pytest.MonkeyPatch, printer: Any, name: str, made: str) -> None:
    """What ``printer`` prints of ``sin`` no compiler takes."""
    printed = getattr(printer, name)

    def code(self: Any, value: Any, *scopes: Any) -> Any:
        found = printed(self, value, *scopes)
        if value.op != "sin":
            return found
        if isinstance(found, Expression):
            return Expression(made.format(found.text), found.dtype)
        return grouped(made.format(found.bare))

    monkeypatch.setattr(printer, name, code)


def test_a_refusal_of_the_c_compiler_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later process finds the code that can be built, and has nothing built that cannot be."""
    refused_by_the_compiler(monkeypatch, kernel.KernelPrinter, "_code", "({} + undeclared_of_this_test)")
    compiles = Toolchain.compile
    tried: list[str] = []

    def counted(self: Toolchain, source: str, *args: Any, **more: Any) -> Any:
        tried.append(source)
        return compiles(self, source, *args, **more)

    monkeypatch.setattr(Toolchain, "compile", counted)
    given = torch.randn(5, 7), torch.arange(5)
    counts = []
    for _ in range(2):
        tried.clear()
        torch._dynamo.reset()
        run = nbcompile.compile(chain)
        torch.testing.assert_close(run(*given), chain(*given))
        assert run.ran_compiled, run.eager_reason
        assert [*fallbacks(run)] == ["aten.sin"] and "undeclared" in fallbacks(run)["aten.sin"]
        counts.append(sum("undeclared_of_this_test" in text for text in tried))
    assert counts[0] and not counts[1]


def test_a_refusal_for_want_of_room_is_not_remembered() -> None:
    lasting, passing = ToolchainError("gcc: error: x undeclared."), ToolchainError("gcc: error.")
    passing.output = "gcc: fatal error: Killed signal terminated program cc1"
    assert is_lasting(lasting) and not is_lasting(passing)


@pytest.mark.nightly
@pytest.mark.parametrize("overwrites", [False, True])
def test_what_triton_refuses_costs_its_node(monkeypatch: pytest.MonkeyPatch, overwrites: bool) -> None:
    pytest.importorskip("triton")
    refused_by_the_compiler(monkeypatch, TilePrinter, "text", "tl.no_such_function({})")

    def function(x: Tensor, index: Tensor) -> Tensor:
        if overwrites:
            x.mul_(2)
        return chain(x, index)

    for cached in (False, True):
        torch._dynamo.reset()
        run = nbcompile.compile(function, options={"target": "cuda:90"})
        given = torch.randn(5, 7), torch.arange(5)
        other = given[0].clone()
        torch.testing.assert_close(run(*given), function(other, given[1]))
        assert "which is not here" in run.eager_reason
        said = fallbacks(run)
        assert [*said] == ["aten.sin"] and "no_such_function" in said["aten.sin"]
        kernels = run.compilation.kernels
        assert kernels and all(item.launches and "no_such" not in item.sources["triton"] for item in kernels)
        assert run.compilation.from_cache == cached


def test_gradients_of_what_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "cos", CodegenError("it cannot be"))
    run = nbcompile.compile(chain, options={"cache": False})
    own, index = torch.randn(5, 7, requires_grad=True), torch.arange(5)
    other = own.detach().clone().requires_grad_()
    run(own, index).square().sum().backward()
    chain(other, index).square().sum().backward()
    torch.testing.assert_close(own.grad, other.grad)
    assert run.ran_compiled, run.eager_reason
    assert [*fallbacks(run)] == ["aten.cos"]


def gathers_of_joined(x: Tensor) -> Tensor:
    x = F.layer_norm(x, x.shape[1:])
    joined = torch.cat([x, x, x], 1)
    made = joined.gather(2, (joined.abs() * 3).long().clamp(max=7))
    made = made.gather(-1, (made > 0).long())
    return made.gather(0, (joined > 0).long()).var()


def gathers_of_integers(x: Tensor) -> Tensor:
    joined = torch.cat([x % 3 + 2, x % 3, x.gather(0, x % 3)], 1)
    made = F.relu6(joined.permute(0, 2, 1, 3))
    made = made.gather(0, (made.abs() * 3).long().clamp(max=1))
    return made.gather(-3, (made > 0).long()).sum()


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (gathers_of_joined, lambda: torch.randn(5, 8, 8, dtype=torch.float64)),
        (gathers_of_integers, lambda: torch.randint(0, 9, (4, 3, 2, 4))),
    ],
)
def test_texts_that_double_are_printed_in_several_kernels(
    function: Callable[[Tensor], Tensor], given: Callable[[], Tensor]
) -> None:
    """A gathered index behind a guard stands in its test, in the check of it and in its use: of many in a
    row that is a power."""
    run = nbcompile.compile(function, options={"cache": False})
    x = given()
    torch.testing.assert_close(run(x), function(x))
    assert run.ran_compiled, run.eager_reason
    assert not fallbacks(run)
    assert all(len(each.sources["c"]) < 100_000 for each in run.compilation.kernels)


def test_an_expression_out_of_all_proportion_is_left_to_aten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "LONGEST", 22)
    run = nbcompile.compile(lambda x: x.sigmoid() + F.gelu(x), options={"cache": False})
    x = torch.randn(5)
    torch.testing.assert_close(run(x), x.sigmoid() + F.gelu(x))
    assert run.ran_compiled, run.eager_reason
    assert "would have over 22 characters" in fallbacks(run)["aten.gelu"]


def short(x: Tensor, n: Tensor) -> Tensor:
    return x.narrow(0, 0, n.item()).sin() * 2  # type: ignore[arg-type]


def test_a_part_that_cannot_be_proved_to_lie_inside_is_copied_by_aten() -> None:
    run = nbcompile.compile(short, dynamic=True, options={"cache": False})
    x = torch.randn(7)
    for n in (3, 0, 7, 5):
        torch.testing.assert_close(run(x, torch.tensor(n)), short(x, torch.tensor(n)))
    assert run.ran_compiled, run.eager_reason
    assert [*fallbacks(run)] == ["aten.slice_copy.Tensor"]
    for n in (8, 20):
        with pytest.raises((RuntimeError, nbcompile.errors.LaunchError)):
            run(x, torch.tensor(n))
