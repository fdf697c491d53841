"""Playing with a live kernel in a real JupyterLab: decisions overruled, kernels edited, sizes changed."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.jupyter import Server

SETUP = "%load_ext nbcompile\nimport torch\nx = torch.randn(256, 512)"
CELL = "%%compile --no-bench{flags}\ny = torch.softmax(x, -1) * 2\nz = (y.sin() + 1).sum(0)\nz"
SECONDS = 60_000
"""What a step may take on a busy machine, in milliseconds."""


def explorer(server: Server, page: Page, flags: str = "") -> Locator:
    """The explorer of a cell that has just run."""
    path = server.write("live.ipynb", SETUP, CELL.format(flags=flags))
    page.set_viewport_size({"width": 1500, "height": 1300})
    server.open(page, path.name)
    server.run_all(page)
    found = page.locator(".jp-Notebook .jp-CodeCell").nth(1).locator(".nbc")
    expect(found.locator(".nbc-facts")).to_contain_text("1 kernel", timeout=SECONDS)
    server.idle(page)
    opener = found.locator(".nbc-open")
    if opener.get_attribute("aria-expanded") == "false":  # a widget is open from the start
        opener.click()
    return found


def kernels(place: Locator, count: str) -> None:
    expect(place.locator(".nbc-facts")).to_contain_text(re.compile(rf"\b{count} kernels?\b"), timeout=SECONDS)


def edited(place: Locator, page: Page, old: str, new: str) -> None:
    """Run the shown kernel with ``old`` in its text replaced."""
    code = place.locator(".nbc-pane-code")
    code.get_by_text("edit", exact=True).click()
    text = code.locator(".cm-content[contenteditable=true]")
    text.click()
    page.keyboard.press("Control+Home")
    line = text.locator(".cm-line", has_text=old).first
    whole = line.inner_text()
    assert old in whole
    line.click()
    page.keyboard.press("Home")  # to the first character that is no blank
    page.keyboard.press("Home")
    page.keyboard.press("Shift+End")
    page.keyboard.insert_text(whole.replace(old, new))
    page.keyboard.press("Control+Enter")


@pytest.mark.nightly
def test_a_decision_overruled_changes_kernels_and_can_be_undone(lab: Server, page: Page) -> None:
    place = explorer(lab, page)
    switch = place.get_by_role("switch", name="fuse max → exp")
    expect(switch).to_have_attribute("aria-checked", "true")
    switch.click()
    kernels(place, "2")
    expect(place.locator(".nbc-changed")).to_contain_text("1 kernel → 2 kernels")
    # It was timed, each kernel of it too, and agrees with eager.
    expect(place.locator(".nbc-facts")).to_contain_text(re.compile("error|exact|same bits"))
    expect(place.locator(".nbc-pane-graph")).to_contain_text(re.compile(r"\d (µs|ms)"))
    expect(place.get_by_role("switch", name="fuse max → exp")).to_have_attribute("aria-checked", "false")
    place.get_by_role("button", name="Undo").click()
    kernels(place, "1")


@pytest.mark.nightly
def test_an_edited_kernel_runs_and_a_wrong_edit_is_caught(lab: Server, page: Page) -> None:
    place = explorer(lab, page)
    result = place.locator(".nbc-edit-result")
    edited(place, page, "* 2.0f", "* 1.5f * 2.0f / 1.5f")
    expect(result).to_contain_text("✓ agrees with eager", timeout=SECONDS)
    expect(result).to_contain_text(re.compile(r"original.*\d (µs|ms).*edited.*\d (µs|ms)", re.DOTALL))
    place.get_by_role("button", name="Discard").click()
    edited(place, page, "* 2.0f", "* -2.0f")
    expect(result).to_contain_text("✗ does not agree with eager", timeout=SECONDS)
    expect(result).to_contain_text("differs by up to")
    expect(place.get_by_role("button", name="Keep")).to_be_disabled()
    place.get_by_role("button", name="Discard").click()
    edited(place, page, "* 2.0f", "* two")
    failed = place.locator(".nbc-edit [role=alert]")
    expect(failed).to_contain_text("two", timeout=SECONDS)
    # Nothing of it reached the session.
    place.get_by_role("button", name="Discard").click()
    kernels(place, "1")


@pytest.mark.nightly
def test_an_edit_out_of_bounds_does_not_take_the_kernel_along(lab: Server, page: Page) -> None:
    place = explorer(lab, page)
    edited(place, page, "* 2.0f", "* 2.0f + x[i*512 + j + 100000000]")
    alert = place.locator(".nbc-edit [role=alert], .nbc-edit-result")
    expect(alert).to_contain_text(re.compile("crash|SIGSEGV|outside", re.IGNORECASE), timeout=SECONDS)
    place.get_by_role("button", name="Discard").click()
    place.get_by_role("switch", name="fuse max → exp").click()
    kernels(place, "2")  # the kernel of the notebook is alive and has the cell still


@pytest.mark.nightly
def test_another_size_and_a_cancelled_change(lab: Server, page: Page) -> None:
    place = explorer(lab, page)
    place.get_by_role("tab", name="Play").click()
    rows = place.get_by_role("spinbutton").first
    expect(rows).to_be_enabled(timeout=SECONDS)
    rows.fill("96")
    rows.press("Enter")
    expect(place.locator(".nbc-pane-graph")).to_contain_text("x [96,512]", timeout=SECONDS)
    record = place.get_attribute("data-record") or ""
    rows.fill("128")
    rows.press("Enter")
    place.get_by_role("button", name="Cancel").first.click()
    expect(place.locator(".nbc-play")).to_contain_text("Cancelled", timeout=SECONDS)
    expect(place).to_have_attribute("data-record", record)


@pytest.mark.nightly
def test_the_assembly_of_a_c_kernel_is_made_when_asked_for(lab: Server, page: Page) -> None:
    code = explorer(lab, page).locator(".nbc-pane-code")
    code.get_by_role("tab", name="Assembly").click()
    expect(code.locator(".cm-content")).to_contain_text("k0_softmax_mul_sin_sum", timeout=SECONDS)
    # Machine code, linked with the lines of the C: those of its body are line 2 or 3 of the cell.
    assert code.locator(".cm-line").count() > 10
    assert {"2", "3"} & set(code.locator(".cm-gutterElement").all_inner_texts())


@pytest.mark.nightly
def test_other_compilers_texts_are_made_when_asked_for(lab: Server, page: Page) -> None:
    """Triton's and Inductor's kernel of a C record, linked with the same lines; the record stays as it is."""
    place = explorer(lab, page)
    record = place.get_attribute("data-record") or ""
    code = place.locator(".nbc-pane-code")
    for name, words in (("Triton", "tl.load"), ("PTX", ".visible .entry"), ("Inductor", "extern")):
        code.get_by_role("tab", name=name, exact=True).click()
        expect(code.locator(".cm-content").first).to_contain_text(words, timeout=2 * SECONDS)
    assert place.get_attribute("data-record") == record
    kernels(place, "1")
    code.get_by_role("tab", name="Triton", exact=True).click()
    expect(code.locator(".cm-content").first).to_contain_text("tl.load")  # it is there already
    place.locator(".nbc-line[data-line='2'] .nbc-source").hover()
    expect(code.locator(".nbc-code-lit").first).to_be_visible()


@pytest.mark.nightly
def test_the_target_is_chosen_in_play(lab: Server, page: Page) -> None:
    place = explorer(lab, page)
    place.get_by_role("tab", name="Play").click()
    target = place.get_by_label("target")
    expect(target).to_be_enabled(timeout=SECONDS)
    target.select_option("cuda:90")
    expect(place.locator(".nbc-changed")).to_contain_text("for cuda:90", timeout=2 * SECONDS)
    expect(place.locator(".nbc-pane-code").get_by_role("tab", name="Triton", exact=True)).to_be_visible()
    place.get_by_role("button", name="Undo").click()
    expect(place.locator(".nbc-pane-code").get_by_role("tab", name="Assembly")).to_be_visible()


@pytest.mark.nightly
@pytest.mark.parametrize("application", ["lab", "notebook"])
def test_the_widget_plays_too(application: str, page: Page, request: pytest.FixtureRequest) -> None:
    place = explorer(request.getfixturevalue(application), page, " --live")
    place.get_by_role("switch", name="fuse max → exp").click()
    kernels(place, "2")
    place.get_by_role("tab", name="Timing").click()
    # The chart library comes from the kernel, when the first chart is shown.
    expect(place.locator(".js-plotly-plot").first).to_be_visible(timeout=SECONDS)


@pytest.mark.nightly
def test_the_explorer_is_there_while_its_cell_is_timed_and_timing_can_be_stopped(
    lab: Server, page: Page
) -> None:
    """What is chosen in it meanwhile stays chosen when the times come."""
    endless = "import nbcompile.bench.measure.timing as timing\ntiming._MAX_ROUNDS = 10**9"
    setup = f"{SETUP}\n%config NbCompile.bench_seconds = 60\n{endless}\ntiming._NARROW = 0"
    path = lab.write(
        "timed.ipynb", setup, "%%compile --compare eager,nbcompile\ny = torch.softmax(x, -1) * 2"
    )
    lab.open(page, path.name)
    lab.run_all(page)
    place = page.locator(".jp-Notebook .jp-CodeCell").nth(1).locator(".nbc")
    waiting = place.locator(".nbc-waiting")
    expect(waiting).to_contain_text(re.compile(r"(timed|compiling|checking|timing).* \d+ s"), timeout=SECONDS)
    place.get_by_role("tab", name="Timing").click()
    expect(waiting).to_contain_text("timing eager, nbcompile", timeout=SECONDS)
    expect(place.locator(".nbc-verdict")).to_contain_text(re.compile("eager"), timeout=SECONDS)
    expect(place.get_by_role("tab", name="Timing")).to_have_attribute("aria-selected", "true")
    waiting.get_by_role("button", name="Stop timing").click()
    expect(waiting).to_have_count(0, timeout=SECONDS)
    expect(place.locator(".nbc-note").first).to_contain_text("Timing was stopped")
    expect(place.locator(".nbc-verdict")).to_contain_text(re.compile("eager"))
    lab.idle(page)


@pytest.mark.nightly
@pytest.mark.parametrize("application", ["lab", "notebook"])
def test_a_program_under_controls(application: str, page: Page, request: pytest.FixtureRequest) -> None:
    """Each choice is compiled and drawn; the record of the last opens below."""
    server: Server = request.getfixturevalue(application)
    path = server.write(
        "controls.ipynb",
        "import torch, nbcompile\nf = lambda x: torch.softmax(x * 2, -1).sum(-1)",
        "nbcompile.interact(f, lambda B: torch.randn(B, 256), sizes={'B': (8, 64)}, budget=0.1)",
    )
    server.open(page, path.name)
    server.run_all(page)
    place = page.locator(".jp-CodeCell").nth(1)
    bars = place.locator(".js-plotly-plot .barlayer .point")
    expect(bars).to_have_count(2, timeout=SECONDS)
    place.get_by_text("fuse loops into kernels").click()
    expect(bars).to_have_count(4, timeout=SECONDS)
    expect(place.locator(".yaxislayer-above")).to_contain_text("[unfused] B=8")
    place.get_by_role("button", name="Open the record").click()
    expect(place.locator(".nbc-facts")).to_contain_text("kernels", timeout=SECONDS)


@pytest.mark.nightly
def test_the_doctors_button_writes_its_option_into_the_cell_it_is_of(lab: Server, page: Page) -> None:
    """What is found is made up here, the button is not."""
    found = (
        "import nbcompile.notebook.doctoring as doctoring\n"
        "from nbcompile.record.advice.doctor import DoctorReport, DoctorRow\n"
        "row = DoctorRow('inductor', 'same', 'pays', speedup=1.5, low=1.4, high=1.6,\n"
        "    option='--backend inductor', verified=True)\n"
        "doctoring.examined = lambda *_, **__: DoctorReport('f', 'nbcompile', 0.01, (row,))"
    )
    path = lab.write(
        "doctor.ipynb", f"{SETUP}\n{found}", "%%compile --doctor 5 -o fuse=False\ny = x * 2", "z = 1"
    )
    lab.open(page, path.name)
    lab.run_all(page)
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(1)
    cell.get_by_role("button", name="Write it into this cell").click(timeout=SECONDS)
    expect(cell.locator(".cm-content").first).to_contain_text("%%compile --backend inductor")
    expect(page.locator(".jp-CodeCell").nth(2).locator(".cm-content")).to_have_text("z = 1")
