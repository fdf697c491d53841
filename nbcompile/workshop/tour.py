"""Notebook 00, the tour: its picture, and the judges of its exercises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from nbcompile.record.compilation import Compilation
from nbcompile.workshop.charts import Chart
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import (
    called,
    equal,
    function,
    number,
    record_of,
    tensor,
    traffic,
    whole_numbers,
)

_FORMS = (
    ("your cell", "Python", ("y = x @ w", "z = F.gelu(y + b)"), ""),
    ("graph", "operations", ("matmul(x, w)", "add(matmul, b)", "gelu(add)"), "capture"),
    ("loops", "one for each", ("call mm", "a[i,j] = mm[i,j]+b[j]", "g[i,j] = gelu(a[i,j])"), "lower"),
    ("fused", "groups of loops", ("call mm", "a, g together:", "a stays in a register"), "fuse"),
    ("kernels", "C or Triton", ("for i: for j:", "  a = mm[..] + b[j]", "  g[..] = gelu(a)"), "codegen"),
)
"""The forms of a program: title, kind, lines, and the step that leads to it."""


def _picture() -> Chart:
    drawn, width = "", 162
    code = 'font-family="monospace" font-size="11.5" xml:space="preserve" fill="#222222"'
    for place, (title, kind, lines, step) in enumerate(_FORMS):
        left = 10 + place * (width + 52)
        drawn += (
            f'<rect x="{left}" y="6" width="{width}" height="112" rx="6" fill="#f5f8fc" stroke="#0b6bcb"/>'
            f'<text x="{left + 10}" y="28" font-weight="bold" fill="#0b3d75">{title}</text>'
            f'<text x="{left + width - 10}" y="28" text-anchor="end" fill="#666666">{kind}</text>'
        )
        for row, line in enumerate(lines):
            drawn += f'<text x="{left + 10}" y="{56 + 20 * row}" {code}>{line}</text>'
        if step:
            arrow = f"M{left - 44} 62 h32 m-7 -5 l8 5 l-8 5"
            label = 'text-anchor="middle" font-size="11.5" fill="#c2410c"'
            drawn += (
                f'<path d="{arrow}" fill="none" stroke="#c2410c" stroke-width="2"/>'
                f'<text x="{left - 26}" y="48" {label}>{step}</text>'
            )
    style = "font-family:sans-serif;font-size:13px;max-width:100%;height:auto"
    return Chart(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1040 124" width="872" height="104"'
        f' style="{style}"><rect width="1040" height="124" fill="#ffffff"/>{drawn}</svg>',
        " → ".join(title for title, *_ in _FORMS),
    )


PICTURE = _picture()


def normed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The second program of the notebook."""
    mean_square = (x * x).mean(-1, keepdim=True)
    scaled = x * torch.rsqrt(mean_square + 1e-6)
    return torch.relu(scaled @ w)


def _matrices() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2048, 512, generator=generator), torch.randn(512, 512, generator=generator)


def counts(record: Compilation) -> dict[str, int]:
    """What the strip above an account counts."""
    loops = [node for graph in record.graphs if graph.stage == "loops" for node in graph.nodes]
    made = ("pointwise", "reduction", "scan", "scatter")
    return {
        "loops": sum(node.kind in made for node in loops),
        "library calls": sum(node.kind == "library" for node in loops),
        "kernels": len(record.kernels),
    }


@exercise("tour.counts")
def read_counts(answer: Mapping[str, Any]) -> str:
    """Loops, library calls and kernels of ``normed``."""
    whole_numbers(answer, ("loops", "library calls", "kernels"))
    truth = counts(record_of(normed, *_matrices()))
    where = {
        "loops": "The strip at the top of the account has this number. A library call is no loop of ours.",
        "library calls": "Look for the lines of the cell that are tinted as PyTorch's own library.",
        "kernels": "Each kernel has its own listing in the account. What stands between the two?",
    }
    equal(answer, truth, where)
    return (
        f"{truth['loops']} loops became {truth['kernels']} kernels, one before the matrix product and one "
        "after it. The product is a call, and no kernel reaches across a call."
    )


@exercise("tour.bytes")
def bytes_saved(answer: float) -> str:
    """How many times fewer bytes the kernels of ``normed`` move than one kernel a loop would."""
    number(answer, "The quotient of the two numbers of bytes")
    fused, apart = (traffic(record_of(normed, *_matrices(), fuse=fuse)) for fuse in (True, False))
    truth = apart / fused
    if abs(answer - truth) > 0.05 * truth:
        if abs(answer - 1 / truth) < 0.05 / truth:
            raise WrongAnswerError("That is the quotient the other way round.")
        raise WrongAnswerError(
            f"Not {answer:.3g}. Add up bytes_read and bytes_written over the kernels of each of the two "
            "records, and divide the larger sum by the smaller."
        )
    return (
        f"{apart / 1e6:.1f} MB with one kernel a loop, {fused / 1e6:.1f} MB fused: {truth:.2f} times fewer."
    )


@exercise("tour.write")
def write(answer: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> str:
    """A function of two matrices with one library call between two kernels, of four loops or more."""
    function(answer, "program(x, w)")
    tensor(called(answer, "program", torch.ones(2048, 512), torch.ones(512, 512)), "program")
    record = record_of(answer, *_matrices())
    found = counts(record)
    told = ", ".join(f"{name}: {number}" for name, number in found.items())
    if record.breaks:
        reason = record.breaks[0].reason
        raise WrongAnswerError(f"The graph breaks: {reason}. Use tensor operations only.")
    if found["library calls"] != 1:
        raise WrongAnswerError(f"Yours has: {told}. One matrix product is one library call.")
    if found["kernels"] != 2:
        raise WrongAnswerError(
            f"Yours has: {told}. What stands on one side of the product becomes one kernel where it fuses; "
            "there is to be one on each side."
        )
    if found["loops"] < 4:
        raise WrongAnswerError(f"Yours has: {told}. Four loops at least: give one of the kernels more to do.")
    return f"yours has: {told}. The product keeps the two kernels apart."
