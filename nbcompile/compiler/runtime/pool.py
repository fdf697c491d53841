"""A pool of large CPU buffers: memory that a caller has dropped is handed out again.

A fresh large allocation costs a page fault for every page on first touch, which for a memory-bound
kernel is as much as the work itself. The pool keeps a reference to each storage it hands out and
reuses one when nobody else holds it. Tensors made from it are ordinary tensors.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any

import torch

from nbcompile.compiler.stages import SMALL_BUFFER

_CPU = torch.device("cpu")  # another may be the default
DEFAULT_LIMIT = 4 << 30
PER_SIZE = 16


class BufferPool:
    """Storages by size in bytes. At most ``limit`` bytes are kept; the sizes used longest ago go first."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._by_size: OrderedDict[int, list[torch.UntypedStorage]] = OrderedDict()
        self._held = 0
        self._use_count = getattr(torch._C, "_storage_Use_Count", None)

    def empty_strided(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
    ) -> torch.Tensor:
        """An uninitialised CPU tensor of this shape, strides (in elements) and dtype."""
        elements = 1
        for extent, stride in zip(shape, strides, strict=True):
            elements += (extent - 1) * stride
            if extent == 0:
                return torch.empty_strided(shape, strides, dtype=dtype, device=_CPU)
        size = elements * dtype.itemsize
        if size < SMALL_BUFFER or self._use_count is None:
            return torch.empty_strided(shape, strides, dtype=dtype, device=_CPU)
        with self._lock:  # a storage is free until a tensor holds it: two threads must not take one
            storage = self._take(size)
            if storage is not None:
                return torch.empty(0, dtype=dtype, device=_CPU).set_(storage, 0, shape, strides)
            tensor = torch.empty_strided(shape, strides, dtype=dtype, device=_CPU)
            self._keep(size, tensor.untyped_storage())
            return tensor

    def clear(self) -> None:
        """Drop every buffer that nobody uses."""
        with self._lock:
            self._by_size.clear()
            self._held = 0

    def forked(self) -> None:
        """In a forked child: what another thread was about as the process was forked stays undone."""
        held, self._lock = self._lock.locked(), threading.Lock()
        if held:
            self.clear()

    def _take(self, size: int) -> torch.UntypedStorage | None:
        assert self._use_count is not None
        storages = self._by_size.get(size)
        if storages is None:
            return None
        self._by_size.move_to_end(size)
        for storage in storages:
            # one reference is ours; resized or moved storages (share_memory_) are left alone
            if self._use_count(storage._cdata) == 1 and storage.nbytes() == size and not storage.is_shared():
                return storage
        return None

    def _keep(self, size: int, storage: torch.UntypedStorage) -> None:
        storages = self._by_size.setdefault(size, [])
        storages.append(storage)
        self._held += size
        if len(storages) > PER_SIZE:
            storages.pop(0)
            self._held -= size
        while self._held > self.limit and self._by_size:
            oldest, dropped = self._by_size.popitem(last=False)
            self._held -= oldest * len(dropped)


def _empty_strided(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device=_CPU)


_guards: Any = torch._C._dynamo.guards
empty_small = getattr(_guards, "_empty_strided_cpu", _empty_strided)
"""As :meth:`BufferPool.empty_strided`, of what is no larger than :data:`SMALL_BUFFER`, as directly as torch
lets one."""

POOL = BufferPool()
"""The pool of this process: memory is the process's own, so one pool serves all compiled graphs."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=POOL.forked)
