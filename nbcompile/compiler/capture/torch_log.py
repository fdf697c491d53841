"""torch's log (and TensorFlow's, where both are held side by side), kept off the screen."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_TRACE = "torch.__trace"
"""torch's logger of what goes into the files of TORCH_TRACE: its handler is one of a stream, too."""


@contextmanager
def unprinted(asked_for: bool = False) -> Iterator[None]:
    """Nothing of these logs is printed meanwhile, but, with ``asked_for``, what ``TORCH_LOGS`` or
    ``torch._logging.set_logs`` asks for.

    Only what prints is stopped. Others who listen to torch's log, as our recorder does, still hear it, and
    what ``TORCH_TRACE`` asks for is written.
    """
    printing = [
        handler
        for name, logger in list(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in ("torch", "tensorflow")
        if name != _TRACE
        for handler in logger.handlers
        if hasattr(handler, "stream")  # torch 2.15's own is no StreamHandler
    ]
    hidden = was_asked_for if asked_for else _nothing
    for handler in printing:
        handler.addFilter(hidden)
    try:
        yield
    finally:
        for handler in printing:
            handler.removeFilter(hidden)


def _nothing(record: logging.LogRecord) -> bool:
    return False


def was_asked_for(record: logging.LogRecord) -> bool:
    """Whether torch was asked to log this: by an artifact's name ("recompiles") or that of a part ("dynamo").
    The logger "torch" is always among those parts. Where torch keeps this is private."""
    import torch

    state = getattr(getattr(getattr(torch, "_logging", None), "_internal", None), "log_state", None)
    artifact = record.name.rpartition(".__")[2]
    if artifact in getattr(state, "artifact_names", ()):
        return True
    parts = set(getattr(state, "log_qname_to_level", ())) - {"torch"}
    return "__" not in record.name and any(f"{record.name}.".startswith(f"{part}.") for part in parts)
