"""The judges of notebook 05, the loop IR, and what that notebook looks at loops with."""

from __future__ import annotations

import ctypes
import itertools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.compiler.compile_graph import compile_graph
from nbcompile.compiler.loop_ir.expr import Constant, Expr, Load, Op
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.loop_ir.nodes import Loop, LoopProgram
from nbcompile.compiler.passes import Setting
from nbcompile.compiler.pipeline import lower
from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from nbcompile.compiler.stages import AtenGraph, CompiledModule
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import called, function, keyed, milliseconds, number, returned, whole_numbers


def loop_program(fn: Callable[..., Any], *inputs: torch.Tensor) -> LoopProgram:
    """The loops that ``fn`` is lowered to, for inputs of these shapes: what the compiler has in hand before
    it decides what to fuse."""
    found: list[LoopProgram] = []

    def compile_aten(aten: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule:
        found.append(lower(aten, Setting(options.for_device(inputs[0].device), recorder)))
        return compile_graph(aten, options, recorder)

    nbcompile.compile(fn, compile_aten=compile_aten, fullgraph=True, dynamic=False)(*inputs)
    return found[0]


# Loops in an order ---------------------------------------------------------------------------------------

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def naive_c(program: LoopProgram, order: str) -> str:
    """C for the one pointwise loop of ``program``, its axes walked in ``order``, the outermost first."""
    (loop,) = program.statements
    assert isinstance(loop, Loop) and loop.kind == "pointwise"
    buffers = program.buffers()
    axes = {axis.name: axis for axis in loop.axes}

    def text(expr: Expr) -> str:
        if isinstance(expr, Load):
            return f"{expr.buffer}[{buffers[expr.buffer].offset(expr.index)}]"
        if isinstance(expr, Constant):
            return f"{float(expr.value)}f"
        assert isinstance(expr, Op) and expr.name in _SIGNS, f"no C for {expr}"
        left, right = (text(arg) for arg in expr.args)
        return f"({left} {_SIGNS[expr.name]} {right})"

    names = sorted({load.buffer for load in loop.reads()})
    out = loop.outputs[0]
    lines = [f"void walk({', '.join(f'const float *restrict {n}' for n in names)}, float *restrict out) {{"]
    for depth, name in enumerate(order, 1):
        lines.append(f"{'  ' * depth}for (long {name} = 0; {name} < {axes[name].extent}; {name}++)")
    place = out.offset(tuple(map(index, loop.axes)))
    lines.append(f"{'  ' * (len(order) + 1)}out[{place}] = {text(loop.body)};")
    return "\n".join([*lines, "}"])


def milliseconds_in_order(program: LoopProgram, orders: list[str], *inputs: torch.Tensor) -> dict[str, float]:
    """Time of the one loop of ``program`` with its axes walked in each of these orders, on one thread."""
    (loop,) = program.statements
    assert isinstance(loop, Loop)
    toolchain = find_toolchain()
    # The C compiler is not to put loops into an order of its own liking.
    extra = ("-O2", *(("-fno-loop-interchange",) if toolchain.kind == "gcc" else ()))
    names = [item.name for item in program.inputs if not isinstance(item, str) and item is not None]
    given = [tensor for _, tensor in sorted(zip(names, inputs, strict=True), key=lambda pair: pair[0])]
    out = torch.empty_strided(inputs[0].shape, inputs[0].stride())
    expected = interpret(program, inputs)[0]
    with tempfile.TemporaryDirectory(prefix="nbcompile-") as folder:
        calls = {}
        for order in orders:
            library = Path(folder) / f"{order}.so"
            toolchain.compile(naive_c(program, order), library, extra)
            walk = ctypes.CDLL(str(library)).walk
            pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*given, out)]
            walk(*pointers)
            assert torch.equal(out.as_strided(expected.shape, expected.stride()), expected)
            calls[order] = lambda walk=walk, pointers=pointers: walk(*pointers)
        return milliseconds(calls, 0.5)


# The judges ----------------------------------------------------------------------------------------------

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "x.t()": lambda x: x.t(),
    "x[1::2, 3:]": lambda x: x[1::2, 3:],
    "x[:, :1].expand(6, 8)": lambda x: x[:, :1].expand(6, 8),
    "x.reshape(4, 12)": lambda x: x.reshape(4, 12),
    "x.t().reshape(48)": lambda x: x.t().reshape(48),
}


