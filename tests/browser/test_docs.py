"""The site of the documentation: it builds without a warning, loads nothing from elsewhere, looks right."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parent.parent.parent
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video)\b[^>]*?\ssrc=["']?(?P<src>[^"'\s>]+)"""
    r"""|<link\b(?=[^>]*rel=["']?(?:stylesheet|icon|preload))[^>]*?href=["']?(?P<href>[^"'\s>]+)""",
    re.I,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make docs`` builds it, but that no code is run: tests/test_docs.py does that."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        docs = importlib.import_module("docs")
    finally:
        sys.path.pop(0)
    folder = tmp_path_factory.mktemp("docs")
    source, target = folder / "src", folder / "html"
    docs.assemble(source, lambda page: ["what it printed"] * len(docs.blocks(page.read_text("utf-8"))))
    done = docs.build(source, target)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return Path(target)


@pytest.mark.nightly
@pytest.mark.slow
def test_the_site_is_built_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert {"index", "quick-start", "irs", "cheat-sheet"} <= {page.stem for page in pages}
    assert (site / "notebooks" / "01-first-compile.html").exists()
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for found in _LOADED.finditer(text):
            address = found["src"] or found["href"]
            assert not re.match(r"(?:https?:)?//", address), f"{page.name} loads {address}"
    for sheet in site.rglob("*.css"):
        outside = re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)\"']+", sheet.read_text("utf-8"))
        assert not outside, f"{sheet.name} loads {outside[0]}"


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_open_without_an_error_and_fit_the_window(site: Path, chromium: Browser, scheme: str) -> None:
    context = chromium.new_context(color_scheme="dark" if scheme == "dark" else "light")
    window = context.new_page()
    problems: list[str] = []
    window.on("pageerror", lambda error: problems.append(str(error)))
    window.on("requestfailed", lambda request: problems.append(request.url))
    window.on(
        "request",
        lambda request: None if request.url.startswith(("file:", "data:")) else problems.append(request.url),
    )
    for page in sorted(site.rglob("*.html")):
        if page.parent.name in ("_static", "_modules"):
            continue
        window.goto(page.as_uri())
        wide = window.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{page.name} is {wide} pixels too wide"
    window.goto((site / "index.html").as_uri())
    background = window.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = sum(map(int, re.findall(r"\d+", background)[:3])) < 3 * 128
    assert dark == (scheme == "dark")
    context.close()
    assert not problems


@pytest.mark.nightly
@pytest.mark.slow
def test_the_cheat_sheet_is_one_page(site: Path, chromium: Browser) -> None:
    window = chromium.new_page()
    window.goto((site / "cheat-sheet.html").as_uri())
    printed = window.pdf(prefer_css_page_size=True)
    window.close()
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
    width, height = map(float, re.findall(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", printed)[0])
    assert (round(width / 72 * 25.4), round(height / 72 * 25.4)) == (210, 297)
