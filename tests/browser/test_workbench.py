"""The workbench in a browser: the graph whole and legible, equal layers folded, a node's properties, links
across graphs, panes taken out of their place, borders that are dragged; and for readers who do not see it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Page, expect

import nbcompile
from nbcompile.record.compilation import Compilation
from tests.bench.bisect.wrong_backends import Wrong, aten, block
from tests.browser.axe import serious
from tests.browser.looking import OnDisk
from tests.browser.looks import both_themes
from tests.nightly import few, soon
from tests.view import fixtures
from tests.view.fixtures_large import large
from tests.view.fixtures_real import real_modules

BOX = ".nbc-graph-box"
widths = pytest.mark.parametrize("width", [700, 1400, 1900])
PANES = ("the graph", "the code", "the details", "the explorer")


@pytest.fixture
def disk(page: Page, tmp_path: Path) -> OnDisk:
    return OnDisk(page, tmp_path)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


@cache
def layers(count: int = 12) -> Compilation:
    """Of a network of equal layers."""
    net = torch.nn.Sequential(*[Layer() for _ in range(count)])
    compiled = nbcompile.compile(lambda x: net(x).sum())
    with torch.no_grad():
        compiled(torch.randn(4, 8))
    return Compilation.from_json(compiled.compilation.to_json())


@cache
def checked() -> Compilation:
    """Of a check that found gelu wrong."""
    fn, arguments = block()
    report = nbcompile.check(fn, *arguments, backend=Wrong(aten.gelu.default, lambda: (None, ())).backend)
    assert report.record is not None
    return report.record


def opened(disk: OnDisk, record: Compilation) -> Page:
    page = disk.open(record)
    page.locator(".nbc-graph-picture").first.wait_for()
    return page


def fit(page: Page) -> None:
    page.get_by_label("fit", exact=True).click()


def title(page: Page, ref: str) -> tuple[float, float]:
    """A place on a group's title, beside its triangle."""
    box = page.locator(f"{BOX}[data-ref='{ref}'] > rect").last.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + 6


def repeat(page: Page) -> str:
    """The ref of the first group of equal layers."""
    return str(page.locator(f"{BOX}[aria-label*=' ×']").first.get_attribute("data-ref"))


@pytest.mark.nightly
@widths
def test_equal_layers_are_one_until_they_are_unfolded(disk: OnDisk) -> None:
    page = opened(disk, layers())
    fit(page)
    few_boxes = page.locator(BOX).count()
    ref = repeat(page)
    folded = page.locator(f"{BOX}[data-ref='{ref}']")
    label = folded.get_attribute("aria-label") or ""
    assert "×" in label and int(label.split("×")[1].split()[0].rstrip(",")) >= 10, label
    page.mouse.click(*title(page, ref))
    expect(page.locator(BOX)).not_to_have_count(few_boxes)
    assert page.locator(BOX).count() >= few_boxes + 9, "one box a layer more"
    page.mouse.click(*title(page, ref))
    expect(page.locator(BOX)).to_have_count(few_boxes)


@few(1)
@widths
def test_the_graph_is_whole_and_legible_at_each_scale(disk: OnDisk) -> None:
    page = opened(disk, layers())
    fit(page)
    frame = page.locator(".nbc-graph-frame").bounding_box()
    assert frame is not None
    refs = page.locator(BOX).evaluate_all("(all) => all.map((each) => each.dataset.ref)")
    for ref in refs:
        box = page.locator(f"{BOX}[data-ref='{ref}'] > rect").first.bounding_box()
        assert (
            box
            and frame["y"] - 12 <= box["y"]
            and box["y"] + box["height"] <= frame["y"] + frame["height"] + 12
        )
    for _ in range(6):
        names = page.locator(
            ".nbc-graph-far .nbc-graph-far-names text, .nbc-graph-svg:not(.nbc-graph-far) .nbc-graph-box text"
        )
        sizes = names.evaluate_all(
            "(all) => all.map((each) => each.getAttribute('font-size') * each.getCTM().a).filter(Boolean)"
        )
        assert len(sizes) >= 5 and min(sizes) >= 7.5, (len(sizes), min(sizes, default=0))
        page.get_by_label("zoom in").click()


@pytest.mark.nightly
def test_a_thousand_nodes_have_names_when_all_of_them_are_seen(disk: OnDisk) -> None:
    page = opened(disk, large(1000))
    fit(page)
    assert page.locator(".nbc-graph-far-names text").count() >= 10
    page.get_by_label("expand all").click()
    page.locator(".nbc-graph-canvas").wait_for()
    fit(page)


