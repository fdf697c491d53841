"""Losses."""

from __future__ import annotations

import torch

from tests.fuzz.draw import Draw, Value, operation


def _reduction(d: Draw) -> str:
    return d.choice(["", ", reduction='sum'", ", reduction='none'"])


def _some(x: Value) -> bool:
    return all(all(shape) for shape in x.shapes)


for _name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):

    def _make(d: Draw, name: str = _name) -> str:
        x = d.floating(test=_some)
        return f"F.{name}({x}, {d.like(x)}{_reduction(d)})"

    operation("losses", _name)(_make)


@operation("losses")
def bce_with_logits(d: Draw) -> str:
    x = d.floating(test=_some)
    return f"F.binary_cross_entropy_with_logits({x}, torch.sigmoid({d.like(x)}){_reduction(d)})"


@operation("losses")
def bce(d: Draw) -> str:
    x = d.floating(test=_some)
    return (
        f"F.binary_cross_entropy(torch.sigmoid({x}) * 0.9 + 0.05, torch.sigmoid({d.like(x)}){_reduction(d)})"
    )


@operation("losses")
def kl_div(d: Draw) -> str:
    x = d.floating(1, test=_some)
    return f"F.kl_div(F.log_softmax({x}, -1), F.softmax({d.like(x)} * 0.5, -1){_reduction(d)})"


@operation("losses", weight=3.0)
def cross_entropy(d: Draw) -> str:
    x = d.floating(1, 4, _some)
    axis = 1 if x.dim > 1 else 0
    least = min(shape[axis] for shape in x.shapes)
    shapes = [(*shape[:axis], *shape[axis + 1 :]) for shape in x.shapes]
    known = [v for v in d.known if v.dtype == torch.int64 and v.shapes == shapes and v.within(0, least - 1)]
    target = d.choice(known) if known and d.boolean() else d.new_input(shapes, torch.int64, f"index:{least}")
    extra = d.choice(["", "", ", label_smoothing=0.1", ", ignore_index=0"])
    if extra.endswith("=0"):
        extra += ", reduction='sum'"
    else:
        extra += _reduction(d)
    return f"F.cross_entropy({x}, {target}{extra})"


@operation("losses")
def nll(d: Draw) -> str:
    x = d.floating(2, 2, _some)
    least = min(shape[1] for shape in x.shapes)
    target = d.new_input([(shape[0],) for shape in x.shapes], torch.int64, f"index:{least}")
    return f"F.nll_loss(F.log_softmax({x}, 1), {target}{_reduction(d)})"


@operation("losses", weight=0.5)
def soft_cross_entropy(d: Draw) -> str:
    x = d.floating(2, 3, _some)
    return f"F.cross_entropy({x}, F.softmax({d.like(x)}, 1){_reduction(d)})"


@operation("losses", weight=0.5)
def margin(d: Draw) -> str:
    x = d.floating(1, 2, _some)
    y = d.like(x)
    return d.choice(
        [
            f"F.margin_ranking_loss({x}, {y}, torch.sign({d.like(x)}){_reduction(d)})",
            f"F.soft_margin_loss({x}, torch.sign({y}){_reduction(d)})",
            f"F.poisson_nll_loss({x} * 0.5, {y}.abs(){_reduction(d)})",
            f"F.gaussian_nll_loss({x}, {y}, {d.like(x)}.abs() + 0.5{_reduction(d)})",
            f"F.triplet_margin_loss({x}, {y}, {d.like(x)} + 1{_reduction(d)})",
        ]
    )
