"""The applications that the other tests open: each runs a notebook of this checkout, and saves it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.browser.jupyter import ROOT
from tests.browser.looks import both_themes


@pytest.mark.nightly
@both_themes
@pytest.mark.parametrize("application", ["lab", "notebook"])
def test_a_notebook_runs_and_is_saved(
    application: str, theme: str, page: Page, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(application)
    path = server.write("where.ipynb", "import nbcompile; print(nbcompile.__file__)")
    server.open(page, path.name)
    server.theme(page, theme)
    server.run_all(page)
    page.wait_for_selector(".jp-OutputArea-output pre")
    (output,) = server.save(page, path).cells[0].outputs
    assert output.text.strip() == str(ROOT / "nbcompile" / "__init__.py")
