"""Every statement of a cell has a fate in its record and in what is shown of it: none is silent."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest
import torch

from nbcompile.errors import CellError
from nbcompile.notebook.cell import cell_run
from nbcompile.record.compilation import Compilation, Graph
from nbcompile.record.provenance import Links
from nbcompile.view.facts.cell_lines import CellLine, cell_lines
from nbcompile.view.facts.facts import facts, verdict
from nbcompile.view.html.fragment import to_html
from nbcompile.view.text import to_text
from tests.nightly import few
from tests.notebook.conftest import Notebook

_SAID = re.compile(r"  #: (.*)$", re.MULTILINE)
_BLOCKS = re.findall(
    r"^=== (.+)\n((?:(?!===).*\n?)*)",
    (Path(__file__).parent / "cells_of_fates.txt").read_text(encoding="utf-8"),
    re.MULTILINE,
)
SETUP = _BLOCKS[0][1]
CELLS = {head: cell.rstrip() for head, cell in _BLOCKS[1:]}


def recorded(notebook: Notebook, line: str, cell: str) -> Compilation:
    torch._dynamo.reset()
    notebook.fresh(SETUP)
    notebook.run(f"%%compile --no-bench {line}\n{_SAID.sub('', cell)}")
    return notebook.records[-1]


@few(8)
@pytest.mark.parametrize(
    "head",
    [pytest.param(head, marks=pytest.mark.nightly if head == "inner compile" else ()) for head in CELLS],
)
def test_each_line_says_what_became_of_it(notebook: Notebook, head: str) -> None:
    cell, line = CELLS[head], head.partition(" | ")[2]
    expected = {
        number: found.group(1).partition(": ")[::2]
        for number, text in enumerate(cell.split("\n"), start=2)
        if (found := _SAID.search(text))
    }
    statements = {node.lineno + 1 for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.stmt)}
    assert statements == set(expected), "the table says of each statement what is to become of it"
    record = recorded(notebook, line, cell)
    found = {fate.line: fate for fate in record.lines}
    assert {number: fate.fate for number, fate in found.items()} == {
        number: fate for number, (fate, _) in expected.items()
    }, found
    for number, (_, reason) in expected.items():
        assert reason in found[number].reason
    links = Links(record)
    text, html = to_text(record), to_html(record)
    for row in cell_lines(record, facts(record, links).calls, links):
        if row.number in found:
            assert row.fate and (row.chips or row.why), row
        if row.fate == "eager":
            assert f"\n ~ {row.number:>3}  " in text
            assert " ".join(row.why.split()[:4]) in " ".join(text.split())
            assert "ran eagerly" in html and row.why.split()[0] in html


def test_there_are_sixty() -> None:
    assert len(CELLS) >= 60


def test_fullgraph_raises_at_the_line_that_breaks(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run("%%compile --fullgraph\na = x + 1\nb = a * 2\ny = speaks(b)\nz = y + 1")
    assert outcome.error.startswith(f"{CellError.__name__}: line 4: the graph breaks here: print() writes")
    assert "Print after the compiled part" in outcome.error
    assert [line for line, _ in outcome.frames] == [4]
    assert "z" not in outcome.namespace and "hello" not in outcome.stdout
    (found,) = notebook.records[-1].breaks
    assert [span.line for span in found.spans if not span.file] == [4]


def rows(notebook: Notebook, cell: str) -> dict[int, CellLine]:
    """What is shown at each line."""
    notebook.fresh(SETUP)
    notebook.run(f"%%compile --no-bench\n{cell}\n")
    record = notebook.records[-1]
    links = Links(record)
    return {row.number: row for row in cell_lines(record, facts(record, links).calls, links)}


def test_the_rest_of_a_function_after_a_break_keeps_its_line(notebook: Notebook) -> None:
    """Dynamo compiles it by itself: its traces begin in the function, not in the cell."""
    found = rows(notebook, "a = x + 1\ny = speaks_between(a)")
    assert [chip.label for chip in found[3].chips][:1] == ["break"]
    assert {chip.fate for chip in found[3].chips[1:]} == {"fused"}
    assert len(found[3].chips) == 3, "a kernel before the break, one after it"


def test_a_break_in_a_function_of_the_cell_is_marked_within_it(notebook: Notebook) -> None:
    found = rows(notebook, "def f(t):\n    print('in f')\n    return t.sin() + 1\ny = f(x)")
    assert found[3].fate == "break" and found[5].fate == "fused" and found[4].fate == "fused"


def test_graphs_within_a_graph_have_their_own_lines(notebook: Notebook) -> None:
    found = rows(
        notebook,
        "y = torch.cond(\n    x.sum() > 0,\n    lambda t: t.sin(),\n    lambda t: t.cos(),\n    (x,))",
    )
    assert [chip.label for number in (3, 4, 5) for chip in found[number].chips] == [
        "k0",
        "true.k0",
        "false.k0",
    ]


def test_lines_of_a_graph_that_is_left_as_a_whole_ran_eagerly(notebook: Notebook) -> None:
    notebook.fresh("a = torch.zeros(4, 4); b = a[1]")
    notebook.run("%%compile --no-bench\nb += 1\na[2:] = 5\nc = a * 3\n")
    record = notebook.records[-1]
    assert [line.fate for line in record.lines] == ["eager"] * 3
    assert [graph.stage for graph in record.graphs] == ["fx"]
    text = to_text(record)
    assert text.count("for in the wrong place") == 1 and "↳ as line 2" in text
    assert "wrong place. Pass the tensor" in " ".join(text.split())
    assert "nothing of it is computed" not in text


def test_the_headline_names_the_first_line_that_ran_eagerly_and_counts_the_rest(notebook: Notebook) -> None:
    record = recorded(
        notebook, "", "t = time.time()\nr = random.random()\nx.shape.numel()\nq = next(iter([1]))"
    )
    assert not record.of_stage("fx") and len(record.lines) == 4
    assert verdict(record).text == "ran eager: line 2: time.time runs in Python (and 2 more)"


@pytest.mark.usefixtures("no_compiler")
def test_the_headline_says_that_nothing_was_compiled(notebook: Notebook) -> None:
    """Without a C compiler there is nothing to say of how long it took to compile."""
    record = recorded(notebook, "", "y = x * 2")
    assert verdict(record).text.startswith("ran eager: our compiler could not compile it: NBCOMPILE_CC=")
    assert verdict(record).tone == "bad"


def test_the_headline_says_that_a_graph_was_left_out() -> None:
    graphs = tuple(Graph(f"g{n}.fx", "fx", "") for n in range(2))
    notes = ("line 3: graph g1.fw runs eagerly: our compiler could not compile it: LoweringError: no",)
    record = Compilation("1", graphs=(*graphs, Graph("g0.fw.fused", "fused", "")), notes=notes)
    assert verdict(record).text.endswith("not timed; 1 graph ran eagerly")
    assert "LoweringError" in verdict(record).detail
    failed = dataclasses.replace(record, execution="interpreted")
    assert verdict(failed).text.startswith("ran eager: our compiler could not compile it")


def test_a_number_that_a_graph_returns_is_of_its_own_line(notebook: Notebook) -> None:
    """Dynamo makes it a tensor where the function returns: that is the last line of the part."""
    found = rows(
        notebook, "s = [float((i * x).sum()) for i in range(4)]\nd = {i: (x * i).mean() for i in range(2)}"
    )
    assert found[2].fate == "fallback" and found[3].fate == "fused"


def test_a_statement_over_several_lines_is_computed_where_its_parts_are(notebook: Notebook) -> None:
    found = rows(notebook, "w = (\n    x\n    .sin()\n    .sum(0)\n)")
    assert (found[2].fate, found[2].why) == ("fused", "computed at lines 4 to 5")
    assert found[4].share and found[5].share, "a reduction has a share though its result is small"


@pytest.mark.parametrize(
    "cell, unrun",
    [
        ("try:\n    bad = x @ torch.ones(7)\nexcept RuntimeError:\n    n = 1\nelse:\n    n = 2", [7]),
        ("try:\n    n = len('abc')\nexcept RuntimeError:\n    n = 1\nelse:\n    n = 2", [5]),
        ("z = x * 2\nif z.isnan().any(): raise ValueError\nu = z + 1", []),
        ("for i in range(3):\n    z = x * i\n    if z.sum() > 1e9: break", []),
        ("k = 1\nif k > 3:\n    n = 1\nelif k > 2:\n    n = 2\nelse:\n    print(k)", [4, 6]),
        ("for i in range(0):\n    print(i)", [3]),
        ("for i in range(2):\n    n = 1\n    if i:\n        break\nelse:\n    n = 3", [7]),
    ],
)
def test_what_python_left_out_was_never_reached(notebook: Notebook, cell: str, unrun: list[int]) -> None:
    notebook.fresh(SETUP)
    assert not notebook.run(f"%%compile --no-bench\n{cell}").error
    assert [line.line for line in notebook.records[-1].lines if line.fate == "unrun"] == unrun


def test_an_error_that_the_cell_catches_is_named(notebook: Notebook) -> None:
    found = rows(notebook, "try:\n    bad = x @ torch.ones(7)\nexcept RuntimeError:\n    n = 1")
    assert found[3].why == "it, or what was to be compiled with it, raises RuntimeError"


@pytest.mark.parametrize(
    ("line", "raises", "why"),
    [
        ("", "z = torch.zeros(3)[5]", "was to be compiled with line 3, which raised IndexError"),
        ("", "print(nope)", ""),
        ("--disable", "z = x @ torch.ones(7)", "--disable was given"),
    ],
)
def test_a_line_is_not_told_the_error_of_the_next(
    notebook: Notebook, line: str, raises: str, why: str
) -> None:
    notebook.fresh(SETUP)
    assert notebook.run(f"%%compile --no-bench {line}\ny = torch.sin(x)\n{raises}").error
    second, third = notebook.records[-1].lines
    assert second.reason == why and third.reason.startswith("raised ")


@pytest.mark.parametrize(
    ("raises", "error"),
    [("z = x[torch.tensor([0, 99])] * 2", "IndexError"), ("y.retain_grad_()", "AttributeError")],
)
def test_a_line_that_raised_says_so_though_it_has_a_kernel(
    notebook: Notebook, raises: str, error: str
) -> None:
    """It was marked as compiled, with its kernel's share, or as a break."""
    notebook.fresh(SETUP)
    assert notebook.run(f"%%compile --no-bench\ny = torch.sin(x)\n{raises}\nw = y + 1").error
    record = notebook.records[-1]
    links = Links(record)
    rows = cell_lines(record, facts(record, links).calls, links)
    assert [row.fate for row in rows[2:]] == ["eager", "unrun"]
    assert rows[2].why == f"raised {error}" and rows[3].why == f"never reached: line 3 raised {error}"
    assert rows[2].chips and not rows[2].share
    assert f"raised {error}" in to_text(record) and f"raised {error}" in to_html(record)


