"""Printed kernels become one file, with the wrapper that calls them and what both need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from nbcompile.compiler.codegen.printed import FunctionCall, Parameter, PrintedKernel
from nbcompile.compiler.codegen.source import bodies_of, comment_of, is_repeatable, source_of
from nbcompile.compiler.linear_cross_entropy.operator import scale_gradient
from nbcompile.compiler.loop_ir.expr import op
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis, index
from nbcompile.compiler.loop_ir.nodes import Body, Buffer, LibraryCall, View
from nbcompile.compiler.loop_ir.versions import Touch, Walk
from nbcompile.compiler.stages import Argument, Config, EntryPoint, KernelText, Launch
from nbcompile.errors import VerifyError
from tests.compiler.codegen.c.by_hand import buffer, group, loop, program, read

ROW = Axis("i", index(6))
X, Y, Z, OUT = buffer("x", 6), buffer("y", 6), buffer("z", 6), buffer("out", 6)


def kernel(old: Buffer, new: Buffer, **more: Any) -> Group:
    return replace(group(loop(new, (ROW,), op("exp", read(old, ROW))), axes=(ROW,)), **more)


def call(target: Any, *args: Any) -> LibraryCall:
    return LibraryCall("g0.fw.n0", str(target), target, args, {}, (Z,))


def test_kernels_stand_in_the_order_in_which_they_run_below_the_head() -> None:
    first, second = kernel(X, Z), kernel(Z, OUT, id="k1", name="last")
    made = program(first, second, inputs=[X], outputs=[View.whole(OUT)])
    step = Launch("two", "k1", (Argument("p", "*fp32"),), ("1",), (Config({}),))
    calls = FunctionCall("one", (Parameter("p", "buffer", "", "z"),)), FunctionCall("two", ())
    kernels = {
        "g0.fw.k0": PrintedKernel("first", ((1, ("g0.z",)),), (), ("z",)),
        "k1": PrintedKernel("second", (), calls, ("out",), title="held", launches=(step,)),
    }
    source = source_of(made, "triton", kernels, ["import a", "import b"])
    assert source.source == "import a\n\n\nimport b\n\n\nfirst\n\n\nsecond\n"
    assert source.kernels == (
        KernelText("g0.fw.k0", "test", "first", ((1, ("g0.z",)),), "pointwise"),
        KernelText("k1", "last", "second", (), "held"),
    )
    assert source.entry_points == (EntryPoint("one", "k1", ("p",)), EntryPoint("two", "k1", ()))
    assert source.launches == (step,) and "    one(z)\n    two()\n" in source.wrapper
    assert [item for item, _ in source.steps] == ["g0.fw.k0", "k1"]


def test_what_the_wrapper_is_given_is_listed() -> None:
    given = call(torch.ops.aten.sin.default, View.whole(X), [Body("yes"), Body("no"), Body("yes")])
    made = program(given, inputs=[X], outputs=[View.whole(Z)], constants={"w": torch.ones(6)})
    source = source_of(made, "c", {}, [])
    assert bodies_of(made) == ("yes", "no") and source.constants == ("w", "yes", "no")
    assert source.libraries == {"op_aten_sin_default": "aten.sin.default"}
    assert source.graph == "g0.fw" and source.kernels == source.entry_points == ()


def test_a_kernel_that_would_read_what_it_has_written_is_refused() -> None:
    into = kernel(X, OUT, in_place={"out": "x"})
    made = program(into, inputs=[X], updates={"x": "out"})

    def source(*touches: Touch) -> Any:
        walk = Walk(frozenset(), [Walk(frozenset({ROW}), list(touches))])
        return source_of(made, "c", {"g0.fw.k0": PrintedKernel("", (), (), (), walk=walk)}, [])

    old, new = Touch("x", index(ROW)), Touch("x", index(ROW), write=True)
    assert not source(old, new).repeatable
    with pytest.raises(VerifyError, match="after it has overwritten it"):
        source(new, old)


def test_what_overwrites_or_draws_cannot_be_done_again() -> None:
    plain = program(kernel(X, OUT), inputs=[X], outputs=[View.whole(OUT)])
    assert is_repeatable(plain)
    assert not is_repeatable(replace(plain, program=replace(plain.program, updates={"x": "out"})))
    calls = torch.ops.aten.sin.default, torch.ops.aten.rand_like.default, scale_gradient()
    again = [is_repeatable(program(call(target, View.whole(X)), inputs=[X])) for target in calls]
    assert again == [True, False, False]
    assert is_repeatable(program(call(torch.ops.higher_order.cond), inputs=[X])), "it has no tags"


def test_above_a_kernel_stand_the_lines_of_the_cell_and_its_operators() -> None:
    loops = (
        loop(Z, (ROW,), read(X, ROW)),
        loop(OUT, (ROW,), read(Z, ROW)),
        replace(loop(Y, (ROW,), read(Z, ROW)), op="z"),
    )
    made = group(*loops, axes=(ROW,))

    def comment(**spans: tuple[int, ...]) -> list[str]:
        lines = {f"g0.{name}": found for name, found in spans.items()}
        return comment_of(made, program(made, inputs=[X], spans=lines))

    assert comment(z=(8, 3), out=(3,)) == ["cell lines 3, 8: z, out"]
    assert comment(out=(7,), y=(7,)) == ["cell line 7: z, out"]
    assert comment() == ["z, out"], "nobody knows where it comes from"
