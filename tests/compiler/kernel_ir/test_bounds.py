"""The check of kernels' bounds refuses kernels that were broken on purpose, in each way that they can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import nbcompile
from nbcompile.compiler.capture.decompositions import decompositions
from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.kernel_ir.bounds import Counts, values_bounds, verify_bounds
from nbcompile.compiler.kernel_ir.group_to_values import kernel_values
from nbcompile.compiler.kernel_ir.integer_bounds import lies_within
from nbcompile.compiler.kernel_ir.values import Gathered, KernelValues
from nbcompile.compiler.loop_ir.expr import Expr, Guarded, Load
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.index import Axis, FloorDiv, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Buffer, Loop
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.stages import AtenGraph
from nbcompile.errors import SymbolicSizeError, VerifyError
from tests.compiler.codegen.running import NO_CACHE
from tests.nightly import few

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "pad": lambda x: F.pad(x, (1, 2)) * 2,
    "roll": lambda x: x - x.roll(-1, 0),
    "joined": lambda x: torch.cat([x, x[1:] * 2, x[:, :].flip(0)]),
    "softmax": lambda x: torch.softmax(x, -1),
    "sums": lambda x: (x.sum(0), x.sum(1)),
    "strided": lambda x: x[1::2, :-1] + 1,
    "flat": lambda x: x.t().reshape(-1) * 2,
    "pooled": lambda x: F.avg_pool1d(x[None], 3, 1, 1)[0],
    "triangle": lambda x: x.tril(),
}


def fused(fn: Callable[..., Any], *inputs: torch.Tensor, mode: str = "fake") -> FusedProgram:
    module = make_fx(fn, decompositions(NO_CACHE), tracing_mode=mode)(*inputs)
    ids = {node.name: f"g0.fw.n{place}" for place, node in enumerate(module.graph.nodes)}
    return loops_to_groups(aten_to_loops(AtenGraph("g0.fw", "forward", module, ids), NO_CACHE), NO_CACHE)


def with_loops(program: FusedProgram, change: Callable[[Loop], Loop]) -> FusedProgram:
    groups = [
        replace(item, loops=tuple(map(change, item.loops))) if isinstance(item, Group) else item
        for item in program.items
    ]
    return replace(program, items=tuple(groups))


def rewritten(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    children = tuple(rewritten(child, change) for child in expr.children())
    return change(expr.rebuild(children, expr.indices()))


def changed(program: FusedProgram, change: Callable[[Expr], Expr]) -> FusedProgram:
    return with_loops(program, lambda loop: replace(loop, body=rewritten(loop.body, change)))


def shifted(by: int, dim: int) -> Callable[[Expr], Expr]:
    def change(expr: Expr) -> Expr:
        if not isinstance(expr, Load) or len(expr.index) <= dim:
            return expr
        places = (*expr.index[:dim], expr.index[dim] + by, *expr.index[dim + 1 :])
        return Load(expr.buffer, places, expr.dtype)

    return change


REFUSED = (VerifyError, SymbolicSizeError)
MODES = pytest.mark.parametrize("mode", ["fake", "symbolic"])


@MODES
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_as_they_are_pass(name: str, mode: str) -> None:
    found = verify_bounds(fused(FUNCTIONS[name], torch.randn(6, 8), mode=mode))
    assert found.proved > 1 and not found.checked and not found.wrong


@few(13)
@MODES
@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"flat"}))
def test_an_index_that_is_off_by_one(name: str, by: int, mode: str) -> None:
    program = fused(FUNCTIONS[name], torch.randn(6, 8), mode=mode)
    by *= 2 if name == "strided" else 1  # it reads every other row
    with pytest.raises(REFUSED, match="may be negative" if by < 0 else "or more"):
        verify_bounds(changed(program, shifted(by, 0)))


@pytest.mark.parametrize("by", [0, 1, -1])
def test_indices_that_lead_to_one_place(by: int) -> None:
    """x[i - 2, j] and x[i, j - 8] are one value: where it is read, one of the two is inside."""
    program = fused(lambda x: torch.cat([torch.cat([x, x])] * 3, 1), torch.randn(2, 4))
    (kernel,) = program.groups
    ways = kernel_values(kernel, program.program.buffers()).ways
    assert max(len(tuple(each)) for each in ways.values()) == 2
    if not by:
        assert verify_bounds(program).proved > 1
        return
    with pytest.raises(REFUSED, match="reads x"):
        verify_bounds(changed(program, shifted(by, 0)))


def test_rows_of_a_tensor_that_are_joined_again() -> None:
    """Both sides of the concatenation's guard are one place, so that there is none: ``v0[0, i]`` for all four
    elements of two rows of two, and inside."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.stack(x.unbind(0), 0)[::1] * 1

    x = torch.randn(2, 2)
    run = nbcompile.compile(f, options={"cache": False})
    torch.testing.assert_close(run(x), f(x))
    assert not run.eager_reason


