"""One line that says what is going on, in the place where the record will stand."""

from __future__ import annotations

import os
import sys
import time
import uuid
from typing import Any, cast

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display, update_display

from nbcompile.view.coloured import coloured, has_colours

_EVERY = 0.1
_display, _update = cast(Any, display), cast(Any, update_display)  # IPython's own are not typed


class OutputPlace:
    """One output of the cell: shows progress while things happen, the record in the end.

    In a notebook it is one display, updated in place. In a terminal an update would print again, so
    there progress is silent and only :meth:`show` prints, in colours if the terminal and its user
    have some. ``delay`` seconds pass before the first progress, so quick compiles do not flicker.
    """

    def __init__(self, shell: InteractiveShell, *, delay: float = 0.2) -> None:
        self.live = hasattr(shell, "kernel")
        self.id = f"nbcompile-{uuid.uuid4().hex[:12]}"
        self.opened = False
        self._colourless = str(getattr(shell, "colors", "")).lower() == "nocolor"
        self._due = time.monotonic() + delay

    def progress(self, text: str) -> None:
        """Say ``text``. Cheap enough for every step; at most ten a second are sent."""
        now = time.monotonic()
        if not self.live or now < self._due:
            return
        self._due = now + _EVERY
        line = f"nbcompile: {text}…"
        self._send({"text/plain": line, "text/html": f"<em>{_escaped(line)}</em>"}, {})

    def show(self, bundle: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        """Put the final MIME bundle here."""
        if not self.live:
            text = bundle["text/plain"]
            plain = self._colourless or not has_colours(sys.stdout, os.environ)
            bundle = {"text/plain": text if plain else coloured(text)}
        self._send(bundle, metadata or {})

    def clear(self) -> None:
        """Nothing to show after all."""
        if self.opened:
            self._send({"text/plain": "", "text/html": ""}, {})

    def _send(self, bundle: dict[str, Any], metadata: dict[str, Any]) -> None:
        if self.opened:
            _update(bundle, metadata=metadata, raw=True, display_id=self.id)
            return
        self.opened = True
        _display(bundle, metadata=metadata, raw=True, display_id=self.id)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
