"""How much memory copies may take: a measurement must not be what ends the session."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from nbcompile.errors import MeasureError
from nbcompile.units import bytes_text

PART = 0.5
"""Of the memory that is free, what copies may take: the runs that follow need some too."""


class Room:
    """Counts what is copied, by device, against what is free on it when it is first asked for."""

    def __init__(self) -> None:
        self._taken: dict[torch.device, int] = {}
        self._free: dict[torch.device, int | None] = {}

    def take(self, size: int, device: torch.device) -> None:
        """Say that ``size`` bytes are about to be copied. MeasureError where there is no room for them."""
        if device not in self._free:
            self._free[device] = free(device)
        taken = self._taken[device] = self._taken.get(device, 0) + size
        known = self._free[device]
        if known is not None and taken > known * PART:
            raise MeasureError(
                f"not measured: to put back what a run changes, {bytes_text(taken)} or more would be copied, "
                f"and {bytes_text(known)} of memory are free ({device}).",
                advice="Free some, or try it on smaller tensors.",
            )


def free(device: torch.device) -> int | None:
    """Bytes that this process can still get on a device; None where nobody tells."""
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
    if device.type != "cpu":
        return None
    known = [each for each in (_of_machine(), _of_group(), _of_process()) if each is not None]
    return max(0, min(known)) if known else None


def _of_machine() -> int | None:
    return _kilobytes("/proc/meminfo", "MemAvailable:")


def _of_group(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Of a container, by its limit."""
    try:
        most, held = ((root / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        if most == "max":
            return None
        cached = [line.split() for line in (root / "memory.stat").read_text().splitlines()]
        return int(most) - int(held) + sum(int(size) for name, size in cached if name == "inactive_file")
    except (OSError, ValueError):
        return None


def _of_process() -> int | None:
    """By ``ulimit -v``."""
    try:
        import resource
    except ImportError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    used = _kilobytes(f"/proc/{os.getpid()}/status", "VmSize:")
    return None if limit == resource.RLIM_INFINITY or used is None else limit - used


def _kilobytes(file: str, label: str) -> int | None:
    try:
        with open(file, encoding="ascii", errors="replace") as lines:
            return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(label)), None)
    except (OSError, ValueError, IndexError):
        return None
