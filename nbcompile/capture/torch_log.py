"""torch's log (and TensorFlow's, where both are held side by side), kept off the screen."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("torch", "torch._dynamo", "torch._subclasses", "torch._inductor", "tensorflow")


@contextmanager
def unprinted() -> Iterator[None]:
    """Nothing of these logs is printed meanwhile.

    Only what prints is stopped. Others who listen to torch's log, as our recorder does, still hear it.
    """
    printing = [
        handler
        for name in _LOGGERS
        for handler in logging.getLogger(name).handlers
        if isinstance(handler, logging.StreamHandler)
    ]
    for handler in printing:
        handler.addFilter(_nothing)
    try:
        yield
    finally:
        for handler in printing:
            handler.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    return False
