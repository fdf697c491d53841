"""A cell that computes with jax: its jitted functions in the record, and a cell that runs as without us."""

from __future__ import annotations

import dataclasses
import re
import sys
from typing import Any

import pytest

from nbcompile.record.compilation import Compilation, LineFate
from nbcompile.record.provenance import Links
from nbcompile.view import to_html, to_text
from nbcompile.view.facts.facts import verdict
from tests.nightly import few
from tests.notebook.conftest import Notebook

pytest.importorskip("jax", reason="pip install jax")

import jax

from nbcompile.backends.xla import jitted
from nbcompile.bench.measure import jitted as measure
from nbcompile.bench.measure.jitted import measure_jitted

SETUP = "import jax, jax.numpy as jnp\nx = jnp.linspace(-1, 1, 12).reshape(3, 4)\nw = jnp.eye(4) * 0.3"
LAYER = """\
@jax.jit
def layer(x, w):
    print("traced")
    h = jnp.tanh(x @ w)
    return h, (h * 2).sum()
h, total = layer(x, w)
found = float(total)"""


def run(
    notebook: Notebook, cell: str, line: str = "--backend xla --no-bench", setup: str = SETUP
) -> Compilation:
    notebook.fresh(setup)
    notebook.run(f"%%compile {line}\n{cell}")
    return notebook.records[-1]


def fates(record: Compilation) -> dict[int, LineFate]:
    return {fate.line: fate for fate in record.lines}


def as_jax_has_it() -> bool:
    """Whether nothing of ours is left in jax."""
    private: Any = sys.modules["jax._src.api"]
    ours = "nbcompile" in sys.modules["jax._src.pjit"]._run_python_pjit.__module__
    return not ours and not callable(private._post_hook_state.get_local())


