"""The graph of the explorer: what is linked, opened, found and coloured, by pointer and by keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from nbcompile.record.compilation import Compilation
from nbcompile.record.provenance import Links
from nbcompile.view import whole
from tests.browser.looking import OnDisk
from tests.view import fixtures
from tests.view.fixtures_large import large
from tests.view.fixtures_real import real_modules

BOX = ".nbc-graph-box"
LIT = ".nbc-graph-dimmed .nbc-graph-box.nbc-lit"


@pytest.fixture
def disk(page: Page, tmp_path: Path) -> OnDisk:
    return OnDisk(page, tmp_path)


def opened(disk: OnDisk, record: Compilation) -> Page:
    page = disk.open(record)
    page.locator(BOX).first.wait_for()
    return page


def refs(boxes: Locator) -> set[str]:
    """The record's ids of boxes."""
    return set(boxes.evaluate_all("(all) => all.map((each) => each.dataset.ref)"))


def places(page: Page) -> dict[str, tuple[float, float]]:
    """Where every box stands on the drawing."""
    found = page.locator(f"{BOX} > rect:first-child").evaluate_all(
        "(all) => all.map((each) => [each.parentElement.dataset.ref, +each.getAttribute('x'), "
        "+each.getAttribute('y')])"
    )
    return {ref: (x, y) for ref, x, y in found}


def view(page: Page) -> str:
    return str(page.locator(".nbc-graph-svg > g").get_attribute("transform"))


def module(page: Page) -> Locator:
    """The first module that is open."""
    first = page.locator(f"{BOX}[aria-expanded=true]:not([data-ref*='.k'])").first
    return page.locator(f"{BOX}[data-ref='{first.get_attribute('data-ref')}']")


def title(box: Locator) -> tuple[float, float]:
    frame = box.bounding_box()
    assert frame is not None
    return frame["x"] + 40, frame["y"] + 8


@pytest.mark.nightly
def test_a_line_lights_its_kernels_and_a_kernel_its_lines(disk: OnDisk) -> None:
    record = real_modules()
    links = Links(record)
    page = opened(disk, record)
    kernels = [kernel.id for kernel in record.kernels if kernel.graph == "g0.fw.fused"]
    drawn = refs(page.locator(BOX))
    for line in sorted({line for kernel in kernels for line in links.lines(kernel)}):
        page.hover(f".nbc-line[data-line='{line}'] .nbc-source")
        below = set(links.at_line(line))
        assert {id for id in refs(page.locator(LIT)) if id in kernels} == below & set(kernels) & drawn
    page.mouse.move(1, 1)
    assert page.locator(LIT).count() == 0
    for kernel in kernels[:2]:
        page.locator(f"{BOX}[data-ref='{kernel}']").first.hover(position={"x": 30, "y": 8})
        lit = page.locator(".nbc-line.nbc-lit").evaluate_all("(all) => all.map((each) => +each.dataset.line)")
        assert sorted(lit) == list(links.lines(kernel))


@pytest.mark.nightly
def test_closing_a_module_moves_what_is_below_and_nothing_across(disk: OnDisk) -> None:
    page = opened(disk, real_modules())
    before, held = places(page), module(page)
    stood = held.bounding_box()
    page.mouse.click(*title(held))
    assert held.get_attribute("aria-expanded") == "false"
    after, stands = places(page), held.bounding_box()
    assert len(after) < len(before)
    assert all(after[ref][0] == before[ref][0] for ref in after)
    assert stood and stands and abs(stood["y"] - stands["y"]) < 1, "its title stays under the pointer"
    page.mouse.click(*title(held))
    assert places(page) == before


@pytest.mark.nightly
def test_colours_move_nothing_and_say_values(disk: OnDisk) -> None:
    record = real_modules()
    page = opened(disk, record)
    before = places(page)
    page.get_by_label("colour by").select_option("bytes")
    assert places(page) == before
    first = record.kernels[0]
    written = page.locator(f"{BOX}[data-ref='{first.id}']").first.text_content()
    assert written and written.endswith(f"{(first.bytes_read + first.bytes_written) / 1e3:.3g} kB")
    page.get_by_label("colour by").select_option("saved")
    assert "saved for backward" in page.locator(".nbc-graph-legend").inner_text()
    assert places(page) == before


