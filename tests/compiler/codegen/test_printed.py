"""Lines as printers write them: indented, each with the loops it was made for, beside the walk they make."""

from __future__ import annotations

from nbcompile.compiler.codegen.printed import Lines, PrintedKernel
from nbcompile.compiler.loop_ir.index import Axis, index
from nbcompile.compiler.loop_ir.versions import Part, Touch, Walk

ROW, COL = Axis("i", index(6)), Axis("j", index(40))


def test_blocks_of_c_are_closed_and_blocks_of_python_left() -> None:
    c, python = Lines(), Lines(step="    ")
    c.open("for (;;)")
    c.add("x++;")
    c.close()
    assert c.text == ["for (;;) {", "  x++;", "}"]
    python.enter("for i in range(6):")
    python.enter("if i:")
    python.add("x += 1")
    python.leave(2)
    python.add("y = x")
    assert python.text == ["for i in range(6):", "    if i:", "        x += 1", "y = x"]


def test_an_empty_line_is_not_indented() -> None:
    lines = Lines(depth=2)
    lines.add("")
    assert (lines.text, lines.origins) == ([""], [()])


def test_a_line_says_once_each_which_loops_it_was_made_for() -> None:
    lines = Lines()
    lines.open("{", ["g0.l1", "", "g0.l0", "g0.l1"])
    lines.close()
    assert lines.origins == [("g0.l1", "g0.l0"), ()], "in their order; what nobody asked for has none"


def test_what_is_touched_stands_in_the_loops_around_it() -> None:
    lines = Lines()
    lines.touch("x", index(ROW))
    lines.enter("for i", axes=[ROW], part=Part(ROW, 0, 2))
    lines.enter("while", axes=None)
    lines.touch("y", None, write=True)
    lines.leave()
    lines.enter("if", axes=())
    lines.touch("z", index(COL))
    lines.leave(2)
    lines.touch("x", index(ROW), write=True)
    unknown = Walk(None, [Touch("y", None, True)])
    once = Walk(frozenset(), [Touch("z", index(COL))])
    loop = Walk(frozenset({ROW}), [unknown, once], Part(ROW, 0, 2))
    assert lines.walk == Walk(frozenset(), [Touch("x", index(ROW)), loop, Touch("x", index(ROW), True)])
    assert lines.around == [lines.walk] and lines.depth == 0


def test_lines_that_were_printed_apart_are_put_in_the_loop_that_is_open() -> None:
    apart = Lines(depth=1)
    apart.add("y;", ["g0.l1"])
    apart.touch("y", index(COL))
    lines = Lines()
    lines.enter("for i:", ["g0.l0"], [ROW])
    lines.extend(apart)
    assert lines.text == ["for i:", "  y;"] and lines.origins == [("g0.l0",), ("g0.l1",)]
    assert lines.walk.body == [Walk(frozenset({ROW}), [Touch("y", index(COL))])]


def test_two_kernels_share_no_lines() -> None:
    first, second = Lines(), Lines()
    first.enter("for i:", axes=[ROW])
    assert second == Lines() and second.walk.body == [] and len(second.around) == 1


def test_of_a_kernel_that_says_nothing_nobody_knows_what_it_goes_along() -> None:
    assert PrintedKernel("", (), (), ()).walk.axes is None
    assert Lines().walk.axes == frozenset(), "what no loop is around is done once"
