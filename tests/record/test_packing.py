"""The JSON form of a record: exact, small, as its schema says, and safe to read."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jsonschema
import pytest

from nbcompile.errors import RecordError
from nbcompile.record.compilation import Compilation, Graph, Node, Span, json_schema
from tests.view import fixtures


def with_peers() -> Compilation:
    """Two peers: of the same graphs and cell, and of others."""
    record = fixtures.transformer()
    same = dataclasses.replace(record, id="same", backend="inductor", kernels=record.kernels[:1])
    mine = Graph("g0.fw", "forward", "theirs", (Node("g0.fw.n0", "x", "placeholder", "input"),))
    graphs = (mine, *record.graphs[:1])
    other = Compilation("other", backend="xla", graphs=graphs, measurements=record.measurements[:1])
    return dataclasses.replace(record, peers=(same, other))


RECORDS = [
    fixtures.transformer(),
    fixtures.with_break(),
    fixtures.failed(),
    fixtures.large(200),
    with_peers(),
]


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with nothing allowed that it does not name."""
    for definition in [schema, *schema["$defs"].values()]:
        if definition.get("type") == "object":
            definition["additionalProperties"] = False
    return schema


@pytest.mark.parametrize("record", [*RECORDS, Compilation(id="e"), fixtures.hostile(text="<\x00'\u2028")])
def test_json_is_exact_and_as_the_schema_says(record: Compilation) -> None:
    text = record.to_json()
    assert Compilation.from_json(text) == record
    assert Compilation.from_json(text).to_json() == text
    whole = json.loads(text)
    for peer in whole.get("peers", ()):  # as the schema says, but for graphs that are the record's
        graphs = [graph for graph in peer["graphs"] if not isinstance(graph, str)]
        jsonschema.validate({**peer, "graphs": graphs}, closed(json_schema()))
    jsonschema.validate(whole, closed(json_schema()))


def test_a_peer_repeats_nothing() -> None:
    record = with_peers()
    same, other = record.to_dict()["peers"]
    assert same["graphs"] == [graph.id for graph in record.graphs]
    assert "cell" not in same and "environment" not in same and "measurements" not in same
    assert other["graphs"][1] == record.graphs[0].id and other["cell"] is None and other["environment"] == {}
    broken = record.to_dict()
    broken["peers"][0]["graphs"] = ["g9.fx"]
    with pytest.raises(RecordError, match=r"field peers: the record has no graph g9\.fx"):
        Compilation.from_dict(broken)


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_written_out_in_full_is_read_too(record: Compilation) -> None:
    full = json.loads(json.dumps(dataclasses.asdict(record)))
    assert Compilation.from_dict(full) == record
    assert len(record.to_json()) < 0.9 * len(json.dumps(full))


def test_stacks_and_types_are_written_once() -> None:
    spans = (Span(3, 4, 3, 20), Span(7, file="model.py"))
    nodes = tuple(
        Node(f"g.n{i}", f"n{i}", "aten.relu.default", "compute", (f"g.n{i - 1}",), spans=spans,
             shape=(8, "s0"), dtype="float32", stride=("s0", 1), bytes=32, text=f"n{i} = relu(n{i - 1})")
        for i in range(1, 4)
    )  # fmt: skip
    text = "\n".join(f"    {node.text}" for node in nodes)
    made = Compilation("x", graphs=(Graph("g", "forward", "", nodes, text=text),)).to_dict()
    assert len(made["spans"]) == len(made["tensors"]) == len(made["operators"]) == 1
    assert [node["text"] for node in made["graphs"][0]["nodes"]] == [1, 2, 3]
    assert [node["inputs"] for node in made["graphs"][0]["nodes"]] == [["g.n0"], [0], [1]]
    assert made["graphs"][0]["nodes"][0]["spans"] == 0 and "note" not in made["graphs"][0]["nodes"][0]


@pytest.mark.parametrize(
    "change",
    [{"spans": 99}, {"tensor": -1}, {"operator": 500}, {"text": 7}, {"inputs": [10**9]}, {"text": 0}],
)
def test_a_place_that_is_not_there_is_refused(change: dict[str, Any]) -> None:
    made = RECORDS[0].to_dict()
    made["graphs"][-1]["nodes"][0] |= change
    with pytest.raises(RecordError, match="there is no number"):
        Compilation.from_dict(made)


def test_a_small_file_does_not_unfold_into_a_large_one() -> None:
    made = RECORDS[0].to_dict()
    made["spans"] = [[{"line": 1}] * 10_000]
    made["graphs"] = made["breaks"] = []
    made["guards"] = [{"graph": "g0", "kind": "k", "name": "n", "spans": 0}] * 10_000
    with pytest.raises(RecordError, match="too many spans"):
        Compilation.from_dict(made)
