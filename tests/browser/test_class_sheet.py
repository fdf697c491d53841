"""The sheet of a class, opened from disk: what participants call themselves runs nothing, and all fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page

from nbcompile.workshop import class_sheet
from nbcompile.workshop.progress.curriculum import NOTEBOOKS
from nbcompile.workshop.progress.files import file_name
from nbcompile.workshop.progress.model import Progress
from tests.browser.axe import serious
from tests.browser.looks import both_themes
from tests.hostile.texts import TEXTS
from tests.nightly import few


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A participant a hostile text, in the six notebooks of a class of two hours."""
    shared = tmp_path / "share"
    shared.mkdir()
    for number, text in enumerate(name for name in TEXTS.values() if "\ud800" not in name):
        made = Progress(text[:80])
        for n, notebook in enumerate(NOTEBOOKS):
            for exercise in (
                notebook.exercises if notebook.number in ("00", "01", "02", "03", "06", "13") else ()
            ):
                made = made.after(exercise, (n + number) % 2 == 0, 1.79e9)
        (shared / file_name(text)).write_text(json.dumps(made.to_dict()))
    return shared


@few(1)
@both_themes
@pytest.mark.parametrize("width", [700, 1400])
def test_it_fits_can_be_read_and_runs_nothing(
    page: Page, folder: Path, tmp_path: Path, theme: str, width: int
) -> None:
    file = tmp_path / "sheet.html"
    file.write_text(class_sheet(folder).to_page(), encoding="utf-8")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    assert page.locator("tbody tr").count() == len(list(folder.iterdir()))
    page.locator("tbody th").first.hover()
    assert page.evaluate("window.canary") is None and asked == [file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    assert page.evaluate(
        "[...document.querySelectorAll('.grid')].every((g) => g.scrollWidth <= g.clientWidth)"
    )
    assert serious(page, "main") == []
