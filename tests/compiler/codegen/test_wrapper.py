"""The Python that runs a graph: what it takes, allocates, calls, frees and returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
import torch

from nbcompile.compiler.codegen.printed import FunctionCall, Parameter, PrintedKernel
from nbcompile.compiler.codegen.wrapper import library_targets, print_wrapper
from nbcompile.compiler.loop_ir.computed_sizes import python_text
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.index import Axis, FloorDiv, IndexExpr, Mod, Size, index
from nbcompile.compiler.loop_ir.nodes import Body, Buffer, LibraryCall, View
from tests.compiler.codegen.c.by_hand import buffer, group, loop, program, read

ROW, N = Axis("i", index(6)), index(Size("s0", 6))
X, Y, Z, OUT = buffer("x", 6), buffer("y", 6), buffer("z", 6), buffer("out", 6)
ALIGNED = Parameter("x", "aligned", "const float*", "x")


def wrapper(made: FusedProgram, *kernels: PrintedKernel, **more: Any) -> list[str]:
    """The lines of it, without the one that begins it."""
    text, _ = print_wrapper(made, {g.id: k for g, k in zip(made.groups, kernels, strict=True)}, **more)
    compile(text, "wrapper", "exec")
    return [line.strip() for line in text.splitlines()][1:]


def copy(old: Buffer, new: Buffer, **more: Any) -> Group:
    """A kernel that copies."""
    return replace(group(loop(new, (ROW,), read(old, ROW)), axes=(ROW,)), **more)


def kernel(*parameters: Parameter, writes: Sequence[str] = ("out",), **more: Any) -> PrintedKernel:
    return PrintedKernel("", (), (FunctionCall("k0", parameters),), tuple(writes), **more)


def of_buffer(name: str) -> Parameter:
    return Parameter("p", "buffer", "float*", name)


def call(target: Any, *args: Any, outputs: Sequence[Buffer | None] = (OUT,), **more: Any) -> LibraryCall:
    return LibraryCall("g0.fw.n0", str(target).rpartition(".")[0], target, args, {}, tuple(outputs), **more)


def part(of: Buffer, size: int, start: int) -> View:
    axis = Axis("v0", index(size))
    return View(of, (axis,), (index(axis) + start,))


def test_memory_goes_once_nobody_reads_it_again() -> None:
    made = program(copy(X, Z), copy(Z, OUT, id="k1"), inputs=[X, Y], outputs=[View.whole(OUT)])
    kernels = kernel(of_buffer("x"), writes=["z"]), kernel(of_buffer("z"))
    assert wrapper(made, *kernels) == [
        "x, y = args", "args.clear()", "del y",
        "z = empty_small((6,), (1,), torch.float32)", "k0(x)", "del x",
        "out = empty_small((6,), (1,), torch.float32)", "k0(z)", "del z",
        "return (out,)",
    ]  # fmt: skip
    _, steps = print_wrapper(made, dict(zip(["g0.fw.k0", "k1"], kernels, strict=True)))
    assert steps == (("g0.fw.k0", 5), ("k1", 8)), "lines of the file, from 1"
    assert wrapper(program(inputs=[])) == ["args.clear()", "return ()"]


def test_sizes_are_taken_where_they_are_given() -> None:
    """``s1`` is both an argument and an extent; a product of sizes tells neither; nobody reads the first."""
    s1, both = index(Size("s1", 6)), Buffer("x", (N * 2, N, index(Size("s1", 6))), (N, N, N), torch.float32)
    made = program(inputs=[None, "s1", both], outputs=[N * s1 + 1, None, 2.5, View.whole(both)])
    assert wrapper(made) == [
        "_0, s1, x = args", "args.clear()", "s0 = x.shape[1]", "return (s0*s1 + 1, None, 2.5, x,)",
    ]  # fmt: skip


def test_a_kernel_has_its_memory_made_and_its_workspaces_freed() -> None:
    spaces = buffer("sums", 4), buffer("flags", 0)
    size, status = Parameter("s0", "size", "long"), Parameter("status", "status", "int*")
    called = ALIGNED, of_buffer("out"), size, status
    printed = kernel(*called, workspaces=spaces, zeroed=frozenset({"flags"}))
    made = program(copy(X, OUT), inputs=[X], outputs=[View.whole(OUT)])
    assert wrapper(made, printed)[2:-1] == [
        "out = empty_small((6,), (1,), torch.float32)",
        "sums = empty_small((4,), (1,), torch.float32)",
        "flags = empty_small((0,), (1,), torch.float32)", "flags.zero_()",
        "k0(aligned(x), out, s0, status)", "del sums, flags", "check('test')", "del x",
    ]  # fmt: skip
    on_gpu = wrapper(made, printed, language="triton")
    assert "k0(aligned(x), out, s0, status)" in on_gpu and "out = empty((6,), (1,), torch.float32)" in on_gpu


@pytest.mark.parametrize(
    ("extent", "allocator"),
    [
        (index(6), "empty_small"), (index(1 << 18), "empty"),
        (N, "(empty_small if s0 < 262144 else empty)"),
        (N * 8 + 1, "(empty_small if 8*s0 + 1 < 262144 else empty)"),
    ],
)  # fmt: skip
def test_small_memory_comes_from_torch_itself(extent: IndexExpr, allocator: str) -> None:
    """Also where only a call tells that it is small; on a GPU torch's is the only one."""
    axis, made = Axis("i", extent), buffer("out", extent)
    copies = group(loop(made, (axis,), read(buffer("x", extent), axis)), axes=(axis,))
    whole = program(copies, inputs=["s0", buffer("x", extent)], outputs=[View.whole(made)])
    found = [line for line in wrapper(whole, kernel(of_buffer("x"))) if line.startswith("out = ")]
    assert [line.partition("((")[0] for line in found] == [f"out = {allocator}"]
    on_gpu = [line for line in wrapper(whole, kernel(of_buffer("x")), language="triton") if "out = " in line]
    assert [line.partition("((")[0] for line in on_gpu] == ["out = empty"]


