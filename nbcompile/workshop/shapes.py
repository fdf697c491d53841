"""Notebook 11: what changing sizes cost. The checkers compile, call, and count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import nbcompile
from nbcompile.api import Compiled
from nbcompile.units import count_text
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import called, captured, function, returned, whole_number


def graphs(compiled: Compiled) -> int:
    """How often it was compiled: graphs that Dynamo captured."""
    return len(captured(compiled.compilation))


def compiles_of(fn: Callable[..., Any], calls: Sequence[Sequence[int]], **options: Any) -> list[bool]:
    """For each call of ``fn`` with a tensor of the next shape, whether something was compiled for it."""
    compiled = nbcompile.compile(fn, **options)
    found, before = [], 0
    for shape in calls:
        compiled(torch.ones(*shape))
        after = graphs(compiled)
        found.append(after > before)
        before = after
    return found


@exercise("shapes.compiles")
def compiles(answer: int, fn: Callable[..., Any], calls: Sequence[Sequence[int]]) -> str:
    """How often ``fn`` is compiled in the course of these calls, in the order given. They are made, and
    counted."""
    whole_number(answer, "The number of compiles")
    found = compiles_of(fn, calls)
    if answer != sum(found):
        first = "too few" if answer < sum(found) else "too many"
        raise WrongAnswerError(
            f"{answer} is {first}. Go through the calls in order. After each compile, note which sizes the "
            "graph holds fixed and which are symbols: a call is compiled only if it meets the guards of none."
        )
    where = [str(n + 1) for n, made in enumerate(found) if made]
    served = len(calls) - sum(found)
    return f"{sum(found)} compiles, at calls {', '.join(where)}; the other {served} found a graph that fits."


@exercise("shapes.guard")
def guard(answer: Sequence[int], fn: Callable[..., Any], calls: Sequence[Sequence[int]]) -> str:
    """The first sizes of those calls, in order, for which ``fn`` is compiled with ``dynamic=True``. The calls
    are made."""
    if not isinstance(answer, list | tuple) or not all(type(size) is int for size in answer):
        raise WrongAnswerError("The answer is a list of sizes, in the order of the calls.")
    found = compiles_of(fn, calls, dynamic=True)
    right = [calls[n][0] for n, made in enumerate(found) if made]
    missing = [size for size in right if size not in answer]
    if len(answer) < len(right) and missing:
        raise WrongAnswerError(
            f"More are compiled than {len(answer)}: a graph is for one side of each branch, with what "
            "decides it as its guard. And one size is special."
        )
    if list(answer) != right:
        extra = [size for size in answer if size not in right]
        told = (
            f"{extra[0]} meets every guard of a graph made before" if extra else "they come in another order"
        )
        raise WrongAnswerError(f"Not quite: {told}.")
    return (
        f"one graph for each of {right}: a multiple of 8, another size, and the size that is never a symbol."
    )


@exercise("shapes.cost")
def cost(answer: int, fn: Callable[..., Any]) -> str:
    """How many exponentials an element costs where the length of a row is a symbol."""
    whole_number(answer, "The number of exponentials")
    counted = {}
    for dynamic in (False, True):
        compiled = nbcompile.compile(fn, dynamic=dynamic)
        compiled(torch.ones(64, 256))
        counted[dynamic] = sum(
            kernel.sources["c"].count("exp_f32(") for kernel in compiled.compilation.kernels
        )
    if answer != counted[True]:
        raise WrongAnswerError(
            f"Not {answer}. Look for the places in the C text where `exp_f32` is called, and ask where "
            "its results would have to be kept between two passes over a row."
        )
    return (
        f"{counted[True]} for each element, and {counted[False]} where the length is known: then a row's "
        "results are kept in an array on the stack, whose size has to be known."
    )


@exercise("shapes.steps")
def steps(schedule: Callable[..., Any]) -> str:
    """``schedule(step)`` makes what ``apply(x, factor)`` is called with."""
    function(schedule, "factor(step)")

    def apply(x: Any, factor: Any) -> Any:
        return x * factor

    count = 20
    compiled = nbcompile.compile(apply)
    x = torch.arange(4.0)
    kind = ""
    for step in range(count):
        factor = returned(called(schedule, "factor", step), "factor(step)", "return what x is multiplied by")
        kind = type(factor).__name__
        try:
            got = compiled(x, factor)
        except Exception as error:  # what the product of a tensor and anything may raise
            raise WrongAnswerError(f"x cannot be multiplied by a {kind}.") from error
        expected = x * 0.5**step
        if not isinstance(got, torch.Tensor) or got.dtype != x.dtype:
            raise WrongAnswerError(f"x times what factor({step}) returns, a {kind}, is no float32 tensor.")
        if got.shape != expected.shape or not torch.allclose(got, expected):
            raise WrongAnswerError(f"At step {step} it is {got.tolist()}, not {expected.tolist()}.")
    made = graphs(compiled)
    if made > 1:
        reasons = [recompile.reason for recompile in compiled.compilation.recompiles]
        raise WrongAnswerError(
            f"{made} compiles in {count} steps; the first graph no longer fitted because of `{reasons[0]}`. "
            f"A {kind} is something that Dynamo looks at: what would it leave for run time?"
        )
    return f"one compile for {count} steps: guards look at a tensor's shape and dtype, not at its values."


LENGTHS = (7, 1, 19, 33, 2, 48, 64, 1, 50, 12)
"""Of the requests in "shapes.serve", in their order."""


def _is_padded(made: Any) -> bool:
    """Whether this is a pair: tokens, ``(length, 16)`` in float32, and which are valid, ``(length,)``."""
    if not (isinstance(made, tuple) and len(made) == 2 and all(isinstance(t, torch.Tensor) for t in made)):
        return False
    tokens, valid = made
    kinds = (tokens.dtype, valid.dtype) == (torch.float32, torch.bool)
    return kinds and tokens.shape[1:] == (16,) and valid.shape == tokens.shape[:1]


@exercise("shapes.serve")
def serve(prepare: Callable[..., Any], score: Callable[..., Any]) -> str:
    """``prepare(tokens)`` pads one request; ``score(tokens, valid)`` is what is compiled."""
    function(prepare, "prepare(tokens)")
    generator = torch.Generator().manual_seed(3)
    compiled = nbcompile.compile(score)
    computed = 0
    for length in LENGTHS:
        tokens = torch.randn(length, 16, generator=generator)
        expected = score(tokens, torch.ones(length, dtype=torch.bool))
        made = called(prepare, "prepare", tokens.clone())
        returned(made, "prepare(tokens)", "return padded tokens and their mask")
        if not _is_padded(made):
            raise WrongAnswerError(
                "prepare(tokens) returns two tensors of the same length: tokens, rows of 16 float32, and "
                "valid, True or False for each."
            )
        got = compiled(*made)
        computed += int(made[0].shape[0])
        if not torch.allclose(got, expected, rtol=1e-4, atol=1e-5):
            raise WrongAnswerError(
                f"The request of {length} tokens, padded to {made[0].shape[0]}, gets another answer than by "
                f"itself: {int(made[1].sum())} of its tokens are called valid."
            )
    count = graphs(compiled)
    wanted = sum(LENGTHS)
    if count > 2:
        reasons = "; ".join(recompile.reason for recompile in compiled.compilation.recompiles)
        raise WrongAnswerError(f"{count} compiles for {len(LENGTHS)} requests. The reasons: {reasons}.")
    if computed > 2 * wanted:
        raise WrongAnswerError(
            f"{count_text(count, 'compile')}, but {computed} rows are computed for {wanted} "
            "tokens: more than half of the work is padding."
        )
    return (
        f"{count_text(count, 'compile')} for {len(LENGTHS)} requests, and {computed} rows for "
        f"{wanted} tokens: {100 * (computed - wanted) / wanted:.0f}% more work than without padding."
    )
