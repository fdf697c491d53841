"""How much memory a call needs: the most that the process, or the GPU's allocator, held while it ran.

On a GPU torch's allocator keeps the count. On a CPU compilers allocate by themselves, so it is the kernel's
count of resident memory, whose high-water mark Linux can set back (``/proc/self/clear_refs``). That is of the
whole process, so it means something only where nothing else runs in it.
"""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Callable
from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def held() -> int | None:
    """Bytes held now, garbage given back first; ``None`` where that cannot be known."""
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()
    _trim()
    return _status("VmRSS")


def most_held(call: Callable[[], object]) -> int | None:
    """The most bytes held at any time of one call; ``None`` where that cannot be known."""
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()
    _trim()
    try:
        _CLEAR.write_text("5")  # the high-water mark back to what is resident now
    except OSError:  # no Linux, or one without it
        return None
    call()
    return _status("VmHWM")


def _status(name: str) -> int | None:
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) << 10 if found else None


def _trim() -> None:
    """Give freed pages back to the system: else a later call would be served from them unseen."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        return  # another C library than GNU's
