"""The records in a file: one that ``--save`` or ``to_json`` wrote, a page, or a notebook with its outputs."""

from __future__ import annotations

import html.parser
import json
from pathlib import Path
from typing import Any

from nbcompile.errors import RecordError
from nbcompile.record.compilation import Compilation
from nbcompile.view import MIME


def read_saved(path: str | Path) -> list[Compilation]:
    """The records of ``path`` in their order. RecordError if it cannot be read or has none."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise RecordError(f"{file} cannot be read: {reason}.") from error
    if text.lstrip()[:1] == "<":
        found = [Compilation.from_json(each) for each in _Held(text).texts]
    else:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{file} is neither a record nor a notebook nor a page: {error}") from error
        values = _outputs(data) if isinstance(data, dict) and "cells" in data else [data]
        found = [Compilation.from_dict(each) for each in values]
    if not found:
        raise RecordError(f"{file} holds no record.", advice="`%%compile --save record.json` writes one.")
    return found


def _outputs(notebook: dict[str, Any]) -> list[Any]:
    """What stands in a notebook's outputs under our name; whatever else is there is passed over."""
    cells = notebook["cells"] if isinstance(notebook["cells"], list) else []
    outputs = [o for cell in cells if isinstance(cell, dict) for o in cell.get("outputs") or ()]
    held = [output.get("data") for output in outputs if isinstance(output, dict)]
    return [data[MIME] for data in held if isinstance(data, dict) and MIME in data]


class _Held(html.parser.HTMLParser):
    """The texts of a page's elements that hold records."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        ours = (given.get("id") or "").startswith("nbcompile-")
        self._inside = tag == "script" and given.get("type") == "application/json" and ours
        if self._inside:
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[-1] += data
