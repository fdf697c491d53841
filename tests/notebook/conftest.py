"""A real IPython shell in this process, with the extension loaded, and a way to watch a cell run."""

from __future__ import annotations

import dataclasses
import random
import re
import traceback
import types
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("IPython")

import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

_CELL_NAME = re.compile(r"<ipython-input-[^>]*>")
_RESUMED = re.compile(r"torch_dynamo_resume_in_(\w+)_at_\d+(\(.*\))?")  # Dynamo's name for a function's rest
_OURS = re.compile(r"    \[\.\.\. skipping hidden \d+ frame\]\n\n")  # all that a traceback says of us
_TIME = re.compile(r"(CPU|Wall) times?:.*")
_HIDDEN = {"In", "Out", "exit", "quit", "get_ipython", "open"}


@dataclasses.dataclass
class Outcome:
    """All that a user can see of a cell: compare two with ``==`` on :meth:`facts`."""

    namespace: dict[str, Any]
    stdout: str
    result: Any
    underscore: Any
    error: str
    frames: list[tuple[int, str]]
    random: tuple[Any, ...]
    displays: list[dict[str, Any]]
    stderr: str

    def facts(self) -> dict[str, Any]:
        return {
            "namespace": {name: plain(value) for name, value in self.namespace.items()},
            "aliases": aliases(self.namespace),
            "stdout": self.stdout,
            "result": plain(self.result),
            "_": plain(self.underscore),
            "error": self.error,
            "frames": self.frames,
            "random": plain(self.random),
        }


def near(value: Any) -> Any:
    """Facts with every number cut to three decimals."""
    return re.sub(
        r"-?\d+\.\d+(e-?\d+)?",
        lambda found: f"{float(found.group()) + 0.0:.3f}".replace("-0.000", "0.000"),
        repr(value),
    )


def plain(value: Any) -> Any:
    """A value as something ``==`` compares: tensors become dtype, strides and exact bytes."""
    if isinstance(value, torch.nn.Module):
        grads = {name: plain(p.grad) for name, p in value.named_parameters()}
        return ("module", plain(dict(value.state_dict())), grads, value.training)
    if isinstance(value, torch.Tensor):
        data = value.detach()
        return ("tensor", str(value.dtype), tuple(value.shape), value.requires_grad, repr(data.tolist()))
    if isinstance(value, dict):
        return ("dict", [(repr(plain(key)), plain(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return (type(value).__name__, [plain(item) for item in value])
    if isinstance(value, types.FunctionType | type | types.ModuleType):
        return (type(value).__name__, value.__name__)
    if type(value).__module__ == "numpy":
        return repr(value)
    if type(value).__module__ in ("builtins", "torch"):
        return (
            repr(value)
            if not isinstance(value, types.GeneratorType | types.CodeType)
            else type(value).__name__
        )
    return (type(value).__name__, plain(getattr(value, "__dict__", {})))


def aliases(namespace: dict[str, Any]) -> list[list[str]]:
    """Which names hold one and the same object."""
    groups: dict[int, list[str]] = {}
    for name, value in namespace.items():
        if isinstance(value, torch.Tensor | list | dict | torch.nn.Module):
            groups.setdefault(id(value), []).append(name)
    return sorted(sorted(group) for group in groups.values() if len(group) > 1)


class Notebook:
    """Runs cells in the shell; :meth:`both` runs one with and without the magic from the same start."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.records: list[Any] = []  # each Compilation shown, instead of showing it

    def run(self, cell: str) -> Outcome:
        with capture_output() as seen:
            result = self.shell.run_cell(cell, store_history=True)
        error = result.error_in_exec or result.error_before_exec
        frames = []
        if error is not None:
            frames = [
                (frame.lineno or 0, _RESUMED.sub(r"\1", frame.name))
                for frame in traceback.extract_tb(error.__traceback__)
                if frame.filename.startswith("<ipython-input") or "ipykernel_" in frame.filename
            ]
        names = self.shell.user_ns
        return Outcome(
            {k: v for k, v in names.items() if k not in _HIDDEN and not k.startswith("_")},
            _RESUMED.sub(r"\1(t)", _OURS.sub("", _TIME.sub("time", seen.stdout))),
            result.result,
            names.get("_"),
            "" if error is None else _CELL_NAME.sub("cell", f"{type(error).__name__}: {error}"),
            frames,
            (torch.get_rng_state(), random.getstate()),
            [output.data for output in seen.outputs],
            seen.stderr,
        )

    def fresh(self, setup: str) -> None:
        self.shell.run_line_magic("reset", "-f -s")
        self.shell.execution_count = 1
        torch.manual_seed(7)
        random.seed(7)
        result = self.shell.run_cell("import torch\n" + setup)
        assert result.success, setup

    def both(
        self, setup: str, body: str, line: str = "--backend eager --no-bench"
    ) -> tuple[Outcome, Outcome]:
        self.fresh(setup)
        plain_run = self.run(f"# %%compile {line}\n{body}")
        self.fresh(setup)
        compiled = self.run(f"%%compile {line}\n{body}")
        return plain_run, compiled


@pytest.fixture(scope="session")
def session_shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    assert shell.history_manager is not None
    shell.history_manager.enabled = False  # of a shell, too, that another test has made in this process
    shell.run_line_magic("colors", "nocolor")
    yield shell


@pytest.fixture
def notebook(session_shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    from nbcompile.notebook import magics

    notebook = Notebook(session_shell)
    monkeypatch.setattr(magics, "show", lambda record, options, place: notebook.records.append(record))
    session_shell.run_line_magic("load_ext", "nbcompile")
    yield notebook
    session_shell.run_line_magic("unload_ext", "nbcompile")
    session_shell.config.pop("NbCompile", None)  # what %config set outlives the extension
