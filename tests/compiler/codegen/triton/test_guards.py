"""What of a tile may be made outside of the guards that it stands in: what they do not make different."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
import torch

from nbcompile.compiler.codegen.triton.dims import Scope
from nbcompile.compiler.codegen.triton.guards import needed, varies_along
from nbcompile.compiler.codegen.triton.tile_expression import named
from nbcompile.compiler.kernel_ir.values import Gathered, Value
from nbcompile.compiler.loop_ir.index import Axis, Index, IndexExpr, Size, index
from nbcompile.compiler.loop_ir.nodes import Buffer
from tests.compiler.codegen.c.by_hand import buffer

ROW, COL = Axis("i", 6), Axis("j", 40)
N = Size("s0", 7)
BUFFERS = {each.name: each for each in (buffer("x", 6, 40), buffer("w", 6), buffer("n", N))}
NUMBERS = itertools.count()


def dims_of(axes: Iterable[Axis]) -> frozenset[int]:
    """Rows are the first dimension of the tile, columns the second."""
    return frozenset({ROW: 0, COL: 1}[axis] for axis in axes)


def value(kind: str, *args: Value, axes: Iterable[Axis] = (), **more: object) -> Value:
    own = frozenset(axes).union(*(arg.axes for arg in args))
    return Value(next(NUMBERS), kind, torch.float32, args, axes=own, **more)  # type: ignore[arg-type]


def load(name: str, *at: Index) -> Value:
    memory: Buffer = BUFFERS[name]
    place = memory.offset(tuple(map(index, at)))
    return value("load", buffer=name, place=place, axes=place.axes())


def op(*args: Value) -> Value:
    return value("op", *args, op="add")


def guard(item: Index, inside: Value, outside: Value) -> Value:
    """``inside`` where ``item`` is at least 2."""
    return value(
        "guard", inside, outside, bounds=((index(item), index(2), index(999)),), axes=index(item).axes()
    )


def certain(*roots: Value, scope: Scope | None = None) -> set[int]:
    return needed(dims_of, BUFFERS, roots, scope or {})[1]


X, ZERO = load("x", ROW, COL), value("const", literal=0.0)


def test_values_come_after_what_they_are_made_of() -> None:
    total = op(X, load("w", ROW))
    order, sure = needed(dims_of, BUFFERS, [op(total, total), total], {})
    assert [each.kind for each in order] == ["load", "load", "op", "op"] and order[2] is total
    assert sure == {each.number for each in order}


def test_what_has_a_name_here_is_not_made_again() -> None:
    total = op(X, load("w", ROW))
    order, _ = needed(dims_of, BUFFERS, [op(total, ZERO)], {total.number: named("t")})
    assert total not in order and X not in order and ZERO in order


def test_what_a_guard_decides_on_stays_inside() -> None:
    choice = guard(COL, op(X, X), ZERO)
    assert certain(choice) == {choice.number}
    # but not what is needed anyway, whichever of the two is met first
    assert X.number in certain(choice, X) and X.number in certain(X, choice)


def test_what_a_row_has_is_made_once_though_only_some_columns_want_it() -> None:
    scale = op(load("w", ROW))
    assert scale.number in certain(guard(COL, op(X, scale), ZERO))
    assert scale.number not in certain(guard(ROW, op(X, scale), ZERO))
    assert X.number not in certain(guard(ROW, op(X, scale), ZERO))


def test_outer_guards_count_as_well() -> None:
    """Rows that padding adds are behind the outer one: there is nothing to read."""
    scale = op(load("w", ROW))
    assert scale.number not in certain(guard(ROW, guard(COL, op(X, scale), ZERO), ZERO))
    assert scale.number in certain(guard(COL, guard(COL, op(X, scale), ZERO), ZERO))


def test_a_guard_that_is_one_for_the_whole_tile_keeps_everything_inside() -> None:
    scale = op(load("w", ROW))
    assert scale.number not in certain(guard(N, scale, ZERO))
    assert scale.number not in certain(guard(COL, guard(N, scale, ZERO), ZERO))


@pytest.mark.parametrize(
    "made",
    [load("w", index(ROW) + 1), load("n", ROW), value("index", place=index(ROW), axes=[ROW]), load("w", 0),
     op(guard(ROW, load("w", ROW), ZERO))],
    ids=["beyond its end", "of a size not known", "a count", "one number", "behind a guard"],
)  # fmt: skip
def test_only_what_is_surely_in_memory_and_worth_it_is_read_outside(made: Value) -> None:
    assert made.number not in certain(guard(COL, op(X, made), ZERO))


def test_a_place_that_is_read_from_memory_may_be_anywhere() -> None:
    where = Gathered(load("w", ROW), index(6))
    found = value("load", buffer="w", place=IndexExpr({(where,): 1}), axes=[ROW])
    assert found.number not in certain(guard(COL, op(X, found), ZERO))
    assert varies_along(guard(index(COL) + IndexExpr({(where,): 1}), ZERO, ZERO)) == {ROW, COL}
    assert varies_along(guard(N, ZERO, ZERO)) == set()


def test_what_a_guard_s_own_test_reads_is_made_before_it() -> None:
    where = load("w", ROW)
    test = IndexExpr({(Gathered(where, index(6)),): 1})
    choice = value("guard", X, ZERO, bounds=((test, index(2), index(999)),), axes=[ROW])
    order, sure = needed(dims_of, BUFFERS, [choice], {})
    assert where.number in sure and X.number not in sure and order[-1] is choice
