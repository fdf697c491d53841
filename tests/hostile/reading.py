"""HTML of ours as a browser would read it: what of it is more than text."""

from __future__ import annotations

import base64
import html.parser
import re
import xml.etree.ElementTree as ET

from tests.hostile.texts import MARK

TAGS = frozenset({
    "div", "p", "span", "b", "br", "table", "tr", "td", "th", "pre", "code", "details", "summary", "img",
})  # fmt: skip
ATTRIBUTES = frozenset({"style", "title", "open", "src", "width", "height", "alt", "colspan", "role", "name"})
OF_A_PAGE = frozenset(
    {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "svg",
        "g",
        "rect",
        "circle",
        "path",
        "text",
        "tspan",
        "line",
    }
)
PICTURE = "data:image/svg+xml;base64,"
_TEXTS = frozenset({"title", "alt", "aria-label"})
"""Attributes that hold words."""
_DANGER = re.compile(r"url\(|expression|@import|javascript:|behavior|</", re.IGNORECASE)
_STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\ud800-\udfff]")
_TURNING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class _Reader(html.parser.HTMLParser):
    """Notes what may not be there."""

    def __init__(self, page: bool) -> None:
        super().__init__()
        self.page, self.faults, self.inside = page, [], ""
        self.found: list[str] = self.faults
        self.pictures: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag
        if tag not in TAGS and not (self.page and tag in OF_A_PAGE):
            self.found.append(f"an element <{tag[:40]}>")
        for name, value in attrs:
            value = value or ""
            if name.startswith("on") or name in ("href", "srcdoc", "action", "formaction", "xlink:href"):
                self.found.append(f"an attribute {name}={value[:60]!r}")
            elif name not in ATTRIBUTES and not self.page:
                self.found.append(f"an attribute {name[:40]}")
            if name == "src":
                self.pictures.append(value)
                if not value.startswith(PICTURE):
                    self.found.append(f"an address {value[:60]!r}")
            elif name not in _TEXTS and (MARK in value or _DANGER.search(value)):
                self.found.append(f"a stranger's {name}={value[:80]!r}")
            if name in _TEXTS:
                self.text(value)
            if MARK in name:
                self.found.append(f"a stranger's attribute {name[:60]!r}")

    handle_startendtag = handle_starttag

    def handle_data(self, data: str) -> None:
        if self.inside == "style" and MARK in data:
            self.found.append("a stranger's style sheet")
        self.text(data)

    def text(self, text: str) -> None:
        for what, pattern in (
            ("a control character", _STEERING),
            ("an unmarked turn of direction", _TURNING),
        ):
            if match := pattern.search(text):
                place = text[max(0, match.start() - 20) : match.end() + 20]
                self.found.append(f"{what} U+{ord(match.group()):04X} in {place!r}")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_comment(self, data: str) -> None:
        self.found.append(f"a comment {data[:60]!r}")

    def handle_pi(self, data: str) -> None:
        self.found.append(f"an instruction {data[:60]!r}")

    def unknown_decl(self, data: str) -> None:
        self.found.append(f"a declaration {data[:60]!r}")


def faults(text: str, page: bool = False) -> list[str]:
    """What in this HTML is not ours, or is nothing that a text may hold. Empty if all is well."""
    reader = _Reader(page)
    reader.feed(text)
    reader.close()
    for source in reader.pictures:
        if source.startswith(PICTURE):
            reader.found += _of_picture(base64.b64decode(source.removeprefix(PICTURE)).decode())
    return list(dict.fromkeys(reader.found))[:10]


def _of_picture(svg: str) -> list[str]:
    found = []
    try:
        root = ET.fromstring(svg)
    except ET.ParseError as error:
        return [f"a picture that is no XML: {error}"]
    for element in root.iter():
        name = element.tag.split("}")[-1]
        if name not in {"svg", "title", "g", "rect", "circle", "path", "text", "tspan", "line"}:
            found.append(f"an element <{name}> in a picture")
        for attribute, value in element.attrib.items():
            if attribute.startswith("on") or "href" in attribute or MARK in value or _DANGER.search(value):
                found.append(f"an attribute {attribute}={value[:60]!r} in a picture")
    return found