def test_a_jitted_function_is_in_the_record(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run(f"%%compile --backend xla --no-bench\n{LAYER}")
    record = notebook.records[-1]
    assert outcome.stdout.count("traced") == 1 and as_jax_has_it()
    jaxpr = record.graph("layer.jaxpr")
    assert [node.op for node in jaxpr.nodes] == ["input", "input", "dot_general", "tanh", "mul", "reduce_sum"]
    assert "stablehlo.tanh" in record.graph("layer.stablehlo").text
    assert "ENTRY" in record.graph("layer.fused").text and record.kernels
    assert [step.name for step in record.passes] == ["trace", "lower", "xla"]
    assert all(step.milliseconds > 0 for step in record.passes) and "operations" in record.passes[-1].note
    links = Links(record)
    assert {5, 7} <= set(links.lines("layer.jaxpr.tanh"))
    tanh = next(node for node in record.graph("layer.loops").nodes if node.op == "tanh")
    assert tanh.origins == ("layer.jaxpr.tanh",) and links.lines(tanh.id) == (5, 7)
    assert all(links.lines(kernel.id) for kernel in record.kernels)
    told = fates(record)
    assert told[7].fate == "compiled" and told[7].reason == "compiled by XLA: layer (jax.jit)"
    assert (told[8].fate, told[8].reason) == ("eager", "jax ran each operation by itself")
    text = to_text(record)
    assert "jax " in text and "nothing was captured" not in text and "torch 2" not in text
    assert "Jaxpr" in to_html(record) and not record.notes


def test_the_same_is_left_as_without_the_magic(notebook: Notebook) -> None:
    body = f"{LAYER}\nkind = type(layer).__name__\nprint(found)\nlayer(x * 2, w)[0].tolist()"
    notebook.fresh(SETUP)
    plain = notebook.run(f"# plain\n{body}")
    notebook.fresh(SETUP)
    compiled = notebook.run(f"%%compile --backend xla --no-bench\n{body}")
    assert plain.result == compiled.result and plain.stdout == compiled.stdout
    assert plain.namespace["found"] == compiled.namespace["found"]
    assert compiled.namespace["kind"] == plain.namespace["kind"] == "PjitFunction"
    assert set(plain.namespace) == set(compiled.namespace)


@few(1)
@pytest.mark.parametrize(
    "body",
    [
        "y = jax.jit(lambda v: jnp.ones(3) + jnp.ones(4))(x)\nz = 1",
        "y = jax.jit(lambda v: v + 1)(x)\nz = jax.jit(lambda v: v.missing)(y)",
        "y = jax.jit(lambda v: v + 1)(object())",
    ],
    ids=["shapes", "attribute", "argument"],
)
def test_errors_are_jax_s_own(notebook: Notebook, body: str) -> None:
    plain, compiled = notebook.both(SETUP, body, "--backend xla --no-bench")
    one, two = (re.sub("0x[0-9a-f]+", "address", outcome.error) for outcome in (plain, compiled))
    assert one and one == two and plain.frames == compiled.frames
    assert as_jax_has_it()
    assert any(fate.reason.startswith("raised") for fate in notebook.records[-1].lines)


def test_times_and_values(notebook: Notebook) -> None:
    notebook.shell.run_line_magic("config", "NbCompile.bench_seconds = 0.05")
    body = "step = jax.jit(jax.value_and_grad(lambda w: jnp.exp(x @ w).sum()))\nvalue, grad = step(w)"
    record = run(notebook, body, "--backend xla")
    eager, xla = record.measurements
    assert (eager.what, eager.contestant, xla.contestant) == (
        "jitted functions", "eager", "xla",
    )  # fmt: skip
    assert eager.median and xla.median and eager.counts and xla.counts and xla.ran_compiled
    assert xla.cold is not None and xla.cold >= record.compile_seconds > 0
    assert [item.output for item in record.accuracy] == ["output[0]", "output[1]"]
    assert all(item.agrees and item.error is not None and item.error < 1e-5 for item in record.accuracy)
    assert "eager" in verdict(record).text
    backward = [node for node in record.graph("lambda.jaxpr").nodes if node.op == "dot_general"]
    assert len(backward) == 2 and all(2 in Links(record).lines(node.id) for node in backward)


def test_what_was_jitted_before_and_each_set_of_shapes(notebook: Notebook) -> None:
    setup = f"{SETUP}\n@jax.jit\ndef f(v):\n    return jnp.sin(v) * 2\nready = f(x)"
    record = run(notebook, "a = f(x)\nfor i in range(3):\n    b = f(x)\nc = f(x[0])", setup=setup)
    assert {graph.id for graph in record.of_stage("fx")} == {"f.jaxpr", "f_2.jaxpr"}
    assert [fates(record)[line].fate for line in (2, 4, 5)] == ["compiled"] * 3
    (note,) = record.notes
    assert note.startswith("f (line 2) was compiled before this cell ran")
    links = Links(record)
    assert links.lines("f.jaxpr.sin") == (2, 4) and links.lines("f_2.jaxpr.sin") == (5,)


def test_within_a_function_and_a_class(notebook: Notebook) -> None:
    body = (
        "class Model:\n    def __init__(self):\n        self.call = jax.jit(self.of)\n    def of(self, v):\n"
        "        return jnp.cos(v)\ndef helper(v):\n    return Model().call(v)\nassert helper(x).ndim == 2"
    )
    record = run(notebook, body)
    assert fates(record)[9].fate == "compiled"
    assert Links(record).lines("of.jaxpr.cos") == (6, 8, 9)


def test_only_jax_s_own_operations(notebook: Notebook) -> None:
    record = run(notebook, "y = x * 2\nz = jnp.where(y > 0, y, 0)")
    assert verdict(record).text.endswith(
        "the cell calls no jitted function directly: jax ran each operation by itself"
    )
    assert {fate.fate for fate in record.lines} == {"eager"}


def test_under_another_backend_one_sentence_says_where_to_look(notebook: Notebook) -> None:
    record = run(notebook, LAYER, "--no-bench")
    told = "the cell computes with jax: %%compile --backend xla shows what XLA makes of it"
    assert verdict(record).text == f"ran eager: {told}" and record.notes == (told,)
    assert told in to_text(record).replace("\n      ", " ")


@pytest.mark.nightly
def test_the_next_run_says_what_changed(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    for body in ("y = jax.jit(jnp.tanh)(x)", "y = jax.jit(lambda v: jnp.tanh(v) @ w)(x)"):
        notebook.shell.run_cell(f"%%compile --backend xla --no-bench\n{body}", cell_id="the same cell")
    assert notebook.records[-2].since is None
    assert notebook.records[-1].since is not None and notebook.records[-1].since.changes


def test_torch_and_jax_in_one_cell(notebook: Notebook) -> None:
    record = run(notebook, "t = torch.ones(3).sin() * 2\ny = jax.jit(jnp.tanh)(x)\ns = t + 1")
    assert [graph.id for graph in record.of_stage("fx")][-1] == "tanh.jaxpr"
    assert any(graph.id.startswith("g0") for graph in record.graphs)
    assert {fates(record)[line].fate for line in (2, 3, 4)} == {"compiled"}


def test_what_cannot_be_called_again_is_not(notebook: Notebook) -> None:
    notebook.shell.run_line_magic("config", "NbCompile.bench_seconds = 0.05")
    notebook.fresh(SETUP)
    outcome = notebook.run(
        "%%compile --backend xla\ngive = jax.jit(lambda v: v + 1, donate_argnums=0)\ny = give(x * 1)\n"
        "@jax.jit\ndef speaks(v):\n    jax.debug.print('v={v}', v=v)\n    return v + 1\n"
        "z = speaks(1.0)\njax.effects_barrier()"
    )
    record = notebook.records[-1]
    assert outcome.stdout.count("v=1.0") == 1 and not record.measurements and not record.accuracy
    donated, effects = record.notes
    assert donated.startswith("Not timed: <lambda> (line 3), for ") and "donated" in donated
    assert effects == "Not timed: speaks (line 8), for it prints or calls Python, which would happen again."
    assert outcome.namespace["y"].tolist()[0][0] == 0.0


def test_without_jax_s_inner_names_the_record_says_so(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("jax._src.pjit._run_python_pjit")
    notebook.fresh("import jax")
    outcome = notebook.run("%%compile --backend xla --no-bench\ny = 1 + 1\ny")
    note = notebook.records[-1].notes[0]
    assert outcome.result == 2 and f"jax {jax.__version__} has no _python_pjit_helper." in note


def test_another_program_the_second_time_has_no_links(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = jitted._compiled_again

    def other(*given: Any) -> tuple[str, dict[str, float]]:
        text, steps = again(*given)
        return text.replace(" tanh(", " sine("), steps

    monkeypatch.setattr(jitted, "_compiled_again", other)
    record = run(notebook, LAYER)
    assert record.notes[0].startswith("XLA made another program of layer")
    loops = [node for node in record.graph("layer.loops").nodes if node.kind != "input"]
    assert any(node.op == "tanh" for node in loops) and not any(node.origins for node in loops)
    assert all(Links(record).lines(kernel.id) == (7,) for kernel in record.kernels), "of the call, at least"


def test_a_failure_of_ours_leaves_the_cell_alone(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("no such thing")

    monkeypatch.setattr(jitted, "record_jaxpr", broken)
    notebook.fresh(SETUP)
    outcome = notebook.run(f"%%compile --backend xla --no-bench\n{LAYER}\nfound")
    assert isinstance(outcome.result, float) and not outcome.error
    assert "What XLA made of layer cannot be shown: ValueError: no such thing" in notebook.records[-1].notes


def test_what_would_take_too_long_without_xla_is_timed_with_it_alone(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "_MOST_PRIMITIVES", 1)
    notebook.shell.run_line_magic("config", "NbCompile.bench_seconds = 0.05")
    record = run(notebook, "y = jax.jit(lambda v: jnp.sin(v) * 2)(x)", "--backend xla")
    (xla,) = record.measurements
    assert xla.contestant == "xla" and xla.median and not record.accuracy
    why = "2 primitives are too many to run one at a time."
    assert record.notes == (
        f"<lambda> (line 2) is not compared with anything: {why}",
        f"Not timed without XLA (jitted functions): {why}",
    )
    assert "eager was not timed" in verdict(record).text


def test_a_wrong_result_is_found(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    programs: list[jitted.JittedProgram] = []
    record_call = jitted.record_call

    def kept(*given: Any) -> jitted.JittedProgram:
        programs.append(record_call(*given))
        return programs[-1]

    monkeypatch.setattr(jitted, "record_call", kept)
    run(notebook, "y = jax.jit(jnp.sin)(x)")
    (program,) = programs
    wrong = jax.jit(lambda v: jax.numpy.sin(v) * 1.001).lower(*program.call.arrays).compile()
    broken = dataclasses.replace(program, call=dataclasses.replace(program.call, compiled=wrong))
    for each, agrees in ((program, True), (broken, False)):
        found = measure_jitted([each], 0.01, what="cell", cold=False, progress=lambda _: None)
        assert [item.agrees for item in found.accuracy] == [agrees]


@pytest.mark.nightly
def test_checks_for_nan_go_on(notebook: Notebook) -> None:
    """jax_debug_nans uses the hook by which calls are noticed."""
    setup = f"{SETUP}\nf = jax.jit(lambda v: jnp.log(v))\nready = f(x * 0 + 1)"
    body = (
        "seen = ''\njax.config.update('jax_debug_nans', True)\n"
        "try:\n    f(x - 5)\nexcept FloatingPointError:\n    seen += 'for all '\n"
        "finally:\n    jax.config.update('jax_debug_nans', False)\n"
        "with jax.debug_nans(True):\n    try:\n        f(x - 5)\n    except FloatingPointError:\n"
        "        seen += 'within'\nseen"
    )
    state: Any = sys.modules["jax._src.api"]._post_hook_state
    before = state.get_local()
    results = []
    for line in ("# plain", "%%compile --backend xla --no-bench"):
        notebook.fresh(setup)
        results.append(notebook.run(f"{line}\n{body}").result)
        state.swap_local(before)  # of a context that was left, jax keeps that there is no hook
    assert results == ["for all within"] * 2
