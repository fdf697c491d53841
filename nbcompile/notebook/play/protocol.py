"""The explorer's messages: a request; that it has begun, some progress, one result or error. The same over
both transports.

Jupyter may hand a comm's messages to another thread than the one cells run in, so that they arrive while a
cell runs. What plays with the session's values must not do that: requests are answered in the main thread,
between cells, where an interrupt of the kernel reaches them too.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nbcompile.errors import (
    EditError,
    ExplorerError,
    MeasureError,
    NbcompileError,
    OptionError,
    PlayError,
    ToolchainError,
)
from nbcompile.notebook.play.play import Plays
from nbcompile.view.html.page import static

Send = Callable[[dict[str, Any]], object]

MAX_WORD = 200
A_SECOND = 10
"""Progress messages."""
_TITLES: tuple[tuple[type[Exception], str], ...] = (
    (EditError, "The edited kernel cannot be used"),
    (PlayError, "This cannot be done here"),
    (OptionError, "This setting is not possible"),
    (MeasureError, "This cannot be measured"),
    (ToolchainError, "The compiler failed"),
)


class Conversation:
    """Answers the requests of one explorer. ``send`` takes each reply; nothing is raised."""

    def __init__(self, plays: Plays, send: Send) -> None:
        self._plays = plays
        self._send = send

    def receive(self, message: Any) -> None:
        """Answer one message, here if this is the main thread, else there as soon as it is free."""
        in_main_thread(lambda: self.answer(message))

    def answer(self, message: Any) -> None:
        """Answer one message now."""
        request = message if isinstance(message, Mapping) else {}
        number, method = (_word(request.get(name)) for name in ("id", "method"))
        params = request.get("params")
        told = _Progress(lambda reply: self._send({"id": number, **reply}))
        try:
            with interruptible():
                self._send({"id": number, "kind": "begun"})  # an interrupt before this would be lost
                if method == "charts":
                    value = charts()
                else:
                    value = self._plays.answer(method, params if isinstance(params, Mapping) else {}, told)
            reply = {"id": number, "kind": "result", "value": value}
        except KeyboardInterrupt:
            reply = {"id": number, "kind": "error", "error": CANCELLED}
        except Exception as error:  # whatever it is, it is the explorer's to show, and none of the session's
            reply = {"id": number, "kind": "error", "error": described(error)}
        self._send(reply)


CANCELLED = {
    "title": "Cancelled", "message": "", "advice": "", "line": None, "cancelled": True,
}  # fmt: skip


def described(error: BaseException) -> dict[str, Any]:
    """An error as the explorer shows it. ``line`` is one of the kernel's text, for an edit."""
    title = next((title for kind, title in _TITLES if isinstance(error, kind)), "It failed")
    if isinstance(error, NbcompileError):
        message, advice, line = error.message, error.advice, error.line
    else:
        message, advice, line = f"{type(error).__name__}: {error}", "", None
    return {"title": title, "message": message, "advice": advice, "line": line, "cancelled": False}


def _word(value: Any) -> str:
    """What a page calls a request: a text, and no long one. Anything else has no name."""
    return value if isinstance(value, str) and len(value) <= MAX_WORD else ""


class _Progress:
    """Sends progress, at most ten messages a second: what comes too fast is left out."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sent: deque[float] = deque(maxlen=A_SECOND)

    def __call__(self, text: str, done: int, of: int) -> None:
        now = time.monotonic()
        if len(self._sent) < A_SECOND or now - self._sent[0] > 1.0:
            self._sent.append(now)
            self._send({"kind": "progress", "text": text, "done": done, "of": of})


@contextmanager
def interruptible() -> Iterator[None]:
    """A kernel ignores SIGINT but while it runs a cell: in here it raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def in_main_thread(call: Callable[[], None]) -> None:
    """``call``, now if this is the main thread, else from the kernel's event loop there."""
    if threading.current_thread() is threading.main_thread():
        call()
        return
    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.instance().kernel.io_loop.add_callback(call)


# -- the explorer's own files -----------------------------------------------------------------------


def static_file(name: str) -> str:
    """A file of the explorer as it was built into this package. ExplorerError if it is not there."""
    try:
        return static().joinpath(name).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ExplorerError(
            f"the explorer's {name} has not been built.",
            advice="Run `make explorer` in nbcompile's folder, or install a released wheel.",
        ) from error


def charts() -> dict[str, Any]:
    """plotly, which is sent only when charts are looked at."""
    return {"script": static_file("plotly.js")}
