"""The answer first, in a real JupyterLab: small, whole, one click from all else, and with a memory."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.jupyter import Server

SETUP = "%load_ext nbcompile\nimport torch\nx = torch.randn(256, 512)"
CELL = "%%compile --no-bench\ny = torch.softmax(x, -1) * 2\nz = (y.sin() + 1).sum(0)\nz"
SECONDS = 60_000
"""What a step may take on a busy machine, in milliseconds."""
ANSWER = {1900: 260, 1400: 260, 700: 360}
"""Pixels of height for a cell of four lines, by the window's width: "about 200", more where text wraps."""


def ran(server: Server, page: Page, cell: str, width: int = 1400) -> Locator:
    """The explorer of a cell that has just run."""
    path = server.write("answer.ipynb", SETUP, cell)
    page.set_viewport_size({"width": width, "height": 1200})
    server.open(page, path.name)
    server.run_all(page)
    found = page.locator(".jp-Notebook .jp-CodeCell").nth(1).locator(".nbc")
    expect(found.locator(".nbc-verdict")).to_be_visible(timeout=SECONDS)
    server.idle(page)
    return found


@pytest.mark.nightly
@pytest.mark.parametrize(
    "width", [1400, *(pytest.param(width, marks=pytest.mark.nightly) for width in (700, 1900))]
)
def test_it_is_small_and_the_cell_is_whole(lab: Server, page: Page, width: int) -> None:
    place = ran(lab, page, CELL, width)
    expect(place.locator(".nbc-panes")).to_have_count(0)
    box = place.bounding_box()
    assert box and box["height"] < ANSWER[width], box
    for line in CELL.splitlines():
        source = place.locator(".nbc-source", has_text=line).first
        cut = source.evaluate("element => element.scrollWidth - element.clientWidth")
        assert cut <= 1, f"{line!r} is cut by {cut} px"
    # A chip leads to its kernel.
    place.locator(".nbc-chip").first.click()
    expect(place.locator(".nbc-pane-code")).to_contain_text("softmax")


@pytest.mark.nightly
def test_a_cell_without_tensors_takes_two_lines(lab: Server, page: Page) -> None:
    place = ran(lab, page, "%%compile\na = 1 + 1\nprint(a)")
    box = place.bounding_box()
    assert box and box["height"] < 80, box
    expect(place.locator(".nbc-verdict")).to_contain_text("print runs in Python")


@pytest.mark.nightly
def test_it_stays_open_says_what_changed_and_steps_back(lab: Server, page: Page) -> None:
    place = ran(lab, page, CELL)
    expect(place.locator(".nbc-because")).to_have_count(0)
    place.get_by_role("button", name="Graph and kernels").click()
    expect(place.locator(".nbc-panes")).to_be_visible()
    page.locator(".jp-Notebook .jp-CodeCell").nth(1).locator(".cm-line").first.click()
    page.keyboard.press("End")
    page.keyboard.type(" --no-fuse max:exp")
    page.keyboard.press("Control+Enter")
    because = place.locator(".nbc-because")
    expect(because).to_contain_text("1 → 2 kernels", timeout=SECONDS)
    expect(because).to_contain_text("are no longer one kernel")
    expect(place.locator(".nbc-panes")).to_be_visible()
    lab.idle(page)
    because.get_by_role("button", name="show it").click()
    expect(place.locator(".nbc-facts")).to_contain_text(re.compile(r"\b1 kernel\b"), timeout=SECONDS)
    expect(place.locator(".nbc-changed")).to_contain_text("the run before")
    place.get_by_role("button", name="Undo").click()
    expect(place.locator(".nbc-facts")).to_contain_text(re.compile(r"\b2 kernels\b"))


@pytest.mark.nightly
def test_one_beside_closes_the_one_in_the_output(lab: Server, page: Page) -> None:
    place = ran(lab, page, CELL)
    place.get_by_role("tab", name="Guards").click()
    expect(place.locator(".nbc-panes")).to_be_visible()
    lab.execute(page, "nbcompile:show-beside")
    beside = page.locator(".nbc-beside .nbc")
    expect(beside.locator(".nbc-panes")).to_be_visible(timeout=SECONDS)
    expect(place.locator(".nbc-panes")).to_have_count(0)
    # It may be opened again, and is left so.
    place.get_by_role("button", name="Graph and kernels").click()
    expect(place.locator(".nbc-panes")).to_be_visible()


