# ruff: noqa: E501  (scripts of a page)
"""A stranger's record in a page: opened, all of it looked at, and nothing of it run."""

from __future__ import annotations

import time
from pathlib import Path

from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page

from nbcompile.errors import NbcompileError
from nbcompile.record.compilation import Compilation
from tests.browser.looking import OnDisk

SECONDS = 90
"""For opening a record, and for looking at all of it."""

# Clicks every tab, opens every select's options, hovers and clicks the first of what can be pointed at, and comes
# back once nothing is left to do. Runs in the page, so that a renderer that hangs is one that does not come back.
_LOOK = """() => { window.looked = ''; (async () => {
  const rest = () => new Promise((go) => setTimeout(go, 0));
  const all = (what) => [...document.querySelectorAll('.nbc ' + what)];
  const press = async (each) => { each.click(); await rest(); await rest(); };
  for (const each of all('.nbc-answer button, .nbc-open').slice(0, 4)) await press(each);
  for (let round = 0; round < 2; round++) {
    for (let at = 0; at < 24; at++) { const tab = all('[role=tab]')[at]; if (tab) await press(tab); }
    const seen = all('[role=tablist][aria-label=details] [role=tab]');
    for (const tab of seen) {
      await press(tab);
      for (const each of all('[tabindex]').slice(0, 12)) {
        each.dispatchEvent(new MouseEvent('mouseenter')); each.dispatchEvent(new MouseEvent('mouseleave'));
      }
      for (const each of all('summary').slice(0, 6)) await press(each);
    }
  }
  for (const select of all('select')) for (const option of [...select.options].slice(0, 6)) {
    select.value = option.value; select.dispatchEvent(new Event('change', { bubbles: true })); await rest();
  }
  for (const each of all('.nbc-source[tabindex], .nbc-chip, .nbc-more, .nbc-step, tr[tabindex]').slice(0, 12)) await press(each);
  for (const each of all('.nbc-graph-tool').slice(0, 6)) await press(each);
  window.looked = 'all';
})().catch((error) => { window.looked = 'failed: ' + (error.stack || error); }); }"""

# What is there that no text of a record may become, read from the tree that the browser made.
_FOUND = """() => {
  const found = [], whole = document.body;
  for (const each of whole.querySelectorAll('iframe, object, embed, link, form, base, meta, video, audio, strangersays'))
    found.push('<' + each.localName + '>');
  for (const each of whole.querySelectorAll('.nbc script, .nbc img, .n-root script, .n-root img, .nbc style'))
    found.push('<' + each.localName + '>');
  for (const each of whole.querySelectorAll('*')) for (const { name, value } of each.attributes) {
    if (name.startsWith('on')) found.push(name + '=' + value.slice(0, 60));
    if (/^(href|xlink:href|src|action|formaction|srcdoc)$/.test(name) && !/^(#|blob:|data:image\\/)/.test(value))
      found.push(name + '=' + value.slice(0, 60));
    if (name === 'style' && /url\\(|expression|strangersays/.test(value)) found.push(name + '=' + value.slice(0, 60));
  }
  for (const [what, text] of [['the text', document.querySelector('.nbc')?.textContent ?? ''],
                              ['the plain page', document.querySelector('.n-root')?.textContent ?? '']])
    if (/[\\u202a-\\u202e\\u2066-\\u2069\\u200e\\u200f\\u061c]/.test(text)) found.push('an unmarked turn of direction in ' + what);
  if (Object.keys(Object.prototype).length || ({}).polluted !== undefined) found.push('a polluted prototype');
  return [...new Set(found)].slice(0, 10);
}"""


def look_at(disk: OnDisk, text: str, wait: int = 0) -> tuple[str, list[str]]:
    """Open a file of a stranger's and look at everything: what the page says of it (``shown``, or the words of
    its refusal), and what went wrong. ``wait``: milliseconds before it is judged."""
    page, faults = disk.page, list[str]()
    record = _read(text)
    begun = time.monotonic()
    try:
        disk.open(record, text=_inert(text))
    except PlaywrightError as error:
        return "nothing", [f"it was not opened in time: {error.message[:200]}"]
    said = _said(page)
    if said == "shown":
        page.evaluate(_LOOK)
        try:
            page.wait_for_function("() => window.looked !== ''", timeout=SECONDS * 1000)
        except PlaywrightError:
            return said, [f"it hung: not looked at in {SECONDS} s, after {time.monotonic() - begun:.0f} s"]
        looked = page.evaluate("window.looked")
        faults += [looked] if looked != "all" else []
        page.wait_for_timeout(wait)
        said = _said(page)
    if said not in ("shown",) and "cannot be shown" not in said:
        faults.append(f"neither the record nor a refusal: {said[:300]!r}")
    faults += page.evaluate(_FOUND)
    try:
        disk.assert_nothing_happened()
    except AssertionError as error:
        faults.append(f"something happened: {str(error)[:300]}")
    return said, faults


def _said(page: Page) -> str:
    failure = page.locator(".nbc-failure")
    if failure.count():
        return str(failure.first.inner_text())
    return "shown" if page.locator(".nbc-head").count() else page.inner_text("body")[:100]


def _read(text: str) -> Compilation:
    """What Python makes of it, for the plain page below the explorer."""
    try:
        return Compilation.from_json(text)
    except NbcompileError:
        return Compilation(id="replaced")


def _inert(text: str) -> str:
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace").decode()


def disk_of(page: Page, folder: Path) -> OnDisk:
    page.set_default_timeout(SECONDS * 1000)
    return OnDisk(page, folder)
