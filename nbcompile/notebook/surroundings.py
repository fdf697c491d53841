"""What a compiled part runs in: Dynamo's settings, torch's log, and random state that can be rewound."""

from __future__ import annotations

import logging
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch._dynamo
import torch.compiler.config

# A frame that fails to compile runs eagerly, and numpy stays numpy, with its own random numbers.
DYNAMO: AbstractContextManager[Any] = torch._dynamo.config.patch(suppress_errors=True, trace_numpy=False)

_config: Any = torch.compiler.config


class RandomState:
    """torch's, Python's and numpy's random state as of now, to rewind what a failed part drew."""

    def __init__(self) -> None:
        self.torch = torch.default_generator.get_state()
        self.python = random.getstate()
        self.cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
        numpy = sys.modules.get("numpy")
        self.numpy = numpy.random.get_state() if numpy is not None else None

    def restore(self) -> None:
        torch.default_generator.set_state(self.torch)
        random.setstate(self.python)
        if self.cuda is not None:
            torch.cuda.set_rng_state_all(self.cuda)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)


def changing(numbers: tuple[str, ...]) -> AbstractContextManager[Any]:
    """Tell Dynamo that these parameters change from call to call, so that it compiles them once."""
    if not numbers or not hasattr(_config, "dynamic_sources"):
        return nullcontext()
    patched: AbstractContextManager[Any] = _config.patch(
        dynamic_sources=",".join(f"L[{name!r}]" for name in numbers)
    )
    return patched


@contextmanager
def quiet_compile() -> Iterator[None]:
    """What torch would print about a compile stays unprinted: the record says it, in one line each.

    Only what prints is stopped. Others who listen to torch's log, as our recorder does, still hear it.
    """
    printing = [
        handler
        for name in ("torch", "torch._dynamo", "torch._subclasses", "torch._inductor")
        for handler in logging.getLogger(name).handlers
        if isinstance(handler, logging.StreamHandler)
    ]
    with warnings.catch_warnings(), DYNAMO:
        warnings.filterwarnings("ignore", module=r"torch\._(dynamo|inductor|functorch)")
        for handler in printing:
            handler.addFilter(_nothing)
        try:
            yield
        finally:
            for handler in printing:
                handler.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    return False
