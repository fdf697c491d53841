"""The JupyterLab extension: what stands around the explorer in a notebook, in JupyterLab and Notebook 7."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.jupyter import ROOT, Server
from tests.browser.looks import both_themes
from tests.nightly import soon

SETUP = "import torch\nx = torch.randn(64, 64)"
BODY = "y = torch.softmax(x, -1) * 2\nprint(float(y[0, 0]))\nz = y.sin() + 1\nz.sum()"
CELL = f"%%compile --no-bench\n{BODY}"
BREAK = 3
"""The line of CELL that breaks the graph."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[nbformat.NotebookNode]:
    """The cells of a notebook that was run and saved."""
    path = tmp_path_factory.mktemp("compiled") / "compiled.ipynb"
    sources = [
        f"%load_ext nbcompile\n{SETUP}",
        CELL,
        "%%compile --no-bench --into again\nw = x * 2 + 1",
        "1 + 1",
    ]
    nbformat.write(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in sources]), path
    )
    subprocess.run(
        [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )
    return list(nbformat.read(path, 4).cells)


def opened(server: Server, page: Page, cells: list[nbformat.NotebookNode]) -> Path:
    """The saved notebook, opened without a kernel."""
    path = server.write("saved.ipynb", *cells)
    saved = nbformat.read(path, 4)
    saved.metadata = {}  # no kernel's name: which one is asked for
    nbformat.write(saved, path)
    server.open(page, path.name, kernel=False)
    page.locator(".jp-Dialog button", has_text="No Kernel").click()
    return path


def cell(page: Page, number: int) -> Locator:
    return page.locator(".jp-Notebook .jp-CodeCell").nth(number)


def editor_line(page: Page, number: int, line: int) -> Locator:
    return cell(page, number).locator(".cm-line").nth(line - 1)


def explorer_line(place: Locator, line: int) -> Locator:
    return place.locator(f".nbc-line[data-line='{line}']")


EDITOR = ".jp-InputArea-editor .cm-content"
LIT = re.compile(r"\bnbc-lit\b")
LIT_LINE = re.compile(r"\bnbc-lit-line\b")


@pytest.mark.nightly
@both_themes
@pytest.mark.parametrize("application", ["lab", "notebook"])
def test_a_saved_notebook_opens_with_no_kernel(
    application: str,
    theme: str,
    page: Page,
    compiled: list[nbformat.NotebookNode],
    request: pytest.FixtureRequest,
) -> None:
    server = request.getfixturevalue(application)
    opened(server, page, compiled)
    server.theme(page, theme)
    explorer = cell(page, 1).locator(".nbc")
    expect(explorer_line(explorer, 2).locator(".nbc-chip").first).to_be_visible()
    expect(explorer).to_have_class(re.compile(r"\bnbc-dark\b") if theme == "dark" else re.compile(r"^nbc$"))
    # The notebook is not trusted, so neither its HTML nor anything else that could do something is shown.
    trusted = "jupyterapp.shell.currentWidget.content.widgets[1].model.trusted"
    assert page.evaluate(f"() => {trusted}") is False
    explorer.get_by_role("tab", name="Play").click()
    expect(explorer).to_contain_text("no kernel: run the notebook's kernel and this cell again")


@pytest.mark.parametrize("application", soon(["lab"], ["lab", "notebook"]))
def test_explorer_and_editor_light_each_other(
    application: str, page: Page, compiled: list[nbformat.NotebookNode], request: pytest.FixtureRequest
) -> None:
    opened(request.getfixturevalue(application), page, compiled)
    explorer = cell(page, 1).locator(".nbc")
    explorer_line(explorer, 2).locator(".nbc-source").hover()
    expect(editor_line(page, 1, 2)).to_have_class(LIT_LINE)
    chips = explorer_line(explorer, 2).locator(".nbc-chip")
    expect(chips.first).to_have_class(LIT)
    expect(explorer_line(explorer, 4).locator(".nbc-chip").first).to_have_class(re.compile(r"\bnbc-dim\b"))
    # A kernel lights the lines that it came from.
    explorer_line(explorer, 4).locator(".nbc-chip").first.hover()
    expect(editor_line(page, 1, 4)).to_have_class(LIT_LINE)
    expect(editor_line(page, 1, 2)).not_to_have_class(LIT_LINE)
    # And the cursor lights kernels.
    editor_line(page, 1, 2).click()
    expect(chips.first).to_have_class(LIT)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(chips.first).to_have_class(re.compile(r"\bnbc-dim\b"))
    expect(explorer_line(explorer, 4).locator(".nbc-chip").first).to_have_class(LIT)
    editor_line(page, 3, 1).click()
    expect(chips.first).not_to_have_class(re.compile(r"nbc-(lit|dim)"))


@pytest.mark.nightly
def test_the_editor_marks_breaks_and_says_why(
    lab: Server, page: Page, compiled: list[nbformat.NotebookNode]
) -> None:
    opened(lab, page, compiled)
    gutter = cell(page, 1).locator(".nbc-gutter")
    expect(gutter.locator(".nbc-mark-break")).to_have_count(1)
    assert gutter.locator(".nbc-mark-fused").count() == 3
    box = editor_line(page, 1, BREAK).bounding_box()
    assert box
    page.mouse.move(box["x"] + 20, box["y"] + 6)
    page.mouse.move(box["x"] + 24, box["y"] + 8)
    card = page.locator(".nbc-card")
    expect(card).to_contain_text(f"line {BREAK}: the graph breaks here")
    expect(card).to_contain_text("print runs in Python")
    # Marks tell of what was compiled: they turn grey while the cell is another.
    editor_line(page, 1, BREAK).click()
    page.keyboard.press("End")
    page.keyboard.type("  # edited")
    expect(cell(page, 1).locator(".nbc-stale")).to_have_count(1)
    for _ in "  # edited":
        page.keyboard.press("Backspace")
    expect(cell(page, 1).locator(".nbc-stale")).to_have_count(0)


@pytest.mark.nightly
def test_the_explorer_beside_follows_the_active_cell(
    lab: Server, page: Page, compiled: list[nbformat.NotebookNode]
) -> None:
    opened(lab, page, compiled)
    expect(cell(page, 1).locator(".nbc")).to_be_visible()
    lab.execute(page, "nbcompile:show-beside")
    beside = page.locator(".nbc-beside")
    records = [cell(page, number).locator(".nbc").get_attribute("data-record") for number in (1, 2)]
    expect(beside.locator(".nbc")).to_have_attribute("data-record", records[1] or "")
    editor_line(page, 1, 2).click()
    expect(beside.locator(".nbc")).to_have_attribute("data-record", records[0] or "")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowDown")
    expect(explorer_line(beside, 2).locator(".nbc-chip").first).to_have_class(LIT)
    explorer_line(beside, 4).locator(".nbc-source").hover()
    expect(editor_line(page, 1, 4)).to_have_class(LIT_LINE)
    # A cell without a compilation changes nothing.
    editor_line(page, 3, 1).click()
    expect(beside.locator(".nbc")).to_have_attribute("data-record", records[0] or "")
    beside.get_by_role("button", name="Pin").click()
    editor_line(page, 2, 2).click()
    lab.execute(page, "nbcompile:pin")
    expect(beside.locator(".nbc-beside-pin")).to_have_count(2)


@pytest.mark.nightly
def test_a_window_of_its_own_lights_the_notebooks_cell(
    lab: Server, page: Page, compiled: list[nbformat.NotebookNode]
) -> None:
    opened(lab, page, compiled)
    shown = cell(page, 1).locator(".nbc")
    if shown.get_by_role("button", name="Graph and kernels").count():
        shown.get_by_role("button", name="Graph and kernels").click()
    with page.expect_popup() as opening:
        shown.get_by_role("button", name="Open the explorer in a window of its own").click()
    away = opening.value
    explorer_line(away.locator(".nbc"), 4).locator(".nbc-source").hover()
    expect(editor_line(page, 1, 4)).to_have_class(LIT_LINE)
    # What the notebook's own theme gives, the window has too.
    family = "e => getComputedStyle(e).fontFamily"
    assert away.locator(".nbc").evaluate(family) == cell(page, 2).locator(".nbc").first.evaluate(family)


@pytest.mark.nightly
def test_commands_completion_and_highlighting(lab: Server, page: Page) -> None:
    # nbcompile is not loaded, but told already to take no times: that would be most of this test.
    setup = f"{SETUP}\nget_ipython().config.NbCompile.bench = False"
    path = lab.write("live.ipynb", setup, BODY, "%%compile --save '''it\ndef f():\n    return 1")
    lab.open(page, path.name)
    # What is open on the magic line does not make a string of the rest.
    keyword = editor_line(page, 2, 2).locator("span", has_text="def")
    assert keyword.evaluate("e => getComputedStyle(e).fontWeight") == "700"
    lab.execute(page, "notebook:run-cell-and-select-next")
    page.keyboard.press("Control+Shift+c")
    page.locator(".lm-CommandPalette-input").fill("Compile this cell")
    page.keyboard.press("Enter")
    expect(page.locator(".Toastify__toast")).to_contain_text(
        "nbcompile was loaded into this kernel", timeout=30_000
    )
    expect(explorer_line(cell(page, 1).locator(".nbc"), 2)).to_be_visible(timeout=60_000)
    assert cell(page, 1).locator(EDITOR).inner_text().startswith("%%compile\n")
    lab.idle(page)
    content = cell(page, 2).locator(EDITOR)
    content.click()
    for keys, wanted in (("%%compile --m", "--mode"), ("%%compile\ntorch.nonz", "torch.nonzero")):
        page.keyboard.press("Control+a")
        page.keyboard.type(keys)
        found = page.locator(".jp-Completer:not(.lm-mod-hidden) .jp-Completer-item").first
        for _ in range(4):  # JupyterLab drops an answer that takes the kernel over a second
            page.keyboard.press("Tab")
            with contextlib.suppress(AssertionError):
                expect(found.or_(content.get_by_text(wanted)).first).to_be_visible(timeout=5_000)
                break
        if found.is_visible():
            page.keyboard.press("Enter")
        expect(content).to_contain_text(wanted)

    # What needs the kernel says when it is gone.
    explorer = cell(page, 1).locator(".nbc")
    explorer.get_by_role("tab", name="Play").click()
    expect(explorer.get_by_role("combobox", name="backend")).to_be_enabled(timeout=20_000)
    lab.stop_kernels()
    expect(explorer).to_contain_text("no kernel: run the notebook's kernel", timeout=20_000)
