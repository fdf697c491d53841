"""The Capture tab in Chromium: a walk of Dynamo by keys, slider and clicks, linked with the graph."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from nbcompile.record.compilation import Compilation
from tests.browser.looking import OnDisk
from tests.browser.looks import both_themes
from tests.view import fixtures

FIXTURE = Path(__file__).parents[2] / "labextension" / "tests" / "fixtures" / "walk.json"

IN_SIGHT = """(row) => {
  const [a, b] = [row.getBoundingClientRect(), row.closest('[role=list]').getBoundingClientRect()];
  return a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
}"""


@pytest.fixture(scope="module")
def record() -> Compilation:
    return Compilation.from_dict(json.loads(FIXTURE.read_text(encoding="utf-8")))


def capture(page: Page) -> Locator:
    page.locator(".nbc").get_by_role("tab", name="Capture").click()
    return page.locator(".nbc-capture")


@pytest.mark.nightly
@both_themes
@pytest.mark.parametrize("width", [1400, 700])
def test_a_walk_is_stepped(page: Page, tmp_path: Path, record: Compilation, theme: str, width: int) -> None:
    disk = OnDisk(page, tmp_path)
    pane = capture(disk.open(record))
    place = next(n for n, walk in enumerate(record.walks) if walk.graph == "g1")
    walk = record.walks[place]
    pane.get_by_label("walk", exact=True).select_option(str(place))
    stepper = pane.get_by_role("region", name="Dynamo's walk")
    slider = stepper.get_by_role("slider")
    slider.focus()
    for step, recorded in enumerate(walk.steps):
        expect(stepper).to_contain_text(f"{step + 1} of {len(walk.steps)}")
        at = walk.instructions[recorded.at]
        current = stepper.get_by_role("list", name="bytecode").locator("[aria-current]")
        expect(current).to_contain_text(at.name)
        row = current.element_handle()  # which the pane scrolls to in its own time
        assert row is not None
        page.wait_for_function(IN_SIGHT, arg=row, timeout=5000)
        if at.column is not None and at.end_column is not None and at.end_column > at.column:
            line = record.cell.source.splitlines()[at.line - 1] if record.cell else ""
            expect(stepper.locator("mark").first).to_have_text(line[at.column : at.end_column])
        expect(stepper.locator(".nbc-walk-made .nbc-loop")).to_have_count(len(recorded.made))
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    page.keyboard.press("n")
    first = next(n for n, step in enumerate(walk.steps) if step.made)
    expect(stepper).to_contain_text(f"{first + 1} of {len(walk.steps)}")
    page.keyboard.press("b")
    expect(stepper).to_contain_text(f"{len(walk.steps)} of {len(walk.steps)}")
    expect(stepper.locator(".nbc-bad")).to_contain_text("the graph ends here: print() writes to the screen")
    written = pane.get_by_role("region", name="what Dynamo wrote in its place")
    expect(written).to_contain_text("__resume_at_")
    for box in ("html", ".nbc-capture"):
        assert page.locator(box).evaluate("e => e.scrollWidth <= e.clientWidth"), box
    disk.assert_nothing_happened()


def test_a_node_that_was_made_is_lit_in_the_graph(page: Page, tmp_path: Path, record: Compilation) -> None:
    pane = capture(OnDisk(page, tmp_path).open(record))
    pane.get_by_role("button", name="next node").click()
    pane.get_by_role("button", name="Show g0.fx in the graph").click()
    graph = page.get_by_role("region", name="graph", exact=True)
    expect(graph.get_by_role("tab", name="g0 FX")).to_have_attribute("aria-selected", "true")
    expect(graph.locator(".nbc-graph-box.nbc-lit").first).to_be_visible()
    pane.get_by_role("button", name="last instruction").click()
    pane.locator("[aria-label=bytecode] .nbc-walk-row").first.click()
    expect(pane).to_contain_text("1 of ")


@pytest.mark.nightly
def test_the_passes_are_stepped_too(page: Page, tmp_path: Path, record: Compilation) -> None:
    pane = capture(OnDisk(page, tmp_path).open(record))
    for name, noun in (
        ("Passes", "pass"),
        ("Lowering", "node"),
        ("Fusion", "decision"),
        ("Codegen", "block"),
    ):
        pane.get_by_role("tab", name=name, exact=True).click()
        pane.get_by_role("button", name=f"last {noun}").click()
        expect(pane.locator(".nbc-steps > span")).to_have_text(re.compile(r"^(\d+) of \1$"))
    expect(pane.locator(".nbc-here").first).to_be_visible()


@pytest.mark.nightly
def test_a_hostile_walk_is_text(page: Page, tmp_path: Path) -> None:
    disk = OnDisk(page, tmp_path)
    pane = capture(disk.open(fixtures.hostile()))
    pane.get_by_role("tab", name="Dynamo's walk").click()
    expect(pane).to_contain_text("instruction")
    disk.assert_nothing_happened()
