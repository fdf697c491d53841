"""Records from strangers in Chromium: each is shown or refused in words, nothing of it runs, nothing is asked
of another machine, nothing hangs. Python's side is tests/hostile/test_in_python.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from nbcompile.view.html import fragment
from tests.browser.strangers import disk_of, look_at
from tests.hostile.records import chosen, chosen_scenes, everything
from tests.nightly import few

ALL = [*chosen(), *chosen_scenes()]


def test_there_are_more_than_two_hundred() -> None:
    assert len(ALL) >= 200


@few(1)
@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith("size ")])
def test_a_hostile_record_is_shown_or_refused_and_runs_nothing(name: str, page: Page, tmp_path: Path) -> None:
    said, faults = look_at(disk_of(page, tmp_path), everything()[name].make())
    assert faults == [], said


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("size ")])
def test_one_of_absurd_size_does_not_take_the_view_down(name: str, page: Page, tmp_path: Path) -> None:
    said, faults = look_at(disk_of(page, tmp_path), everything()[name].make())
    assert faults == [], said


# -- what watches, watched -------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_page_that_escapes_nothing_is_noticed(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaints: Any
) -> None:
    complaints.expect("Content.Security.Policy|Failed to load|ERR_|404")
    monkeypatch.setattr(fragment.environment(), "autoescape", False)
    fragment.environment().cache.clear()
    try:
        _, faults = look_at(disk_of(page, tmp_path), everything()["everywhere an image that fails"].make())
    finally:
        fragment.environment().cache.clear()
    assert any("onerror" in fault or "happened" in fault for fault in faults)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "script",
    [
        "window.canary = 1",
        "document.querySelector('.nbc').append(document.createElement('iframe'))",
        "document.querySelector('.nbc').setAttribute('onclick', 'x')",
        "document.querySelector('.nbc').append('\\u202e')",
        "Object.prototype.polluted = 1",
        "fetch('https://strangersays.invalid/').catch(() => 0)",
        "document.querySelector('.nbc').replaceChildren()",
    ],
)
def test_what_a_record_could_do_is_noticed(script: str, page: Page, tmp_path: Path, complaints: Any) -> None:
    complaints.expect("Content.Security.Policy|ERR_")
    page.add_init_script(
        "addEventListener('load', () => setInterval(() => {"
        f" if (window.looked === 'all' && !window.done) {{ window.done = 1; {script}; }} }}, 1));"
    )
    _, faults = look_at(disk_of(page, tmp_path), everything()["packed keys of prototypes"].make(), wait=200)
    assert len(faults) >= 1
