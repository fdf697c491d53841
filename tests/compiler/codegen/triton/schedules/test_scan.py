"""Scans as Triton kernels: every kind and type under every schedule, with every config, in the interpreter,
each access checked; what is fused with them; and what three chips' compilers make of the schedules."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

import nbcompile
from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton.test_modules import INTERPRET
from tests.compiler.codegen.triton_running import (
    CHIPS,
    compiled,
    generated,
    run_interpreted,
    small_chip,
    titles,
)
from tests.compiler.lower.harness import as_list, compare, fresh
from tests.compiler.lower.samples_of_scans import SCANS, scanned
from tests.nightly import few, one_in

LOOPED = {"multiprocessors": 1, "LONGEST_ROW": 16, "LONGEST_COLUMN": 4, "WALK_BLOCK": 32, "COLUMNS": 8}
SPLIT = LOOPED | {"multiprocessors": 40}
SCHEDULES = {
    "scan, persistent rows": {"multiprocessors": 2},
    "scan, looped rows": LOOPED,
    "scan, split rows": SPLIT,
}
SHAPES = {"rows": ((17, 150), 1), "columns": ((150, 19), 0), "middle": ((3, 130, 9), 1), "line": ((700,), 0)}


def checked(
    function: Callable[..., Any], *inputs: torch.Tensor, candidates: int = 1, **limits: int
) -> list[str]:
    """The schedules of the function's kernels, whose numbers agree with eager for each config."""
    graph = aten_of(function, *inputs)
    wide = [item.double() if item.is_floating_point() else item for item in inputs]
    with small_chip(**limits) if limits else contextlib.nullcontext():
        _, source = generated(graph)
    for candidate in range(candidates):
        got = run_interpreted(source, graph, [fresh(item) for item in inputs], candidate)
        compare(got, as_list(function(*inputs)), as_list(function(*wide)))
    return titles(source)


@few(1)
@pytest.mark.parametrize(("name", "shape", "schedule"), one_in(3, SCANS, SHAPES, SCHEDULES))
def test_each_schedule(name: str, shape: str, schedule: str) -> None:
    size, dim = SHAPES[shape]
    if shape == "line" and schedule == "scan, looped rows":
        pytest.skip("one row is split")
    # every type along rows, elsewhere one of each kind
    for n, x in enumerate(scanned(name, size)):
        if shape == "rows" or x.dtype in (torch.float32, torch.bfloat16, torch.uint8):
            candidates = 4 if n == 0 else 1
            found = checked(lambda x: SCANS[name](x, dim), x, candidates=candidates, **SCHEDULES[schedule])
            assert found[0] == schedule


@few(2)
@pytest.mark.parametrize(("name", "shape", "schedule"), one_in(3, SCANS, SHAPES, SCHEDULES))
def test_from_the_end(name: str, shape: str, schedule: str) -> None:
    size, dim = SHAPES[shape]

    def function(x):
        found = SCANS[name](x.flip(dim), dim)
        return tuple(item.flip(dim) for item in found) if isinstance(found, tuple) else found.flip(dim)

    x = next(scanned(name, size))
    found = checked(function, x, candidates=2, **SCHEDULES[schedule])
    assert len(found) == 1 and (found == [schedule] or shape == "line")


@few(1)
@pytest.mark.parametrize("name", SCANS)
def test_what_is_special(name: str) -> None:
    """NaN, infinities and equals at every place of a block and across blocks."""
    draw = torch.Generator().manual_seed(0)
    values = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, 1.0, 2.0, -1.0])
    for weights in (
        [0, 0, 0, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 20, 20, 20, 20, 20, 20],
        [0, 1, 0, 2, 2, 9, 9, 9, 9],
    ):
        x = values[torch.multinomial(torch.tensor(weights).float(), 6 * 120, True, generator=draw)].view(
            6, 120
        )
        for limits in SCHEDULES.values():
            checked(lambda x: SCANS[name](x, 1), x, **limits)
            checked(lambda x: SCANS[name](x, 0), x.t().contiguous(), **limits)
            checked(lambda x: SCANS[name](x.flip(1), 1), x, **limits)


@pytest.mark.nightly
def test_slabs_of_whole_blocks_need_no_masks() -> None:
    """38 blocks in four slabs of ten, the last of eight."""
    limits = {"multiprocessors": 1, "LONGEST_ROW": 64, "WALK_BLOCK": 64}
    for function in (lambda x: x.cumsum(0), lambda x: x.flip(0).cummax(0).values.flip(0)):
        x = torch.rand(38 * 64)
        assert checked(function, x, candidates=5, **limits) == ["scan, split rows"]
        with small_chip(**limits):
            _, source = generated(aten_of(function, x))
        assert "chunk = 640" in source.source and "mask=i_in" not in source.source