def test_rows_that_are_joined_again_of_a_tensor_in_another_order() -> None:
    """As above, where the last dimensions are the first in memory (the fuzzer's seed 20006170)."""

    def f(x: torch.Tensor) -> torch.Tensor:
        _, two, three = x.unbind(0)
        return torch.cat([two, three], -2) * 1

    x = torch.randn(3, 2, 3, 3).permute(0, 3, 1, 2)
    run = nbcompile.compile(f, options={"cache": False, "verify": True})
    torch.testing.assert_close(run(x), f(x))
    assert not run.eager_reason


def test_an_extent_that_a_guard_says_is_one() -> None:
    """It is broadcast, though it is written as a quotient."""
    program = fused(
        lambda x, y: x.unflatten(0, (5, -1)).expand(-1, 4) + y,
        torch.randn(5), torch.randn(5, 4), mode="symbolic",
    )  # fmt: skip
    assert verify_bounds(program).proved == 3


def test_what_is_known_of_a_size_that_a_guard_made_a_number() -> None:
    """The guard that compares the two was there first."""

    def fn(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        found = x.gather(1, rows)
        return found + 1 if x.shape[0] == 7 else found

    program = fused(fn, torch.randn(7, 8), torch.randint(0, 8, (5, 3)), mode="symbolic")
    assert any("7" in str(fact) for fact in program.program.facts)
    assert verify_bounds(program).checked == 1


SPLITS: dict[str, Callable[..., Any]] = {
    "rows": lambda x: x.unflatten(0, (x.shape[0] // 2, -1)).exp(),
    "groups": lambda x: F.group_norm(x[None], 3)[0],
    "halves": lambda x: torch.cat([x[: x.shape[0] // 2] * 2, x[x.shape[0] // 2 :]]),
    "flat": lambda x: x.exp().t().reshape(-1, 2).flip(0),
    "scattered": lambda x: torch.slice_scatter(x, x[: x.shape[0] // 3] * 2, 0, 0, x.shape[0] // 3),
}


@few(3)
@pytest.mark.parametrize("name", SPLITS)
def test_divided_sizes(name: str) -> None:
    found = verify_bounds(fused(SPLITS[name], torch.randn(12, 8), mode="symbolic"))
    assert found.proved > 1 and not found.checked


@few(3)
@pytest.mark.parametrize("name", SPLITS)
def test_divided_sizes_off_by_one(name: str) -> None:
    program = fused(SPLITS[name], torch.randn(12, 8), mode="symbolic")
    with pytest.raises(REFUSED, match="or more"):
        verify_bounds(changed(program, shifted(1, 0)))


@MODES
@pytest.mark.parametrize("name", ["pad", "roll", "joined", "pooled"])
def test_a_guard_that_lacks_a_bound(name: str, mode: str) -> None:
    program = fused(FUNCTIONS[name], torch.randn(6, 8), mode=mode)

    def wider(expr: Expr) -> Expr:
        if not isinstance(expr, Guarded):
            return expr
        ((value, low, high), *others) = expr.bounds
        return Guarded(((value, low, high + 1), *others), expr.inside, expr.outside)

    def bare(expr: Expr) -> Expr:
        return expr.inside if isinstance(expr, Guarded) else expr

    for change in (wider, bare):
        with pytest.raises(REFUSED, match="reads x"):
            verify_bounds(changed(program, change))


@MODES
def test_the_sides_of_a_guard_exchanged(mode: str) -> None:
    def change(expr: Expr) -> Expr:
        return Guarded(expr.bounds, expr.outside, expr.inside) if isinstance(expr, Guarded) else expr

    for name in ("pad", "roll", "joined"):
        with pytest.raises(REFUSED, match="reads x"):
            verify_bounds(changed(fused(FUNCTIONS[name], torch.randn(6, 8), mode=mode), change))


@MODES
@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"flat", "triangle"}))
def test_a_buffer_whose_extents_are_swapped(name: str, mode: str) -> None:
    program = fused(FUNCTIONS[name], torch.randn(6, 8), mode=mode)
    swap = lambda item: (
        replace(item, shape=item.shape[::-1]) if isinstance(item, Buffer) and len(item.shape) == 2 else item
    )
    inputs = tuple(map(swap, program.program.inputs))
    with pytest.raises(REFUSED, match="reads x"):
        verify_bounds(replace(program, program=replace(program.program, inputs=inputs)))


@MODES
def test_a_nest_that_is_longer_than_what_it_writes(mode: str) -> None:
    program = fused(lambda x: x * 2, torch.randn(6, 8), mode=mode)
    (group,) = program.groups
    longer = {axis: Axis(axis.name, axis.extent + 1) for axis in group.nest.axes}
    nest = replace(group.nest, axes=tuple(longer.values()))
    bindings = {
        name: {axis: index(longer[place.axis]) for axis, place in binding.items()}
        for name, binding in group.bindings.items()
    }
    with pytest.raises(REFUSED, match="or more"):
        verify_bounds(replace(program, items=(replace(group, nest=nest, bindings=bindings),)))


def resolved(fn: Callable[..., Any], *inputs: torch.Tensor, narrow: bool = False) -> tuple[KernelValues, Any]:
    program = fused(fn, *inputs)
    buffers = program.program.buffers()
    return kernel_values(program.groups[0], buffers, narrow=narrow), buffers


def test_an_offset_that_is_not_the_index() -> None:
    values, buffers = resolved(lambda x: x.t() + 1, torch.randn(6, 8))
    assert values_bounds(values, buffers) == Counts(2)
    (store,) = values.stores
    moved = replace(values, stores=(replace(store, place=store.place + 1),))
    assert "is at offset" in values_bounds(moved, buffers).wrong[0]


def test_a_quotient_of_what_may_be_negative() -> None:
    values, buffers = resolved(lambda x: x + 1, torch.randn(6, 8))
    (store,) = values.stores
    (axis,) = store.value.axes
    wrong = IndexExpr({(FloorDiv(index(axis) - 100, index(7)),): 1})
    number = replace(store.value, kind="index", args=(), place=wrong, op="")
    found = values_bounds(replace(values, stores=(replace(store, value=number),)), buffers)
    assert found.wrong and "may be negative" in found.wrong[0]


def test_gathered_indices_are_checked_or_sure() -> None:
    def fn(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return x[rows]

    rows = torch.randint(0, 6, (5,))
    values, buffers = resolved(fn, torch.randn(6, 8), rows, narrow=True)
    assert values_bounds(values, buffers) == Counts(proved=2, checked=1)

    def surely(place: IndexExpr) -> IndexExpr:
        total = index(0)
        for mono, coeff in place.terms:
            atoms = (Gathered(a.value, a.size, True) if isinstance(a, Gathered) else a for a in mono)
            total = total + IndexExpr({tuple(atoms): coeff})
        return total

    (store,) = values.stores
    value = store.value
    claimed = replace(value, place=surely(value.place), index=tuple(map(surely, value.index)))
    found = values_bounds(replace(values, stores=(replace(store, value=claimed),)), buffers)
    assert found.wrong and "is not surely in [0, 6)" in found.wrong[0]


@pytest.mark.parametrize(
    ("fn", "size", "least"),
    [
        (lambda x: (x > 0).long() * 2 + (x > 1).long(), 4, 3),
        (lambda x: torch.where(x > 0, 3, 5), 6, 5),
        (lambda x: torch.arange(8).expand(6, 8) // 3 + 1, 4, 3),
        (lambda x: (torch.arange(8) - 5).abs().expand(6, 8), 6, 5),
        (lambda x: x.long() % 7, 7, 6),
        (lambda x: (7 - torch.arange(8)).clamp(2, 4).expand(6, 8), 5, 4),
        (lambda x: x.to(torch.uint8).long(), 256, 255),
        (lambda x: (x.to(torch.int8).sign().abs() * 3).long(), 4, 3),
        (lambda x: x.to(torch.int8).sign().long() + 1, 3, 2),
        (lambda x: x.to(torch.uint8).long() & 5, 6, 5),
        (lambda x: (x > 0).long() | 2, 4, 2),
        (lambda x: torch.arange(-8, 0).expand(6, 8), 1, 0),
    ],
)
def test_integers_in_their_ranges(fn, size, least):
    values, _ = resolved(lambda x: fn(x) + 0, torch.randn(6, 8), narrow=True)
    (store,) = values.stores
    if size == 1:
        assert not lies_within(store.value, index(100))
        return
    assert lies_within(store.value, index(size))
    assert not lies_within(store.value, index(least))


def test_indices_and_place_that_are_equal_by_what_a_memory_holds() -> None:
    """A gather of a part of a flattened tensor: two of its indices are known, and only with them is what the
    others lead to the place that is read."""
    run = nbcompile.compile(
        lambda x, at: torch.ravel(x).narrow(0, 54, 5)[at[:, None]], options={"cache": False}
    )
    x, at = torch.randn(2, 2, 2, 8), torch.tensor([4, 0])
    assert torch.equal(run(x, at), x.flatten()[54:59][at[:, None]])
    assert run.ran_compiled, run.eager_reason
