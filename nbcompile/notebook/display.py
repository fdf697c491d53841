"""The record on screen and on disk."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from nbcompile.errors import ExplorerError
from nbcompile.notebook.arguments import CellOptions
from nbcompile.notebook.play.exploring import explore
from nbcompile.notebook.progress import OutputPlace
from nbcompile.record.compilation import Compilation
from nbcompile.record.packed import json_text
from nbcompile.units import bytes_text
from nbcompile.view import MIME, Pending, mime_bundle, payload, to_page
from nbcompile.view.pending import deserves_a_sketch

_SHARE, _EVERY = 0.1, 0.5


class Growing:
    """A record on screen while it is measured: there as soon as the cell has run, again whenever a stage is
    over, and in between so often that showing it takes a tenth of the time. A large one is there
    without some of its graphs a moment sooner where nothing of it was shown before (``first``). Nothing is
    shown where a place cannot be updated, or where the record is to be a widget."""

    def __init__(
        self,
        compilation: Compilation,
        options: CellOptions,
        place: OutputPlace,
        doing: str = "about to be timed",
        *,
        first: bool = False,
    ) -> None:
        self._options, self._place = options, place
        self._make: Callable[[], Compilation] = lambda: compilation
        self._live = place.live and not options.live
        self._since, self._due, self._doing, self._shown = time.time(), 0.0, doing, ""
        if first and deserves_a_sketch(compilation):
            self._show(sketch=True)
        self._show()

    def compilation(self) -> Compilation:
        """All that is known now."""
        return self._make()

    def progress(self, text: str) -> None:
        self._doing = text
        if text != self._shown and time.monotonic() > self._due:
            self._show()

    def grown(self, make: Callable[[], Compilation], over: bool) -> None:
        self._make = make
        if over or time.monotonic() > self._due:
            self._show()

    def _show(self, *, sketch: bool = False) -> None:
        if not self._live:
            return
        begun = time.monotonic()
        show(self._make(), self._options, self._place, Pending(self._doing, self._since, sketch))
        self._shown, took = self._doing, time.monotonic() - begun
        self._due = begun + took + max(_EVERY, took / _SHARE)


def show(
    compilation: Compilation, options: CellOptions, place: OutputPlace, pending: Pending | None = None
) -> None:
    """Replace the progress line at ``place`` by the record, all of it or the parts asked for. ``pending``:
    what is still to come of it.

    The record stored in the notebook is whole in any case, but for ``--live``: then it is a widget, with the
    HTML and text of the record for where there are none.
    """
    with _uncollected():
        bundle = mime_bundle(compilation, options.show, pending)
    metadata = None
    if options.live and place.live:
        try:
            widget = explore(compilation)._repr_mimebundle_()
        except ExplorerError as error:
            print(f"nbcompile: {error}")
        else:
            assert widget is not None, "a widget has a view"
            del bundle[MIME]
            bundle, metadata = {**widget[0], **bundle}, widget[1]
    place.show(bundle, metadata)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage collection meanwhile: a view of a large record makes a million objects, none of them
    garbage, and looking through the session's whole heap for some took a third of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def save(compilation: Compilation, file: str) -> str:
    """Write the payload, which any explorer opens (``.json``), or a page that stands alone (``.html``). What
    was written, or why it was not, in a few words."""
    if file.endswith(".html"):
        text = to_page(compilation)
    else:
        text = json_text(payload(compilation))
    path = Path(file).expanduser()
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:  # what the cell computed is to be shown all the same
        return f"not saved to {path}: {error.strerror or error}"
    return f"saved {path} ({bytes_text(path.stat().st_size)})"