def test_what_lies_in_an_inputs_memory_goes_by_both_names() -> None:
    into = copy(Y, OUT, in_place={"out": "x"})
    shown = program(into, inputs=[X, Y], outputs=[View.whole(OUT)], updates={"x": "out"})
    assert wrapper(shown, kernel(writes=[]))[2:] == ["k0()", "out = x", "del y", "return (out,)"]
    assert wrapper(program(into, inputs=[X, Y], updates={"x": "out"}), kernel(writes=[]))[2:] == [
        "k0()", "del x, y", "return ()",
    ]  # fmt: skip


def test_products_write_into_our_memory_and_other_calls_are_held_to_what_was_traced() -> None:
    matrix, long = buffer("a", 6, 6), buffer("m", 6, 6)
    product = call(torch.ops.aten.mm.default, *[View.whole(matrix)] * 2, outputs=[long])
    assert wrapper(program(product, inputs=[matrix], outputs=[View.whole(long)]))[2:4] == [
        "m = empty_small((6, 6), (6, 1), torch.float32)",
        "mm_out(a, a, out=m)",
    ]
    several = [OUT, replace(OUT, name="more"), None, buffer("scalar")]
    made = call(torch.ops.aten.native_batch_norm.default, View.whole(X), outputs=several, single=False)
    shown = [View.whole(item) for item in several if item is not None]
    assert wrapper(program(made, inputs=[X], outputs=shown))[2:-2] == [
        "out, more, _, scalar = op_aten_native_batch_norm_default(x)",
        "out = as_traced(out, (6,), (1,), torch.float32)", "more = handed_on(more, (1,))",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (nan, "float('nan')"), (-inf, "float('-inf')"), (-0.0, "-0.0"), (True, "True"),
        (1 + 2j, "complex(1.0, 2.0)"), (complex(nan, -0.0), "complex(float('nan'), -0.0)"),
        ([1, (2,), ()], "[1, (2,), ()]"), ({"a": N}, "{'a': s0}"), ("it's", '"it\'s"'), (None, "None"),
        (torch.bfloat16, "torch.bfloat16"), (torch.device("cuda", 1), "torch.device('cuda:1')"),
        (torch.ops.aten.add.Tensor, "op_aten_add_Tensor"), (Body("true.0"), "constants['true.0']"),
        (N * 2 - 1, "2*s0 + -1"), (part(X, 3, 2), "view(x, (3,), (1,), 2)"), (View.whole(X), "x"),
    ],
)  # fmt: skip
def test_arguments_of_library_calls_are_python(given: Any, text: str) -> None:
    made = program(call(torch.ops.aten.sin.default, given), inputs=[X])
    assert f"out = op_aten_sin_default({text})" in wrapper(made)
    operators = {"op_aten_sin_default": "aten.sin.default"}
    if isinstance(given, torch._ops.OpOverload):
        operators |= {"op_aten_add_Tensor": "aten.add.Tensor"}
    assert library_targets(made) == operators


def test_names_hide_neither_words_of_python_nor_what_the_wrapper_is_given() -> None:
    names = ["class", "empty", "mm_out", "op_x", "a.b", "w"]
    made = program(inputs=[replace(X, name=name) for name in names], constants={"w": torch.ones(6)})
    assert wrapper(made)[0] == "class_, empty_, mm_out_, op_x_, a_b, w_ = args"
    # what sizes are computed with: a buffer is called after its operator
    assert wrapper(program(inputs=[replace(X, name="max")]))[0] == "max_, = args"
    dotted = program(inputs=[], constants={"held.w": torch.ones(6)})
    assert wrapper(dotted)[1] == "held_w = constants['held.w']"


def test_parts_of_our_memory_that_are_returned_are_no_views_for_autograd() -> None:
    """The first shows it itself, and what else shows it is detached: the caller may write to them."""
    shown = [part(OUT, 3, 2), part(OUT, 2, 4), part(X, 3, 1)]
    made = program(copy(X, OUT), inputs=[X], outputs=shown)
    assert wrapper(made, kernel())[-2:] == [
        "out = as_result(out, (3,), (1,), 2)",
        "return (out, view(out, (2,), (1,), 2).detach(), view(x, (3,), (1,), 1),)",
    ]
    whole = program(copy(X, OUT), inputs=[X], outputs=[part(OUT, 3, 2), View.whole(OUT)])
    assert wrapper(whole, kernel())[-1] == "return (view(out, (3,), (1,), 2).detach(), out,)"


def test_quotients_of_sizes_are_python() -> None:
    quotient, rest = FloorDiv(N + 1, index(4)), Mod(N, index(Size("s1", 3)))
    assert python_text(IndexExpr({(quotient,): 3, (rest,): 1})) == "3*((s0 + 1) // (4)) + ((s0) % (s1))"
    assert python_text(index(0)) == "0" and python_text(-N) == "-1*s0"
