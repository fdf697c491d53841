"""Play: what a live kernel answers to the explorer, asked directly."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from nbcompile.errors import NbcompileError, OptionError, PlayError
from nbcompile.notebook import magics
from nbcompile.notebook.arguments import CellOptions
from nbcompile.notebook.play.play import Plays
from nbcompile.notebook.play.programs import CellProgram
from nbcompile.notebook.play.running import PlaySettings
from nbcompile.record.compilation import Compilation
from tests.nightly import few
from tests.notebook.conftest import Notebook, plain

SETUP = """
torch.manual_seed(0)
x = torch.randn(64, 48)
w = torch.randn(48, requires_grad=True)
"""
CELL = "y = torch.softmax(x * w, -1)\nz = (y + 1).relu()"


class Player:
    """One compiled cell, and the requests of an explorer that shows it."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook
        self.told: list[str] = []
        self.record: Compilation

    def cell(self, cell: str = CELL, setup: str = SETUP, line: str = "--no-bench") -> Compilation:
        self.notebook.fresh(setup)
        self.notebook.records.clear()
        outcome = self.notebook.run(f"%%compile {line}\n{cell}")
        assert not outcome.error, outcome.error
        (self.record,) = self.notebook.records
        return self.record

    @property
    def names(self) -> dict[str, Any]:
        return self.notebook.shell.user_ns

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        plays = magics._loaded[id(self.notebook.shell)].plays
        asked = {"record": self.record.id, **params}
        return plays.answer(method, asked, lambda text, done, of: self.told.append(text))

    def change(self, **params: Any) -> Compilation:
        return Compilation.from_dict(self.ask("change", **{"bench": False, **params})["payload"])


@pytest.fixture
def player(notebook: Notebook) -> Player:
    return Player(notebook)


def pairs_of(record: Compilation, **fields: Any) -> list[list[str]]:
    names = {node.id: node.name for graph in record.graphs for node in graph.nodes}
    chosen = [d for d in record.decisions if all(getattr(d, k) == v for k, v in fields.items())]
    return [[names[d.producer], names[d.consumer]] for d in chosen]


def agrees(record: Compilation) -> bool:
    return bool(record.accuracy) and all(row.agrees for row in record.accuracy)


@pytest.mark.nightly
def test_the_controls_say_what_there_is_to_change(player: Player) -> None:
    player.cell()
    found = player.ask("controls")
    assert found["live"] and not found["reason"]
    assert (found["backend"], found["mode"], found["dtype"], found["dynamic"]) == (
        "nbcompile", "default", "float32", None,
    )  # fmt: skip
    assert {"inductor", "aot_eager"} <= set(found["backends"])
    sizes = {size["name"]: size for size in found["sizes"]}
    assert sizes["64"]["where"] == ["x[0]"] and sizes["48"]["where"] == ["x[1]", "w[0]"]
    assert sizes["64"]["low"] == 1 and sizes["64"]["high"] > 64
    assert not player.ask("controls", record="unheard of")["live"]


@pytest.mark.nightly
def test_a_fusion_toggle_changes_the_kernels_and_not_the_result(player: Player) -> None:
    record = player.cell()
    pairs = pairs_of(record, accepted=True)
    apart = player.change(no_fuse=pairs[:1])
    assert len(apart.kernels) > len(record.kernels)
    assert agrees(apart) and apart.id != record.id
    assert [d.overruled for d in apart.decisions if not d.accepted].count(True) >= 1
    again = player.change(record=apart.id, no_fuse=[])
    assert len(again.kernels) == len(record.kernels) and again.id == record.id
    assert len(player.change(fuse=False).kernels) == 7
    kept = player.change(record=apart.id, mode="max-autotune")
    assert kept.mode == "max-autotune" and len(kept.kernels) == len(apart.kernels)


def test_what_only_costs_can_be_forced(player: Player) -> None:
    setup = "x = torch.randn(300)\ndef f(x):\n    y = x.exp()\n    return y[:, None] * y"
    record = player.cell("z = f(x)", setup)
    forceable = pairs_of(record, forceable=True)
    assert forceable and len(record.kernels) == 2
    forced = player.change(force_fuse=forceable)
    assert len(forced.kernels) == 1 and agrees(forced)
    assert any(d.accepted and d.overruled for d in forced.decisions)
    apart = player.change(record=forced.id, no_fuse=forceable)
    assert len(apart.kernels) == 2 and not player.ask("controls", record=apart.id)["force_fuse"]


