"""``--optimizer``: an optimizer's step is compiled where the cell calls it, and does what eager's does."""

from __future__ import annotations

import pytest

from nbcompile.record.provenance import Links
from tests.nightly import few
from tests.notebook.conftest import Notebook

SETUP = """
import torch, torch.nn.functional as F
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
x, y = torch.randn(16, 4), torch.randn(16, 1)
opt = torch.optim.{kind}
"""
CELL = """
for step in range(4):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
weights
"""
KINDS = [
    "AdamW(model.parameters())",
    "SGD(model.parameters(), lr=0.1, momentum=0.9)",
    "Adam(model.parameters(), foreach=True); plan = torch.optim.lr_scheduler.StepLR(opt, 1)",
]


@few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_it_trains_as_eager_does(notebook: Notebook, kind: str) -> None:
    notebook.fresh(SETUP.format(kind=kind))
    plain = notebook.run(CELL).result
    notebook.fresh(SETUP.format(kind=kind))
    ours = notebook.run(f"%%compile --optimizer --no-bench{CELL}")
    assert not ours.error
    assert (plain - ours.result).abs().max() < 1e-5
    compilation = notebook.records[-1]
    fates = {line.line: line.fate for line in compilation.lines}
    assert fates[5] == "compiled" and fates[6] == "eager"
    links = Links(compilation)
    assert any(5 in links.lines(kernel.id) for kernel in compilation.kernels)
    assert not [found for found in compilation.breaks if found.spans[0].line == 5]  # but torch's own


STEPS = {
    "SGD(model.parameters()) | opt.step(lambda: None)": "a line that is only opt.step(), without",
    "SGD(model.parameters()) | k = opt.step()": "a line that is only opt.step()",
    "AdamW(model.parameters(), fused=True) | opt.step()": "(don't trace into fused optimizer)",
    "Adafactor(model.parameters()) | opt.step()": "nothing was compiled: a tensor's value is needed",
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_is_not_compiled_says_why(notebook: Notebook, step: str) -> None:
    kind, _, line = step.partition(" | ")
    notebook.fresh(SETUP.format(kind=kind))
    assert not notebook.run(
        f"%%compile --optimizer --no-bench\nF.mse_loss(model(x), y).backward()\n{line}"
    ).error
    found = notebook.records[-1].lines[-1]
    assert found.line == 3 and found.fate == "eager" and STEPS[step] in found.reason


def test_a_step_without_gradients_has_nothing_to_compile(notebook: Notebook) -> None:
    notebook.fresh(SETUP.format(kind=KINDS[0]))
    notebook.run("%%compile --optimizer --no-bench\nopt.step()")
    found = notebook.records[-1].lines[-1]
    assert (found.fate, found.reason) == ("python", "Dynamo found no tensor operations to compile")


@pytest.mark.nightly
def test_a_step_without_gradients_is_not_timed(notebook: Notebook) -> None:
    notebook.fresh(SETUP.format(kind=KINDS[1]))
    cell = "%%compile --optimizer\nF.mse_loss(model(x), y).backward()\nopt.step()"
    notebook.run(cell)
    assert any("line 3 reads gradients" in note for note in notebook.records[-1].notes)
    notebook.run(f"{cell}\nopt.zero_grad()")
    assert any("the step of line 3" in note for note in notebook.records[-1].notes)
