"""What of a cell is timed, and that nothing else is called the cell."""

from __future__ import annotations

import pytest

from nbcompile.record.compilation import Compilation, TimedCellPart
from nbcompile.record.measured import TimedLoop
from nbcompile.record.provenance import Links
from nbcompile.view import to_text
from nbcompile.view.facts.facts import error_line, facts, verdict
from tests.nightly import few
from tests.notebook.conftest import Notebook

SETUP = (
    "import time, random, torch.nn as nn\nx = torch.randn(16, 16)\n"
    "m = nn.Sequential(nn.Linear(16, 16), nn.GELU())\nt = torch.compile(m, backend='eager')"
)


def measured(
    notebook: Notebook, body: str, line: str = "--compare eager,nbcompile", setup: str = SETUP
) -> Compilation:
    notebook.fresh(setup)
    notebook.run("%config NbCompile.bench_seconds = 0.05")
    notebook.run("%config NbCompile.cold = False")
    outcome = notebook.run(f"%%compile {line}\n{body}\n")
    assert outcome.error == "", outcome.error
    found = notebook.records[-1]
    assert isinstance(found, Compilation)
    return found


def part_of(notebook: Notebook, body: str, line: str = "--compare eager,nbcompile") -> TimedCellPart:
    found = measured(notebook, body, line).timed_part
    assert found is not None
    return found


def test_a_cell_that_is_compiled_whole_is_timed_whole(notebook: Notebook) -> None:
    record = measured(notebook, "def f(v):\n    return v.sin()\ny = f(x)\nz = y\nw = z * 2")
    assert record.timed_part is None
    assert {each.what for each in record.measurements} == {"cell"}


def test_a_line_that_python_runs_is_not_in_the_times_and_that_is_said(notebook: Notebook) -> None:
    record = measured(notebook, "y = torch.relu(x)\ntime.sleep(0.03)\nz = y * 2")
    part = record.timed_part
    assert part is not None and part.python == (3,) and not part.loops
    assert part.python_seconds is not None and 0.03 <= part.python_seconds < 0.5
    assert {each.what for each in record.measurements} == {"compiled lines"}
    assert "line 3 runs in Python and is not timed" in verdict(record).text


@few(3)
@pytest.mark.parametrize(
    ("body", "python"),
    [
        ("z = x * 2; time.sleep(0.03)\nu = z + 1", (2,)),
        ("z = x * 2\ntime.sleep(0.03); u = z + 1", (3,)),
        ("big = nn.Linear(16, 99); o = big(x)", (2,)),
        ("with torch.no_grad(): a = x * 2; print(a.mean()); b = a * 2", (2,)),
        ("z = x * 2\nif z.sum() < 1e9: u = z * 2", (3,)),
        ("for i in range(3): y = x * i; print(i)", (2,)),
        ("z = (x\n     * 2); time.sleep(0.03)", (3,)),
    ],
)
def test_what_shares_a_line_with_what_is_timed_is_not_in_the_times(
    notebook: Notebook, body: str, python: tuple[int, ...]
) -> None:
    """They were the cell's, 50 ms of ``time.sleep`` in 94 µs."""
    record = measured(notebook, body)
    assert record.timed_part is not None and record.timed_part.python == python
    of = "line" if "\n     *" in body else "part of line"
    assert f"{of} {python[0]} runs in Python and is not timed" in verdict(record).text


@pytest.mark.parametrize("line", ["k = (x > 1).sum().item(); u = x * k", "loss_of(x).backward(); u = x * 2"])
def test_what_is_asked_of_a_timed_expression_is_in_the_times(notebook: Notebook, line: str) -> None:
    loss = "def loss_of(t):\n    return m(t).sum()"
    part = measured(notebook, f"{loss}\n{line}").timed_part
    assert part is None