@pytest.mark.nightly
def test_times_are_taken_where_asked_for(player: Player) -> None:
    player.cell()
    record = player.change(bench=True, backend="aot_eager")
    assert [m.contestant for m in record.measurements] == ["eager", "aot_eager"]
    assert all(m.steady for m in record.measurements)
    assert "compiling" in player.told


@pytest.mark.nightly
def test_what_is_timed_anew_is_called_what_it_is(player: Player) -> None:
    player.cell("y = x\nfor k in range(30):\n    y = torch.softmax(y * w, -1)")
    found = player.change(bench=True, bench_seconds=0.05)
    assert {each.what for each in found.measurements} == {"one pass"}
    assert found.timed_part is not None and found.timed_part.loops[0].passes == 30


def test_another_size_and_type(player: Player) -> None:
    player.cell()
    small = player.change(sizes={"64": 5})
    inputs = {n.name: n.shape for g in small.graphs if g.stage == "fx" for n in g.nodes if n.kind == "input"}
    assert (5, 48) in inputs.values() and agrees(small)
    assert "An extent of 64 was made 5" in small.notes[-1]
    half = player.change(record=small.id, dtype="bfloat16")
    kinds = {(n.shape, n.dtype) for g in half.graphs if g.stage == "fx" for n in g.nodes if n.kind == "input"}
    assert ((5, 48), "bfloat16") in kinds and agrees(half)
    sizes = {size["name"]: size["extent"] for size in player.ask("controls", record=half.id)["sizes"]}
    assert sizes == {"64": 5, "48": 48}
    back = player.change(record=half.id, sizes={"64": 64}, dtype="float32")
    assert "float32" in back.notes[-1] and len(back.notes) == 1
    assert player.names["x"].shape == (64, 48) and player.names["x"].dtype == torch.float32


MODEL = """
torch.manual_seed(0)
model = torch.nn.Linear(48, 32)
x = torch.randn(6, 48)
"""


def test_a_size_that_is_not_free_says_so(player: Player) -> None:
    player.cell("y = model(x).relu()", MODEL)
    names = {size["name"] for size in player.ask("controls")["sizes"]}
    assert names == {"6", "48"}
    assert agrees(player.change(sizes={"6": 17}))
    with pytest.raises(PlayError, match="48 cannot become 50: the program itself then raises") as caught:
        player.change(sizes={"48": 50})
    assert "not free" in caught.value.advice
    half = player.change(dtype="bfloat16")
    assert agrees(half) and next(player.names["model"].parameters()).dtype == torch.float32


TRAINING = """
torch.manual_seed(0)
model = torch.nn.Linear(48, 32)
x = torch.randn(6, 48)
seen = []
"""


def test_the_session_is_left_as_it_was(player: Player) -> None:
    body = "loss = torch.nn.functional.dropout(model(x), 0.5).pow(2).mean()\nloss.backward()"
    player.cell(body, TRAINING)
    before = plain(player.names["model"]), plain(player.names["loss"]), list(player.names)
    state, python = torch.get_rng_state(), random.getstate()
    for changes in ({"fuse": False}, {"backend": "aot_eager", "bench": True}, {"sizes": {"6": 9}}):
        record = player.change(**changes)
        assert agrees(record), record.accuracy
        assert any(row.output.endswith("weight.grad") for row in record.accuracy)
    assert (plain(player.names["model"]), plain(player.names["loss"]), list(player.names)) == before
    assert torch.equal(torch.get_rng_state(), state) and random.getstate() == python


def test_what_a_change_prints_is_not_seen(player: Player, capsys: pytest.CaptureFixture[str]) -> None:
    player.cell("y = x + 1\nprint('hello')\nz = y * 2\nprint('again', z.sum())", "x = torch.ones(5)")
    capsys.readouterr()
    assert agrees(player.change(fuse=False))
    assert capsys.readouterr().out == ""


def test_names_that_are_gone_or_changed(player: Player) -> None:
    player.cell()
    player.names["x"] = torch.ones(3)
    with pytest.raises(PlayError, match=r"x was float32 \[64, 48\] on cpu, and is float32 \[3\] on cpu now"):
        player.change(fuse=False)
    del player.names["x"]
    found = player.ask("controls")
    assert not found["live"] and "x is gone" in found["reason"] and "Run the cell again" in found["reason"]
    with pytest.raises(PlayError, match="Run the cell again"):
        player.change(fuse=False)


