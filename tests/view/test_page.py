"""The stand-alone page: two scripts and no more may run, records are inert, and it reads without scripts."""

from __future__ import annotations

import base64
import hashlib
import html
import html.parser
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from nbcompile import view
from nbcompile.record.compilation import Compilation
from nbcompile.view.html import page as pages
from tests.view import fixtures

RECORDS: dict[str, Callable[[], Compilation]] = {
    "transformer": fixtures.transformer,
    "break": fixtures.with_break,
    "failed": fixtures.failed,
    "empty": lambda: Compilation(id="e"),
    "hostile": fixtures.hostile,
}
every_record = pytest.mark.parametrize("record", [make() for make in RECORDS.values()], ids=list(RECORDS))


class Scripts(html.parser.HTMLParser):
    """The text of each script element and what it says it is; whatever else could load or run something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[dict[str, str | None], str]] = []
        self.others: list[str] = []
        self._inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script"
        if self._inside:
            self.found.append((dict(attrs), ""))
        elif tag in {"iframe", "link", "object", "embed", "form", "base"}:
            self.others.append(tag)
        self.others += [name for name, _ in attrs if name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            kind, text = self.found[-1]
            self.found[-1] = kind, text + data

    def of(self, kind: str | None) -> list[str]:
        return [text for attributes, text in self.found if attributes.get("type") == kind]


def policy(page: str) -> dict[str, list[str]]:
    (text,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    rules = (rule.split() for rule in html.unescape(text).split(";"))
    return {name: values for name, *values in rules}


def hashed(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@every_record
def test_the_policy_lets_two_scripts_run_and_nothing_else(record: Compilation) -> None:
    page = view.to_page(record, fixtures.HOSTILE)
    scripts = Scripts(page)
    (own,) = scripts.of("module")
    (packed,) = scripts.of("text/plain")
    charts = zlib.decompress(base64.b64decode(packed)).decode()
    rules = policy(page)
    assert rules["default-src"] == ["'none'"]
    assert sorted(rules["script-src"]) == sorted([hashed(own), hashed(charts)])
    assert not set(rules) & {"connect-src", "frame-src", "worker-src", "font-src", "object-src"}
    assert len(own) > 10_000 and "Plotly" in charts
    assert scripts.others == [] and len(scripts.found) == 3


@every_record
def test_a_record_stands_in_it_as_json_and_comes_back_whole(record: Compilation) -> None:
    (text,) = Scripts(view.to_page(record)).of("application/json")
    assert not re.search(r"[<>&\u2028\u2029]", text) and text.isascii()
    assert json.loads(text) == view.payload(record)


def test_what_a_script_element_cannot_hold_is_written_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = "var ended = '</script><script>alert(1)</SCRIPT><!--';\r\nvar pattern = /<script/u;\r\n"
    for name in ("explorer.js", "plotly.js", "explorer.css"):
        (tmp_path / name).write_bytes(source.encode() if name == "explorer.js" else b"/* </style> */")
    monkeypatch.setattr(pages, "static", lambda: tmp_path)
    page = view.to_page(Compilation(id="x"))
    (own,) = Scripts(page).of("module")
    assert "\\x3c/script>\\x3cscript>alert(1)\\x3c/SCRIPT>\\x3c!--" in own and "/\\x3cscript/u" in own
    assert "\r" not in page and hashed(own) in policy(page)["script-src"]
    assert page.count("</style>") == 1


def test_several_records_share_a_page() -> None:
    page = view.to_page([fixtures.transformer(), fixtures.failed()], "two runs")
    assert page.count('class="n-root"') == page.count('class="nbcompile-explorer"') == 2
    assert page.count("<style>") == 1 and "<h1>two runs</h1>" in page
    assert len(Scripts(page).of("application/json")) == 2 and len(Scripts(page).of("module")) == 1
    assert re.findall(r'data-payload="(.*?)"', page) == re.findall(r'application/json" id="(.*?)"', page)


def test_more_than_fit_are_counted() -> None:
    page = view.to_page([Compilation(id=str(number)) for number in range(53)])
    assert page.count('class="nbcompile-explorer"') == 50 and "… 3 more" in page


def test_without_scripts_it_is_small_and_has_none() -> None:
    page = view.to_page([fixtures.transformer()], script=False)
    assert not Scripts(page).found and "script-src" not in policy(page)
    assert "nbcompile-explorer" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    assert len(page.encode()) < 300_000


def test_a_checkout_that_was_not_built_gets_the_plain_page_and_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pages, "static", lambda: tmp_path / "static")
    page = view.to_page(fixtures.transformer())
    assert "`make explorer` builds it" in page and not Scripts(page).found
    assert 'class="n-root"' in page and "`make explorer`" not in view.to_page(fixtures.failed(), script=False)
