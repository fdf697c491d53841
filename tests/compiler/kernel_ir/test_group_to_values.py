"""From loops to values: equal scalars are one value, producers stand where they are read, axes are merged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import nbcompile
from nbcompile.compiler.kernel_ir.group_to_values import kernel_values
from nbcompile.compiler.kernel_ir.values import KernelValues, walk_values
from nbcompile.compiler.loop_ir.expr import Constant, cast, op
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis, index
from nbcompile.compiler.loop_ir.nodes import Buffer
from tests.compiler.codegen.c.by_hand import buffer, buffers, group, loop, read
from tests.compiler.schedule.cut import empty, work_of
from tests.compiler.schedule.test_choose import ints

ROW, COL = Axis("i", index(6)), Axis("j", index(40))
X = buffer("x", 6, 40)


def values(made: Group, *inputs: Buffer, narrow: bool = False) -> KernelValues:
    return kernel_values(made, buffers(made, X, *inputs), narrow=narrow)


def kinds(found: KernelValues) -> list[str]:
    return [value.op or value.kind for value in walk_values(found.roots)]


def test_equal_scalars_are_one_value() -> None:
    power = op("exp", read(X, ROW, COL))
    found = values(group(loop(buffer("out", 6, 40), (ROW, COL), op("add", power, power)), axes=(ROW, COL)))
    assert kinds(found) == ["load", "exp", "add"]


def test_a_producer_stands_where_it_is_read_turned_or_not() -> None:
    first = loop(buffer("first", 6, 40), (ROW, COL), op("exp", read(X, ROW, COL)))
    second = loop(buffer("out", 6, 40), (ROW, COL), op("neg", read(first.outputs[0], ROW, COL)))
    found = values(group(first, second, axes=(ROW, COL)))
    assert kinds(found) == ["load", "exp", "neg"] and set(found.names.values()) == {"first", "out"}
    assert [store.buffer for store in found.stores] == ["out"]


def test_axes_that_all_walk_as_one_are_one() -> None:
    whole = values(group(loop(buffer("out", 6, 40), (ROW, COL), read(X, ROW, COL)), axes=(ROW, COL)))
    assert [axis.extent for axis in whole.nest.axes] == [index(240)]
    bias = buffer("b", 40)
    body = op("add", read(X, ROW, COL), read(bias, COL))
    apart = values(group(loop(buffer("out", 6, 40), (ROW, COL), body), axes=(ROW, COL)), bias)
    assert [axis.text for axis in apart.nest.axes] == ["i", "j"]


def test_a_mean_and_its_squares_are_two_reductions() -> None:
    first = loop(buffer("mean", 6), (ROW, COL), read(X, ROW, COL), reduced=(COL,), reduction="welford")
    both = type(first)(
        first.id, (first.outputs[0], buffer("spread", 6)), first.axes, first.body, (COL,), "welford"
    )
    found = values(group(both, axes=(ROW, COL), inner=(COL,), stored="mean spread"))
    assert [(item.kind, item.output, item.mean) for item in found.reductions] == [
        ("mean", "mean", ""),
        ("sum", "spread", "mean"),
    ]
    assert found.reductions[1].value.reductions == {"mean"}


def test_the_same_sum_under_another_name_is_not_added_up_again() -> None:
    first = loop(buffer("one", 6), (ROW, COL), read(X, ROW, COL), reduced=(COL,), reduction="sum")
    second = loop(buffer("other", 6), (ROW, COL), read(X, ROW, COL), reduced=(COL,), reduction="sum")
    found = values(group(first, second, axes=(ROW, COL), inner=(COL,), stored="one other"))
    assert [item.output for item in found.reductions] == ["one"]
    assert [store.buffer for store in found.stores] == ["other"]


def test_a_half_is_rounded_where_it_is_cast() -> None:
    body = cast(op("add", read(X, ROW, COL), Constant(1.0, torch.float32)), torch.bfloat16)
    halves = loop(buffer("out", 6, 40, dtype=torch.bfloat16), (ROW, COL), body)
    assert kinds(values(group(halves, axes=(ROW, COL))))[-1] == "round_bf16"


@pytest.mark.nightly
def test_parts_of_parts_written_one_after_another_make_one_chain() -> None:
    """What was there before stood twice in each write, so a mask of nine windows was 60,000 nodes long."""

    def windows(side: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def mask(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            for row in range(side):
                for column in range(side):
                    y[3 * row : 3 * row + 3, 4 * column : 4 * column + 2] = x[row, column]
            return y

        return mask

    lengths = []
    for side in (2, 4):
        options = {"target": "cuda:90", "cache": False}
        run = nbcompile.compile(windows(side), options=options)
        x = torch.randn(12, 16)
        torch.testing.assert_close(run(x), windows(side)(x))
        plain = nbcompile.compile(windows(side), options={"cache": False})
        assert torch.equal(plain(x), windows(side)(x)) and plain.ran_compiled
        lengths.append(max(len(kernel.sources["triton"]) for kernel in run.compilation.kernels))
    assert lengths[1] < 20 * lengths[0]  # 16 writes for 4, each under all those after it


def test_a_product_with_one_of_a_row_is_nan_where_the_zeros_beside_it_make_it_so() -> None:
    def function(i: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (torch.where(torch.arange(7) == i[:, None], v[:, None], 0.0) * w[:, None]).sum(-1)

    given = torch.tensor([0, 3, 9, 2]), torch.ones(4), torch.tensor([1.0, torch.inf, torch.inf, torch.nan])
    got = nbcompile.compile(function, options={"cache": False})(*given)
    torch.testing.assert_close(got, function(*given), equal_nan=True)


def test_a_sum_of_one_number_is_no_minus_zero() -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [x[1:2].sum(), x.view(4, 1).sum(1), x[None].sum(0), x.view(4, 1).mean(1), (x * 2)[None].sum(0)]

    x = torch.tensor([0.0, -0.0, -0.0, 1.0])
    for got, expected in zip(
        nbcompile.compile(function, options={"cache": False})(x), function(x), strict=True
    ):
        assert torch.equal(got, expected) and torch.equal(got.signbit(), expected.signbit())


def chosen(x, at, kept, g):
    """One number of a row, where it is kept."""
    hot = torch.zeros_like(x, dtype=torch.bool).scatter(1, at, True)
    return torch.where(hot & kept, g, 0.0).sum(1) + x[:, 0] * 0


@pytest.mark.parametrize("g", [0.25, -0.0, float("nan"), float("-inf")])
def test_the_sum_of_what_is_chosen_once_a_row_is_that_number(g: float) -> None:
    x, at = torch.randn(12, 40), torch.randint(40, (12, 1))
    kept, g = torch.arange(12)[:, None] % 3 > 0, torch.tensor(g)
    expected = chosen(x, at, kept, g)
    got = nbcompile.compile(chosen)(x, at, kept, g)
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(got.signbit() & ~got.isnan(), expected.signbit() & ~expected.isnan())


def test_it_is_not_added_up() -> None:
    work = work_of(chosen, empty(64, 4000), ints(64, 1), empty(64, 1, dtype=torch.bool), empty())
    assert not work.values.reductions
    each = work_of(chosen, empty(64, 4000), ints(64, 1), empty(64, 4000, dtype=torch.bool), empty())
    assert each.values.reductions
