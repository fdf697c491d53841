"""Arrays of torch, JAX and TensorFlow: each input made in torch is handed to the others as their own."""

from __future__ import annotations

import importlib.util
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree


@dataclass(frozen=True)
class Framework:
    """``own`` turns a torch tensor into an array of it, ``back`` a result's leaf into a torch tensor;
    ``alternative`` is the dtype that its inputs are also tried in."""

    name: str
    module: str
    package: str
    own: Callable[[torch.Tensor], Any]
    back: Callable[[Any], Any]
    alternative: torch.dtype = torch.float64

    @property
    def missing(self) -> str:
        """Why it cannot be used here; empty if it can."""
        if importlib.util.find_spec(self.module) is not None:
            return ""
        return f"{self.name} is not installed. Run: pip install {self.package}"

    def arguments(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Copies of these arguments, tensors as its own arrays."""
        return tuple(
            _pytree.tree_map(lambda leaf: self.own(leaf) if isinstance(leaf, torch.Tensor) else leaf, arg)
            for arg in args
        )

    def values(self, result: Any) -> list[Any]:
        """The leaves of a result in order, arrays as torch tensors, detached and copied."""
        return [self.back(leaf) for leaf in _pytree.tree_leaves(result)]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _from_torch(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def _to_jax(tensor: torch.Tensor) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(_numpy(tensor))


def _to_tensorflow(tensor: torch.Tensor) -> Any:
    import tensorflow as tf

    return tf.constant(_numpy(tensor))


def _numpy(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().numpy().copy()


def _from_array(leaf: Any) -> Any:
    if isinstance(leaf, numbers.Number | str) or leaf is None:
        return leaf
    import numpy as np

    return torch.from_numpy(np.array(leaf))


TORCH = Framework("torch", "torch", "torch", _copy, _from_torch)
# JAX without jax_enable_x64 has no float64.
JAX = Framework("JAX", "jax", "jax", _to_jax, _from_array, alternative=torch.float16)
TENSORFLOW = Framework("TensorFlow", "tensorflow", "tensorflow", _to_tensorflow, _from_array)