@exercise("loops.index")
def read_index(answer: Mapping[str, Any]) -> str:
    """For each of ``VIEWS`` a function from the indices of an element of it to the pair of indices of that
    element in ``x``. It is called for each element."""
    x = torch.arange(48).reshape(6, 8)
    keyed(answer, VIEWS, "a function")
    if missing := [name for name in VIEWS if not callable(answer[name])]:
        raise WrongAnswerError(f"there is no function yet for {missing[0]}.")
    for name, view in VIEWS.items():
        shown = view(x)
        for point in itertools.product(*map(range, shown.shape)):
            place = called(answer[name], f"Your function for {name}", *point)
            if isinstance(place, int):
                place = (place,)
            if not isinstance(place, tuple | list) or not all(type(each) is int for each in place):
                raise WrongAnswerError(f"{name}: your function is to return a pair of whole numbers, (i, j).")
            place = tuple(place)
            inside = len(place) == 2 and 0 <= place[0] < 6 and 0 <= place[1] < 8
            if not inside or x[place] != shown[point]:
                where = ", ".join(map(str, point))
                raise WrongAnswerError(
                    f"{name}: element [{where}] of it is x[{', '.join(map(str, _place_of(shown[point])))}], "
                    f"yours says x[{', '.join(map(str, place))}]."
                )
    try:
        yours = tuple(answer["x.reshape(4, 12)"](*map(index, (Axis("i", 4), Axis("j", 12)))))
    except Exception:  # right for numbers, and not written for axes
        yours = ("nothing",)
    (loop,) = loop_program(lambda x: VIEWS["x.reshape(4, 12)"](x) + 1, torch.randn(6, 8)).statements
    assert isinstance(loop, Loop)
    (load,) = loop.reads()
    points = sum(view(x).numel() for view in VIEWS.values())
    return (
        f"all {points} elements of the {len(VIEWS)} are where you say. Given axes instead of numbers, your "
        f"reshape returns {', '.join(map(str, yours))}; the compiler reads {load}."
    )


def _place_of(element: torch.Tensor) -> tuple[int, int]:
    return divmod(int(element), 8)


COUNTED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "x * 2 + 1": lambda x: x * 2 + 1,
    "x.t()[::2].unsqueeze(0) + 1": lambda x: x.t()[::2].unsqueeze(0) + 1,
    "x.reshape(32, 32).mean(-1)": lambda x: x.reshape(32, 32).mean(-1),
    "torch.softmax(x + 1, -1)": lambda x: torch.softmax(x + 1, -1),
    "F.gelu(x).sum(0)": lambda x: F.gelu(x).sum(0),
}


@cache
def _loops_of(name: str) -> LoopProgram:
    return loop_program(COUNTED[name], torch.randn(64, 16))


@exercise("loops.count")
def count(answer: Mapping[str, int]) -> str:
    """How many loops each program of ``COUNTED`` is lowered to, before fusion."""
    whole_numbers(answer, COUNTED)
    wrong = [name for name in COUNTED if answer[name] != len(_loops_of(name).statements)]
    if wrong:
        few = answer[wrong[0]] < len(_loops_of(wrong[0]).statements)
        clue = (
            "there are more. An operator that needs a whole row before it can go on is several loops."
            if few
            else "there are fewer. A view is none, and an operator of one formula is one however long."
        )
        raise WrongAnswerError(f"{len(COUNTED) - len(wrong)} of {len(COUNTED)} are right. {wrong[0]}: {clue}")
    total = sum(len(_loops_of(name).statements) for name in COUNTED)
    softmax = ", ".join(loop.name for loop in _loops_of("torch.softmax(x + 1, -1)").statements)
    return f"{total} loops in all. Those of the softmax are {softmax}."


ORDERED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "x + 1": lambda x: x + 1,
    "x.t() * 2": lambda x: x.t() * 2,
    "x.permute(2, 0, 1) - 1": lambda x: x.permute(2, 0, 1) - 1,
}


@exercise("loops.order")
def order(answer: Mapping[str, str]) -> str:
    """The order in which to walk the axes of each program of ``ORDERED``, the outermost first. One
    order is right; the times of it and of its reverse are measured, to be told."""
    keyed(answer, ORDERED, "a text")
    told = []
    for name, fn in ORDERED.items():
        x = torch.randn(128, 128, 128) if "permute" in name else torch.randn(2048, 2048)
        program = loop_program(fn, x)
        (loop,) = program.statements
        assert isinstance(loop, Loop)
        names = "".join(axis.name for axis in loop.axes)
        given = answer[name]
        if not isinstance(given, str) or sorted(given) != sorted(names):
            raise WrongAnswerError(
                f"{name}: write each of the axes {', '.join(names)} once, the outermost first."
            )
        place = loop.outputs[0].offset(tuple(map(index, loop.axes)))
        strides = {axis.name: _number(place.coefficient(axis)) for axis in loop.axes}
        best = "".join(sorted(names, key=lambda axis: -strides[axis]))
        if given != best:
            raise WrongAnswerError(
                f"{name}: in your order two points after one another lie {strides[given[-1]]} elements apart "
                f"in the output, and the axis outside of it steps by {strides[given[-2]]}. The output is at "
                f"{place}."
            )
        worst = best[::-1]
        times = milliseconds_in_order(program, [best, worst], x)
        told.append(f"{name} takes {times[best]:.1f} ms as {best} and {times[worst]:.1f} ms as {worst}")
    return f"measured here, in plain C on one thread: {'; '.join(told)}."


def _number(value: IndexExpr | None) -> int:
    assert value is not None and value.constant is not None
    return value.constant


