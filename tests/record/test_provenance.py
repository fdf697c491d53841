"""Links over a small hand-made record: three cell lines, one kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nbcompile.record.compilation import Compilation, Decision, Graph, Kernel, LineLink, Node, Span
from nbcompile.record.provenance import Links


def node(id: str, *origins: str, line: int | None = None, file: str = "") -> Node:
    spans = () if line is None else (Span(line, file=file),)
    return Node(id=id, name=id, op="op", kind="compute", origins=origins, spans=spans)


RECORD = Compilation(
    id="x",
    graphs=(
        Graph("g0.fx", "fx", "", (node("g0.fx.n0", line=2), node("g0.fx.n1", line=3))),
        Graph("g0.fw", "forward", "", (node("g0.fw.n0", "g0.fx.n0"), node("g0.fw.n1", "g0.fx.n1"))),
        Graph("g0.fw.loops", "loops", "", (node("g0.fw.l0", "g0.fw.n0"), node("g0.fw.l1", "g0.fw.n1"))),
        Graph("g0.fw.fused", "fused", "", (node("g0.fw.k0"),), parent="g0.fw.loops"),
    ),
    decisions=(
        Decision(
            "g0.fw.d0", "g0.fw.fused", "g0.fw.l0", "g0.fw.l1", "producer-consumer", True, "same-rows", "ok"
        ),
    ),
    kernels=(
        Kernel(
            "g0.fw.k0",
            "k",
            "g0.fw.fused",
            loops=("g0.fw.l0", "g0.fw.l1"),
            schedule="rows",
            sources={"c": "a\nb"},
            line_map=(LineLink(2, ("g0.fw.l1",)),),
        ),
    ),
)


def test_up_is_nearest_first() -> None:
    links = Links(RECORD)
    assert links.up("g0.fw.l1") == ("g0.fw.n1", "g0.fx.n1")
    assert links.up("g0.fw.k0")[:2] == ("g0.fw.l0", "g0.fw.l1")


def test_down_reaches_kernels_decisions_and_generated_lines() -> None:
    links = Links(RECORD)
    assert set(links.down("g0.fx.n1")) == {"g0.fw.n1", "g0.fw.l1", "g0.fw.k0", "g0.fw.d0", "g0.fw.k0:2"}
    assert set(links.down("g0.fx.n0")) == {"g0.fw.n0", "g0.fw.l0", "g0.fw.k0", "g0.fw.d0"}


def test_lines_of_everything() -> None:
    links = Links(RECORD)
    assert links.lines("g0.fx.n0") == (2,)
    assert links.lines("g0.fw.k0") == (2, 3)
    assert links.lines("g0.fw.d0") == (2, 3)
    assert links.lines(Links.generated("g0.fw.k0", 2)) == (3,)
    assert links.lines("g0.fx") == (2, 3), "a graph stands for its nodes"


def test_at_line_is_the_inverse_of_lines() -> None:
    links = Links(RECORD)
    assert set(links.at_line(3)) == {
        *("g0.fx.n1", "g0.fw.n1", "g0.fw.l1", "g0.fw.k0", "g0.fw.d0", "g0.fw.k0:2"),
    }
    assert links.at_line(9) == ()


def test_lines_of_another_file_are_kept_apart() -> None:
    record = Compilation(id="x", graphs=(Graph("g", "fx", "", (node("g.n0", line=40, file="model.py"),)),))
    links = Links(record)
    assert links.lines("g.n0") == ()
    assert links.lines("g.n0", "model.py") == (40,)
    assert links.at_line(40) == () and links.at_line(40, "model.py") == ("g.n0",)


def test_a_span_of_billions_of_lines_is_cut() -> None:
    one = Node(id="g.n0", name="n0", op="op", kind="compute", spans=(Span(3, end_line=10**12),))
    lines = Links(Compilation(id="x", graphs=(Graph("g", "fx", "", (one,)),))).lines("g.n0")
    assert lines[0] == 3 and len(lines) < 10_000


def test_unknown_id() -> None:
    with pytest.raises(KeyError):
        Links(RECORD).up("g9")


def test_needs_no_torch() -> None:
    code = "import sys, nbcompile.record.provenance; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
