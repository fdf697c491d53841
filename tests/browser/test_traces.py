"""The page of a trace: an index above, each compilation in the explorer; a stranger's trace runs nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page

import nbcompile
from nbcompile.traces.page import to_page
from tests.browser.looking import OnDisk
from tests.browser.looks import both_themes
from tests.traces.programs import artifact, compilation, record, written

GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4, 8]"):
        l_x_ = L_x_
        # File: /job/train.py:7 in step, code: y = x.relu() * 2
        relu: "f32[4, 8][8, 1]cpu" = l_x_.relu()
        y: "f32[4, 8][8, 1]cpu" = relu * 2;  relu = None
        return (y,)
"""
CANARY = "</script><script>window.canary=1</script><img src=x onerror='window.canary=2'>"


def show(page: Page, folder: Path, records: list[str]) -> OnDisk:
    trace = nbcompile.open(written(folder / "dedicated_log_torch_trace_rank_3_x.log", records))
    disk = OnDisk(page, folder)
    (folder / "page.html").write_text(to_page(trace), encoding="utf-8")
    page.goto((folder / "page.html").as_uri())
    page.wait_for_function("!document.querySelector('.nbc-reading')")
    return disk


@pytest.mark.nightly
@both_themes
def test_the_index_stands_above_the_explorers(page: Page, tmp_path: Path) -> None:
    failed = {"fail_type": "Unsupported", "fail_reason": "a call"}
    disk = show(page, tmp_path, [compilation(0, graph=GRAPH), compilation(1, metrics=failed)])
    title = page.get_by_text("rank 3: 2 compilations in 1 s (1 failed)")
    assert title.is_visible() and page.get_by_text("Unsupported: a call").first.is_visible()
    explorers = page.locator(".nbcompile-explorer")
    assert explorers.count() == 2
    above, first = title.bounding_box(), explorers.first.bounding_box()
    assert above and first and above["y"] < first["y"]
    assert explorers.first.get_by_text("relu").first.is_visible()
    fold = page.get_by_text("Everything of each compilation")
    fold.click()
    page.get_by_text("0/0 f", exact=True).click()
    assert page.get_by_text("dynamo_cpp_guards_str").first.is_visible()
    disk.assert_nothing_happened()


def test_a_strangers_trace_runs_nothing(page: Page, tmp_path: Path) -> None:
    told = {"co_name": CANARY, "co_filename": CANARY, "restart_reasons": [CANARY]}
    event = json.dumps({"name": CANARY, "ph": "X", "ts": 1, "dur": 5})
    place = {"frame_id": 0, "frame_compile_id": 0}
    records = [
        compilation(0, graph=GRAPH.replace("relu", CANARY), guards=f"+- X: {CANARY}", metrics=told),
        artifact(CANARY, CANARY),
        artifact("dynamo_graph_break_reason", CANARY),
        record({"inductor_output_code": {"filename": CANARY}}, CANARY, **place),
        record({"chromium_event": {}}, event, **place),
    ]
    disk = show(page, tmp_path, records)
    assert page.locator(".nbcompile-explorer").count() == 1
    for fold in page.locator("details > summary:visible").all():
        fold.click()
    disk.assert_nothing_happened()
