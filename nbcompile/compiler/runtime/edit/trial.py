"""A C function tried where it can do no harm: in a forked child, on copies that end where the memory ends.

An edit that reads or writes outside its arguments would take the user's session with it, or spoil what lies
beside them. In the child each argument is followed by memory that nobody may touch, so the first element too
far ends the child, whatever the length of the buffer. These forbidden addresses go on, on both sides, for as
far as a wrong 32-bit index reaches: the libraries of a process are so large that a read some hundred
megabytes away often finds one. They are addresses only; no memory stands behind them. On a busy machine a
trial took 0.1 s where starting an interpreter that imports torch took 3.7 s. The child only calls the C
function, on one thread: no lock of the parent's is needed there.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import mmap
import os
import signal
import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from nbcompile.compiler.runtime.layout import reach
from nbcompile.compiler.stages import KernelCall

SECONDS = 20.0
_SPOILED, _FAILED = 3, 4
_MARK = 0xA5
_POLL = 0.002
_REACH = 1 << 36
"""How far the forbidden addresses go on either side of a copy, in bytes: 2**32 elements of 16."""


def outcome(call: KernelCall, seconds: float = SECONDS) -> str:
    """What comes of a call on CPU tensors: empty if all is well, else what the function did, as a sentence's
    end (``crashed (SIGSEGV): ...``). The arguments are not changed."""
    library: Any = ctypes.CDLL(None)
    library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    library.mmap.restype = ctypes.c_void_p
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on forks where there are threads
        warnings.simplefilter("ignore", RuntimeWarning)  # jax's, once it is loaded: the child uses none of it
        child = os.fork()
    if child == 0:
        code = _FAILED
        try:
            code = _run(call, library)
        finally:
            os._exit(code)
    try:
        status = _wait(child, seconds)
    except BaseException:
        _kill(child)
        raise
    if status is None:
        _kill(child)
        return f"did not end within {seconds:.0f} s"
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        outside = name in ("SIGSEGV", "SIGBUS")
        return f"crashed ({name})" + (": it reads or writes outside its arguments" if outside else "")
    code = os.WEXITSTATUS(status)
    if code == _SPOILED:
        return "writes before the start of an argument"
    return "could not be tried in a process of its own" if code else ""


def _wait(child: int, seconds: float) -> int | None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(_POLL)
    return None


def _kill(child: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


# -- in the child -----------------------------------------------------------------------------------


def _run(call: KernelCall, library: Any) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    faulthandler.disable()  # the parent says it better
    gc.disable()
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    torch.set_num_threads(1)
    tensors = [item for item in call.arguments if isinstance(item, torch.Tensor)]
    copies = [_Guarded(*span, library) for span in _spans(tensors)]

    def moved(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        address = item.data_ptr()
        return next((made for copy in copies if (made := copy.moved(address))), address)

    call.run(*map(moved, call.arguments))
    return _SPOILED if any(copy.spoiled() for copy in copies) else 0


class _Guarded:
    """A copy of the bytes from ``low`` to ``high`` that ends where forbidden addresses begin."""

    def __init__(self, low: int, high: int, library: Any) -> None:
        size = high - low
        room = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.low, self.high = low, high
        self.first = _reserved(room, library)
        self.begin = self.first + room - size
        if room and library.mprotect(self.first, room, mmap.PROT_READ | mmap.PROT_WRITE):
            raise OSError("mprotect")
        ctypes.memset(self.first, _MARK, room - size)
        ctypes.memmove(self.begin, low, size)

    def moved(self, address: int) -> int | None:
        """Where the copy of what is at ``address`` lies."""
        inside = self.low <= address < self.high or (address == self.low == self.high)
        return self.begin + address - self.low if inside else None

    def spoiled(self) -> bool:
        """Whether the bytes before the copy were written to."""
        front = ctypes.string_at(self.first, self.begin - self.first)
        return front.count(_MARK) != len(front)


def _reserved(room: int, library: Any) -> int:
    """The address of ``room`` bytes amid forbidden ones: fewer of these where a limit is set (``ulimit -v``),
    and a page on either side at the least."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    reach = _REACH
    while reach >= mmap.PAGESIZE:
        start = library.mmap(None, room + 2 * reach, 0, flags, -1, 0)
        if start != ctypes.c_void_p(-1).value:
            return int(start) + reach
        reach //= 4
    raise OSError("mmap")


def _spans(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """The memory that these take, from and to, joined where they overlap."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(_span(tensor) for tensor in tensors):
        if found and low < found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        elif (low, high) not in found:
            found.append((low, high))
    return found


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    size = reach(tensor.shape, tensor.stride()) * tensor.element_size()
    return tensor.data_ptr(), tensor.data_ptr() + size
