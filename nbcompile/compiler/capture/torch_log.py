"""torch's log (and TensorFlow's, where both are held side by side), kept off the screen."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unprinted() -> Iterator[None]:
    """Nothing of these logs is printed meanwhile.

    Only what prints is stopped. Others who listen to torch's log, as our recorder does, still hear it.
    """
    printing = [
        handler
        for name, logger in list(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in ("torch", "tensorflow")
        for handler in logger.handlers
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
