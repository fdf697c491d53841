"""The xla backend: the same results as eager, torch's random numbers, memory that is the caller's own."""

from __future__ import annotations

import copy
import importlib
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nbcompile.api import Compiled
from nbcompile.api import compile as nb_compile
from nbcompile.backends.registry import resolve
from nbcompile.errors import BackendError
from nbcompile.record.provenance import Links
from nbcompile.view import to_html, to_text, whole
from tests.nightly import few

pytest.importorskip("jax", reason="pip install jax")


def through_xla(fn: Any, **options: Any) -> Compiled:
    return nb_compile(fn, backend="xla", **options)


def close(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(got, wanted, rtol=2e-5, atol=2e-5)


def gradients(run: Any, module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The result, then the gradients of a weighted sum of it: of the input and of each parameter."""
    module.zero_grad()
    x = x.detach().clone().requires_grad_()
    torch.manual_seed(3)
    y = run(x)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    (y * weights).sum().backward()
    return [y.detach(), x.grad, *(p.grad.clone() for p in module.parameters())]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_transformer_trains() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
    x = torch.randn(2, 5, 16)
    run = through_xla(layer)
    got, wanted = gradients(run, layer, x), gradients(layer, layer, x)
    assert run.ran_compiled, run.eager_reason
    close(got, wanted)
    record = run.compilation
    assert {"g0.fw.fused", "g0.bw.fused"} <= {graph.id for graph in record.graphs}
    draws = [node for node in record.graph("g0.fw.fused").nodes if node.op == "aten.bernoulli.p"]
    assert len(draws) == 4 and all("drawn by torch" in node.note for node in draws)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_residual_block_trains_and_updates_its_buffers() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1, stride=1), nn.BatchNorm2d(4)
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            y = F.max_pool2d(F.relu(self.norm(self.conv(x)) + x), 2)
            return self.head(y.mean((2, 3)))

    torch.manual_seed(0)
    block = Block()
    twin = copy.deepcopy(block)
    x = torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last)
    run = through_xla(block)
    got, wanted = gradients(run, block, x), gradients(twin, twin, x)
    assert run.ran_compiled, run.eager_reason
    close(got, wanted)
    close(block.norm.running_var, twin.norm.running_var)
    assert block.norm.num_batches_tracked == 1


def test_parameters_are_read_as_an_optimizer_left_them() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.LayerNorm(8), nn.Linear(8, 2)).bfloat16()
    twin = copy.deepcopy(model)
    x = torch.randn(5, 6).bfloat16()
    run = through_xla(model)
    losses = []
    for module, call in ((model, run), (twin, twin)):
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            loss = call(x).float().square().sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        module[0].weight.data = module[0].weight.data.clone() * 0.5  # other memory
        losses.append(call(x).float().sum().item())
    assert run.ran_compiled, run.eager_reason
    assert losses[:5] == pytest.approx(losses[5:], rel=0.1) and losses[3] < 0.5 * losses[0]


def test_embedding_and_cross_entropy_train() -> None:
    torch.manual_seed(0)
    table = torch.randn(11, 6, requires_grad=True)
    words, labels = torch.randint(11, (3, 4)), torch.randint(6, (12,))

    def loss(table, words, labels):
        return F.cross_entropy(F.embedding(words, table).reshape(-1, 6), labels, ignore_index=2)

    run = through_xla(loss)
    found = torch.autograd.grad(run(table, words, labels), table)
    assert run.ran_compiled, run.eager_reason
    close(found, torch.autograd.grad(loss(table, words, labels), table))


def test_random_numbers_are_those_of_eager() -> None:
    def draw(x):
        y = F.dropout(x, 0.3) + torch.rand(4, 3).t()
        p = torch.sigmoid(y)
        return torch.bernoulli(p) + torch.randn_like(x), torch.randperm(5)

    run = through_xla(draw)
    x = torch.randn(4, 3).t()
    torch.manual_seed(5)
    got = run(x)
    after = torch.rand(1)
    torch.manual_seed(5)
    close(got, draw(x))
    assert run.ran_compiled, run.eager_reason
    assert torch.equal(after, torch.rand(1)), "it draws as many numbers as eager"


def test_inputs_are_overwritten_where_the_program_says_so() -> None:
    def step(weight, grad, momentum):
        momentum.mul_(0.9).add_(grad)
        weight.sub_(momentum * 0.1)
        return (weight * grad).sum()

    def inputs():
        torch.manual_seed(0)
        return torch.randn(4, 6).t(), torch.randn(6, 4), torch.zeros(6, 8)[:, ::2]

    run = through_xla(step)
    mine, theirs = inputs(), inputs()
    for _ in range(3):
        close(run(*mine), step(*theirs))
    close(mine, theirs)
    assert run.ran_compiled, run.eager_reason


def test_results_own_their_memory() -> None:
    def make(x):
        return x + 1, torch.full((2, 3), 7.0), x.view(6), x, torch.ones(3), 1 + x, (x + 1).clone()

    run = through_xla(make)
    x = torch.zeros(2, 3)
    for _ in range(2):
        first, constant, view, same, other, again, copied = run(x)
        assert same is x and view.data_ptr() == x.data_ptr(), "as eager, which hands out views of x"
        assert torch.equal(first, torch.ones(2, 3)) and torch.equal(constant, torch.full((2, 3), 7.0))
        assert torch.equal(other, torch.ones(3))
        for result in (first, constant, other):
            result.add_(100)
        assert torch.equal(again, torch.ones(2, 3)) and torch.equal(copied, torch.ones(2, 3))
    assert torch.equal(x, torch.zeros(2, 3))


@few(2)
@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t(),
        lambda x: x[::2, 1::3],
        lambda x: x[:1].expand(5, -1),
        lambda x: x[:, :0],
        lambda x: x[1, 2],
        lambda x: x[1:].bfloat16(),
        lambda x: (x * 3).int(),
        lambda x: x > 0,
        lambda x: x.reshape(2, 3, 2, 3).contiguous(memory_format=torch.channels_last),
    ],
)
def test_inputs_of_any_layout(change: Any) -> None:
    def f(x):
        return x.transpose(0, -1) if x.dim() else x, x + x, ~x if x.dtype == torch.bool else -x

    x = change(torch.randn(6, 6, generator=torch.Generator().manual_seed(1)))
    run = through_xla(f)
    got, wanted = run(x), f(x)
    assert run.ran_compiled, run.eager_reason
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
        assert mine.stride() == theirs.stride() or mine.numel() < 2


def test_halves_are_rounded_where_the_program_rounds() -> None:
    def f(x):
        return (x.bfloat16().float() - x), (x.bfloat16() * 3 + 1) * 2, x.half().float() - x

    x = torch.randn(50)
    run = through_xla(f)
    torch.testing.assert_close(run(x), f(x), rtol=0, atol=0)


def test_each_set_of_sizes_is_compiled_and_said_to_be() -> None:
    def f(x):
        return x.reshape(-1) * x.shape[0], x.shape[1] * 2

    run = through_xla(f, dynamic=True)
    for rows, columns in ((3, 5), (4, 7), (3, 5)):
        x = torch.randn(rows, columns)
        assert str(run(x)) == str(f(x))
    assert run.ran_compiled and run.recorder.graph_count == 1
    assert any("compiles g0.fw again for each set of shapes" in note for note in run.compilation.notes)


def test_sizes_that_xla_cannot_have_run_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    from nbcompile.backends.xla import module

    run = through_xla(lambda x: x * x.shape[0], dynamic=True)
    assert run(torch.ones(3)).tolist() == [3, 3, 3] and run.ran_compiled

    def refuse(*given: Any) -> None:
        raise BackendError("XLA refuses it")

    monkeypatch.setattr(module, "compile_step", refuse)
    assert run(torch.ones(2)).tolist() == [2, 2]
    assert run.eager_reason.endswith("for other sizes than those at capture: XLA refuses it")


@pytest.mark.slow
def test_what_torch_does_whole_is_taken_apart() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True).eval()
    mask = torch.ones(5, 5).triu(1).bool()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        run = through_xla(layer)
        close(run(x, mask), layer(x, mask))
    assert run.ran_compiled, run.eager_reason


def test_a_step_of_an_optimizer_of_lists() -> None:
    def step(parameters, gradients, means):
        torch._foreach_lerp_(means, gradients, 0.1)
        torch._foreach_addcdiv_(parameters, means, torch._foreach_add(gradients, 9.0), value=-0.5)

    def tensors():
        torch.manual_seed(0)
        return [[torch.randn(n, 2) for n in (2, 3)] for _ in range(3)]

    mine, theirs = tensors(), tensors()
    run = through_xla(step)
    run(*mine)
    step(*theirs)
    assert run.ran_compiled, run.eager_reason
    close(mine, theirs)


def test_checks_of_values_are_made() -> None:
    def f(x):
        return F.one_hot(x, 5) * 2

    run = through_xla(f)
    x = torch.tensor([1, 4])
    assert torch.equal(run(x), f(x)) and run.ran_compiled
    with pytest.raises(RuntimeError):
        run(torch.tensor([1, 7]))


def test_an_operator_that_is_missing_is_named_with_its_line() -> None:
    def f(x):
        y = x + 1
        return torch.linalg.inv(y)

    run = through_xla(f)
    x = torch.eye(3)
    close(run(x), f(x))
    assert not run.ran_compiled
    assert "xla could not compile it: aten.linalg_inv_ex.default: " in run.eager_reason
    assert not run.compilation.kernels


def test_the_missing_operator_is_an_error_with_a_line() -> None:
    from nbcompile.backends.xla.split import check
    from nbcompile.compiler.stages import AtenGraph
    from nbcompile.record.compilation import Span
    from tests.compiler.lower.harness import call_graph

    graph, _ = call_graph(torch.ops.aten.linalg_inv_ex.default, (torch.eye(2),), {})
    name = next(node.name for node in graph.module.graph.nodes if node.op == "call_function")
    named = AtenGraph(graph.id, graph.stage, graph.module, graph.ids, spans={name: (Span(4),)})
    with pytest.raises(BackendError, match=r"^line 4: aten\.linalg_inv_ex\.default: .* no lowering"):
        check(named)


def test_flags_of_xla() -> None:
    def f(x):
        return x * 2

    assert through_xla(f, options={"xla_cpu_enable_fast_math": True})(torch.ones(2)).tolist() == [2, 2]
    run = through_xla(f, options={"xla_no_such_flag": True})
    run(torch.ones(2))
    assert "XLA refuses g0.fw" in run.eager_reason and "xla_no_such_flag" in run.eager_reason


def test_the_record_links_fusions_to_lines() -> None:
    def f(x, w):
        y = torch.softmax(x @ w, -1)
        return torch.tanh(y) * 2

    run = through_xla(f)
    run(torch.randn(4, 8), torch.randn(8, 16))
    record, links = run.compilation, Links(run.compilation)
    assert record.kernels
    lines = set()
    for kernel in record.kernels:
        assert "ROOT" in kernel.sources["hlo"] and kernel.loops and kernel.bytes_written
        above = links.up(kernel.id)
        assert any(id.startswith("g0.fw.n") for id in above), kernel.name
        text = kernel.sources["hlo"].splitlines()
        for link in kernel.line_map:
            assert " = " in text[link.line - 1]
        node = next(node for node in record.graph("g0.fw.fused").nodes if node.id == kernel.id)
        lines |= {span.line for span in node.spans}
    first = f.__code__.co_firstlineno
    assert lines == {first + 1, first + 2}
    operators = {node.op for node in record.graph("g0.fw.loops").nodes}
    assert {"dot", "tanh", "reduce"} <= operators
    assert "stablehlo.dot_general" in record.graph("g0.fw.stablehlo").text
    assert "ENTRY" in record.graph("g0.fw.fused").text
    dot = next(k for k in record.kernels if " dot(" in k.sources["hlo"])
    assert dot.flops >= 2 * 4 * 8 * 16
    assert "custom fusion" in to_text(record) or "loop fusion" in to_text(record)
    assert to_html(record) and whole(record)["view"]["calls"]
    assert record.compile_seconds < 60
    assert [item.name for item in record.passes].count("xla") == 2  # XLA's own time, and what is around it


def test_the_users_jax_stays_as_it_is() -> None:
    import jax
    import jax.numpy as jnp

    assert through_xla(lambda x: x.double() * 2)(torch.ones(2)).dtype == torch.float64
    assert not jax.config.jax_enable_x64 and jnp.ones(2).dtype == jnp.float32


def test_it_can_be_listed_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "nbcompile.backends.xla")
    monkeypatch.setitem(sys.modules, "jax", None)
    listed = importlib.import_module("nbcompile.backends.xla").BACKEND
    assert listed.missing() == "needs jax, which is not installed"
    assert listed.install == "pip install jax"


def test_no_mode_but_the_default() -> None:
    from nbcompile.errors import OptionError

    with pytest.raises(OptionError, match="'xla' has no mode 'max-autotune'"):
        resolve("xla", mode="max-autotune")
