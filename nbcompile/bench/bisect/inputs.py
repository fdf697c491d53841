"""Inputs of a minimal program as text: drawn where their values do not matter, else as plain as will do."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

RECIPES = {
    "drawn": "torch.randn and integers of the same range: the values do not matter",
    "fitted": "drawn with the mean and spread that they had",
    "special": "drawn like those that they were, with their extremes and special values put in",
    "spread": "at equal distances over their range",
    "written": "written out as they were",
    "saved": "saved as they were: their values matter, and are too many to write out",
}
"""How inputs are made, the plainest first, and what that says of them."""

_WRITTEN = 256  # elements of one tensor that are written out at most
_SPECIAL = 4  # values of each kind that are put in


def lines_of(names: Sequence[str], values: Sequence[Any], recipe: str, folder: str = "") -> list[str] | None:
    """The statements that make these inputs by a recipe; None where it cannot make them. ``folder``: where
    ``saved`` puts its file, else a new one of this machine."""
    if recipe == "saved":
        path = Path(folder or tempfile.mkdtemp(prefix="nbcompile-check-")) / "inputs.pt"
        torch.save([value.detach() if isinstance(value, torch.Tensor) else value for value in values], path)
        found = [f"{', '.join(names)}, = torch.load({str(path)!r})"] if names else []
        return found + [f"{n}.requires_grad_()" for n, v in zip(names, values, strict=True) if _wants(v)]
    lines: list[str] = []
    for name, value in zip(names, values, strict=True):
        made = _lines(name, value, recipe)
        if made is None:
            return None
        lines += made
    seeded = any("torch.rand" in line for line in lines)
    return ["torch.manual_seed(0)", *lines] if seeded else lines


def _wants(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _lines(name: str, value: Any, recipe: str) -> list[str] | None:
    if not isinstance(value, torch.Tensor):
        return [f"{name} = {_number(value)}"]
    if value.layout is not torch.strided or value.is_quantized:
        return None
    plain = value.detach()
    maker = _real if plain.is_floating_point() else _complex if plain.is_complex() else _whole
    made = maker(plain, recipe)
    if made is None:
        return None
    if plain.device.type != "cpu":
        made = f"{made}.to({str(plain.device)!r})"
    if not plain.is_contiguous():
        strided = f"torch.empty_strided({tuple(plain.shape)}, {plain.stride()}, dtype={plain.dtype}"
        place = f", device={str(plain.device)!r}" if plain.device.type != "cpu" else ""
        made = f"{strided}{place}).copy_({made})"
    lines = [f"{name} = {made}"]
    if recipe == "special":
        lines += _put_in(name, plain)
    return lines + ([f"{name}.requires_grad_()"] if value.requires_grad else [])


def _real(value: torch.Tensor, recipe: str) -> str | None:
    size, kind = tuple(value.shape), _kind(value)
    finite = value[value.isfinite()].double()
    if recipe == "written":
        return _written(value)
    if recipe == "drawn" or not finite.numel():
        return f"torch.randn({size}){kind}"
    low, high = float(finite.min()), float(finite.max())
    if low == high:
        return f"torch.full({size}, {low:.6g}){kind}"
    if recipe == "spread":
        return f"torch.linspace({low:.6g}, {high:.6g}, {value.numel()}).reshape({size}){kind}"
    mean, spread = float(finite.mean()), float(finite.std())
    return f"(torch.randn({size}) * {spread:.4g} + {mean:.4g}){kind}"


def _complex(value: torch.Tensor, recipe: str) -> str | None:
    if recipe == "written":
        return _written(value)
    return f"torch.randn({tuple(value.shape)}, dtype={value.dtype})"


def _whole(value: torch.Tensor, recipe: str) -> str | None:
    """Integers stay in the range that they had: they may be places in something."""
    size = tuple(value.shape)
    if recipe == "written":
        return _written(value)
    if value.dtype is torch.bool:
        share = float(value.double().mean()) if value.numel() else 0.5
        return f"torch.rand({size}) < {share:.2g}" if not share.is_integer() else _full(value, bool(share))
    low, high = (int(value.min()), int(value.max())) if value.numel() else (0, 0)
    if low == high:
        return _full(value, low)
    if recipe == "spread":
        arange = f"torch.arange({value.numel()}) % {high - low + 1} + {low}"
        return f"({arange}).reshape({size}){_kind(value, torch.int64)}"
    return f"torch.randint({low}, {high + 1}, {size}){_kind(value, torch.int64)}"


def _full(value: torch.Tensor, number: int | bool) -> str:
    return f"torch.full({tuple(value.shape)}, {number}, dtype={value.dtype})"


def _written(value: torch.Tensor) -> str | None:
    if value.numel() > _WRITTEN:
        return None
    items = ", ".join(map(_number, value.reshape(-1).tolist()))
    return f"torch.tensor([{items}], dtype={value.dtype}).reshape({tuple(value.shape)})"


def _put_in(name: str, value: torch.Tensor) -> list[str]:
    """What is not finite, the extremes, and a zero."""
    if not value.is_floating_point() or not value.numel():
        return []
    flat = value.reshape(-1).double()
    places: list[int] = []
    for which in (flat.isnan(), flat == math.inf, flat == -math.inf):
        places += which.nonzero().flatten().tolist()[:_SPECIAL]
    rest = flat.nan_to_num(0.0, 0.0, 0.0)
    places += [int(rest.argmin()), int(rest.argmax()), *(flat == 0).nonzero().flatten().tolist()[:1]]
    lines = []
    for place in dict.fromkeys(places):
        index: list[int] = []
        left = place
        for extent in reversed(value.shape):
            left, here = divmod(left, extent)
            index.insert(0, here)
        where = ", ".join(map(str, index)) or "()"
        lines.append(f"{name}[{where}] = {_number(float(flat[place]))}")
    return lines


def _kind(value: torch.Tensor, plain: torch.dtype = torch.float32) -> str:
    return "" if value.dtype is plain else f".to({value.dtype})"


def _number(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)
