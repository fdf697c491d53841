"""What is opened, shown and written: the command, the page, the chart, and hostile texts in all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import nbcompile
from nbcompile.cli import main
from nbcompile.errors import TraceError
from nbcompile.traces.page import to_page
from nbcompile.traces.trace import Trace
from nbcompile.traces.trace_set import TraceSet
from tests.test_imports import _BLOCK
from tests.traces.programs import ROOT, artifact, compilation, record, written


def test_what_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        nbcompile.open(tmp_path / "nowhere")
    with pytest.raises(TraceError, match=r"holds no trace.*TORCH_TRACE"):
        nbcompile.open(tmp_path)
    with pytest.raises(TraceError, match="is no trace of torch"):
        nbcompile.open(written(tmp_path / "x.log", ["hello\n"]))


def test_the_index_says_what_happened(trace: Trace) -> None:
    for text in (" ".join(str(trace).split()), trace._repr_html_()):
        for said in ("8 compilations", "1 restarted", "Failed to trace builtin operator", "broken job.py:8",
                     "Unsupported", "recompiled: 2/0: tensor"):  # fmt: skip
            assert said in text, said
    page = trace._repr_html_()
    assert "Where compilations come from" in page and "dynamo_output_graph" in page
    assert "specialization" in page and "range_refined_to_singleton" in page
    assert len(str(trace).splitlines()) < 40


def test_the_command_writes_a_page(step: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.html"
    assert main(["open", str(step.path), "--html", str(out), "--only", "0/0"]) == 0
    said = capsys.readouterr().out
    assert "2 compilations" in said and "fx graph hit" in said
    text = out.read_text()
    assert text.count('<script type="application/json" id="nbcompile-') == 1 or "no explorer" in text
    assert "Everything of each compilation" in text and "cpp_fused" in text
    assert main(["open", str(tmp_path / "nowhere")]) == 2
    assert main(["open", str(step.path), "--rank", "3"]) == 2


def test_the_page_of_many_ranks_has_both_sides(tmp_path: Path) -> None:
    for rank in range(3):
        graph = "class GraphModule:\n    def forward(self):\n        x = torch.ones(3)"
        graph += "\n        y = x.sin()" if rank == 1 else ""
        written(tmp_path / f"dedicated_log_torch_trace_rank_{rank}_.log", [compilation(0, graph=graph)])
    traces = nbcompile.open(tmp_path)
    assert isinstance(traces, TraceSet)
    page = to_page(traces, script=False)
    assert "Compilation 0/0 of rank 1:" in page and "Compilation 0/0 of rank 0:" in page
    with pytest.raises(TraceError, match="--rank"):
        to_page(traces, ["0/0"])


def test_the_flame_chart_nests(trace: Trace) -> None:
    pytest.importorskip("plotly")
    figure = trace.plot("0/0")
    bars = [(base, x, y, data[0]) for each in figure.data
            for base, x, y, data in zip(each.base, each.x, each.y, each.customdata)]  # fmt: skip
    assert min(base for base, *_ in bars) == 0 and {"dynamo", "bytecode_tracing"} <= {bar[3] for bar in bars}
    rows: dict[int, list[tuple[float, float]]] = {}
    for base, x, y, _ in bars:
        rows.setdefault(y, []).append((base, base + x))
    for spans in rows.values():  # nothing is drawn over another
        ordered = sorted(spans)
        assert all(end <= begin + 1e-6 for (_, end), (begin, _) in pairwise(ordered))
    assert len(trace.plot().data) >= 2
    with pytest.raises(TraceError):
        trace.plot("9/9")


HOSTILE = "</script><script>window.canary=1</script><img src=x onerror=alert(1)>"


def test_nothing_in_a_trace_is_markup(tmp_path: Path) -> None:
    event = json.dumps({"name": HOSTILE, "ph": "X", "ts": 1, "dur": 5})
    told = {"co_name": HOSTILE, "co_filename": HOSTILE, "fail_type": HOSTILE, "fail_reason": HOSTILE,
            "restart_reasons": [HOSTILE], "graph_op_count": 1}  # fmt: skip
    place = {"frame_id": 0, "frame_compile_id": 0}
    records = [
        record({"str": [HOSTILE, 0]}),
        compilation(0, graph=HOSTILE, guards=f"+- X: {HOSTILE}", metrics=told),
        artifact(HOSTILE, HOSTILE),
        artifact("dynamo_graph_break_reason", HOSTILE),
        artifact("recompile_reasons", f'["{HOSTILE}"]'),
        record({"inductor_output_code": {"filename": HOSTILE}}, HOSTILE, **place),
        record({"chromium_event": {}}, event, **place),
        record({HOSTILE: {"name": HOSTILE}}, HOSTILE, **place),
        record({"create_symbol": {"symbol": HOSTILE, "user_stack": [{"loc": HOSTILE}]}}, **place),
    ]
    trace = nbcompile.open(written(tmp_path / "a.log", records))
    for page in (trace._repr_html_(), to_page(trace, script=False)):
        assert HOSTILE not in page and "<img" not in page and "&lt;img" in page
    pytest.importorskip("plotly")
    assert "<script" not in trace.plot().layout.title.text


def test_a_trace_is_opened_without_torch(captures: Path) -> None:
    code = (
        f"import nbcompile, sys; trace = nbcompile.open({str(captures)!r})\n"
        "assert '8 compilations' in str(trace) and trace._repr_html_()\n"
        "from nbcompile import view\n"
        "assert view.to_page([trace.compilation(each.id) for each in trace])\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    blocked = _BLOCK.format(names=("torch", "IPython", "ipywidgets"))
    run = subprocess.run(
        [sys.executable, "-c", blocked + code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert run.returncode == 0, run.stderr
