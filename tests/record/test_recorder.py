"""The recorder, and the part of it that is cached beside a binary."""

from __future__ import annotations

import json

import pytest

from nbcompile.errors import RecordError
from nbcompile.options import Options
from nbcompile.record.compilation import (
    Cell,
    Compilation,
    Decision,
    Graph,
    Kernel,
    LineLink,
    Node,
    PassRecord,
    Span,
)
from nbcompile.record.recorder import Recorder


def filled(prefix: str) -> Recorder:
    recorder = Recorder(Options())
    loop = Node(
        id=f"{prefix}.l0",
        name="y",
        op="mul",
        kind="pointwise",
        origins=(f"{prefix}.n1",),
        spans=(Span(3, 4, 3, 9),),
        shape=("s0", 16),
        dtype="float32",
        stride=(16, 1),
        bytes=64,
    )
    recorder.extend(
        [
            Graph(id=f"{prefix}.loops", stage="loops", title="loops", nodes=(loop,), parent=prefix),
            Decision(
                f"{prefix}.d0",
                f"{prefix}.fused",
                f"{prefix}.l0",
                f"{prefix}.l1",
                "siblings",
                True,
                "same",
                "x",
            ),
            Kernel(
                id=f"{prefix}.k0",
                name="mul",
                graph=f"{prefix}.fused",
                loops=(f"{prefix}.l0",),
                schedule="rows",
                sources={"c": "void mul() {}"},
                line_map=(LineLink(1, (f"{prefix}.l0",)),),
            ),
        ]
    )
    return recorder


def test_part_round_trips_exactly_through_json() -> None:
    recorder = filled("g0.fw")
    recorder.add(Graph(id="g0.fw", stage="forward", title="not part of it"))
    recorder.add(Graph(id="g0.fwx.loops", stage="loops", title="of another graph"))
    data = json.loads(json.dumps(recorder.part("g0.fw")))
    again = Recorder(Options())
    again.load_part(data)
    assert again.parts(Graph) == recorder.parts(Graph)[:1]
    assert again.parts(Decision) == recorder.parts(Decision)
    assert again.parts(Kernel) == recorder.parts(Kernel)


def test_part_loads_under_another_graphs_id() -> None:
    again = Recorder(Options())
    again.load_part(json.loads(json.dumps(filled("g0.fw").part("g0.fw"))), prefix="g3.bw")
    expected = filled("g3.bw")
    for kind in (Graph, Decision, Kernel):
        assert again.parts(kind) == expected.parts(kind)


@pytest.mark.parametrize("data", [{}, {"prefix": "g0.fw"}, {"prefix": 3}, [], None])
def test_damaged_part_is_refused_whole(data: object) -> None:
    recorder = Recorder(Options())
    with pytest.raises(RecordError):
        recorder.load_part(data)  # type: ignore[arg-type]
    assert recorder.parts(Graph) == ()


def test_part_with_unknown_field_is_refused() -> None:
    data = filled("g0.fw").part("g0.fw")
    data["kernels"][0]["from_the_future"] = 1
    recorder = Recorder(Options())
    with pytest.raises(RecordError):
        recorder.load_part(data)
    assert recorder.parts(Graph) == (), "nothing of it is added"


def test_drop_part_forgets_what_part_gives() -> None:
    recorder = filled("g0.fw")
    recorder.extend(filled("g1.fw").parts(Graph))
    recorder.drop_part("g0.fw")
    assert [graph.id for graph in recorder.parts(Graph)] == ["g1.fw.loops"]
    assert recorder.parts(Kernel) == ()


def test_steps_are_timed_also_when_they_raise() -> None:
    recorder = Recorder(Options())
    with recorder.step("lower", before="g0.fw", after="g0.fw.loops"):
        pass
    with pytest.raises(ValueError), recorder.step("fuse"):
        raise ValueError
    first, second = recorder.parts(PassRecord)
    assert (first.name, first.before, first.after, first.note) == ("lower", "g0.fw", "g0.fw.loops", "")
    assert first.milliseconds >= 0
    assert second.note == "ValueError"
    assert recorder.compile_seconds == pytest.approx((first.milliseconds + second.milliseconds) / 1e3)


def test_compilation_is_plain_data() -> None:
    said = []
    recorder = Recorder(Options(no_fuse=(("a", "b"),)), cell=Cell("%%compile\nx"), progress=said.append)
    assert [recorder.next_graph_id(), recorder.next_graph_id()] == ["g0", "g1"]
    recorder.add("something to know")
    recorder.add("something to know")
    recorder.progress("working")
    record = recorder.compilation()
    assert record.notes == ("something to know",)
    assert record.environment.torch and record.environment.threads > 0
    assert Compilation.from_json(record.to_json()) == record
    assert said == ["working"]


def test_only_parts_of_a_record_are_taken() -> None:
    with pytest.raises(TypeError, match="not dict"):
        Recorder(Options()).add({})  # type: ignore[arg-type]


def test_from_cache_only_if_all_of_it_was() -> None:
    recorder = Recorder(Options())
    for id in ("g0.fw", "g1.fw"):
        recorder.add(Graph(id=id, stage="forward", title=""))
    recorder.from_cache.add("g0.fw")
    assert not recorder.compilation().from_cache
    recorder.from_cache.add("g1.fw")
    assert recorder.compilation().from_cache
