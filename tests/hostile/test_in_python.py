"""Records from strangers, in Python: every one gives a result or an error of ours, in time and memory, and no
text of it becomes markup, moves a cursor or names a file."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nbcompile import view
from nbcompile.errors import RecordError
from nbcompile.record.compilation import Compilation
from nbcompile.record.matching import line_map
from nbcompile.record.packed import MAX_DEPTH, MAX_VALUES, json_text
from nbcompile.record.provenance import Links
from nbcompile.view.html import fragment
from nbcompile.view.scene import Scene
from tests.hostile import base
from tests.hostile.fields import REFERENCES, SCENE_REFERENCES, places
from tests.hostile.judging import USES, judge
from tests.hostile.reading import faults
from tests.hostile.records import all_records, chosen, chosen_scenes, everything
from tests.hostile.sizes import chain, dense
from tests.hostile.texts import ALL, TEXTS
from tests.nightly import few, soon

ROOT = Path(__file__).parents[2]
OF_SIZES = ("text", "html", "payload")
"""What is done with records of absurd size: the rest does the same over and over."""


def test_there_are_hundreds_and_every_field_is_among_them() -> None:
    assert len(chosen()) >= 200 and len(everything()) > 1_500
    for root, references in ((Compilation, REFERENCES), (Scene, SCENE_REFERENCES)):
        found = places(root)
        assert references <= {place.name for place in found}
        start = "" if root is Compilation else "scene "
        for place in found:
            sort = {"text": "text", "any": "text", "whole": "number", "number": "number"}.get(place.sort)
            if sort and place.name not in ("Compilation.schema", "Scene.schema"):
                assert any(name.startswith(f"{start}{sort} {place}") for name in everything()), place
    assert len({*chosen(), *chosen_scenes()}) == len(chosen()) + len(chosen_scenes())


@few(5)
@pytest.mark.parametrize("name", [name for name in chosen() if not name.startswith("size ")])
def test_a_hostile_record_gives_a_result_or_an_error_of_ours(name: str) -> None:
    verdict = judge(all_records()[name].make())
    assert verdict.faults == []
    assert verdict.refused.isprintable() and len(verdict.refused) < 400


@pytest.mark.parametrize(
    "name", soon(["size circle of 2,000"], [name for name in chosen() if name.startswith("size ")])
)
def test_a_record_of_absurd_size_or_shape_is_shown_in_time(name: str) -> None:
    verdict = judge(all_records()[name].make(), 60, {use: USES[use] for use in OF_SIZES})
    assert verdict.faults == []


# -- what watches, watched -------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_view_that_escapes_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = all_records()["everywhere a script"].make()
    html = {"html": USES["html"]}
    assert judge(text, uses=html).faults == []
    monkeypatch.setattr(fragment.environment(), "autoescape", False)
    fragment.environment().cache.clear()
    try:
        assert any("<script>" in fault for fault in judge(text, uses=html).faults)
    finally:
        fragment.environment().cache.clear()


@pytest.mark.parametrize(
    "name", [name for name in TEXTS if name not in ("a prototype", "a path", "a formula")]
)
def test_each_text_is_noticed_where_it_is_not_escaped(name: str) -> None:
    text = TEXTS[name]
    raw = [
        f"<p>{text}</p>",
        f'<p title="{text}">x</p>',
        f'<p style="color:{text}">x</p>',
        f"<img src='{text}'>",
    ]
    assert any(faults(each) for each in raw)


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda record: {}["x"], "KeyError"),
        (lambda record: [1 for _ in iter(int, 1)], "longer than 0.5 s"),
        (lambda record: faults(f"<p>{record.backend}</p>"), "<script>"),
    ],
)
def test_what_fails_hangs_or_lets_markup_through_is_a_fault(use: Any, said: str) -> None:
    verdict = judge(json.dumps({**base.values(), "backend": "<script>"}), 0.5, {"use": use})
    assert len(verdict.faults) == 1 and said in verdict.faults[0]


# -- bounds, before anything is made of it ----------------------------------------------------------------

_BOMBS: dict[str, tuple[bytes, bytes, int, bytes]] = {
    "wrong items": (b'"notes":[', b"{},", 80_000_000, b"1]"),
    "lists": (b'"options":{"a":[', b"[],", 70_000_000, b"1]}"),
    "wrong values of a dictionary": (b'"kernels":[{"sources":{', b'"":{},', 3_500_000, b'"":1}}]'),
    "items that lack everything": (b'"graphs":[', b"{},", 3_500_000, b"1]"),
}
_READ = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from nbcompile.errors import RecordError
from nbcompile.record.compilation import Compilation
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
try:
    Compilation.from_json(sys.stdin.buffer.read())
except RecordError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000, error.message)
"""


