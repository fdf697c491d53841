"""A browser, a page in it, and the Jupyter applications to open there.

What is missing here fails a test: none is skipped.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from tests.browser.jupyter import NOTEBOOKS_OWN, ROOT, Server
from tests.browser.watch import Complaints

# What keeps Chromium quiet and off the network; the sandbox needs rights that a container's root lacks.
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


# The package's scope, not the session's: while Playwright runs, no other test of this process could start an
# event loop.
@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="package")
def chromium(playwright: Playwright) -> Iterator[Browser]:
    """Headless Chromium: this machine's, else Playwright's own."""
    found = _machine().chromium()
    try:
        browser = playwright.chromium.launch(executable_path=found or None, args=list(_FLAGS))
    except PlaywrightError as error:
        advice = "" if found else f" {_machine().INSTALL_CHROMIUM}"
        pytest.fail(f"Chromium did not start.{advice}\n{error.message}", pytrace=False)
    yield browser
    browser.close()


@pytest.fixture
def theme() -> str:
    """``light`` or ``dark``, what the reader's system asks for (see :mod:`tests.browser.looks`)."""
    return "light"


@pytest.fixture
def width() -> int:
    """Of the window, in CSS pixels."""
    return 1180


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    """Errors on the console and uncaught ones: there must be none that the test did not expect."""
    made = Complaints()
    yield made
    assert made.unexpected() == []


@pytest.fixture
def page(chromium: Browser, theme: str, width: int, complaints: Complaints) -> Iterator[Page]:
    """An empty page in a window of its own, watched for errors."""
    context = chromium.new_context(
        color_scheme="dark" if theme == "dark" else "light",
        viewport={"width": width, "height": 900},
        accept_downloads=True,
    )
    context.set_default_timeout(20_000)
    page = context.new_page()
    complaints.watch(page)
    yield page
    context.close()


@pytest.fixture
def lab(lab_server: Server, page: Page) -> Iterator[Server]:
    """JupyterLab with this checkout's extension and package; no kernel is running."""
    yield lab_server
    page.close()
    lab_server.stop_kernels()


@pytest.fixture
def notebook(notebook_server: Server, page: Page, complaints: Complaints) -> Iterator[Server]:
    """Notebook 7 with this checkout's extension and package; no kernel is running."""
    complaints.expect(NOTEBOOKS_OWN)
    yield notebook_server
    page.close()
    notebook_server.stop_kernels()


@pytest.fixture(scope="session")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server("lab", tmp_path_factory.mktemp("lab"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def notebook_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server("notebook", tmp_path_factory.mktemp("notebook"))
    yield server
    server.stop()


def _machine() -> Any:
    """``scripts/check_machine.py``, which knows where browsers are."""
    spec = importlib.util.spec_from_file_location(
        "check_machine", Path(ROOT) / "scripts" / "check_machine.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