@pytest.mark.nightly
def test_a_node_shows_its_properties_and_leads_on(disk: OnDisk) -> None:
    record = real_modules()
    page = opened(disk, record)
    kernel = next(each for each in record.kernels if each.graph == "g0.fw.fused" and len(each.loops) > 1)
    page.locator(".nbc-kernels").select_option(kernel.id)
    panel = page.locator(".nbc-node")
    node = next(each for graph in record.graphs for each in graph.nodes if each.id == kernel.id)
    expect(panel).to_contain_text(node.name)
    assert node.shape is not None and node.stride is not None
    expect(panel).to_contain_text(f"[{', '.join(map(str, node.shape))}]")
    expect(panel).to_contain_text(f"[{', '.join(map(str, node.stride))}]")
    refused = {d.reason for d in record.decisions if not d.accepted
               and (d.producer in kernel.loops) != (d.consumer in kernel.loops)}  # fmt: skip
    words = panel.inner_text()
    assert not refused or any(reason in words for reason in refused)
    readers = [each for graph in record.graphs for each in graph.nodes if kernel.id in each.inputs]
    expect(panel).to_contain_text(f"{len(readers)} user" if readers else "none: a result")
    panel.locator(".nbc-node-link").first.click()
    expect(panel).not_to_have_attribute("aria-label", f"properties of {node.name}")
    panel.get_by_label("close the properties").click()
    expect(panel).to_have_count(0)


@pytest.mark.nightly
def test_a_kernel_lights_the_decisions_that_made_it_and_brings_them_into_sight(disk: OnDisk) -> None:
    record = real_modules()
    page = opened(disk, record)
    kernel = [each for each in record.kernels if each.graph == "g0.bw.fused" and len(each.loops) > 2][-1]
    page.locator(".nbc-kernels").select_option(kernel.id)
    made = [n for n, d in enumerate(record.decisions) if {d.producer, d.consumer} <= set(kernel.loops)]
    expect(page.locator("tr.nbc-lit[data-step]").first).to_be_attached()
    lit = page.locator("tr.nbc-lit[data-step]").evaluate_all("(all) => all.map((each) => +each.dataset.step)")
    assert lit and set(lit) <= set(made)
    first = next(n for n in made if record.decisions[n].accepted)
    seen = """(step) => {
      const row = document.querySelector(`[data-step="${step}"]`).getBoundingClientRect();
      const panel = document.querySelector('.nbc-panel').getBoundingClientRect();
      return row.top >= panel.top && row.bottom <= panel.bottom;
    }"""
    page.wait_for_function(seen, arg=first)
    # And the graph is the one that has it, the kernel in view.
    box = page.locator(f"{BOX}[data-ref='{kernel.id}'] > rect").first.bounding_box()
    frame = page.locator(".nbc-graph-frame").bounding_box()
    assert box and frame and frame["y"] <= box["y"] < frame["y"] + frame["height"]


@pytest.mark.nightly
def test_a_chip_of_another_graph_shows_that_graph(disk: OnDisk) -> None:
    record = fixtures.with_break()
    page = opened(disk, record)
    tabs = page.get_by_role("tablist", name="graphs")
    for kernel in record.kernels:
        chip = page.locator(
            f".nbc-cell .nbc-chip[title='{kernel.name}']", has_text=kernel.graph.split(".")[0]
        )
        chip.first.click()
        expect(tabs.locator("[aria-selected=true]")).to_contain_text(kernel.graph.split(".")[0])
        expect(page.locator(f"{BOX}[data-ref='{kernel.id}']").first).to_be_attached()
        assert page.locator(".nbc-kernels").input_value() == kernel.id
        page.keyboard.press("Escape")


@pytest.mark.nightly
@widths
@pytest.mark.parametrize("name", PANES)
def test_a_pane_fills_the_window_and_comes_back(name: str, width: int, disk: OnDisk) -> None:
    page = opened(disk, real_modules())
    page.get_by_role("button", name=f"Maximise {name}").click()
    lifted = page.locator(".nbc-lifted")
    assert lifted.bounding_box() == {"x": 0, "y": 0, "width": width, "height": 900}
    page.keyboard.press("Escape")
    expect(lifted).to_have_count(0)
    page.get_by_role("button", name=f"Open {name} beside the page").click()
    box = lifted.bounding_box()
    assert box and box["x"] == box["width"] == width / 2
    border = lifted.locator(".nbc-border-side")
    border.focus()
    page.keyboard.press("ArrowLeft")
    wider = lifted.bounding_box()
    assert wider and wider["width"] > box["width"]
    lifted.get_by_role("button", name=f"Put {name} back").click()
    expect(lifted).to_have_count(0)
    disk.assert_nothing_happened()


