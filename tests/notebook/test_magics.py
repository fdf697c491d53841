"""The options, defaults, help, completion and outputs of ``%%compile`` and ``%compile``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from nbcompile.api import Compiled
from nbcompile.notebook.arguments import split_expression
from nbcompile.record.compilation import Compilation
from nbcompile.settings import CompileSettings
from nbcompile.view.facts.coaching import loop_of_recompiles
from nbcompile.view.facts.facts import verdict
from tests.nightly import few
from tests.notebook.conftest import Notebook

EAGER = "--backend eager --no-bench"


def magics(notebook: Notebook):  # type: ignore[no-untyped-def]
    return notebook.shell.find_cell_magic("compile").__self__


def record(notebook: Notebook, line: str, body: str, setup: str = "x = torch.ones(4, 4)") -> Compilation:
    notebook.fresh(setup)
    outcome = notebook.run(f"%%compile {line}\n{body}")
    assert outcome.error == ""
    return notebook.records[-1]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--bogus", "unrecognized arguments: --bogus"),
        ("--mode fast", "argument --mode: invalid choice: 'fast'"),
        ("-o fuse", "-o wants name=value, got 'fuse'"),
        ("-o nonsense=1", "option 'nonsense' is unknown"),
        ("--no-fuse a", "option no_fuse wants pairs producer:consumer"),
        ("--save out.txt", "must end in .json or .html"),
        ("--into 3x", "not a Python name"),
        ("--show all", "--show has no part 'all'"),
        ("stray", "unrecognized arguments: stray"),
        ("--backend nowhere", "backend 'nowhere' is unknown"),
    ],
)
def test_a_bad_option_is_one_line_and_nothing_runs(notebook: Notebook, line: str, says: str) -> None:
    notebook.fresh("")
    outcome = notebook.run(f"%%compile {line}\nran = True")
    assert says in outcome.error
    assert outcome.error.startswith("UsageError: ")
    assert "ran" not in outcome.namespace
    assert outcome.stderr.count("\n") <= 1 and "Traceback" not in outcome.stderr + outcome.stdout


def test_help_lists_every_option_and_runs_nothing(notebook: Notebook) -> None:
    notebook.fresh("")
    outcome = notebook.run("%%compile -h\nran = True")
    for option in ("--backend", "--mode", "--fullgraph", "--dynamic", "--no-dynamic", "-o", "--train"):
        assert option in outcome.stdout
    for option in ("--compare", "--no-bench", "--show", "--no-fuse", "--save", "--into"):
        assert option in outcome.stdout
    assert outcome.error == "" and "ran" not in outcome.namespace


def test_the_record_knows_the_cell_and_its_lines(notebook: Notebook) -> None:
    found = record(notebook, EAGER, "y = x + 1\nz = torch.relu(y)")
    assert found.cell is not None and found.cell.source == f"%%compile {EAGER}\ny = x + 1\nz = torch.relu(y)"
    assert found.backend == "eager"
    lines = {
        node.op: [s.line for s in node.spans if not s.file] for node in found.graphs[0].nodes if node.spans
    }
    assert [2] in lines.values() and [3] in lines.values()


def test_parts_of_a_cell_share_one_record_and_say_what_parted_them(notebook: Notebook) -> None:
    found = record(notebook, EAGER, "y = x + 1\nprint(1)\nz = y * 2\nw = z - 1")
    assert [graph.id for graph in found.graphs] == ["g0.fx", "g1.fx"]
    (gap,) = found.breaks
    assert gap.spans[0].line == 3 and "print" in gap.reason


@pytest.mark.nightly
def test_a_branch_on_data_comes_with_what_to_change(notebook: Notebook) -> None:
    found = record(notebook, EAGER, "y = x + 1\nif y.sum() > 0:\n    y = y * 2\nz = y - 1")
    (gap,) = found.breaks
    assert gap.spans[0].line == 3 and "torch.where" in gap.hint


def test_statements_outside_the_parts_are_no_break(notebook: Notebook) -> None:
    found = record(notebook, EAGER, "import math\nn = 3\ny = x * n\nz = y + 1\nprint(n)\nz.shape")
    assert len(found.graphs) == 1 and found.breaks == ()


def test_a_loop_body_compiles_once_for_all_steps(notebook: Notebook) -> None:
    body = "for step in range(60):\n    y = x * step + 0.5\n    z = torch.relu(y)"
    found = record(notebook, EAGER, body)
    assert len(found.graphs) == 1 and found.recompiles == ()
    assert torch.equal(notebook.shell.user_ns["z"], torch.relu(torch.ones(4, 4) * 59 + 0.5))


def test_a_short_loop_of_tensor_work_is_one_graph(notebook: Notebook) -> None:
    found = record(notebook, EAGER, "h = x\nfor i in range(3):\n    h = h * 2\nk = h + 1")
    assert len(found.graphs) == 1
    assert sum(node.kind == "compute" for node in found.graphs[0].nodes) == 4


def test_running_a_cell_again_is_a_compile_of_its_own(notebook: Notebook) -> None:
    for size in (3, 4, 5, 6, 7, 8, 9, 10, 11, 12):
        found = record(notebook, EAGER, "y = x + 1", f"x = torch.ones({size}, {size})")
        assert len(found.graphs) == 1 and found.recompiles == () and found.notes == ()
        shapes = {node.shape for node in found.graphs[0].nodes if node.shape}
        assert shapes == {(size, size)}, "the sizes of an earlier run must not make this one dynamic"


def test_a_recompile_limit_is_said_not_hidden(notebook: Notebook) -> None:
    setup = (
        "def f(t, mode):\n    return t * len(mode)\nx = torch.ones(3)\n"
        "modes = ['a' * k for k in range(1, 30)]"
    )
    body = "total = x\nfor m in modes:\n    total = total + f(x, m)"
    found = record(notebook, EAGER, body, setup)
    assert torch.equal(notebook.shell.user_ns["total"], torch.ones(3) * (1 + sum(range(1, 30))))
    assert any("recompile limit" in note or "ran eagerly" in note for note in found.notes)


def test_fullgraph_names_the_line_that_breaks(notebook: Notebook) -> None:
    notebook.fresh("x = torch.ones(3)\ndef f(t):\n    return t * 2 if t.sum() > 0 else t")
    outcome = notebook.run(f"%%compile {EAGER} --fullgraph\ny = x + 1\nz = f(y)\nu = z")
    assert outcome.error.startswith("CellError: line 3: the graph breaks here")
    assert "z" not in outcome.namespace


def test_a_function_of_the_notebook_is_a_backend(notebook: Notebook) -> None:
    notebook.run(
        "import torch\nseen = []\ndef mine(gm, inputs):\n    seen.append(len(inputs))\n    return gm.forward"
    )
    found = notebook.run("%%compile --backend mine --compare eager,mine\ny = torch.ones(3).exp()\ny")
    assert not found.error
    assert notebook.records[-1].backend == "mine" and notebook.shell.user_ns["seen"]
    assert [item.contestant for item in notebook.records[-1].measurements if item.steady] == ["eager", "mine"]


@pytest.mark.nightly
def test_a_backend_of_ones_own_is_timed_and_checked_unasked(notebook: Notebook) -> None:
    """One that returns 1.01 times the right numbers does not pass without a word."""
    notebook.fresh(
        "x = torch.ones(3)\ndef off(gm, inputs):\n    return lambda *a: [t * 1.01 for t in gm.forward(*a)]"
    )
    outcome = notebook.run("%%compile --backend off --compare eager\ny = x.exp()")
    (found,) = [item for item in notebook.records[-1].measurements if item.contestant == "off"]
    assert found.steady and not outcome.error
    assert verdict(notebook.records[-1]).text == "differs from eager in output[0]"
    notebook.run("%%compile --backend __main__:off --compare eager\ny = x.exp()")
    assert verdict(notebook.records[-1]).text == "differs from eager in output[0]"


def test_a_function_that_is_compiled_already_is_told_of(notebook: Notebook) -> None:
    setup = "inner = torch.compile(lambda x: x.sin(), backend='aot_eager'); x = torch.ones(3)\n"
    setup += "layer = torch.compile(torch.nn.Linear(3, 3), backend='aot_eager')"
    found = record(notebook, EAGER, "y = x + 1\nz = inner(y)\nlayer(z)", setup)
    inner, layer = found.notes
    own = "compiled by its own torch.compile (backend aot_eager)"
    assert (inner, layer) == (f"line 3: {own}", f"line 4: {own}")


def test_a_cell_of_which_nothing_is_compiled_says_why(notebook: Notebook) -> None:
    notebook.fresh(
        "lin = torch.nn.Linear(2, 2); opt = torch.optim.SGD(lin.parameters()); x = torch.ones(2, 2)\n"
        "import numpy\ndef raising(gm, inputs):\n    raise ValueError('not today')"
    )
    for cell, why in {
        "\nopt.step()": "line 2: .step() updates parameters (--optimizer compiles an optimizer's)",
        "\nnumpy.sin(3.0)\nopt.step()": "line 2: numpy.sin runs in Python (and 1 more)",
        "\na = 1 + 2": "nothing in it computes with tensors",
        " --backend raising\ny = x.exp()": "line 2: ValueError: not today",
    }.items():
        assert not notebook.run(f"%%compile{cell}").error
        assert verdict(notebook.records[-1]).text == f"ran eager: {why}"


def test_a_broken_backend_leaves_the_cell_running_eagerly_and_says_why(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nbcompile.notebook.cell import compiling

    def broken(module: object, inputs: object) -> object:
        raise RuntimeError("no compiler today")

    def compiled(fn: Any, settings: CompileSettings, **rest: Any) -> Compiled:
        return Compiled(fn, dataclasses.replace(settings, backend=broken), **rest)

    monkeypatch.setattr(compiling, "Compiled", compiled)
    found = record(notebook, EAGER, "y = x + 1\nz = y * 2\nz.sum()")
    assert torch.equal(notebook.shell.user_ns["z"], torch.ones(4, 4) * 4)
    (note,) = found.notes
    assert note.startswith("line 2 ran eagerly:") and "no compiler today" in note and "\n" not in note


def test_a_failure_before_the_cell_starts_leaves_it_running(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nbcompile.notebook import magics as module

    def fails(*args: object, **kwargs: object) -> object:
        raise ValueError("cannot read this")

    monkeypatch.setattr(module, "prepare", fails)
    notebook.fresh("x = torch.ones(2)")
    outcome = notebook.run(f"%%compile {EAGER}\ny = x + 1\ny.sum()")
    assert "this cell runs eagerly: ValueError: cannot read this" in outcome.stdout
    assert float(outcome.result) == 4.0


def test_the_record_has_the_number_that_the_cell_shows(notebook: Notebook) -> None:
    notebook.fresh("x = torch.ones(2)")
    result = notebook.shell.run_cell(f"%%compile {EAGER}\ny = x + 1", store_history=True)
    assert notebook.records[-1].cell.execution_count == result.execution_count


def test_save_and_into(notebook: Notebook, tmp_path: Path) -> None:
    page, data = tmp_path / "r.html", tmp_path / "r.json"
    found = record(notebook, f"{EAGER} --into rec --save {data}", "y = x + 1")
    assert notebook.shell.user_ns["rec"] is found
    assert Compilation.from_json(data.read_text()) == found
    assert json.loads(data.read_text())["title"] == f"In [{found.cell.execution_count}] · eager · default"
    record(notebook, f"{EAGER} --save {page}", "y = x + 1")
    assert page.read_text().lstrip().lower().startswith("<!doctype html")


def test_defaults_by_config(notebook: Notebook) -> None:
    notebook.fresh("x = torch.ones(2)")
    listed = notebook.run("%config NbCompile").stdout
    assert "NbCompile.backend" in listed and "NbCompile.bench_seconds" in listed
    notebook.run("%config NbCompile.backend = 'aot_eager'")
    notebook.run("%config NbCompile.bench = False")
    notebook.run("%%compile\ny = x + 1")
    assert notebook.records[-1].backend == "aot_eager" and notebook.records[-1].measurements == ()


def test_measuring_restores_everything_and_times_each_contestant(notebook: Notebook) -> None:
    setup = "x = torch.randn(8, 8)\nbn = torch.nn.BatchNorm1d(8)\nitems = []\n"
    body = "x.add_(1)\ny = bn(x)\nz = y + torch.rand(8, 8)\nitems.append(z)\nz.shape"
    notebook.run("%config NbCompile.bench_seconds = 0.05")
    notebook.run("%config NbCompile.cold = False")
    without, with_magic = notebook.both(setup, body, "--backend aot_eager --compare eager,aot_eager")
    assert with_magic.facts() == without.facts()
    assert notebook.records[-1].notes == ()
    times = {item.contestant: item for item in notebook.records[-1].measurements}
    assert set(times) == {"eager", "aot_eager"}
    assert times["aot_eager"].ran_compiled and times["aot_eager"].median


def test_training_is_measured_forward_and_backward_and_leaves_the_model_alone(notebook: Notebook) -> None:
    setup = (
        "m = torch.nn.Linear(4, 4)\nopt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)\nlosses = []"
    )
    body = (
        "for step in range(5):\n    loss = m(torch.randn(8, 4)).pow(2).mean()\n    opt.zero_grad()\n"
        "    loss.backward()\n    opt.step()\n    losses.append(loss.item())\nlosses"
    )
    notebook.run("%config NbCompile.bench_seconds = 0.05")
    notebook.run("%config NbCompile.cold = False")
    line = "--train --backend aot_eager --compare eager,aot_eager"
    without, with_magic = notebook.both(setup, body, line)
    assert with_magic.facts() == without.facts()
    assert notebook.records[-1].notes == ()
    assert {item.what for item in notebook.records[-1].measurements} == {"forward+backward"}


def test_the_line_magic_compiles_a_call_or_a_callable(notebook: Notebook) -> None:
    notebook.fresh("x = torch.ones(4)\ndef f(t, *, k='a b'):\n    return t * len(k)")
    outcome = notebook.run(f'y = %compile {EAGER} f(x, k="it\'s it").sum() + 1')
    assert outcome.error == "" and float(notebook.shell.user_ns["y"]) == 29.0
    assert len(notebook.records[-1].graphs) == 1
    notebook.run(f"g = %compile {EAGER} f")
    compiled = notebook.shell.user_ns["g"]
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0)) and compiled.ran_compiled
    assert "not callable" in notebook.run(f"%compile {EAGER} x.shape").error
    assert "wants a callable" in notebook.run("%compile").error


def test_the_expression_is_found_after_the_options(notebook: Notebook) -> None:
    parse = magics(notebook)._parser.parse_argstring
    for line, expression in {
        "f(x)": "f(x)",
        "--backend eager f( x, 'a  b' )": "f( x, 'a  b' )",
        "--no-fuse model": "model",
        "--no-fuse a:b model": "model",
        "-o fuse=false f(-x)": "f(-x)",
    }.items():
        assert split_expression(line, parse)[1] == expression


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("%%compile --ba", "--backend"),
        ("%%compile --backend ind", "inductor"),
        ("%%compile --mode max", "max-autotune"),
        ("%%compile --compare eager,ind", "eager,inductor"),
        ("%%compile -o no", "no_fuse="),
        ("%%compile --show ker", "kernels"),
        ("%compile --tr", "--train"),
    ],
)
def test_tab_completion(notebook: Notebook, text: str, offered: str) -> None:
    _, matches = notebook.shell.complete(None, text, len(text))
    assert any(
        text + match == text.rpartition(" ")[0] + " " + offered or match == offered for match in matches
    ) or any(
        (text[: len(text) - cut] + match).endswith(" " + offered)
        for match in matches
        for cut in range(len(text))
    )


def test_unloading_leaves_nothing_behind(notebook: Notebook) -> None:
    shell = notebook.shell
    shell.run_line_magic("unload_ext", "nbcompile")
    counts = (
        len(shell.input_transformers_cleanup),
        len(shell.ast_transformers),
        len(shell.Completer.custom_matchers),
    )
    for _ in range(2):
        shell.run_line_magic("load_ext", "nbcompile")
        shell.run_line_magic("reload_ext", "nbcompile")
        shell.run_line_magic("unload_ext", "nbcompile")
    assert counts == (
        len(shell.input_transformers_cleanup),
        len(shell.ast_transformers),
        len(shell.Completer.custom_matchers),
    )
    assert shell.find_cell_magic("compile") is None
    assert not [c for c in shell.configurables if type(c).__name__ == "NbCompile"]
    shell.run_line_magic("load_ext", "nbcompile")


def test_other_cell_magics_go_with_it(notebook: Notebook) -> None:
    notebook.fresh("x = torch.ones(3)")
    outcome = notebook.run(f"%%time\n%%compile {EAGER}\ny = x + 1\ny.sum()")
    assert outcome.error == "" and float(outcome.result) == 6.0 and notebook.records[-1].graphs
    outcome = notebook.run(f"%%capture out\n%%compile {EAGER}\nz = x + 1\nprint('seen')")
    assert outcome.error == "" and "z" in outcome.namespace
    assert "seen" in outcome.namespace["out"].stdout
    outcome = notebook.run(f"%%compile {EAGER}\n%%time\nu = x + 2")
    assert outcome.error == "" and "u" in outcome.namespace
    notebook.shell.run_cell_magic("compile", EAGER, "v = x * 3")
    assert float(notebook.shell.user_ns["v"].sum()) == 9.0
    outcome = notebook.run(f"%%timeit -n1 -r1\n%%compile {EAGER}\nq = x + 1")
    assert outcome.error == "" and "q" not in outcome.namespace


def test_the_stored_record_is_whole_whatever_is_shown(notebook: Notebook) -> None:
    from nbcompile.notebook.display import show
    from nbcompile.notebook.progress import OutputPlace
    from nbcompile.view import MIME

    found = record(notebook, EAGER, "y = x + 1")

    sent = []

    class Watched(OutputPlace):
        def _send(self, bundle, metadata):  # type: ignore[no-untyped-def]
            sent.append(bundle)

    place = Watched(notebook.shell)
    place.live = True
    options = magics(notebook)._defaults()
    show(found, type(options)(show=("times",)), place)
    assert Compilation.from_dict(json.loads(json.dumps(sent[0][MIME]))) == found
    assert {"text/html", "text/plain", MIME} == set(sent[0])
    show(found, type(options)(show=("cell",)), place)
    times, cell = (bundle["text/plain"] for bundle in sent)
    assert "Your cell" in cell and "Your cell" not in times
    assert times.splitlines()[:3] == cell.splitlines()[:3], "the head tells of the whole record"
    for name in ("Your cell", "Guards", "Passes"):
        assert (name in sent[1]["text/html"]) is (name == "Your cell")


@few(2)
@pytest.mark.parametrize("mode", ["all", "last", "last_expr_or_assign", "none"])
def test_every_setting_of_what_is_displayed(notebook: Notebook, mode: str) -> None:
    before = notebook.shell.ast_node_interactivity
    try:
        notebook.shell.ast_node_interactivity = mode
        body = "x + 1\ny = x * 2\nfor i in range(2):\n    y + i\nz = y.sum()"
        without, with_magic = notebook.both("x = torch.ones(2)", body)
    finally:
        notebook.shell.ast_node_interactivity = before
    assert with_magic.facts() == without.facts()


def test_results_are_called_as_the_cell_calls_them(notebook: Notebook) -> None:
    notebook.fresh(
        "x = torch.ones(4, 4)\ndef wrong(gm, inputs):\n"
        "    return lambda *given: tuple(each * 1.01 for each in gm(*given))"
    )
    line = "%%compile --backend wrong --compare eager,wrong"
    notebook.run(f"{line}\ny = torch.relu(x @ x)\nz = y.sum(1)")
    record = notebook.records[-1]
    assert {each.output for each in record.accuracy} == {"y", "z"}
    assert verdict(record).text == "differs from eager in y and z"
    notebook.run(f"{line}\ny = torch.relu(x @ x)\nprint(1)\ny.sum(1)")
    assert {each.output for each in notebook.records[-1].accuracy} == {"y", "the value shown"}


def test_a_recompile_limit_is_told_of_the_line_and_once(
    notebook: Notebook, capfd: pytest.CaptureFixture[str]
) -> None:
    notebook.fresh("x = torch.ones(3)\nkept = {k: torch.ones(k + 1) for k in range(12)}")
    body = "y = x + 1\nprint(1)\nfor k in range(12):\n    if kept[k].sum() > 3: kept[k] *= 2"
    notebook.run(f"%%compile --no-bench\n{body}")
    record = notebook.records[-1]
    assert len(record.recompiles) == 7 and all(each.graph for each in record.recompiles)
    assert any("reached at cell line 5: " in note for note in record.notes)
    assert not any("fullgraph" in note or "cell_" in note for note in record.notes)
    (told,) = loop_of_recompiles(record)
    assert told.startswith("cell line 5 was compiled again 7 times: k == ")
    assert "hit config.recompile_limit" not in capfd.readouterr().err


def test_a_text_that_changes_is_not_to_be_a_tensor(notebook: Notebook) -> None:
    notebook.fresh("kept = {k: torch.ones(3) for k in ('a', 'b', 'c', 'd')}")
    notebook.run("%%compile --no-bench\nfor k, v in list(kept.items()) * 5:\n    kept[k] = v * 2")
    (told,) = loop_of_recompiles(notebook.records[-1])
    assert "Cure: a text changes: look up what it names" in told