MEASURED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "x + 1": (lambda x: x + 1, ((6, 8),)),
    "x * x.t()": (lambda x: x * x.t(), ((7, 7),)),
    "x * w, w of one row": (lambda x, w: x * w, ((6, 8), (8,))),
    "x[::2, 1:5] + 1": (lambda x: x[::2, 1:5] + 1, ((6, 8),)),
    "x[1:] - x[:-1]": (lambda x: x[1:] - x[:-1], ((6, 8),)),
    "x.amax(1)": (lambda x: x.amax(1), ((6, 8),)),
}


@exercise("loops.bytes")
def bytes_of(answer: Callable[..., Any]) -> str:
    """A function of a loop and its buffers that returns the bytes that the loop has to move, each element
    that it touches counted once. It is asked about the loop of each program of ``MEASURED``."""
    function(answer, "bytes_of(loop, buffers)")
    for name, (fn, shapes) in MEASURED.items():
        program = loop_program(fn, *(torch.randn(shape) for shape in shapes))
        (loop,) = program.statements
        assert isinstance(loop, Loop)
        given = returned(called(answer, "bytes_of", loop, program.buffers()), "bytes_of")
        given = number(given, "What bytes_of returns")
        read, written = _traffic(loop, program)
        if given != read + written:
            kind = "more than" if given > read + written else "less than"
            raise WrongAnswerError(
                f"{name}: you count {given:g} bytes, which is {kind} the loop needs to move. It says "
                f"{_line(program)}: which elements of which buffer does it touch, each counted once?"
            )
    program = loop_program(MEASURED["x * x.t()"][0], torch.randn(7, 7))
    (loop,) = program.statements
    assert isinstance(loop, Loop)
    return (
        f"right for all {len(MEASURED)}. Mind x * x.t(): {len(loop.reads())} reads a point, but x is in "
        f"memory once, so the least traffic is {sum(_traffic(loop, program))} bytes."
    )


def _traffic(loop: Loop, program: LoopProgram) -> tuple[int, int]:
    """Bytes read and written, each element that is touched counted once."""
    touched: set[tuple[Any, ...]] = set()
    for point in itertools.product(*(range(_number(axis.extent)) for axis in loop.axes)):
        at: dict[Any, int] = dict(zip(loop.axes, point, strict=True))
        for load in loop.reads():
            touched.add((load.buffer, *(place.evaluate(at.__getitem__) for place in load.index)))
    buffers = program.buffers()
    read = sum(buffers[name].dtype.itemsize for name, *_ in touched)
    return read, sum(out.bytes_hint() for out in loop.outputs)


INLINED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "(x * 2) + 1": (lambda x: x * 2 + 1, ((6, 8),)),
    "(x * 2).t() + 1": (lambda x: (x * 2).t() + 1, ((6, 8),)),
    "(x * w).sum(0)": (lambda x, w: (x * w).sum(0), ((6, 8), (8,))),
    "y = x * 2, y + y.t()": (lambda x: (y := x * 2) + y.t(), ((7, 7),)),
    "x.t().reshape(6, 8) * 2": (lambda x: x.t().reshape(6, 8) * 2, ((6, 8),)),
}


@exercise("loops.inline")
def inline(answer: Callable[..., Any]) -> str:
    """A function of two loops, producer and consumer, that returns one. For each program of ``INLINED`` that
    loop must not read the producer's buffer, and must give the program's numbers in the interpreter."""
    function(answer, "inline(producer, consumer)")
    shown = ""
    for name, (fn, shapes) in INLINED.items():
        inputs = [torch.randn(shape) for shape in shapes]
        program = loop_program(fn, *inputs)
        producer, consumer = program.statements
        assert isinstance(producer, Loop) and isinstance(consumer, Loop)
        given = returned(called(answer, "inline", producer, consumer), "inline")
        if not isinstance(given, Loop):
            raise WrongAnswerError(f"your function returns {type(given).__name__}, not a loop.")
        if any(load.buffer == producer.name for load in given.reads()):
            raise WrongAnswerError(
                f"{name}: your loop still reads {producer.name}, so that has to be stored."
            )
        one = replace(program, statements=(given,))
        try:
            same = torch.allclose(interpret(one, inputs)[0], fn(*inputs))
        except KeyError as error:
            raise WrongAnswerError(
                f"{name}: your loop uses the axis {error}, which it does not have: whose axis is that?"
            ) from error
        except Exception as error:
            raise WrongAnswerError(f"{name}: your loop cannot be run: {error}") from error
        if not same:
            raise WrongAnswerError(
                f"{name}: your loop gives other numbers. It says {_line(one)}, out of {_line(program)}"
            )
        shown = _line(one)
    return f"{len(INLINED)} programs of two loops are one loop each, with the same numbers. The last: {shown}"


def _line(program: LoopProgram) -> str:
    count = len(program.statements)
    lines = program.as_text().splitlines()[-1 - count : -1]
    return "; ".join(" ".join(line.split("  f32")[0].split()) for line in lines)