@pytest.mark.nightly
def test_a_search_opens_what_holds_its_find(disk: OnDisk) -> None:
    page = opened(disk, real_modules())
    page.get_by_label("collapse all").click()
    few = page.locator(BOX).count()
    page.get_by_label("find in the graph").fill("softmax")
    found = page.locator(".nbc-graph-count").inner_text()
    assert found.endswith("found") and found != "0 found"
    page.keyboard.press("Enter")
    page.locator(".nbc-graph-cursor").wait_for()
    assert page.locator(BOX).count() > few
    assert "softmax" in str(page.locator(".nbc-graph-cursor").get_attribute("aria-label"))


@pytest.mark.nightly
def test_the_wheel_is_the_pages_until_the_graph_is_entered(disk: OnDisk) -> None:
    page = opened(disk, real_modules())
    picture = page.locator(".nbc-graph-picture")
    frame = picture.bounding_box()
    assert frame is not None
    page.set_viewport_size({"width": 1180, "height": 500})
    page.mouse.move(frame["x"] + frame["width"] - 20, frame["y"] + 60)
    start = view(page)
    page.mouse.wheel(0, 40)
    page.wait_for_timeout(400)
    assert page.evaluate("scrollY") > 0
    assert view(page) == start
    page.evaluate("scrollTo(0, 0)")
    picture.focus()
    stood = page.evaluate("scrollY")
    page.mouse.wheel(0, 40)
    page.wait_for_timeout(400)
    assert view(page) != start
    assert page.evaluate("scrollY") == stood


@pytest.mark.nightly
def test_by_keyboard_along_edges_to_a_pin(disk: OnDisk) -> None:
    page = opened(disk, real_modules())
    page.locator(".nbc-graph-picture").focus()
    start = view(page)
    page.keyboard.press("ArrowRight")
    assert view(page) != start, "arrows move the view"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    walked = [refs(page.locator(".nbc-graph-cursor"))]
    for _ in range(3):
        page.keyboard.press("ArrowDown")
        walked.append(refs(page.locator(".nbc-graph-cursor")))
    assert all(len(each) == 1 for each in walked) and len({min(each) for each in walked}) > 2
    page.keyboard.press("Enter")
    page.mouse.move(1, 1)
    page.keyboard.press("Escape")
    assert page.locator(".nbc-graph-cursor").count() == 0
    assert page.locator(LIT).count() > 0, "what was pinned stays lit"


@pytest.mark.nightly
def test_a_pin_elsewhere_comes_into_view_and_a_hover_does_not(disk: OnDisk) -> None:
    record = real_modules()
    page = opened(disk, record)
    start = view(page)
    last = [kernel.id for kernel in record.kernels if kernel.graph == "g0.fw.fused"][-1]
    label = next(call["label"] for call in whole(record)["view"]["calls"] if call["id"] == last)
    chip = page.locator(".nbc-cell .nbc-chip", has_text=label).first
    chip.hover()
    assert view(page) == start
    chip.click()
    assert view(page) != start
    box, frame = (
        page.locator(each).first.bounding_box() for each in (f"{BOX}[data-ref='{last}']", ".nbc-graph-frame")
    )
    assert box and frame and frame["y"] <= box["y"] < frame["y"] + frame["height"]


@pytest.mark.nightly
def test_thousands_of_boxes_are_a_canvas_with_the_same_links(disk: OnDisk) -> None:
    page = opened(disk, large(3000))
    page.get_by_label("expand all").click()
    page.locator(".nbc-graph-canvas").wait_for()
    frame = page.locator(".nbc-graph-picture").bounding_box()
    assert frame is not None
    for down in range(20, int(frame["height"]), 12):
        page.mouse.move(frame["x"] + frame["width"] / 2, frame["y"] + down)
        if page.locator(".nbc-graph-tip").count():
            break
    assert page.locator(".nbc-graph-tip").inner_text()
    page.get_by_label("collapse all").click()
    page.locator(".nbc-graph-svg").wait_for()


@pytest.mark.nightly
def test_a_record_without_drawings_shows_the_text(disk: OnDisk) -> None:
    page = disk.open_payload(fixtures.transformer().to_dict())
    words = page.locator(".nbc-graph-undrawn").inner_text()
    assert words.startswith("There is no drawing of this graph")
