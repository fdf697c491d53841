"""``%%compile --ranks``: the cell on an ipyparallel cluster, and the session after it."""

from __future__ import annotations

import pytest
import torch

from nbcompile.record.ranks import RanksResult
from tests.notebook.conftest import Notebook

pytest.importorskip("ipyparallel")

SETUP = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 4)
    def forward(self, x):
        return torch.tanh(self.a(x))
model = Net()
x = torch.randn(4, 8)
"""


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--ranks 0", "--ranks wants a number of 1 or more, got 0"),
        ("--ranks two", "invalid int value: 'two'"),
        ("--split x", "--split goes with --ranks"),
        ("--parallel ddp", "--parallel goes with --ranks"),
        ("--ranks 2 --parallel tp", "invalid choice: 'tp'"),
        ("--ranks 2 --split y", "--split y: no tensor of that name is read by the cell"),
    ],
)
def test_a_bad_flag_is_one_line(notebook: Notebook, line: str, says: str) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run(f"%%compile {line}\nx + 1")
    assert "UsageError" in outcome.error + outcome.stderr and says in outcome.error + outcome.stderr


def test_magics_stay_in_the_notebook(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    assert "--ranks runs Python only" in notebook.run("%%compile --ranks 2\n%time x + 1").error


@pytest.mark.nightly
@pytest.mark.slow
def test_a_cell_on_two_engines(notebook: Notebook) -> None:
    cell = """
def double(v):
    return 2 * v
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(x).square().mean()
loss.backward()
optimizer.step()
print("rank", rank, double(rank))
loss
"""
    notebook.fresh(SETUP)
    alone = notebook.run(cell.replace('print("rank", rank, double(rank))', ""))
    expected = notebook.shell.user_ns["model"].state_dict()
    notebook.fresh(SETUP)
    own = notebook.shell.user_ns["model"]
    outcome = notebook.run(f"%%compile --ranks 2 --split x --no-bench --into found{cell}")
    assert outcome.error == ""
    assert "rank 0: rank 0 0" in outcome.stdout and "rank 1: rank 1 2" in outcome.stdout
    assert outcome.namespace["model"] is own
    torch.testing.assert_close(own.state_dict(), expected)
    assert outcome.namespace["optimizer"].param_groups[0]["params"][0] is own.a.weight
    assert outcome.namespace["double"](3) == 6
    found = outcome.namespace["found"]
    assert isinstance(found, RanksResult) and found.engines == "ipyparallel" and found.split == ("x",)
    assert not found.differences and [record.graphs for record in found.ranks] == [1, 1]
    assert found.ranks[0].lines == {"g0": 5}
    assert notebook.records[-1] == found.compilation, "rank 0's record is the cell's"
    assert outcome.result.shape == alone.result.shape == ()
    failed = notebook.run("%%compile --ranks 2 --parallel none\nif rank:\n    x[9]\n")
    assert "RanksError: line 3: rank 1: IndexError" in failed.error
    assert "skipping" not in failed.stdout and "x[9]" in failed.stdout


def test_more_ranks_than_the_machine_bears_are_not_started(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run("%%compile --ranks 9999\nx + 1")
    assert "9999 ranks are 9999 processes" in outcome.error and "RanksError" in outcome.error
