"""The interpreter against torch, one feature at a time, on programs written by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nbcompile.compiler.loop_ir.expr import (
    Guarded,
    IndexValue,
    Indirect,
    Load,
    constant,
    index_value,
    op,
    where,
)
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, Size, index
from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.loop_ir.nodes import Buffer, LibraryCall, Loop, LoopProgram, View, buffer_like
from nbcompile.compiler.loop_ir.verify import verify
from nbcompile.errors import VerifyError

F32, I64 = torch.float32, torch.int64


def run(
    statements: list[Any], inputs: dict[str, torch.Tensor], outputs: list[Any],
    updates: dict[str, str] | None = None, **constants: Any,
) -> Any:  # fmt: skip
    """Verify and interpret a program over ``inputs``; output buffers are returned whole."""
    held = tuple(buffer_like(name, tensor, "input") for name, tensor in inputs.items())
    shown = tuple(View.whole(item) if isinstance(item, Buffer) else item for item in outputs)
    made = verify(LoopProgram("g0", held, tuple(statements), shown, constants, {}, updates or {}))
    results = interpret(made, list(inputs.values()))
    return results[0] if len(results) == 1 else results


def like(name: str, tensor: torch.Tensor) -> Buffer:
    return buffer_like(name, tensor)


def axes_of(tensor: torch.Tensor) -> tuple[Axis, ...]:
    return tuple(Axis("ijkl"[n], size) for n, size in enumerate(tensor.shape))


def places(axes: tuple[Axis, ...]) -> tuple[IndexExpr, ...]:
    return tuple(map(index, axes))


X = torch.arange(12.0).reshape(3, 4) - 5
AXES = axes_of(X)
I_, J = places(AXES)
LOAD = Load("x", (I_, J), F32)


def test_pointwise_keeps_strides_and_rounds_when_stored():
    x = X.t().contiguous().t()
    y = like("y", x.bfloat16())
    got = run([Loop("l0", (y,), AXES, LOAD / 3.0)], {"x": x}, [y])
    assert torch.equal(got, (x / 3).bfloat16()) and got.stride() == x.stride()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sum", [X.cumsum(0)]), ("prod", [X.cumprod(0)]), ("logsumexp", [X.logcumsumexp(0)]),
        ("max", list(X.cummax(0))), ("min", list(X.cummin(0))),
    ],
)  # fmt: skip
def test_scans(kind: Any, expected: list[torch.Tensor]) -> None:
    outputs = tuple(like(f"y{n}", item) for n, item in enumerate(expected))
    got = run([Loop("l0", outputs, AXES, LOAD, scan=kind, scanned=AXES[0])], {"x": X}, list(outputs))
    for mine, theirs in zip(got if len(expected) > 1 else [got], expected, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sum", X.sum(1)), ("prod", X.prod(1)), ("max", X.amax(1)), ("min", X.amin(1)),
        ("argmax", X.argmax(1)), ("argmin", X.argmin(1)),
    ],
)  # fmt: skip
def test_reductions(kind, expected):
    y = like("y", expected)
    assert torch.equal(run([Loop("l0", (y,), AXES, LOAD, (AXES[1],), kind)], {"x": X}, [y]), expected)


@pytest.mark.parametrize(("kind", "expected"), [("any", (X > 5).any(0)), ("all", (X > -6).all(0))])
def test_logical_reductions(kind, expected):
    y = like("y", expected)
    bound = constant(5 if kind == "any" else -6, F32)
    got = run([Loop("l0", (y,), AXES, op("gt", LOAD, bound), (AXES[0],), kind)], {"x": X}, [y])
    assert torch.equal(got, expected)


def test_argmax_counts_over_all_reduced_axes_first_wins_and_nan_wins():
    x = torch.tensor([[1.0, 7.0], [7.0, 0.0]])
    axes, y = axes_of(x), like("y", torch.tensor(0))
    loop = Loop("l0", (y,), axes, Load("x", places(axes), F32), axes, "argmax")
    assert run([loop], {"x": x}, [y]) == 1
    x[1, 1] = float("nan")
    assert run([loop], {"x": x}, [y]) == 3


def test_welford_gives_mean_and_squared_deviations():
    m, s = like("m", X[:, 0]), like("s", X[:, 0])
    mean, squares = run([Loop("l0", (m, s), AXES, LOAD, (AXES[1],), "welford")], {"x": X}, [m, s])
    torch.testing.assert_close(mean, X.mean(1))
    torch.testing.assert_close(squares / 4, X.var(1, correction=0))


def test_reductions_over_nothing_give_their_neutral_element():
    x = torch.zeros(3, 0)
    axes = axes_of(x)
    for kind, value in (("sum", 0.0), ("prod", 1.0)):
        y = like("y", torch.zeros(3))
        loop = Loop("l0", (y,), axes, Load("x", places(axes), F32), (axes[1],), kind)
        assert torch.equal(run([loop], {"x": x}, [y]), torch.full((3,), value))


@pytest.mark.parametrize("mode", ["set", "add", "mul", "max", "min"])
def test_scatters_take_points_in_order(mode):
    x, p, v = torch.arange(4.0), torch.tensor([2, 0, 2, 2]), torch.tensor([5.0, -1.0, 0.5, 3.0])
    axis = Axis("i", 4)
    i = index(axis)
    target = IndexExpr({(Indirect(Load("p", (i,), I64), index(4)),): 1})
    y = like("y", x)
    loop = Loop("l0", (y,), (axis,), Load("v", (i,), F32), target=(target,), base="x", mode=mode)
    expected = x.clone()
    combine = {"set": lambda a, b: b, "add": torch.add, "mul": torch.mul, "max": max, "min": min}[mode]
    for place, value in zip(p.tolist(), v, strict=True):
        expected[place] = combine(expected[place], value)
    assert torch.equal(run([loop], {"x": x, "p": p, "v": v}, [y]), expected)
    assert torch.equal(x, torch.arange(4.0))


def test_an_input_holds_its_new_value_when_all_has_read_the_old_one():
    x = X.clone()
    new, read = like("x_new", x), like("y", x)
    loops = [Loop("l0", (new,), AXES, LOAD * 2.0), Loop("l1", (read,), AXES, LOAD + 1.0)]
    got = run(loops, {"x": x}, [read], {"x": "x_new"})
    assert torch.equal(x, X * 2) and torch.equal(got, X + 1)


def test_only_the_chosen_branch_of_a_guard_is_read():
    axis = Axis("k", 9)
    k, y = index(axis), like("y", torch.zeros(9))
    zero = constant(0, F32)
    x, z = torch.arange(4.0), torch.arange(10.0, 12.0)
    # y[k] = x[k - 1] for 1 <= k < 5, then z[k - 5] for k < 7, then 0
    body = Guarded(
        ((k, index(1), index(5)),),
        Load("x", (k - 1,), F32),
        Guarded(((k, index(5), index(7)),), Load("z", (k - 5,), F32), zero),
    )
    got = run([Loop("l0", (y,), (axis,), body)], {"x": x, "z": z}, [y])
    assert got.tolist() == [0, 0, 1, 2, 3, 10, 11, 0, 0]
    swapped = Guarded(((k, index(4), index(9)),), zero, Load("x", (k,), F32))
    assert run([Loop("l0", (y,), (axis,), swapped)], {"x": x}, [y]).tolist() == [0, 1, 2, 3, 0, 0, 0, 0, 0]
    nested = Guarded(
        ((k, index(0), index(6)),), Guarded(((k, index(4), index(9)),), zero, Load("x", (k,), F32)), zero
    )
    assert run([Loop("l0", (y,), (axis,), nested)], {"x": x}, [y]).tolist() == [0, 1, 2, 3, 0, 0, 0, 0, 0]
    # a bound that is one too wide reads outside
    wide = Guarded(((k, index(1), index(6)),), Load("x", (k - 1,), F32), zero)
    with pytest.raises(VerifyError, match="reads outside of x"):
        run([Loop("l0", (y,), (axis,), wide)], {"x": x}, [y])


def test_loads_out_of_range_are_refused():
    y = like("y", X)
    for place in ((I_ + 1, J), (I_, J - 1)):
        with pytest.raises(VerifyError, match="reads outside of x"):
            run([Loop("l0", (y,), AXES, Load("x", place, F32))], {"x": X}, [y])


def test_quotients_remainders_and_gathers_as_indices():
    axis = Axis("k", 12)
    k, y = index(axis), like("y", torch.zeros(12))
    body = Load("x", (k // 4, k % 4), F32)
    assert torch.equal(run([Loop("l0", (y,), (axis,), body)], {"x": X}, [y]), X.reshape(-1))
    p = torch.tensor([2, 0, 1, 1])
    picked = IndexExpr({(Indirect(Load("p", (J,), I64), index(3)),): 1})
    y = like("y", X)
    got = run([Loop("l0", (y,), AXES, Load("x", (picked, J), F32))], {"x": X, "p": p}, [y])
    assert torch.equal(got, X[p, torch.arange(4)].expand(3, 4))


def test_index_values_and_conditions():
    y = like("y", X)
    body = where(IndexValue(I_, I64).eq(index_value(J)), constant(1, F32), op("neg", LOAD))
    assert torch.equal(
        run([Loop("l0", (y,), AXES, body)], {"x": X}, [y]), torch.where(torch.eye(3, 4) > 0, 1.0, -X)
    )


def test_library_calls_get_strided_views_and_constants_are_read():
    shown = View(
        buffer_like("x", X, "input"),
        (Axis("v0", 4), Axis("v1", 2)),
        (index(Axis("v1", 2)), index(Axis("v0", 4))),
    )
    y = like("y", torch.zeros(4, 2))
    call = LibraryCall("c0", "exp", torch.exp, (shown,), {}, (y,))
    assert torch.equal(run([call], {"x": X}, [y]), X[:2].t().exp())
    w, z = torch.full((3, 4), 2.0), like("z", X)
    product = Loop("l0", (z,), AXES, LOAD * Load("w", (I_, J), F32))
    assert torch.equal(run([product], {"x": X}, [z], w=w), X * 2)


def test_symbolic_sizes_are_bound_by_the_inputs():
    rows = Size("s0", 3)
    shape = (index(rows), index(4))
    x = Buffer("x", shape, (index(4), index(1)), F32, "input")
    y = Buffer("y", (index(rows) * 4,), (index(1),), F32)
    axis = Axis("k", index(rows) * 4)
    body = Load("x", (index(axis) // 4, index(axis) % 4), F32) * index_value(index(rows), I64).cast(F32)
    made = LoopProgram(
        "g0", ("s0", x), (Loop("l0", (y,), (axis,), body),), (View.whole(y), index(rows) + 1), {}, {}
    )
    for n in (3, 5):
        given = torch.arange(n * 4.0).reshape(n, 4)
        flat, number = interpret(verify(made), [n, given])
        assert torch.equal(flat, given.reshape(-1) * n) and number == n + 1
