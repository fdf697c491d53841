"""A program's arguments in another type or size: always copies, never the user's own."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree

from nbcompile.errors import PlayError
from nbcompile.notebook.arguments import DTYPES
from nbcompile.notebook.play.programs import ProgramPiece

_MOST_BYTES = 1 << 30  # of one argument
_MOST_TIMES = 16


@dataclass(frozen=True)
class SharedExtent:
    """An extent that some arguments have in common: ``where`` are their dims (``x[0]``), ``low`` and ``high``
    what it can be changed to."""

    name: str
    extent: int
    where: tuple[str, ...]
    low: int
    high: int


def sizes_of(pieces: Sequence[ProgramPiece], changed: Mapping[int, int]) -> list[SharedExtent]:
    """The distinct extents, above 1, of the plain tensor arguments, in order; as ``changed`` says."""
    where: dict[int, list[str]] = {}
    most: dict[int, int] = {}
    for name, tensor in _plain_tensors(pieces):
        for dim, extent in enumerate(tensor.shape):
            if extent < 2:
                continue
            places = where.setdefault(extent, [])
            if f"{name}[{dim}]" not in places:
                places.append(f"{name}[{dim}]")
            grows = sum(other == extent for other in tensor.shape)
            room = (_MOST_BYTES / max(1, tensor.numel() * tensor.element_size())) ** (1 / grows)
            most[extent] = min(most.get(extent, _MOST_TIMES * extent), max(2 * extent, int(extent * room)))
    return [
        SharedExtent(str(extent), changed.get(extent, extent), tuple(places), 1, most[extent])
        for extent, places in where.items()
    ]


def dtype_of(pieces: Sequence[ProgramPiece]) -> str:
    """The floating type of the arguments and parameters; ``mixed`` if there are several, empty if none."""
    kinds = {tensor.dtype for tensor in _floating(pieces)}
    if len(kinds) > 1:
        return "mixed"
    return str(next(iter(kinds))).removeprefix("torch.") if kinds else ""


def varied(pieces: Sequence[ProgramPiece], dtype: str, sizes: Mapping[int, int]) -> list[ProgramPiece]:
    """The same program on copies of its arguments: floating tensors of ``dtype`` (empty: as they are), and
    each extent that ``sizes`` names as it says, contents repeated or cut off. PlayError for an argument that
    cannot be copied."""
    if not dtype and not sizes:
        return list(pieces)
    if dtype and dtype not in DTYPES:
        raise PlayError(f"dtype {dtype!r} is unknown.", advice=f"There are {', '.join(DTYPES)}.")
    if any(new < 1 for new in sizes.values()):
        raise PlayError("an extent below 1 is too small.", advice="Choose 1 or more.")
    kind = getattr(torch, dtype) if dtype else None
    resized = {id(tensor) for _, tensor in _plain_tensors(pieces)}
    memo: dict[int, Any] = {}
    made = []
    for value in (value for piece in pieces for value in piece.arguments):
        if isinstance(value, torch.nn.Module):  # first: another argument may be one of its parameters
            _copied(value, kind, {}, memo)
    for piece in pieces:
        arguments = tuple(
            _copied(value, kind, sizes if id(value) in resized else {}, memo) for value in piece.arguments
        )
        made.append(dataclasses.replace(piece, arguments=arguments))
    return made


def _copied(value: Any, kind: torch.dtype | None, sizes: Mapping[int, int], memo: dict[int, Any]) -> Any:
    if isinstance(value, torch.nn.Module):
        if id(value) not in memo:
            try:
                made = copy.deepcopy(value, memo)
            except Exception as error:
                name = type(value).__qualname__
                raise PlayError(f"{name} cannot be copied: {type(error).__name__}: {error}.") from error
            if kind is not None:
                made.to(kind)
            memo[id(value)] = made
        return memo[id(value)]
    return _pytree.tree_map(lambda leaf: _tensor(leaf, kind, sizes, memo), value)


def _tensor(leaf: Any, kind: torch.dtype | None, sizes: Mapping[int, int], memo: dict[int, Any]) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    wanted = {dim: sizes[extent] for dim, extent in enumerate(leaf.shape) if extent in sizes}
    known = memo.get(id(leaf))
    if known is not None and not any(known.shape[dim] != extent for dim, extent in wanted.items()):
        return known
    extents = [wanted.get(dim, extent) for dim, extent in enumerate(leaf.shape)]
    # What is offered (:func:`sizes_of`) is less: a message may ask for any.
    if math.prod(extents) > 4 * max(leaf.numel(), _MOST_BYTES // leaf.element_size()):
        raise PlayError(
            f"a tensor of {' × '.join(map(str, extents))} is too large.", advice="Choose smaller sizes."
        )
    made = leaf.detach().clone()
    # in the order of memory, so that a transposed tensor stays one
    strides = leaf.stride()
    order = sorted(range(leaf.dim()), key=lambda dim: -strides[dim])
    made = made.permute(order)
    for place, dim in enumerate(order):
        if dim in wanted:
            rows = torch.arange(wanted[dim], device=made.device) % leaf.shape[dim]
            made = made.index_select(place, rows)
    made = made.permute([order.index(dim) for dim in range(leaf.dim())])
    if kind is not None and made.is_floating_point():
        made = made.to(kind)
    if leaf.requires_grad:
        made.requires_grad_()
    memo[id(leaf)] = made
    return made


def _plain_tensors(pieces: Sequence[ProgramPiece]) -> Iterator[tuple[str, torch.Tensor]]:
    """Arguments that are tensors of the user's own, no parameters."""
    owned = {
        id(tensor)
        for piece in pieces
        for value in piece.arguments
        if isinstance(value, torch.nn.Module)
        for tensor in (*value.parameters(), *value.buffers())
    }
    for piece in pieces:
        for name, value in zip(piece.names, piece.arguments, strict=True):
            if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
                if id(value) not in owned:
                    yield name, value


def _floating(pieces: Sequence[ProgramPiece]) -> Iterator[torch.Tensor]:
    for piece in pieces:
        for value in piece.arguments:
            if isinstance(value, torch.nn.Module):
                leaves: Sequence[Any] = [*value.parameters(), *value.buffers()]
            else:
                leaves = _pytree.tree_leaves(value)
            for leaf in leaves:
                if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                    yield leaf