def test_a_model_on_such_a_line_is_not_in_the_times(notebook: Notebook) -> None:
    assert part_of(notebook, "o = m(x * random.random())\nl = o.pow(2).mean()").python == (2,)
    assert part_of(notebook, "o = t(x)\nl = o.pow(2).mean()").python == (2,), "it has its own torch.compile"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("d.train()\ny = d(x)\nd.eval()\nz = d(x) + 1", "d.training == True"),
        (
            "hook = m.register_forward_hook(lambda m, i, o: o @ o.T)\ny = m(x)\nhook.remove()\nz = m(x) + 1",
            "len(m._forward_hooks) != 1",
        ),
        (
            "torch.set_default_dtype(torch.float64)\ny = torch.ones(9) * 2\n"
            "torch.set_default_dtype(torch.float32)\nz = torch.ones(9) * 2",
            "torch's default_dtype",
        ),
        ("c['k'] = id(c) and 5\ny = x[:c['k']] * 2\nc['k'] = id(c) and 3\nz = x[:c['k']] * 2", "c['k'] == 5"),
    ],
    ids=["mode", "hook", "setting", "entry"],
)
def test_what_a_later_line_has_changed_is_not_timed_as_another_program(
    notebook: Notebook, body: str, what: str
) -> None:
    record = measured(notebook, f"d, c = nn.Dropout(0.5), {{}}\n{body}")
    part = record.timed_part
    assert part is not None and part.kept == (4,)
    assert "line 4 cannot be run again and is not timed" in verdict(record).text
    (told,) = [note for note in record.notes if note.startswith("Not timed")]
    assert told.startswith("Not timed: line 4, ") and what in told
    assert {each.output for each in record.accuracy} >= {"z"} and "y" not in {
        each.output for each in record.accuracy
    }


def test_a_later_line_that_changes_nothing_keeps_all_in_the_times(notebook: Notebook) -> None:
    record = measured(notebook, "y = m(x)\nprint(y.shape)\nm.note = 'seen'\nz = m(x) + 1")
    assert record.timed_part is not None and record.timed_part.kept == ()
    assert not any(note.startswith("Not timed") for note in record.notes)
    counting = (
        "class Counting(nn.Module):\n    n = 0\n    def forward(self, t):\n        self.n += 1\n"
        "        return t * self.n\nc = Counting()\ny = c(x)\nprint(c.n)\nz = y + 1"
    )
    record = measured(notebook, counting)
    assert record.timed_part is not None and record.timed_part.kept == ()


def test_of_a_loop_that_is_run_step_by_step_one_pass_is_timed(notebook: Notebook) -> None:
    part = part_of(notebook, "y = x\nfor k in range(40):\n    y = y * 0.99 + 0.01\nz = y.sum()")
    assert part.loops == (TimedLoop(3, 40),) and not part.single and part.python == ()
    record = measured(notebook, "y = x\nfor k in range(40):\n    y = y * 0.99 + 0.01")
    assert record.timed_part == TimedCellPart(loops=(TimedLoop(3, 40),), single=True)
    assert {each.what for each in record.measurements} == {"one pass"}
    assert verdict(record).text.startswith("one pass of the loop in line 3 (of 40): ")
    one_line = part_of(notebook, "y = x\nwhile y.sum() < 1e9: y = y.abs() * 3")
    assert one_line.single and one_line.loops[0].line == 3 and one_line.loops[0].passes > 5


def test_a_pass_of_a_loop_that_is_compiled_again_runs_one_graph(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    body = "res = {}\nfor k in range(40):\n    res[k] = torch.softmax(x * k, -1)"
    assert not notebook.run(f"%%compile --recompile-limit 2 --compare eager\n{body}\n").error
    record = notebook.records[-1]
    assert len(notebook.shell.user_ns["res"]) == 40 and len(record.of_stage("fx")) == 2
    assert record.timed_part is not None and record.timed_part.loops == (TimedLoop(3, 40),)
    kernel = record.kernels[0]
    assert facts(record, Links(record)).moved == kernel.bytes_read + kernel.bytes_written


def test_a_loop_without_anything_compiled_is_python(notebook: Notebook) -> None:
    part = part_of(notebook, "n = 0\nfor k in range(40):\n    n += k\ny = x * n")
    assert part.python == (3,) and not part.loops


def test_training_says_what_it_leaves_out(notebook: Notebook) -> None:
    body = "for k in range(20):\n    o = m(x).pow(2).mean()\n    o.backward()\n    print(o.item())"
    record = measured(notebook, body)
    part = record.timed_part
    assert part is not None and part.python == (5,) and part.loops == (TimedLoop(2, 20),) and part.single
    assert part.python_seconds is None, "gradients were computed from Python"
    assert {each.what for each in record.measurements} == {"forward+backward"}


def test_train_of_what_needs_no_gradient_is_not_called_backward(notebook: Notebook) -> None:
    record = measured(notebook, "y = torch.relu(x)", "--train --compare eager,nbcompile")
    assert {each.what for each in record.measurements} == {"cell"}
    assert any("nothing here needs a gradient" in note for note in record.notes)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("y = torch.relu(x)", "nothing needs a gradient."),
        ("y = m(x).sum()", "the cell calls none, and --train runs it for the times alone."),
        ("m(x).sum()", "the cell calls none, and --train runs it for the times alone."),
        ("y = m(x).sum()\ny.backward()", ""),
    ],
)
def test_train_without_times_says_that_there_is_no_backward(notebook: Notebook, body: str, why: str) -> None:
    found = [note for note in measured(notebook, body, "--train --no-bench").notes if "backward" in note]
    assert found == ([f"There is no backward pass here: {why}"] if why else [])


