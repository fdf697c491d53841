"""``nbcompile.export``: files that a fresh process runs, and programs that cannot be one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.bench.export.report import Check, ExportReport
from nbcompile.errors import ExportError, OptionError
from nbcompile.record.compilation import Accuracy, Compilation, Measurement


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) + x


def printing(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    print("seen")
    return y * 2


@pytest.mark.slow
def test_a_file_is_checked_in_a_fresh_process_and_held_against_compiling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, x = tmp_path / "model.pt2", torch.randn(4, 8)
    before = torch.get_rng_state()
    report = nbcompile.export(printing, x, path, dynamic={"x": {0: ("batch", 2, 64)}}, budget=0.05, threads=1)
    assert capsys.readouterr().out == "" and torch.equal(torch.get_rng_state(), before)
    assert report.agrees and [check.sizes for check in report.checks] == ["as exported", "batch=8"]
    assert all(check.accuracy for check in report.checks)
    assert report.bytes == path.stat().st_size > 0
    assert report.load > 0 and report.first > 0 and report.steady
    assert [item.contestant for item in report.compiled()] == ["nbcompile"]
    assert [item.contestant for item in report.in_turns] == ["eager", "pt2 file", "nbcompile"]
    assert all(item.steady for item in report.in_turns)
    loaded = torch.export.load(path).module()
    x = torch.randn(5, 8)
    torch.testing.assert_close(loaded(x), x.exp() * 2)
    said = " ".join(str(report).split())
    line = printing.__code__.co_firstlineno + 2
    assert f"line {line}: print() writes to the screen, which a graph cannot do (ran once, on export)" in said
    assert "x[0] = batch from 2 to 64" in said
    assert "batch=8: equal to eager in a fresh process, error " in said
    assert report.advice().startswith("Against eager: ") and "Against nbcompile: " in report.advice()
    assert report.advice() in said
    page = report._repr_mimebundle_()
    assert "<script" not in page["text/html"] and "batch=8: equal to eager" in page["text/html"]


@pytest.mark.nightly
@pytest.mark.slow
def test_an_aotinductor_package_is_checked_in_a_fresh_process(tmp_path: Path) -> None:
    report = nbcompile.export(
        Net(), (torch.randn(4, 16),), tmp_path / "model.pt2", dynamic={"x": {0: "batch"}}, package="aoti",
        compilers=(), budget=0.05, threads=1,
    )  # fmt: skip
    assert report.agrees and [check.sizes for check in report.checks] == ["as exported", "batch=8"]
    assert report.steady and report.build > report.load
    assert ("gradients", "no", "yes") in report.freedom()
    assert "Compile it too" in report.advice()


def decides(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    if y.sum() > 0:
        y = y + 1
    while y.max() > 100:
        y = y / 2
    return y.reshape(4, 2, -1)


def test_every_line_that_blocks_an_export_is_told(tmp_path: Path) -> None:
    first = decides.__code__.co_firstlineno
    with pytest.raises(ExportError) as failed:
        nbcompile.export(decides, torch.ones(8, 4), tmp_path / "m.pt2", dynamic={"x": {0: "batch"}})
    error = failed.value
    assert (error.line, error.file) == (first + 2, __file__)
    assert [item.spans[-1].line for item in error.blockers] == [first + 2, first + 4, first + 6]
    assert error.blockers[0].reason == "`if y.sum() > 0:`: Python decides by a value that only a run knows"
    assert error.blockers[2].reason.startswith("`return y.reshape(4, 2, -1)`: only holds if ")
    assert "x.size(0)" in error.blockers[2].reason
    assert str(error).startswith(f"line {first + 2}: this cannot be exported")
    assert str(error).endswith(
        "Choose with torch.where or torch.cond, or state what holds with torch._check."
    )
    assert not (tmp_path / "m.pt2").exists()


def test_what_torch_export_refuses_otherwise_has_its_line(tmp_path: Path) -> None:
    def unknown(x: torch.Tensor) -> Any:
        y = x + 1
        return y, object()

    with pytest.raises(ExportError) as failed:
        nbcompile.export(unknown, torch.ones(2), tmp_path / "m.pt2")
    assert "cannot be exported" in str(failed.value)


def test_what_the_program_raises_is_its_own(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        nbcompile.export(lambda x: x / (1 // 0), torch.ones(2), tmp_path / "m.pt2")


def test_state_is_put_back_where_an_export_fails(tmp_path: Path) -> None:
    seen: list[int] = []

    def remembers(x: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return x if x.sum() > 0 else -x

    x = torch.ones(2)
    with pytest.raises(ExportError):
        nbcompile.export(remembers, x, tmp_path / "m.pt2")
    assert seen == [] and torch.equal(x, torch.ones(2))


@pytest.mark.parametrize(
    ("path", "settings", "says"),
    [
        ("m.pt2", {"package": "onnx"}, "package 'onnx' is unknown. There are pt2 and aoti."),
        ("m.pt", {}, "the name must end in .pt2"),
        ("nowhere/m.pt2", {}, "there is no such folder"),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, path: str, settings: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        nbcompile.export(torch.sin, torch.ones(2), tmp_path / path, **settings)


# -- the advice, from figures ----------------------------------------------------------------------


def report(load: float, call: float, **changed: Any) -> ExportReport:
    """A file beside nbcompile, which takes 1 s to compile (0.2 s with full caches) and 1 ms a call."""
    times = Measurement("forward", "nbcompile", cold=1.0, warm=0.2, steady=(1e-3,))
    own = Measurement("forward", "pt2 file", warm=load, steady=(call,))
    made = ExportReport(
        "m.pt2", "pt2", 1000, (), "cpu", 1, 0.1, 0.1, load, 0.0, (call,),
        (Check("as exported", (Accuracy("exported", "output", 1e-7, 1e-7),)),),
        Compilation("r", measurements=(own, times)),
    )  # fmt: skip
    return dataclasses.replace(made, **changed)


@pytest.mark.parametrize(
    ("load", "call", "says"),
    [
        (0.1, 1e-3, "Against nbcompile: export; a new process has its first result after 0.1 s"),
        (0.1, 2e-3, "export for a process of fewer than about 900 calls, compile beyond"),
        (0.5, 1e-4, "export for speed (a call takes 100 µs, nbcompile's 1 ms), not for a quick start"),
        (0.5, 2e-3, "Against nbcompile: compile; a new process has its first result after 0.5 s"),
    ],
)
def test_the_advice_follows_the_figures(load: float, call: float, says: str) -> None:
    assert says in report(load, call).advice()
    assert "1 s with empty caches and 0.2 s with full caches" in report(load, call).advice()


@pytest.mark.parametrize(
    ("eager", "call", "says"),
    [
        (
            5e-3,
            1e-3,
            "a call takes 1 ms, eager's 5 ms, which pays for 0.1 s of start after about 25 calls.",
        ),
        (
            1e-3,
            2e-3,
            "Against eager: nothing is faster, a file only does without the source (a call takes 2 ms",
        ),
        (2e-3, 2e-3, "Against eager: the file is no faster (a call takes 2 ms, eager's 2 ms)."),
        (1.0, 1e-3, "after about 1 call."),
    ],
)
def test_the_advice_weighs_eager(eager: float, call: float, says: str) -> None:
    made = report(0.1, call)
    assert made.compilation is not None
    turns = (Measurement("forward", "eager", steady=(eager,)), *made.in_turns)
    told = dataclasses.replace(made, compilation=dataclasses.replace(made.compilation, measurements=turns))
    assert told.advice().startswith("Against eager: ") and says in told.advice()
    assert "Against nbcompile: " in told.advice() and made.advice() in told.advice()


def test_a_file_that_is_wrong_is_not_recommended() -> None:
    wrong = Check("batch=8", (Accuracy("exported", "output", 1.0, 1e-7, agrees=False, reason="error 1.0"),))
    made = report(0.1, 1e-3, checks=(wrong, Check("batch=9", error="RuntimeError: <b>no</b>")))
    assert not made.agrees
    assert made.advice() == "Do not use this file: it does not do what the program does."
    assert "batch=8: NOT what eager gives: output: error 1.0" in str(made)
    assert "batch=9: fails in a fresh process: RuntimeError: &lt;b&gt;no&lt;/b&gt;" in made.to_html()
