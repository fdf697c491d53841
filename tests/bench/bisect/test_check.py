"""A check of what is right, of what raises, of what only several operators show; cells that say so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import fx

import nbcompile
from nbcompile.bench.bisect.inputs import RECIPES, lines_of
from nbcompile.bench.bisect.judging import judge, same_error
from nbcompile.errors import CheckError, OptionError
from nbcompile.record.compilation import Compilation
from nbcompile.view.html.styles import mid
from nbcompile.view.reports.check import coloured
from tests.bench.bisect.wrong_backends import Wrong, aten, slightly
from tests.nightly import few


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    hidden = torch.tanh(x @ w)
    return torch.softmax(hidden, -1).sum(0)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(4, 6), torch.randn(6, 5, requires_grad=True)


def refuses_tanh(module: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
    for number, node in enumerate(module.graph.nodes):
        if "tanh" in str(node.target):
            raise NotImplementedError(f"no tanh, of node {number}")
    return module.forward


def wrong_together(module: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
    """As a fusion would be: exp is wrong where a sum reads it, else right."""
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        copy = made[node] = graph.node_copy(node, lambda each: made[each])
        read = [each for each in node.all_input_nodes if each.target is torch.exp]
        if node.target == "sum" and read and len(read[0].users) == 1:
            made[node] = graph.call_function(slightly, (copy,))
    return fx.GraphModule(module, graph).forward


@few(1)
@pytest.mark.parametrize(
    ("backend", "stages"),
    [
        ("nbcompile", ["captured", "aot_eager", "decomposed", "unfused", "fused"]),
        ("aot_eager", ["captured", "aot_eager"]),
        ("eager", ["captured"]),
    ],
)
def test_what_is_right_agrees_in_every_stage(backend: str, stages: list[str]) -> None:
    x, w = inputs()
    state = torch.get_rng_state()
    report = nbcompile.check(program, x, w, backend=backend)
    assert report.agrees and report.cell is None and report.operator == ""
    assert [stage.name for stage in report.stages] == stages
    assert all(stage.went == "agrees" and not stage.note for stage in report.stages)
    assert w.grad is None and torch.equal(torch.get_rng_state(), state)
    assert "as close to float64 as eager's, but for rounding" in str(report)


def test_a_crash_is_made_as_small_as_a_difference() -> None:
    x, w = inputs()
    report = nbcompile.check(program, x, w, backend=refuses_tanh)
    assert report.went == "raises" and report.stage == "refuses_tanh"
    assert "tanh" in report.operator and "NotImplementedError" in report.reason
    assert report.line == program.__code__.co_firstlineno + 1
    assert report.cell is not None and report.cell.shows
    assert report.cell.text.startswith("%%compile --backend refuses_tanh\n")
    assert report.cell.text.count("\n") == 1 and "matmul" not in report.cell.text.partition("(")[0]


@pytest.mark.nightly
def test_a_fault_of_two_operators_together_is_a_cell_of_two() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        scaled = torch.exp(torch.sin(x) * 2.0)
        return torch.cos(scaled.sum(-1)) + 1.0

    report = nbcompile.check(f, torch.randn(3, 40), backend=wrong_together)
    assert report.operator == "torch.exp + Tensor.sum", str(report)
    assert report.cell is not None and report.cell.shows
    assert "sin" not in report.cell.text and "cos" not in report.cell.text


@pytest.mark.nightly
def test_our_own_refusal_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """What our compiler cannot do runs eagerly, and the report tells of it as of any other crash."""
    from nbcompile.compiler import compile_graph

    real = compile_graph.compile_graph

    def refusing(graph: Any, *rest: Any) -> Any:
        if any(node.target is aten.tanh.default for node in graph.module.graph.nodes):
            raise RuntimeError("no kernel for tanh")
        return real(graph, *rest)

    monkeypatch.setattr(compile_graph, "compile_graph", refusing)
    report = nbcompile.check(program, *inputs())
    assert report.went == "raises" and report.stage == "unfused"
    assert report.operator == "aten.tanh.default" and "no kernel for tanh" in report.reason


def test_a_wrong_kernel_of_ours_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages tell our kernels from the graphs that they are made of."""
    from nbcompile.compiler import compile_graph
    from nbcompile.compiler.stages import CompiledModule

    real = compile_graph.compile_graph

    def wrong(graph: Any, *rest: Any) -> Any:
        made = real(graph, *rest)
        if not any(node.target is aten.tanh.default for node in graph.module.graph.nodes):
            return made
        return CompiledModule(made.graph, lambda given: [slightly(each) for each in made.call(given)])

    monkeypatch.setattr(compile_graph, "compile_graph", wrong)
    x, w = inputs()
    report = nbcompile.check(program, x, w.detach())
    assert [stage.went for stage in report.stages] == ["agrees"] * 3 + ["differs"] * 2
    assert report.stage == "unfused" and report.operator == "aten.tanh.default"
    assert report.cell is not None and "--backend nbcompile --no-fuse" in report.cell.text


