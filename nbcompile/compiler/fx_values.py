"""What a node of an FX graph stands for: its fake value, with its extents, bytes and type."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import fx

from nbcompile.record.compilation import Dim

_SHORT_DTYPE = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c", "bool": "bool"}


def short_dtype(dtype: torch.dtype) -> str:
    """``f32``, ``bf16``, ``i64``, ``bool``: the dtype as the texts print it."""
    name = str(dtype).removeprefix("torch.")
    found = re.fullmatch(r"(float|bfloat|int|uint|complex)(\d+)", name)
    return _SHORT_DTYPE[found[1]] + found[2] if found else name


def dim(value: Any) -> Dim:
    """One extent or stride: a number, or the symbol's name."""
    return value if type(value) is int else _symbolic(value)


def _symbolic(value: Any) -> Dim:
    expression = getattr(getattr(value, "node", None), "expr", value)
    try:
        return int(expression)
    except (TypeError, ValueError):
        return str(expression)


def hint(value: Any) -> int:
    """The number a (symbolic) extent had when it was traced; 0 where it depends on data."""
    if type(value) is int:
        return value
    known = getattr(getattr(value, "node", None), "hint", None)
    return int(known) if isinstance(known, int) else 0


def nbytes(value: Any) -> int:
    """Bytes of a (fake) tensor, or of all tensors in a tuple of them, at the hints of symbolic sizes."""
    if isinstance(value, torch.Tensor):
        count = 1
        for extent in value.shape:
            count *= hint(extent)
        return count * value.dtype.itemsize
    if isinstance(value, tuple | list):
        return sum(nbytes(item) for item in value)
    return 0


def node_value(node: fx.Node) -> Any:
    """What the node's result looks like: a fake tensor, a symbolic int, a tuple of them, or None."""
    value = node.meta.get("val")
    return node.meta.get("example_value") if value is None else value