@pytest.mark.nightly
def test_indices_of_64_bits() -> None:
    for limits in SCHEDULES.values():
        for size, dim in SHAPES.values():
            x = torch.randn(size).round()
            checked(partial(_two_scans, dim), x, INT32_LIMIT=2, **limits)

    odd = lambda x: (torch.arange(96) * 2 + 1 + x.shape[0] * 0).cumprod(0)  # an index, not a named value
    checked(odd, torch.zeros(1), INT32_LIMIT=0, **SPLIT)


def _two_scans(dim, x):
    return *x.cummax(dim), x.cumsum(dim)


# -- fusion --------------------------------------------------------------------------------------------


def inlined(x, y):
    return (x * 2 + y).cumsum(1)


def consumed(x, y):
    total = x.cumsum(1)
    return total * y, total.exp(), y + 1


def producer_kept(x, y):
    z = x.sigmoid()
    return z, z.cumsum(1)


def backwards(x, y):
    return (x * y).flip(1).cumsum(1).flip(1) + y


def reshaped(x, y):
    return x.cumsum(1).reshape(x.shape[0], -1, 10) * y.reshape(x.shape[0], -1, 10).sin()


def read_across(x, y):
    return x.reshape(x.shape[0], -1, 10).transpose(1, 2).reshape(x.shape).cumsum(1)


def both(x, y):
    return x.cumsum(1) * y.cumprod(1), x.cummax(1).values


def chained(x, y):
    return (x.cumsum(1) * 0.01).cumsum(1) + y


def broadcast(x, y):
    return (x * y[:1] + y[:, :1]).cumsum(1) * y[:, :1].expand_as(x).cumsum(1) + torch.ones_like(x).cumsum(1)


def several_dims(x, y):
    return (x.reshape(x.shape[0], 4, -1) * 2).cumsum(0) * y.reshape(x.shape[0], 4, -1)


def positions_alone(x, y):
    return x.cummin(1).indices * 2


def both_ends(x, y):
    return x.cumsum(1) + x.flip(1).cumsum(1) * y


TOGETHER = [
    inlined, consumed, producer_kept, backwards, reshaped, read_across, both, chained, broadcast,
    several_dims, both_ends, positions_alone,
]  # fmt: skip


@few(2)
@pytest.mark.parametrize("limits", [{}, *SCHEDULES.values()], ids=["own", *SCHEDULES])
@pytest.mark.parametrize("function", TOGETHER, ids=lambda function: function.__name__)
def test_fused_into_one_kernel(function: Callable[..., Any], limits: dict[str, int]) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(12, 120) * 0.1 + 0.5, torch.randn(12, 120) * 0.1 + 1
    assert len(checked(function, x, y, candidates=3, **limits)) == 1
    if not limits:
        checked(function, x[:1, ::2][:, :20].expand(12, 20), y.t().contiguous().t()[:, :20])


def shifted(x):
    return torch.cat([x[:, :1] * 0, x.cumsum(1)], 1)


def of_a_reduction(x):
    return torch.softmax(x, 1).cumsum(1)


def reduced(x):
    return x.cumsum(1).amax(1)


def two_directions(x):
    return x.cumsum(0) + x.cumsum(1)


def fewer_points(x):
    return x.cumsum(1)[:, ::2] * 2


def two_ways(x):
    return x.cumsum(1) + x.flip(1).cumsum(1).flip(1)


@few(3)
@pytest.mark.parametrize(
    ("function", "code"),
    [
        (shifted, "different-shape"), (of_a_reduction, "scan"), (reduced, "scan"), (two_directions, "scan"),
        (fewer_points, "different-shape"), (two_ways, "scan"),
    ],
    ids=lambda item: getattr(item, "__name__", item),
)  # fmt: skip
def test_kernels_of_their_own(function: Callable[..., Any], code: str) -> None:
    x = torch.randn(40, 60)
    assert len(checked(function, x)) == 2
    fused, _ = generated(aten_of(function, x))
    refused = {item.code: item.reason for item in fused.decisions if not item.accepted}
    assert code in refused and 3 <= len(refused[code].split()) < 20, refused


def test_overwriting_what_is_scanned() -> None:
    def function(x):
        x.copy_(x.cumsum(1) + 1)

    for limits in SCHEDULES.values():
        x = torch.randn(5, 150)
        graph = aten_of(function, x)
        with small_chip(**limits):
            _, source = generated(graph)
        given = fresh(x)
        run_interpreted(source, graph, [given])
        assert len(source.kernels) == 1
        torch.testing.assert_close(given, x.cumsum(1) + 1)


