"""The explorer's panels: charts in a file from disk; play and compare with a live kernel in JupyterLab."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.jupyter import Server
from tests.browser.looking import OnDisk
from tests.browser.looks import both_themes
from tests.view import fixtures, fixtures_gpu

CELL = "%%compile --no-bench\np = torch.softmax(x, -1)\nz = p.sin() * 2\nz.sum(-1)"


def panel(explorer: Locator, name: str) -> Locator:
    explorer.get_by_role("tab", name=re.compile(f"^{name}")).click()
    return explorer.get_by_role("tabpanel")


@pytest.mark.nightly
def test_play_and_compare_with_a_live_kernel(lab: Server, page: Page) -> None:
    path = lab.write("play.ipynb", "%load_ext nbcompile\nimport torch\nx = torch.randn(64, 96)", CELL)
    lab.open(page, path.name)
    lab.run_all(page)
    explorer = page.locator(".jp-Notebook .jp-CodeCell").nth(1).locator(".nbc")
    expect(explorer).to_be_visible(timeout=60_000)
    lab.idle(page)
    play = panel(explorer, "Play")
    fusion = play.get_by_role("switch", name="fusion")
    expect(fusion).to_be_enabled(timeout=20_000)
    before = int(explorer.evaluate("e => e.querySelectorAll('.nbc-line .nbc-chip').length"))
    fusion.click()
    tried = play.locator(".nbc-history tbody tr")
    expect(tried).to_have_count(2, timeout=60_000)
    expect(tried.nth(1)).to_contain_text("fusion off")
    kernels = [int(tried.nth(row).locator("td").nth(2).inner_text()) for row in (0, 1)]
    assert kernels[0] < kernels[1]
    assert int(explorer.evaluate("e => e.querySelectorAll('.nbc-line .nbc-chip').length")) >= before
    # A size, by its number; the session's own tensor stays as it is.
    rows = play.get_by_label("size of x[0], as a number")
    expect(rows).to_be_enabled(timeout=20_000)
    rows.fill("128")
    rows.press("Enter")
    expect(tried).to_have_count(3, timeout=60_000)
    expect(explorer.locator(".nbc-head .nbc-note")).to_contain_text("An extent of 64 was made 128")
    # A size that the program cannot have is refused with its reason, and what is shown stays.
    tried.nth(0).click()
    expect(tried.nth(0)).to_have_class(re.compile("nbc-current"))

    compare = panel(explorer, "Compare")
    compare.locator(".nbc-candidate", has_text="fusion off").click()
    expect(compare.get_by_role("checkbox", name=re.compile("fusion off"))).to_be_checked()
    expect(compare.locator(".nbc-pair-merged").first).to_be_visible()
    expect(compare.get_by_role("region", name="Fusion decisions that differ")).to_be_visible()
    lab.idle(page)


@pytest.mark.nightly
@both_themes
def test_charts_of_a_file_from_disk(page: Page, tmp_path: Path, theme: str) -> None:
    disk = OnDisk(page, tmp_path)
    timing = panel(disk.open(fixtures.transformer()).locator(".nbc"), "Timing")
    bars = timing.get_by_role(
        "img", name=re.compile(r"^One call: eager 2\.32 ms; inductor .*; nbcompile 1\.01 ms, 2\.3×")
    )
    expect(bars.locator(".bars .point")).to_have_count(3, timeout=20_000)
    background = bars.locator(".main-svg").first.evaluate("e => e.style.background")
    assert ("255, 255, 255" in background or "#fff" in background) == (theme == "light")
    with page.expect_download() as saved:
        timing.get_by_role("button", name="One call: save as PNG").click()
    assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
    disk.assert_nothing_happened()


@pytest.mark.nightly
def test_a_point_under_the_roof_and_its_row_light_each_other(page: Page, tmp_path: Path) -> None:
    disk = OnDisk(page, tmp_path)
    timing = panel(disk.open(fixtures_gpu.many(6, measured=True)).locator(".nbc"), "Timing")
    points = timing.locator(".tracenbcids .point")
    expect(points).to_have_count(6, timeout=20_000)
    rows = timing.locator(".nbc-calls tbody tr")
    rows.nth(2).hover()
    expect(timing.locator(".tracenbcids .point:not(.nbc-dim)")).to_have_count(1)
    page.mouse.move(1, 1)
    expect(timing.locator(".tracenbcids .point.nbc-dim")).to_have_count(0)
    points.first.scroll_into_view_if_needed()
    box = points.first.bounding_box()  # under the layer that takes the chart's events
    assert box is not None
    page.mouse.move(box["x"] + 5, box["y"] + 5, steps=3)
    expect(timing.locator(".hoverlayer .hovertext")).to_have_count(1)
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    page.mouse.move(1, 1)
    expect(timing.locator(".nbc-calls tr.nbc-lit")).to_have_count(1)
    expect(timing.locator(".tracenbcids .point.nbc-dim")).to_have_count(5)
    disk.assert_nothing_happened()
