"""Graphs, origins and spans of a two-line function, forward and backward."""

from __future__ import annotations

import operator

import pytest
import torch

from nbcompile.compiler.capture.fx_to_aten import user_name
from nbcompile.compiler.stages import CompiledModule
from nbcompile.errors import CodegenError
from nbcompile.record.compilation import Compilation, Graph
from nbcompile.record.provenance import Links
from tests.compiler.capture.helpers import cell, compiled, run_aten

SOURCE = """
def f(x):
    h = lin(norm(x))
    return F.gelu(h) + x
"""


@pytest.fixture(scope="module")
def record() -> Compilation:
    names, source = cell(SOURCE, lin=torch.nn.Linear(16, 16), norm=torch.nn.LayerNorm(16))
    run = compiled(names["f"], cell=source)
    x = torch.randn(8, 16, requires_grad=True)
    run(x).sum().backward()
    assert x.grad is not None
    assert run.ran_compiled, run.eager_reason
    return run.compilation


def _text(source: str, span_line: int, start: int | None, end: int | None) -> str:
    return source.splitlines()[span_line - 1][start:end]


def test_every_stage_is_recorded_and_survives_json(record: Compilation) -> None:
    assert [graph.id for graph in record.graphs] == ["g0.fx", "g0.joint", "g0.fw", "g0.bw"]
    assert [graph.stage for graph in record.graphs] == ["fx", "joint", "forward", "backward"]
    assert [graph.parent for graph in record.graphs] == ["", "g0.fx", "g0.joint", "g0.joint"]
    assert Compilation.from_json(record.to_json()) == record


def test_fx_nodes_point_at_line_and_column(record: Compilation) -> None:
    assert record.cell is not None
    source = record.cell.source
    marked = {}
    for node in record.graph("g0.fx").nodes:
        if node.kind in ("compute", "library"):
            (span,) = node.spans
            assert span.file == ""
            marked[node.op] = (span.line, _text(source, span.line, span.column, span.end_column))
    assert marked == {
        "torch.nn.functional.layer_norm": (3, "norm(x)"),
        "torch.nn.functional.linear": (3, "lin(norm(x))"),
        "torch.nn.functional.gelu": (4, "F.gelu(h)"),
        "operator.add": (4, "F.gelu(h) + x"),
    }


def test_fx_nodes_know_shape_and_module(record: Compilation) -> None:
    by_op = {node.op: node for node in record.graph("g0.fx").nodes}
    linear = by_op["torch.nn.functional.linear"]
    assert (linear.shape, linear.dtype, linear.stride, linear.bytes) == ((8, 16), "float32", (16, 1), 512)
    assert linear.module == "lin"
    assert linear.text.startswith("h = torch.nn.functional.linear(")


def test_every_aten_node_has_origins_one_stage_up(record: Compilation) -> None:
    above = {"g0.joint": "g0.fx.", "g0.fw": "g0.joint.", "g0.bw": "g0.joint."}
    for id, prefix in above.items():
        for node in record.graph(id).nodes:
            if node.kind == "output" or node.name.startswith("tangents"):
                continue
            assert node.origins, node.text
            assert all(origin.startswith(prefix) for origin in node.origins), node.text
            assert node.spans, node.text


def test_backward_nodes_lead_to_the_forward_line(record: Compilation) -> None:
    links = Links(record)
    lines = {node.op: set() for node in record.graph("g0.bw").nodes}
    for node in record.graph("g0.bw").nodes:
        lines[node.op].update(links.lines(node.id))
    assert lines["aten.mm.default"] == {3}
    assert lines["aten.gelu_backward.default"] == {4}
    assert {id.split(".")[1] for id in links.at_line(4)} == {"fx", "joint", "fw", "bw"}


def test_sum_of_two_gradients_comes_from_both(record: Compilation) -> None:
    # x is used by norm (line 3) and by the addition (line 4).
    joint = record.graph("g0.joint")
    links = Links(record)
    last = [n for n in joint.nodes if n.op == "aten.add.Tensor" and "tangents_1" in n.text]
    (addition,) = last
    assert "torch.nn.functional.layer_norm" in {links.nodes[o].op for o in addition.origins}


def test_saved_tensors_are_what_backward_reads(record: Compilation) -> None:
    forward, backward = record.graph("g0.fw"), record.graph("g0.bw")
    names = {node.id: node.name for node in forward.nodes}
    saved = {names[id] for id in forward.saved}
    read = {node.name for node in backward.nodes if node.kind == "input"}
    assert saved == {name for name in read if not name.startswith("tangents")}
    assert set(forward.saved) < set(forward.outputs)


