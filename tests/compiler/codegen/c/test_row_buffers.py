"""What of a row is kept for the next walk: what is costly, was surely made before, and has room."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import nbcompile
from nbcompile.compiler.codegen.c.row_buffers import ROW_BUFFER_BYTES, RowBuffers, plan_row_buffers
from nbcompile.compiler.loop_ir.expr import Constant, Expr, Guarded, Load, op
from nbcompile.compiler.loop_ir.index import Axis, Size, index
from nbcompile.compiler.loop_ir.nodes import Buffer
from tests.compiler.codegen.c.by_hand import buffer, group, loop, nests, read

ROW, COL = Axis("i", index(6)), Axis("j", index(40))
X = buffer("x", 6, 40)
F32, F64 = torch.float32, torch.float64


def read_x(memory: Buffer = X, along: Axis = COL) -> Load:
    return read(memory, ROW, along)


def planned(
    body: Expr, *inputs: Buffer, again: Expr | None = None, along: Axis = COL, times: int = 2
) -> RowBuffers:
    """The plan of rows whose sum is taken of ``body`` in one walk, and ``again`` (the same) in each other."""
    bodies = [body, *([again or body] * (times - 1))]
    sums = [
        loop(buffer(f"total{n}", 6, dtype=each.dtype), (ROW, along), each, reduced=(along,), reduction=kind)
        for n, (each, kind) in enumerate(zip(bodies, ("sum", "max", "min"), strict=False))
    ]
    names = " ".join(each.outputs[0].name for each in sums)
    made = nests(group(*sums, axes=(ROW, along), inner=(along,), stored=names), *(inputs or (X,)))
    walks = [[item.value] for item in made.values.reductions]
    return plan_row_buffers(made, walks, made.nest.inner_axes)


def kept(plan: RowBuffers) -> list[str]:
    lines = [*plan.arrays, *plan.pointers.values()]
    return [line.removesuffix("; // one row, kept for the next pass") for line, _ in lines]


def chain(length: int) -> Expr:
    made: Expr = read_x()
    for n in range(length):
        made = made + float(n)
    return made


def test_what_one_walk_makes_and_others_need_is_written_once() -> None:
    plan = planned(op("exp", read_x()), times=3)
    ((number, row),) = plan.names.items()
    assert (row.text, row.dtype) == ("t_kept", F32) and kept(plan) == ["float t_kept[40]"]
    assert plan.written == {0: [number]} and plan.read == {1: [number], 2: [number]}


def test_only_the_topmost_of_costly_values_is_kept() -> None:
    inner = op("exp", read_x())
    assert len(planned(op("sin", inner)).names) == 1
    plan = planned(op("sin", inner), again=inner + 1.0)  # the second walk starts from another one
    (number,) = plan.names
    assert plan.written == {0: [number]} and plan.read == {1: [number]}


@pytest.mark.parametrize(
    ("body", "costly"),
    [
        (read_x(), False), (chain(7), False), (chain(8), True), (op("erf", read_x()), True),
        (read_x() + read_x(buffer("y", 6, 40)), False),
        (read_x() + read_x(buffer("y", 6, 40)) + read_x(buffer("z", 6, 40)), True),
    ],
    ids=["a load", "7 operations", "8 operations", "a transcendental one", "2 loads", "3 loads"],
)  # fmt: skip
def test_what_is_cheap_is_made_again(body: Expr, costly: bool) -> None:
    plan = planned(body, X, buffer("y", 6, 40), buffer("z", 6, 40))
    assert bool(plan.names) is costly


def test_what_is_the_same_all_along_a_row_takes_no_array() -> None:
    weight = buffer("w", 6)
    assert not planned(
        op("exp", read(weight, ROW)) * read_x(), X, weight, again=op("exp", read(weight, ROW))
    ).names


@pytest.mark.parametrize(("dtype", "most"), [(F32, 1 << 15), (F64, 1 << 14)])
def test_a_row_that_a_cache_does_not_hold_is_not_kept(dtype: torch.dtype, most: int) -> None:
    assert most * dtype.itemsize == ROW_BUFFER_BYTES
    for length, fits in ((most, True), (most + 1, False)):
        along = Axis("j", index(length))
        memory = buffer("x", 6, length, dtype=dtype)
        assert bool(planned(op("exp", read_x(memory, along)), memory, along=along).names) is fits


def test_two_values_share_the_room() -> None:
    along = Axis("j", index(20_000))
    memory = buffer("x", 6, 20_000)
    x = read_x(memory, along)
    plan = planned(op("exp", x) + op("sin", x), memory, again=op("exp", x) - op("sin", x), along=along)
    assert kept(plan) == ["float t_kept[20000]"]


def test_an_array_has_one_axis() -> None:
    out = loop(buffer("out", 6, 40), (ROW, COL), op("exp", read_x()))
    made = nests(group(out, axes=(ROW, COL), inner=(COL,)), X)
    walks, other = [made.values.roots] * 2, Axis("k", index(4))
    assert plan_row_buffers(made, walks, (COL,)).names
    for inner in ((other, COL), (COL, other)):
        assert not plan_row_buffers(made, walks, inner).names


def test_an_array_of_nothing_is_not_declared() -> None:
    along, memory = Axis("j", 0), buffer("x", 6, 0)
    assert not planned(op("exp", read_x(memory, along)), memory, along=along).names


def test_an_array_as_long_as_a_size_is_of_the_heap() -> None:
    def plan_of(now: int) -> RowBuffers:
        along = Axis("j", Size("s0", now))
        memory = buffer("x", 6, Size("s0", now))
        return planned(op("exp", read_x(memory, along)), memory, along=along)

    plan = plan_of(40)
    assert kept(plan) == ["float *t_kept = __builtin_malloc(sizeof(float[s0]))"] and not plan.arrays
    assert plan_of(1 << 15).names and not plan_of((1 << 15) + 1).names  # as long as a cache holds it now


def test_rows_of_any_length_are_kept() -> None:
    """Compiled for one length, on two threads and one, with rows of none and rows longer than any cache."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.softmax(x * 0.5, -1), torch.erf(x).sum(-1, keepdim=True) * torch.erf(x)

    run = nbcompile.compile(function, dynamic=True)
    for size in ((64, 1000), (3, 7), (2, 300_000), (300, 5), (1, 90_000), (0, 9), (4, 0)):
        x = torch.randn(size)
        for got, expected in zip(run(x), function(x), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert run.ran_compiled, run.eager_reason
    kernels = "".join(kernel.sources["c"] for kernel in run.compilation.kernels)
    assert kernels.count("__builtin_malloc") == kernels.count("__builtin_free") > 0


def test_what_a_guard_may_have_left_out_is_made_again() -> None:
    power = op("exp", read_x())
    half = Guarded(((index(COL), index(0), index(20)),), power, Constant(0.0, F32))
    assert not planned(half, again=power).names
    assert planned(power, again=half + 1.0).names


def test_half_types_are_kept_as_the_floats_they_are_worked_with() -> None:
    memory = buffer("x", 6, 40, dtype=torch.bfloat16)
    assert kept(planned(op("exp", read_x(memory)), memory)) == ["float t_kept[40]"]


def test_a_row_that_is_kept_in_a_gradient_with_a_choice() -> None:
    """The fuzzer's seed 20106515, of which gcc made wrong numbers."""

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.threshold(torch.group_norm(x, 1, weight, weight), 0.1, 2.0) + x

    def gradients(function: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(0)
        x, weight = torch.randn(2, 100, requires_grad=True), torch.randn(100, requires_grad=True)
        return torch.autograd.grad(function(x, weight), (x, weight), torch.randn(2, 100))

    torch.testing.assert_close(gradients(nbcompile.compile(norm)), gradients(norm))
