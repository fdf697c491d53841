"""A page from disk under test: what left it, what ran in it, and everything in it that can be pressed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from nbcompile import view
from nbcompile.record.compilation import Compilation
from nbcompile.view.html.page import NO_EXPLORER, inert_json

_INSIDE = re.compile(r"(file|data|blob):")
_PRESSABLE = (
    ".nbc button:visible, .nbc [role=button]:visible, .nbc [role=tab]:visible, .nbc [tabindex]:visible"
)


class OnDisk:
    """A browser's page that opens files, and has nothing to fetch and no question to ask while it does."""

    def __init__(self, page: Page, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self.left: list[str] = []
        page.on("request", lambda request: self.left.append(request.url))
        page.on("dialog", self._dialog)
        page.on("popup", lambda popup: self.left.append(f"popup {popup.url}"))
        # What the policy forbade; a script of this kind is the browser's and not the page's.
        page.add_init_script(
            "window.violations = []; document.addEventListener('securitypolicyviolation', "
            "(event) => window.violations.push(event.violatedDirective + ' ' + event.blockedURI));"
        )

    def _dialog(self, dialog: Any) -> None:
        self.left.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def open(self, record: Compilation | list[Compilation], text: str | None = None, **options: Any) -> Page:
        """The page of a record; ``text``: with this in place of the first payload's JSON."""
        page = view.to_page(record, **options)
        assert NO_EXPLORER not in page, "`make explorer` first"
        if text is not None:
            start = page.index('id="nbcompile-1">') + len('id="nbcompile-1">')
            page = page[:start] + text + page[page.index("</script>", start) :]
        path = self.folder / "page.html"
        path.write_text(page, encoding="utf-8")
        self.page.goto(path.as_uri())
        self.page.wait_for_function("!document.querySelector('.nbc-reading')")
        return self.page

    def open_payload(self, payload: object) -> Page:
        """A page whose record is these JSON values."""
        return self.open(Compilation(id="replaced"), str(inert_json(payload)))

    def assert_nothing_happened(self) -> None:
        """Nothing was asked for outside, nothing asked the reader, nothing was forbidden, no text ran."""
        self.page.wait_for_timeout(50)
        assert [each for each in self.left if not _INSIDE.match(each)] == []
        assert self.page.evaluate("window.violations") == []
        assert self.page.evaluate("'canary' in window") is False


def press_everything(page: Page, most: int = 150) -> int:
    """Hover, then click, whatever can be pressed in this window, also what appears meanwhile; how many."""
    done: set[str] = set()
    for _ in range(most):
        places = page.locator(_PRESSABLE)
        names = places.evaluate_all(
            "(all) => all.map((each) => each.tagName + each.className + each.textContent.slice(0, 80) "
            "+ each.getAttribute('aria-label'))"
        )
        fresh = [
            (place, name)
            for place, name in enumerate(names)
            if _stable(name) not in done and not name.endswith("in a window of its own")
        ]
        if not fresh:
            break
        place, name = fresh[0]
        done.add(_stable(name))
        element = places.nth(place)
        element.hover(force=True)
        element.click(force=True)
    return len(done)


def _stable(name: str) -> str:
    """Without what pressing it changes."""
    return re.sub(r"nbc-(lit|dim)|[▸▾]|\s", "", name)
