"""The index: compilations with how each ended, and what it left."""

from __future__ import annotations

from pathlib import Path

import pytest

import nbcompile
from nbcompile.errors import TraceError
from nbcompile.traces.reading.index import index_of, rank_in
from nbcompile.traces.trace import Trace
from tests.traces.programs import artifact, compilation, record, written


def test_how_each_compilation_ended(trace: Trace) -> None:
    told = {each.id: (each.function, each.status) for each in trace}
    assert told == {
        "0/0": ("broken", "restarted"),
        "1/0": ("torch_dynamo_resume_in_broken_at_11", "ok"),
        "2/0": ("again", "ok"),
        "2/1": ("again", "ok"),
        "2/2": ("again", "ok"),
        "3/0": ("fails", "failed"),
        "4/0": ("empty", "empty"),
        "5/0": ("specialized", "ok"),
    }
    assert trace.index.unread == {} and trace.index.damaged == 0 and trace.index.unknown == {}
    assert trace.index.torch.startswith("2.")


def test_why(trace: Trace) -> None:
    broken, failed, again = trace["0/0"], trace["3/0"], trace["2/1"]
    assert broken.attempts == 2 and broken.breaks == 1
    assert broken.restarts[0].startswith("Failed to trace builtin operator")
    assert failed.failure is not None and failed.failure.type == "Unsupported"
    assert failed.failure.line == 20 and failed.failure.file.endswith("job.py")
    assert "size mismatch at index 0. expected 4, actual 5" in again.recompiles[0]
    assert again.stack[-1].function == "again" and trace["1/0"].caller is not None
    kinds = [fact.kind for fact in trace["5/0"].shapes]
    assert kinds == ["symbol", "guard", "specialization"]
    assert trace["5/0"].shapes[0].stack[-1].code.startswith("return x * x.shape[0]")


def test_times_add_up(trace: Trace) -> None:
    for each in trace:
        assert each.seconds is not None and 0 < each.seconds < 60
        if each.backend_seconds is not None:
            assert each.backend_seconds <= each.seconds
    own = [part for part in trace.index.parts if part.compile == "0/0"]
    whole = max(part.ends - part.begins for part in own if part.name == "dynamo")
    assert own and all(part.ends - part.begins <= whole * 1.001 for part in own)
    assert {"compile_attempt_0", "compile_attempt_1"} <= {part.name for part in own}
    attempts = {part.depth for part in own if part.name.startswith("compile_attempt")}
    assert len(attempts) == 1 and attempts != {0}


@pytest.mark.nightly
def test_what_a_cache_gave_and_a_reset_is_another_compilation(step: Trace) -> None:
    assert [each.id for each in step] == ["0/0", "0/0#2"]
    first, second = step
    assert {(each.cache, each.state) for each in first.caches} == {
        ("aotautograd", "miss"), ("fx graph", "miss"),
    }  # fmt: skip
    hit = {each.cache: each for each in second.caches}
    assert hit["aotautograd"].state == "hit" and (hit["aotautograd"].saved or 0) > 0
    assert first.seconds and second.seconds and second.seconds < first.seconds
    names = {each.name for each in first.artifacts}
    assert {
        "aot_joint_graph",
        "aot_backward_graph",
        "inductor_output_code",
        "bwd_compilation_metrics",
    } <= names
    assert first.backward_metrics["duration_us"] > 0


def test_artifacts_are_read_when_asked_for(trace: Trace) -> None:
    text = trace.text("0/0", "dynamo_output_graph")
    assert text.startswith("class GraphModule") and "relu" in text
    with pytest.raises(TraceError, match=r"no 'nothing'.*dynamo_output_graph"):
        trace.text("0/0", "nothing")
    with pytest.raises(TraceError, match=r"no compilation '9/9'.*0/0"):
        trace["9/9"]


def test_ids(tmp_path: Path) -> None:
    place = {"compiled_autograd_id": 2}
    path = written(
        tmp_path / "x_rank_12_y.log",
        [
            record({"compiled_autograd_graph": {}}, "class CompiledAutograd0: ...", **place),
            record({"dynamo_start": {"stack": []}}, None, frame_id=1, frame_compile_id=0, **place),
            compilation(frame=3),
            compilation(frame=3),
            record({"artifact": {"name": "alone", "encoding": "string"}}, "x"),
        ],
    )
    index = index_of(path)
    assert [each.id for each in index.compiles] == ["!2/-/-", "!2/1/0", "3/0", "3/0#2"]
    assert [each.status for each in index.compiles] == ["unfinished", "unfinished", "ok", "ok"]
    assert index.rank == 12 and [each.name for each in index.outside] == ["alone"]
    assert rank_in("dedicated_log_torch_trace_abc.log") is None


def test_kinds_that_nobody_knows_are_listed_and_counted(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.log",
        [
            compilation(),
            record({"from_the_future": {"name": "<b>"}}, "new", frame_id=0, frame_compile_id=0),
            record({"str": "no list"}),
            record({"chromium_event": {}}, "no JSON", frame_id=0, frame_compile_id=0),
            artifact("recompile_reasons", "not a list"),
            record({"artifact": ["no", "mapping"]}, "x", frame_id=0, frame_compile_id=0),
            record({"symbolic_shape_specialization": 3}, frame_id=0, frame_compile_id=0),
            record({"compilation_metrics": {"fail_type": 3, "restart_reasons": "x"}}, frame_id=9),
        ],
    )
    index = index_of(path)
    assert index.unknown == {"from_the_future": 1}
    assert index.unread == {"string without a number": 1, "event that is none": 1}
    assert "from_the_future" in {each.name for each in index.compiles[0].artifacts}
    page = nbcompile.open(path)._repr_html_()
    assert "from_the_future" in page and "string without a number" in page