@pytest.mark.parametrize("packed", soon([True], [True, False]), ids=["packed", "plain"])
@pytest.mark.parametrize("name", soon(["lists"], _BOMBS))
def test_a_bomb_is_refused_in_little_memory(name: str, packed: bool) -> None:
    import base64
    import zlib

    start, unit, count, end = _BOMBS[name]
    inside = b'{"schema":"nbcompile.compilation/1","id":"x",' + start + unit * count + end + b"}"
    head = b'{"schema":"nbcompile.compilation/1","id":"x","deflate":"'
    sent = head + base64.b64encode(zlib.compress(inside, 1)) + b'"}' if packed else inside
    command = [sys.executable, "-c", _READ, str(ROOT)]
    run = subprocess.run(command, input=sent, capture_output=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr.decode()[-500:]
    megabytes, _, said = run.stdout.decode().partition(" ")
    assert said and int(megabytes) < 2_500


def test_what_reads_as_too_much_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    import nbcompile.record.packed as packed

    monkeypatch.setattr(packed, "MAX_VALUES", 10)
    with pytest.raises(RecordError, match="more than 10 values"):
        Compilation.from_json(
            json.dumps({"schema": "nbcompile.compilation/1", "id": "x", "notes": ["n"] * 20})
        )
    assert MAX_VALUES > 1_000_000


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", "1e300", "9" * 30, "9" * 5_000])
def test_numbers_that_json_has_not_or_that_measure_nothing_are_refused(value: str, packed: bool) -> None:
    from tests.hostile.records import packed_text

    text = f'{{"schema":"nbcompile.compilation/1","id":"x","compile_seconds":{value}}}'
    with pytest.raises(RecordError, match=r"number|damaged"):
        Compilation.from_json(packed_text(text) if packed else text)


@pytest.mark.parametrize("depth", [MAX_DEPTH - 2, MAX_DEPTH + 2, 150, 900])
def test_options_are_not_deeper_than_they_can_be_written(depth: int) -> None:
    text = f'{{"schema":"nbcompile.compilation/1","id":"x","options":{{"a":{"[" * depth}{"]" * depth}}}}}'
    if depth < MAX_DEPTH:
        record = Compilation.from_json(text)
        assert Compilation.from_json(record.to_json()) == record
    else:
        with pytest.raises(RecordError, match=r"deep|not JSON"):
            Compilation.from_json(text)


def test_a_peer_has_no_peers() -> None:
    inner = {"id": "y", "peers": [{"id": "z"}]}
    with pytest.raises(RecordError, match="peers"):
        Compilation.from_dict({"schema": "nbcompile.compilation/1", "id": "x", "peers": [inner]})


def test_what_a_refusal_quotes_is_one_short_line() -> None:
    schema = f"nbcompile.compilation/{ALL * 20}"
    keys = {"schema": "nbcompile.compilation/1", "id": "x", "kernels": [{"sources": {ALL: 1}}]}
    for data in ({"schema": schema}, keys):
        with pytest.raises(RecordError) as caught:
            Compilation.from_dict(data)
        assert caught.value.message.isprintable() and len(caught.value.message) < 500


# -- texts ------------------------------------------------------------------------------------------------


def test_what_turns_the_direction_of_code_is_written_out() -> None:
    source = "%%compile\nx = y  # \u202e\u2066 } \u2069\u2066 if admin"
    record = dataclasses.replace(base.record(), cell=dataclasses.replace(base.record().cell, source=source))  # type: ignore[type-var]
    html, text = view.to_html(record), view.to_text(record)
    assert "‹U+202E›" in html and not {"\u202e", "\u2066", "\u2069"} & {*html, *text}


def test_text_that_utf_8_has_not_is_written_and_read_again(tmp_path: Path) -> None:
    record = Compilation(id="\ud800", notes=("\udfff\ud83d", "\U0001f600"))
    path = tmp_path / "record.json"
    path.write_text(record.to_json(), encoding="utf-8")
    assert Compilation.from_json(path.read_bytes()) == record
    assert json.loads(json_text({"a": "\ud800é"})) == {"a": "\ud800é"}


# -- graphs -----------------------------------------------------------------------------------------------


def test_a_walk_up_a_chain_or_a_web_ends_soon() -> None:
    links = Links(Compilation.from_json(chain(3_000)))
    assert 0 < len(links.up("n2999")) < 100
    begun = time.process_time()
    links = Links(Compilation.from_json(dense(400)))
    for id in links.nodes:
        links.up(id), links.lines(id)
    assert time.process_time() - begun < 20


def test_ten_thousand_lines_are_not_held_against_ten_thousand_others() -> None:
    one, two = ("\n".join(f"{n} {word}" * 20 for n in range(10_000)) for word in ("a", "b"))
    begun = time.process_time()
    assert line_map(one, two) == {}
    assert line_map(f"same\n{one}\nend", f"same\n{two}\nend") == {1: 1, 10_002: 10_002}
    assert line_map("x\n" * 900, "y\n" + "x\n" * 899 + "z\n") != {}
    assert time.process_time() - begun < 20


# -- files ------------------------------------------------------------------------------------------------


def test_a_record_names_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbcompile.notebook.display import save

    path = f"../../{tmp_path.name}/outside"
    values = base.values() | {"id": path, "backend": path}
    values["cell"]["filename"] = str(tmp_path / "named.py")
    folder = tmp_path / "inner" / "folder"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    record = Compilation.from_dict(values)
    for name in ("a.nbcompile.json", "a.html"):
        save(record, name)
    files = {each.relative_to(tmp_path).as_posix() for each in tmp_path.rglob("*") if each.is_file()}
    assert files == {"inner/folder/a.nbcompile.json", "inner/folder/a.html"}
