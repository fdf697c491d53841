"""Where the addresses of a graph's inputs stand in what its nodes are given.

Nobody says which bytes of a kernel's arguments hold an address, least of all for a library's kernel, whose
arguments are structures of its own. So two captures of the same call, with some inputs at other addresses,
are laid side by side: a word that differs must be explained, either as memory that the captures allocated
themselves, or as the address (or one inside) of exactly one input that moved, by as much as it moved. A
difference that is not explained (a descriptor that packs an address, say) means that the graph cannot be
patched.
"""

from __future__ import annotations

import bisect
import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from nbcompile.compiler.runtime.layout import reach
from nbcompile.errors import LaunchError

Span = tuple[int, int]
"""Addresses from the first to, exclusively, the second."""

OUR_ALIGNMENT = 16
"""What our kernels assume of an address, in bytes; a patched one is at the same distance from it."""
LIBRARY_ALIGNMENT = 256
"""What a library may have chosen its kernel by: more than any vector load or descriptor asks for."""


@dataclass
class GraphNode:
    """One node of a captured graph. ``form`` is what an update leaves alone: function, grid, types.

    ``buffers`` are the node's arguments as bytes that can be written: one each for a kernel, the whole
    description for a copy or a fill. ``opaque`` says why nothing is known of what the node reads.
    """

    handle: int
    kind: Literal["kernel", "copy", "fill", "other"]
    name: str
    form: tuple[Any, ...]
    buffers: list[ctypes.Array[ctypes.c_ubyte]]
    opaque: str = ""
    sent: Any = None  # what the driver keeps to send the buffers again


@dataclass(frozen=True)
class Place:
    """Eight bytes of one node: ``buffer`` of its buffers, ``offset`` bytes into it. ``from_start`` is how
    far into the input they point."""

    node: int
    buffer: int
    offset: int
    from_start: int


@dataclass(frozen=True)
class Address:
    """All places of one input's address, and the modulus, in bytes, in which it may not change."""

    places: tuple[Place, ...]
    modulus: int


@dataclass(frozen=True)
class Memory:
    """What a captured graph may point to apart from its inputs: memory that was allocated for it, and small
    pieces of torch's that are in use (the state of random numbers is kept in such)."""

    own: Sequence[Span]
    small: Sequence[Span] = ()


def places(
    first: Sequence[GraphNode],
    second: Sequence[GraphNode],
    moved: Mapping[int, tuple[Span, Span]],
    memory: tuple[Memory, Memory],
    ours: frozenset[str],
) -> dict[int, Address]:
    """Input → where its address stands, in both captures.

    ``moved`` has the bytes of each input that is elsewhere in the second; ``ours`` are the names of our
    functions. LaunchError where a difference is not explained."""
    if [node.form for node in first] != [node.form for node in second]:
        raise LaunchError("other kernels run when its memory is elsewhere.")
    shifts = {after[0] - before[0] for before, after in moved.values()}
    own = [_Spans(item.own) for item in memory]
    small = [_Spans(item.small) for item in memory]

    def is_elsewhere(old: int, new: int) -> bool:
        if old in own[0] and new in own[1]:
            return True
        # what moved like an input is rather an address before or after the input
        return new - old not in shifts and old in small[0] and new in small[1]

    found: dict[int, list[Place]] = {place: [] for place in moved}
    for number, (one, other) in enumerate(zip(first, second)):
        if one.opaque:
            raise LaunchError(f"{one.name} {one.opaque}.")
        for place, (a, b) in enumerate(zip(one.buffers, other.buffers)):
            if bytes(a) == bytes(b):
                continue
            for offset, old, new in _differing(bytes(a), bytes(b), one.name):
                source = _explained(old, new, moved, one.name)
                if source is not None:
                    start = moved[source][0][0]
                    found[source].append(Place(number, place, offset, old - start))
                elif not is_elsewhere(old, new):
                    raise LaunchError(f"{one.name} holds an address in a form that is not known.")
    return {source: Address(tuple(items), _modulus(first, items, ours)) for source, items in found.items()}


def _differing(a: bytes, b: bytes, name: str) -> list[tuple[int, int, int]]:
    """(offset, word, word) of the aligned words that differ. Addresses are aligned by the ABI."""
    whole = len(a) // 8
    if a[whole * 8 :] != b[whole * 8 :]:
        raise LaunchError(f"{name} is given another number when its memory is elsewhere.")
    words = zip(struct.unpack_from(f"<{whole}Q", a), struct.unpack_from(f"<{whole}Q", b))
    return [(number * 8, old, new) for number, (old, new) in enumerate(words) if old != new]


def _explained(old: int, new: int, moved: Mapping[int, tuple[Span, Span]], name: str) -> int | None:
    """The input that was at ``old`` and is at ``new``; None if there is none."""
    fitting = [
        source for source, (before, after) in moved.items()
        if before[0] <= old <= before[1] and new - after[0] == old - before[0]
    ]  # fmt: skip
    if len(fitting) > 1:
        inside = [source for source in fitting if old < moved[source][0][1]]  # not at the end of another
        if len(inside) != 1:
            raise LaunchError(f"{name} reads memory that two inputs share.")
        fitting = inside
    return fitting[0] if fitting else None


class _Spans:
    """Whether an address lies in any of many spans."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = sorted(spans)
        self.starts = [span[0] for span in self.spans]

    def __contains__(self, address: int) -> bool:
        place = bisect.bisect_right(self.starts, address) - 1
        return place >= 0 and address <= self.spans[place][1]


def write(nodes: Sequence[GraphNode], where: Address, address: int) -> set[int]:
    """Put the address of an input at its places; returns the nodes that changed."""
    for place in where.places:
        buffer = nodes[place.node].buffers[place.buffer]
        struct.pack_into("<Q", buffer, place.offset, address + place.from_start)
    return {place.node for place in where.places}


def _modulus(nodes: Sequence[GraphNode], where: Sequence[Place], ours: frozenset[str]) -> int:
    """By whose kernels read an address."""
    if not where:
        return 1
    return OUR_ALIGNMENT if {nodes[place.node].name for place in where} <= ours else LIBRARY_ALIGNMENT


def extent(tensor: torch.Tensor) -> int:
    """Bytes from a tensor's first element to its last, inclusively."""
    return reach(tensor.shape, tensor.stride()) * tensor.element_size()