def test_parameters_are_static_inputs() -> None:
    seen = {}

    def spy(aten, options, recorder):
        inputs = [node for node in aten.module.graph.nodes if node.op == "placeholder"]
        seen[aten.id] = {tuple(inputs[i].meta["val"].shape) for i in aten.static_inputs}
        return run_aten(aten, options, recorder)

    run = compiled(torch.nn.Linear(3, 5), compile_aten=spy)
    run(torch.randn(2, 3, requires_grad=True)).sum().backward()
    assert seen["g0.fw"] == {(5, 3), (5,)}
    assert seen["g0.bw"] == {(5, 3)}


def _broken(error: Exception):
    def compile_aten(aten, options, recorder):
        recorder.add(Graph(id=f"{aten.id}.loops", stage="loops", title="half made"))
        raise error

    return compile_aten


def test_failure_of_our_compiler_runs_eagerly_and_says_why() -> None:
    names, source = cell("def f(x):\n    return (x * 2).sum()")
    run = compiled(names["f"], cell=source, compile_aten=_broken(CodegenError("no such thing", line=3)))
    x = torch.randn(4, requires_grad=True)
    run(x).backward()
    torch.testing.assert_close(x.grad, torch.full((4,), 2.0))
    record = run.compilation
    assert not run.ran_compiled
    assert "no such thing" in run.eager_reason
    assert [note.partition(":")[0] for note in record.notes] == ["line 3", "line 3"]
    assert "g0.fw" in record.notes[0] and "g0.bw" in record.notes[1]
    assert not [graph for graph in record.graphs if graph.stage == "loops"], "nothing half made stays"


def test_aotautograd_failing_runs_the_fx_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    from nbcompile.compiler.capture import fx_to_aten

    def failing(**_):
        def compile_graph(module, inputs):
            raise ValueError("cannot trace this")

        return compile_graph

    monkeypatch.setattr(fx_to_aten, "aot_autograd", failing)
    run = compiled(lambda x: x + 1)
    assert run(torch.ones(2)).tolist() == [2, 2]
    assert not run.ran_compiled and "cannot trace this" in run.eager_reason
    assert len(run.compilation.notes) == 1


def test_checkpoint_and_cond_go_through() -> None:
    from torch.utils.checkpoint import checkpoint

    weight = torch.randn(4, 4, requires_grad=True)

    def body(x):
        return torch.tanh(x @ weight)

    def f(x):
        y = checkpoint(body, x, use_reentrant=False)
        return torch.cond(y.sum() > 0, lambda t: t + 1, lambda t: t - 1, (y.detach(),)).sum() + y.sum()

    run = compiled(f)
    x = torch.randn(3, 4, requires_grad=True)
    expected = torch.autograd.grad(f(x), [x, weight])
    got = torch.autograd.grad(run(x), [x, weight])
    torch.testing.assert_close(got, expected)
    assert "cond" in " ".join(node.op for node in run.compilation.graph("g0.fw").nodes)


def test_interrupt_is_not_swallowed() -> None:
    def interrupted(aten, options, recorder):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compiled(lambda x: x + 1, compile_aten=interrupted)(torch.ones(2))


def test_input_mutation_happens_once() -> None:
    def f(x, y):
        x.add_(1)
        y = y * x
        return y

    run = compiled(f)
    x = torch.zeros(3)
    torch.testing.assert_close(run(x, torch.ones(3)), torch.ones(3))
    run(x, torch.ones(3))
    torch.testing.assert_close(x, torch.full((3,), 2.0))


def test_boxed_inputs_are_released() -> None:
    held = []

    def keep(aten, options, recorder):
        inner = run_aten(aten, options, recorder)

        def call(inputs):
            assert isinstance(inputs, list)
            outputs = inner.call(inputs)
            held.append(len(inputs))
            return outputs

        return CompiledModule(aten.id, call)

    compiled(lambda a, b: a + b, compile_aten=keep)(torch.ones(2), torch.ones(2))
    assert held == [0]


def test_symbolic_shapes_reach_the_record() -> None:
    def f(x):
        return operator.mul(x, 2).sum(1)

    run = compiled(f, dynamic=True)
    run(torch.ones(4, 6))
    multiply = next(n for n in run.compilation.graph("g0.fw").nodes if n.op == "aten.mul.Tensor")
    assert multiply.shape is not None and all(isinstance(extent, str) for extent in multiply.shape)
    assert multiply.bytes == 4 * 6 * 4


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("L_self_modules_norm_parameters_weight_", "norm_weight"),
        ("0_weight", "_0_weight"),  # a layer of nn.Sequential, in a graph of DDPOptimizer's
        ("L_self_modules_1_parameters_weight_", "_1_weight"),
        ("L_lambda_", "_lambda"),
    ],
)
def test_an_input_has_a_name_that_python_takes(source: str, name: str) -> None:
    assert user_name(source) == name
