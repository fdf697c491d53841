"""A file record by record: what is whole, what is cut, and what is no trace at all."""

from __future__ import annotations

import gzip
import hashlib
import tracemalloc
from pathlib import Path

import pytest

from nbcompile.traces.reading import lines
from nbcompile.traces.reading.index import index_of
from nbcompile.traces.reading.lines import TraceReader, text_at
from tests.traces.programs import artifact, record, written


def read(path: Path) -> tuple[list[lines.TraceRecord], TraceReader]:
    reader = TraceReader(path)
    return list(reader), reader


def test_every_payload_of_a_real_trace_is_what_torch_hashed(captures: Path) -> None:
    found, reader = read(captures)
    payloads = [each for each in found if each.place is not None]
    assert len(payloads) > 100 and reader.damaged == 0 and not reader.unread
    assert reader.size == captures.stat().st_size and reader.records == len(found)
    for each in payloads[:: len(payloads) // 40]:
        assert each.place is not None and each.payload is not None
        again = text_at(captures, each.place)
        assert again == each.payload.decode()
        assert hashlib.md5(again.encode()).hexdigest() == each.place.md5


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
@pytest.mark.parametrize("held", [50, 1 << 20])
def test_blocks_of_any_size_read_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, held: int
) -> None:
    text = "\n".join(("", "line", "\ttabbed", "", "ends", ""))
    records = [artifact("a", text), record({"str": ["x", 0]}), artifact("b", "y" * 300), artifact("c", "")]
    path = written(tmp_path / "t.log", records)
    whole, _ = read(path)
    monkeypatch.setattr(lines, "BLOCK", block)
    monkeypatch.setattr(lines, "MOST_HELD", held)
    found, reader = read(path)
    assert reader.damaged == 0 and not reader.unread
    assert [each.header for each in found] == [each.header for each in whole]
    assert [each.place for each in found] == [each.place for each in whole]
    kept = [each.payload is not None for each in found if each.place is not None]
    assert all(kept) == (held > 50)
    assert [text_at(path, each.place) for each in found if each.place] == [text, "y" * 300, ""]


def test_a_payload_too_long_to_be_held_is_hashed_as_it_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "BLOCK", 1 << 16)
    monkeypatch.setattr(lines, "MOST_HELD", 1 << 18)
    payload = "\n".join("0123456789" * 8 for _ in range(200_000))
    path = written(tmp_path / "t.log", [artifact("long", payload), artifact("short", "x")])
    tracemalloc.start()
    found, reader = read(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < len(payload) / 4
    assert reader.damaged == 0 and [each.payload for each in found] == [None, b"x"]
    assert found[0].place is not None and found[0].place.length > len(payload)
    graph = record({"dynamo_output_graph": {}}, payload, frame_id=0, frame_compile_id=0)
    unread = index_of(written(tmp_path / "long.log", [graph])).unread
    assert unread == {"dynamo_output_graph too long to be compared": 1}
    monkeypatch.setattr(lines, "MOST_SHOWN", 100)
    assert (
        text_at(path, found[0].place) == "0123456789" * 8 + "\n" + "01234567890123456"
    )  # 100 bytes, tabs among them


def test_what_was_changed_or_cut_is_counted(tmp_path: Path) -> None:
    whole = artifact("a", "one\ntwo") + artifact("b", "three")
    path = written(tmp_path / "t.log", [whole.replace("two", "owt")])
    found, reader = read(path)
    assert reader.damaged == 1 and [each.place.intact for each in found if each.place] == [False, True]
    _, reader = read(written(path, [whole[:-3]]))
    assert reader.damaged == 1 and not reader.unread
    _, reader = read(written(path, [whole[: whole.rindex("V1125") + 60]]))
    assert reader.unread == {"JSON that does not parse": 1}
    _, reader = read(written(path, ["Traceback (most recent call last):\n", whole, "\n\n", "V1125 no\n"]))
    assert reader.unread["no line of a trace"] == 2 and reader.damaged == 0


def test_gzipped_files_are_read_as_they_are(tmp_path: Path) -> None:
    plain = written(tmp_path / "t.log", [artifact("a", f"{n}\nx") for n in range(400)])
    packed = tmp_path / "t.log.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    found, reader = read(packed)
    assert [each.place for each in found] == [each.place for each in read(plain)[0]]
    assert found[7].place is not None and text_at(packed, found[7].place) == "7\nx"
    packed.write_bytes(packed.read_bytes()[:-200])
    _, reader = read(packed)
    assert any(reason.startswith("the file ends early") for reason in reader.unread)


@pytest.mark.parametrize(
    "header",
    ["[" * 100_000, "[]", '"text"', "{", '{"artifact": 1e999, "has_payload": 3}', '{"a": "\\ud800"}', "{}"],
)
def test_headers_from_anyone(tmp_path: Path, header: str) -> None:
    line = f"V1125 21:11:41.537000 1 torch/x.py:1] {header}\n"
    _, reader = read(written(tmp_path / "t.log", [line, artifact("a", "b")]))
    assert reader.records == 2