def test_in_a_function_of_the_cell_the_line_that_raised_says_so(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    assert notebook.run("%%compile --no-bench\ndef f(v):\n    a = v * 2\n    return a[99]\ny = f(x)").error
    found = {line.line: (line.fate, line.reason) for line in notebook.records[-1].lines}
    assert found[4] == found[5] == ("eager", "raised IndexError")
    assert found[3][1].startswith("part of f")


def test_what_only_dynamo_raises_is_not_said_to_be_raised(notebook: Notebook) -> None:
    step = "loss = (x @ v).sum()\nloss.backward()\nwith torch.no_grad():\n    {}\n    v.grad.zero_()"
    notebook.fresh(SETUP)
    for update in ("v -= 0.1 * v.grad", "v.sub_(0.1 * v.grad)"):
        notebook.run("v = torch.ones(x.shape[1], requires_grad=True)")
        assert not notebook.run(f"%%compile --no-bench\n{step.format(update)}").error
        record = notebook.records[-1]
        lines = {line.line: line for line in record.lines}
        if "sub_" in update:
            assert lines[5].fate == "compiled"
            continue
        why = "Dynamo has no v.grad after v -= 0.1 * v.grad: v.sub_(0.1 * v.grad) in its place compiles"
        assert lines[5].fate == "eager" and lines[5].reason == why
        assert not any("raises" in note for note in record.notes)


@pytest.mark.parametrize("cell", ["y = x + 1\nprint(1)", "print(1)\ny = x + 1"])
def test_the_headline_of_disable_says_so(notebook: Notebook, cell: str) -> None:
    notebook.fresh(SETUP)
    notebook.run(f"%%compile --disable\n{cell}")
    assert verdict(notebook.records[-1]).text.startswith("ran eager: --disable was given")


def test_what_parts_two_graphs_is_said(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    notebook.run("%%compile --no-bench\na = x.sum().item()\nb = x * a")
    (found,) = notebook.records[-1].breaks
    assert "reads a tensor's value" in found.reason and found.spans[0].line == 2
    notebook.run("%%compile --no-bench\ny = x + 1\nif len('ab') > 3:\n    'words'\nz = y * 2")
    record = notebook.records[-1]
    assert not record.breaks
    assert "line 3 parts the graphs before and after it: a branch that Python takes" in record.notes


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("y = x + 1; time.sleep(0)\nz = y * 2", 2),
        ("y = x + 1\ntime.sleep(0); z = y * 2", 3),
        ("y = x + 1; time.sleep(0); z = y * 2", 2),
    ],
)
def test_what_parts_two_graphs_in_a_line_of_theirs_is_a_break(
    notebook: Notebook, cell: str, line: int
) -> None:
    notebook.fresh(SETUP)
    notebook.run(f"%%compile --no-bench\n{cell}")
    record = notebook.records[-1]
    (found,) = record.breaks
    assert found.reason == "time.sleep runs in Python" and found.spans[0].line == line
    assert len(record.of_stage("fx")) == 2
    refused = notebook.run(f"%%compile --no-bench --fullgraph\n{cell}").error
    assert "the graph breaks here: time.sleep runs in Python" in refused


