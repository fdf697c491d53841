"""Which statements of a cell may compile, and the function that a run of them becomes."""

from __future__ import annotations

import ast
import types

import pytest
import torch

from nbcompile.compiler.capture.cell_to_function import (
    CellFunction,
    CellStatement,
    make_function,
    prepare,
)
from nbcompile.compiler.capture.losses import leading_to, together_for_backward
from nbcompile.compiler.capture.python_reasons import python_reason
from nbcompile.syntax import names_read, names_stored


def statements(source: str) -> list[CellStatement]:
    body = ast.parse(source).body
    return [CellStatement(i, node, i, 1, False, False) for i, node in enumerate(body)]


def function(source: str, *bound: str, keep: tuple[str, ...] = ()) -> CellFunction:
    return make_function(statements(source), name="cell", filename="<cell>", bound=(*bound, *keep), keep=keep)


def call(made: CellFunction, namespace: dict[str, object], *arguments: object) -> dict[str, object]:
    return dict(zip(made.results, made.bind(namespace)(*arguments), strict=True))


def test_names_read_are_parameters_and_names_bound_are_results() -> None:
    made = function("y = x @ w\nx = y + k", "x", "w", "k")
    assert made.parameters == ("x", "w", "k") and made.results == ("y", "x")
    assert call(made, {}, torch.eye(2), torch.eye(2), 1)["x"].tolist() == [[2, 1], [1, 2]]  # type: ignore[attr-defined]


def test_code_stays_global_and_nothing_is_written_into_the_namespace() -> None:
    namespace = {"f": lambda t: t + 1}
    made = function("y = f(x)", "x", keep=("f",))
    assert made.parameters == ("x",)
    assert call(made, namespace, 1) == {"y": 2} and set(namespace) == {"f", "__builtins__"} - (
        {"__builtins__"} - set(namespace)
    )


@pytest.mark.parametrize(
    ("source", "parameters", "results"),
    [
        ("x += 1", ("x",), ("x",)),
        ("x[0] += k", ("k", "x"), ()),
        ("a, (b, *c) = x", ("x",), ("a", "b", "c")),
        ("ys = [y * i for y in x for i in y if k]", ("x", "k"), ("ys",)),
        ("ys = [(last := y) for y in x]", ("x", "last"), ("last", "ys")),
        ("z = (t := x) + t", ("x", "t"), ("t", "z")),
        ("z = k and (t := x)", ("k", "x", "t"), ("t", "z")),
        ("for i in x:\n    y = i", ("x", "i", "y"), ("i", "y")),
        ("if k:\n    y = x", ("k", "x", "y"), ("y",)),
        ("with k():\n    y = x\nz = y", ("k", "x"), ("y", "z")),
        ("y = k(lambda i: i + x)", ("k", "x"), ("y",)),
        ("x.a = k", ("k", "x"), ()),
    ],
)
def test_flow(source: str, parameters: tuple[str, ...], results: tuple[str, ...]) -> None:
    made = function(source, "x", "k")
    assert made.parameters == parameters and made.results == results


def test_lines_and_file_are_the_cells_own() -> None:
    source = "\n\ny = x + 1\nz = (y +\n     x.nope())\n"
    made = function(source, "x")
    assert (made.first_line, made.last_line) == (3, 5)
    with pytest.raises(AttributeError) as caught:
        made.bind({})(torch.ones(1))
    frame = caught.traceback[-1]
    assert str(frame.path) == "<cell>" or frame.frame.code.raw.co_filename == "<cell>"
    assert frame.lineno + 1 == 5
    assert made.as_text() == "y = x + 1\nz = y + x.nope()"


