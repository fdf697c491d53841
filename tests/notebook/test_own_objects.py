"""Lines that run code of the user's own objects: properties, items, methods with names of torch's."""

from __future__ import annotations

import pytest

from tests.nightly import few
from tests.notebook.conftest import Notebook, near
from tests.notebook.test_fates import SETUP

OBJECTS = """
import functools, torch
class Own:
    def __init__(self):
        self.x, self.k = torch.linspace(-1.0, 2.0, 16), 3
    @property
    def energy(self):
        return (self.x ** 2).sum()
    @functools.cached_property
    def doubled(self):
        return self.x * 2
    @property
    def half(self):
        return self.x
    @half.setter
    def half(self, value):
        self.x = value * 0.5
    def __getattr__(self, name):
        if name != "made":
            raise AttributeError(name)
        return self.x.exp()
    def __iter__(self):
        yield self.x.sin()
        yield self.x.cos()
class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.linear = Own(), torch.nn.Linear(4, 4)
    @property
    def norm(self):
        return self.linear.weight.norm()
class Items:
    def __getitem__(self, at):
        return torch.ones(4) * [1, 2][at]
x, own, module, items = torch.randn(4, 4), Own(), Module(), Items()
"""


@few(4)
@pytest.mark.parametrize(
    "line",
    ["y = own.energy", "own.energy", "y = own.made", "y = module.norm", "own.half = x", "a, b = own",
     "a, b = items", "y = [*own]", "y = module.own.energy", "own = own.energy"],
)  # fmt: skip
def test_what_runs_code_of_the_users_without_a_call_is_compiled(notebook: Notebook, line: str) -> None:
    notebook.fresh(OBJECTS)
    plainly = notebook.run(line).facts()
    notebook.fresh(OBJECTS)
    outcome = notebook.run(f"%%compile --no-bench\n{line}")
    assert outcome.error == "" and near(outcome.facts()) == near(plainly)
    assert [(each.line, each.fate) for each in notebook.records[-1].lines] == [(2, "compiled")]
    assert notebook.records[-1].kernels


@few(3)
@pytest.mark.parametrize(
    "line", ["y = own.k", "y = x.T", "y = module.linear", "y = module.linear.weight", "a, b = [x, x]"]
)
def test_what_an_object_keeps_is_a_name(notebook: Notebook, line: str) -> None:
    notebook.fresh(OBJECTS)
    assert notebook.run(f"%%compile --no-bench\n{line}").error == ""
    assert [(each.fate, each.reason) for each in notebook.records[-1].lines] == [("python", "names a value")]


def test_a_cached_property_is_more_than_a_name(notebook: Notebook) -> None:
    """Until Python 3.12 it takes a lock, which Dynamo does not follow."""
    notebook.fresh(OBJECTS)
    assert notebook.run("%%compile --no-bench\ny = own.doubled").error == ""
    (found,) = notebook.records[-1].lines
    assert found.fate in ("compiled", "eager")


OWN_STATE = (
    "class State:\n    def __init__(self, t): self.t = t\n    def step(self): return State(self.t * 2)\n"
    "    def item(self): return self.t.sin()\n    def eval(self): return self.t.cos()\n"
    "    def backward(self): return self.t * 3\nst = State(torch.randn(4))"
)


@few(3)
@pytest.mark.parametrize("name", ["step", "item", "eval", "backward"])
@pytest.mark.parametrize("cell", ["y = st.{}()", "z = x * 2\nst.{}()\nw = z + 1"], ids=["alone", "between"])
def test_a_method_of_a_class_of_ones_own_is_not_called_torchs(
    notebook: Notebook, cell: str, name: str
) -> None:
    notebook.fresh(f"{SETUP}\n{OWN_STATE}")
    notebook.run(f"%%compile --no-bench\n{cell.format(name)}")
    record = notebook.records[-1]
    reasons = {each.reason for each in (*record.lines, *record.breaks)} - {""}
    said = "is left to Python as torch has a method of this name: in a function, it is compiled"
    assert reasons == {f".{name}() of State {said}"}
    notebook.run(f"%%compile --no-bench\ndef call(state): return state.{name}()\ny = call(st)")
    assert notebook.records[-1].lines[-1].fate == "compiled" and notebook.records[-1].kernels
