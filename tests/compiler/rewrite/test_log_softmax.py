"""log_softmax written out before a joint graph is split: backward reads the logits and two numbers a row."""

from __future__ import annotations

import pytest
import torch
from torch import fx
from torch.nn import functional as F

import nbcompile
from nbcompile.compiler.rewrite.log_softmax import write_out
from nbcompile.compiler.stages import STEP_OF, AtenGraph
from tests.compiler.capture.helpers import cell, compiled
from tests.compiler.rewrite.images.test_channels_last import Graphs
from tests.nightly import few

aten = torch.ops.aten


def loss(x, target):
    return F.cross_entropy(x * 2, target)


def smoothed(x, target):
    return F.cross_entropy(x * 2, target, label_smoothing=0.1, ignore_index=3)


def weighted(x, target):
    weight = torch.linspace(0.5, 2, x.shape[1], dtype=x.dtype)
    return F.cross_entropy(x * 2, target, weight=weight)


def likelihoods(x, target):
    return torch.log_softmax(x, 1).gather(1, target[:, None]).squeeze(1).exp()


def first_dim(x, target):
    return F.log_softmax(x, 0)[target]


def returned(x, target):
    result = F.log_softmax(x * 2, -1)
    return result, F.nll_loss(result, target)


def divergence(x, target):
    return F.kl_div(F.log_softmax(x, -1), torch.softmax(x.detach() * 0.5, -1), reduction="batchmean")


def widened(x, target):
    return F.nll_loss(F.log_softmax(x, -1, dtype=torch.float32), target)


def inputs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 9, generator=generator).to(dtype) * 3
    target = torch.randint(6, (6,), generator=generator)
    target[2] = 3
    return x, target


def gradient(fn, x, target):
    x = x.clone().requires_grad_()
    results = fn(x, target)
    results = results if isinstance(results, tuple) else (results,)
    sum((each.float() * (n + 1)).sum() for n, each in enumerate(results)).backward()
    return *(each.detach() for each in results), x.grad


def halves(graphs: Graphs) -> dict[str, AtenGraph]:
    return {graph.stage: graph for graph in graphs.seen}


def calls(graph: AtenGraph) -> list[fx.Node]:
    return [node for node in graph.module.graph.nodes if node.op == "call_function"]


CASES = [loss, smoothed, weighted, likelihoods, first_dim, returned, divergence, widened]


@few(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fn", CASES)
def test_results_and_gradients(fn, dtype):
    x, target = inputs(dtype)
    graphs = Graphs()
    ours = gradient(compiled(fn, compile_aten=graphs), x, target)
    eager, exact = gradient(fn, x, target), gradient(fn, x.double(), target)
    coarsest = max(torch.finfo(each.dtype).eps for each in eager)
    for mine, theirs, true in zip(ours, eager, exact, strict=True):
        assert mine.dtype == theirs.dtype and mine.stride() == theirs.stride()
        slack = 16 * coarsest * true.abs().max()
        assert (mine.double() - true).norm() <= 2 * (theirs.double() - true).norm() + slack
    assert not any(node.target in (aten._log_softmax.default, aten._log_softmax_backward_data.default)
                   for graph in graphs.seen for node in calls(graph))  # fmt: skip


@pytest.mark.parametrize("fn", [loss, smoothed, widened])
def test_two_numbers_a_row_are_saved(fn):
    graphs = Graphs()
    x, target = inputs(torch.bfloat16)
    gradient(compiled(fn, compile_aten=graphs), x, target)
    backward = halves(graphs)["backward"]
    read = [node.meta["val"] for node in backward.module.graph.nodes if node.op == "placeholder"]
    floating = [tuple(each.shape) for each in read if each.is_floating_point() and each.dim()]
    assert sorted(floating) == [(6, 1), (6, 1), (6, 9)]
    (logits,) = [each for each in read if tuple(each.shape) == (6, 9)]
    assert logits.dtype == torch.bfloat16  # what came in, not what was made of it


@few(3)
@pytest.mark.parametrize("special", [float("-inf"), float("inf"), float("nan")])
@pytest.mark.parametrize("whole", [False, True])
def test_infinite_and_missing_numbers(special, whole):
    x, target = inputs(torch.float32)
    x[1, slice(None) if whole else slice(4, 5)] = special
    ours, eager = gradient(compiled(loss), x, target), gradient(loss, x, target)
    for mine, theirs in zip(ours, eager, strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True)


@pytest.mark.parametrize("shape", [(0, 5), (3, 5, 4, 2), (1, 1)])
def test_shapes(shape):
    x, target = torch.randn(shape), torch.zeros(shape[:1] + shape[2:], dtype=torch.int64)
    fn = lambda x, target: F.cross_entropy(x * 2, target, reduction="sum")
    ours, eager = gradient(compiled(fn), x, target), gradient(fn, x, target)
    for mine, theirs in zip(ours, eager, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_channels_last_images_keep_their_strides():
    x = torch.randn(2, 5, 4, 3).to(memory_format=torch.channels_last)
    target = torch.randint(5, (2, 4, 3))
    ours, eager = gradient(compiled(loss), x, target), gradient(loss, x, target)
    for mine, theirs in zip(ours, eager, strict=True):
        torch.testing.assert_close(mine, theirs)
        assert mine.stride() == theirs.stride()


def test_symbolic_sizes():
    program = compiled(loss, dynamic=True)
    for rows in (6, 11, 4):
        x, target = torch.randn(rows, 9), torch.randint(9, (rows,))
        for mine, theirs in zip(gradient(program, x, target), gradient(loss, x, target), strict=True):
            torch.testing.assert_close(mine, theirs)


def test_without_a_gradient_it_is_left_alone():
    graphs = Graphs()
    compiled(loss, compile_aten=graphs)(*inputs(torch.float32))
    assert any(node.target is aten._log_softmax.default for graph in graphs.seen for node in calls(graph))
    joint = fx.symbolic_trace(lambda x: x + 1)
    assert write_out(joint) == 0


def test_steps_tell_what_they_are_of_and_where_they_come_from():
    namespace, source = cell(
        "x = torch.randn(4, 7, requires_grad=True)\ndef f(x, t):\n    return F.cross_entropy(x, t)"
    )
    graphs = Graphs()
    gradient(
        compiled(namespace["f"], compile_aten=graphs, cell=source),
        torch.randn(4, 7),
        torch.tensor([1, 2, 0, 3]),
    )
    for stage, op in (("forward", "_log_softmax"), ("backward", "_log_softmax_backward_data")):
        graph = halves(graphs)[stage]
        steps = [node for node in calls(graph) if node.meta.get(STEP_OF) == op]
        assert steps
        assert all(any(span.line == 4 for span in graph.spans[node.name]) for node in steps)


def test_a_part_that_is_returned_shows_the_result() -> None:
    def parts(x):
        y = F.log_softmax(x, 0, dtype=torch.float32)
        return y, *y.unbind(0)

    run = nbcompile.compile(parts, options={"cache": False})
    whole, first, second = run(torch.randn(2, 3, requires_grad=True))
    assert first.data_ptr() == whole.data_ptr() and second.data_ptr() == whole[1].data_ptr()