@pytest.mark.nightly
def test_a_mend_is_applied_with_one_click_and_holds(lab: Server, page: Page) -> None:
    flags = "--compare eager,nbcompile"
    cell = CELL.replace("--no-bench", flags).replace("z = (y.sin()", "print(y.mean())\nz = (y.sin()")
    place = ran(lab, page, cell)
    mended = place.locator(".nbc-answer .nbc-mended")
    expect(mended).to_contain_text("1 graph a call", timeout=SECONDS)
    mended.get_by_role("button", name="show the change").click()
    expect(mended).to_contain_text("agrees with eager")
    expect(mended).to_contain_text("graphs 2 → 1")
    expect(mended.locator(".nbc-diff-out")).to_contain_text("print(y.mean())")
    mended.get_by_role("button", name="Apply to cell").click()
    expect(mended).to_contain_text("Written into the cell")
    editor = page.locator(".jp-Notebook .jp-CodeCell").nth(1).locator(".jp-InputArea-editor")
    text = editor.inner_text()
    assert "# print(y.mean())" in text and "z = (y.sin() + 1).sum(0)" in text, text
    # A cell that is no longer what was tried is left alone.
    mended.get_by_role("button", name="Apply to cell").click()
    expect(mended).to_contain_text("has changed since it ran")
    editor.click()
    page.keyboard.press("Control+Enter")
    expect(place.locator(".nbc-facts")).to_contain_text("1 graph, 0 breaks", timeout=SECONDS)


@pytest.mark.nightly
def test_a_mend_of_a_function_goes_into_the_cell_that_defines_it(lab: Server, page: Page) -> None:
    function = "def f(x):\n    y = x.sin()\n    print(1)\n    return (y + 1).sum(0)"
    path = lab.write(
        "other.ipynb", SETUP, function, "%%compile --compare eager,nbcompile\nz = f(x)", "f.__name__"
    )
    page.set_viewport_size({"width": 1400, "height": 1200})
    lab.open(page, path.name)
    lab.run_all(page)
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    mended = cells.nth(2).locator(".nbc-answer .nbc-mended")
    expect(mended.get_by_role("button", name="Apply to In [2]")).to_be_visible(timeout=SECONDS)
    lab.idle(page)
    mended.get_by_role("button", name="show the change").click()
    expect(mended.locator(".nbc-diff-out")).to_contain_text("print(1)")
    mended.get_by_role("button", name="Apply to In [2]").click()
    expect(mended).to_contain_text("Written into In [2]: run it, then this cell.")
    assert "    # print(1)" in cells.nth(1).locator(".jp-InputArea-editor").inner_text()
    assert "z = f(x)" in cells.nth(2).locator(".jp-InputArea-editor").inner_text()
    mended.get_by_role("button", name="Apply to In [2]").click()
    expect(mended).to_contain_text("In [2] has changed since it ran")
    for place in (1, 2):
        cells.nth(place).locator(".jp-InputArea-editor").click()
        page.keyboard.press("Control+Enter")
    expect(cells.nth(2).locator(".nbc-facts")).to_contain_text("1 graph, 0 breaks", timeout=SECONDS)


@pytest.mark.nightly
def test_a_mend_of_a_file_is_copied_and_never_written(lab: Server, page: Page) -> None:
    text = "import torch\n\ndef f(x):\n    y = x.sin()\n    print(1)\n    return (y + 1).sum(0)\n"
    cell = "%%compile --compare eager,nbcompile\nz = broken_module.f(x)"
    path = lab.write("file.ipynb", f"{SETUP}\nimport broken_module", cell)
    module = path.with_name("broken_module.py")
    module.write_text(text)
    page.set_viewport_size({"width": 1400, "height": 1200})
    lab.open(page, path.name)
    lab.run_all(page)
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    mended = cells.nth(1).locator(".nbc-answer .nbc-mended")
    expect(mended.get_by_role("button", name="Copy for broken_module.py")).to_be_visible(timeout=SECONDS)
    mended.get_by_role("button", name="show the change").click()
    expect(mended.locator(".nbc-diff-out")).to_contain_text("print(1)")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    mended.get_by_role("button", name="Copy for broken_module.py").click()
    expect(mended).to_contain_text("Copied: paste it over broken_module.py.")
    assert "    # print(1)" in page.evaluate("navigator.clipboard.readText()")
    assert "broken_module.f(x)" in cells.nth(1).locator(".jp-InputArea-editor").inner_text()
    assert module.read_text() == text