def test_train_knows_the_backward_that_the_cell_does_not_call(notebook: Notebook) -> None:
    record = measured(notebook, "y = torch.tanh(m(x)).sum()", "--train --compare eager,nbcompile")
    assert {each.what for each in record.measurements} == {"forward+backward"}
    assert record.of_stage("backward") and any(".bw." in kernel.id for kernel in record.kernels)
    timed = {node.id for node in record.fused_nodes if node.seconds is not None}
    assert any(".bw." in id for id in timed)
    called = measured(notebook, "y = torch.tanh(m(x)).sum()\ny.backward()")
    assert [graph.id for graph in called.graphs] == [graph.id for graph in record.graphs]
    assert {kernel.id for kernel in called.kernels} == {kernel.id for kernel in record.kernels}


def test_what_asks_for_values_is_timed_as_it_ran(notebook: Notebook) -> None:
    loop = "kept = []\nfor k in range(3):\n    l = torch.sin(x * k).mean()\n    kept.append(float(l))"
    between = "kept = []\ny = torch.sin(x) * 2\nkept.append(float(y.sum()))\nz = y.exp().sum()"
    parts = "y = x[x > 0] * 2\nprint(1)\nk = int((y > 1).sum())"
    for body, graphs in ((loop, 1), (between, 1), (parts, 2)):
        record = measured(notebook, body)
        ours = next(each for each in record.measurements if each.contestant == "nbcompile")
        assert ours.ran_compiled and ours.graphs == graphs and ours.median, ours.reason
        assert not record.notes and "ran eager" not in verdict(record).text


def test_a_compile_that_fails_for_the_timing_alone_is_not_the_cells(notebook: Notebook) -> None:
    backend = (
        "made = []\ndef once(graph, inputs):\n    made.append(graph)\n    if len(made) > 1:\n"
        "        raise ValueError('a second time')\n    return graph.forward"
    )
    notebook.fresh(SETUP)
    notebook.run(backend)
    outcome = notebook.run("%%compile --backend once --compare eager,once\ny = torch.sin(x) * 2\n")
    assert outcome.error == "", outcome.error
    record = notebook.records[-1]
    assert [line.fate for line in record.lines] == ["compiled"]
    text = verdict(record).text
    assert text.startswith("not timed: ") and "ran eager" not in text
    assert "ran eager" not in to_text(record)


@few(3)
@pytest.mark.parametrize(
    ("reads", "line"),
    [
        ("g = w.grad * 2", ""),
        ("w.grad.norm()", ""),
        ("torch.nn.utils.clip_grad_norm_([w], 0.1)", ""),
        ("opt.step()", "--optimizer --compare eager,nbcompile"),
    ],
)
def test_what_reads_gradients_is_left_out_of_times_that_start_without(
    reads: str, line: str, notebook: Notebook
) -> None:
    notebook.fresh(SETUP)
    notebook.run("w = torch.randn(16, 16, requires_grad=True)\nopt = torch.optim.SGD([w], 0.1)")
    notebook.run("%config NbCompile.bench_seconds = 0.05")
    body = f"l = torch.softmax(x @ w, -1).log().mean()\nl.backward()\n{reads}"
    outcome = notebook.run(f"%%compile {line or '--compare eager,nbcompile'}\n{body}\n")
    assert outcome.error == "", outcome.error
    record = notebook.records[-1]
    assert verdict(record).text.endswith("line 4 cannot be run again and is not timed")
    assert {each.what for each in record.measurements} == {"forward+backward"}
    assert record.notes == ("Not timed: line 4 reads gradients, and what is timed starts without any.",)
    assert not any(each.hint for each in record.breaks), "gradients are computed where they are asked for"


def test_a_function_that_takes_gradients_reads_none(notebook: Notebook) -> None:
    record = measured(notebook, "g = torch.func.grad(lambda v: v.sin().sum())(x)", "--train --compare eager")
    assert record.timed_part is None and not any("reads gradients" in note for note in record.notes)


TWICE = "o = m(x * random.random())\nl = o.pow(2).mean()\nl.backward()"
ALONE = "line 3 cannot be run again alone: backward would go through what made o a second time"


def test_a_part_that_cannot_be_repeated_alone_is_told_of_truly(notebook: Notebook) -> None:
    record = measured(notebook, TWICE)
    assert not record.measurements and any(ALONE in note for note in record.notes), record.notes
    assert not any("raises" in note for note in record.notes), "run again, the cell raises nothing"


