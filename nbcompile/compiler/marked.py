"""Our own operator for results that are conjugates or negatives by a mark (``is_conj``, ``is_neg``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_library: Any = torch.library.Library  # torch gives its methods no types
LIBRARY = _library("nbcompile", "FRAGMENT")
LIBRARY.define("marked(Tensor x, SymInt[] strides, bool conj, int[]? order=None) -> Tensor")


def _marked(
    x: torch.Tensor, strides: Sequence[int], conj: bool, order: Sequence[int] | None = None
) -> torch.Tensor:
    if order is not None:
        made = x.new_empty([x.shape[dim] for dim in order]).permute([order.index(n) for n in range(x.dim())])
    else:
        made = x.new_empty_strided(tuple(x.shape), strides)
    if conj:
        return made.copy_(x.conj()).conj()
    return torch._neg_view(made.copy_(x.neg()))


LIBRARY.impl("marked", _marked, "CompositeExplicitAutograd")


def marked() -> Any:
    """The overload ``nbcompile::marked``: a copy of a tensor, laid out by ``strides`` (or in one piece with
    its dimensions in ``order``, the outermost first), whose memory holds the conjugate (``conj``) or the
    negative of what it shows."""
    return torch.ops.nbcompile.marked.default
