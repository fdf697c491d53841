"""The payload: a record that any reader of records reads, and beside it what Python derives from it."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nbcompile import view
from nbcompile.record.compilation import (
    Accuracy,
    Cell,
    Compilation,
    Graph,
    Kernel,
    Measurement,
    Node,
    json_schema,
)
from nbcompile.record.packed import unpack
from nbcompile.view.scene import SCHEMA
from tests.nightly import few
from tests.record.test_packed import closed
from tests.view import fixtures, fixtures_gpu

RECORDS: dict[str, Callable[[], Compilation]] = {
    "transformer": fixtures.transformer,
    "break": fixtures.with_break,
    "failed": fixtures.failed,
    "large": lambda: fixtures.large(200),
    "gpu": fixtures_gpu.gpu,
    "empty": lambda: Compilation(id="e"),
    "hostile": lambda: fixtures.hostile(text="<script>\u2028'\"\\"),
    "no cell": lambda: fixtures.transformer(cell=None),
    "no graphs": lambda: fixtures.transformer(graphs=()),
}
every_record = pytest.mark.parametrize("record", [make() for make in RECORDS.values()], ids=list(RECORDS))


def scene(record: Compilation) -> dict[str, Any]:
    made: dict[str, Any] = view.whole(record)["view"]
    return made


@few(4)
@every_record
def test_a_payload_is_a_record_with_a_scene_as_its_schema_says(record: Compilation) -> None:
    payload = view.payload(record)
    assert Compilation.from_dict(payload) == record == Compilation.from_json(json.dumps(payload))
    whole = json.loads(unpack(payload))
    assert whole == view.whole(record)
    assert (payload["schema"], payload["id"]) == (whole["schema"], whole["id"])
    assert payload["title"] == f"{whole['view']['title']} · {record.backend} · {record.mode}"
    for each in (whole, *whole.get("peers", ())):
        jsonschema.validate(each.pop("view"), closed(view.scene_schema()))
    assert whole == json.loads(record.to_json())
    jsonschema.validate(whole, closed(json_schema()))


@few(4)
@every_record
def test_the_same_record_gives_the_same_payload(record: Compilation) -> None:
    assert json.dumps(view.payload(record)) == json.dumps(view.payload(record))
    assert view.mime_bundle(record)[view.MIME] == view.payload(record)


@pytest.mark.parametrize(
    "junk", [None, [], "x", {"drawings": [{"groups": 7}]}, {"schema": "nbcompile.scene/99"}]
)
def test_a_record_is_read_whatever_its_scene_is(junk: Any) -> None:
    record = fixtures.transformer()
    assert Compilation.from_dict({**record.to_dict(), "view": junk}) == record


def test_the_head_is_that_of_the_other_views() -> None:
    record = fixtures.transformer()
    made = scene(record)
    lines = view.to_text(record).split("\n")
    assert made["schema"] == SCHEMA and made["title"] == "In [7]"
    assert made["verdict"]["text"] == lines[0] == "2.3× faster than eager"
    assert made["verdict"]["tone"] == "good" and "eager 2.32 ms" in made["verdict"]["detail"]
    assert any("pays off after" in line for line in made["facts"])
    strip = {step["step"]: step for step in made["strip"]}
    assert list(strip) == ["capture", "aot", "lower", "fuse", "codegen", "build", "run"]
    capture = {"name": "Capture", "figure": "12 ops", "note": "12 ops · 61 ms", "milliseconds": 61.2}
    assert strip["capture"] == {"step": "capture", **capture}
    assert strip["run"]["milliseconds"] == pytest.approx(1.01, rel=0.01)


def test_lines_say_what_became_of_them_and_what_serves_them() -> None:
    made = scene(fixtures.transformer())
    lines = {line["number"]: line for line in made["lines"]}
    assert sorted(lines) == [2, 3, 4, 5, 6, 7, 8], "not the magic line, nor the last, which is a name"
    assert lines[3]["fate"] == "fused" and lines[3]["calls"] == ["g0.fw.k0"]
    assert lines[3]["chips"] == [{"label": "k0", "fate": "fused"}]
    assert lines[2]["fate"] == "library"
    assert sum(line["share"] for line in lines.values()) == pytest.approx(1)
    calls = {call["id"]: call for call in made["calls"]}
    assert {call for line in lines.values() for call in line["calls"]} <= set(calls)
    assert [id for id, call in calls.items() if call["fate"] == "fused"] == [f"g0.fw.k{n}" for n in range(4)]
    assert sum(call["share"] for call in calls.values()) == pytest.approx(1)
    broken = {line["number"]: line["fate"] for line in scene(fixtures.with_break())["lines"]}
    assert broken[3] == "break" and broken[4] == "fallback"


def test_lines_of_other_backends_name_the_ops() -> None:
    record = fixtures.transformer(graphs=fixtures.transformer().graphs[:1], kernels=(), decisions=())
    lines = {line["number"]: line for line in scene(record)["lines"]}
    chips = [{"label": "gelu", "fate": "captured"}]
    assert lines[5] == {"number": 5, "fate": "captured", "share": 0.0, "calls": [], "chips": chips}


def test_titles_without_a_number() -> None:
    assert scene(fixtures.transformer(cell=Cell("x")))["title"] == "cell"
    assert scene(fixtures.large(20))["title"] == "model.py"
    assert scene(Compilation("x", backend="inductor"))["title"] == "inductor compilation"


def test_times_are_numbers_in_seconds() -> None:
    (timing,) = scene(fixtures.transformer())["timings"]
    rows = {row["contestant"]: row for row in timing["rows"]}
    assert timing["what"] == "forward+backward" and "2 threads" in timing["about"]
    assert list(rows) == ["eager", "inductor", "nbcompile"]
    ours, eager = rows["nbcompile"], rows["eager"]
    assert ours["own"] and not eager["own"] and eager["counts"]
    assert ours["p10"] <= ours["median"] <= ours["p90"]
    assert ours["ratio"] == pytest.approx(eager["median"] / ours["median"])
    assert ours["break_even"] == math.ceil(0.19 / (eager["median"] - ours["median"]))
    assert (ours["cold"], ours["warm"], ours["first"]) == (0.19, 0.02, 1.4e-3)
    assert "cold" not in eager, "left out, as all defaults are"
    record = fixtures.transformer()
    assert [record.measurements[row["measurement"]].contestant for row in timing["rows"]] == list(rows)
    slow = {row["contestant"]: row for row in scene(fixtures.with_break())["timings"][0]["rows"]}
    assert slow["nbcompile"]["never"] and not slow["inductor"]["counts"]
    assert slow["inductor"]["reason"] == "recompile limit reached"


@pytest.mark.parametrize("record", [fixtures_gpu.gpu(), fixtures_gpu.many(20, measured=True)])
def test_the_roofline_has_rates(record: Compilation) -> None:
    made = scene(record)
    roof = made["roofline"]
    assert roof["target"] == "cuda:90" and "H100" in roof["title"]
    assert roof["bandwidth"] > 1e12 and roof["matrix_rate"] > roof["float32_rate"] > 1e13
    for point in roof["points"]:
        kernel = next(kernel for kernel in record.kernels if kernel.id == point["kernel"])
        assert point["bytes"] == kernel.bytes_read + kernel.bytes_written
        assert point["bytes_per_second"] == pytest.approx(point["bytes"] / point["seconds"])
        assert point["flops_per_second"] == pytest.approx(point["flops"] / point["seconds"])
        assert point["measured"] == (kernel.seconds is not None)
        assert point.get("share") == (point["limit"] / kernel.seconds if kernel.seconds else None)
        assert point["bound"] in ("memory", "compute", "launch")
        call = next(call for call in made["calls"] if call["id"] == kernel.id)
        assert call["predicted"] > 0
    assert roof["points"]
    assert "roofline" not in scene(fixtures.failed())


def test_schedules_are_explained() -> None:
    record = fixtures.transformer()
    kernel = dataclasses.replace(record.kernels[0], schedule="persistent rows, lanes apart, new one")
    made = scene(dataclasses.replace(record, kernels=(kernel, *record.kernels[1:])))["schedules"]
    assert [meaning["part"] for meaning in made[kernel.schedule]] == ["persistent rows", "lanes apart"]
    assert "whole rows" in made[kernel.schedule][0]["meaning"] and "pointwise" in made


def test_numbers_that_are_none_are_left_out() -> None:
    nan, inf = math.nan, math.inf
    kernel = Kernel("g0.fw.k0", "k", "g0.fw.fused", (), "rows", {}, bytes_read=1, flops=3, target="cuda:90")
    record = Compilation(
        "x",
        graphs=(Graph("g0.fw.fused", "fused", "", (Node("g0.fw.k0", "k", "k", "kernel"),)),),
        kernels=(dataclasses.replace(kernel, seconds=5e-324, predicted_seconds=nan),),
        measurements=(
            Measurement("cell", "eager", steady=(inf, inf)),
            Measurement("cell", "nbcompile", cold=nan, first=inf, steady=(nan, 1.0)),
        ),
        accuracy=(Accuracy("nbcompile", "y", nan, inf),),
    )
    made = scene(record)
    text = json.dumps(made, allow_nan=False)
    assert "NaN" not in text
    jsonschema.validate(made, closed(view.scene_schema()))


def test_records_of_the_first_version_open() -> None:
    """Only what has no default: what a record had before a field came is the least that one can have."""
    nodes = [
        {"id": "g0.fx.n0", "name": "x", "op": "placeholder", "kind": "input"},
        {"id": "g0.fx.n1", "name": "add", "op": "operator.add", "kind": "compute", "inputs": ["g0.fx.n0"]},
    ]
    kernel = {"id": "g0.fw.k0", "name": "add", "graph": "g0.fw.fused", "loops": [], "schedule": "pointwise"}
    old = {
        "schema": "nbcompile.compilation/1",
        "id": "old",
        "cell": {"source": "%%compile\ny = x + 1"},
        "graphs": [{"id": "g0.fx", "stage": "fx", "title": "captured", "nodes": nodes}],
        "kernels": [{**kernel, "sources": {"c": ""}}],
    }
    record = Compilation.from_dict(old)
    made = scene(record)
    assert made["title"] == "cell" and [call["id"] for call in made["calls"]] == ["g0.fw.k0"]
    assert made["drawings"][0]["labels"] == ["x", "add"]


def test_the_script_writes_both_schemas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "scripts" / "schemas.py"
    spec = importlib.util.spec_from_file_location("script_schemas", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = module.write(tmp_path / "out")
    read = {file.name.split(".")[0]: json.loads(file.read_text()) for file in written}
    assert read.keys() == {"record", "scene"}
    assert read["record"] == json_schema()
    schema = read["scene"]
    assert schema == view.scene_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "in pixels" in schema["$defs"]["DrawnGroup"]["description"], "TypeScript's comments come from here"
    assert set(schema["required"]) >= {
        "title",
        "verdict",
        "facts",
        "strip",
        "lines",
        "calls",
        "drawings",
        "schema",
    }