def random_program(seed: int) -> Callable[..., Any]:
    """A chain of scans, pointwise steps, flips and reshapes of two tensors."""
    draw = random.Random(seed)
    steps = [draw.choice(["sum", "max", "lse", "mul", "flip", "exp", "fold", "t", "slice"]) for _ in range(6)]
    dims = [draw.randrange(2) for _ in steps]

    def function(x, y):
        value, kept = x, []
        for step, dim in zip(steps, dims, strict=True):
            if step == "sum":
                value = value.cumsum(dim) * 0.1
            elif step == "max":
                value, places = value.cummax(dim)
                kept.append(places)
            elif step == "lse":
                value = value.logcumsumexp(dim)
            elif step == "mul":
                value = value * y[: value.shape[0], : value.shape[1]].reshape(-1)[0] + value
                kept.append(value)
            elif step == "flip":
                value = value.flip(dim)
            elif step == "exp":
                value = torch.tanh(value)
            elif step == "fold" and value.numel() % 4 == 0:
                value = value.reshape(4, -1)
            elif step == "t":
                value = value.t()
            elif step == "slice":
                value = value[:, 1:] if value.shape[1] > 8 else value
        return (value + 1, *kept)

    return function


@few(2)
@pytest.mark.parametrize("seed", range(40))
def test_random_chains(seed: int) -> None:
    torch.manual_seed(seed)
    draw = random.Random(seed)
    limits = draw.choice([{}, *SCHEDULES.values()])
    checked(random_program(seed), torch.randn(24, 30), torch.randn(24, 30), candidates=2, **limits)


# -- whole compiles ------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("limits", [{}, *SCHEDULES.values()], ids=["own", *SCHEDULES])
def test_other_sizes(limits: dict[str, int], nightly: bool) -> None:
    def function(x):
        return (x * 2).cumsum(0) + x, *x.cummax(1), x.reshape(-1).logcumsumexp(0), x.flip(1).cumprod(1)

    made = nbcompile.compile(function, dynamic=True, options=INTERPRET)
    with small_chip(**limits) if limits else contextlib.nullcontext():
        sizes = [(33, 129), (7, 300), (5, 33)]
        for size in [*sizes, (90, 4), (64, 64), (2, 1000)] if nightly else sizes:
            x = torch.randn(size)
            compare(as_list(made(x)), as_list(function(x)), as_list(function(x.double())))
            assert made.ran_compiled, made.eager_reason
    assert any(kernel.schedule.startswith("scan") for kernel in made.compilation.kernels)


def test_training() -> None:
    def function(x, w):
        y = (x * w).cumsum(1)
        z = y.logcumsumexp(0) + (x * 0.1).cumprod(1) + x.cummax(0).values
        return (z * torch.softmax(y, 1).cumsum(1)).sum()

    made = nbcompile.compile(function, options=INTERPRET)
    torch.manual_seed(0)
    x, w = torch.randn(12, 40, requires_grad=True), torch.randn(40, requires_grad=True)
    made(x, w).backward()
    got = [x.grad, w.grad]
    wide = [item.detach().double().requires_grad_() for item in (x, w)]
    function(*wide).backward()
    assert made.ran_compiled, made.eager_reason
    for mine, leaf in zip(got, wide, strict=True):
        torch.testing.assert_close(mine.double(), leaf.grad, rtol=1e-4, atol=1e-4)


# -- three chips ---------------------------------------------------------------------------------------


def kernels_to_compile() -> Iterator[tuple[str, str, str]]:
    for n, (name, schedule) in enumerate((name, item) for name in SCANS for item in SCHEDULES):
        for m, shape in enumerate(("rows", "columns")):
            if (n + m) % 2 == 0 or name == "cummax":
                yield name, shape, schedule


@pytest.mark.nightly
@pytest.mark.parametrize("kernel", one_in(3, kernels_to_compile()))
def test_three_chips(kernel: tuple[str, str, str]) -> None:
    name, shape, schedule = kernel
    size, dim = SHAPES[shape]
    for n, x in enumerate(scanned(name, size)):
        with small_chip(**SCHEDULES[schedule]):
            _, source = generated(aten_of(lambda x: SCANS[name](x, dim), x))
        chip = CHIPS[n % 3]
        assert compiled(source, chip, assemble=n < 3).keys() == {item.function for item in source.launches}
