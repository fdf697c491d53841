"""What the explorer costs in a browser: a graph of 10,000 nodes, and the size of what is shipped.

    python scripts/explorer/figures.py [--nodes 10000] [--runs 5] [--no-record]

Opens a page with a record of a deep network in headless Chromium and prints a table: medians of the runs
with the lowest and the highest. ``first paint`` is from the start of the explorer's script to the second
animation frame after it has mounted, reading the record included. ``pan`` is a drag of two seconds; frames
are those of ``requestAnimationFrame``. ``hover`` is from the pointer's event to the end of the first frame
after it. Needs Playwright and a built explorer (``make explorer``).
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from check_machine import chromium  # noqa: E402
from nbcompile.record.compilation import Cell, Compilation, Span  # noqa: E402
from nbcompile.view import to_page  # noqa: E402
from tests.view.fixtures_large import large  # noqa: E402

STATIC = ROOT / "nbcompile" / "view" / "static"
LINES = 30
BRANCHES = 16
PAN_SECONDS = 2.0
MARKS = ("start", "painted")
PICTURE = ".nbc-graph-picture"

Rows = dict[str, list[float]]

HOVER = """async ([selector, x, y]) => {
  const place = document.querySelector(selector);
  const frame = place.getBoundingClientRect();
  const event = (name, far) => new PointerEvent(name, {
    bubbles: name !== 'mouseenter', clientX: frame.left + x + far, clientY: frame.top + y + far });
  const painted = () => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done(performance.now());
    channel.port2.postMessage(0);
  }));
  const before = document.querySelectorAll('.nbc-dim, .nbc-graph-dimmed').length;
  const start = performance.now();
  place.dispatchEvent(event(selector.includes('source') ? 'mouseenter' : 'pointermove', 0));
  const took = await painted() - start;
  await painted();
  const after = document.querySelectorAll('.nbc-dim, .nbc-graph-dimmed').length;
  place.dispatchEvent(event(selector.includes('source') ? 'mouseleave' : 'pointerleave', 0));
  await painted();
  return [took, after - before];
}"""

FRAMES = """() => {
  window.frames = [];
  const step = (now) => { window.frames.push(now); window.counting = requestAnimationFrame(step); };
  window.counting = requestAnimationFrame(step);
}"""


def record(nodes: int) -> Compilation:
    """A deep network of this many captured ops whose lines are those of a cell. Its fused graph is a long
    chain of small groups; its FX graph has :data:`BRANCHES` chains beside each other."""
    found = large(nodes)
    source = "%%compile\n" + "\n".join(f"x{n} = block_{n}(x{n - 1})" for n in range(1, LINES + 1))
    graphs = []
    for graph in found.graphs:
        ids = [node.id for node in graph.nodes]
        shown = []
        for place, node in enumerate(graph.nodes):
            spans = tuple(Span(2 + span.line % LINES) for span in node.spans)
            inputs = (ids[max(0, place - BRANCHES)],) if graph.stage == "fx" and place else node.inputs
            shown.append(dataclasses.replace(node, spans=spans, inputs=inputs))
        graphs.append(dataclasses.replace(graph, nodes=tuple(shown)))
    return dataclasses.replace(found, graphs=tuple(graphs), cell=Cell(source))


def page_of(found: Compilation) -> str:
    """The stand-alone page, with marks of when its script starts and when the second frame after it comes.

    They are scripts, which the page's policy would forbid: it goes.
    """
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", to_page(found))
    page = page.replace("<script>", "<script>performance.mark('start')</script><script>", 1)
    ends = (
        "const painted = () => requestAnimationFrame(() => document.querySelector('.nbc-reading') "
        "? painted() : requestAnimationFrame(() => performance.mark('painted'))); painted()"
    )
    return page.replace("</body>", f"<script>{ends}</script></body>")


def opened(browser: Browser, file: Path) -> Page:
    page = browser.new_page(viewport={"width": 1180, "height": 900})
    page.goto(file.as_uri())
    page.wait_for_function("performance.getEntriesByName('painted').length > 0")
    return page


def pan(page: Page) -> tuple[float, float]:
    """Frames a second while the drawing is dragged: the median's and the slowest's."""
    box = page.locator(PICTURE).bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 10)
    page.evaluate(FRAMES)
    start = time.perf_counter()
    while (gone := time.perf_counter() - start) < PAN_SECONDS:
        # To and fro, so that the drawing stays in view.
        page.mouse.move(x + 40 * gone, y - 10 - 150 * abs((gone * 1.5) % 2 - 1))
    times = page.evaluate("() => { cancelAnimationFrame(window.counting); return window.frames; }")
    page.mouse.up()
    gaps = sorted(b - a for a, b in pairwise(times))
    return 1000 / statistics.median(gaps), 1000 / gaps[-1]


def hover(page: Page, selector: str, spots: Sequence[tuple[float, float]]) -> Iterator[float]:
    for x, y in spots:
        took, dimmed = page.evaluate(HOVER, [selector, x, y])
        if dimmed > 0:
            yield took


SPOTS = """() => {
  const frame = document.querySelector('.nbc-graph-picture').getBoundingClientRect();
  const out = [];
  for (const each of document.querySelectorAll('.nbc-graph-box:not([aria-expanded=true])')) {
    const box = each.getBoundingClientRect();
    const [x, y] = [box.x + box.width / 2 - frame.x, box.y + box.height / 2 - frame.y];
    if (x > 0 && y > 0 && x < frame.width && y < frame.height) out.push([x, y]);
  }
  for (let n = 0; !out.length || (n > 0 && n < 60); n++) {
    out.push([frame.width * ((n * 0.37) % 1), frame.height * ((n * 0.61) % 1)]);
  }
  return out;
}"""
"""Middles of boxes, from the picture's corner. A canvas has no elements: points all over stand for them."""


