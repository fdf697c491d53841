"""Operators of lists of tensors (``torch._foreach_*``, which optimizers are written in), each as one operator
for each place of the lists: these fuse with one another and with what stands around them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten
Tensor = torch.Tensor

_UNARY = (
    "abs acos asin atan ceil clone cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 max "
    "neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
).split()
_BY_NAME = (
    "add.Scalar add.List add.ScalarList add.Tensor sub.Scalar sub.List sub.ScalarList mul.Scalar mul.List "
    "mul.ScalarList mul.Tensor div.Scalar div.List div.ScalarList div.Tensor maximum.List minimum.List "
    "clamp_min.Scalar clamp_min.List clamp_min.ScalarList clamp_max.Scalar clamp_max.List "
    "clamp_max.ScalarList lerp.Scalar lerp.List lerp.ScalarList pow.Scalar pow.List pow.ScalarList "
    "addcmul.Scalar addcmul.ScalarList addcdiv.Scalar addcdiv.ScalarList"
).split()
"""What is applied is the operator of that name. An ``addcmul.Tensor`` reads its numbers out of a tensor."""


def by_place() -> dict[Any, Callable[..., list[Tensor]]]:
    """A rewrite for each of these operators that this torch has."""
    wanted = {f"{name}.default": getattr(aten, name) for name in _UNARY}
    wanted |= {name: getattr(aten, name.partition(".")[0]) for name in _BY_NAME}
    wanted |= {f"maximum.{each}": aten.clamp_min for each in ("Scalar", "ScalarList")}
    wanted |= {f"minimum.{each}": aten.clamp_max for each in ("Scalar", "ScalarList")}
    wanted |= {"norm.Scalar": _norm, "zero.default": torch.zeros_like, "copy.default": aten.copy}
    made: dict[Any, Callable[..., list[Tensor]]] = {}
    for name, operator in wanted.items():
        packet, _, overload = name.partition(".")
        target = getattr(getattr(aten, f"_foreach_{packet}", None), overload, None)
        if target is not None:
            made[target] = functools.partial(_each, operator)
    return made


def _each(operator: Any, first: Sequence[Tensor], *others: Any, **options: Any) -> list[Tensor]:
    """``operator`` of the first items, of the second, ...; what is no list is the same for all. What follows
    three tensors is the factor ``value``."""
    made = []
    for place in range(len(first)):
        given = [other[place] if isinstance(other, list | tuple) else other for other in others]
        if operator in (aten.addcmul, aten.addcdiv) and len(given) == 3:
            options["value"] = given.pop()
        made.append(operator(first[place], *given, **options))
    return made


def _norm(x: Tensor, ord: Any = 2, dtype: torch.dtype | None = None) -> Tensor:
    found: Tensor = aten.linalg_vector_norm(x, ord, dtype=dtype)
    return found
