"""Notebook 00, the tour: the judges of its exercises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from nbcompile.compilation import Compilation
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import function, number, record_of, traffic, whole_numbers


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
    truth = counts(record_of(normed, *_matrices()))
    whole_numbers(answer, truth)
    where = {
        "loops": "The strip at the top of the account has this number. A library call is no loop of ours.",
        "library calls": "Look for the lines of the cell that are tinted as PyTorch's own library.",
        "kernels": "Each kernel has its own listing in the account. What stands between the two?",
    }
    for name, counted in truth.items():
        if answer[name] != counted:
            raise WrongAnswerError(f"{name}: not {answer[name]}. {where[name]}")
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
    if not isinstance(answer(torch.ones(4, 4), torch.ones(4, 4)), torch.Tensor):
        raise WrongAnswerError("program returns no tensor: write its body in place of the dots.")
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
