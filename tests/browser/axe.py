"""What axe-core finds wrong with a page for readers who do not see it, or not well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[2]
_AXE = ROOT / "labextension" / "node_modules" / "axe-core" / "axe.min.js"
_SERIOUS = ("serious", "critical")


def serious(page: Page, within: str = ".nbc") -> list[str]:
    """Each serious or critical finding within an element: the rule, and the first elements that break it."""
    page.evaluate(_AXE.read_text(encoding="utf-8"))
    found: dict[str, Any] = page.evaluate(
        "(within) => axe.run(within, {resultTypes: ['violations']})", within
    )
    return [
        f"{each['id']} ({each['help']}): {[node['html'][:200] for node in each['nodes'][:3]]}"
        for each in found["violations"]
        if each["impact"] in _SERIOUS
    ]
