"""What a compiled part runs in: Dynamo's settings, torch's log, and random state that can be rewound."""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch._dynamo
import torch.compiler.config

from nbcompile.compiler.capture.listening import active_session
from nbcompile.compiler.capture.torch_log import unprinted, was_asked_for

# A frame that fails to compile runs eagerly, and numpy stays numpy, with its own random numbers.
DYNAMO: AbstractContextManager[Any] = torch._dynamo.config.patch(suppress_errors=True, trace_numpy=False)

_config: Any = torch.compiler.config


class RandomState:
    """torch's and Python's random state as of now, to rewind what a failed part drew. (A part that is
    one graph has drawn nothing from numpy.)"""

    def __init__(self, *, python: bool = True) -> None:
        self.torch = torch.default_generator.get_state()
        self.python = random.getstate() if python else None  # slow to take
        self.cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]

    def restore(self) -> None:
        torch.default_generator.set_state(self.torch)
        if self.python is not None:
            random.setstate(self.python)
        if self.cuda is not None:
            torch.cuda.set_rng_state_all(self.cuda)

    def python_moved(self) -> bool:
        """Whether Python's generator has drawn since."""
        return self.python is not None and random.getstate() != self.python


def changing(numbers: tuple[str, ...]) -> AbstractContextManager[Any]:
    """Tell Dynamo that these parameters change from call to call, so that it compiles them once."""
    if not numbers or not hasattr(_config, "dynamic_sources"):
        return nullcontext()
    patched: AbstractContextManager[Any] = _config.patch(
        dynamic_sources=",".join(f"L[{name!r}]" for name in numbers)
    )
    return patched


def capturing_values(whole: bool) -> AbstractContextManager[Any]:
    """Compile anew what the cell has as ``whole`` graphs, with the values of tensors in them. One graph has
    them unasked; a function that may break, as what is timed is one, breaks at each, and in a loop is not
    compiled at all."""
    if not whole:
        return nullcontext()
    patched: AbstractContextManager[Any] = torch._dynamo.config.patch(
        capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True
    )
    return patched


class _Told(logging.Filter):
    """Drops torch's warning, ten lines at each call, that a recompile limit is reached: where a cell runs its
    record says so."""

    def filter(self, record: logging.LogRecord) -> bool:
        session = active_session()
        limit = record.getMessage().startswith("torch._dynamo hit config.")
        told = limit and session is not None and bool(session.cell_file)
        return not told or was_asked_for(record)


_TOLD = _Told()


def leave_limits_to_the_record() -> None:
    """From now on torch's log does not repeat what the record of a cell says. A part that is called again
    may compile too, and nothing is to be done around each of its calls."""
    logging.getLogger("torch._dynamo.convert_frame").addFilter(_TOLD)  # once, however often


@contextmanager
def quiet_compile() -> Iterator[None]:
    """What torch prints unasked about a compile stays unprinted: the record says it, in one line each."""
    with warnings.catch_warnings(), DYNAMO, unprinted(asked_for=True):
        warnings.filterwarnings("ignore", module=r"torch\._(dynamo|inductor|functorch)")
        yield
