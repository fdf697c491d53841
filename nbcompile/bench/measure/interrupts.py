"""Interrupts (Ctrl-C, the notebook's stop button) arrive between steps, not in the middle of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType


def _always() -> bool:
    return True


class FinishFirst:
    """Hold back SIGINT while the body runs, then raise it. A second one is raised at once.

    Only for bodies that run native code, which an interrupt could not stop anyway, and that must not
    be left half done. ``once`` says whether that point is reached: before it, an interrupt is raised
    at once. Does nothing outside the main thread or where SIGINT is not Python's own.
    """

    def __init__(self, once: Callable[[], bool] = _always) -> None:
        self.once = once
        self.waiting = False
        self.active = False

    def __enter__(self) -> FinishFirst:
        self.active = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self.active:
            signal.signal(signal.SIGINT, self._hold)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.active:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if self.waiting and not isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self.waiting or not self.once():
            raise KeyboardInterrupt
        self.waiting = True
