"""A cell is run again only where all that it does can be put back."""

from __future__ import annotations

import copy
import functools
import importlib
import logging
import os
import queue
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from nbcompile.notebook.cell.harmless import hook_that_may_act, what_may_act
from tests.notebook.conftest import Notebook


def helper(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + len([1])


def writes(x: torch.Tensor) -> torch.Tensor:
    Path("/tmp/nbcompile-never").write_text("x")
    return x


def log(x: torch.Tensor) -> torch.Tensor:
    return writes(x)


def calls(x: torch.Tensor) -> torch.Tensor:
    return writes(x)


NAMES: dict[str, Any] = {
    "torch": torch, "x": torch.ones(3), "model": torch.nn.Linear(3, 3), "logging": logging, "helper": helper,
    "losses": [], "writes": writes, "calls": calls, "it": iter([1, 2]), "q": queue.Queue(), "Path": Path,
    "subprocess": subprocess, "os": os, "rename": os.rename, "log": log, "queue": queue,
}  # fmt: skip


@dataclass
class Rates:
    first: float = 0.5


LOOKED: list[Path] = []


class Settings:
    def __init__(self) -> None:
        self.rate, self.file, self.called = 0.5, iter([1]), writes

    @property
    def quarter(self) -> float:
        return self.halved() / 2

    @property
    def counted(self) -> int:
        LOOKED.append(Path("/tmp/nbcompile-never"))
        return len(LOOKED)

    @staticmethod
    def doubled(x: float) -> float:
        return x * 2

    def halved(self) -> float:
        return self.rate / 2

    def written(self) -> None:
        Path("/tmp/nbcompile-never").write_text(str(self.rate))


class Trainer:
    def __init__(self) -> None:
        self.model = torch.nn.Linear(3, 3)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.settings = Settings()

    def step(self, x: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = (self.model(x) * self.settings.halved()).sum()
        loss.backward()
        self.optimizer.step()
        return loss


class Counted(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:
        Path("/tmp/nbcompile-never").write_text("x")


class Squares(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, n: int) -> torch.Tensor:
        return torch.ones(3) * n


class Files(Squares):
    def __getitem__(self, n: int) -> torch.Tensor:
        return torch.frombuffer(open("/tmp/nbcompile-never").read(), dtype=torch.uint8)


def loader(dataset: Any, **options: Any) -> torch.utils.data.DataLoader[Any]:
    return torch.utils.data.DataLoader(dataset, batch_size=2, **options)


class Opened:
    def __init__(self) -> None:
        self.file = open("/tmp/nbcompile-never")  # noqa: SIM115


class Stream:
    def __init__(self) -> None:
        self.left = [1, 2]

    def __iter__(self) -> Any:
        yield Path("/tmp/nbcompile-never").read_text()


WEIGHTS = [torch.nn.Parameter(torch.ones(3))]
NAMES |= {
    "settings": Settings(), "rates": Rates(), "trainer": Trainer(), "stream": Stream(),
    "counted": Counted(WEIGHTS, 0.1),
    "opt": torch.optim.Adam(WEIGHTS), "scaler": torch.amp.GradScaler("cpu"),
}  # fmt: skip
NAMES |= {
    "loader": loader(torch.utils.data.TensorDataset(torch.ones(8, 3)), shuffle=True),
    "squares": loader(torch.utils.data.Subset(Squares(), [0, 1, 2])), "files": loader(Files()),
    "workers": loader(Squares(), num_workers=1), "collated": loader(Squares(), collate_fn=writes),
}  # fmt: skip
NAMES |= {"types": types, "Rates": Rates, "Opened": Opened}
NAMES["hooked"], NAMES["logged"] = torch.optim.SGD(WEIGHTS, 0.1), torch.optim.SGD(WEIGHTS, 0.1)
NAMES["hooked"].register_step_post_hook(lambda *_: writes(WEIGHTS[0]))
NAMES["logged"].register_step_pre_hook(lambda *_: NAMES["losses"].append(0))
NAMES["scaled"] = torch.optim.lr_scheduler.LambdaLR(NAMES["logged"], lambda n: 0.9**n)
NAMES["plan"] = torch.optim.lr_scheduler.StepLR(NAMES["opt"], 3)


@pytest.mark.parametrize(
    "source",
    [
        "opt.zero_grad()\nx.sum().backward()\nopt.step()\nplan.step()",
        "def train(m, o, x):\n    o.zero_grad(set_to_none=True)\n    m(x).sum().backward()\n"
        "    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n    o.step()\ntrain(model, opt, x)",
        "scaler.scale(x.sum()).backward()\nscaler.unscale_(opt)\nscaler.step(opt)\nscaler.update()",
        "for group in opt.param_groups:\n    group['lr'] = settings.rate * settings.halved()",
        "y = trainer.step(x) * rates.first",
        "y = x * settings.quarter + settings.doubled(2.0)",
        "logged.step()\nscaled.step()",
        "def epoch():\n    for (x,) in loader:\n        opt.zero_grad()\n        model(x).sum().backward()\n"
        "        opt.step()\nepoch()",
        "y = sum(x.sum() for x in squares)",
        "made = Rates(x.sum())",
        "made = types.SimpleNamespace(weight=x)",
        "made = torch.distributions.Normal(x, 1.0).log_prob(x)",
        "y = torch.softmax(x, -1) * 2\nprint(float(y[0]))",
        "for n in range(3):\n    losses.append(model(x).sum().item())",
        "def own(t):\n    logging.info('seen %s', t)\n    return helper(t).weight\nown(x)",
        "y = model.weight.abs() if x.sum() > 0 else x",
    ],
)
def test_may_run_again(source: str) -> None:
    assert what_may_act(compile(source, "<cell>", "exec"), NAMES) == ""


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("y = x * next(it)", "it"),
        ("q.put(x.sum())", "q"),
        ("open('f', 'w').write(str(x))", "open"),
        ("torch.save(x, 'f')", "save"),
        ("y = writes(x)", "writes"),
        ("y = calls(x)", "calls"),
        ("subprocess.run(['true'])", "run"),
        ("def own(t):\n    Path('f').touch()\n    return t\nown(x)", "Path"),
        ("getattr(x, 'tofile')(f)", "f"),
        ("x.numpy().tofile('f')", "tofile"),
        ("y = x * 2\nos.rename('a', 'b')", "os"),
        ("rename('a', 'b')", "rename"),
        ("import os\nos.rename('a', 'b')", "os"),
        ("def own(t):\n    from shutil import copy\n    copy('a', 'b')\n    return t\nown(x)", "shutil"),
        ("y = log(x)", "log"),
        ("counted.step()", "counted"),
        ("hooked.step()", "hooked"),
        ("made = Opened()", "Opened"),
        ("made = SummaryWriter('runs')", "SummaryWriter"),
        ("for x in files:\n    y = x * 2", "files"),
        ("for x in workers:\n    y = x * 2", "workers"),
        ("for x in collated:\n    y = x * 2", "collated"),
        ("settings.written()", "written"),
        ("y = x * settings.counted", "counted"),
        ("for n in settings.file:\n    y = x * n", "file"),
        ("settings.called(x)", "called"),
        ("for n in stream:\n    y = x + 1", "stream"),
        ("y = settings.nothing", "nothing"),
    ],
)
def test_may_not_run_again(source: str, name: str) -> None:
    assert what_may_act(compile(source, "<cell>", "exec"), NAMES) == name
    assert not LOOKED, "it calls nothing that it looks at"


def test_an_iterator_is_where_the_cell_left_it(notebook: Notebook) -> None:
    notebook.fresh("x = torch.randn(8, 8)\nit = iter(range(10))\nseen = []")
    notebook.run("%config NbCompile.bench_seconds = 0.2")
    body = "y = torch.sin(x)\nseen.append(next(it))\nprint(y.mean())\nz = y * 2"
    notebook.run(f"%%compile --compare eager,nbcompile\n{body}")
    assert notebook.shell.user_ns["seen"] == [0] and next(notebook.shell.user_ns["it"]) == 1
    (first, *_) = notebook.records[-1].breaks
    assert first.mend is not None and "may not be put back" in first.mend.note and not first.mend.after


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("y = own.sine(x)", ""),
        ("y = own.sine(x) * own.FACTOR", ""),
        ("y = own.Net()(x)", ""),
        ("own.update(x)", "update"),  # of a dictionary that does no harm; this one writes a file
        ("y = own.sine(x) + own.through(x)", "through"),
        ("own.gone(x)", "gone"),
    ],
)
def test_what_a_module_of_the_users_does_is_looked_at(
    source: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_of_a_user.py").write_text(
        "import torch\nfrom pathlib import Path\nFACTOR = 2\n\ndef sine(x):\n    return x.sin()\n\n"
        "def update(x):\n    Path('/tmp/nbcompile-never').write_text('x')\n\n"
        "def through(x):\n    return update(x)\n\nclass Net(torch.nn.Module):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("module_of_a_user")
    monkeypatch.delitem(sys.modules, "module_of_a_user")
    assert what_may_act(compile(source, "<cell>", "exec"), {**NAMES, "own": own}) == name


OPENED = open(os.devnull)  # noqa: SIM115


def _hook(grad: torch.Tensor) -> None:
    NAMES["losses"].append(grad.norm().item())


def _writing(grad: torch.Tensor) -> None:
    writes(grad)


def _holding() -> Any:
    file = OPENED
    return lambda grad: file.flush()


@pytest.mark.parametrize(
    ("hook", "name"),
    [
        (_hook, ""),
        (NAMES["losses"].append, ""),
        (_writing, "writes"),
        (_holding(), "file"),
        (OPENED.write, "write"),
        (functools.partial(_writing), "partial"),
    ],
)
@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_tensors(hook: Any, name: str, register: str) -> None:
    w = torch.ones(3, requires_grad=True)
    getattr(w, register)(hook)
    found = hook_that_may_act({"x": torch.ones(2), "w": w})
    assert found == (f"w's hook, which uses {name}" if name else "")


def test_a_cell_whose_backward_calls_a_hook_that_writes_is_not_timed(
    notebook: Notebook, tmp_path: Path
) -> None:
    file = tmp_path / "log"
    notebook.fresh(
        f"""
w = torch.ones(3, 3, requires_grad=True)
seen = []
w.register_hook(lambda grad: seen.append(1))
def write(parameter):
    with open({str(file)!r}, "a") as out:
        out.write("x")
""".strip()
    )
    cell = "%%compile --compare eager\ny = (w @ w).tanh().sum()\ny.backward()"
    notebook.run(cell)
    record = notebook.records[-1]
    assert notebook.shell.user_ns["seen"] == [1] and record.measurements
    notebook.run("w.register_post_accumulate_grad_hook(write)\nw.grad = None")
    notebook.run(cell)
    record = notebook.records[-1]
    assert file.read_text() == "x" and len(notebook.shell.user_ns["seen"]) == 2
    assert not record.measurements
    assert "Not timed: w's hook, which uses open, may act outside this process." in record.notes


TRAINED = """
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
opt = torch.optim.Adam(net.parameters(), 0.01)
x = torch.randn(4, 8)
class Trainer:
    last = None
    def step(self, x):
        opt.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        opt.step()
        self.last = loss.detach()
        return self.last
trainer = Trainer()
"""


def test_a_training_step_is_timed_and_leaves_what_one_step_leaves(notebook: Notebook) -> None:
    notebook.fresh(TRAINED)
    notebook.run("%config NbCompile.bench_seconds = 0.2")
    names = notebook.shell.user_ns
    before = copy.deepcopy(names["net"].state_dict())
    notebook.run("%%compile --compare eager,nbcompile\nloss = trainer.step(x)")
    record = notebook.records[-1]
    assert not [note for note in record.notes if "Not timed" in note]
    assert {each.contestant for each in record.measurements if each.counts} == {"eager", "nbcompile"}
    assert all(each.agrees for each in record.accuracy) and record.accuracy
    weights = {name: value.clone() for name, value in names["net"].state_dict().items()}
    assert names["trainer"].last is names["loss"]
    assert all(int(state["step"]) == 1 for state in names["opt"].state.values())
    names["net"].load_state_dict(before)
    names["opt"].state.clear()
    names["trainer"].step(names["x"])
    for name, value in names["net"].state_dict().items():
        assert torch.allclose(value, weights[name], atol=1e-6)