def test_tensors_are_not_kept_alive(player: Player) -> None:
    import gc
    import weakref

    player.cell("y = x * 2\nz = y.sum()", "x = torch.ones(10)")
    dead = weakref.ref(player.names["x"])
    player.names["x"] = None
    gc.collect()
    assert dead() is None


@few(1)
@pytest.mark.parametrize(
    "params",
    [{"backend": "none"}, {"mode": "fast"}, {"dynamic": "maybe"}, {"no_fuse": "a:b"}, {"no_fuse": [["a"]]},
     {"sizes": [1]}, {"sizes": {"64": "many"}}, {"sizes": {"64": 0}}, {"dtype": "int8"}],
    ids=str,
)  # fmt: skip
def test_settings_that_cannot_be_meant(player: Player, params: dict[str, Any]) -> None:
    player.cell()
    with pytest.raises((OptionError, PlayError)):
        player.change(**params)


def test_only_the_last_programs_are_kept(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbcompile.notebook.play.play.PROGRAMS", 8)
    plays = Plays()

    def live(record: str) -> bool:
        return bool(plays.controls({"record": record}, lambda *_: None)["live"])

    def remember(number: int) -> CellProgram:
        program = CellProgram([], {}, None, CellOptions(), train=False)
        plays.remember(f"record {number}", program)
        return program

    first = remember(0)
    plays.remember("changed", first, PlaySettings(CellOptions(), dtype="bfloat16"))
    for number in range(1, 8):
        remember(number)
    assert live("changed"), "the first of eight; used now, with all its records"
    remember(8)
    assert live("record 0") and live("changed") and not live("record 1") and live("record 2")
    player.record = Compilation(id="any")
    with pytest.raises(NbcompileError, match="nonsense"):
        player.ask("nonsense")


def test_a_call_can_be_played_with(player: Player) -> None:
    player.notebook.fresh(SETUP + "def f(x, w):\n    return torch.softmax(x * w, -1)\n")
    player.notebook.records.clear()
    player.notebook.run("%compile --no-bench f(x, w)")
    (player.record,) = player.notebook.records
    changed = player.change(fuse=False)
    assert len(changed.kernels) > len(player.record.kernels) and agrees(changed)


def test_a_compiled_function_can_be_played_with(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anywidget")
    import nbcompile
    from nbcompile.errors import ExplorerError
    from nbcompile.notebook.play import play, widget

    monkeypatch.setattr(widget, "static_file", lambda name: name)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, -1)

    x = torch.randn(8, 16)
    compiled = nbcompile.compile(f, options={"no_fuse": [("mul", "max")]}, dynamic=False)
    compiled(x)
    shown = nbcompile.explore(compiled, x)

    def ask(method: str, **params: Any) -> dict[str, Any]:
        asked = {"record": shown.payload["id"], **params}
        return play.SESSION.answer(method, asked, lambda text, done, of: None)

    found = ask("controls")
    assert found["live"] and found["no_fuse"] == [["mul", "max"]] and found["dynamic"] is False
    changed = ask("change", no_fuse=[], bench=False)["payload"]
    kernels = [Compilation.from_dict(payload).kernels for payload in (changed, shown.payload)]
    assert len(kernels[0]) < len(kernels[1])
    assert not play.SESSION.answer(
        "controls", {"record": nbcompile.explore(compiled).payload["id"]}, lambda *_: None
    )["live"]
    del x
    assert "an input is gone" in ask("controls")["reason"]
    del compiled
    assert "compiled function is gone" in ask("controls")["reason"]
    with pytest.raises(ExplorerError, match="type int is no compilation"):
        nbcompile.explore(3)


@pytest.mark.nightly
def test_a_program_is_compiled_for_another_chip_and_back(player: Player) -> None:
    """Its kernels are Triton's then, of the same captured operations; what it computes stays eager's."""
    record = player.cell()
    found = player.ask("controls")
    assert found["target"] == "auto" and {"auto", "cpu", "cuda:90"} <= set(found["targets"])
    for name in ("cuda:90", "cpu"):
        made = player.change(target=name)
        language = "triton" if name == "cuda:90" else "c"
        assert made.kernels and all(language in kernel.sources for kernel in made.kernels)
        assert [node.id for node in made.graphs[0].nodes] == [node.id for node in record.graphs[0].nodes]
        assert made.options["target"] == name and made.id != record.id
    with pytest.raises(OptionError, match="target"):
        player.change(target="cuda:1")