@pytest.mark.parametrize(
    ("source", "compiled"),
    [
        ("y = x @ w", True),
        ("y += f(x)", True),
        ("x[0] = 1", True),
        ("f(x)", True),
        ("y = x", False),
        ("n = 3", False),
        ("y", False),
        ("import a", False),
        ("def f(): pass", False),
        ("del y", False),
        ("y: int = x + 1", False),
        ("print(x + 1)", False),
        ("y = x.sum().item()", False),
        ("loss.backward()", False),
        ("y = await f(x)", False),
        ("f = lambda t: t", False),
        ("fs = [lambda t: t]", False),
        ("y = torch.vmap(lambda t: t + 1)(x)", True),
        ("g = (t for t in x)", False),
        ("y = sum(t for t in x)", True),
        ("s = f'{x}'", False),
        ("assert x.sum() > 0", False),
        ("p = torch.ones(3, requires_grad=True)", False),
        ("k = locals()", False),
        ("raise ValueError", False),
    ],
)
def test_what_is_pythons_to_run(source: str, compiled: bool) -> None:
    assert (python_reason(ast.parse(source).body[0]) is None) is compiled


def rewritten(source: str, interactivity: str = "last_expr") -> tuple[str, dict[int, int]]:
    prepared = prepare(ast.parse(source), first_id=10, interactivity=interactivity)  # type: ignore[arg-type]
    return ast.unparse(prepared.tree), {number: len(run) for number, run in prepared.runs.items()}


def test_statements_ask_the_switchboard_and_control_flow_stays() -> None:
    text, runs = rewritten(
        "while True:\n    y = x + 1\n    z = y * 2\n    z.backward()\n    w = z + 1\nw.sum()"
    )
    assert runs == {10: 2, 11: 1, 12: 1, 13: 1}
    assert text == (
        "while True:\n    if __nbcompile__[10]:\n        y = x + 1\n"
        "    if __nbcompile__[11]:\n        z = y * 2\n"
        "    z.backward()\n    if __nbcompile__[12]:\n        w = z + 1\n"
        "w.sum() if __nbcompile__[13] else __nbcompile__.values[13]"
    )


def test_a_loop_of_tensor_work_is_asked_about_whole_and_in_parts() -> None:
    text, runs = rewritten("h = x * 2\nfor i in range(3):\n    h = h @ w")
    assert runs == {10: 2, 11: 1, 12: 1}
    assert "if __nbcompile__[11]:\n    for i in range(3):\n        if __nbcompile__[12]:" in text


@pytest.mark.parametrize(
    "inside", ["print(i)", "break", "x.backward()", "return_ = yield_.item()", "import os"]
)
def test_a_loop_with_an_effect_is_never_whole(inside: str) -> None:
    _, runs = rewritten(f"for i in range(3):\n    h = h @ w\n    if i:\n        {inside}")
    assert 10 in runs and max(runs) == 10, "only the statement in the loop may be compiled"


def test_positions_of_the_users_statements_are_kept() -> None:
    source = "# magic line\ny = x + 1\nz = (y *\n     2)\n"
    tree = prepare(ast.parse(source)).tree
    asked = [node for node in tree.body if isinstance(node, ast.If)]
    assert [(node.lineno, node.body[0].lineno, node.body[0].end_lineno) for node in asked] == [
        (2, 2, 2),
        (3, 3, 4),
    ]
    compile(tree, "<cell>", "exec")


def test_the_rewritten_cell_computes_what_it_did_when_python_runs_all() -> None:
    source = (
        "a = [k * 2 for k in range(3)]\nb = 0\nfor k in a:\n    b += k\n"
        "    if b > 3:\n        break\nelse:\n    b = -1\nb"
    )

    class Board(dict[int, bool]):
        def __missing__(self, number: int) -> bool:
            return True

    plain: dict[str, object] = {}
    exec(compile(source, "<cell>", "exec"), plain)
    asked: dict[str, object] = {"__nbcompile__": Board()}
    exec(compile(prepare(ast.parse(source)).tree, "<cell>", "exec"), asked)
    for names in (plain, asked):
        names.pop("__builtins__"), names.pop("__nbcompile__", None)
    assert plain == asked


def test_names() -> None:
    node = ast.parse("a[b] = c.d(e, *f, g=h)").body[0]
    assert names_read(node) == {"a", "b", "c", "e", "f", "h"} and names_stored(node) == set()


def test_the_function_is_a_plain_function() -> None:
    assert isinstance(function("y = x + 1", "x").bind({}), types.FunctionType)


