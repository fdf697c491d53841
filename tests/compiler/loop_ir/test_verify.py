"""Each rule of the verifier refuses a program that breaks it, and only that."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nbcompile.compiler.loop_ir.expr import Guarded, Indirect, Load, Op, constant
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Buffer, LibraryCall, Loop, LoopProgram, View
from nbcompile.compiler.loop_ir.verify import verify
from nbcompile.errors import VerifyError

F32, I64 = torch.float32, torch.int64
ROWS, COLUMNS = Axis("i", 4), Axis("j", 3)
i, j = index(ROWS), index(COLUMNS)


def buffer(name: str, *shape: int, dtype: torch.dtype = F32, role: Any = "temporary") -> Buffer:
    strides = [1] * len(shape)
    for n in range(len(shape) - 2, -1, -1):
        strides[n] = strides[n + 1] * shape[n + 1]
    return Buffer(name, tuple(map(index, shape)), tuple(map(index, strides)), dtype, role)


X = buffer("x", 4, 3, role="input")
P = buffer("p", 4, dtype=I64, role="input")
Y = buffer("y", 4, 3)
LOAD = Load("x", (i, j), F32)
PICKED = IndexExpr({(Indirect(Load("p", (i,), I64), index(4)),): 1})


def loop(outputs: Any = Y, axes: Any = (ROWS, COLUMNS), body: Any = LOAD, **fields: Any) -> Loop:
    listed = outputs if isinstance(outputs, tuple) else (outputs,)
    return Loop(fields.pop("id", "l0"), listed, axes, body, **fields)


def program(*statements: Any, outputs: Any = (), updates: Any = None) -> LoopProgram:
    return LoopProgram("g0", (X, P), statements, outputs, {}, {}, updates or {})


def copy_of(view: View, name: str = "c") -> LibraryCall:
    return LibraryCall("c0", "clone", torch.clone, (view,), {}, (buffer(name, 4, 3),))


NEW = buffer("x_new", 4, 3)
UPDATE = loop(NEW, body=LOAD * 2.0, id="l1")
BECOMES = {"x": "x_new"}
BENT = Axis("v0", 2)
SQUARED = View(X, (BENT,), (index(BENT) * BENT, index(0)))

GOOD = {
    "pointwise": program(loop(), outputs=(View.whole(Y),)),
    "reduction": program(loop(buffer("y", 4), reduced=(COLUMNS,), reduction="sum")),
    "reduction over nothing": program(loop(reduced=(), reduction="sum")),
    "welford": program(loop((buffer("m", 4), buffer("s", 4)), reduced=(COLUMNS,), reduction="welford")),
    "scan": program(loop(scan="sum", scanned=COLUMNS)),
    "scan with positions": program(loop((Y, buffer("p0", 4, 3, dtype=I64)), scan="max", scanned=ROWS)),
    "scatter": program(loop(target=(PICKED, j), base="x", mode="add")),
    "library call": program(copy_of(View.whole(X))),
    "an input's new value": program(UPDATE, updates=BECOMES),
    "a new value that is returned": program(UPDATE, outputs=(View.whole(NEW),), updates=BECOMES),
    "the old value read after it": program(UPDATE, loop(), updates=BECOMES),
    "a new value made of others' elements": program(
        loop(NEW, body=Load("x", (index(3) - i, j), F32)), updates=BECOMES
    ),
    "a graph that returns its input": program(outputs=(View.whole(X), 3, None, index(4))),
}

BAD = {
    "read before it is defined": program(loop(body=Load("z", (i, j), F32))),
    "is defined twice": program(loop(), loop(id="l1")),
    "indices": program(loop(body=Load("x", (i,), F32))),
    "is typed torch.float64, the buffer": program(loop(body=Load("x", (i, j), torch.float64))),
    "two axes have one name": program(loop(axes=(ROWS, Axis("i", 3)), body=constant(1, F32))),
    "reduces an axis it does not have": program(loop(reduced=(Axis("k", 2),), reduction="sum")),
    "reduced axes without a reduction": program(loop(buffer("y", 4), reduced=(COLUMNS,))),
    "its axes say otherwise": program(loop(buffer("y", 3, 4))),
    "wrong number of outputs": program(loop(buffer("y", 4), reduced=(COLUMNS,), reduction="welford")),
    "wrong number of outputs\n": program(loop(scan="max", scanned=ROWS)),
    "positions are not of type": program(loop((Y, buffer("p0", 4, 3)), scan="min", scanned=ROWS)),
    "belong together": program(loop(scan="sum")),
    "scans along an axis it does not have": program(loop(scan="sum", scanned=Axis("k", 3))),
    "or does more than that": program(
        loop(buffer("y", 4), reduced=(COLUMNS,), reduction="sum", scan="sum", scanned=ROWS)
    ),
    "has shape": program(loop(buffer("y", 4), scan="sum", scanned=COLUMNS)),
    "are not axes of this loop": program(loop(body=Load("x", (i, index(Axis("k", 3))), F32))),
    "{k} are not axes of this loop": program(
        loop(target=(PICKED, index(Axis("k", 3))), base="x", mode="set")
    ),
    "scatter target or base": program(loop(target=(PICKED,), base="x", mode="set")),
    "z is read before": program(loop(target=(PICKED, j), base="z", mode="set")),
    "does not fit its output": program(loop(buffer("y", 3, 4), target=(j, i), base="x", mode="set")),
    "returns x, which holds another value": program(UPDATE, outputs=(View.whole(X),), updates=BECOMES),
    "x_new is read before it is defined": program(updates=BECOMES),
    "not laid out like": program(
        loop(buffer("y", 4, 3, dtype=torch.float64), body=LOAD.cast(torch.float64)), updates={"x": "y"}
    ),
    "only an input can": program(loop(), UPDATE, updates={"y": "x_new"}),
    "only what a loop makes": program(copy_of(View.whole(X)), updates={"x": "c"}),
    "two inputs are to hold one buffer": program(UPDATE, updates={"x": "x_new", "p": "x_new"}),
    "branches of": program(loop(body=Guarded(((i, index(0), index(2)),), LOAD, constant(0, I64)))),
    "unknown operation": program(loop(body=Op("frobnicate", (LOAD,), F32))),
    "wrong number of arguments": program(loop(body=Op("add", (LOAD,), F32))),
    "mix torch.float32, torch.int64": program(loop(body=Op("add", (LOAD, constant(1, I64)), F32))),
    "is typed torch.int64, its arguments": program(loop(body=Op("exp", (LOAD,), I64))),
    "is not bool": program(loop(body=Op("where", (LOAD, LOAD, LOAD), F32))),
    "argument x of a library call is not strided": program(copy_of(SQUARED)),
    "returns a view of x that is not strided": program(outputs=(SQUARED,)),
    "returns q, which nothing defines": program(outputs=(View.whole(buffer("q", 2)),)),
    "unknown operation or wrong number": program(
        loop(
            target=(IndexExpr({(Indirect(Op("add", (Load("p", (i,), I64),), I64), index(4)),): 1}), j),
            base="x",
            mode="set",
        )
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_accepts(name):
    assert verify(GOOD[name]) is GOOD[name]


@pytest.mark.parametrize("message", BAD)
def test_refuses(message):
    with pytest.raises(VerifyError) as caught:
        verify(BAD[message])
    assert message in caught.value.message


def test_shows_the_neighbourhood_with_the_failing_statement_marked():
    lines = [loop(buffer(f"y{n}", 4, 3), id=f"l{n}") for n in range(9)]
    lines[5] = loop(buffer("y5", 4, 3), body=Load("x", (i,), F32), id="l5")
    with pytest.raises(VerifyError) as caught:
        verify(program(*lines))
    shown = caught.value.message.splitlines()[1:]
    assert [line.split("[")[0].split()[-1] for line in shown] == ["y2", "y3", "y4", "y5", "y6", "y7"]
    assert [line for line in shown if line.startswith("-->")] == [shown[3]]


def test_constants_of_the_graph_are_defined():
    held = LoopProgram("g0", (), (loop(body=Load("w", (i, j), F32)),), (), {"w": torch.zeros(4, 3)}, {})
    assert verify(held) is held
