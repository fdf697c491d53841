"""A record as JSON, packed and not: exact, small, as its schema says, and safe to read."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import zlib
from typing import Any

import jsonschema
import pytest

from nbcompile.errors import RecordError
from nbcompile.record.compilation import Compilation, Graph, Kernel, Measurement, Node, json_schema
from nbcompile.record.packed import MAX_UNPACKED, pack, unpack
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
    jsonschema.validate(json.loads(text), closed(json_schema()))


@pytest.mark.parametrize(
    "record", [*RECORDS, Compilation(id="e"), fixtures.hostile(text="\ud800 \U0001f600")]
)
def test_what_is_packed_comes_back(record: Compilation) -> None:
    packed = pack(record.to_dict(), "a title")
    assert json.loads(unpack(packed)) == record.to_dict()
    assert Compilation.from_dict(packed) == record == Compilation.from_json(json.dumps(packed))
    assert packed.keys() == {"schema", "id", "title", "deflate"}
    assert (packed["schema"], packed["id"], packed["title"]) == (record.schema, record.id, "a title")


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_written_out_in_full_is_read_too(record: Compilation) -> None:
    full = json.loads(json.dumps(dataclasses.asdict(record)))
    assert Compilation.from_dict(full) == record
    plain = record.to_json()
    assert len(plain) < 0.9 * len(json.dumps(full))
    assert len(json.dumps(pack(record.to_dict()))) < 0.4 * len(plain) + 2000


def test_a_graph_prints_its_nodes_lines_unless_it_says_otherwise() -> None:
    texts = ("a", "", "b = 1")
    nodes = tuple(Node(f"n{n}", "x", "add", "compute", text=text) for n, text in enumerate(texts))
    graphs = (Graph("g0.fx", "fx", "t", nodes), Graph("g0.fw", "forward", "t", nodes, text="a\nb = 1\nmore"))
    record = Compilation("x", graphs=graphs)
    assert [graph.text for graph in Compilation.from_json(record.to_json()).graphs] == [
        "a\nb = 1", "a\nb = 1\nmore",
    ]  # fmt: skip
    assert ["text" in row for row in record.to_dict()["graphs"]] == [False, True]


def test_numbers_that_json_has_not_become_none() -> None:
    measured = Measurement("cell", "eager", cold=math.nan, steady=(1.0, math.inf))
    record = Compilation("x", measurements=(measured,), options={"a": [1, (math.nan, {"b": -math.inf})]})
    (row,) = json.loads(unpack(pack(record.to_dict())))["measurements"]
    assert row == {"what": "cell", "contestant": "eager", "cold": None, "steady": [1.0, None]}
    assert record.to_dict()["options"] == {"a": [1, [None, {"b": None}]]}


def _deflate(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


WHOLE = pack(RECORDS[0].to_dict())["deflate"]


@pytest.mark.parametrize(
    ("deflate", "said"),
    [
        (7, "damaged"),
        ("*no base64*", "damaged"),
        ("AAAA", "damaged"),
        (WHOLE[:8] + "BBBB" + WHOLE[12:], "damaged"),
        (WHOLE[:400], "breaks off"),
        (base64.b64encode(base64.b64decode(WHOLE) + b"more").decode(), "goes on after its end"),
        (_deflate(b'{"id":'), "Invalid JSON"),
        (_deflate(b'{"id": "\\ud800'), "damaged"),
        (_deflate(b"[" * 100_000), "Invalid JSON"),
        (_deflate(b"7"), "the record: Input should be"),
        (_deflate(b'{"id": "x", "schema": "nbcompile.compilation/99"}'), "upgrade"),
        (_deflate(b'{"id": "x", "graphs": [1]}'), "field graphs.0"),
        (_deflate(b'{"id": "x", "peers": [%s]}' % b",".join([b'{"id": "y"}'] * 9)), "peers"),
    ],
)
def test_damaged_ones_are_refused_with_a_sentence(deflate: Any, said: str) -> None:
    with pytest.raises(RecordError, match=said):
        Compilation.from_dict({"schema": "nbcompile.compilation/1", "id": "x", "deflate": deflate})


def test_a_small_file_does_not_unfold_into_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values = Compilation("x", kernels=(Kernel("k", "k", "g", (), "rows", {"c": " " * 100_000}),)).to_dict()
    packed = pack(values)
    assert len(packed["deflate"]) < 1000
    room = len(unpack(packed))
    assert room < MAX_UNPACKED
    monkeypatch.setattr("nbcompile.record.packed.MAX_UNPACKED", room)
    assert Compilation.from_dict(packed).id == "x"
    monkeypatch.setattr("nbcompile.record.packed.MAX_UNPACKED", room - 1)
    with pytest.raises(RecordError, match="too large: it unpacks to more than 100,"):
        Compilation.from_dict(packed)


def test_a_file_of_many_cases_is_said_to_be_one() -> None:
    with pytest.raises(RecordError, match=r"nbcompile bench --save") as caught:
        Compilation.from_json('{"schema": "nbcompile.bench/1"}')
    assert "nbcompile diff" in caught.value.advice
