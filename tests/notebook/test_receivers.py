"""A line that asks a tensor's value, or its gradients, of an expression: the expression is compiled, the
question is Python's, and all is as without the magic."""

from __future__ import annotations

import ast

import pytest

from nbcompile.compiler.capture.python_reasons import receiver_reads
from nbcompile.view.facts.facts import verdict
from tests.notebook.conftest import Notebook, near
from tests.notebook.test_fates import rows

SETUP = """
import torch.nn.functional as F
net, other = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
"""
BODIES = {
    "backward": "F.cross_entropy(net(x), y).backward()\ng = net.weight.grad.clone()",
    "backward twice": "loss = net(x).sum()\n(loss * 2).backward(retain_graph=True)\n(loss * 3).backward()",
    "item": "right = (net(x).argmax(1) == y).float().mean().item()\nright",
    "added": "total = 1.0\nfor i in range(3):\n    total += (x * i).sum().item()\ntotal",
    "a list": "a = (x * 2).sum(0).tolist()\nb = torch.sort(x[0]).values.numpy()\n(a, b.shape)",
    "in a branch": "if x.shape[0] > 3:\n    n = (x > 0).sum().item()\nelse:\n    n = (x < 0).sum().item()\nn",
    "a gradient given": "net(x).backward(torch.ones(8, 3))\ng = net.weight.grad.sum()",
    "draws": "torch.manual_seed(3)\nn = (torch.rand(4) + x[0]).sum().item()\nm = torch.rand(2)",
    "raises": "a = x + 1\n(x @ x).backward()\nb = a + 1",
    "raises after": "a = x + 1\nn = (a * 2).item()\nb = a + 1",
    "appended": "o = []\nfor i in range(20):\n    o.append(torch.sin(x * i).sum())\no[-1], len(o)",
    "a number appended": "o = []\nfor i in range(20):\n    l = net(x * i)\n    o.append(float(l.sum()))",
    "appended, drawn": "torch.manual_seed(3)\no = []\nfor i in range(18):\n    o.append(torch.rand(4) * i)",
    "appended, raises": "o = []\nfor i in range(20):\n    o.append(x[:, : 4 - i // 18] @ net.weight.T)",
    "appended to what it reads": "outs = [x]\nfor i in range(18):\n    outs.append(outs[-1] * 0.5)",
    "of plain numbers": "n = 3\nouts = []\nfor i in range(18):\n    outs.append(i / n)\n    n += 1",
    "training": "for _ in range(2):\n    net.zero_grad()\n    (net(x).logsumexp(1).mean() - 1).backward()\n"
    "    with torch.no_grad():\n        for p in net.parameters():\n            p -= 0.1 * p.grad",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_cell_does_what_it_does_without_the_magic(body: str, notebook: Notebook) -> None:
    plain, compiled = notebook.both(SETUP, body, "--no-bench")
    assert near(compiled.facts()) == near(plain.facts())


def test_the_line_is_told_its_kernels(notebook: Notebook) -> None:
    found = rows(notebook, "w = torch.ones(x.shape, requires_grad=True)\n(w * x).sin().sum().backward()")
    assert {chip.fate for chip in found[3].chips} == {"fused"} and found[3].fate == "fused"
    assert any("bw" in chip.label for chip in found[3].chips), "and those of its gradient"
    found = rows(notebook, "n = (x * 2).sum().item()")
    assert found[2].fate == "fused" and found[2].chips


STEP = """
optimizer = torch.optim.Adam(net.parameters())
def step(x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()
"""


def test_what_is_appended_at_each_step_is_compiled(notebook: Notebook) -> None:
    """Dynamo breaks the graph within the function, so the loop is Python's: the call in it is not."""
    body = "losses = []\nfor i in range(3):\n    losses.append(step(x * 2, y))\nlosses"
    plain, compiled = notebook.both(SETUP + STEP, body, "--no-bench")
    assert near(compiled.facts()) == near(plain.facts())
    found = rows(notebook, "kept = []\nfor i in range(100):\n    kept.append(x * i)\n    kept.append(i)")
    assert (found[4].fate, found[5].fate) == ("fused", "python")
    found = rows(notebook, SETUP + STEP + body)
    assert [chip for row in found.values() for chip in row.chips if chip.fate == "fused"]


LOOP = "{}\nfor i in range(40):\n    {}"
APPENDS = LOOP.format("outs = []", "outs.append(torch.sin(x * i).sum())")
UPDATES = LOOP.format("outs = {}", "outs.update({i: torch.sin(x * i)})")


def test_what_a_loop_appends_is_compiled(notebook: Notebook) -> None:
    for body in (
        APPENDS,
        LOOP.format("outs = []", "outs.append(float(torch.sin(x * i).sum()))"),
        "o = []\nwith torch.no_grad():\n    for b in x.split(1) * 3:\n        o.append(net(b).argmax(-1))",
    ):
        notebook.fresh(SETUP)
        outcome = notebook.run(f"%%compile --no-bench --fullgraph\n{body}\n")
        assert not outcome.error, outcome.error
        record = notebook.records[-1]
        assert record.lines[-1].fate == "compiled" and len(record.of_stage("fx")) == 1


def test_work_that_fills_a_container_is_said_to_have_run_eagerly(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    notebook.run(f"%%compile --compare eager\n{UPDATES}\n")
    record = notebook.records[-1]
    line = record.lines[-1]
    assert line.fate == "eager" and line.reason.endswith("compute it in a line of its own, which is compiled")
    text = verdict(record).text
    assert "ran eager: line 4: changes a container" in text and "nothing in it computes" not in text
    outcome = notebook.run(f"%%compile --no-bench --fullgraph\n{UPDATES}\n")
    assert outcome.error.startswith("CellError: line 4: the graph breaks here: changes a container")
    notebook.run("t = torch.ones(())")
    kept = 'outs.append({"loss": float(t), "part": i / 3, "of": len(outs)})'
    notebook.run(f"%%compile --no-bench --fullgraph\n{LOOP.format('outs = []', kept)}\n")
    assert notebook.records[-1].lines[-1].fate == "python", "there is nothing to compile in it"


@pytest.mark.parametrize(
    "text",
    [
        "loss.backward()", "x.detach().cpu().numpy()", "a[0].item()", "f'{x}'.item()", "p.data.numpy()",
        "rows[f(x)] += g(x).item()", "y = print(x).item()", "(await f(x)).item()",
    ],
)  # fmt: skip
def test_what_computes_nothing_or_is_pythons_stays_as_it_is(text: str) -> None:
    assert receiver_reads(ast.parse(text).body[0]) is None
