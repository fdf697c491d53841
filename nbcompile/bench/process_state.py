"""Random generators and switches of the process: kept, and put back."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator

import torch


class ProcessState:
    """Random generators and switches that belong to the process, not to an object."""

    def __init__(self) -> None:
        self._cpu = torch.get_rng_state()
        self._cuda = (
            torch.cuda.get_rng_state_all()
            if torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
            else None
        )
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None
        self._grad = torch.is_grad_enabled()
        self._dtype = torch.get_default_dtype()
        self._threads = torch.get_num_threads()
        self._deterministic = torch.are_deterministic_algorithms_enabled()
        self._warn_only = torch.is_deterministic_algorithms_warn_only_enabled()

    def random_changed(self) -> bool:
        numpy = sys.modules.get("numpy")
        return (
            not torch.equal(self._cpu, torch.get_rng_state())
            or random.getstate() != self._python
            or (self._numpy is not None and repr(numpy.random.get_state()) != repr(self._numpy))  # type: ignore[union-attr]
            or (
                self._cuda is not None
                and any(
                    not torch.equal(a, b)
                    for a, b in zip(self._cuda, torch.cuda.get_rng_state_all(), strict=True)
                )
            )
        )

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        torch.set_grad_enabled(self._grad)
        torch.set_default_dtype(self._dtype)
        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        torch.use_deterministic_algorithms(self._deterministic, warn_only=self._warn_only)


@contextlib.contextmanager
def as_if_compiling() -> Iterator[None]:
    """``torch.compiler.is_compiling()`` is true meanwhile; where torch has no such flag nothing changes."""
    known = hasattr(torch.compiler, "_is_compiling_flag")
    before = getattr(torch.compiler, "_is_compiling_flag", False)
    if known:
        torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        if known:
            torch.compiler._is_compiling_flag = before