def test_special_values_are_in_the_cell() -> None:
    def no_inf(result: torch.Tensor, *_: Any) -> torch.Tensor:
        return result.clamp(max=100.0)

    x = torch.randn(4, 8)
    x[1, 2] = math.inf
    wrong = Wrong(aten.exp.default, lambda: (None, ()), no_inf)
    report = nbcompile.check(lambda x: torch.exp(x) * 2, x, backend=wrong.backend)
    assert report.operator == "aten.exp.default"
    assert report.cell is not None and report.cell.shows
    assert 'x[1, 2] = float("inf")' in report.cell.inputs
    assert report.cell.chosen == RECIPES["special"]


def test_the_graph_is_coloured_by_error_and_all_is_escaped() -> None:
    wrong = Wrong(aten.tanh.default, lambda: (None, ()))
    report = nbcompile.check(program, *inputs(), backend=wrong.backend)
    went = {node.name: node.went for node in report.nodes}
    assert went["matmul"] == "agrees" and went["hidden"] == "differs"
    assert report.record is not None
    errors = {node.name: node.error for node in report.record.graphs[0].nodes}
    assert errors["hidden"] == pytest.approx(0.01, rel=0.01) and (errors["matmul"] or 0) < 1e-6
    differing = [node.name for node in report.record.graphs[0].nodes if node.differs]
    assert differing[0] == "hidden" and "matmul" not in differing
    assert Compilation.from_json(report.record.to_json()) == report.record
    html = report._repr_html_()
    assert "<img" in html and "<script" not in html and "data:image/svg+xml" in html
    picture = coloured(report)
    assert picture is not None and mid("break") in picture.svg and mid("fused") in picture.svg


def test_inputs_are_as_they_were_but_for_their_values() -> None:
    torch.manual_seed(0)
    given = (
        torch.randn(4, 6).t().requires_grad_(),
        torch.randint(3, 9, (5,)),
        torch.randn(3, dtype=torch.bfloat16),
        torch.rand(7) < 0.5,
        torch.randn(2, dtype=torch.complex64),
        torch.randn(()),
        3,
        torch.randn(300),
    )
    names = [f"v{n}" for n in range(len(given))]
    for recipe in RECIPES:
        lines = lines_of(names, given, recipe)
        if recipe == "written":
            assert lines is None, "three hundred elements are too many to write"
            lines = lines_of(names[:-1], given[:-1], recipe)
        assert lines is not None
        scope: dict[str, Any] = {"torch": torch}
        exec("\n".join(lines), scope)
        for name, value in zip(names, given, strict=True):
            if name not in scope or not isinstance(value, torch.Tensor):
                continue
            made = scope[name]
            assert (made.shape, made.dtype, made.stride()) == (value.shape, value.dtype, value.stride())
            assert made.requires_grad == value.requires_grad
            if recipe in ("written", "saved"):
                assert torch.equal(made, value)
        assert int(scope["v1"].min()) >= 3 and int(scope["v1"].max()) < 9
        assert scope["v6"] == 3


def test_errors_are_the_same_but_for_numbers_and_names() -> None:
    one = ValueError("cannot lay out 'mm_3' of 12 elements at 0x7f")
    assert same_error(one, ValueError("cannot lay out 'mm' of 4 elements at 0x11"))
    assert not same_error(one, TypeError(str(one)))
    assert not same_error(one, ValueError("cannot print it"))


def test_who_cannot_be_asked_is_told_why() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("of the program")

    with pytest.raises(CheckError, match="eager itself raises ZeroDivisionError: of the program"):
        nbcompile.check(fails, torch.ones(2))
    with pytest.raises(OptionError, match="backend 'no_such' is unknown"):
        nbcompile.check(program, *inputs(), backend="no_such")
    with pytest.raises(TypeError, match="fullgraf"):
        nbcompile.check(program, *inputs(), fullgraf=True)


def test_judging_puts_everything_back() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1).sum() + torch.rand(())

    x = torch.zeros(3)
    state = torch.get_rng_state()
    judged = judge(f, (x,), lambda fn: lambda *args: fn(*args) + 1)
    assert judged.went == "differs" and judged.worst is not None
    assert torch.equal(x, torch.zeros(3)) and torch.equal(torch.get_rng_state(), state)


def test_what_makes_nothing_is_not_called_right() -> None:
    kept: dict[str, torch.Tensor] = {}

    def silent(x: torch.Tensor) -> None:
        x.sin()

    def keeps(x: torch.Tensor) -> None:
        kept["last"] = x.sin()

    with pytest.raises(CheckError, match="nothing to compare"):
        nbcompile.check(silent, torch.ones(3))
    assert nbcompile.check(keeps, torch.ones(3)).agrees
