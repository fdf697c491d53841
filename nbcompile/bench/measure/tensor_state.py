"""What one tensor and one storage hold, saved and put back: see :mod:`nbcompile.bench.measure.state`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class SavedTensor:
    """One tensor object. ``alias`` shares its memory and keeps shape, stride and dtype alive. ``named``: its
    name is the path that leads to it, and no other's too."""

    tensor: torch.Tensor
    alias: torch.Tensor
    version: int
    grad: torch.Tensor | None
    grad_fn: Any
    requires_grad: bool
    name: str
    named: bool


@dataclass(frozen=True)
class SavedStorage:
    storage: torch.UntypedStorage
    copy: torch.UntypedStorage
    size: int


def storages_of(tensor: torch.Tensor) -> list[tuple[int, torch.UntypedStorage]]:
    """``(key, storage)`` of every storage behind ``tensor``: several for sparse tensors and for
    tensor subclasses that wrap others, none for fake and meta tensors."""
    if tensor.device.type == "meta":
        return []
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        parts = [getattr(tensor, name) for name in flatten()[0]]
    elif tensor.layout is torch.sparse_coo:
        parts = [tensor._indices(), tensor._values()]
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    elif tensor.layout is torch.strided:
        storage = tensor.untyped_storage()
        return [(storage._cdata, storage)]
    else:
        return []  # mkldnn and other opaque layouts, which no operation changes in place
    return [pair for part in parts for pair in storages_of(part)]


def hooks_of(tensor: torch.Tensor) -> list[dict[Any, Any]]:
    """What backward calls with this tensor's gradient, by their numbers: ``register_hook``'s, and
    ``register_post_accumulate_grad_hook``'s. Those of a node of the graph cannot be listed."""
    found = (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None))
    return [hooks for hooks in found if hooks]


def _as_bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def copy_of(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """A storage of its own with the same bytes."""
    return _as_bytes(storage).clone().untyped_storage()


def same_bytes(saved: SavedStorage) -> bool:
    """Whether a storage has the size and the bytes that it was saved with."""
    if saved.storage.nbytes() != saved.size:
        return False
    return saved.size == 0 or torch.equal(_as_bytes(saved.storage), _as_bytes(saved.copy))


def put_back_storage(saved: SavedStorage) -> None:
    """Size and bytes as they were saved; nothing is written where nothing differs."""
    if saved.storage.nbytes() != saved.size:
        saved.storage.resize_(saved.size)
    if saved.size and not same_bytes(saved):
        saved.storage.copy_(saved.copy, False)


def layout_differs(tensor: torch.Tensor, alias: torch.Tensor) -> bool:
    """Whether two tensors differ in dtype, shape or layout, in strides, or in the memory they lie in."""
    if tensor.dtype != alias.dtype or tensor.shape != alias.shape or tensor.layout != alias.layout:
        return True
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return False
    if hasattr(tensor, "__tensor_flatten__"):
        return False
    return (
        tensor.stride() != alias.stride()
        or tensor.storage_offset() != alias.storage_offset()
        or tensor.untyped_storage()._cdata != alias.untyped_storage()._cdata
    )


def tensor_differs(saved: SavedTensor) -> bool:
    """Whether a tensor's layout, flags, history or gradient are others than saved; values aside."""
    tensor = saved.tensor
    return (
        layout_differs(tensor, saved.alias)
        or tensor.requires_grad != saved.requires_grad
        or tensor.grad_fn is not saved.grad_fn
        or ((tensor.is_leaf or tensor.retains_grad) and tensor.grad is not saved.grad)
    )


def put_back_layout(saved: SavedTensor) -> None:
    """Dtype, shape and memory of a tensor without history of its own; the rest waits."""
    if saved.tensor.grad_fn is None and layout_differs(saved.tensor, saved.alias):
        saved.tensor.data = saved.alias


def put_back_tensor(saved: SavedTensor) -> bool:
    """False if the autograd history of a non-leaf could not be put back."""
    tensor, restored = saved.tensor, True
    if tensor.grad_fn is not saved.grad_fn:
        if saved.grad_fn is None and not tensor._is_view():
            tensor.detach_()
        else:
            restored = False
    if layout_differs(tensor, saved.alias):
        tensor.data = saved.alias
    if tensor.is_leaf and tensor.requires_grad != saved.requires_grad:
        tensor.requires_grad_(saved.requires_grad)
    if (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not saved.grad:
        tensor.grad = saved.grad
    if saved.version >= 0 and tensor._version != saved.version:
        # Only so is a graph that an earlier cell built, and that saved this tensor, still usable.
        torch._C._autograd._unsafe_set_version_counter((tensor,), (saved.version,))
    return restored
