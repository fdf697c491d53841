"""What surrounds the arguments of a function that is tried in a child."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import warnings
from collections.abc import Callable
from typing import cast

import pytest
import torch

from nbcompile.compiler.runtime.edit.trial import outcome
from nbcompile.compiler.stages import KernelCall, KernelSource

MB = 1 << 20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel as Linux lets one")


def readable(address: int, pipe: tuple[int, int]) -> bool:
    """Whether a byte may be read: the kernel of the system tells, without harm."""
    library = ctypes.CDLL(None)
    library.write.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
    if library.write(pipe[1], address, 1) != 1:
        return False
    os.read(pipe[0], 1)
    return True


def look(address: int) -> None:
    """Fail where anything but the argument can be read: 4 GB around it closely, 32 GB less so."""
    pipe = os.pipe()
    assert readable(address, pipe)
    near, far = range(1, 4096), range(4096, 32 * 1024, 16)
    found = [step for step in (*near, *far) for sign in (1, -1) if readable(address + sign * step * MB, pipe)]
    assert not found


def tried(run: Callable[..., object], *tensors: torch.Tensor) -> str:
    source = cast(KernelSource, None)
    return outcome(KernelCall(source, "k0", "k0", cast(Callable[..., None], run), tensors))


def test_a_wrong_index_finds_nothing_within_its_reach() -> None:
    tensors = [torch.ones(1000), torch.ones(3, 5), torch.ones(MB // 4)]
    for tensor in tensors:
        assert tried(lambda address, *_: look(address), tensor, *tensors) == ""


def test_where_addresses_are_limited_it_still_runs() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + 256 * MB, before[1]))
    try:
        argument = torch.ones(1000)
        assert tried(lambda address: ctypes.string_at(address, 4000), argument) == ""
        assert tried(lambda address: ctypes.string_at(address, 4001), argument).startswith(
            "crashed (SIGSEGV)"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_library_that_warns_of_forks_is_not_heard() -> None:
    """jax, once loaded, says at every fork that a deadlock is likely; the child here uses none of it."""
    active = [True]  # what is registered stays

    def warn() -> None:
        if active:
            warnings.warn("os.fork() was called, this will likely lead to a deadlock", RuntimeWarning, 2)

    os.register_at_fork(before=warn)
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            assert tried(lambda address: ctypes.string_at(address, 4000), torch.ones(1000)) == ""
        assert not heard
    finally:
        active.clear()
