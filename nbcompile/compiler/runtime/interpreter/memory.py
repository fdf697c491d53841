"""What an interpreted kernel may do to memory: the checks of compute-sanitizer, on the CPU.

- Every address lies inside the storage of the argument that its pointer was made from, on a multiple of
  the element's size.
- Programs of a launch run in no known order. So none may read what another writes, nor two write different
  values to one place, nor one instruction do so itself. A program that has done an atomic operation may have
  learnt by it that others are finished, and is believed from then on; in a launch whose programs wait
  for each other only addresses are checked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nbcompile.errors import LaunchError

Array = np.ndarray[Any, Any]

_NOBODY, _SEVERAL = -1, -2


@dataclass(frozen=True)
class Range:
    """Addresses from ``start`` up to ``end`` belong to the argument ``name``, of ``size``-byte elements."""

    name: str
    start: int
    end: int
    size: int


class HostMemory:
    """The arguments of one launch. ``enter`` says which program runs next; the others check an access and
    raise LaunchError. ``owner`` is the position of the argument that a pointer was made from, -1 if unknown.
    ``races``: look for them too."""

    def __init__(self, ranges: dict[int, Range], races: bool) -> None:
        self._ranges = ranges
        self._races = races
        self._place: tuple[int, ...] = ()
        self._program = 0
        self._believed: set[int] = set()
        # by where a storage starts: for each element, the program that wrote it and the one that read it
        self._writers: dict[int, Array] = {}
        self._readers: dict[int, Array] = {}

    def enter(self, number: int, place: tuple[int, ...]) -> None:
        self._program, self._place = number, place

    def load(self, addresses: Array, size: int, owner: int) -> None:
        held = self._inside("loads", addresses, size, owner)
        if held is None:
            return
        places = self._places(held, addresses)
        writers, readers = self._writers[held.start], self._readers[held.start]
        wrote = writers[places]
        others = (wrote != _NOBODY) & (wrote != self._program)
        if others.any() and self._program not in self._believed:
            self._race("loads", held, places[others], wrote[others], "writes")
        read = readers[places]
        readers[places] = np.where((read == _NOBODY) | (read == self._program), self._program, _SEVERAL)

    def store(self, addresses: Array, size: int, owner: int, values: Array) -> None:
        held = self._inside("stores", addresses, size, owner)
        if held is None:
            return
        places = self._places(held, addresses)
        new = _bits(values, size)
        if new is not None and places.size > 1 and not np.all(places[1:] > places[:-1]):
            self._alone(held, places, new)
        writers, readers = self._writers[held.start], self._readers[held.start]
        if self._program not in self._believed:
            for who, what in ((writers[places], "writes"), (readers[places], "reads")):
                others = (who != _NOBODY) & (who != self._program)
                if others.any() and new is not None:  # writing what is there already harms nobody
                    others &= _contents(held)[places] != new
                    if others.any():
                        self._race("stores", held, places[others], who[others], what)
        writers[places] = self._program

    def update(self, addresses: Array, size: int, owner: int) -> None:
        """An atomic operation."""
        self._inside("updates", addresses, size, owner)
        self._believed.add(self._program)

    def _inside(self, verb: str, addresses: Array, size: int, owner: int) -> Range | None:
        """The argument that all addresses lie in; None if they need no more checks."""
        if addresses.size == 0:
            return None
        low, high = int(addresses.min()), int(addresses.max()) + size
        own = self._ranges.get(owner)
        candidates = [own] if own is not None else list(self._ranges.values())
        held = next((item for item in candidates if item.start <= low and high <= item.end), None)
        if held is None:
            inside = np.zeros(addresses.shape, bool)
            for item in candidates:
                inside |= (addresses >= item.start) & (addresses + np.uint64(size) <= item.end)
            if not inside.all():
                self._refuse(verb, int(addresses[~inside].flat[0]), size, own)
        if size > 1 and np.any(addresses % np.uint64(size)):
            raise LaunchError(
                f"program {self._place} {verb} {size}-byte elements where no multiple of {size} lies."
            )
        return held if held is not None and held.size == size and self._races else None

    def _places(self, held: Range, addresses: Array) -> Array:
        """Positions of elements in the storage."""
        if held.start not in self._writers:
            count = (held.end - held.start) // held.size
            self._writers[held.start] = np.full(count, _NOBODY, np.int32)
            self._readers[held.start] = np.full(count, _NOBODY, np.int32)
        places: Array = ((addresses - np.uint64(held.start)) // np.uint64(held.size)).astype(np.int64).ravel()
        return places

    def _alone(self, held: Range, places: Array, new: Array) -> None:
        order = np.argsort(places, kind="stable")
        sorted_places, values = places[order], new[order]
        clash = (sorted_places[1:] == sorted_places[:-1]) & (values[1:] != values[:-1])
        if clash.any():
            place = int(sorted_places[1:][clash][0])
            raise LaunchError(
                f"program {self._place} stores two different values in element {place} "
                f"of the storage of argument {held.name}."
            )

    def _race(self, verb: str, held: Range, places: Array, who: Array, what: str) -> None:
        other = f"program number {int(who[0])}" if int(who[0]) >= 0 else "another program"
        raise LaunchError(
            f"program {self._place} {verb} element {int(places[0])} of the storage of argument {held.name}, "
            f"which {other} {what}: which comes first is not known."
        )

    def _refuse(self, verb: str, address: int, size: int, owner: Range | None) -> None:
        where = f"at address {address:#x}, in no argument"
        if owner is not None:
            extent = (owner.end - owner.start) // size
            place = (address - owner.start) // size
            where = f"element {place} of the storage of argument {owner.name}, which has {extent}"
        raise LaunchError(f"program {self._place} {verb} {where} ({size}-byte elements).")


def one_size(ranges: Iterable[Range]) -> bool:
    """Whether no storage is seen as elements of two sizes, which the order checks do not follow."""
    sizes: dict[int, int] = {}
    return all(sizes.setdefault(item.start, item.size) == item.size for item in ranges)


def _bits(values: Array, size: int) -> Array | None:
    """Values as unsigned numbers of their bits, flat; None if they are not stored as they are."""
    flat = np.ascontiguousarray(values).ravel()
    return flat.view(f"u{size}") if flat.dtype.itemsize == size else None


def _contents(held: Range) -> Array:
    count = (held.end - held.start) // held.size * held.size
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(held.start)).view(f"u{held.size}")
