"""Index tensors that depend on no input: their formulas, the gathers that become views, and the scatters that
are turned round."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nbcompile.compiler.loop_ir.expr import Guarded, Indirect
from nbcompile.compiler.loop_ir.index import Axis, index
from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.loop_ir.nodes import Loop
from nbcompile.compiler.loop_ir.verify import verify
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.lower.constant_folding import formula_of, plain_quasi_affine, quasi_affine_of
from nbcompile.options import Options
from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton_running import H100
from tests.compiler.lower.harness import as_list, compare
from tests.nightly import few

torch.manual_seed(0)


def reflected(length: int, pad: int) -> torch.Tensor:
    last = length - 1
    return last - (last - torch.arange(-pad, length + pad).abs()).abs()


def nearest(length: int, size: int) -> torch.Tensor:
    return (torch.arange(size, dtype=torch.float32) * (length / size)).to(torch.int64)


# -- formulas ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        [0], [3, 3, 3], [0, 1, 2, 3], [5, 4, 3], [1, 4, 7, 10], [0, 0, 1, 1, 2, 2], [2, 2, 1, 1, 0, 0],
        nearest(10, 7).tolist(), nearest(7, 10).tolist(), nearest(32, 100).tolist(),
        nearest(100, 33).tolist(), [9, 7, 6, 4, 3, 1],
    ],
    ids=str,
)  # fmt: skip
def test_steps(line):
    step = quasi_affine_of(line)
    assert step is not None and step.clamp is None
    i = Axis("i", len(line))
    assert [step.at(index(i)).evaluate(lambda atom, n=n: n) for n in range(len(line))] == line


@pytest.mark.parametrize(
    "line", [[0, 0, 0, 1, 2, 3, 4, 4, 4], [5, 5, 4, 3, 2, 2], [0, 0, 0, 0, 1, 1, 1, 2, 2]]
)
def test_clamped_steps(line):
    step = quasi_affine_of(line, clamps=True)
    assert step is not None
    made = [(step.scale * n + step.shift) // step.divisor for n in range(len(line))]
    if step.clamp:
        assert min(made) + step.lift >= 0
        made = [min(max(item, step.clamp[0]), step.clamp[1]) for item in made]
    assert made == line


@pytest.mark.parametrize("line", [[0, 1, 0], [0, 5, 6, 100], [1, 0, 0, 1]])
def test_no_step(line):
    assert quasi_affine_of(line, clamps=True) is None


def test_formula_of_two_axes():
    values = torch.arange(4)[:, None] * 10 + torch.arange(6) // 2
    formula = formula_of(values)
    i, j = Axis("i", 4), Axis("j", 6)
    assert str(formula.at([index(i), index(j)])) == "(j//2) + 10*i"
    assert formula_of(values * values) is None


def test_places_of_a_step_need_not_start_at_0():
    assert plain_quasi_affine([0, 1, 2], 5).shift == -5


# -- programs ------------------------------------------------------------------------------------------


def run(fn: Any, *inputs: torch.Tensor, options: Options | None = None) -> list[Loop]:
    """The loops of ``fn``, whose results agree with eager's."""
    program = verify(aten_to_loops(aten_of(fn, *inputs), options or Options()))
    got = interpret(program, [item.clone() for item in inputs])
    compare(got, as_list(fn(*inputs)), None)
    assert all(isinstance(item, Loop) for item in program.statements)
    return list(program.statements)


def gathers(loops: list[Loop]) -> bool:
    """Whether any loop reads at a place that is itself a value."""
    places = [place for loop in loops for load in loop.reads() for place in load.index]
    return any(isinstance(atom, Indirect) for place in places for atom in place.atoms())


def upsample(x):
    at = nearest(5, 15)
    return x[:, at[:, None], at]


def flip(x):
    return x[:, torch.arange(4, -1, -1)]


def strided(x):
    return x[:, torch.arange(0, 5, 2), 3]


def negative(x):
    return x[:, torch.arange(-5, 0)]


def below_zero_and_above(x):
    return x[:, torch.arange(-2, 3)]


def bilinear(x):
    place = ((torch.arange(20) + 0.5) * 0.25 - 0.5).clamp(0.0)
    low = place.to(torch.int64)
    high = (low + 1).clamp(max=4)
    return x[:, low] + (place - low)[:, None] * x[:, high]