OF_VALUES = "the branch depends on the values in a tensor"
CLOCK = "time.perf_counter runs in Python"


@pytest.mark.parametrize(
    ("cell", "line", "reason", "around"),
    [
        ("if True:\n    z = x * 2\n    if z.sum() < 1e9: u = z + 1", 4, OF_VALUES, {2}),
        (
            "if n == 1:\n    k = 1\nelif n == 3:\n    z = x * 2\n    if z.sum() < 1e9:\n        u = z + 1",
            6, OF_VALUES, {2, 4},
        ),
        (
            "for i in range(3):\n    z = x * i\n    if z.sum() > 0:\n        u = z\n    else:\n        u = x",
            4, OF_VALUES, {2},
        ),
        ("for _ in range(3):\n    z = x + 1\n    t = time.perf_counter()\n    u = z * 2", 4, CLOCK, {2}),
        ("with torch.no_grad():\n    z = x + 1\n    t = time.perf_counter()\n    u = z * 2", 4, CLOCK, {2}),
    ],
)  # fmt: skip
def test_a_break_is_of_its_own_line_and_not_of_what_that_stands_in(
    notebook: Notebook, cell: str, line: int, reason: str, around: set[int]
) -> None:
    """It was one more of each "if", "for" and "with" around it."""
    notebook.fresh(SETUP)
    assert not notebook.run(f"%%compile --no-bench\n{cell}").error
    record = notebook.records[-1]
    assert [(found.spans[0].line, found.reason) for found in record.breaks] == [(line, reason)]
    told = {fate.line: fate.reason for fate in record.lines if fate.line in around}
    assert set(told) == around and all(f"line {line}: {reason}" in each for each in told.values()), told
    refused = notebook.run(f"%%compile --no-bench --fullgraph\ny = x * 2\n{cell}\nw = y + x").error
    assert reason in refused, "it would be two graphs"