@pytest.mark.nightly
@widths
def test_a_border_is_dragged_and_put_back(disk: OnDisk, width: int) -> None:
    page = opened(disk, real_modules())
    graph, border = page.locator(".nbc-pane-graph"), page.locator(".nbc-border-panes")
    before, line = graph.bounding_box(), border.bounding_box()
    assert before and line
    x, y = line["x"] + line["width"] / 2, line["y"] + line["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 90, y + 90, steps=3)
    page.mouse.up()
    after = graph.bounding_box()
    side = "height" if width == 700 else "width"
    assert after and after[side] == pytest.approx(before[side] + 90, abs=4)
    border.dblclick()
    back = graph.bounding_box()
    assert back and back[side] == pytest.approx(before[side], abs=2)


@pytest.mark.nightly
@both_themes
def test_the_errors_of_a_check_are_colours_and_the_first_is_marked(disk: OnDisk) -> None:
    record = checked()
    wrong = next(node for node in record.graphs[0].nodes if node.differs)
    assert "gelu" in wrong.name
    page = opened(disk, record)
    assert page.get_by_label("colour by").input_value() == "error"
    legend = page.locator(".nbc-graph-legend")
    expect(legend).to_contain_text(f"first that differs: {wrong.name}")
    expect(legend).to_contain_text("error against float64")
    page.locator(".nbc-graph-first").click()
    expect(page.locator(".nbc-node")).to_contain_text(f"{wrong.error:.2e}".replace("e-0", "e-"))
    frame = page.locator(f"{BOX}[data-ref='{wrong.id}'] > rect").first
    assert "nbc-break" in str(frame.get_attribute("style")) and "heat-5" in str(frame.get_attribute("style"))


@pytest.mark.nightly
def test_texts_that_a_file_lacks_say_what_makes_them(disk: OnDisk) -> None:
    page = opened(disk, real_modules())
    for name in ("Triton", "PTX", "SASS", "Inductor"):
        page.locator(".nbc-pane-code").get_by_role("tab", name=name).click()
        expect(page.locator(".nbc-pane-code")).to_contain_text(
            f"The record has no {name} text of this kernel"
        )
        expect(page.locator(".nbc-pane-code")).to_contain_text("This is a file")


RECORDS: dict[str, Any] = {
    "modules": real_modules, "layers": layers, "break": fixtures.with_break, "failed": fixtures.failed,
    "checked": checked,
}  # fmt: skip


@pytest.mark.parametrize("theme", soon(["dark"], ["light", "dark"]))
@pytest.mark.parametrize("name", soon(["break"], RECORDS))
def test_axe_finds_nothing_serious(name: str, disk: OnDisk) -> None:
    page = disk.open(RECORDS[name]())
    page.locator(".nbc-app").wait_for()
    for tab in ("Fusion", "Capture", "Timing", "Guards", "Play", "Compare", "Text"):
        page.get_by_role("tab", name=tab).first.click()
        assert serious(page) == [], tab
    chips = page.locator(".nbc-cell .nbc-chip, .nbc-graph-first")
    if chips.count():
        chips.first.click()
        page.mouse.move(1, 1)
    tools = page.get_by_role("button", name="Maximise the graph")
    if tools.count():
        tools.click()
        assert serious(page, ".nbc-lifted") == []


@pytest.mark.parametrize("name", soon(["the graph"], PANES))
def test_a_pane_in_a_window_of_its_own_stays_linked(name: str, page: Page, tmp_path: Path) -> None:
    opened(OnDisk(page, tmp_path), real_modules())
    with page.expect_popup() as opening:
        page.get_by_role("button", name=f"Open {name} in a window of its own").click()
    away = opening.value
    errors: list[str] = []
    away.on("pageerror", lambda error: errors.append(str(error)))
    expect(page.locator(".nbc-empty", has_text=f"In a window of its own: {name}")).to_be_visible()
    if name == "the graph":
        away.locator(f"{BOX}[data-ref$='k0']").first.hover()
        expect(page.locator(".nbc-cell .nbc-lit").first).to_be_visible()
    elif name == "the code":
        page.locator(".nbc-cell .nbc-chip", has_text="k7").first.click()
        expect(away.locator(".cm-editor")).to_contain_text("k7_")
    elif name == "the explorer":
        away.locator(".nbc-cell .nbc-chip", has_text="k7").first.click()
        expect(away.locator(".nbc-pane-code")).to_contain_text("k7_")
        expect(page.locator(".nbc-pane-code")).to_have_count(0)
    else:
        away.get_by_role("tab", name="Capture").click()
        expect(away.get_by_role("tabpanel", name="capture")).to_be_visible()
    assert serious(away) == []
    away.get_by_role("button", name=f"Put {name} back").click()
    expect(page.locator(".nbc-pane-graph .nbc-graph-picture")).to_be_visible()
    assert away.is_closed()
    with page.expect_popup() as opening:
        page.get_by_role("button", name=f"Open {name} in a window of its own").click()
    opening.value.close(run_before_unload=True)
    expect(page.locator(".nbc-empty", has_text="In a window of its own")).to_have_count(0)
    assert not errors


def test_where_no_window_opens_it_is_said(page: Page, tmp_path: Path) -> None:
    page.add_init_script("window.open = () => null")
    opened(OnDisk(page, tmp_path), real_modules())
    page.get_by_role("button", name="Open the graph in a window of its own").click()
    expect(page.locator(".nbc-pane-graph")).to_contain_text("allow pop-ups for this page")
    expect(page.locator(".nbc-graph-picture")).to_be_visible()
