"""Sorts. Places are asked for where they are settled: by a stable sort, or of distinct numbers."""

from __future__ import annotations

import torch

from tests.fuzz.draw import Draw, Made, Skip, Value, operation


def _comparable(x: Value) -> bool:
    return x.dim > 0 and not x.dtype.is_complex and all(all(shape) for shape in x.shapes)


def _distinct(x: Value, axis: int) -> bool:
    def test(item: torch.Tensor) -> bool:
        line = item.detach().sort(axis).values
        return not bool((line.diff(dim=axis) == 0).any())

    return x.dtype != torch.bool and x.all(test)


@operation("sorting", weight=1.5, exact=True)
def sort(d: Draw) -> Made:
    x = d.pick(_comparable)
    return Made(f"torch.sort({x}, dim={d.axis(x)}, descending={d.boolean()}, stable=True)", results=2)


@operation("sorting", exact=True)
def sort_values(d: Draw) -> str:
    x = d.pick(_comparable)
    return f"{x}.sort({d.axis(x)}).values"


@operation("sorting", exact=True)
def argsort(d: Draw) -> str:
    x = d.pick(_comparable)
    return f"torch.argsort({x}, dim={d.axis(x)}, stable=True)"


@operation("sorting", weight=1.5, exact=True)
def topk(d: Draw) -> Made:
    x = d.pick(_comparable)
    axis = d.axis(x)
    count = d.integer(1, min(3, *(shape[axis] for shape in x.shapes)))
    text = f"{x}.topk({count}, {axis}, largest={d.boolean()})"
    if _distinct(x, axis):
        return Made(text, results=2)
    if x.now.requires_grad:
        raise Skip  # where a gradient goes is not settled either
    return Made(f"{text}.values")


@operation("sorting", weight=0.5, exact=True)
def kthvalue(d: Draw) -> str:
    x = d.pick(_comparable)
    axis = d.axis(x)
    if not _distinct(x, axis):
        raise Skip
    return f"{x}.kthvalue(1, {axis}).values"


@operation("sorting", weight=0.5, exact=True)
def median(d: Draw) -> Made:
    x = d.pick(lambda x: _comparable(x) and x.dtype != torch.bool)
    axis = d.axis(x)
    if not _distinct(x, axis):
        raise Skip
    return Made(f"torch.median({x}, {axis})", results=2)


@operation("sorting", weight=0.3)
def quantile(d: Draw) -> str:
    x = d.pick(lambda x: _comparable(x) and str(x.dtype) in ("torch.float32", "torch.float64"))
    return f"torch.quantile({x}, 0.4, dim={d.axis(x)})"
