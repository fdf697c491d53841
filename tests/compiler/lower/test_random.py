"""Random numbers: eager's own by default, and Philox streams of the right distribution on request."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import nbcompile
from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.loop_ir.nodes import LibraryCall
from nbcompile.compiler.loop_ir.verify import verify
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.stages import AtenGraph
from nbcompile.options import Options

aten = torch.ops.aten
SIZE = [40, 250]


def lower(function, *args, random="philox"):
    module = make_fx(function, tracing_mode="fake")(*args)
    ids = {node.name: f"g0.fw.n{n}" for n, node in enumerate(module.graph.nodes)}
    return verify(aten_to_loops(AtenGraph("g0.fw", "forward", module, ids), Options(random=random)))


def draw(function, *args, seed=3):
    program = lower(function, *args)
    calls = [item.name for item in program.statements if isinstance(item, LibraryCall)]
    assert calls == ["aten.randint.low"]  # the seed, once
    torch.manual_seed(seed)
    results = interpret(program, list(args))
    return results[0] if len(results) == 1 else results


def moments(values):
    values = values.double()
    return values.mean().item(), values.var().item()


def of(overload, *args, **kwargs):
    return lambda *tensors: overload(*tensors, *args, **kwargs)


X = torch.zeros(SIZE)

DISTRIBUTIONS = {
    "rand": (of(aten.rand.default, SIZE), (), 0.5, 1 / 12),
    "rand64": (of(aten.rand.default, SIZE, dtype=torch.float64), (), 0.5, 1 / 12),
    "rand16": (of(aten.rand.default, SIZE, dtype=torch.bfloat16), (), 0.5, 1 / 12),
    "uniform": (of(aten.uniform.default, -2.0, 4.0), (X,), 1.0, 3.0),
    "randn": (of(aten.randn.default, SIZE), (), 0.0, 1.0),
    "randn64": (of(aten.randn.default, SIZE, dtype=torch.float64), (), 0.0, 1.0),
    "normal": (of(aten.normal.float_float, 2.0, 0.5, SIZE), (), 2.0, 0.25),
    "log_normal": (of(aten.log_normal.default, 0.0, 0.5), (X,), math.exp(1 / 8), 0.3647),
    "exponential": (of(aten.exponential.default, 2.0), (X,), 0.5, 0.25),
    "geometric": (of(aten.geometric.default, 0.4), (X,), 2.5, 3.75),
    "bernoulli": (of(aten.bernoulli.p, 0.3), (X,), 0.3, 0.21),
    "bernoulli_tensor": (aten.bernoulli.default, (X + 0.3,), 0.3, 0.21),
    "randint": (of(aten.randint.low, -3, 7, SIZE), (), 1.5, 8.25),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_moments(name):
    function, args, mean, variance = DISTRIBUTIONS[name]
    got = moments(draw(function, *args))
    assert got[0] == pytest.approx(mean, abs=4 * math.sqrt(variance / 10_000) + 2e-3)
    assert got[1] == pytest.approx(variance, rel=0.12)


def test_uniform_numbers_fill_the_interval_evenly():
    counts = torch.histc(draw(of(aten.rand.default, SIZE)), 20, 0, 1)
    assert ((counts - 500) ** 2 / 500).sum() < 43.8  # chi-squared, 19 degrees of freedom, 0.1%


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_uniform_numbers_never_reach_one(dtype):
    values = draw(of(aten.rand.default, SIZE, dtype=dtype))
    assert values.min() >= 0 and values.max() < 1


def test_integers_stay_in_range_and_reach_both_ends():
    values = draw(of(aten.randint.low, -3, 7, SIZE))
    assert values.dtype == torch.int64
    assert sorted(values.unique().tolist()) == list(range(-3, 7))


def test_the_seed_decides_and_torch_gives_it():
    function = of(aten.randn.default, SIZE)
    assert torch.equal(draw(function, seed=1), draw(function, seed=1))
    assert not torch.equal(draw(function, seed=1), draw(function, seed=2))


def test_two_draws_of_a_graph_use_different_words():
    first, second, third = draw(lambda: [aten.rand([7]), aten.rand([5, 3]), aten.rand([5, 3])])
    values = torch.cat([first, second.flatten(), third.flatten()])
    assert len(values.unique()) == len(values)


def test_dropout_keeps_and_scales():
    x = torch.linspace(1, 2, 10_000).reshape(SIZE)
    out, kept = draw(lambda x: aten.native_dropout(x, 0.3, True), x)
    assert kept.dtype == torch.bool and kept.float().mean().item() == pytest.approx(0.7, abs=0.02)
    torch.testing.assert_close(out, torch.where(kept, x / 0.7, 0.0))


def test_dropout_of_everything_and_of_nothing():
    x = torch.rand(SIZE)
    out, kept = draw(lambda x: aten.native_dropout(x, 1.0, True), x)
    assert not out.any() and not kept.any()
    program = lower(lambda x: aten.native_dropout(x, 0.5, False), x)
    out, kept = interpret(program, [x])
    assert torch.equal(out, x) and kept.all()


def test_streams_do_not_depend_on_memory_layout():
    plain = draw(aten.rand_like.default, torch.empty(4, 6))
    turned = draw(aten.rand_like.default, torch.empty(6, 4).t())
    assert turned.stride() == (1, 4)
    assert torch.equal(plain, turned)


def test_eager_bernoulli_reads_no_memory_and_draws_the_same():
    def function(x):
        return aten.bernoulli.p(aten.empty_like(x, dtype=torch.bool), 0.6)

    x = torch.rand(50, 70)
    program = lower(function, x, random="eager")
    assert all(isinstance(item, LibraryCall) for item in program.statements)
    torch.manual_seed(5)
    [got] = interpret(program, [x])
    torch.manual_seed(5)
    assert torch.equal(got, function(x))
    torch.manual_seed(5)
    dropped = torch.nn.functional.dropout(torch.ones(50, 70), 0.4)
    assert torch.equal(got, dropped != 0)  # what eager dropout keeps


@pytest.mark.parametrize("kind", ("permuted", "part"))
def test_numbers_land_where_eager_has_them_in_a_view_of_an_overwritten_input(kind: str) -> None:
    """A view that becomes a copy, for the input is overwritten, is laid out as the view was."""

    def drawn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        view = x.permute(1, 0) if kind == "permuted" else x[1:].t()
        kept = F.dropout(view, 0.5)
        y.mul_(2)
        return kept * 3, torch.rand_like(view) + 1

    found = []
    run = nbcompile.compile(drawn, options={"cache": False, "random": "eager"})
    for function in (run, drawn):
        base = torch.arange(1.0, 41.0)
        x, y = base.as_strided((9, 4), (4, 1), 2), base[4:20]
        torch.manual_seed(3)
        found.append((*function(x, y), base))
    torch.testing.assert_close(*found)


def test_what_is_made_like_a_tensor_with_gaps_is_drawn_in_its_order():
    def noise(x):
        return torch.randn_like(torch.slice_scatter(x, x[:, :1], 1, 1, 2))

    run = nbcompile.compile(noise, options={"cache": False, "random": "eager"})
    for size in (2, 5):
        x = torch.randn(size, size, size).diagonal()
        torch.manual_seed(0)
        expected = noise(x)
        torch.manual_seed(0)
        torch.testing.assert_close(run(x), expected)
    assert run.ran_compiled
