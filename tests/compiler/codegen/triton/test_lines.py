"""Much work a point: sums of everything taken line by line, what is the same along guards made once, and
short forms of functions."""

from __future__ import annotations

import pytest
import torch

from nbcompile.compiler.codegen.triton.expressions import TritonWriter, literal
from nbcompile.compiler.codegen.triton.tile_expression import TileExpression
from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton.test_nests import coarsest, near
from tests.compiler.codegen.triton_running import generated, run_interpreted, small_chip, titles
from tests.compiler.lower.harness import as_list
from tests.nightly import few

LINES = "split rows, lanes apart"


def checked(function, *inputs: torch.Tensor, **limits: int) -> tuple[list[str], str]:
    """The schedules and the text of kernels that agree with eager for every config."""
    graph = aten_of(function, *inputs)
    with small_chip(**limits):
        _, source = generated(graph)
    exact = [item.double() if item.is_floating_point() else item for item in inputs]
    expected, wide = as_list(function(*inputs)), as_list(function(*exact))
    for candidate in range(max(len(launch.configs) for launch in source.launches)):
        got = run_interpreted(source, graph, [item.clone() for item in inputs], candidate)
        near(got, expected, wide, coarsest(graph), titles(source))
    return titles(source), source.source


def one_hot_loss(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    hot = (at[:, None] == torch.arange(x.shape[1])).to(x.dtype)
    soft = torch.log1p(torch.exp(-x.abs())) - torch.minimum(torch.zeros((), dtype=x.dtype), x)
    return soft + hot * torch.tanh(x) * torch.sigmoid(x)


@few(1)
@pytest.mark.parametrize("columns", [80, 56, 129])
@pytest.mark.parametrize("kind", ["mean", "amax", "sum"])
def test_a_whole_reduced_line_by_line(kind, columns):
    """80 columns in tiles of 16, 56 in one of 64; lines of 129 do not start where memory is read whole."""
    x, at = torch.randn(700, columns), torch.randint(columns, (700,))
    told, text = checked(lambda x, at: getattr(one_hot_loss(x, at), kind)(), x, at)
    assert (LINES in told) == (columns != 129)
    assert ("// 129" in text) == (columns == 129)


def test_nothing_true_is_found_beyond_the_last_column():
    x, at = torch.randn(700, 56), torch.randint(56, (700,))
    fn = lambda x, at: ((one_hot_loss(x, at) > 1e3).any(), (one_hot_loss(x, at) > -1.0).all())
    assert LINES in checked(fn, x, at)[0]


def test_few_columns_lie_beyond_the_last_one():
    """Of 80 columns, each much work, tiles of 64 would leave 48 lanes idle."""
    x, at = torch.randn(900, 80), torch.randint(80, (900,))
    graph = aten_of(lambda x, at: one_hot_loss(x, at).sum(0), x, at)
    _, source = generated(graph)
    assert source.launches[0].configs[0].constants["XBLOCK"] == 16


@pytest.mark.parametrize("width", [3, 8])
def test_what_a_row_has_under_guards_is_made_once(width):
    def function(a, y, z):
        scale = a / (a.abs() + 1)
        return torch.cat([y * scale[:, None], z - scale[:, None]], 1).sum(0)

    a, y, z = torch.randn(300), torch.randn(300, width), torch.randn(300, 5)
    _, text = checked(function, a, y, z)
    assert text.count("tl.load(a_ptr") == 1


def test_what_varies_along_an_outer_guard_stays_inside():
    """Of the rows that padding adds, nothing may be read."""
    pad = torch.nn.functional.pad
    fn = lambda a, y: pad(pad(y * a[:, None], (0, 2)), (0, 0, 0, 30)).sum(0)
    checked(fn, torch.randn(200), torch.randn(200, 6))


def test_log1p_of_an_exponential_below_one():
    x = torch.cat([torch.linspace(0, 100, 2000), torch.tensor([float("inf"), float("nan"), 0.0])])
    graph = aten_of(lambda x: torch.log1p(torch.exp(-x.abs())), x)
    _, source = generated(graph)
    assert "log1p_unit(" in source.source
    (got,) = run_interpreted(source, graph, [x])
    exact = torch.log1p(torch.exp(-x.double().abs()).float().double())
    torch.testing.assert_close(got.double(), exact, rtol=2.5e-7, atol=0, equal_nan=True)


@pytest.mark.parametrize("function", [lambda x: torch.log1p(torch.exp(x)), lambda x: torch.log1p(x.abs())])
def test_log1p_of_anything_else_is_the_library_s(function):
    _, source = generated(aten_of(function, torch.randn(100)))
    assert "libdevice.log1p(" in source.source


@pytest.mark.parametrize(
    ("divisor", "text"),
    [(8.0, "(x * 0.125)"), (1.0, "(x * 1.0)"), (1e-40, "(x / 1e-40)"), (3.0, "(x / 3.0)")],
)
def test_division_by_a_power_of_two(divisor, text):
    writer = TritonWriter()
    number = TileExpression(str(divisor), literal=literal(divisor, torch.float32))
    assert str(writer.op("div", ["x", number], torch.float32, torch.float32)) == text
