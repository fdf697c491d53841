"""Indices that a guard makes equal: where ``3 <= i < 4``, what is read at ``x[3, j]`` is ``x[i, j]``.

An input that is overwritten by parts is read at the very points that it is written at, seen so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nbcompile.compiler.loop_ir.index import ONE, IndexExpr

Pins = tuple[tuple[IndexExpr, IndexExpr], ...]
"""Pairs of indices that are equal where something is read: a guard around it leaves no other point."""


def pins_of(bounds: Iterable[tuple[IndexExpr, IndexExpr, IndexExpr]]) -> Pins:
    """What the bounds of a guard make equal."""
    return tuple((item, low) for item, low, high in bounds if high - low == ONE)


def by_pins(places: tuple[IndexExpr, ...], written: Sequence[IndexExpr], pins: Pins) -> tuple[IndexExpr, ...]:
    """Places, those that are as ``written`` by what is equal here, as it has them."""
    if not pins or len(written) != len(places):
        return places
    apart = [item - low for item, low in pins]
    return tuple(
        there if there != here and (there - here in apart or here - there in apart) else here
        for here, there in zip(places, written, strict=True)
    )