@pytest.mark.parametrize(
    ("between", "told"),
    [
        ("del t", "line 3 parts the graphs before and after it: deletes a name; above or below"),
        (
            "_ = 5\ndel t",
            "lines 3, 4 part the graphs before and after them: names a value, deletes a name; above",
        ),
        (
            "for i in range(40):\n    t += i",
            "line 3 parts the graphs before and after it: a loop, run step by step",
        ),
        ("", ""),
        ("print(1)\ndel t", ""),  # what print() parts, is parted
    ],
)
def test_two_graphs_without_a_break_say_why_they_are_two(notebook: Notebook, between: str, told: str) -> None:
    """It was "2 graphs, 0 breaks", and nothing else."""
    notebook.fresh(f"{SETUP}\nt = 1")
    notebook.run(f"%%compile --no-bench\ny = x + 1\n{between}\nz = y * 2")
    notes = [note for note in notebook.records[-1].notes if "the graphs before" in note]
    assert [note[: len(told)] for note in notes] == ([told] if told else [])


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("while (x * x).sum() > 1:\n    x = x * 0.5\ny = x + 1", 2),
        ("e = float('inf')\nwhile not e < 0.1 and n:\n    x = x * 0.5\n    e = x.norm()\ny = x + e", 3),
        ("def f(v):\n    while v.sum() > 1:\n        v = v * 0.5\n    return v\ny = f(x)", 3),
    ],
    ids=["of the cell", "a number at first", "of a function"],
)
def test_a_loop_that_asks_a_tensor_breaks_the_graph(notebook: Notebook, cell: str, line: int) -> None:
    record = recorded(notebook, "", cell)
    (found,) = record.breaks
    assert found.spans[-1].line == line and found.spans[-1].file == ""
    assert found.reason == "how often the loop runs depends on the values in a tensor"
    assert found.hint.startswith("Run a fixed number of steps")
    links = Links(record)
    assert {
        row.number for row in cell_lines(record, facts(record, links).calls, links) if row.fate == "break"
    } == {line}
    fates = {each.line: each for each in record.lines}
    assert cell.startswith("def") or (fates[line].fate, fates[line].reason) == ("eager", found.reason)