def run(browser: Browser, file: Path, rows: Rows) -> None:
    """One page opened, measured and closed."""
    page = opened(browser, file)
    add = rows.setdefault
    start, painted = (page.evaluate(f"performance.getEntriesByName('{name}')[0].startTime") for name in MARKS)
    add("first paint, ms", []).append(painted - start)
    measure(page, rows, "fused as opened")
    expand(page)
    measure(page, rows, "fused all open")
    page.get_by_role("tab", name="FX").click()
    expand(page)
    measure(page, rows, "FX all open")
    page.get_by_label("fit", exact=True).click()
    measure(page, rows, "FX from afar")
    page.close()


def expand(page: Page) -> None:
    page.get_by_label("expand all").click()
    page.wait_for_timeout(300)


def measure(page: Page, rows: Rows, what: str) -> None:
    median, worst = pan(page)
    rows.setdefault(f"pan, {what}, frames/s", []).append(median)
    rows.setdefault(f"pan, {what}, slowest frame", []).append(worst)
    page.mouse.move(2, 2)
    lines = list(hover(page, ".nbc-line[data-line='9'] .nbc-source", [(5, 5)] * 3))
    nodes = list(islice(hover(page, PICTURE, page.evaluate(SPOTS)), 6))
    rows.setdefault(f"hover a line, {what}, ms", []).append(statistics.median(lines))
    rows.setdefault(f"hover a node, {what}, ms", []).append(statistics.median(nodes))


def bundles() -> Iterator[tuple[str, int, int]]:
    for name in ("explorer.js", "explorer.css", "plotly.js"):
        data = (STATIC / name).read_bytes()
        yield name, len(data), len(gzip.compress(data, 9))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--no-record", action="store_true", help="do not compile cells for the sizes of their records"
    )
    args = parser.parse_args()
    rows: Rows = {}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "large.html"
        file.write_text(page_of(record(args.nodes)), encoding="utf-8")
        for _ in range(args.runs):  # each with a browser of its own: nothing is warm
            browser = playwright.chromium.launch(
                executable_path=chromium() or None, args=["--no-sandbox", "--disable-gpu"]
            )
            run(browser, file, rows)
            browser.close()
    print("# What the explorer costs\n")
    print("Made by `make explorer-figures`; scripts/explorer/figures.py says how.")
    print(f"{args.nodes:,} nodes, {args.runs} runs, headless Chromium, {os.cpu_count()} cores, no GPU;")
    print(
        f"load of the machine at the start {load:.1f}.\n\n| | median | lowest | highest |\n|---|---|---|---|"
    )
    for name, values in rows.items():
        print(f"| {name} | {statistics.median(values):.0f} | {min(values):.0f} | {max(values):.0f} |")
    print("\n| file | bytes | compressed |\n|---|---|---|")
    for name, size, packed in bundles():
        print(f"| {name} | {size:,} | {packed:,} |")
    if args.no_record:
        return 0
    made = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("record_size.py"))], check=True, text=True,
        capture_output=True,
    )  # fmt: skip
    print("\nRecords of three cells (scripts/explorer/record_size.py says which):")
    print(f"\n```\n{made.stdout.strip()}\n```")
    return 0


if __name__ == "__main__":
    sys.exit(main())
