"""The stand-alone page, opened from disk: what is linked lights up, and a stranger's record runs nothing."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from nbcompile import view
from nbcompile.record.compilation import Compilation
from nbcompile.record.packed import pack
from nbcompile.record.provenance import Links
from nbcompile.view.facts.facts import calls_of
from tests.browser.looking import OnDisk, press_everything
from tests.browser.looks import both_themes
from tests.nightly import few, soon
from tests.view import fixtures
from tests.view.fixtures_hostile import hostile, poisoned
from tests.view.fixtures_real import real

# Each of these would set the canary if it were taken for anything else than text.
CANARY = (
    "</script><script>window.canary=1</script><img src=x onerror='window.canary=2'>"
    "<svg onload=window.canary=3><iframe srcdoc='<script>top.canary=4</script>'>"
    "\"'`}];window.canary=5;//${window.canary=6}{{constructor.constructor('window.canary=7')()}}"
    "<!--<script>javascript:window.canary=8\u2028\u2029\x00\x1b\ud800&lt;script&gt;</style>*/ __proto__"
)


@pytest.fixture
def disk(page: Page, tmp_path: Path) -> OnDisk:
    return OnDisk(page, tmp_path)


def message(page: Page) -> str:
    """What the explorer says where it cannot show a record."""
    return page.locator(".nbc-failure").inner_text()


# -- what it shows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", soon(["dark"], ["light", "dark"]))
@pytest.mark.parametrize("width", soon([1180], [1180, 420]))
def test_it_opens_from_disk_in_any_look(disk: OnDisk, theme: str, width: int) -> None:
    page = disk.open(fixtures.transformer())
    assert "2.3× faster than eager" in page.inner_text(".nbc-verdict")
    assert page.locator(".n-root").count() == 0, "the plain page gives way"
    dark = page.evaluate("getComputedStyle(document.querySelector('.nbc')).colorScheme === 'dark'")
    assert dark is (theme == "dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    if (theme, width) in {("light", 1180), ("dark", 420)}:
        assert press_everything(page) > 20
    assert page.locator(".nbc-failure").count() == 0
    disk.assert_nothing_happened()


@pytest.mark.parametrize(
    "make", soon([fixtures.with_break], [real, fixtures.transformer, fixtures.with_break])
)
def test_a_line_lights_what_came_from_it_and_a_kernel_its_lines(
    make: Callable[[], Compilation], disk: OnDisk
) -> None:
    record = make()
    links = Links(record)
    calls = {call.id: call for call in calls_of(record, links)}
    page = disk.open(record)
    for button in page.locator(".nbc-more").all():
        button.click()
    lines = [line for line in view.whole(record)["view"]["lines"] if line["calls"]]
    assert len(lines) >= 2
    for line in lines:
        page.hover(f"[data-line='{line['number']}'] .nbc-source")
        lit = page.locator(".nbc-unfolded .nbc-lit").evaluate_all(
            "(all) => all.map((each) => each.textContent)"
        )
        made = set(links.at_line(line["number"])) & set(calls)
        assert {_name(text) for text in lit} == {calls[id].name for id in made}
    for line in lines:
        rows = page.locator(f"[data-line='{line['number']}'] + .nbc-unfolded li")
        for place, id in enumerate(line["calls"]):
            rows.nth(place).hover()
            numbers = page.locator(".nbc-line.nbc-lit").evaluate_all(
                "(all) => all.map((row) => +row.dataset.line)"
            )
            assert sorted(numbers) == [n for n in sorted(links.lines(id)) if n <= _count(record)]


def _name(text: str) -> str:
    """Of a row ``k0 name 12% · 3 µs``."""
    return text.split(" ")[1]


def _count(record: Compilation) -> int:
    assert record.cell
    return len(record.cell.source.rstrip("\n").split("\n"))


@pytest.mark.nightly
def test_the_keyboard_reaches_it_all(disk: OnDisk) -> None:
    record = fixtures.transformer()
    page = disk.open(record)
    reached: list[str] = []
    for _ in range(200):
        page.keyboard.press("Tab")
        found = page.evaluate(
            "() => { const e = document.activeElement; if (e === document.body) return null;"
            " return [e.className, (e.getAttribute('aria-label') ?? e.textContent).trim()]; }"
        )
        if found is None:
            break
        assert found[1], f"{found[0]} has no name for a screen reader"
        reached += found[0].split()
    assert len(reached) > 40
    assert {"nbc-step", "nbc-source", "nbc-chip", "nbc-more", "nbc-tab"} <= set(reached)
    line = page.locator(".nbc-source[tabindex]").first
    line.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.mouse.move(0, 0)
    assert line.get_attribute("aria-pressed") == "true"
    page.locator("[aria-live]", has_text="of the cell").wait_for(state="attached")
    page.keyboard.press("Escape")
    assert line.get_attribute("aria-pressed") == "false"


@pytest.mark.nightly
def test_arrows_move_through_the_panels(disk: OnDisk) -> None:
    page = disk.open(fixtures.transformer())
    tabs = page.locator("[role=tablist][aria-label=details] [role=tab]")
    tabs.first.focus()
    for place in range(1, tabs.count()):
        page.keyboard.press("ArrowRight")
        assert tabs.nth(place).get_attribute("aria-selected") == "true"
    page.keyboard.press("ArrowRight")
    assert tabs.first.get_attribute("aria-selected") == "true"


@pytest.mark.nightly
def test_several_records_each_have_an_explorer(disk: OnDisk) -> None:
    page = disk.open([fixtures.transformer(), fixtures.failed()], title="two runs")
    assert page.locator(".nbc .nbc-head").count() == 2
    assert page.inner_text("h1") == page.title() == "two runs"
    disk.assert_nothing_happened()


@pytest.mark.nightly
def test_the_chart_library_runs_under_the_policy_once_a_chart_is_shown(disk: OnDisk) -> None:
    page = disk.open(fixtures.transformer())
    assert page.evaluate("typeof window.Plotly") == "undefined"
    page.get_by_role("tab", name="Timing").click()
    page.wait_for_selector(".js-plotly-plot .barlayer .point", state="attached")
    disk.assert_nothing_happened()


@pytest.mark.nightly
def test_a_kernel_is_downloaded_from_a_file(disk: OnDisk) -> None:
    record = fixtures.transformer()
    page = disk.open(record)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the").first.click()
    text = download.value.path().read_text()
    assert text in {source for kernel in record.kernels for source in kernel.sources.values()}
    disk.assert_nothing_happened()


@pytest.mark.nightly
def test_on_paper_it_is_the_plain_page(disk: OnDisk) -> None:
    page = disk.open(fixtures.transformer())
    count = "[document.querySelectorAll('.nbc').length, document.querySelectorAll('.n-root').length]"
    page.evaluate(f"window.addEventListener('beforeprint', () => {{ window.printed = {count}; }})")
    page.pdf()
    assert page.evaluate("window.printed") == [0, 1]
    assert page.evaluate(count) == [1, 0]


def test_without_scripts_it_is_the_plain_page(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(view.to_page(fixtures.transformer()), encoding="utf-8")
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert "2.3× faster than eager" in page.inner_text(".n-root")
    assert page.locator(".nbcompile-explorer").bounding_box()["height"] == 0
    context.close()


# -- records from strangers ---------------------------------------------------------------------------


@pytest.mark.nightly
@both_themes
@pytest.mark.parametrize("kind", ["every field", "a transformer", "a graph break", "a failure"])
def test_hostile_text_runs_nothing(kind: str, disk: OnDisk, theme: str) -> None:
    records = {
        "every field": lambda: hostile(text=CANARY),
        "a transformer": lambda: poisoned(fixtures.transformer(), CANARY),
        "a graph break": lambda: poisoned(fixtures.with_break(), CANARY),
        "a failure": lambda: poisoned(fixtures.failed(), CANARY),
    }
    page = disk.open(records[kind](), title=CANARY)
    shown = page.locator(".nbc")
    assert "window.canary=1" in shown.inner_text(), "shown, as text"
    assert press_everything(page) > 5
    assert shown.locator("script, img, iframe, object, embed, link").count() == 0
    assert page.locator(".nbc-failure").count() == 0
    disk.assert_nothing_happened()


@pytest.mark.nightly
def test_hostile_words_from_python_run_nothing(disk: OnDisk) -> None:
    """The Scene as well is taken from the file: a stranger can write what Python never would."""
    values = view.whole(fixtures.transformer())
    values["view"] = _with_text(values["view"], CANARY)
    page = disk.open_payload(values)
    assert "window.canary=1" in page.locator(".nbc").inner_text()
    press_everything(page)
    disk.assert_nothing_happened()


def _with_text(value: Any, text: str) -> Any:
    """With ``text`` after every string that is not one of a few allowed words."""
    words = {"tone", "fate", "kind", "step", "schema", "bound", "direction"}
    if isinstance(value, dict):
        return {key: item if key in words else _with_text(item, text) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_text(item, text) for item in value]
    return value + text if isinstance(value, str) else value


DAMAGED = {
    "no JSON": ("}{", "not an nbcompile record"),
    "nothing": ("", "not an nbcompile record"),
    "a number": ("7", "not an nbcompile record"),
    "a list": ("[]", "not an nbcompile record"),
    "deep": ("[" * 5_000 + "]" * 5_000, "not an nbcompile record"),
    "another format": ('{"schema": "nbformat/4", "cells": []}', "no nbcompile schema line"),
    "a later version": ('{"schema": "nbcompile.compilation/99", "id": "x"}', "this explorer reads"),
    "no version": ('{"schema": "nbcompile.compilation/", "id": "x"}', "no nbcompile schema line"),
    "no id": ('{"schema": "nbcompile.compilation/1"}', "damaged"),
    "wrong kinds": ('{"schema": "nbcompile.compilation/1", "id": "x", "graphs": {"a": 1}}', "graphs"),
}


@few(1)
@pytest.mark.parametrize("name", list(DAMAGED))
def test_what_is_no_record_is_told(name: str, disk: OnDisk) -> None:
    text, said = DAMAGED[name]
    page = disk.open(fixtures.transformer(), text)
    assert said in message(page)
    assert page.locator(".n-root").is_visible(), "the plain form stays"
    disk.assert_nothing_happened()


def _nodes(values: dict[str, Any]) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = values["graphs"][0]["nodes"]
    return nodes


def _wrong_span(values: dict[str, Any]) -> None:
    _nodes(values)[3]["spans"] = [{"line": "three"}]


def _nine_peers(values: dict[str, Any]) -> None:
    values["peers"] = [{"id": f"x{number}"} for number in range(9)]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("change", "said"),
    [(_wrong_span, "graphs.0.nodes.3.spans.0.line"), (_nine_peers, "more than 8 items")],
    ids=["a wrong span", "nine peers"],
)
def test_a_damaged_record_is_told(change: Callable[[dict[str, Any]], None], said: str, disk: OnDisk) -> None:
    values = view.whole(fixtures.transformer())
    change(values)
    assert said in message(disk.open_payload(pack(values)))
    disk.assert_nothing_happened()


@pytest.mark.nightly
@pytest.mark.parametrize("cut", [slice(1, None), slice(0, 4000)], ids=["its start", "its end"])
def test_a_packed_record_without_a_part_is_told(cut: slice, disk: OnDisk) -> None:
    payload = view.payload(fixtures.transformer())
    page = disk.open_payload({**payload, "deflate": payload["deflate"][cut]})
    assert "it cannot be unpacked" in message(page)
    disk.assert_nothing_happened()


@pytest.mark.nightly
def test_a_circle_of_origins_ends(disk: OnDisk) -> None:
    values = view.whole(fixtures.transformer())
    nodes = _nodes(values)
    nodes[1]["origins"], nodes[2]["origins"] = [nodes[2]["id"]], [nodes[1]["id"]]
    page = disk.open_payload(values)
    press_everything(page, 40)
    assert page.locator(".nbc-failure").count() == 0
    disk.assert_nothing_happened()


@pytest.mark.nightly
def test_a_span_over_billions_of_lines_is_cut(disk: OnDisk) -> None:
    values = view.whole(fixtures.transformer())
    for node in _nodes(values):
        node["spans"] = [{"line": 2, "end_line": 2**31}]
    page = disk.open_payload(values)
    page.hover("[data-line='3'] .nbc-source")
    assert page.locator(".nbc-failure").count() == 0


@pytest.mark.nightly
def test_300_megabytes_packed_into_a_record_are_not_written_out(disk: OnDisk) -> None:
    bomb = base64.b64encode(zlib.compress(bytes(300_000_000), 9)).decode()
    assert len(bomb) < 400_000
    page = disk.open_payload({**view.payload(fixtures.transformer()), "deflate": bomb})
    assert "too large to be shown: it unpacks to more than 256 MB" in message(page)
    assert page.locator(".n-root").is_visible(), "the plain form stays"
    disk.assert_nothing_happened()


# -- records of other versions ---------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_record_without_a_view_opens(disk: OnDisk) -> None:
    values = view.whole(fixtures.transformer())
    del values["view"]
    page = disk.open_payload(values)
    assert "norm1(x + a)" in page.inner_text(".nbc-cell")
    press_everything(page, 60)
    assert page.locator(".nbc-failure").count() == 0
    disk.assert_nothing_happened()


@pytest.mark.nightly
def test_a_record_with_a_damaged_view_opens_without_it(disk: OnDisk) -> None:
    values = view.whole(fixtures.transformer())
    values["view"]["lines"] = 3
    page = disk.open_payload(values)
    assert "damaged: lines must be array" in page.inner_text(".nbc")
    assert "norm1(x + a)" in page.inner_text(".nbc-cell")
    disk.assert_nothing_happened()


@few(1)
@pytest.mark.parametrize("field", [None, "later"], ids=["an early record", "a field of a later version"])
def test_what_a_record_lacks_or_has_more_is_no_matter(field: str | None, disk: OnDisk) -> None:
    values: dict[str, Any] = {"schema": "nbcompile.compilation/1", "id": "early"}
    if field:
        values[field] = {"anything": [1, 2, 3]}
    page = disk.open(Compilation(id="replaced"), json.dumps(values))
    assert "early" in page.inner_text(".nbc-head")
    press_everything(page, 40)
    assert page.locator(".nbc-failure").count() == 0
    disk.assert_nothing_happened()