def test_a_loop_that_asks_numbers_is_left_as_it_is(notebook: Notebook) -> None:
    record = recorded(
        notebook, "", "i = 0\nwhile i < 9 and x.dim() == 2:\n    y = x * i\n    i += 1\nz = y + 1"
    )
    assert record.breaks == ()
    (found,) = [each for each in record.lines if each.line == 3]
    assert (found.fate, found.reason) == (
        "python",
        "a loop, run step by step, whose condition Python computes",
    )


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("with torch.no_grad():", "enters a context, with a loop in it that runs step by step"),
        ("if n:", "a branch that Python takes, with a loop in it that runs step by step"),
        ("for k in range(2):", "a loop, run step by step"),
    ],
)
def test_a_block_around_a_long_loop_is_not_called_the_loop(notebook: Notebook, head: str, told: str) -> None:
    cell = f"a = x * 2\n{head}\n    for i in range(99):\n        a = a + i\nb = a * 2"
    record = recorded(notebook, "", cell)
    fates = {each.line: (each.fate, each.reason) for each in record.lines}
    assert fates[3] == ("python", told) and fates[4] == ("python", "a loop, run step by step")
    assert fates[5][0] == fates[6][0] == "compiled"
    assert record.breaks == () and record.notes == (f"line 3 parts the graphs before and after it: {told}",)


def test_lines_that_part_graphs_are_told_in_their_order(notebook: Notebook) -> None:
    notebook.fresh(f"{SETUP}\nt = 1")
    notebook.run("%%compile --no-bench\ny = x + 1\nd = {}\nwith own():\n    k = hash(n)\nz = y * 2")
    assert [note[:11] for note in notebook.records[-1].notes] == ["lines 3, 4 "]


def test_a_line_that_cannot_become_a_function_is_named_once(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise CellError("cannot become a function: too deep", line=2)

    monkeypatch.setattr(cell_run, "make_function", refuses)
    notebook.fresh(SETUP)
    notebook.run("%%compile --no-bench\ny = x + 1")
    record = notebook.records[-1]
    assert record.lines[0].reason == "cannot become a function: too deep"
    assert "line 2 ran eagerly: cannot become a function: too deep" in record.notes