@pytest.mark.parametrize("fn", [upsample, flip, strided, negative])
def test_gathers_that_become_views(fn):
    loops = run(fn, torch.randn(3, 5, 5))
    assert not gathers(loops)


def quotient(x):
    return x[:, (torch.arange(5) / 3.0).to(torch.int64)]


def tenths(x):
    return x[:, torch.arange(0, 1, 0.2).to(torch.int64)]


@pytest.mark.parametrize("fn", [quotient, tenths])
def test_what_a_gpu_might_round_otherwise_is_left_to_it(fn):
    assert gathers(run(fn, torch.randn(3, 5, 5)))


@pytest.mark.parametrize("fn", [below_zero_and_above, bilinear])
def test_gathers_that_stay(fn):
    assert gathers(run(fn, torch.randn(3, 5, 5)))


def test_the_index_itself_is_told_by_its_formula():
    def fn(x):
        at = nearest(5, 15)
        return at, x[at]

    loops = run(fn, torch.randn(5))
    assert {str(loop.body) for loop in loops} >= {"(i//3)"}


def put(index: Any, accumulate: bool) -> Any:
    def fn(x, src):
        return torch.ops.aten.index_put(x, list(index()), src, accumulate)

    return fn


PUTS = {
    "nearest": (lambda: (None, nearest(5, 15)[:, None], nearest(5, 10)), (3, 15, 10)),
    "uneven": (lambda: (None, nearest(5, 13)[:, None], nearest(5, 7)), (3, 13, 7)),
    "smaller": (lambda: (None, nearest(5, 3)[:, None], nearest(5, 4)), (3, 3, 4)),
    "flipped": (lambda: (None, torch.arange(4, -1, -1)), (3, 5, 5)),
    "flipped and repeated": (lambda: (None, 4 - nearest(5, 15)), (3, 15, 5)),
    "strided": (lambda: (None, torch.arange(1, 5, 2)), (3, 2, 5)),
    "part": (lambda: (None, torch.arange(1, 4).repeat_interleave(2) - 0), (3, 6, 5)),
    "one": (lambda: (None, torch.full((7,), 2)), (3, 7, 5)),
    "many": (lambda: (None, nearest(5, 200)), (3, 200, 5)),
    "reflected": (lambda: (None, reflected(5, 2)), (3, 9, 5)),
    "diagonal": (lambda: (None, torch.arange(5), torch.arange(5)), (3, 5)),
    "none": (lambda: (None, torch.arange(0)), (3, 0, 5)),
}  # fmt: skip


@few(10)
@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
@pytest.mark.parametrize("name", PUTS)
def test_scatters(name, dtype, accumulate):
    places, shape = PUTS[name]
    x, src = (torch.randn(3, 5, 5) * 9).to(dtype), (torch.randn(shape) * 9).to(dtype)
    for options in (Options(), H100):
        if not accumulate and name in ("reflected",):
            continue
        loops = run(put(places, accumulate), x, src, options=options)
        left = any(loop.kind == "scatter" for loop in loops)
        assert left == (name in ("reflected", "diagonal", "none")), [loop.body for loop in loops]


def test_what_is_added_once_keeps_its_guards_apart():
    """A sum of guarded values, not a guard around each sum: that would double the text at every step."""
    places, shape = PUTS["uneven"]
    loops = run(put(places, True), torch.randn(3, 5, 5), torch.randn(shape))
    (loop,) = loops[-1:]
    assert sum(isinstance(node, Guarded) for node in loop.body.walk()) == 6


def test_scatter_add_of_an_expanded_index():
    def fn(x, src):
        at = (torch.arange(12) // 3)[:, None].expand(12, 5)
        return torch.scatter_add(x, 0, at, src), torch.index_add(x, 0, torch.arange(12) // 3, src)

    loops = run(fn, torch.randn(4, 5), torch.randn(12, 5))
    assert not any(loop.kind == "scatter" for loop in loops)


def test_half_types_are_rounded_once():
    places, shape = PUTS["nearest"]
    x, src = torch.randn(3, 5, 5).bfloat16(), torch.randn(shape).bfloat16()
    program = verify(aten_to_loops(aten_of(put(places, True), x, src), H100))
    (got,) = interpret(program, [x, src])
    exact = put(places, True)(x.double(), src.double())
    assert (got.double() - exact).abs().max() <= exact.abs().max() * 2**-8
