"""Programs and kernels in which something reads a version that is not there any more are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from nbcompile.compiler.fuse.alignment import nest_of
from nbcompile.compiler.loop_ir.expr import Load
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Buffer, LibraryCall, Loop, LoopProgram, View
from nbcompile.compiler.loop_ir.versions import Part, Touch, Walk, told_apart, verify_kernel, verify_versions
from nbcompile.errors import VerifyError

ROWS, COLUMNS = Axis("i", 4), Axis("j", 3)
i, j = index(ROWS), index(COLUMNS)
HERE = i * 3 + j


def read(place: IndexExpr | None = HERE, memory: str = "x") -> Touch:
    return Touch(memory, place)


def write(place: IndexExpr | None = HERE, memory: str = "x") -> Touch:
    return Touch(memory, place, write=True)


def walk(*body: Walk | Touch, axes: Any = (), part: Part | None = None) -> Walk:
    return Walk(None if axes is None else frozenset(axes), list(body), part)


def pieces(*bodies: tuple[Touch, ...], division: tuple[int, ...] = (7, 7)) -> Walk:
    parts = [walk(*body, axes=[COLUMNS], part=Part(COLUMNS, n, division[n])) for n, body in enumerate(bodies)]
    return walk(walk(*parts, axes=[ROWS]))


GOOD_KERNELS = {
    "each point is read, then written": walk(walk(read(), write(), axes=[ROWS, COLUMNS])),
    "a row is walked twice, and written in the second walk": walk(
        walk(walk(read(), axes=[COLUMNS]), walk(read(), write(), axes=[COLUMNS]), axes=[ROWS])
    ),
    "a value of the row, written after the row": walk(
        walk(walk(read(i), read(memory="b"), axes=[COLUMNS]), write(i), axes=[ROWS])
    ),
    "what the kernel itself has filled": walk(walk(write(memory="w"), read(memory="w"), axes=[ROWS])),
    "another memory is read anywhere": walk(walk(read(i * 3 + 2 - j, "y"), write(), axes=[ROWS, COLUMNS])),
    "two parts of a row, one after the other": pieces((read(), write()), (read(), write())),
    "two functions, the second writes": walk(
        walk(read(), axes=[ROWS, COLUMNS]), walk(read(), write(), axes=[ROWS, COLUMNS])
    ),
    "backwards, but each point its own": walk(walk(read(11 - HERE), write(11 - HERE), axes=[ROWS, COLUMNS])),
}
BAD_KERNELS = {
    "another place": walk(walk(read(i * 3 + 2 - j), write(), axes=[ROWS, COLUMNS])),
    "a place that nobody knows": walk(walk(read(None), write(), axes=[ROWS, COLUMNS])),
    "written nobody knows where": walk(walk(read(), write(None), axes=[ROWS, COLUMNS])),
    "written first": walk(walk(write(), read(), axes=[ROWS, COLUMNS])),
    "written in the first of two walks": walk(
        walk(walk(read(), write(), axes=[COLUMNS]), walk(read(), axes=[COLUMNS]), axes=[ROWS])
    ),
    "every row reads what the first one overwrites": walk(walk(read(j), write(j), axes=[ROWS, COLUMNS])),
    "a value of the row, written in every step along it": walk(
        walk(walk(read(i), write(i), axes=[COLUMNS]), axes=[ROWS])
    ),
    "programs that share a row": walk(walk(walk(read(i), axes=[COLUMNS]), write(i), axes=[ROWS, COLUMNS])),
    "a loop along nobody knows what": walk(walk(walk(read(), write(), axes=None), axes=[ROWS, COLUMNS])),
    "two parts that are no parts of one walk": pieces((write(),), (read(),), division=(7, 8)),
    "places that overlap": walk(walk(read(i + j), write(i + j), axes=[ROWS, COLUMNS])),
    "the second function reads what the first one wrote": walk(
        walk(write(), axes=[ROWS, COLUMNS]), walk(read(), axes=[ROWS, COLUMNS])
    ),
}


@pytest.mark.parametrize("name", GOOD_KERNELS)
def test_a_kernel_that_reads_before_it_writes(name: str) -> None:
    verify_kernel("k", GOOD_KERNELS[name], {"x"})


@pytest.mark.parametrize("name", BAD_KERNELS)
def test_a_kernel_that_may_read_what_it_has_written(name: str) -> None:
    with pytest.raises(VerifyError, match=r"^k "):
        verify_kernel("k", BAD_KERNELS[name], {"x"})


def test_which_axes_a_place_tells_apart() -> None:
    assert told_apart(HERE) == {ROWS, COLUMNS}
    assert told_apart(i * 3 + 2 - j) == {ROWS, COLUMNS}
    assert told_apart(i * 2 + j) == set()
    assert told_apart(j) == {COLUMNS}
    assert told_apart(i * j) == set()


# -- programs ---------------------------------------------------------------------------------------


def buffer(name: str, role: Any = "temporary") -> Buffer:
    return Buffer(name, (index(4), index(3)), (index(3), index(1)), torch.float32, role)


X, NEW, OUT = buffer("x", "input"), buffer("x_new"), buffer("y")


def group(out: Buffer, *sources: str, in_place: dict[str, str] | None = None) -> Group:
    loads = [Load(name, (i, j), torch.float32) for name in sources]
    body = loads[0] if len(loads) == 1 else loads[0] + loads[1]
    nest, binding = nest_of((ROWS, COLUMNS))
    loop = Loop(f"l_{out.name}", (out,), (ROWS, COLUMNS), body)
    stored = frozenset({out.name})
    return Group((loop,), nest, {loop.id: binding}, stored=stored, name=out.name, in_place=in_place or {})


def fused(*items: Any, outputs: Any = (), updates: Any = None) -> FusedProgram:
    loops = tuple(loop for item in items for loop in (item.loops if isinstance(item, Group) else (item,)))
    program = LoopProgram("g0", (X,), loops, outputs, {}, {}, {"x": "x_new"} if updates is None else updates)
    return FusedProgram(program, items)


IN_PLACE = {"x_new": "x"}
CALL = LibraryCall("c0", "sort", torch.sort, (View.whole(X),), {}, (OUT,))


def test_programs_whose_reads_see_what_they_mean() -> None:
    for good in (
        fused(group(OUT, "x"), group(NEW, "x", in_place=IN_PLACE), outputs=(View.whole(OUT),)),
        fused(group(NEW, "x", in_place=IN_PLACE), group(OUT, "x_new"), outputs=(View.whole(OUT),)),
        fused(CALL, group(NEW, "x", "y", in_place=IN_PLACE)),
        fused(group(NEW, "x"), group(buffer("x_copied"), "x_new", in_place={"x_copied": "x"}),
              updates={"x": "x_copied"}),
    ):  # fmt: skip
        assert verify_versions(good) is good


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (fused(group(NEW, "x", in_place=IN_PLACE), group(OUT, "x")), "y reads x, but its memory holds x_new"),
        (fused(group(NEW, "x", in_place=IN_PLACE), CALL), "sort reads x, but its memory holds x_new"),
        (fused(group(NEW, "x", in_place=IN_PLACE), outputs=(View.whole(X),)), "the result reads x"),
        (fused(group(NEW, "x")), "x is to hold x_new at the end, and holds x"),
        (fused(group(OUT, "x_new"), group(NEW, "x", in_place=IN_PLACE)), "y reads x_new"),
        (fused(group(NEW, "x", in_place={"x_new": "w"})), "x is to hold x_new at the end"),
        (
            fused(group(NEW, "x", in_place=IN_PLACE), group(OUT, "x_new", in_place={"y": "x"})),
            "y writes y where x_new lies",
        ),
    ],
)  # fmt: skip
def test_programs_that_read_another_version(program: FusedProgram, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify_versions(program)


def test_a_returned_value_must_still_be_there() -> None:
    late = fused(group(NEW, "x", in_place=IN_PLACE), outputs=(View.whole(OUT),))
    with pytest.raises(VerifyError, match="the result reads y, but its memory holds nothing"):
        verify_versions(late)
    there = replace(late, items=(group(OUT, "x"), *late.items))
    assert verify_versions(there) is there
