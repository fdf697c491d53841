"""Layouts of memory: strides in elements of a tensor without gaps."""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.compiler.loop_ir.index import ONE, ZERO, IndexExpr, at_least


def contiguous_strides(shape: Sequence[IndexExpr]) -> tuple[IndexExpr, ...]:
    """Row-major strides; an extent of 0 counts as 1, as in torch."""
    strides: list[IndexExpr] = []
    step = ONE
    for extent in reversed(shape):
        strides.append(step)
        step = step * (ONE if extent == ZERO else extent)
    return tuple(reversed(strides))


def is_dense(shape: tuple[IndexExpr, ...], strides: tuple[IndexExpr, ...]) -> bool:
    """Whether some permutation of the dimensions is row-major without gaps or overlap."""
    dims = [(stride, extent) for stride, extent in zip(strides, shape, strict=True) if extent != ONE]
    if any(extent == ZERO for _, extent in dims):
        return True
    step = ONE
    while dims:
        match = next((item for item in dims if item[0] == step), None)
        if match is None:
            return False
        dims.remove(match)
        step = step * match[1]
    return True


def dense_in_order(shape: Sequence[IndexExpr], strides: Sequence[IndexExpr]) -> tuple[IndexExpr, ...] | None:
    """Strides without gaps, dimensions in the order in which ``strides`` has them: what ATen gives a tensor
    made like one with gaps (a random one is drawn in that order). Symbols count as they were traced. None
    where a stride is 0."""
    if any(stride == ZERO for stride in strides):
        return None
    dims = range(len(shape))
    inward = sorted(dims, key=lambda n: (strides[n].hint(), shape[n].hint(), -n))
    found = dict(zip(inward, reversed(contiguous_strides([shape[n] for n in reversed(inward)]))))
    return tuple(found[n] for n in dims)


def has_own_places(shape: Sequence[IndexExpr], strides: Sequence[IndexExpr]) -> bool:
    """Whether each element surely has memory of its own: each step is longer than all below it reach."""
    dims = [
        (stride, extent) for stride, extent in zip(strides, shape, strict=True) if extent not in (ZERO, ONE)
    ]
    reach = ZERO
    for stride, extent in sorted(dims, key=lambda item: item[0].hint()):
        if not at_least(stride - 1, reach):
            return False
        reach = reach + stride * (extent - 1)
    return True
