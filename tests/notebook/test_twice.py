"""Gradients of gradients, which no graph of AOTAutograd has: the cell runs as it is, and says why."""

from __future__ import annotations

import pytest

from nbcompile.notebook.cell.planning import TWICE
from nbcompile.view.facts.facts import verdict
from tests.notebook.conftest import Notebook

SETUP = """
x = torch.linspace(-1, 2, 6, requires_grad=True)
net = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
def penalty(x):
    (g,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    return (g.norm() - 1) ** 2
class Loss:
    def of(self, x):
        return penalty(x)
loss_of = Loss()
"""
CELLS = {
    "in the cell": "y = (x**3).sum()\n(g,) = torch.autograd.grad(y, x, create_graph=True)\n"
    "(h,) = torch.autograd.grad(g.sum(), x)",
    "in a function": "loss = penalty(x) + net(x).sum()\nloss.backward()",
    "in a method": "loss_of.of(x).backward()",
    "by a variable": "again = True\ny = (x**4).sum()\ny.backward(create_graph=again)\nz = x.grad.sum()\n"
    "x.grad = None\nz.backward()",
}


@pytest.mark.parametrize("body", CELLS.values(), ids=CELLS)
def test_the_cell_runs_as_it_is_and_says_why(body: str, notebook: Notebook) -> None:
    plain, compiled = notebook.both(SETUP, body, "--no-bench")
    assert not plain.error
    assert compiled.facts() == plain.facts()
    record = notebook.records[-1]
    assert record.notes == (TWICE,) and not record.graphs
    assert verdict(record).text == f"ran eager: {TWICE}"
    assert all("itself compiled" not in line.reason for line in record.lines)


ONCE = (
    "g = torch.func.grad(torch.func.grad(torch.sin))(x[1])",
    "(g,) = torch.autograd.grad((x**2).sum(), x, create_graph=False)",
)


@pytest.mark.parametrize("body", ONCE)
def test_others_compile(body: str, notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    notebook.run(f"%%compile --no-bench\n{body}")
    assert TWICE not in notebook.records[-1].notes
