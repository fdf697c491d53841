"""Dead memory of a graph that another buffer takes over, and what is left alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import torch

from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.nodes import Buffer, LibraryCall, View
from tests.compiler.codegen.c.by_hand import buffer, program
from tests.compiler.codegen.test_wrapper import X, call, copy, kernel, wrapper


def allocations(*parts: Group | LibraryCall, last: Buffer) -> list[str]:
    """The lines that give a buffer its memory; every kernel writes its outputs."""
    writes = {
        item.id: [out.name for it in item.loops for out in it.outputs]
        for item in parts
        if isinstance(item, Group)
    }
    kernels = [kernel(writes=writes[item.id]) for item in parts if isinstance(item, Group)]
    made = program(*parts, inputs=[X], outputs=[View.whole(last)])
    return [line for line in wrapper(made, *kernels) if " = " in line and line[-4:] != "args"]


def chain(*made: Buffer) -> list[Group]:
    """Kernels of which each copies what the one before made."""
    return [copy(old, new, id=f"k{n}") for n, (old, new) in enumerate(pairwise([X, *made]))]


def test_memory_of_what_nobody_reads_again_is_taken_over() -> None:
    a, b, c, d = (buffer(name, 6) for name in "abcd")
    assert allocations(*chain(a, b, c, d), last=d) == [
        "a = empty_small((6,), (1,), torch.float32)", "b = empty_small((6,), (1,), torch.float32)",
        "c = a; del a  # its memory again", "d = b; del b  # its memory again",
    ]  # fmt: skip
    doubles = replace(c, dtype=torch.float64)
    assert "c = empty_small((6,), (1,), torch.float64)" in allocations(*chain(a, b, doubles, d), last=d)
    assert "c = empty_small((6,), (1,), torch.float32)" in allocations(*chain(b, c), last=c)


def test_memory_that_a_call_may_hand_on_is_not_taken_over() -> None:
    """What ``expand`` gives is a view of what it was given."""
    a, b, c = (buffer(name, 6) for name in "abc")
    handing = call(torch.ops.aten.expand.default, View.whole(a), [6], outputs=[b])
    assert "c = empty_small((6,), (1,), torch.float32)" in allocations(
        *chain(a), handing, copy(b, c, id="k9"), last=c
    )


def test_large_memory_is_taken_over_only_where_it_would_be_free_at_once() -> None:
    a, b, c, d = (buffer(name, 1 << 20) for name in "abcd")
    others = buffer("other", 1 << 21), buffer("another", 1 << 22)
    assert allocations(*chain(a, b, c), last=c)[-1] == "c = a; del a  # its memory again"
    late = allocations(*chain(a, *others, d), last=d)
    assert late[-1] == "d = empty((1048576,), (1,), torch.float32)", "another was allocated meanwhile"