def test_its_check_and_modes_say_so_beside_a_record(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    before = len(notebook.records)
    outcome = notebook.run(f"%%compile --check --no-bench\n{TWICE}\n")
    assert len(notebook.records) == before + 1 and ALONE in outcome.stdout
    outcome = notebook.run(f"%%compile --mode-diff max-autotune --no-bench\n{TWICE}\n")
    assert len(notebook.records) == before + 2 and "its record failed" not in outcome.stdout
    assert any(ALONE in note for note in notebook.records[-1].notes)


@pytest.mark.parametrize("flags", ["--compare eager", "--check --no-bench"])
def test_what_is_logged_is_logged_once(flags: str, notebook: Notebook) -> None:
    logs = (
        "import logging\nheard = []\nclass Hears(logging.Handler):\n"
        "    def emit(self, record): heard.append(record.getMessage())\n"
        "logger = logging.getLogger('mine')\nlogger.handlers = [Hears()]\n"
        "def told(t):\n    logger.warning('so')\n    return t * 2\n"
    )
    notebook.fresh(f"{SETUP}\n{logs}")
    assert notebook.run(f"%%compile {flags}\ny = told(x)\nz = y + 1").error == ""
    assert notebook.shell.user_ns["heard"] == ["so"]


BREAKING = (
    "def f(v):\n    w = v.sin() + 1\n    print(w.sum())\n    return w.cos() * 2\n"
    "def g(v):\n    w = v.sinh() + 1\n    print(w.sum())\n    return w.cosh() * 2\n"
)


@few(2)
@pytest.mark.parametrize(
    ("body", "runs"),
    [
        ("y = f(f(f(x)))", [3, 3]),
        ("y = f(f(x))\nz = f(y)", [2, 2, 1, 1]),
        ("y = f(x)\nz = g(y) + f(x)", [1, 1, 1, 1, 1, 1, 1]),
        ("for i in range(3):\n    x = f(x)", [1, 1]),
    ],
)
def test_each_kernel_of_functions_that_break_the_graph_has_its_time_and_its_runs(
    notebook: Notebook, body: str, runs: list[int]
) -> None:
    record = measured(notebook, body, setup=f"{SETUP}\n{BREAKING}")
    assert list(record.runs.values()) == runs
    assert [kernel.id for kernel in record.kernels if not kernel.seconds] == []


FILLED = (
    SETUP
    + """
book, own, other, seen = {}, type("Own", (), {})(), {}, []
own.cache, own.book = None, {"none": None}
def fill(v):
    return book.setdefault("k", v.sin())
class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("angles", None)
    def forward(self, v):
        if self.angles is None:
            self.angles = v.sin()
        return v * self.angles
rotary = Rotary()
"""
)


@few(3)
@pytest.mark.parametrize(
    ("body", "place", "same"),
    [
        ("book.setdefault('k', x.sin())", "book['k']", "the value shown"),
        ("y = book.setdefault('k', x.sin())", "book['k']", "y"),
        ("y = fill(x)", "book['k']", "y"),
        ("own.book.setdefault('k', x.sin())\ny = x * 2", "own.book['k']", ""),
        ("if own.cache is None:\n    own.cache = x.cos()\ny = own.cache + x", "own.cache", ""),
        ("y = rotary(x)", "rotary.angles", ""),
    ],
)
def test_what_is_filled_once_is_not_said_to_be_right(
    notebook: Notebook, body: str, place: str, same: str
) -> None:
    record = measured(notebook, body, setup=FILLED)
    found = {each.output: each for each in record.accuracy}
    assert found[place].reason == "not compared: it is there when the cell is run again"
    assert {name for name, each in found.items() if not each.is_compared} == {place, same} - {""}
    (note,) = record.notes
    assert note.startswith(f"Not compared with eager: {place}: the cell's run put it there")
    assert not same or error_line(record) == "results not compared with eager"


@pytest.mark.parametrize(
    "body",
    ["book['k'] = x.sin()", "y = x.sin()\nbook['k'] = y", "own.cache = other['j'] = x.sin()",
     "book.update(k=[x.sin(), x])", "seen.append(x.sin())", "book['j'] = {'i': x.sin()}", "y = x * 2"],
)  # fmt: skip
def test_what_each_run_puts_somewhere_is_compared(notebook: Notebook, body: str) -> None:
    record = measured(notebook, body, setup=FILLED)
    assert record.notes == () and any(each.is_compared for each in record.accuracy)
    assert not any("it is there" in each.reason for each in record.accuracy)