def test_handing_out_tensors_changes_no_settings() -> None:
    reason = python_reason(ast.parse("kept = {k: v.clone() for k, v in m.state_dict().items()}").body[0])
    assert reason == ".state_dict() hands out a module's tensors, from Python"


def test_a_statement_that_may_part_two_graphs_asks_where_that_is_an_error() -> None:
    source = "y = x + 1\nn = 3\nprint(y)\nz = y * 2"
    prepared = prepare(ast.parse(source), gated=True)
    assert [(left.line, left.reason) for left, _ in prepared.gates.values()] == [(3, "print runs in Python")]
    assert set(prepared.questions) == set(prepared.runs) | set(prepared.gates)
    assert not prepare(ast.parse(source)).gates


def test_a_block_asks_once_where_its_first_statement_does_not() -> None:
    prepared = prepare(ast.parse("try:\n    y = x + 1\nexcept ValueError:\n    n = 1\nelse:\n    n = 2"))
    text = ast.unparse(prepared.tree)
    assert len(prepared.entries) == 3 and text.count("pass") == 2
    assert set(prepared.entries.values()) <= set(range(prepared.last_id + 1))


def test_what_leads_to_a_backward_pass() -> None:
    body = ast.parse(
        "h = f(x)\nacc = (h > 0).sum()\nfor k in range(2):\n    h = g(h)\nloss = h.mean()\n"
        "with c:\n    loss.backward()\nother = h.sum()\nother.backward(retain_graph=True)"
    ).body
    first, second, none = (6, 0), (9, 0), frozenset[tuple[int, int]]()
    both = {first, second}
    assert leading_to(body) == [both, none, both, {first}, none, {second}, none]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("la = a(x).sum()\nlb = b(x).sum()\nla.backward()", 1),
        ("lb = b(x).sum()\nla = a(x).sum()\nla.backward()", 1),
        ("h = a(x)\nk = b(x)\nloss = (h + k).sum()\nloss.backward()", 3),
        ("h = a(x)\nloss = h.sum()\nacc = (h > 0).sum()\nppl = loss.exp()\nloss.backward()", 4),
        ("h = a(x)\naux = b(h).sum()\nloss = h.sum()\nloss.backward()", 1),
        ("y = x * 2\nz = frozen(y)\nloss = a(x).sum()\nloss.backward()", 3),  # nothing else to reach
        ("la = a(x).sum()\nlb = through(x)\nla.backward()", 1),  # a function that reads b
        ("la = a(x).sum()\nlb = w.sum()\nla.backward()", 1),
        ("la = a(x).sum()\nlb = b(x).sum()", 2),  # no backward in the cell
        ("fake = a(x)\nld = b(fake.detach()).sum()\nld.backward()\nlg = b(fake).sum()\nlg.backward()", 1),
        ("l = x.sum()\nk = w.sum()\nl.backward()\nk.backward()", 1),
        ("h = a(x)\nl = h.mean()\nk = b(x)\nm = k.sum()\nm.backward()\nl.backward()", 2),
        ("h = a(x)\nl = torch.autograd.grad(h.sum(), x)\ny = h.argmax()", 3),
        ("l = a(x).sum()\nl = b(x).sum()\nl.backward()", 1),
    ],
)
def test_what_a_backward_pass_does_not_get_to_is_another_graph(body: str, count: int) -> None:
    a, b, frozen = (torch.nn.Linear(2, 2) for _ in range(3))
    frozen.requires_grad_(False)
    scope: dict[str, object] = {"b": b, "__builtins__": {}}
    exec("def through(x): return b(x).sum()", scope)
    x, w = torch.ones(2), torch.ones(2, requires_grad=True)
    namespace = {"a": a, "b": b, "frozen": frozen, "through": scope["through"], "x": x, "w": w}
    nodes = ast.parse(body).body
    leads = leading_to(nodes)
    compiled = [n for n, node in enumerate(nodes) if "backward" not in ast.unparse(node)]
    found = together_for_backward([nodes[n] for n in compiled], [leads[n] for n in compiled], namespace)
    assert found == count
